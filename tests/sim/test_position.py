"""Sources that say where they are by a column: whoever reads on does so behind the last row in the log, however many rows there were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.sources import Reader, Source
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in

SCHEMA = pa.schema([("k", pa.int64()), ("unread", pa.int64()), ("at", pa.int64())])
OPENED: list[tuple[int, int]] = []
"""(partition, position) of readers that were told to go on from somewhere."""


class LogReader(Reader):
    def __init__(self, partition: int, rows: pa.RecordBatch) -> None:
        self._partition, self._rows, self._next = partition, rows, 0

    def skip(self, rows: int) -> None:
        OPENED.append((self._partition, rows))
        self._next = int(np.searchsorted(self._rows.column(2).to_numpy(), rows))

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        batch = self._rows.slice(self._next, max_rows)
        self._next += batch.num_rows
        self.ended = self._next >= self._rows.num_rows
        return batch if batch.num_rows else None


@dataclass(frozen=True)
class LogSource(Source):
    """A log as Kafka's: what comes later has a greater offset, and offsets have gaps."""

    kind: ClassVar[str] = "log"
    per_partition: Sequence[pa.RecordBatch]

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    @property
    def position(self) -> str:
        return "at"

    def partitions(self, sites: int) -> int:
        return len(self.per_partition)

    def open(self, partition: int, of: int) -> Reader:
        return LogReader(partition, self.per_partition[partition])


def logs(seed: int, partitions: int, rows: int) -> list[pa.RecordBatch]:
    random = np.random.default_rng(seed)
    made = []
    for _ in range(partitions):
        at = 500 + np.cumsum(random.integers(1, 4, rows))
        made.append(pa.record_batch([random.integers(0, 10, rows), np.zeros(rows, np.int64), at], schema=SCHEMA))
    return made


@pytest.mark.parametrize("seed", one_in(3, range(6)))
def test_a_new_leader_goes_on_behind_the_last_position(seed: int) -> None:
    """Goal: no row lost or repeated. Method: kill the leader of a partition of which much has been read, and has been settled."""
    OPENED.clear()
    given = logs(seed, 2, 3000)
    flow = ef.Dataflow("positions")
    flow.source(LogSource(given)).group_by("k").agg(n="count(*)").to(ef.sinks.memory("out"), name="out")
    options = FlowOptions(linger_ms=0.5, epoch_rows=50)
    world = SimWorld(layout(flow.network, sites=3, partitions=8), sites=3, replicas=2, seed=seed, options=options, read_rows=40)
    world.run_for(0.01 + 0.002 * seed)
    machine = world.coordinator
    world.kill(machine.membership.leaders[0][0].site)
    world.run_until(lambda: any(event.kind == "take_over" for _, event in world.happened), 10.0, "the take-over")
    world.run_until_quiet(20.0)
    counts = {row["k"]: row["n"] for row in world.output("out").to_pylist()}
    keys, wanted = np.unique(np.concatenate([batch.column(0).to_numpy() for batch in given]), return_counts=True)
    assert counts == dict(zip(keys.tolist(), wanted.tolist(), strict=True))
    assert OPENED and all(position > 500 for _, position in OPENED), "the reader was told a number of rows, or nobody went on reading"


def test_the_position_enters_though_no_box_reads_it() -> None:
    flow = ef.Dataflow("positions")
    flow.source(LogSource(logs(0, 1, 10))).group_by("k").agg(n="count(*)").to(ef.sinks.memory("out"))
    assert layout(flow.network, sites=1).segments[0].schema.names == ["k", "at"]
