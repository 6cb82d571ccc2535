"""P2: which legs are left out, so that the network's cost is below a target and answers come hardly later (HW 5.4.2, algorithm 8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evenflow.errors import PolicyError
from evenflow.policy.wide_area.legs import Leg, Replica, cost

Input = tuple[str, Replica]
"""What one replica hears from one operator: by how many legs makes no difference to what it hears."""


def discard(legs: Sequence[Leg], theta: float, k_min: int) -> tuple[Leg, ...]:
    """The legs to be left out, in their order: while the cost of the others is beyond theta, the group that is worth least for its cost.

    theta: in the unit of the legs' cost. k_min: replicas that each operator keeps, >= 1. A replica without a use, or without one of its
    inputs, goes with its legs. The cost stays above theta where nothing more can go. Pure; ties go to the first leg. Raises PolicyError.
    """
    gone: list[Leg] = []
    left = cost(legs)
    for group in discards(legs, k_min):
        if left <= theta:
            break
        gone += group
        left -= cost(group)
    return tuple(gone)


def discards(legs: Sequence[Leg], k_min: int) -> Iterator[tuple[Leg, ...]]:
    """The groups as they would go for a target of nothing, the first to go first. Cost: O(legs) for each."""
    if k_min < 1:
        raise PolicyError(f"k_min is {k_min}; an operator keeps at least one replica")
    graph = _Graph.of(legs)
    while True:
        worth = utilities(list(graph.legs))
        least: tuple[float, int] | None = None
        found: tuple[Leg, ...] = ()
        seen: set[Replica] = set()
        for place, leg in enumerate(graph.legs):
            # Whichever of the legs goes that a replica cannot be without, the same ones go with it.
            useless = graph.useless_without(leg)
            if useless in seen:
                continue
            if useless is not None:
                seen.add(useless)
            group = graph.dependents(leg, k_min)
            if group is None:
                continue
            rank = (ratio(sum(worth[each] for each in group), cost(group)), place)
            if least is None or rank < least:
                least, found = rank, group
        if least is None:
            return
        graph.drop(found)
        yield found


def ratio(utility: float, paid: float) -> float:
    """Utility by cost. What costs nothing is not in the way: it goes last."""
    return utility / paid if paid > 0 else float("inf")


def utilities(legs: Sequence[Leg]) -> Mapping[Leg, float]:
    """What each leg does for applications: an application is worth 1, an operator's replica what its outputs are, and the legs of one
    input share what their consumer is worth by their weights."""
    outputs: dict[Replica, list[Leg]] = {}
    weights: dict[Input, float] = {}
    beside: dict[Input, int] = {}
    for leg in legs:
        outputs.setdefault(leg.producer, []).append(leg)
        key = leg.producer.name, leg.consumer
        weights[key] = weights.get(key, 0.0) + leg.weight
        beside[key] = beside.get(key, 0) + 1
    of_replica: dict[Replica, float] = {}
    of_leg: dict[Leg, float] = {}

    def worth(replica: Replica) -> float:
        if replica not in of_replica:
            of_replica[replica] = sum(of(leg) for leg in outputs[replica]) if replica in outputs else 1.0
        return of_replica[replica]

    def of(leg: Leg) -> float:
        if leg not in of_leg:
            key = leg.producer.name, leg.consumer
            # Legs that have brought nothing yet are as good as each other.
            share = leg.weight / weights[key] if weights[key] > 0 else 1 / beside[key]
            of_leg[leg] = share * worth(leg.consumer)
        return of_leg[leg]

    return {leg: of(leg) for leg in legs}


@dataclass(slots=True)
class _Graph:
    """The legs that are left. legs: as a dict, for its order. fixed: sources and applications, which nothing replaces."""

    legs: dict[Leg, None]
    inputs: dict[Input, set[Leg]]
    hears: dict[Replica, list[Input]]
    outputs: dict[Replica, set[Leg]]
    replicas: dict[str, set[Replica]]
    fixed: set[Replica]

    @staticmethod
    def of(legs: Sequence[Leg]) -> _Graph:
        graph = _Graph(dict.fromkeys(legs), {}, {}, {}, {}, set())
        for leg in graph.legs:
            key = leg.producer.name, leg.consumer
            if key not in graph.inputs:
                graph.hears.setdefault(leg.consumer, []).append(key)
            graph.inputs.setdefault(key, set()).add(leg)
            graph.outputs.setdefault(leg.producer, set()).add(leg)
            for replica in (leg.producer, leg.consumer):
                graph.replicas.setdefault(replica.name, set()).add(replica)
        graph.fixed = {leg.producer for leg in legs if leg.producer not in graph.hears}
        graph.fixed |= {leg.consumer for leg in legs if leg.consumer not in graph.outputs}
        return graph

    def dependents(self, leg: Leg, k_min: int) -> tuple[Leg, ...] | None:
        """The leg and what must go with it, in the legs' order; None if it must stay."""
        gone: set[Leg] = set()
        removed: dict[Replica, None] = {}
        waiting = [leg]
        while waiting:
            each = waiting.pop()
            if each in gone:
                continue
            gone.add(each)
            for replica in (each.producer, each.consumer):
                if replica in removed or not self._is_useless(replica, gone):
                    continue
                if replica in self.fixed:
                    return None
                removed[replica] = None
                if sum(other not in removed for other in self.replicas[replica.name]) < k_min:
                    return None
                waiting += [other for key in self.hears[replica] for other in self.inputs[key] if other not in gone]
                waiting += [other for other in self.outputs[replica] if other not in gone]
        return (leg,) if len(gone) == 1 else tuple(each for each in self.legs if each in gone)

    def useless_without(self, leg: Leg) -> Replica | None:
        """The replica that this leg alone makes useless, if any."""
        for replica in (leg.consumer, leg.producer):
            if self._is_useless(replica, {leg}):
                return replica
        return None

    def _is_useless(self, replica: Replica, gone: set[Leg]) -> bool:
        """Nobody hears it, or it does not hear all that it needs."""
        heard = self.outputs.get(replica)
        if heard is not None and heard <= gone:
            return True
        return any(self.inputs[key] <= gone for key in self.hears.get(replica, ()))

    def drop(self, group: Sequence[Leg]) -> None:
        for leg in group:
            del self.legs[leg]
            self.inputs[leg.producer.name, leg.consumer].discard(leg)
            self.outputs[leg.producer].discard(leg)
        for replica in {end for leg in group for end in (leg.producer, leg.consumer)} - self.fixed:
            if not self.outputs[replica]:
                self.replicas[replica.name].discard(replica)
