"""Versions: a running dataflow is replaced by a compatible one (V2): the same boxes, of which some do something else.

Which boxes may do what else is said in `differences`; anything else is refused, with the boxes and what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import pyarrow as pa

from evenflow.availability.choosing import check_ahead
from evenflow.availability.content import Content
from evenflow.coordinator.differences import changes, differences
from evenflow.errors import AvailabilityError, LocationError, OperationRefused, VersionChanged
from evenflow.plan.layout import Layout, Step
from evenflow.plan.plan import Plan, Version
from evenflow.query.structure import as_before, as_written, same_step
from evenflow.query.tables import steps_with, with_tables


def version_of(running: Layout, plan: Plan, wanted: Layout, number: int) -> Version:
    """The version `number` of what runs under the plan, made of a layout for as many sites, partitions and writers, and the columns of
    `columns_of`. Raises OperationRefused if that is no version of it, or the same one."""
    if obstacles := [each.why for each in differences(in_version(running, plan), wanted) if not each.possible]:
        _refuse("; ".join(obstacles))
    try:
        check_ahead(wanted, plan.modes)
    except AvailabilityError as error:
        _refuse(str(error))
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


def asked_for(planned: Layout, running: Layout, contents: Mapping[str, pa.Table]) -> Layout:
    """What somebody wants to go on as. planned: for as many sites, partitions and writers, and the columns of `columns_of`. contents: of
    its refreshed tables. What sources have looked up when the run was begun, such as their partitions and the time, stays, and so do names
    that sinks have by themselves."""
    try:
        own = {name: source for name, source in running.sources.items() if not source.pushed}
        known = as_written(replace(running, segments=(), arcs=(), sources=own))
        planned = as_before(planned, known)
    except LocationError:
        pass  # A source cannot go on so, which `differences` says.
    return with_tables(planned, contents)


def versions_since(layout: Layout, were: Sequence[tuple[Content, Layout]]) -> dict[int, Version]:
    """The versions that a restart needs, by number, as what differs from the layout that it begins with (K11). were: what acts, in its
    order, and what boxes do under it. The layout as it is needs none, if it is that with which the location was begun."""
    known: list[tuple[int, dict[int, Step], int]] = []
    found: dict[int, Version] = {}
    for content, other in were:
        if content.version in found:
            continue
        steps, since = [], []
        for segment, wanted in zip(layout.segments, other.segments, strict=True):
            changed = {at: step for at, (now, step) in enumerate(zip(segment.steps, wanted.steps, strict=True)) if not same_step(now, step)}
            steps.append(changed)
            since.append(_since(segment.id, changed, content.version, known) if changed else 0)
        if content.version or any(steps):
            found[content.version] = Version(content.version, tuple(steps), tuple(since), (), program=content.program)
    return found


def _since(segment: int, changed: dict[int, Step], number: int, known: list[tuple[int, dict[int, Step], int]]) -> int:
    """Below 0, and the same for the same steps: a version that is made later has a number above."""
    for at, steps, since in known:
        if at == segment and steps.keys() == changed.keys() and all(same_step(steps[step], changed[step]) for step in steps):
            return since
    known.append((segment, changed, since := -number - 1))
    return since


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
