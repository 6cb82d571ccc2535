"""What `evenflow bench failover` reports of a run, on output and kills written by hand, and how it waits for a run to be whole again."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.statistics.numbers import progress, site_progress

from evenflow.bench import failover
from evenflow.bench.expected import Compared
from evenflow.bench.failing import Setting
from evenflow.bench.failover import Kill, Watched, report
from evenflow.bench.killing import Victim
from evenflow.cli.demo import example_path
from evenflow.errors import ClusterError
from evenflow.statistics.progress import Progress
from evenflow.world.flow_file import load_module

PROMISED = (
    "kills", "gap_ms_p50", "gap_ms_p95", "gap_ms_max", "p99_ms_before", "p99_ms_during", "rows_lost", "rows_repeated", "redundancy_s",
)  # fmt: skip
NOTHING = Compared(100, 100, 0, 0, 0)


class Clock:
    """Monotonic time that passes only where the benchmark waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


Script = Sequence[tuple[float, int, int] | tuple[float, int, int, int]]


class Scripted:
    """A run whose redundancy and sites follow a script: (from when, redundancy, number of sites), and how many deaths would cost nothing
    where that is not one less than the redundancy."""

    def __init__(self, clock: Clock, script: Script) -> None:
        self.clock, self.script = clock, script
        self.is_active = True

    def await_termination(self, seconds: float) -> bool:
        self.clock.now_s += seconds
        return False

    def numbers(self) -> Progress:
        _, redundancy, count, *spared = [step for step in self.script if step[0] <= self.clock.now_s][-1]
        sites = tuple(site_progress(site, pid=os.getpid(), state_bytes=1) for site in range(count))
        return progress(redundancy=redundancy, sites=sites, protected=spared[0] if spared else redundancy - 1)

    def events_since(self, seen: int = 0) -> tuple[list[dict[str, Any]], int]:
        lost = [at_s for at_s, redundancy, *_ in self.script if redundancy < 2 and at_s <= self.clock.now_s]
        return [{"at_s": at_s, "kind": "site_lost", "site": 2, "text": ""} for at_s in lost[seen:]], len(lost)


def output(moments: list[float], ages: list[float]) -> Any:
    traffic = SimpleNamespace(moments=np.array(moments), repeated_epochs=0, last=moments[-1])
    return SimpleNamespace(
        traffic=traffic, statistics=traffic, first_come=None, ages=lambda since_s=0.0: (np.array(moments), np.array(ages))
    )


def steady(begin_s: float, end_s: float, step_s: float = 0.01) -> list[float]:
    return np.arange(begin_s, end_s, step_s).tolist()


def watched(moments: list[float], kills: list[Kill], calm: list[tuple[float, float]], setting: Setting | None = None) -> Watched:
    ages = [0.02 if not any(k.at_s <= m < k.at_s + 1 for k in kills) else 0.3 for m in moments]
    made = Watched(None, output(moments, ages), setting or Setting(), lambda text: None)
    made.kills, made.calm = kills, calm
    return made


def test_the_report_of_two_kills() -> None:
    kills = [Kill(1, "machine", 20.0, 0.4, 6.0), Kill(2, "worker", 30.0, 0.6, 5.0)]
    # 80 ms at the first kill, 50 ms at the second, and 200 ms three seconds after it.
    moments = steady(0, 20) + steady(20.07, 30) + steady(30.04, 33) + steady(33.19, 40)
    found = report(watched(moments, kills, [(0.0, 20.0), (26.0, 30.0)]), NOTHING, None)
    assert set(PROMISED) <= found.keys()
    assert found["kills"] == 2 and found["redundancy_s"] == 0.5 and found["redundancy_s_max"] == 0.6
    assert found["gap_ms_max"] == pytest.approx(200, abs=11) == found["gap_ms_p95"]
    assert found["gap_ms_p50"] == pytest.approx(80, abs=11), "by nearest rank"
    assert found["first_second_gap_ms_max"] == pytest.approx(80, abs=11)
    assert found["usual_gap_ms_max"] == pytest.approx(10, abs=1)
    assert found["p99_ms_before"] == pytest.approx(20) and found["p99_ms_during"] == pytest.approx(300)
    assert [each["gap_ms"] for each in found["each"]] == pytest.approx([80, 200], abs=11)
    json.dumps(found, allow_nan=False)


