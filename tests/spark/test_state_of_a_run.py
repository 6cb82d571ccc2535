"""What a box keeps is shown of one epoch while its run goes on, in Python and by the control port."""

from __future__ import annotations

from pathlib import Path

import pytest

import evenflow as ef
from evenflow.errors import OperationRefused
from evenflow.world.spark.driver.control_client import ask, find
from tests.spark.test_operations import wait_until

KEYS = 50


@pytest.mark.spark
def test_the_state_of_a_running_box_is_of_one_epoch(engine: ef.Engine, tmp_path: Path) -> None:
    """Every key has the same count at the source's end of any epoch but for the last round of keys, as rows come key after key."""
    flow = ef.Dataflow("looked-at")
    rows = flow.source(ef.sources.generator(rate=5_000, keys=KEYS))
    rows.group_by("key").agg(n="count(*)").name("counts").to(ef.sinks.discard())
    run = engine.start(flow, checkpoint_location=str(tmp_path / "location"))
    try:
        wait_until(lambda: run.progress()["rows_in"] > 10 * KEYS, "rows have come")
        first = run.state("counts")
        second = run.state("counts")
        assert first.column("key").to_pylist() != [] and second.num_rows == KEYS
        assert sum(second.column("n").to_pylist()) >= sum(first.column("n").to_pylist()) > 0
        key = second.column("key")[0].as_py()
        [row] = run.state("counts", {"key": key}).to_pylist()
        assert row["key"] == key and row["n"] >= second.column("n")[0].as_py()
        found = ask(
            find(str(engine.open_control())), "state", box="counts", key={"key": str(key)}, kind=None, limit=5, run=run.id, timeout_s=60.0
        )
        assert found["rows"][0]["key"] == key and not found["more"] and found["run"] == run.id
        with pytest.raises(OperationRefused, match="Did you mean 'counts'"):
            run.state("count")
        assert run.is_active
    finally:
        run.stop()


@pytest.mark.spark
def test_a_run_without_a_location_says_so(engine: ef.Engine) -> None:
    flow = ef.Dataflow("nothing-kept")
    flow.source(ef.sources.generator(rate=10)).group_by("key").agg(n="count(*)").name("counts").to(ef.sinks.discard())
    run = engine.start(flow)
    try:
        wait_until(lambda: run.progress()["rows_in"] > 0, "rows have come")
        with pytest.raises(OperationRefused, match="no checkpoint location"):
            run.state("counts")
    finally:
        run.stop()
