"""A dataflow on real executors goes on as another version while rows flow: its functions travel, its processor keeps what it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest

import evenflow as ef
from evenflow.errors import VersionChanged
from tests.worlds.dataflows import Gated, Numbered

pytestmark = [pytest.mark.spark, pytest.mark.conformance, pytest.mark.timeout(400)]
ROWS = 40_000


def test_a_dataflow_is_replaced_while_it_runs(engine: ef.Engine, named: Callable[[str], str], tmp_path: Path) -> None:
    gate, name, sink = tmp_path / "gate", named("versions"), ef.sinks.memory(named("out"))

    def flow(version: int) -> ef.Dataflow:
        made = ef.Dataflow(name)
        rows = made.source(Gated(str(gate), ROWS, 8_000), name="in").where(
            lambda batch: pc.greater_equal(batch.column("key"), 0), name="all"
        )
        rows.key_by("key").process(Numbered(version), order="arrival", name="numbered").to(sink, name="out")
        return made

    run = engine.start(flow(1))
    while sink.rows().num_rows < 1_000:
        assert not run.await_termination(0.1)
    told = run.compare(flow(2))
    assert told["possible"] and told["version"] == 0 and set(told["changed"]) == {"all", "numbered"}
    assert {each["box"] for each in told["boxes"] if each["keeps_state"]} == {"numbered"}
    found = run.replace(flow(2), version=0)
    with pytest.raises(VersionChanged, match="version 1 runs by now"):
        run.replace(flow(3), version=0)
    assert run.compare(flow(3))["version"] == 1
    assert (found["version"], set(found["boxes"])) == (1, {"all", "numbered"})
    gate.touch()
    assert run.await_termination(120)
    rows = sink.rows().to_pylist()
    assert len(rows) == ROWS and {row["version"] for row in rows} == {1, 2}
    by_key: dict[int, list[tuple[int, int]]] = {}
    for row in rows:
        by_key.setdefault(row["k"], []).append((row["n"], row["version"]))
    for numbers in by_key.values():
        numbers.sort()
        assert [n for n, _ in numbers] == list(range(1, len(numbers) + 1)), "the count goes on"
        assert [version for _, version in numbers] == sorted(version for _, version in numbers), (
            "and no row is processed by an older version"
        )
