"""A run with a refreshed table at a checkpoint location is killed: real processes, files and kills, without Spark (K11)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.restarting import Start, wait_until, written
from tests.restarting_refreshed import Refreshed
from tests.world.test_in_place import kill_sites, kinds

import evenflow as ef
from evenflow.bench.bare import BareEngine
from evenflow.store.journal import read_journal
from evenflow.store.opening import open_store

pytestmark = [pytest.mark.timeout(300)]


def test_what_was_read_is_met_again(start: Start, tmp_path: Path) -> None:
    """Goal: what is made again meets what it met before, and the run goes on with that until the table is read again. Method: kill -9
    of everything behind a refresh; meanwhile the table gets other rows; the same again, and a drain."""
    setting = Refreshed(str(tmp_path), endless=True, refresh_to=2)
    setting.has(1)
    driver = start(setting)
    assert driver.line() == "running 1"
    wait_until(lambda: len(written(setting)) > 1_000, 60, "rows are in the table")
    setting.has(2)
    assert driver.line() == "refreshed 1"
    driver.kill()
    rows = len(written(setting))
    setting.has(3)

    driver = start(replace(setting, refresh_to=0))
    assert driver.line() == "running 2"
    wait_until(lambda: len(written(setting)) > rows + 2_000, 60, "rows that are new")
    assert set(setting.met()) <= {1, 2}, "it is read again on demand only"
    driver.kill()

    driver = start(replace(setting, refresh_to=3))
    assert (driver.line(), driver.line()) == ("running 3", "refreshed 2")
    rows = len(written(setting))
    wait_until(lambda: len(written(setting)) > rows + 1_000, 60, "rows that meet what was read now")
    assert driver.drain() == "ended"
    assert set(setting.compare()) == {1, 2, 3}
    setting.has(4)
    assert start(setting).last() == "over"


def test_a_table_with_an_interval_is_read_when_the_run_goes_on(start: Start, tmp_path: Path) -> None:
    """Method: as above, behind a checkpoint, so that what was met before is not needed any more."""
    setting = Refreshed(str(tmp_path), endless=True, refresh="1 hour", checkpoint_s=0.3)
    setting.has(1)
    driver = start(setting)
    assert driver.line() == "running 1"
    wait_until(lambda: len(written(setting)) > 2_000, 60, "rows are in the table")
    driver.kill()
    setting.has(2)
    driver = start(setting)
    assert driver.line() == "running 2"
    wait_until(lambda: 2 in setting.met(), 60, "rows that meet what the table has now")
    assert driver.drain() == "ended"
    assert set(setting.compare()) == {1, 2}


def test_who_stands_by_follows_what_is_read(start: Start, tmp_path: Path) -> None:
    """Goal: a table that is read anew makes no other dataflow. Method: a driver stands by while the other one reads the table, goes on as
    another version of the dataflow, and is killed: the first of these is followed."""
    setting = Refreshed(str(tmp_path), endless=True, refresh_to=2, lease_s=3.0)
    setting.has(1)
    driver = start(setting)
    assert driver.line() == "running 1"
    standby = start(replace(setting, standby=True, refresh_to=0))
    assert standby.line() == "waits 1"
    setting.has(2)
    assert driver.line() == "refreshed 1"
    driver.kill()
    setting.has(3)
    assert standby.line() == "running 2"
    rows = len(written(setting))
    wait_until(lambda: len(written(setting)) > rows + 500, 60, "rows that are new")
    assert standby.drain() == "ended"
    assert set(setting.compare()) == {1, 2}


@pytest.mark.conformance
def test_a_version_and_a_table_of_it(start: Start, tmp_path: Path) -> None:
    """Goal: both go on together, and the dataflow as it was before is another one, whatever its table has."""
    setting = Refreshed(str(tmp_path), endless=True, refresh_to=2, replace=True)
    setting.has(1)
    driver = start(setting)
    assert driver.line() == "running 1"
    setting.has(2)
    assert (driver.line(), driver.line()) == ("refreshed 1", "replaced 2")
    driver.kill()
    setting.has(3)
    setting = replace(setting, refresh_to=0, replace=False)
    said = start(setting).last()
    assert said.startswith("ProgramChanged: ") and "version 2 acts from epoch" in said
    driver = start(replace(setting, version=1))
    assert driver.line() == "running 2"
    rows = len(written(setting))
    wait_until(lambda: len(written(setting)) > rows + 500, 60, "rows that are new")
    assert driver.drain() == "ended"
    assert set(setting.compare()) == {1, 2}


@pytest.mark.parametrize("said", ["altered", "cut off", "gone"])
def test_what_was_written_down_of_a_table_is_proven(start: Start, tmp_path: Path, said: str) -> None:
    """Goal: what somebody has altered is not met by any row, and the error names it."""
    setting = Refreshed(str(tmp_path), endless=True, checkpoint_s=0.3)
    setting.has(1)
    driver = start(setting)
    assert driver.line() == "running 1"
    wait_until(lambda: read_journal(open_store(setting.location)).base > 0, 60, "a checkpoint")
    driver.kill()
    there = ef.checkpoints(setting.location)
    assert there.verify().whole
    [kept] = (Path(setting.location) / "programs").glob("*-tables.json")
    if said == "altered":
        other = Refreshed(str(tmp_path / "other"), endless=True)
        Path(other.home).mkdir()
        other.has(7)
        beside = start(other)
        assert beside.line() == "running 1"
        beside.kill()
        [others] = (Path(other.location) / "programs").glob("*-tables.json")
        kept.write_bytes(others.read_bytes())
    elif said == "cut off":
        kept.write_bytes(kept.read_bytes()[:-50])
    else:
        kept.unlink()
    flaw = "missing" if said == "gone" else "altered"
    assert {(fault.object.split("/")[1], fault.fault) for fault in there.verify().faults} == {(kept.name, flaw)}
    error = start(setting).last()
    assert error.startswith("LocationError: ") and kept.name in error
    assert (f"does not have what table {'contents'!r} had" in error) == (said == "altered")
    assert json.loads((Path(setting.location) / "evenflow.json").read_text())


def test_all_sites_are_killed_and_the_table_is_read_on(tmp_path: Path) -> None:
    """Goal: a driver that goes on in place makes again what rows met, and goes on reading. Method: kill -9 of all sites behind two
    refreshes; a callback, which is given each epoch once, and totals, whose state is made again, must agree."""
    has, met, flow = [1], Counter[int](), ef.Dataflow("in place")
    table = flow.table(lambda: pa.table({"key": list(range(16)), "met": [has[-1]] * 16}), "contents", key="key", refresh=None)
    rows = flow.source(ef.sources.generator(rate=1_000, keys=16, partitions=2), name="made").join(table, "key", name="joined")

    def take(_: int, batch: Any) -> None:
        met.update(batch.column("met").to_pylist())

    rows.select("key", "met").to(ef.sinks.callback(take), name="rows")
    rows.group_by("met").agg(n="count(*)").to(counts := ef.sinks.memory("counted by content"), name="counts")
    with BareEngine(partitions=8, lease_s=10.0) as engine:
        run = engine.start(flow, checkpoint_location=str(tmp_path / "location"))
        wait_until(lambda: met[1] > 500, 60, "rows")
        for content in (2, 3):
            has.append(content)
            assert run.refresh()["version"] == content - 1
        wait_until(lambda: met[3] > 500, 60, "rows that met what was read last")
        kill_sites(run)
        wait_until(lambda: "recovered_in_place" in kinds(run), 90, "the run goes on")
        there = met[3]
        wait_until(lambda: met[3] > there + 500, 60, "rows that meet the same")
        assert not run.refresh()["changed"]
        has.append(4)
        assert run.refresh()["version"] == 3
        wait_until(lambda: met[4] > 500, 60, "rows that met what was read behind the loss")
        assert run.progress()["tables"][0]["failures"] == 0
        assert run.stop(drain=True)
    totals = {row["met"]: row["n"] for row in sorted(counts.rows().to_pylist(), key=lambda row: int(row["n"]))}
    assert totals == dict(met) and set(met) == {1, 2, 3, 4}
