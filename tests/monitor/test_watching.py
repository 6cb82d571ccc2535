"""What a run in the simulator looks like to those who watch it: scenes when something changes, readings all the time, both as JSON."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from evenflow.errors import StatisticsError
from evenflow.monitor.dataflow import drawn
from evenflow.monitor.history import History, rates_between
from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene
from evenflow.monitor.watching import _delivered_ppm
from evenflow.query.planner import layout
from evenflow.statistics.growing import Growing
from evenflow.world.sim.watching import SimWatch
from tests.monitor.simulated import counts, readings_of, scenes_of, stream, world_of


def killed() -> list[Scene | Reading]:
    """Four seconds of a run of which a site dies."""
    return stream(4.0, kill_s=1.2)


def test_a_scene_says_what_the_dataflow_is() -> None:
    run = scenes_of(killed())[0].runs[0]
    assert [(box.name, box.kind, box.segments) for box in run.boxes] == [
        ("events", "source", (0,)), ("kept", "filter", (0,)), ("counts", "aggregate", (0, 1)), ("out", "sink", (2,)),
    ]  # fmt: skip
    assert [(arrow.start, arrow.end, arrow.streams) for arrow in run.arrows] == [
        ("events", "kept", ()), ("kept", "counts", (0,)), ("counts", "out", (1,)),
    ]  # fmt: skip
    assert [(stream.producer, stream.consumer, stream.route, stream.columns) for stream in run.streams] == [
        (0, 1, "keyed", ("key",)), (1, 2, "single", ()),
    ]  # fmt: skip
    assert {box["name"] for box in run.geometry["boxes"]} == {box.name for box in run.boxes}
    assert (run.replicas, run.redundancy, run.roles) == (2, 2, ("live", "live", "live", "spare"))
    columns = run.replicas_of
    assert len(columns.segment) == len(columns.state) == 2 * (1 + 4 + 1) and set(columns.state) == {"live"}


def test_a_box_that_is_combined_before_the_exchange_takes_in_what_its_first_step_does() -> None:
    flow = counts()
    picture = drawn(layout(flow.network, sites=2, partitions=4), flow.network)
    assert [step.box for step in picture.steps] == ["kept", "counts", "counts"]
    heads, tails = ([steps.at.tolist(), steps.each.tolist()] for steps in (picture.heads, picture.tails))
    assert heads == [[0, 1], [1, 2]] and tails == [[0, 2], [1, 2]]
    grown = Growing((("events", ("kept", "counts")), ("counts", ("counts",)), ("out", ())))
    grown.boxes[:] = [[10, 8, 1, 0], [8, 4, 2, 1], [4, 3, 5, 2]]
    assert picture.box_counts(grown.boxes) == ((0, 10, 8, 0), (0, 8, 3, 0), (0, 0, 3, 0), (0, 1, 7, 0))


def test_a_death_makes_other_scenes_until_redundancy_is_back() -> None:
    scenes, readings = scenes_of(killed()), readings_of(killed())
    assert [scene.number for scene in scenes] == list(range(1, len(scenes) + 1))
    first, last = scenes[0], scenes[-1]
    assert first.sites[0].state == "live" and last.sites[0].state == "dead"
    assert last.runs[0].roles == ("gone", "live", "live", "live") and last.runs[0].redundancy == 2
    assert 0 not in [site for site, state in zip(last.runs[0].replicas_of.site, last.runs[0].replicas_of.state) if state == "live"]
    events = [event for reading in readings for event in reading.runs[0].events]
    assert [event.number for event in events] == list(range(len(events)))
    kinds = [event.kind for event in events]
    assert kinds.index("site_lost") < kinds.index("take_over") < kinds.index("redundancy")
    assert readings[-1].runs[0].takeovers == 1


def test_counters_only_grow_and_agree_with_what_was_released() -> None:
    flow = counts()
    world = world_of(flow)
    watch = SimWatch(world, flow.network)
    seen = []
    for _ in range(4):
        world.run_for(0.4)
        seen.append(watch.look()[1].runs[0])
    for before, after in itertools.pairwise(seen):
        assert after.rows_in > before.rows_in and after.epoch > before.epoch
        assert all(a >= b for a, b in zip(after.replicas.rows, before.replicas.rows))
        assert all(
            a >= b
            for column in ("rows_in", "rows_out", "busy_us")
            for a, b in zip(getattr(after.boxes, column), getattr(before.boxes, column))
        )
    assert sum(count for _, count in seen[-1].latency) == len(world.latencies_us) > 0
    assert seen[-1].rows_out == world.output("out").num_rows
    # Both replicas of each partition have processed what the source gave, but for what is under way.
    assert sum(seen[-1].replicas.rows[:2]) == seen[-1].segments.rows[0] == seen[-1].boxes.rows_in[1]
    assert seen[-1].sources.rows_in == (seen[-1].rows_in,)
    assert seen[-1].sites.measured_us[0] == 1_600_000 and 0 < seen[-1].sites.busy_us[0] < 1_600_000


@pytest.mark.parametrize("of", [scenes_of, readings_of])
def test_what_is_told_is_json_and_back(of: Callable[[list[Scene | Reading]], list[Scene | Reading]]) -> None:
    told = of(killed())[-1]
    text = json.dumps(told.to_json(), allow_nan=False)
    assert type(told).from_json(json.loads(text)) == told
    with pytest.raises(StatisticsError, match="number"):
        type(told).from_json({**json.loads(text), "number": "1"})
    with pytest.raises(StatisticsError, match=r"runs\[0\]"):
        type(told).from_json({**json.loads(text), "runs": [[]]})


def test_a_scene_stays_while_nothing_changes() -> None:
    flow = counts()
    world = world_of(flow)
    watch = SimWatch(world, flow.network)
    world.run_for(0.5)
    first, _ = watch.look()
    world.run_for(0.5)
    second, reading = watch.look()
    assert second is first and reading.number == 2 and reading.scene == first.number


# ---------------------------------------------------------------- the history


def test_who_reads_slowly_is_told_the_newest_with_all_events() -> None:
    history = History()
    for told in killed():
        history.add(told)
    readings = readings_of(killed())
    news = history.since(0, 0)
    assert news is not None and news.scene == scenes_of(killed())[-1] and news.reading.number == readings[-1].number
    assert [event.number for event in news.reading.runs[0].events] == [e.number for r in readings for e in r.runs[0].events]
    known = readings[2]
    later = history.since(known.number, readings[-1].scene)
    assert later is not None and later.scene is None
    assert [e.number for e in later.reading.runs[0].events] == [e.number for r in readings[3:] for e in r.runs[0].events]
    assert history.since(readings[-1].number, readings[-1].scene) is None


def test_ten_minutes_are_kept_and_no_scene_that_nobody_reads() -> None:
    scene, reading = scenes_of(killed())[0], readings_of(killed())[0]
    history = History(keep_us=10_000_000)
    history.add(scene)
    for number in range(1, 41):
        if number == 20:
            history.add(replace(scene, number=2))
        history.add(replace(reading, number=number, scene=1 if number < 20 else 2, at_us=number * 500_000))
    assert [each.number for each in history.readings] == list(range(20, 41))
    assert history.scene_of(history.readings[0]).number == 2


def test_an_engine_that_began_anew_begins_a_history() -> None:
    history = History()
    for told in killed():
        history.add(told)
    fresh = replace(scenes_of(killed())[0], engine="another")
    history.add(fresh)
    assert history.newest is None
    history.add(readings_of(killed())[0])
    news = history.since(1000, 1)
    assert news is not None and len(history.readings) == 1
    with pytest.raises(StatisticsError, match="of scene 7"):
        history.add(replace(readings_of(killed())[1], scene=7))


def test_rates_are_differences() -> None:
    history = History()
    for told in killed():
        history.add(told)
    readings = readings_of(killed())
    rates = history.rates("run-1", over_us=1_000_000)
    first, last = readings[-3], readings[-1]
    assert rates is not None and rates.seconds == 1.0
    assert rates.rows_in_per_s == last.runs[0].rows_in - first.runs[0].rows_in > 0
    assert sum(count for _, count in rates.latency) == sum(c for _, c in last.runs[0].latency) - sum(c for _, c in first.runs[0].latency)
    assert history.rates("another") is None
    assert rates_between(first.at_us, last.runs[0], last.at_us, first.runs[0]) is None


@pytest.mark.parametrize(("dropped", "ppm"), [(0, 1_000_000), (1, 999_999), (30_000_000, 700_000)])
def test_all_is_delivered_only_where_nothing_is_missing(dropped: int, ppm: int) -> None:
    part = SimpleNamespace(taken=((0, 100_000_000), (1, 7)))
    planned = SimpleNamespace(
        segments=(SimpleNamespace(id=0, source="events"), SimpleNamespace(id=1, source="other")), sheds={"events": ()}
    )
    run: Any = SimpleNamespace(planned=planned, parts={0: part}, dropped={0: dropped})
    assert _delivered_ppm(run) == ppm