def test_both_ways_are_told_apart() -> None:
    """In whole epochs 100 ms after the kill and 150 while copies run; first come, first served, 50 and 50."""
    ordered, first_come = steady(0, 20) + steady(20.09, 21.2) + steady(21.34, 40), steady(0, 20) + steady(20.04, 21.2) + steady(21.24, 40)
    made = watched(ordered, [Kill(1, "machine", 20.0, 1.5, 6.0), Kill(2, "worker", 30.0, 0.4, 5.0)], [(0.0, 20.0), (26.0, 30.0)])
    made.monitored.first_come = SimpleNamespace(moments=np.array(first_come))
    made.monitored.compare_first_come = lambda: NOTHING
    found = report(made, NOTHING, None)
    assert found["copies_over_first_second"] == pytest.approx(1.5, abs=0.15), "a copy that was over within the second says nothing"
    assert found["unordered"]["copies_over_first_second"] == pytest.approx(1.0, abs=0.3)
    assert found["unordered"]["gap_ms_max"] == pytest.approx(50, abs=11) and found["unordered"]["rows_lost"] == NOTHING.lost


def test_what_readers_change_is_told_by_turns() -> None:
    kills = [Kill(1, "machine", 20.0, 0.4, 6.0, 15.0), Kill(2, "worker", 30.0, 0.6, 5.0, 26.0, tabs=10)]
    made = watched(steady(0, 20) + steady(20.04, 30) + steady(30.09, 40), kills, [(15.0, 20.0), (26.0, 30.0)], Setting(tabs=10))
    found = report(made, NOTHING, None)["tabs"]
    assert (found["with"]["readers"], found["with"]["kills"], found["without"]["kills"]) == (10, 1, 1)
    assert found["with"]["gap_ms_max"] == pytest.approx(100, abs=11) and found["without"]["gap_ms_max"] == pytest.approx(50, abs=11)
    assert found["with"]["p99_ms_before"] == found["without"]["p99_ms_before"] == pytest.approx(20)


@pytest.mark.parametrize(
    ("availability", "guarantee"), [("pairs", "no-loss"), ("passive", "no-loss"), ("upstream", "no-loss"), ("amnesia", "gap")]
)
def test_what_an_availability_promises_is_told(availability: str, guarantee: str) -> None:
    """A function in the driver cannot remember an epoch: none is lost."""
    setting = Setting(availability=availability)
    assert failover.promised(load_module(example_path()), setting) == guarantee
    assert setting.plain.engine_options.get("replicas", 1) == 1 and setting.plain.availability is None
    assert setting.plain.closes == setting.closes == (availability == "upstream"), "what it costs is over the same boxes"


def test_a_run_that_dies_has_an_endless_gap() -> None:
    made = watched(steady(0, 20), [Kill(1, "machine", 20.0)], [(0.0, 20.0)])
    made.died = True
    found = report(made, NOTHING, "PartitionsLost: all of them")
    assert found["kills"] == 1 and found["gap_ms_max"] is None and found["redundancy_s"] is None
    assert found["failed"].startswith("PartitionsLost")
    json.dumps(found, allow_nan=False)


def test_a_report_without_kills() -> None:
    found = report(watched(steady(0, 20), [], [(0.0, 20.0)]), NOTHING, None)
    assert found["kills"] == 0 and found["gap_ms_p95"] is None and found["outputs_per_s"] == pytest.approx(100, abs=1)


def struck(monkeypatch: pytest.MonkeyPatch, script: Script, setting: Setting) -> tuple[Watched, list[str]]:
    clock, signals = Clock(), []
    monkeypatch.setattr(failover, "time", clock)
    monkeypatch.setattr(failover, "victim_of", lambda site, worker: Victim(site, 11, 10, (11,)))
    for name in ("kill", "stop", "resume"):
        monkeypatch.setattr(failover.killing, name, lambda processes, name=name: signals.append(f"{name} {processes}") or clock.now_s)
    made = Watched(Scripted(clock, script), output(steady(0, 300), [0.02] * 30_000), setting, lambda text: None)
    made.strike()
    return made, signals


def test_a_kill_waits_for_redundancy_and_for_the_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [(0.0, 2, 5), (5.0, 1, 4), (5.5, 2, 4), (12.0, 2, 5)]
    made, signals = struck(monkeypatch, script, Setting(seconds_between=4.0, seed=3))
    kill = made.kills[0]
    assert signals == ["kill (10, 11)"] and kill.manner == "machine"
    assert kill.at_s + (kill.redundant_s or 0) == pytest.approx(5.5, abs=0.1)
    assert kill.at_s + (kill.whole_s or 0) == pytest.approx(12.0, abs=0.1)
    assert made.calm == [(0.0, kill.at_s)]


