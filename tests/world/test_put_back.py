"""A location is put back to an earlier time, and a sink has what the journal does not know: nobody adds to it. Real sites."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.restarting import wait_until

import evenflow as ef
from evenflow.bench.bare import BareEngine
from evenflow.errors import SinkError
from evenflow.world.spark.driver.run import Run

pytestmark = [pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def engine() -> Iterator[ef.Engine]:
    with BareEngine(sites=2, partitions=4, checkpoint_s=0.2) as found:
        yield found


def rows_of(sink: Any) -> int:
    found: int = sink.read().num_rows
    return found


@pytest.mark.parametrize("kind", ["parquet", "delta"])
@pytest.mark.conformance
def test_what_is_made_next_is_neither_taken_for_what_is_there_nor_left_out(engine: ef.Engine, kind: str, tmp_path: Path) -> None:
    """Method: the location is copied while it runs, and put back when the sink has more. Where sites write, nobody else would see it."""
    location, early, place = tmp_path / "location", tmp_path / "early", str(tmp_path / "rows")
    sink = ef.sinks.parquet(place, commit_interval_ms=50) if kind == "parquet" else ef.sinks.delta(place, commit_s=0.05)
    flow = ef.Dataflow(kind)
    flow.source(ef.sources.generator(rate=2_000, keys=16, partitions=2), name="made").select("key", "value").to(sink, name="rows")

    def start(more: int) -> Run:
        """It runs until the sink has so many rows more."""
        before = rows_of(sink) if (tmp_path / "rows").exists() else 0
        run = engine.start(flow, checkpoint_location=str(location), take_over=True)
        wait_until(lambda: rows_of(sink) > before + more, 60, f"{more} rows more")
        return run

    run = start(100)
    shutil.copytree(location, early, ignore=shutil.ignore_patterns("*.tmp"))  # It is written to.
    there = rows_of(sink)
    wait_until(lambda: rows_of(sink) > there + 500, 60, "more rows in the sink")
    run.stop()
    start(100).stop()  # A restart at the location as it is.
    there = rows_of(sink)
    shutil.move(location, tmp_path / "newest")
    shutil.copytree(early, location)
    with pytest.raises(SinkError, match=r"sink 'rows' has the epochs up to \d+ of run .* the checkpoint location those up to \d+: the loc"):
        engine.start(flow, checkpoint_location=str(location), take_over=True)
    assert rows_of(sink) == there
    shutil.rmtree(location)
    shutil.move(tmp_path / "newest", location)
    start(100).stop()


@pytest.mark.conformance
def test_where_only_checkpoints_are_journalled_a_generation_that_was_there_before_is_noticed(engine: ef.Engine, tmp_path: Path) -> None:
    """Goal: a table takes no epoch of one history for that of another, and the start after that goes on. Method: the location is copied
    while generation 1 runs, and put back when generation 2 has been; then the next one is of number 2 again."""
    location, early = tmp_path / "location", tmp_path / "early"
    flow = ef.Dataflow("table")
    made = flow.source(ef.sources.generator(rate=2_000, keys=16, partitions=2), name="made")
    made.select("key", "value").to(ef.sinks.table(str(tmp_path / "rows.sqlite"), "t"), name="rows")

    def rows() -> int:
        with closing(sqlite3.connect(tmp_path / "rows.sqlite", timeout=30)) as connection:
            there = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 't'").fetchone()[0]
            return int(connection.execute("SELECT count(*) FROM t").fetchone()[0]) if there else 0

    def start(more: int) -> Run:
        before = rows()
        run = engine.start(flow, checkpoint_location=str(location), take_over=True, durability="no-loss")
        wait_until(lambda: rows() > before + more or not run.is_active, 60, f"{more} rows more")
        return run

    run = start(100)
    shutil.copytree(location, early, ignore=shutil.ignore_patterns("*.tmp"))  # It is written to.
    run.stop()
    start(500).stop()
    there = rows()
    shutil.rmtree(location)
    shutil.copytree(early, location)
    with pytest.raises(SinkError, match=r"sink 'rows' has the epochs up to \d+ of run .*\.g2, .* was put back to an earlier time"):
        start(100).await_termination(60)
    assert rows() == there
    run = start(100)
    assert run.is_active and rows() > there + 100
    run.stop()
