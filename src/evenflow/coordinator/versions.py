"""Versions: a running dataflow is replaced by a compatible one (V2): the same boxes, of which some do something else.

Which boxes may do what else is said in `differences`; anything else is refused, with the boxes and what differs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pyarrow as pa

from evenflow.coordinator.differences import changes, differences
from evenflow.errors import OperationRefused, VersionChanged
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Plan, Version
from evenflow.query.tables import steps_with


def version_of(running: Layout, plan: Plan, wanted: Layout, number: int) -> Version:
    """The version `number` of what runs under the plan, made of a layout for as many sites, partitions and writers, and the columns of
    `columns_of`. Raises OperationRefused if that is no version of it, or the same one."""
    if obstacles := [each.why for each in differences(in_version(running, plan), wanted) if not each.possible]:
        _refuse("; ".join(obstacles))
    before = plan.version or _nothing_new(running)
    steps, since, boxes = list(before.steps), list(before.since), []
    for segment, other in zip(running.segments, wanted.segments, strict=True):
        now = plan.runs(segment)[1]
        changed = {at: step for at, step in enumerate(other.steps) if changes(now.steps[at], step)}
        if changed:
            steps[segment.id], since[segment.id] = {**steps[segment.id], **changed}, number
            boxes += [step.box for step in changed.values()]
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


def number_of(plan: Plan) -> int:
    """Of the version that runs under the plan: 0 is the dataflow as it was started."""
    return 0 if plan.version is None else plan.version.number


def checked_version(running: Layout, plan: Plan, wanted: Layout, number: int, compared: int | None) -> Version:
    """`version_of`, if the version that somebody has compared with still runs; None: nobody has. Raises VersionChanged."""
    if compared is not None and compared != number_of(plan):
        raise VersionChanged(
            f"version {number_of(plan)} runs by now, and version {compared} was compared with: compare again, and replace then"
        )
    return version_of(running, plan, wanted, number)


def _nothing_new(running: Layout) -> Version:
    return Version(0, ({},) * len(running.segments), (0,) * len(running.segments), ())


def columns_of(running: Layout) -> dict[str, list[str]]:
    """By source, the columns that the running version takes in."""
    return {segment.source: segment.schema.names for segment in running.segments if segment.source is not None}


def _refuse(why: str) -> NoReturn:
    raise OperationRefused(f"this is no version of what runs: {why}. Start it as a dataflow of its own")
