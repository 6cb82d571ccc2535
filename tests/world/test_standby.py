"""A driver stands by while another one runs: real processes, sites, files and kills, without Spark.

On executors: tests/spark/test_standby.py. What the waiting decides is tested in tests/coordinator/test_standby.py.
"""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.restarting import Driver, Setting, Start, compare, wait_until, written

import evenflow as ef
from evenflow.availability.alive import alive_name, from_bytes
from evenflow.bench.bare import BareEngine
from evenflow.errors import LocationError
from evenflow.store.journal import read_journal
from evenflow.store.opening import open_store

pytestmark = [pytest.mark.timeout(300)]


def pair(start: Start, setting: Setting) -> tuple[Driver, Driver]:
    """The driver that runs, some of whose rows are out, and the one that stands by."""
    first = start(setting)
    assert first.line() == "running 1"
    standby = start(replace(setting, standby=True))
    assert standby.line() == "waits 1"
    wait_until(lambda: len(written(setting)) > 1_000, 60, "1,000 rows are in the table")
    return first, standby


def told(setting: Setting) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(setting.events).read_text())
    return [event for event in found if event["kind"].startswith("standby")]


@pytest.mark.conformance
def test_what_a_person_stops_is_left_alone(start: Start, tmp_path: Path) -> None:
    """Goal: Ctrl-C means the end, whoever stands by; who starts it again need not wait, and is stood by. Method: Ctrl-C, more than twice
    the lease, another start, and a drain."""
    setting = Setting(str(tmp_path), endless=True, sites=1)
    first, standby = pair(start, setting)
    first.interrupt()
    store, since_s = open_store(setting.location), time.monotonic()
    assert read_journal(store).stopped
    wait_until(lambda: time.monotonic() - since_s > 2.2 * setting.lease_s, 30, "more than twice the lease")
    assert read_journal(store).generation == 1, "nobody has gone on"
    again, there = start(setting), len(written(setting))
    assert again.line() == "running 2"
    assert standby.line() == "waits 2"
    wait_until(lambda: len(written(setting)) > there, 60, "the second one puts out rows")
    assert again.drain() == "ended"
    assert standby.last() == "over"
    compare(setting)
    waits, *more, ends = told(setting)
    assert (waits["kind"], waits["generation"], waits["at_s"] < 0) == ("standby_waits", 1, True)
    assert [event["kind"] for event in more] == ["standby_waits"] * 2
    assert ends["kind"] == "standby_ends"


@pytest.mark.conformance
def test_who_is_killed_is_taken_over(start: Start, tmp_path: Path) -> None:
    """Goal: the table and the files get every row once, and nobody has to start anything. Method: kill -9 of the driver and its sites."""
    setting = Setting(str(tmp_path), endless=True, sites=1)
    first, standby = pair(start, setting)
    first.kill()
    killed_s = time.monotonic()
    assert standby.line() == "running 2"
    assert time.monotonic() - killed_s > setting.lease_s / 2, "it waits for the lease"
    assert standby.drain() == "ended"
    compare(setting)
    waits, takes_over = told(setting)
    assert (waits["kind"], waits["generation"], waits["at_s"] < 0) == ("standby_waits", 1, True)
    assert (takes_over["kind"], takes_over["generation"]) == ("standby_takes_over", 1)
    assert takes_over["silent_s"] > setting.lease_s


@pytest.mark.conformance
def test_a_driver_that_hangs_is_taken_over_and_adds_nothing_when_it_comes_back(start: Start, tmp_path: Path) -> None:
    """SIGSTOP for longer than its sites live without it, and SIGCONT when the other one has made everything."""
    setting = Setting(str(tmp_path), endless=True)
    stale, standby = pair(start, setting)
    stale.stop(setting)
    assert standby.line() == "running 2"
    assert standby.drain() == "ended"
    compare(setting)
    stale.go_on()
    assert stale.last().startswith("Fenced: another driver has begun generation 2")
    compare(setting)


