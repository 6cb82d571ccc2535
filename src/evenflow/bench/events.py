"""Rows that are the same in every run, their times included, whoever reads them and since when: what lets two runs be compared row by row.

The built-in generator stamps the rows of a source with a rate by the time at which its reader was opened, so a reader that takes another
one's place gives other times.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.sources.generator import random_bits, stream_of
from evenflow.sources.source import Reader, Source
from evenflow.stream.arrays import arrow_of
from evenflow.stream.waiting import Waiting

Ints = npt.NDArray[np.int64]

SCHEMA: Final = pa.schema([("key", pa.int64()), ("ts", pa.timestamp("us")), ("value", pa.int64())])
BEGIN_US: Final = 1_000_000
"""When row 0 is due: the simulator's clock begins here."""
READ_ROWS_MAX: Final = 1 << 16


@dataclass(frozen=True)
class ScheduledEvents(Source):
    """Row n of all is due, and stamped, n / rate seconds after `begin_us`; it belongs to partition n modulo the number of partitions.

    rate: rows/s of the whole source. rows: of the whole source. keys: key is 0 .. keys - 1, uniform; value is 0 .. 999. at_once: the
    first rows, whose keys are 0, 1, 2 and so on modulo `keys`, are due at the beginning, and the rest behind them.
    """

    kind: ClassVar[str] = "scheduled_events"
    rate: int
    rows: int
    keys: int
    count: int = 4
    seed: int = 0
    begin_us: int = BEGIN_US
    at_once: int = 0

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    @property
    def streaming(self) -> bool:
        return False

    @property
    def tells_due(self) -> bool:
        return True

    def partitions(self, sites: int) -> int:
        return self.count

    def open(self, partition: int, of: int) -> Reader:
        return ScheduledReader(self, partition)

    def due(self, now_us: int) -> int:
        """How many rows of the whole source are due."""
        return 0 if now_us < self.begin_us else self.at_once + (now_us - self.begin_us) * self.rate // 1_000_000 + 1

    def since_us(self, number: Ints) -> Ints:
        """When the rows with these numbers, behind those that are there at once, are due, after begin_us."""
        return -(-number * 1_000_000 // self.rate)


@dataclass(frozen=True)
class BurstingEvents(ScheduledEvents):
    """One that has twice the rate every other `turn_us`, in the first turn or from the second one on; `rate` is that of the others."""

    kind: ClassVar[str] = "bursting_events"
    turn_us: int = 1_000_000
    first: bool = False

    @property
    def _turns(self) -> tuple[int, int]:
        """Rows of a turn of the first kind, and of one of the second."""
        once = self.rate * self.turn_us // 1_000_000
        return (2 * once, once) if self.first else (once, 2 * once)

    def due(self, now_us: int) -> int:
        if now_us < self.begin_us:
            return 0
        one, other = self._turns
        turns, rest_us = divmod(now_us - self.begin_us, 2 * self.turn_us)
        early_us = min(rest_us, self.turn_us)
        return self.at_once + turns * (one + other) + early_us * one // self.turn_us + (rest_us - early_us) * other // self.turn_us + 1

    def since_us(self, number: Ints) -> Ints:
        one, other = self._turns
        turns, rest = np.divmod(number, one + other)
        within = np.where(rest < one, -(-rest * self.turn_us // one), self.turn_us - (-(rest - one) * self.turn_us // other))
        found: Ints = turns * 2 * self.turn_us + within
        return found


@dataclass(frozen=True)
class VaryingEvents(ScheduledEvents):
    """One whose rate changes. steps: (microseconds from begin_us on, rows/s from then on), the first at 0; the last one stays."""

    kind: ClassVar[str] = "varying_events"
    steps: tuple[tuple[int, int], ...] = ((0, 1),)

    def _before(self) -> list[int]:
        """Rows that are due before each step."""
        found = [0]
        for (from_us, rate), (to_us, _) in pairwise(self.steps):
            found.append(found[-1] + (to_us - from_us) * rate // 1_000_000)
        return found

    def due(self, now_us: int) -> int:
        if now_us < self.begin_us:
            return 0
        after_us = now_us - self.begin_us
        at = max(i for i, (from_us, _) in enumerate(self.steps) if from_us <= after_us)
        from_us, rate = self.steps[at]
        within = (after_us - from_us) * rate // 1_000_000 + 1
        before = self._before()
        return self.at_once + before[at] + (min(within, before[at + 1] - before[at]) if at + 1 < len(before) else within)

    def since_us(self, number: Ints) -> Ints:
        before = np.array(self._before())
        starts, rates = (np.array(column) for column in zip(*self.steps, strict=True))
        at = np.searchsorted(before, number, side="right") - 1
        found: Ints = starts[at] - (-(number - before[at]) * 1_000_000 // rates[at])
        return found


class ScheduledReader(Reader):
    """One partition, from its row 0 on or from where `skip` puts it. What became due before that is there at once."""

    def __init__(self, source: ScheduledEvents, partition: int) -> None:
        self._source, self._partition, self._next = source, partition, 0
        self._total = (source.rows - partition + source.count - 1) // source.count
        self.ended = self._total <= 0

    def skip(self, rows: int) -> None:
        """Costs nothing: a row is a function of its number."""
        self._next += rows
        self.ended = self._next >= self._total

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        source = self._source
        there = (source.due(now_us) - 1 - self._partition) // source.count + 1
        count = min(there - self._next, self._total - self._next, max_rows, READ_ROWS_MAX)
        batch = self._rows(self._next, count) if count > 0 else None
        self._next += max(count, 0)
        self.ended = self._next >= self._total
        number = max(self._next * source.count + self._partition - source.at_once, 0)
        self.wake_us = source.begin_us + int(source.since_us(np.array([number]))[0])
        return batch

    def waiting(self, now_us: int) -> Waiting:
        source = self._source
        there = min((source.due(now_us) - 1 - self._partition) // source.count + 1, self._total)
        number = max(self._next * source.count + self._partition - source.at_once, 0)
        oldest_us = source.begin_us + int(source.since_us(np.array([number]))[0])
        return Waiting(there - self._next, oldest_us) if there > self._next else Waiting(0)

    def _rows(self, first: int, count: int) -> pa.RecordBatch:
        source = self._source
        key, value = (random_bits(stream_of(source.seed, self._partition, column), first, count) for column in (0, 1))
        number = np.arange(first, first + count) * source.count + self._partition
        ts = source.begin_us + source.since_us(np.maximum(number - source.at_once, 0))
        keys = (key % np.uint64(source.keys)).view(np.int64)
        columns = [
            arrow_of(np.where(number < source.at_once, number % source.keys, keys), pa.int64()),
            arrow_of(ts, pa.timestamp("us")),
            arrow_of((value % np.uint64(1000)).view(np.int64), pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
