"""What it costs to ask a big run how it goes."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any, Final

import pytest
from tests.statistics.numbers import process_of

import evenflow as ef
from evenflow.plan.placement import first_membership, first_plan
from evenflow.query.planner import layout
from evenflow.statistics.progress import Progress
from evenflow.statistics.window import BoxWindow, SegmentWindow, SiteWindow
from evenflow.statistics.wire import flat_of
from evenflow.world.spark.driver.in_place import Generations
from evenflow.world.spark.driver.run import Run
from evenflow.world.spark.driver.run_loop import RunLoop
from evenflow.world.spark.net import control

SITES: Final = 100
SEGMENTS: Final = 25
PARTITIONS: Final = 40
BOXES: Final = 8
REPORTS: Final = 48
"""Of each site: twelve seconds of them, four a second."""


def big_run() -> RunLoop:
    """25 keyed segments of 40 partitions with two replicas each, on 100 sites."""
    flow = ef.Dataflow("big")
    rows = flow.source(ef.sources.generator(rate=1.0))
    for segment in range(SEGMENTS):
        counts = rows.group_by("key").agg(n="count(*)").name(f"counts {segment}")
        for box in range(1, BOXES):
            counts = counts.where("n > 0", name=f"kept {segment} {box}")
        counts.to(ef.sinks.discard(), name=f"out {segment}")
    planned = layout(flow.network, sites=SITES, partitions=PARTITIONS)
    plan = first_plan(planned, SITES, 2)
    calls: Any = SimpleNamespace(clock=None, send=lambda site, message: None, call_later=lambda delay_s, call: None, present=list)
    return RunLoop(1, "run-1", planned, plan, first_membership(planned, plan, range(SITES)), b"", calls)


def window(run: RunLoop, site: int, at: int) -> SiteWindow:
    """The site's `at`-th quarter of a second: all its partitions have had rows."""
    plan = run.machine.plan
    segments = []
    for segment, row in enumerate(plan.placement):
        here = tuple(partition for partition, sites in enumerate(row) if site in sites)
        if here:
            boxes = tuple(BoxWindow(step.box, 1000, 900, 50) for step in run.layout.segments[segment].steps)
            segments.append(SegmentWindow(segment, f"s{segment}", here, (100,) * len(here), (4096,) * len(here), 400, boxes))
    return SiteWindow(site, at * 250_000, (at + 1) * 250_000, 100_000, segments=tuple(segments))


def reported(run: RunLoop) -> tuple[float, int]:
    """Let all sites report. Returns the CPU seconds that it took the driver, and the reports."""
    windows = [window(run, site, 0) for site in range(SITES)]
    taken_s = 0.0
    for at in range(REPORTS):
        made = []
        for site, first in enumerate(windows):
            moved = SiteWindow(site, at * 250_000, (at + 1) * 250_000, 100_000, segments=first.segments)
            latencies = dict.fromkeys(range(60 + site % 8, 72 + site % 8), 3)
            part = control.PartReport(at * 1000, at * 900, 0, 0, 0, at, 2, 4096, 0, 7, flat_of(moved), latencies)
            made.append(control.Report(at * 250_000, at * 0.1, 1 << 28, 1 << 27, 0, {1: part}))
        began_s = time.thread_time()
        for site, report in enumerate(made):
            run.note(site, report)
        taken_s += time.thread_time() - began_s
    return taken_s, REPORTS * SITES


def test_how_a_big_run_goes_is_told_in_milliseconds() -> None:
    """Four times a second, however many windows there are: to merge them took 663 ms a call here, and the running totals take 1.5 ms."""
    run = big_run()
    taken_s, reports = reported(run)
    sites = [process_of(site) for site in range(SITES)]
    spent_s = []
    for _ in range(10):
        began_s = time.thread_time()
        told = run.progress(sites)
        told.to_json()
        spent_s.append(time.thread_time() - began_s)
    assert min(spent_s) < 0.02 and taken_s / reports < 0.001
    assert len(told.boxes) == sum(len(segment.steps) for segment in run.layout.segments) > SEGMENTS * BOXES
    assert told.sites[0].utilization == 0.4
    rows = sum(box.rows_in_per_s for box in told.boxes)
    windows = sum(len(segment.boxes) for site in range(SITES) for segment in window(run, site, 0).segments)
    assert rows == pytest.approx(windows * 4 * 1000)


def test_the_public_object_is_the_typed_value_in_plain_json() -> None:
    coordinator: Any = SimpleNamespace(describe_sites=lambda: [process_of(site) for site in range(SITES)])
    driven = big_run()
    reported(driven)
    run = Run(Generations(driven, None, start=lambda generation: None), coordinator, layout)
    told, numbers = run.progress(), run.numbers()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert Progress.from_json({**told, "seconds": numbers.seconds}) == numbers
    assert (numbers.redundancy, numbers.replicas, numbers.epoch) == (2, 2, REPORTS - 1)
    assert {site.role for site in numbers.sites} == {"live"}