def test_nobody_is_killed_where_a_move_has_taken_a_base_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a death costs what the mode promises. Method: between being whole and the kill nothing has a base for a while."""
    script = [(0.0, 1, 5, 1), (1.0, 1, 5, 0), (20.0, 1, 5, 1), (21.0, 1, 4, 0), (24.0, 1, 5, 1)]
    made, _ = struck(monkeypatch, script, Setting(seconds_between=4.0, seed=3, availability="upstream"))
    assert made.kills[0].at_s == pytest.approx(20.0, abs=0.1)


@pytest.mark.parametrize(("mode", "redundant_s"), [("upstream", 9.0), ("passive", 9.0), ("amnesia", 5.0)])
def test_what_begins_again_from_a_base_is_whole_when_it_has_one(monkeypatch: pytest.MonkeyPatch, mode: str, redundant_s: float) -> None:
    script = [(0.0, 1, 5, 1), (5.0, 1, 4, 0), (9.0, 1, 5, 1)]
    made, _ = struck(monkeypatch, script, Setting(seconds_between=4.0, seed=3, availability=mode))
    kill = made.kills[0]
    assert kill.at_s + (kill.redundant_s or 0) == pytest.approx(max(redundant_s, kill.at_s), abs=0.1)


def test_a_stopped_executor_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [(0.0, 2, 5), (5.0, 1, 4), (5.5, 2, 4), (12.0, 2, 5)]
    made, signals = struck(monkeypatch, script, Setting(seconds_between=4.0, seed=3, hang=True))
    assert signals[0] == "stop (10, 11)" and set(signals[1:]) == {"resume (10, 11)"} and made.kills[0].manner == "hang"


def test_redundancy_that_does_not_come_back_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterError, match="redundancy 1 of 2"):
        struck(monkeypatch, [(0.0, 2, 5), (5.0, 1, 4)], Setting(seconds_between=4.0, seed=3))


def test_the_engine_is_asked_for_what_differs_from_its_defaults() -> None:
    assert Setting().engine_options == {"spares": 1, "replicas": 2, "linger_ms": 20.0} and Setting().master == "local-cluster[5,2,1024]"
    assert Setting(spares=0, replicas=1).engine_options == {"linger_ms": 20.0} and Setting(spares=0).master == "local-cluster[4,2,1024]"


def test_the_command_says_what_it_was_asked_for(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    asked: list[Setting] = []

    def measured(*, setting: Setting, quick: bool, **rest: Any) -> dict[str, Any]:
        asked.append(setting)
        return {"quick": quick, "failed": "PartitionsLost: said here" if setting.hang else None}

    monkeypatch.setattr(failover, "run", measured)
    assert command("--kills", "7", "--rate", "9000", "--no-spare") == 0
    assert asked[0] == Setting(kills=7, rate=9000, spares=0)
    told = json.loads(capfd.readouterr().out)
    assert told["command"] == "evenflow bench failover --kills 7 --rate 9000 --no-spare"
    assert command("--hang", "--quick") == 1
    assert asked[1].kills == 3 and asked[1].hang and json.loads(capfd.readouterr().out)["failed"]


def command(*options: str) -> int:
    from evenflow.cli.app import main

    with pytest.raises(SystemExit) as end:
        main(["bench", "failover", *options, "--json"])
    return int(end.value.code or 0)


BAD = {"rows_lost": 1, "rows_repeated": 20, "rows_wrong": 300}


@pytest.mark.parametrize(
    ("measured", "count"),
    [
        (BAD, 321),
        (BAD | {"guarantee": "precise"}, 321),
        (BAD | {"guarantee": "no-loss"}, 301),
        (BAD | {"guarantee": "gap"}, 0),
        (BAD | {"unordered": None}, 321),
        ({"rows_lost": 0, "rows_repeated": 0, "rows_wrong": 0, "unordered": BAD}, 321),
    ],
)
def test_rows_that_are_not_as_promised_fail_the_command(monkeypatch: pytest.MonkeyPatch, measured: dict[str, Any], count: int) -> None:
    monkeypatch.setattr(failover, "run", lambda **_: {"quick": False, "failed": None, **measured})
    assert failover.broken(measured) == count
    assert command() == (1 if count else 0)
