"""A network and its segments as text: one line a box, one block a segment."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from evenflow.plan.layout import Arc, Dealt, Keyed, Layout, Port, Segment, Single, Spread, Step
from evenflow.query.kinds import KINDS, read
from evenflow.query.kinds.aggregate import Aggregate
from evenflow.query.network import LATE_PORT, Box, Network, dead_letter_port, port_suffix
from evenflow.query.whole import moved_whole
from evenflow.stream.schema import ddl_of
from evenflow.stream.visible import visible


def network_text(network: Network) -> str:
    """One line a box, in topological order: name, kind, inputs, what it does, the columns it puts out."""
    names = max((len(_line(box.name)) for box in network), default=0)
    kinds = max((len(box.kind) for box in network), default=0)
    lines = [f"dataflow {network.name}: {len(network)} boxes"]
    for box in network:
        came = ", ".join(up + port_suffix(network.box(up), port) for up, port in box.inputs)
        parts = [f"  {_line(box.name):<{names}}  {box.kind:<{kinds}}"]
        parts += [f"<- {came}"] if came else []
        parts += [what] if (what := ", ".join(details(box))) else []
        if box.schemas:
            parts.append(f"-> ({ddl_of(box.schemas[0])})" + (f" event time {box.event_time}" if box.event_time else ""))
        lines.append("  ".join(parts))
    return "".join(f"{_line(line)}\n" for line in lines)


def layout_text(planned: Layout) -> str:
    """Each segment with its inputs and how rows are routed to it, its steps, and where they get their rows from.

    Where keys can only be moved whole, it says why.
    """
    whole = {found.segment: found for found in moved_whole(planned)}
    lines = [f"{len(planned.segments)} segments, {len(planned.arcs)} streams"]
    for segment in planned.segments:
        count = f"{segment.partitions} partition{'s' if segment.partitions > 1 else ''}"
        order = ", input in canonical order" if segment.sensitive else ""
        lines.append(f"segment {segment.id} {segment.name!r}: {segment.kind}, {count}{order}")
        if segment.source is not None:
            lines.append(f"  input   source {segment.source!r}")
        for number in segment.inputs:
            side = "" if not segment.right else " (right)" if number in segment.right else " (left)"
            lines.append(f"  input   stream {number}{side} {_arc_text(planned.arcs[number], planned.segments)}")
        if segment.id in whole:
            lines.append(f"  keys    can only be moved whole: {whole[segment.id].reason}")
        for index, step in enumerate(segment.steps):
            lines.append(f"  step {index}  {_step_text(step, index, segment.steps)}")
        if segment.sink is not None:
            lines.append(f"  output  sink {segment.sink!r}")
    return "".join(f"{_line(line)}\n" for line in lines)


def _line(text: str) -> str:
    """The text as one line that any terminal may be given: names and values may have whatever they like in them."""
    return visible(text).replace("\n", "\\n")


def _arc_text(arc: Arc, segments: Sequence[Segment]) -> str:
    match arc.route:
        case Keyed(columns):
            route = f"by {', '.join(columns)}"
        case Single():
            route = "to one partition"
        case Spread():
            route = "spread"
        case Dealt():
            route = "dealt out"
    step = "" if arc.port.step < 0 else f" step {arc.port.step}"
    producer = f"{arc.producer} {segments[arc.producer].name!r}{step}{_port(arc.port, segments[arc.producer].steps)}"
    return f"from segment {producer}, {route}: {columns_text(arc.schema, 8)}"


def _step_text(step: Step, index: int, steps: Sequence[Step]) -> str:
    source = "" if step.source == Port(index - 1) else f" <- step {step.source.step}{_port(step.source, steps)}"
    if step.source == Port(-1) and index:
        source = " <- input"
    if step.other is not None:
        source = " <- left input, right input"
    what = ", ".join(_step_details(step))
    user = " (user code)" if step.user_code else ""
    return f"{step.kind} [{step.box}]{source}{user}" + (f"  {what}" if what else "")


def _port(port: Port, steps: Sequence[Step]) -> str:
    step = steps[port.step] if port.step >= 0 else None
    if step is not None and dead_letter_port(step.kind, step.params) == port.port:
        return " dead letters"
    if step is not None and step.kind == "case":
        return f" output {port.port}"
    return " late rows" if port.port >= LATE_PORT else ""


def columns_text(schema: pa.Schema, shown: int) -> str:
    """The first names and how many more there are."""
    names = schema.names
    return ", ".join(names) if len(names) <= shown else f"{', '.join(names[: shown - 1])}, +{len(names) - shown + 1}"


def box_lines(box: Box) -> list[str]:
    """What stands in a drawn box below its name: the kind, then what it does, in lines of readable length."""
    parts = details(box)
    if box.kind in ("filter", "watermark", "sink", "source") and parts:
        return [f"{box.kind} {_cut(parts[0], 44)}", *(_cut(part, 48) for part in parts[1:])]
    lines = [_cut(part, 48) for part in parts]
    if len(lines) > 7:
        lines = [*lines[:6], f"… {len(lines) - 6} more"]
    return [box.kind, *lines]


def details(box: Box) -> list[str]:
    """What a box does, in phrases."""
    return read(box.kind, box.params).text() + (["rows on which it raises left out"] if "on_error" in box.params else [])


def _step_details(step: Step) -> list[str]:
    """What a step does, in phrases. Some have no box: they order rows, combine them, or end a dataflow."""
    match step.kind:
        case "order":
            return [f"by {', '.join((step.params['time'], *step.params['tie_break']))}"]
        case "combine":
            return Aggregate.step_text(step.params)
        case kind:
            return KINDS[kind].step_text(step.params) if kind in KINDS else []


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
