"""Where a plan may leave rows out within a dataflow: on arcs behind which nothing must stay whole (distribution.md, D3).

Rows are left out before they are sent, so an arc is such a place only if every box and every output behind it can do without any row. A
box of estimates can, where the rows come to it themselves, with what they stand for.
The sources above it must be able to say how late they are: what one without a pace offers is what was taken of it, and no plan would ever
be done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from evenflow.plan.layout import Arc, Layout, Quality, Segment, Thin, Valued
from evenflow.query.kinds import read
from evenflow.query.kinds.sink import Sink
from evenflow.query.lateness import tells_due
from evenflow.query.lineage import Stream, passed_on, value_of
from evenflow.query.network import Box, Network
from evenflow.query.qos import Qos
from evenflow.query.units import needs_whole
from evenflow.stream.weight import WEIGHT
from evenflow.stream.worth import ALIKE, Classes, classes_of


def thins_of(network: Network, segments: Sequence[Segment], arcs: Sequence[Arc]) -> Mapping[int, Thin]:
    """By arc, what may be left out there; nothing if no output has a quality of service."""
    sinks = {box.name: qos_of(box) for box in network.of_kind("sink")}
    if not any(sinks.values()):
        return {}
    whole = {box.name for box in network.boxes if needs_whole(network, box)}
    sampled = {box.name for box in network.boxes if box.params.get("sampled")}
    below: dict[int, set[str]] = {}
    for segment in reversed(segments):  # Consumers come last.
        mine = {step.box for step in segment.steps} | ({segment.sink} if segment.sink is not None else set())
        below[segment.id] = mine.union(*(below[arcs[arc].consumer] for arc in segment.outputs))
    late: dict[int, bool] = {}
    for segment in segments:
        above = [late[arcs[arc].producer] for arc in segment.inputs]
        late[segment.id] = tells_due(network, segment.source) if segment.source is not None else all(above)
    values = {name: value_of(network, network.box(name)) for name, qos in sinks.items() if qos is not None}
    found = {}
    for arc in arcs:
        commits = any(step.kind == "commit" for step in segments[arc.consumer].steps)
        stream = _stream(segments[arc.producer], arc)
        weighs = not _combined(segments[arc.producer], arc) and WEIGHT in arc.schema.names and _stands(network, stream)
        kept = whole if weighs else whole | sampled
        if late[arc.producer] and not commits and not below[arc.consumer] & kept:
            outputs = tuple(name for name in sinks if name in below[arc.consumer])
            if weighs:  # Some of all must stay.
                found[arc.id] = Thin(outputs, weighs=True)
                continue
            told = {(values[name].get(stream), qos.value) for name in outputs if (qos := sinks[name]) is not None}
            column, curve = told.pop() if len(told) == 1 else (None, None)
            alike = column is None or curve is None or column not in arc.schema.names
            found[arc.id] = Thin(outputs) if alike or curve is None else Thin(outputs, column, classes_of(curve))
    return found


def valued_of(network: Network, thins: Mapping[int, Thin]) -> Mapping[str, Valued]:
    """What outputs are worth, where arcs can be thinned: with classes if all who have some have the same ones."""
    if not thins:
        return {}
    common = classes_in_common(thins.values())
    found = {}
    for box in network.of_kind("sink"):
        qos = qos_of(box)
        alike = qos is None or qos.value is None or classes_of(qos.value) != common
        worth = (1.0,) * len(common) if alike else common.worth
        found[box.name] = Valued(worth=worth, protected=True) if qos is None else Valued(qos.weight, qos.loss, worth)
    return found


def qualities_of(network: Network) -> Mapping[str, Quality]:
    """What is said of the answers of outputs."""
    given = ((box.name, qos_of(box)) for box in network.of_kind("sink"))
    return {name: Quality(qos.weight, qos.loss, qos.latency) for name, qos in given if qos is not None}


def thins_text(cut: Layout) -> str:
    """Where plans may leave rows out, a line each; nothing if nowhere."""
    lines = [
        f"by plans (`shedding` lp or fit), rows from {cut.segments[cut.arcs[arc].producer].name!r} to "
        f"{cut.segments[cut.arcs[arc].consumer].name!r}, which {', '.join(map(repr, thin.outputs))} would miss"
        f"{f', by their {thin.column!r}' if thin.column else ''}\n"
        for arc, thin in cut.thins.items()
    ]
    return "".join(lines)


def classes_in_common(thins: Iterable[Thin]) -> Classes:
    """The classes by which a plan may choose on all these arcs; one class where they do not agree."""
    told = {thin.classes for thin in thins}
    return told.pop() if len(told) == 1 else ALIKE


def qos_of(box: Box) -> Qos | None:
    kind = read(box.kind, box.params)
    assert isinstance(kind, Sink)
    return kind.qos


def _stands(network: Network, stream: Stream) -> bool:
    """Whether the column of that name says what the rows of a stream stand for, as their sources say it."""
    waiting = [stream]
    while waiting:
        name, port = waiting.pop()
        box = network.box(name)
        if box.kind == "source":
            if not box.params.get("weights"):
                return False
            continue
        above = {number for number, column in passed_on(network, box, port, WEIGHT) if column == WEIGHT}
        if not box.inputs or len(above) < len(box.inputs):
            return False
        waiting += box.inputs
    return True


def _combined(producer: Segment, arc: Arc) -> bool:
    """Whether an arc carries what was put together of several rows."""
    return arc.port.step >= 0 and producer.steps[arc.port.step].kind == "combine"


def _stream(producer: Segment, arc: Arc) -> Stream:
    """The stream of the network that an arc carries."""
    if arc.port.step < 0:
        return (producer.source or producer.name, 0)
    return (producer.steps[arc.port.step].box, arc.port.port)


__all__ = ["classes_in_common", "thins_of", "thins_text", "valued_of"]
