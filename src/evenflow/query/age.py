"""What the answers that a segment helps to make are worth by their age: what says whose epochs are urgent at a site that has
too much, and how often they are wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evenflow.plan.layout import Arc, Segment, Worth
from evenflow.query.kinds import read
from evenflow.query.kinds.sink import Sink
from evenflow.query.network import Network
from evenflow.query.protecting import STEPS


def worths_of(network: Network, segments: Sequence[Segment], arcs: Sequence[Arc]) -> Mapping[int, tuple[Worth, ...]]:
    """By segment, of the outputs that it feeds. Nothing if no output has a latency, or all have the same one and weight: then nothing is
    more urgent than anything else, and sites need not ask."""
    told: dict[str, Worth] = {}
    for box in network.of_kind("sink"):
        sink = read(box.kind, box.params)
        assert isinstance(sink, Sink)
        if sink.qos is None:
            told[box.name] = Worth(protected=True)
        else:
            told[box.name] = Worth(sink.qos.weight, () if sink.qos.latency is None else sink.qos.latency.points)
    if len(set(told.values())) < 2 or not any(worth.latency for worth in told.values()):
        return {}
    found: dict[int, dict[str, Worth]] = {}
    for segment in reversed(segments):  # Consumers come last.
        mine = {step.box: told[step.box] for step in segment.steps if step.kind in STEPS["sink"]}
        if segment.sink is not None:
            mine[segment.sink] = told[segment.sink]
        for arc in segment.outputs:
            mine |= found.get(arcs[arc].consumer, {})
        found[segment.id] = mine
    return {segment: tuple(mine.values()) for segment, mine in found.items()}


def every_us_of(network: Network) -> int | None:
    """How often rows are wanted by who wants them most often; None: somebody wants them as soon as they are there. Nobody reads what is
    discarded."""
    sinks = [read(box.kind, box.params) for box in network.of_kind("sink")]
    wanted = [sink.every_us for sink in sinks if isinstance(sink, Sink) and sink.sink.where != "none"]
    return None if not wanted or None in wanted else min(each for each in wanted if each is not None)