@pytest.mark.conformance
def test_a_driver_whose_sink_holds_everything_up_lives(start: Start, tmp_path: Path) -> None:
    """Goal: silence of the journal alone is no death. Method: somebody else locks the table for longer than twice the lease, so no epoch
    becomes durable; then the run is drained, and the standby ends with it."""
    setting = Setting(str(tmp_path), endless=True)
    first, standby = pair(start, setting)
    store = open_store(setting.location)
    with closing(sqlite3.connect(setting.database, timeout=30, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        wait_until(lambda: quiet(setting, 1.0), 60, "nothing is appended any more")
        since_s, standing = time.monotonic(), read_journal(store)
        assert standing.generation == 1, "its sites were lost, on a machine that is much too busy"
        wait_until(lambda: time.monotonic() - since_s > 2.2 * setting.lease_s, 30, "more than twice the lease")
        assert read_journal(store).last == standing.last, "the journal was silent all the time"
        alive = from_bytes(store.get(alive_name(1)))
        assert alive is not None and alive.count > 3
        other.execute("ROLLBACK")
    assert first.drain() == "ended"
    assert standby.last() == "over"
    compare(setting)
    assert [event["kind"] for event in told(setting)] == ["standby_waits", "standby_ends"]


def quiet(setting: Setting, for_s: float) -> bool:
    store = open_store(setting.location)
    last, since_s = read_journal(store).last, time.monotonic()
    wait_until(lambda: time.monotonic() - since_s > for_s, 30, "a while")
    return read_journal(store).last == last


@pytest.mark.conformance
def test_ctrl_c_while_it_waits_leaves_nothing(start: Start, tmp_path: Path) -> None:
    """Nor does it hurt the one that runs."""
    setting = Setting(str(tmp_path), rows=6_000, sites=1)
    first, standby = pair(start, setting)
    assert standby.interrupt() != 0
    assert first.last() == "ended"
    assert read_journal(open_store(setting.location)).generation == 1
    compare(setting)


@pytest.mark.conformance
def test_it_does_not_begin_first(start: Start, tmp_path: Path) -> None:
    """A name that is misspelt is not a new run: nothing is made there. When somebody begins, that one is waited for."""
    setting = Setting(str(tmp_path), rows=4_000, sites=1)
    standby = start(replace(setting, standby=True))
    assert standby.line() == "waits 0"
    assert not Path(setting.location).exists()
    first = start(setting)
    assert first.line() == "running 1"
    assert standby.line() == "waits 1"
    assert first.last() == "ended"
    assert standby.last() == "over"
    compare(setting)


def test_what_makes_no_sense_together_is_refused(tmp_path: Path) -> None:
    flow = Setting(str(tmp_path)).dataflow()
    with BareEngine(sites=1) as engine:
        with pytest.raises(
            LocationError, match="standby needs a checkpoint location to watch: checkpoint_location=, --checkpoint-location"
        ):
            engine.start(flow, standby=True)
        with pytest.raises(LocationError, match="take_over does not wait: choose one"):
            engine.start(flow, checkpoint_location=str(tmp_path / "there"), standby=True, take_over=True)
        with pytest.raises(ef.errors.QueryError):
            engine.start(ef.Dataflow("nothing"), checkpoint_location=str(tmp_path / "there"), standby=True)
    assert not (tmp_path / "there").exists()


def test_another_program_is_refused_at_once(tmp_path: Path) -> None:
    """And not when it is needed."""
    setting = Setting(str(tmp_path), rows=500)
    with BareEngine(sites=1, partitions=16) as engine:
        assert engine.start(setting.dataflow(), checkpoint_location=setting.location).await_termination(60.0)
        with pytest.raises(LocationError, match="is another one than that at"):
            engine.start(replace(setting, condition="key >= 1").dataflow(), checkpoint_location=setting.location, standby=True)
