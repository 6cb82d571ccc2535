"""The same losses under Flink: SQL with RocksDB and incremental checkpoints, kill -9 of all task managers, others started at once.

The query is the count and sum by key of `evenflow bench restore`, of as many keys and at the same rate. What fills the state in is read
from files; the rows that go on coming are drawn by Flink's own generator, which makes none again after a loss: in Flink's favour, as is
that only one result in 500 is printed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv

from evenflow.bench.flink import FlinkCluster
from evenflow.errors import ClusterError

Say = Callable[[str], None]
WITHIN_S: Final = 300.0
POLL_S: Final = 0.02
LOOK_S: Final = 0.5
PRINTED: Final = re.compile(rb"\d> [+-][IUD]")
PRINTED_OF: Final = 500
BLOCK_ROWS: Final = 1 << 20
_QUERY: Final = """\
CREATE TABLE filled (k BIGINT, v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'file://{fill}', 'format' = 'csv');
CREATE TABLE paced (k BIGINT, v BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}',
  'fields.k.min' = '0', 'fields.k.max' = '{last}', 'fields.v.min' = '0', 'fields.v.max' = '999');
CREATE TABLE answers (k BIGINT, n BIGINT, total BIGINT) WITH ('connector' = 'print');
INSERT INTO answers SELECT k, n, total FROM (
  SELECT k, COUNT(*) AS n, SUM(v) AS total FROM (SELECT * FROM filled UNION ALL SELECT * FROM paced) GROUP BY k
) WHERE MOD(k + n, {of}) = 0;
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """restores_s: from each kill to the first result after it. state_bytes: of the last checkpoint. fill_s: until all keys were there."""

    restores_s: list[float]
    state_bytes: int
    fill_s: float


def measure(jars: list[Path], home: Path, *, keys: int, rate: int, every_s: float, sites: int, kills: int, seed: int, say: Say) -> Measured:
    """Fill the state in, and lose all task managers `kills` times, each at a drawn moment. Raises ClusterError."""
    say(f"Flink: {keys:,} keys are filled in")
    write_fill(home / "fill", keys, sites)
    random, restores_s = Random(seed), list[float]()
    with FlinkCluster(jars, home / "flink", sites, every_s) as cluster:
        began_s = time.monotonic()
        job = cluster.submit(_QUERY.format(fill=home / "fill", rate=rate, last=keys - 1, of=PRINTED_OF))
        _until(cluster, lambda: _filled(cluster, job), 2 * WITHIN_S, "fill its state in")
        fill_s = time.monotonic() - began_s
        for number in range(kills):
            # One that began before all keys were there does not have them.
            _until(cluster, partial(_is_whole, cluster, job, _whole(cluster, job) + 2), WITHIN_S, "complete a checkpoint")
            time.sleep(random.uniform(0.0, every_s))
            at_s = cluster.kill_workers()
            cluster.start_workers()
            _until(cluster, lambda: _printed(cluster), WITHIN_S, "give a result", POLL_S)
            restores_s.append(time.monotonic() - at_s)
            say(f"Flink, loss {number + 1}: results {restores_s[-1]:.1f} s later")
        state_bytes = int(_checkpoints(cluster, job)["latest"]["completed"]["state_size"])
    return Measured(restores_s, state_bytes, fill_s)


def write_fill(into: Path, keys: int, files: int) -> None:
    """Each key once, with a value, as text in so many files."""
    into.mkdir(parents=True)
    for number in range(files):
        with pyarrow.csv.CSVWriter(
            into / f"{number}.csv", pa.schema([("k", pa.int64()), ("v", pa.int64())]), write_options=_NO_HEADER
        ) as writer:
            for first in range(number, keys, files * BLOCK_ROWS):
                key = np.arange(first, min(keys, first + files * BLOCK_ROWS), files)
                writer.write_batch(pa.record_batch([pa.array(key), pa.array(key % 1000)], names=["k", "v"]))


_NO_HEADER: Final = pyarrow.csv.WriteOptions(include_header=False)


def _until(cluster: FlinkCluster, there: Callable[[], bool], within_s: float, what: str, every_s: float = LOOK_S) -> None:
    deadline_s = time.monotonic() + within_s
    while not there():
        if time.monotonic() > deadline_s:
            raise ClusterError(f"Flink did not {what} within {within_s:.0f} s:\n{cluster.said()}")
        time.sleep(every_s)


def _filled(cluster: FlinkCluster, job: str) -> bool:
    """Whether the source of files has ended: the other one never does."""
    found = cluster.ask(f"/jobs/{job}")
    if found["state"] in ("FAILED", "CANCELED"):
        raise ClusterError(f"Flink's job has ended: {found['state']}\n{cluster.said()}")
    return any(vertex["status"] == "FINISHED" for vertex in found["vertices"])


def _checkpoints(cluster: FlinkCluster, job: str) -> Any:
    return cluster.ask(f"/jobs/{job}/checkpoints")


def _whole(cluster: FlinkCluster, job: str) -> int:
    """Number of the newest checkpoint that is whole; 0 if there is none."""
    found = _checkpoints(cluster, job)["latest"]["completed"]
    return 0 if found is None else int(found["id"])


def _is_whole(cluster: FlinkCluster, job: str, number: int) -> bool:
    return _whole(cluster, job) >= number


def _printed(cluster: FlinkCluster) -> bool:
    return any(path.exists() and PRINTED.search(path.read_bytes()) for path in cluster.printed())
