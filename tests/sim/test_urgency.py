"""A site that has too much does what is urgent first: the same answers, those in time that have to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.bench.events import BEGIN_US, ScheduledEvents
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.site.urgent import Urgency
from evenflow.swarm.checkers import Checkers
from evenflow.world.sim.model import CostModel
from evenflow.world.sim.world import SimWorld

RATE, ROWS = 600, 900
URGENT = ef.qos(latency=[("20 ms", 1), ("5 s", 0)], weight=5)
PATIENT = ef.qos(latency=[("5 s", 1), ("60 s", 0)])


def run(urgent: Any = URGENT, patient: Any = PATIENT) -> tuple[dict[str, list[Any]], dict[str, float]]:
    """(rows, mean age in ms) by output, of two keyed counts at one site, which is asked for a third more than it can do."""
    flow = ef.Dataflow("two")
    for name, qos, seed in (("urgent", urgent, 1), ("patient", patient, 2)):
        source = ScheduledEvents(RATE, ROWS, 50, count=1, seed=seed)
        counts = flow.source(source, name=f"in {name}").group_by("key").agg(n="count(*)", ts="max(ts)", combine=False).name(f"of {name}")
        counts.to(ef.sinks.memory(name), name=name, qos=qos)
    cost = CostModel(row_us=1.3e6 / (2 * RATE), free=frozenset({"ingress", "egress"}))
    options = FlowOptions(linger_ms=5.0, epoch_rows=20, pipeline=4)
    world = SimWorld(layout(flow.network, sites=1, partitions=2), sites=1, cost=cost, options=options, read_rows=100, seed=1)
    Checkers(world)
    seen, ages = {"urgent": 0, "patient": 0}, dict[str, list[float]](urgent=[], patient=[])
    while not world.ended:
        world.run_for(0.005)
        for name, found in ages.items():
            for _, batch in world.released[name][seen[name] :]:
                if batch.num_rows:
                    found.append((world.now_us - int(np.max(batch.column("ts").cast(pa.int64()).to_numpy()))) / 1e3)
            seen[name] = len(world.released[name])
    assert world.error is None and world.now_us > BEGIN_US
    rows = {name: sorted(zip(*world.output(name).to_pydict().values(), strict=True)) for name in ages}
    return rows, {name: float(np.mean(found)) for name, found in ages.items()}


def last(rows: list[Any]) -> dict[int, int]:
    newest: dict[int, int] = {}
    for key, n, *_ in rows:
        newest[key] = max(n, newest.get(key, 0))
    return newest


def test_what_is_urgent_is_in_time_and_answers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, ages = run()
    monkeypatch.setattr(Urgency, "of", staticmethod(lambda layout: None))
    without, as_they_come = run()
    assert {name: last(found) for name, found in rows.items()} == {name: last(found) for name, found in without.items()}
    assert ages["urgent"] < 0.9 * as_they_come["urgent"], (ages, as_they_come)


def test_nobody_is_asked_where_nothing_is_more_urgent() -> None:
    """It costs nothing where nobody asks for it: then there is no order to ask."""
    for urgent, patient in ((None, None), (URGENT, URGENT), (ef.qos(weight=2), ef.qos())):
        flow = ef.Dataflow("alike")
        rows = flow.source(ScheduledEvents(RATE, ROWS, 50, count=1))
        for name, qos in (("a", urgent), ("b", patient)):
            rows.to(ef.sinks.memory(name), name=name, qos=qos)
        assert Urgency.of(layout(flow.network, sites=1)) is None


def test_each_segment_has_the_worth_of_the_outputs_that_it_feeds() -> None:
    flow = ef.Dataflow("worths")
    rows = flow.source(ScheduledEvents(RATE, ROWS, 50, count=1), name="in")
    rows.group_by("key").agg(n="count(*)").to(ef.sinks.memory("counted"), name="counted", qos=URGENT)
    rows.to(ef.sinks.memory("whole"), name="whole")
    planned = layout(flow.network, sites=2)
    told = {segment.name: {(worth.weight, worth.protected) for worth in planned.worths[segment.id]} for segment in planned.segments}
    both = {(5.0, False), (1.0, True)}
    assert [found for found in told.values() if found == both], told
    assert sorted(len(found) for found in told.values()).count(1) >= 2, told


def test_whatever_ends_an_output_is_as_urgent_as_it_says(tmp_path: Path) -> None:
    """Goal: an output is urgent up to its end, be that discarded, or committed once all sites have written. Both were worth nothing: an
    output with 20 ms that was tried without its sink went behind one that has an hour, and so did the commits of a protected one."""
    flow, hour = ef.Dataflow("tried"), ef.qos(latency=[("1 hour", 1), ("2 hours", 0)])
    rows = flow.source(ScheduledEvents(RATE, ROWS, 50, count=1), name="in")
    sinks = {"urgent": ef.sinks.discard(), "patient": ef.sinks.discard(), "whole": ef.sinks.parquet(str(tmp_path / "whole"))}
    for name, qos in (("urgent", URGENT), ("patient", hour), ("whole", None)):
        rows.repartition().select("key").to(sinks[name], name=name, qos=qos)
    planned = layout(flow.network, sites=2)
    found: dict[str, dict[str, list[tuple[float, bool]]]] = {step.kind: {} for segment in planned.segments for step in segment.steps}
    for segment in planned.segments:
        for step in segment.steps:
            found[step.kind][step.box] = [(worth.weight, worth.protected) for worth in planned.worths[segment.id]]
    assert found["discard"] == {"urgent": [(5.0, False)], "patient": [(1.0, False)]}
    assert found["stage"] == found["commit"] == {"whole": [(1.0, True)]}
