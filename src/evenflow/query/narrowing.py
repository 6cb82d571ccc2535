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
    """Steps whose input is that of the segment, perhaps filtered, must name what they read; else everything is kept.

    So is the source's position, which the log is about.
    """
    segment = _pass_on(segment, {layout.arcs[arc].port for arc in segment.outputs})
    whole, arcs = {INPUT}, layout.arcs
    position = layout.sources[segment.source or ""].position
    needed |= set() if position is None else {position}
    for number, step in enumerate(segment.steps):
        if step.source not in whole:
            continue
        reads = _reads(step)
        if reads is None or step.other is not None:
            return segment
        needed |= reads
        if step.kind in THROUGH:
            whole.add(Port(number))
    if any(arcs[arc].port in whole for arc in segment.outputs) or segment.sink is not None:
        return segment
    if not needed:
        needed = {segment.schema.names[0]}  # A row without a column would be no row: Arrow could not count it.
    if needed >= set(segment.schema.names):
        return segment
    schema = pa.schema([field for field in segment.schema if field.name in needed], segment.schema.metadata)
    steps = tuple(replace(step, schema=schema) if step.source in whole else step for step in segment.steps)
    return replace(segment, schema=schema, steps=steps)


def _pass_on(segment: Segment, sent: Collection[Port]) -> Segment:
    """The segment, whose selections hand on no column that nobody behind them reads. What they make themselves they make all the same: it
    may be an error. sent: ports from which rows go to other segments."""
    if segment.sink is not None:
        return segment
    steps = list(segment.steps)
    wanted: defaultdict[int, set[str] | None] = defaultdict(set)
    wanted |= {port.step: None for port in sent}
    for number in reversed(range(len(steps))):
        steps[number] = step = _handing_on(steps[number], wanted[number])
        reads, before = _reads(step), wanted[step.source.step]
        if step.kind in THROUGH:
            reads = _both(reads, wanted[number])
        wanted[step.source.step] = None if step.source.port else _both(before, reads)  # What else comes out of a step is as it went in.
        if step.other is not None:
            wanted[step.other.step] = None
    for number, step in enumerate(steps):
        given = _given(steps, step.source)
        if given is not None and given != step.schema.names:
            schema = pa.schema([field for field in step.schema if field.name in given], step.schema.metadata)
            steps[number] = replace(step, schema=schema)
    return replace(segment, steps=tuple(steps))


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


def _given(steps: Sequence[Step], port: Port) -> list[str] | None:
    """Names of the columns that a selection hands on, perhaps through steps that leave them as they are; None of other steps."""
    while port.step >= 0 and port.port == 0 and steps[port.step].kind in THROUGH:
        port = steps[port.step].source
    if port.step < 0 or port.port or steps[port.step].kind != "select":
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
