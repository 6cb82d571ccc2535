"""Who watches an engine from elsewhere is told of a run what the run says of itself in `progress()`, and no more than that is known."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.monitor.simulated import line_of, stream
from tests.world.test_watching import Sites, soon, told

import evenflow as ef
from evenflow.cli.app import main
from evenflow.plan.placement import first_membership, first_plan
from evenflow.query.planner import layout
from evenflow.statistics.progress import Progress, SiteProcess, TableProgress
from evenflow.statistics.window import BoxWindow, Latency, SegmentWindow, SiteWindow
from evenflow.statistics.wire import flat_of
from evenflow.world.spark.driver.in_place import Generations
from evenflow.world.spark.driver.run import Run
from evenflow.world.spark.driver.run_loop import RunLoop
from evenflow.world.spark.driver.watching import Watcher
from evenflow.world.spark.net import control

BY_READINGS = {"rows_in_per_s", "rows_out_per_s", "seconds", "boxes"}
"""Over the time between readings, and not between reports."""
OF_SITES_BY_READINGS = {"cpu_share", "rows_in_per_s", "utilization"}
SINCE = {"account", "moved_whole", "rss_bytes", "pss_bytes", "refused", "messages"}
"""Of scenes and readings, what earlier recordings do not have."""


def told_run() -> tuple[RunLoop, Run, Sites]:
    """Two sites have reported, on a run that may leave out rows, is behind, has lost a partition and has a refreshed table."""
    flow = ef.Dataflow("told")
    rows = flow.source(ef.sources.generator(1000, 10, rows=10), name="in")
    rows.to(ef.sinks.memory("out"), name="out", qos=ef.qos(loss=[(0, 0), (1, 1)], weight=2))
    rows.group_by("key").agg(each="collect_list(value)").name("lists").to(ef.sinks.memory("all"), name="all")
    planned = layout(flow.network, sites=2, partitions=4)
    plan = first_plan(planned, 2, 2)
    calls: Any = SimpleNamespace(clock=None, send=lambda site, message: None, call_later=lambda delay_s, call: None, present=list)
    driven = RunLoop(1, "run-1", planned, plan, first_membership(planned, plan, range(2)), b"", calls)
    sites = Sites(2)
    for known in sites.there:
        segments = tuple(
            SegmentWindow(
                each.id, each.name, here := tuple(range(each.partitions)), (100,) * len(here), (0,) * len(here), 1,
                tuple(BoxWindow(step.box, 100, 100, 1) for step in each.steps),
            )
            for each in planned.segments
        )  # fmt: skip
        window = SiteWindow(known.index, 0, 250_000, 1, None, 7, 0, segments, Latency())
        part = control.PartReport(
            10, 9, 1, 2, 5, 5, 2, 4096, 77, 33, flat_of(window), {100: 3}, behind=(("in", "topic", 4), ("in", "other", 3)), taken=((0, 10),)
        )
        known.report = control.Report(250_000, 0.1, 1 << 28, 1 << 27, 6, {1: part})
        driven.note(known.index, known.report)
    driven.machine.losses.anew[0] = 1
    coordinator: Any = SimpleNamespace(
        describe_sites=lambda: [
            SiteProcess(each.index, each.executor, "h", 7, each.report.rss_bytes, each.report.pss_bytes, each.report.refused, leaving=False)
            for each in sites.there
        ]
    )
    run = Run(Generations(driven, None, start=lambda generation: None), coordinator, layout, flow.network)
    table = TableProgress("codes", 5, 80, 1, 3, 2.5, 1, "it is gone")
    run._refresher = SimpleNamespace(describe=lambda: (table,))  # type: ignore[assignment]
    return driven, run, sites


def watched_as(path: Path, lines: str, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `evenflow watch --json` makes of these lines."""
    path.write_text(lines, encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        main(["watch", str(path), "--json"])
    assert end.value.code == 0
    said = json.loads(capfd.readouterr().out)
    assert isinstance(said, dict)
    return said


def lines_of(run: Run, sites: Sites) -> str:
    """What somebody who records it gets, in two readings."""
    watcher = Watcher(SimpleNamespace(runs=(run,)), sites, "e1", "app")
    scene, reading, texts = watcher.news(0, 0)
    soon(watcher)
    return "".join(line_of(each) for each in told([*texts, *watcher.news(scene, reading)[2]]))


def test_watch_tells_what_progress_does(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Goal: a machine that reads `evenflow watch --json` is told nothing else of the run than its own program. It was told
    `protected: 0` of a run of which any site might have died."""
    _, run, sites = told_run()
    here = run.progress()
    there = watched_as(tmp_path / "run.jsonl", lines_of(run, sites), capfd)
    assert (here["protected"], here["lost"]["partitions"]) == (1, 1) and [each["topic"] for each in here["behind"]] == ["other", "topic"]
    assert all(here[name] for name in ("moved_whole", "outputs", "tables")) and here["sites"][0]["messages"] == 33
    assert list(there) == list(here) == [each.name for each in fields(Progress)]
    assert {name: there[name] for name in here if name not in {"sites", *BY_READINGS}} == {
        name: here[name] for name in here if name not in {"sites", *BY_READINGS}
    }
    by_site = [[site | dict.fromkeys(OF_SITES_BY_READINGS) for site in each["sites"]] for each in (there, here)]
    assert by_site[0] == by_site[1] and len(by_site[0]) == 2
    assert Progress.from_json(there).protected == 1


def without(value: Any) -> Any:
    """As an Evenflow wrote it that did not know them yet."""
    if isinstance(value, dict):
        return {name: without(each) for name, each in value.items() if name not in SINCE}
    return [without(each) for each in value] if isinstance(value, list) else value


def test_of_an_older_recording_nothing_is_made_up(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, run, sites = told_run()
    older = "".join(json.dumps(without(json.loads(line))) + "\n" for line in lines_of(run, sites).splitlines())
    there = watched_as(tmp_path / "run.jsonl", older, capfd)
    missing = {"protected", "lost", "behind", "outputs", "tables", "moved_whole"}
    assert [*there] == [each.name for each in fields(Progress) if each.name not in missing]
    assert not {"rss_bytes", "pss_bytes", "refused", "messages"} & there["sites"][0].keys() and there["sites"][0]["pid"] == 7


def test_of_what_only_engines_have_the_simulator_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    there = watched_as(tmp_path / "run.jsonl", "".join(line_of(each) for each in stream()), capfd)
    assert there["moved_whole"] == [] and "protected" not in there and there["sites"][0]["messages"] > 0
