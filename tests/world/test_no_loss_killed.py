"""A driver and all its sites are killed where only checkpoints are written down: nothing is missing, and what comes twice came behind the
checkpoint. Real processes, files and kills, without Spark."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.restarting import WINDOW_US, Setting, Start, micros, wait_until, written
from tests.world.test_in_place import Given, kill_sites, kinds

import evenflow as ef
from evenflow.availability.entries import Completed, Logged
from evenflow.availability.standing import Standing
from evenflow.bench.bare import BareEngine
from evenflow.coordinator.beginning import logs_of
from evenflow.errors import AvailabilityError, EvenflowError, Fenced, JournalCorrupt, LocationError, OperationRefused
from evenflow.sources.generator import GeneratorSource
from evenflow.store.journal import entries, read_journal
from evenflow.store.opening import open_store
from evenflow.world.locations.starting import saved_at

pytestmark = [pytest.mark.timeout(480)]


def standing(setting: Setting) -> Standing:
    try:
        return read_journal(open_store(setting.location))
    except (LocationError, JournalCorrupt):
        return Standing()  # It is not there yet, or is being written.


def given_by(setting: Setting) -> list[list[tuple[int, int, int]]]:
    """(key, ts, value) of all rows of the source by partition, in order."""
    [program] = (Path(setting.location) / "programs").glob("*.json")
    made = setting.dataflow().network.box("made").params["source"]
    assert isinstance(made, GeneratorSource)
    source = replace(made, begin_us=json.loads(program.read_text())["sources"]["made"]["begin_us"])
    found = []
    for partition in range(2):
        reader, rows = source.open(partition, 2), list[tuple[int, int, int]]()
        while (batch := reader.read(2**60, 100_000)) is not None and batch.num_rows:
            columns = [batch.column("key"), batch.column("ts").cast("int64"), batch.column("value")]
            rows += zip(*(column.to_pylist() for column in columns))
        found.append(rows)
    return found


@pytest.mark.conformance
def test_everything_is_killed_twice_and_nothing_is_missing(start: Start, tmp_path: Path) -> None:
    """Goal: a table and files have every row, twice at most what came behind a checkpoint. Method: kill -9 of the driver and all sites,
    twice, a while behind a checkpoint; the last generation has one site more."""
    setting = Setting(str(tmp_path), checkpoint_s=0.5, durability="no-loss", rows=15_000, rate=500, lease_s=3.0)
    positions = list[list[int]]()
    for generation in (1, 2):
        driver, before = start(setting), standing(setting).base
        assert driver.line() == f"running {generation}"
        wait_until(lambda before=before: standing(setting).base > before, 60, "a checkpoint of this generation")  # type: ignore[misc]
        there = len(written(setting))
        wait_until(lambda there=there: len(written(setting)) > there + 300, 60, "300 rows more")  # type: ignore[misc]
        driver.kill()
        positions.append([logs_of(standing(setting))[0, partition][0] for partition in range(2)])
    assert len(written(setting)) < setting.rows, "it was over before it was killed"
    driver = start(replace(setting, sites=3, durability=None))
    assert driver.line() == "running 3"
    assert driver.last() == "ended"
    assert start(setting).last() == "over"
    given = given_by(setting)
    assert sum(map(len, given)) == setting.rows
    found = Counter((key, micros(ts), value) for key, ts, value in written(setting))
    expected = Counter(row for rows in given for row in rows)
    assert found.keys() == expected.keys(), f"{len(expected.keys() - found.keys())} rows are missing"
    repeated = found - expected
    assert repeated, "something was given out behind a checkpoint"
    behind = Counter(row for at in positions for rows, first in zip(given, at) for row in rows[first:])
    assert not repeated - behind, "rows that came before a checkpoint are there twice"
    table = ef.sinks.parquet(setting.folder).read()
    columns = [table.column("key"), table.column("window_start").cast("int64"), table.column("n"), table.column("total")]
    windows = Counter(zip(*(column.to_pylist() for column in columns)))
    assert windows.keys() == totals(given), "windows are missing, or other ones are there"
    assert max(windows.values()) <= 3
    of = [entry.matter for entry in entries(open_store(setting.location))]
    assert not any(isinstance(matter, Logged) and matter.cuts for matter in of)
    assert any(isinstance(matter, Completed) for matter in of)


def totals(given: list[list[tuple[int, int, int]]]) -> set[Any]:
    """What the windows of all rows have: (key, begin, rows, sum of values)."""
    found: dict[tuple[int, int], list[int]] = {}
    for key, ts, value in (row for rows in given for row in rows):
        of = found.setdefault((key, ts - ts % WINDOW_US), [0, 0])
        of[0] += 1
        of[1] += value
    return {(*at, *of) for at, of in found.items()}


@pytest.mark.conformance
def test_a_run_that_has_lost_all_sites_goes_on_in_place(tmp_path: Path) -> None:
    """Goal: its sinks take what comes again, which has other numbers than before. Method: kill -9 of all sites; a callback and a memory
    sink go on."""
    given = Given(tmp_path / "location")
    with BareEngine(sites=2, partitions=8, lease_s=10.0, checkpoint_s=0.5, durability="no-loss") as engine:
        run = engine.start(given.flow, checkpoint_location=str(given.location))
        for generation in (1,):
            there = given.rows.total()
            wait_until(lambda there=there: given.rows.total() > there + 1_000, 90, "1,000 rows more")  # type: ignore[misc]
            kill_sites(run)
            wait_until(lambda of=generation: kinds(run).count("recovered_in_place") == of, 90, "the run goes on")  # type: ignore[misc]
            assert run.is_active and run.progress()["journal"]["generation"] == generation + 1
        there = given.rows.total()
        wait_until(lambda: given.rows.total() > there + 1_000, 90, "1,000 rows more")
        with pytest.raises(OperationRefused, match="no-loss"):
            run.suspend()
        saved = run.savepoint(str(tmp_path / "saved"))
        assert saved_at(saved.location).made.epoch == saved.epoch
        run.checkpoint()
        assert run.progress()["journal"]["durable"] > 0
        run.stop(drain=True)
    assert run.exception() is None
    whole = Counter(value for (_, value), _ in given.rows.items())
    assert whole, "rows came"
    newest = ef.sinks.memory("counts").rows()
    assert newest.num_rows and len({*newest.column("key").to_pylist()}) == 16


def test_what_cannot_have_it_is_refused(tmp_path: Path) -> None:
    """Goal: a typed error says why and what helps. Method: each reason."""
    flow = ef.Dataflow("refused")
    flow.source(ef.sources.generator(rows=10, partitions=2)).to(ef.sinks.table(str(tmp_path / "t.sqlite"), "t"), guarantee="precise")
    lines = ef.Dataflow("lines")
    lines.source(ef.sources.tcp_lines("127.0.0.1", 9, format="text")).to(ef.sinks.memory("lines"))
    read = ef.Dataflow("read")
    read.source(ef.sources.generator(rows=10, partitions=2)).to(ef.sinks.spark())
    changing = ef.Dataflow("changing")
    totals = changing.source(ef.sources.generator(rows=10, partitions=2)).group_by("key").agg(n="count(*)", mode="changelog")
    totals.to(ef.sinks.table(str(tmp_path / "t.sqlite"), "t", key="key"), name="totals")
    subscribed = ef.Dataflow("subscribed")
    subscribed.source(ef.sources.generator(rows=10, partitions=2)).to(ef.sinks.stream(0), name="port")
    fine = ef.Dataflow("fine")
    fine.source(ef.sources.generator(rows=10, partitions=2)).to(ef.sinks.table(str(tmp_path / "t.sqlite"), "t"), guarantee="no-loss")
    with BareEngine(sites=1) as engine:
        cases: list[tuple[ef.Dataflow, dict[str, Any], type[EvenflowError], str]] = [
            (flow, {}, AvailabilityError, "ask for guarantee 'no-loss'"),
            (lines, {}, AvailabilityError, "gives its rows once"),
            (read, {}, AvailabilityError, "Spark reads the results"),
            (changing, {}, AvailabilityError, "sink 'totals' keeps a table of results that change"),
            (subscribed, {}, AvailabilityError, "who subscribes to sink 'port'"),
            (fine, {"durability": "no_loss"}, AvailabilityError, "did you mean 'no-loss'"),
            (fine, {"checkpoint_location": None}, LocationError, "give checkpoint_location="),
        ]
        for number, (of, more, error, said) in enumerate(cases):
            with pytest.raises(error, match=said):
                engine.start(of, **{"checkpoint_location": str(tmp_path / f"at{number}"), "durability": "no-loss"} | more)
        at = str(tmp_path / "fine")
        engine.start(fine, checkpoint_location=at, durability="no-loss").await_termination(60)
        other = ef.Dataflow("other")
        other.source(ef.sources.generator(rate=100, partitions=2)).to(ef.sinks.memory("other"))
        run = engine.start(other, checkpoint_location=str(tmp_path / "other"))
        run.stop()
        with pytest.raises(LocationError, match="was begun with durability 'precise'"):
            engine.start(other, checkpoint_location=str(tmp_path / "other"), durability="no-loss")
    with BareEngine(sites=1, checkpoint_s=None) as engine, pytest.raises(AvailabilityError, match="checkpoint_s is None"):
        engine.start(fine, checkpoint_location=str(tmp_path / "never"), durability="no-loss")


@pytest.mark.conformance
def test_an_option_of_the_engine_is_for_runs_that_say_nothing(tmp_path: Path) -> None:
    """Goal: a region of a group can be precise beside others that are not, and what was begun precise is gone on with so. Method: a region
    is refused, says 'precise', and is started again without a word."""
    flow = ef.Dataflow("regional")
    flow.source(ef.sources.generator(rate=100, partitions=2), cut="content").to(ef.sinks.table(str(tmp_path / "t.sqlite"), "t"))
    given: dict[str, Any] = {"group": ef.group("g", datetime.now(UTC)), "checkpoint_location": str(tmp_path / "location")}
    with BareEngine(sites=1, durability="no-loss") as engine:
        with pytest.raises(AvailabilityError, match="its regions give out the same epochs, .*: use 'precise'"):
            engine.start(flow, **given)
        engine.start(flow, **given, durability="precise").stop()
        engine.start(flow, **given).stop()
        with pytest.raises(LocationError, match="was begun with durability 'precise'"):
            engine.start(flow, **given, durability="no-loss")


@pytest.mark.conformance
def test_what_cannot_be_is_said_before_a_driver_stands_by(tmp_path: Path) -> None:
    """Goal: nobody waits for days to be refused when it counts. Method: who looks at a run that was stopped waits for ever."""
    flow = ef.Dataflow("awaited")
    flow.source(ef.sources.generator(rate=100, partitions=2)).to(ef.sinks.memory("awaited"))

    def waits(progress: Any) -> None:
        raise RuntimeError("it stands by")

    given: dict[str, Any] = {"checkpoint_location": str(tmp_path / "location")}
    with BareEngine(sites=1) as engine:
        engine.start(flow, **given, durability="no-loss").stop()
        with pytest.raises(LocationError, match="was begun with durability 'no-loss'"):
            engine.start(flow, **given, standby=True, durability="precise", watch=waits)
        with pytest.raises(RuntimeError, match="it stands by"):
            engine.start(flow, **given, standby=True, watch=waits)
    with BareEngine(sites=1, checkpoint_s=None) as engine, pytest.raises(AvailabilityError, match="checkpoint_s is None"):
        engine.start(flow, **given, standby=True, watch=waits)


@pytest.mark.conformance
def test_a_driver_that_was_replaced_hears_of_it_without_a_checkpoint(tmp_path: Path) -> None:
    """Goal: two drivers do not write for as long as it takes to a checkpoint, and the older one puts nothing over what the newer one has
    written. Method: another engine takes over; there is no checkpoint in sight."""
    database = tmp_path / "t.sqlite"
    flow = ef.Dataflow("replaced")
    made = flow.source(ef.sources.generator(rate=500, keys=4, partitions=1))
    made.group_by("key").agg(n="count(*)").to(ef.sinks.table(str(database), "t", key="key"), name="counts")
    given: dict[str, Any] = {"checkpoint_location": str(tmp_path / "location"), "take_over": True, "durability": "no-loss"}

    def counted() -> int:
        with closing(sqlite3.connect(database, timeout=30)) as connection:
            there = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 't'").fetchone()[0]
            return int(connection.execute("SELECT sum(n) FROM t").fetchone()[0]) if there else 0

    options: dict[str, Any] = {"sites": 1, "checkpoint_s": 300.0, "lease_s": 4.0}
    with BareEngine(**options) as one, BareEngine(**options) as other:
        first = one.start(flow, **given)
        wait_until(lambda: counted() > 100, 60, "rows of the first one")
        second = other.start(flow, **given)
        wait_until(lambda: not first.is_active, 30, "the first one ends")
        assert isinstance(first.exception(), Fenced), first.exception()
        there = counted()
        wait_until(lambda: counted() > there + 500, 60, "the second one goes on")
        assert second.is_active
        second.stop()
