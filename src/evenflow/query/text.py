"""A network and its segments as text: one line a box, one block a segment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from evenflow.plan.layout import Arc, Dealt, Keyed, Layout, Port, Segment, Single, Spread, Step
from evenflow.query.aggregates import FOREVER_US, AggCall, RowWindow, SessionWindow, TimeWindow
from evenflow.query.duration import duration_text
from evenflow.query.expression import Compiled
from evenflow.query.join import Join
from evenflow.query.network import LATE_PORT, Box, Network, dead_letter_port, port_suffix
from evenflow.query.tables import RefreshedTable
from evenflow.query.user.calling import Tried
from evenflow.query.whole import moved_whole
from evenflow.stream.schema import ddl_of


def network_text(network: Network) -> str:
    """One line a box, in topological order: name, kind, inputs, what it does, the columns it puts out."""
    names = max((len(box.name) for box in network), default=0)
    kinds = max((len(box.kind) for box in network), default=0)
    lines = [f"dataflow {network.name}: {len(network)} boxes"]
    for box in network:
        came = ", ".join(up + port_suffix(network.box(up), port) for up, port in box.inputs)
        parts = [f"  {box.name:<{names}}  {box.kind:<{kinds}}"]
        parts += [f"<- {came}"] if came else []
        parts += [what] if (what := ", ".join(details(box))) else []
        if box.schemas:
            parts.append(f"-> ({ddl_of(box.schemas[0])})" + (f" event time {box.event_time}" if box.event_time else ""))
        lines.append("  ".join(parts))
    return "\n".join(lines) + "\n"


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
    return "\n".join(lines) + "\n"


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
    what = ", ".join(_details(step.kind, step.params))
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
    return _details(box.kind, box.params) + (["rows on which it raises left out"] if "on_error" in box.params else [])


def _details(kind: str, params: Mapping[str, Any]) -> list[str]:
    match kind:
        case "source":
            return [_described(params["source"])]
        case "sink":
            return [_described(params["sink"])]
        case "filter":
            return [shown(params["condition"])]
        case "select":
            return _select_details(params["columns"])
        case "watermark":
            idle = [f"idle after {duration_text(params['idle_us'])}"] if params.get("idle_us") else []
            return [f"{params.get('column', params.get('time'))} - {duration_text(params['delay_us'])}", *idle]
        case "repartition":
            return [f"{params['partitions']} partitions"] if params["partitions"] is not None else []
        case "key_by":
            return [f"by {', '.join(params['columns'])}"]
        case "order":
            return [f"by {', '.join((params['time'], *params['tie_break']))}"]
        case "join" | "table_join":
            return join_details(params["join"], params.get("table"))
        case "process":
            return [f"by {', '.join(params['keys'])}", type(params["processor"]).__name__, *_order_details(params)]
        case "aggregate" | "combine":
            keys = f"by {', '.join(params['keys'])}" if params["keys"] else "all rows"
            partial = ["from partial results"] if params.get("partial") else []
            changes = ["as a changelog"] if params.get("mode") == "changelog" or params.get("changes") else []
            window = [*_window_details(params["window"]), *changes]
            return [keys, *window, *_order_details(params), *partial, *map(call_text, params["calls"])]
        case "dedup":
            kept = ["within the watermark"] if params.get("within") or params.get("time") else []
            return [f"by {', '.join(params['keys'])}", *kept, *_order_details(params)]
        case _:
            return _single_stream_details(kind, params)


def _single_stream_details(kind: str, params: Mapping[str, Any]) -> list[str]:
    keys = f"by {', '.join(params['keys'])}" if params.get("keys") else "all rows"
    match kind:
        case "top":
            (order,) = _by_details(params["by"])
            return [keys, *_window_details(params["window"]), f"first {params['count']} {order}"]
        case "resample":
            gap = [] if params["gap_us"] is None else [f"gaps up to {duration_text(params['gap_us'])}"]
            return [keys, f"every {duration_text(params['step_us'])}", f"{params['how']}: {', '.join(params['columns'])}", *gap]
        case "pattern":
            defined = [f"{variable} as {condition}" for variable, condition in params["define"]]
            measures = [f"{name} = {text}" for name, text in params["measures"]]
            return [keys, f"{params['pattern']} within {duration_text(params['within_us'])}", f"skip {params['skip']}", *defined, *measures]
        case "bsort":
            return [keys, f"by {params['column']} in a buffer of {params['size']} rows"]
        case "complete":
            limit = [] if params["limit"] is None else [f"first {params['limit']}"]
            return [f"every {duration_text(params['every_us'])}", *_by_details(params["by"]), *limit]
        case "sort":
            return [keys, *_order_details(params)]
        case "explode":
            return [f"{params['column']} into {params['into']}", *(["empty lists too"] if params["outer"] else [])]
        case "flat_map":
            return [shown(params["function"])]
        case "case":
            return [shown(condition) for condition in params["conditions"]]
        case _:
            return []


def _by_details(by: Sequence[tuple[str, bool]]) -> list[str]:
    order = ", ".join(f"{column} descending" if descending else column for column, descending in by)
    return [f"by {order}"] if order else []


def join_details(join: Join, table: pa.Table | RefreshedTable | None) -> list[str]:
    """What a join compares, in phrases."""
    keys = ", ".join(one if one == other else f"{one} = {other}" for one, other in zip(join.left_keys, join.right_keys, strict=True))
    parts = [f"{join.how} by {keys}"]
    if isinstance(table, RefreshedTable):
        often = "on demand" if table.every_us is None else f"every {duration_text(table.every_us)}"
        parts.append(f"table {table.name}, refreshed {often}")
    elif table is not None:
        parts.append(f"table of {table.num_rows:,} rows")
    if join.low_us is not None or join.high_us is not None:
        low, high = ("any" if us is None else ("-" if us < 0 else "") + duration_text(abs(us)) for us in (join.low_us, join.high_us))
        parts.append(f"right later by {low} to {high}")
    return [*parts, *([join.condition] if join.condition else []), *(["kept for ever"] if join.unbounded else [])]


def _select_details(columns: Sequence[tuple[str, Any]]) -> list[str]:
    """Columns that only pass are counted together; computed ones are written out."""
    passing = [name for name, made in columns if made == name]
    computed = [f"{name} = {shown(made)}" for name, made in columns if made != name]
    few = ", ".join(passing) if len(passing) <= 5 else f"{', '.join(passing[:4])}, +{len(passing) - 4}"
    return ([few] if few else []) + computed


def _window_details(window: TimeWindow | SessionWindow | RowWindow | None) -> list[str]:
    if isinstance(window, TimeWindow):
        slide = "" if window.slide_us == window.size_us else f" every {duration_text(window.slide_us)}"
        mode = [] if window.mode == "append" else [f"{window.mode} mode"]
        late = [f"rows up to {duration_text(window.lateness_us)} late"] if window.lateness_us else []
        late = ["never forgotten"] if window.lateness_us == FOREVER_US else late
        start = f" from {duration_text(window.start_us)}" if window.start_us else ""
        return [f"window {duration_text(window.size_us)}{slide}{start} of {window.column}", *mode, *late]
    if isinstance(window, SessionWindow):
        return [f"sessions of {window.column} with gaps up to {duration_text(window.gap_us)}"]
    if isinstance(window, RowWindow):
        return [f"last {window.history} rows every {window.slide}"]
    return []


def _order_details(params: Mapping[str, Any]) -> list[str]:
    if params.get("order") is None:
        return []
    ties = f", ties by {', '.join(params['tie_break'])}" if params.get("tie_break") else ""
    return [("in order of arrival" if params["order"] == "arrival" else "in order of event time") + ties]


def call_text(call: AggCall) -> str:
    """`name = function(column)`."""
    return f"{call.name} = {call.text}"


def shown(made: Any) -> str:
    """An expression as it is, a function by its name."""
    if isinstance(made, str):
        return made
    if isinstance(made, Compiled | Tried):
        return made.text
    return f"{getattr(made, '__qualname__', type(made).__name__)}()"


def _described(thing: Any) -> str:
    """A source or a sink by its kind, and where it is if it has a path."""
    kind = getattr(thing, "kind", type(thing).__name__)
    path = getattr(thing, "path", None)
    return f"{kind} {path}" if isinstance(path, str) else str(kind)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
