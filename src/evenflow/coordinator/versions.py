"""Versions: a running dataflow is replaced by a compatible one (V2): the same boxes, of which some do something else.

Boxes without state may have other conditions, expressions and functions, as long as their columns stay; a process may have other code, as
long as its store stays, and so may an aggregator, as long as its state's type stays. So every frame, every state and every count means the
same before and after. Anything else is refused, with the box and what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import OperationRefused, QueryError
from evenflow.operator.catalogue import build
from evenflow.operator.operator import Stateless
from evenflow.operator.user.process import Process
from evenflow.plan.layout import Layout, Segment, Step
from evenflow.plan.plan import Plan, Version
from evenflow.query.aggregates import AggCall
from evenflow.query.tables import steps_with
from evenflow.query.user.aggregator import reads_states_of

SHAPE: Final = ("name", "kind", "partitions", "inputs", "outputs", "source", "sink", "right", "sensitive", "in_use")
OF_PROCESS: Final = ("processor", "verify")
"""Parameters of a process that may change."""
ENDS: Final = ("stage", "commit")
"""Steps of a sink, which know their run."""


def version_of(running: Layout, plan: Plan, wanted: Layout, number: int) -> Version:
    """The version `number` of what runs under the plan, made of a layout for as many sites, partitions and writers, and the columns of
    `columns_of`. Raises OperationRefused if that is no version of it, or the same one."""
    if [segment.name for segment in running.segments] != [segment.name for segment in wanted.segments]:
        _refuse(_names(running, wanted))
    _check_ends("source", running.sources, wanted.sources)
    _check_ends("sink", running.sinks, wanted.sinks)
    before = plan.version or _nothing_new(running)
    steps, since, boxes = list(before.steps), list(before.since), []
    for segment, other in zip(running.segments, wanted.segments, strict=True):
        now = plan.runs(segment)[1]
        _check_shape(now, other)
        changed = {at: step for at, step in enumerate(other.steps) if _changes(now.steps[at], step)}
        if changed:
            steps[segment.id], since[segment.id] = {**steps[segment.id], **changed}, number
            boxes += [step.box for step in changed.values()]
    for arc, another in zip(running.arcs, wanted.arcs, strict=True):
        if arc != another:
            _refuse(f"what goes from {running.segments[arc.producer].name!r} to {running.segments[arc.consumer].name!r} is not the same")
    if not boxes:
        raise OperationRefused(f"dataflow {running.name!r} runs in this version already: no box differs")
    return Version(number, tuple(steps), tuple(since), tuple(dict.fromkeys(boxes)))


def with_table(running: Layout, plan: Plan, name: str, table: pa.Table, number: int) -> Version:
    """The version `number` of what runs under the plan, in which a refreshed table has what was read of it."""
    before = plan.version or _nothing_new(running)
    steps, since, boxes = list(before.steps), list(before.since), []
    for segment in running.segments:
        if changed := dict(steps_with(plan.runs(segment)[1], name, table)):
            steps[segment.id], since[segment.id] = {**steps[segment.id], **changed}, number
            boxes += [step.box for step in changed.values()]
    return Version(number, tuple(steps), tuple(since), tuple(dict.fromkeys(boxes)), tables=((name, table.num_rows),))


def in_version(running: Layout, plan: Plan) -> Layout:
    """The layout with the steps that run under the plan."""
    return replace(running, segments=tuple(plan.runs(segment)[1] for segment in running.segments))


def _nothing_new(running: Layout) -> Version:
    return Version(0, ({},) * len(running.segments), (0,) * len(running.segments), ())


def columns_of(running: Layout) -> dict[str, list[str]]:
    """By source, the columns that the running version takes in."""
    return {segment.source: segment.schema.names for segment in running.segments if segment.source is not None}


def _check_ends(what: str, running: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Sources and sinks go on as they are, so the version must name the same ones."""
    for name, end in running.items():
        if name not in wanted or _described(wanted[name]) != _described(end):
            _refuse(f"the {what} {name!r} is another one")


def _described(end: Any) -> Any:
    """What can be compared of a source or a sink: its description, or only its type where it has none (rows in memory)."""
    try:
        return end.to_json()
    except QueryError:
        return type(end)


def _refuse(why: str) -> None:
    raise OperationRefused(f"this is no version of what runs: {why}. Start it as a dataflow of its own")


def _names(running: Layout, wanted: Layout) -> str:
    mine, theirs = [s.name for s in running.segments], [s.name for s in wanted.segments]
    gone = [name for name in mine if name not in theirs]
    new = [name for name in theirs if name not in mine]
    return (
        "; ".join([*[f"box {name!r} is missing" for name in gone], *[f"box {name!r} is new" for name in new]])
        or "boxes are in another order"
    )


def _check_shape(now: Segment, other: Segment) -> None:
    mine, theirs = [step.box for step in now.steps], [step.box for step in other.steps]
    if mine != theirs:
        differ = sorted(set(mine) ^ set(theirs)) or mine
        _refuse(f"box {differ[0]!r} is {'missing' if differ[0] in mine else 'new'}, or is at another place")
    for name in SHAPE:
        if getattr(now, name) != getattr(other, name):
            _refuse(f"box {now.name!r} has other {name.replace('_', ' ')}: {getattr(other, name)!r} instead of {getattr(now, name)!r}")
    if now.kind == "ingress" and other.user_code and not now.user_code:
        _refuse(f"box {next(step.box for step in other.steps if step.user_code)!r} calls functions where rows enter, where none did")
    if now.schema != other.schema:
        more = [name for name in other.schema.names if name not in now.schema.names]
        _refuse(f"box {now.name!r} reads {', '.join(more) or 'other columns'}, which the running version does not take in")


def _changes(now: Step, other: Step) -> bool:
    """Whether the step does something else. Raises OperationRefused if it cannot take the place of the running one."""
    for name in ("kind", "source", "other", "schema"):
        if getattr(now, name) != getattr(other, name):
            _refuse(f"box {now.box!r} has another {'input' if name != 'kind' else name}")
    differing = [*_differing(now.params, other.params)]
    if not differing or now.kind in ENDS:
        return False
    before, after = build(now), build(other)
    if before.schemas != after.schemas:
        _refuse(f"box {now.box!r} gives other columns")
    if isinstance(before, Process) and isinstance(after, Process) and set(differing) <= set(OF_PROCESS):
        if before.fields != after.fields:
            _refuse(f"the processor of box {now.box!r} declares another store")
    elif differing == ["calls"]:
        _check_calls(now.box, now.params["calls"], other.params["calls"])
    elif not isinstance(before, Stateless):
        _refuse(f"box {now.box!r} has state, and another {differing[0]!r}")
    return True


def _check_calls(box: str, mine: Sequence[AggCall], theirs: Sequence[AggCall]) -> None:
    """The same aggregates of the same columns; the user's aggregators may have other code."""
    for call, other in zip_longest(mine, theirs):
        made, others = (None if each is None else each.made for each in (call, other))
        if made is not None and others is not None and not reads_states_of(others, made):
            _refuse(f"the aggregator {type(others).__name__} of box {box!r} is another class, declares another state, or merges otherwise")
        if call is None or other is None or replace(call, made=others) != other:
            _refuse(f"box {box!r} has state, and other aggregates")


def _differing(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*mine, *theirs]):
        if name not in mine or name not in theirs or mine[name] != theirs[name]:
            yield name
