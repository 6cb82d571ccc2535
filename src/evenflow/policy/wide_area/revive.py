"""P3: which of the legs that were left out come back, where a replica hears too late (HW 5.4.3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from evenflow.policy.wide_area.discard import Input
from evenflow.policy.wide_area.legs import Leg, Replica


def revive(delays: Mapping[Input, float], threshold: float, *, discarded: Sequence[Leg], running: Collection[Replica]) -> tuple[Leg, ...]:
    """The legs to be taken up again: for each input that is late by more than the threshold the cheapest one from a replica that works;
    where there is none the cheapest one from a replica that was given up, with a leg for each of that one's inputs.

    delays: of each input the delay of the first of its live legs, ms; infinite where none delivers. threshold: ms. running: replicas that
    run, sources too; one of which an input is late itself is no help. Empty where nothing helps. Pure; ties go to the first leg.
    """
    late = {key for key, delay in delays.items() if delay > threshold}
    works = set(running) - {replica for _, replica in late}
    by_input: dict[Input, list[Leg]] = {}
    for leg in discarded:
        by_input.setdefault((leg.producer.name, leg.consumer), []).append(leg)
    found: dict[Leg, None] = {}
    for key in delays:
        if key in late:
            for leg in _way(key, by_input, works, set(running), ()):
                found[leg] = None
    return tuple(found)


def _way(
    key: Input,
    by_input: Mapping[Input, Sequence[Leg]],
    works: Collection[Replica],
    running: Collection[Replica],
    above: tuple[Replica, ...],
) -> tuple[Leg, ...]:
    """The legs that bring this input; none if there is no way. above: the replicas for which it is asked."""
    choice = sorted(by_input.get(key, ()), key=lambda leg: leg.cost)
    for leg in choice:
        if leg.producer in works:
            return (leg,)
    for leg in choice:
        # One that runs and is late itself asks for its own.
        if leg.producer in running or leg.producer in above:
            continue
        needs = [other for other in by_input if other[1] == leg.producer]
        ways = [_way(other, by_input, works, running, (*above, leg.producer)) for other in needs]
        if needs and all(ways):
            return (leg, *(each for way in ways for each in way))
    return ()
