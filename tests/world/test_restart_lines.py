"""Lines that came over a connection, and are never sent again, count after restarts: real processes, files and kills."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.restarting import Start, wait_until
from tests.restarting_lines import Lines, Sender

import evenflow as ef
from evenflow.bench import killing
from evenflow.bench.bare import BareEngine

pytestmark = [pytest.mark.timeout(300)]


@pytest.fixture
def sender() -> Iterator[Sender]:
    made = Sender()
    yield made
    made.close()


@pytest.mark.conformance
def test_lines_are_read_again_from_the_store(start: Start, sender: Sender, tmp_path: Path) -> None:
    """Goal: totals after a restart count the lines from before it, which only the location has. Method: kill -9 of everything when 500
    lines have been put out; another number of sites goes on, and more lines come. Then an object is taken away: that is said."""
    setting = Lines(str(tmp_path), port=sender.port)
    driver = start(setting)
    assert driver.line() == "running 1"
    sender.accept()
    sender.send(500)
    wait_until(lambda: setting.count() == 500, 60, "500 lines are put out")
    driver.kill()
    driver = start(replace(setting, sites=3))
    assert driver.line() == "running 2"
    sender.accept()
    sender.send(300)
    wait_until(lambda: setting.count() == 800, 60, "800 lines are put out")
    setting.compare(800)
    driver.kill()
    first = min((Path(setting.location) / "rows").rglob("*.arrow"))
    first.unlink()
    said = start(setting).last()
    assert said.startswith("SourceError: ") and first.name in said and "Nobody else has these rows" in said


@pytest.mark.conformance
def test_lines_that_are_not_kept_are_written_nowhere_and_missed_by_totals(start: Start, sender: Sender, tmp_path: Path) -> None:
    """Goal: a restart goes on without them, and counts what comes then. Method: kill -9 of everything, without a checkpoint; more lines."""
    setting = Lines(str(tmp_path), port=sender.port, durability="none", checkpoint_s=None)
    driver = start(setting)
    assert driver.line() == "running 1"
    sender.accept()
    sender.send(500)
    wait_until(lambda: setting.count() == 500, 60, "500 lines are put out")
    driver.kill()
    driver = start(setting)
    assert driver.line() == "running 2"
    sender.accept()
    sender.send(300)
    wait_until(lambda: setting.ask("SELECT sum(n) FROM totals") == [(300,)], 60, "300 lines are counted")
    assert {number for (number,) in setting.ask("SELECT id FROM rows")} == set(range(800)) and not (
        Path(setting.location) / "rows"
    ).exists()


class Ids:
    """A dataflow that counts lines and gives their numbers to the driver."""

    def __init__(self, port: int) -> None:
        self.taken: list[int] = []
        self.totals = ef.sinks.memory("totals")
        self.flow = ef.Dataflow("lines")
        rows = self.flow.source(ef.sources.tcp_lines("127.0.0.1", port, "id bigint, k bigint"), name="lines").where("id >= 0")
        rows.select("id").to(ef.sinks.callback(self._take), name="ids")
        rows.group_by("k").agg(n="count(*)", total="sum(id)").name("totals").to(self.totals)

    def _take(self, epoch: int, batch: Any) -> None:
        self.taken += batch.column("id").to_pylist()

    def wait(self, given: int, counted: int) -> None:
        done = f"{given} lines are given out, and {counted} counted"
        wait_until(lambda: len(self.taken) >= given and self.counted() >= counted, 60, done)

    def counted(self) -> int:
        return sum(n for n, _ in self.newest().values())

    def newest(self) -> dict[int, tuple[int, int]]:
        return {row["k"]: (row["n"], row["total"]) for row in self.totals.rows().to_pylist()}


def totals_of(count: int) -> dict[int, tuple[int, int]]:
    return {k: (len(own := range(k, count, 7)), sum(own)) for k in range(7)}


def generations(location: Path) -> set[str]:
    """That have stored rows."""
    return {found.parent.name for found in (location / "rows").rglob("*.arrow")}


@pytest.mark.conformance
def test_all_sites_are_lost_and_the_same_driver_goes_on_with_lines_from_the_store(sender: Sender, tmp_path: Path) -> None:
    """Goal: the next generation in the same driver makes again what only the store has, and stores its own lines under its own number."""
    given = Ids(sender.port)
    with BareEngine(sites=2, partitions=8, checkpoint_s=None) as engine:
        run = engine.start(given.flow, checkpoint_location=str(tmp_path))
        sender.accept()
        sender.send(300)
        given.wait(300, 300)
        victims = [site["pid"] for site in run.progress()["sites"]]
        killing.kill(victims)
        assert killing.gone(victims, 30.0)
        sender.accept()
        sender.send(200)
        given.wait(500, 500)
        assert [event["kind"] for event in run.events()].count("recovered_in_place") == 1
        run.stop()
    assert sorted(given.taken) == list(range(500)) and given.newest() == totals_of(500)
    assert generations(tmp_path) == {"000001", "000002"}


@pytest.mark.conformance
def test_a_savepoint_needs_none_of_the_rows_that_its_location_keeps(sender: Sender, tmp_path: Path) -> None:
    """Goal: lines before a savepoint are in its state, and those after it come over the connection. Method: the first location goes."""
    before, after = Ids(sender.port), Ids(sender.port)
    location, saved, other = tmp_path / "location", tmp_path / "saved", tmp_path / "other"
    with BareEngine(sites=2, partitions=8, checkpoint_s=None) as engine:
        run = engine.start(before.flow, checkpoint_location=str(location))
        sender.accept()
        sender.send(300)
        before.wait(300, 300)
        run.suspend(str(saved))
        assert generations(location) == {"000001"} and not (saved / "rows").exists()
        assert ef.checkpoints(str(saved)).verify().whole
        shutil.rmtree(location)
        run = engine.start(after.flow, checkpoint_location=str(other), from_savepoint=str(saved))
        sender.accept()
        sender.send(200)
        after.wait(given=200, counted=500)
        run.stop()
    assert sorted(after.taken) == list(range(300, 500)), "what the first run has given out is not given again"
    assert after.newest() == totals_of(500), "its state is that of all lines"
