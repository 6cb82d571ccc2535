"""Runs whose sources are cut by content: the same cases, read by every replica for itself (protocol E9 to E11, I4, A6).

By place, or by times some of which are late: a row's time is that of its column, and for some rows it is smaller. Readers of times promise
what is true: they know the rows that they have not given yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from evenflow.query.network import Network
from evenflow.sources.cut import CutSource
from evenflow.sources.memory import MemoryReader, MemorySource
from evenflow.sources.source import Reader
from evenflow.stream.arrays import Int64s
from evenflow.swarm.shed_cases import BEGIN_US

CUT: Final = 0.15
"""So many of the seeds whose sources can be."""
MODED_SINCE: Final = 11_050_000
"""From that seed on those whose boxes have modes of availability, too."""
LATE_US: Final = 3_000


def log_times(batch: pa.RecordBatch) -> Int64s:
    """int64 (n,): about one in seven is late."""
    times = batch.column("ts").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.asarray(times - LATE_US * (times * 40_503 % 7 == 0), np.int64)


class TimedReader(MemoryReader):
    """left: the log times of the rows that have not been given."""

    def __init__(self, source: TimedSource, partition: int) -> None:
        batches = source.per_partition[partition]
        super().__init__(batches, source.ends)
        self._left = np.concatenate([log_times(batch) for batch in batches]) if batches else np.zeros(0, np.int64)

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        batch = super().read(now_us, max_rows)
        self._left = self._left[0 if batch is None else batch.num_rows :]
        return batch

    def times(self, batch: pa.RecordBatch) -> Int64s:
        return log_times(batch)

    def promise(self, now_us: int) -> int | None:
        return int(self._left.min()) if self._left.size else None


@dataclass(frozen=True)
class TimedSource(MemorySource):
    """Rows that are there, with log times."""

    kind: ClassVar[str] = "timed"
    cuts: ClassVar[tuple[str, ...]] = ("time",)

    def first_time(self, begin_us: int) -> int:
        return 0

    def open(self, partition: int, of: int) -> Reader:
        return TimedReader(self, partition)


def is_cut(seed: int, *, moded: bool = False) -> bool:
    """Its sources are cut by content, if they can be. moded: its boxes have modes of availability."""
    return (seed >= MODED_SINCE or not moded) and Random(f"cuts of seed {seed}").random() < CUT


def by_content(network: Network, random: Random) -> Network | None:
    """The network with all its sources cut by their times or places; None if one of them cannot be."""
    sources = {box.name: box.params["source"] for box in network.of_kind("source")}
    if any(source.not_cut("place", trusted=False, mirrored=False) for source in sources.values()):
        return None
    rows, width_us = random.choice([1, 2, 5, 20, 100]), random.choice([1_000, 2_000, 5_000])
    timed = random.random() < 0.6 and all(isinstance(each, MemorySource) and "ts" in each.schema.names for each in sources.values())

    def cut(source: Any) -> CutSource:
        if timed:
            made = TimedSource(source.columns, source.per_partition, source.ends)
            return CutSource(made, "time", width_us, begin_us=BEGIN_US)
        return CutSource(source, "place", width_us, rows, BEGIN_US)

    boxes = [replace(box, params={**box.params, "source": cut(sources[box.name])}) if box.name in sources else box for box in network]
    return Network(network.name, tuple(boxes))
