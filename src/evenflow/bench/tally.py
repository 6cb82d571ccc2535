"""What came out of a query with a large state, kept in files that outlive the process that writes them: counts and sums of each key.

A sink of Evenflow's writes it in the driver, and whoever kills that driver reads it. Files are mapped into memory, so what was written
before a kill -9 is there. An answer is new if its count is greater than the one that was there: what a restart gives out a second time is
none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from evenflow.availability.entries import Key
from evenflow.bench.events import ScheduledEvents
from evenflow.bench.gaps import Times
from evenflow.stream.arrays import Int64s

ROWS: Final = 0
AGAIN: Final = 1
"""Places of the numbers: rows of the source that the answers stand for, and answers that were not new."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Rows of the source against the last answer of each key. lost: that are in no answer. repeated: counted more often than they are
    there. wrong: keys with the right count and another sum."""

    rows: int
    lost: int
    repeated: int
    wrong: int


class Tally:
    """The files in `home`, made if they are not there. keys: 0 .. keys - 1. Takes 16 bytes for each."""

    def __init__(self, home: Path, keys: int) -> None:
        self._counts, self._sums = (_mapped(home / name, keys) for name in ("counts", "sums"))
        self._numbers = _mapped(home / "numbers", 2)
        self._moments = home / "moments"
        self._moments.touch()

    def __call__(self, epoch: int, batch: pa.RecordBatch) -> None:
        """The sink: columns key, n and total, each key at most once."""
        key, count, total = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("key", "n", "total"))
        before = self._counts[key]
        new = count > before
        found = int(np.count_nonzero(new))
        self._numbers[AGAIN] += key.size - found
        if found:
            self._sums[key[new]] = total[new]
            self._counts[key[new]] = count[new]
            self._numbers[ROWS] += int((count - before)[new].sum())
            self.mark()

    def mark(self) -> None:
        """Something new has come out right now."""
        with open(self._moments, "ab") as file:
            file.write(np.float64(time.monotonic()).tobytes())

    @property
    def rows(self) -> int:
        """Rows of the source that the answers stand for."""
        return int(self._numbers[ROWS])

    @property
    def again(self) -> int:
        """Answers that were not new."""
        return int(self._numbers[AGAIN])

    def moments(self) -> Times:
        """When something new came out: seconds of the machine's monotonic clock, which all of its processes share."""
        data = self._moments.read_bytes()
        return np.frombuffer(data[: len(data) // 8 * 8])

    def since(self, moment_s: float) -> float | None:
        """The first of them that is later; None if there is none yet."""
        with open(self._moments, "rb") as file:
            file.seek(max(0, self._moments.stat().st_size // 8 * 8 - 8))
            last = np.frombuffer(file.read(8))
        if not last.size or last[0] <= moment_s:
            return None
        moments = self.moments()
        return float(moments[np.searchsorted(moments, moment_s, side="right")])

    def compare(self, source: ScheduledEvents, taken: Mapping[Key, int]) -> Compared:
        """taken: rows that the dataflow has taken in, of each of its source's partitions."""
        counts, sums = (np.zeros(source.keys, np.int64) for _ in range(2))
        for (_, partition), left in taken.items():
            reader = source.open(partition, source.count)
            while left:
                batch = reader.read(2**60, left)
                assert batch is not None
                key, value = batch.column("key").to_numpy(), batch.column("value").to_numpy()
                np.add.at(counts, key, 1)
                np.add.at(sums, key, value)
                left -= batch.num_rows
        return Compared(
            rows=int(counts.sum()),
            lost=int(np.maximum(counts - self._counts, 0).sum()),
            repeated=int(np.maximum(self._counts - counts, 0).sum()),
            wrong=int(np.count_nonzero((counts == self._counts) & (sums != self._sums))),
        )


def _mapped(path: Path, size: int) -> Int64s:
    if not path.exists():
        with open(path, "wb") as file:
            file.truncate(8 * size)
    return np.memmap(path, np.int64, "r+", shape=(size,))
