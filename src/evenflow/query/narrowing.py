"""Narrowing: columns of a source that no box reads are left out where rows enter, and by boxes that would only hand them on.

What enters is logged at every replica before it is processed (protocol I1), so a column that nobody reads would be sent for nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from evenflow.plan.layout import Layout, Port, Segment, Step
from evenflow.query.columns import Nullable, Nulls, WindowTime
from evenflow.query.expression import Compiled, compile_expression
from evenflow.query.user.calling import Tried
from evenflow.stream.change import CHANGE

INPUT = Port(-1)
THROUGH = frozenset({"filter", "watermark"})
"""Steps that hand on the columns of their input as they are."""


def narrow(layout: Layout, also: Mapping[str, Iterable[str]]) -> Layout:
    """The same layout with narrower ingress segments: their `schema` names the columns that are kept, in the source's order.

    also: by source, columns that are kept whether anybody reads them or not.
    """
    kept = [_narrow(s, layout, set(also.get(s.source or "", ()))) if s.kind == "ingress" else s for s in layout.segments]
    return replace(layout, segments=tuple(kept))


def _narrow(segment: Segment, layout: Layout, needed: set[str]) -> Segment:
    """It is looked from behind which columns somebody reads; a step must name what it reads, else all that it gets is kept. Selections hand
    on no others. What they make themselves they make all the same: it may be an error. needed: are kept in any case, and so is the source's
    position, which the log is about."""
    if segment.sink is not None:
        return segment
    steps, position = list(segment.steps), layout.sources[segment.source or ""].position
    wanted: defaultdict[int, set[str] | None] = defaultdict(set)
    wanted |= {layout.arcs[arc].port.step: None for arc in segment.outputs}
    wanted[INPUT.step] = _both(wanted[INPUT.step], needed if position is None else needed | {position})
    for number in reversed(range(len(steps))):
        steps[number] = step = _handing_on(steps[number], wanted[number])
        reads, before = _reads(step), wanted[step.source.step]
        if step.kind in THROUGH:
            reads = _both(reads, wanted[number])
        wanted[step.source.step] = None if step.source.port else _both(before, reads)  # What else comes out of a step is as it went in.
        if step.other is not None:
            wanted[step.other.step] = wanted[step.source.step] = None
    entering = wanted[INPUT.step]
    # A row without a column would be no row: Arrow could not count it.
    schema = segment.schema if entering is None else _only(segment.schema, entering or segment.schema.names[:1])
    for number, step in enumerate(steps):
        given = _given(schema, steps, step.source)
        if given is not None:
            steps[number] = replace(step, schema=_only(step.schema, given))
    return replace(segment, schema=schema, steps=tuple(steps))


def _only(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    return schema if set(schema.names) <= set(names) else pa.schema([field for field in schema if field.name in names], schema.metadata)


def _both(one: set[str] | None, other: set[str] | None) -> set[str] | None:
    """None: perhaps all."""
    return None if one is None or other is None else one | other


def _handing_on(step: Step, wanted: set[str] | None) -> Step:
    """A selection without the columns that it hands on as they are and that are not wanted; one column it has in any case."""
    if step.kind != "select" or wanted is None or step.params.get("dead_letters"):
        return step
    columns, names = tuple(step.params["columns"]), step.schema.names
    kept = [(name, made) for name, made in columns if name in wanted or not (isinstance(made, str) and made in names)]
    return step if len(kept) == len(columns) else replace(step, params={**step.params, "columns": tuple(kept) or columns[:1]})


def _given(entering: pa.Schema, steps: Sequence[Step], port: Port) -> list[str] | None:
    """Names of the columns that enter, or that a selection hands on, perhaps through steps that leave them as they are; None of other
    steps."""
    while port.step >= 0 and port.port == 0 and steps[port.step].kind in THROUGH:
        port = steps[port.step].source
    if port == INPUT:
        names: list[str] = entering.names
        return names
    if port.port or steps[port.step].kind != "select":
        return None
    return [name for name, _ in steps[port.step].params["columns"]]


def _reads(step: Step) -> set[str] | None:
    """Columns that a step reads of its input; None: perhaps all."""
    params = step.params
    if params.get("dead_letters"):
        return None
    if step.kind == "filter":
        return _of_expressions([params["condition"]], step.schema)
    if step.kind == "select":
        return _of_expressions([made for _, made in params["columns"]], step.schema)
    if step.kind == "watermark":
        return {params["time"]}
    if step.kind == "combine":
        window = getattr(params["window"], "column", None)
        reads = {*params["keys"], *(column for call in params["calls"] for column in call.columns)}
        reads |= {CHANGE} & set(step.schema.names)
        return reads if window is None else reads | {window}
    return set() if step.kind == "discard" else None


def _of_expressions(made: Iterable[object], schema: pa.Schema) -> set[str] | None:
    """Columns that expressions read; a function of the user's may read any."""
    columns: set[str] = set()
    for one in made:
        if isinstance(one, Nullable | WindowTime):
            columns.add(one.column)
        elif isinstance(one, Nulls):
            continue
        elif isinstance(one, Compiled | Tried):
            columns.update(one.columns)
        elif not isinstance(one, str):
            return None
        elif one in schema.names:
            columns.add(one)
        else:
            columns.update(compile_expression(one, schema).columns)
    return columns
