"""Rows that are made by number and come at a pace: their schedule, and what the sources of such rows have in common.

Row i of partition p of n is row i * n + p of the whole source; with a rate it is due that many row intervals after the start. The
schedule is a function of the row's number, in integers, without drift.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.sources.source import Reader, Source
from evenflow.stream.declared import WIDEST, Declared, May, optional, whole
from evenflow.stream.waiting import Waiting

FIRST_US: Final = 1_700_000_000_000_000
"""Time of row 0 of a source without a rate, in microseconds since 1970: fixed, so that its rows are always the same."""

REST_US: Final = 1000
"""A reader need not be asked again sooner than this: rows of a millisecond come together, and its wake-ups cost little."""


MOST_A_SECOND: Final = 10**9
MOST_ROWS: Final = 2**53
MOST_PARTITIONS: Final = 4096
"""Of a source: each is a task's work, and a reader of its own."""


@dataclass(slots=True)
class Pace:
    """The schedule of one partition. rate: rows/s of the whole source, None: as fast as asked. rows: of the whole source, None:
    endless; total: of this partition.
    """

    rate: int | None
    rows: int | None
    partition: int
    of: int
    start_us: int | None = field(default=None, init=False)
    next_row: int = field(default=0, init=False)
    total: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.rows is not None:
            self.total = (self.rows - self.partition + self.of - 1) // self.of

    @property
    def ended(self) -> bool:
        return self.total is not None and self.next_row >= self.total

    def due(self, now_us: int, max_rows: int) -> int:
        """How many rows may be delivered now, at most `max_rows`. The first call sets the start.

        Rows before `next_row` were delivered by another reader: the last of them counts as due at the first call.
        """
        if self.start_us is None:
            self.start_us = now_us
            if self.rate is not None and self.next_row:
                before = (self.next_row - 1) * self.of + self.partition
                self.start_us += -before * 1_000_000 // self.rate
        count = max_rows
        if self.rate is not None:
            intervals = (now_us - self.start_us) * self.rate // 1_000_000
            count = min(count, (intervals - self.partition) // self.of + 1 - self.next_row)
        if self.total is not None:
            count = min(count, self.total - self.next_row)
        return max(count, 0)

    def waiting(self, now_us: int) -> Waiting | None:
        """What is due and has not been taken; None without a rate, or before the first call of `due`."""
        if self.rate is None or self.start_us is None:
            return None
        first = self.next_row
        there = ((now_us - self.start_us) * self.rate // 1_000_000 - self.partition) // self.of + 1
        rows = (there if self.total is None else min(there, self.total)) - first
        return Waiting(rows, self.start_us + (first * self.of + self.partition) * 1_000_000 // self.rate) if rows > 0 else Waiting(0)

    def wake_us(self, now_us: int) -> int | None:
        """When to ask again: at the next row's time, but not within `REST_US`."""
        if self.rate is None or self.start_us is None or self.ended:
            return None
        intervals = self.next_row * self.of + self.partition
        return max(self.start_us - (-intervals * 1_000_000 // self.rate), now_us + REST_US)

    def take(self, count: int) -> npt.NDArray[np.int64]:
        """Times of the next `count` rows, and on to the row after them."""
        first, self.next_row = self.next_row, self.next_row + count
        return self.times(first, count)

    def times(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """When `count` rows from `first` on are due, microseconds since 1970, int64. With a rate, not before the first call of `due`."""
        if self.rate is None:
            return np.arange(FIRST_US + first, FIRST_US + first + count)
        assert self.start_us is not None
        # Whole intervals in Python's integers, the rest in small ones: no overflow after years at any rate.
        whole, rest = divmod((first * self.of + self.partition) * 1_000_000, self.rate)
        step = self.of * 1_000_000
        return (np.arange(count) * step + rest) // self.rate + (self.start_us + whole)


class MadeReader(Reader):
    """One partition of a `MadeSource`. most_rows: as many are made at once."""

    most_rows: ClassVar[int]

    def __init__(self, source: Any, partition: int, of: int) -> None:
        self._pace = Pace(source.rate, source.rows, partition, of)
        self._pace.start_us = source.begin_us
        self.punctual = source.rate is not None
        self.ended = self._pace.ended

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        count = self._pace.due(now_us, min(max_rows, self.most_rows))
        batch = self._rows(self._pace.next_row, count) if count else None
        self.ended = self._pace.ended
        self.wake_us = self._pace.wake_us(now_us)
        return batch

    def skip(self, rows: int) -> None:
        """Costs nothing: a row is a function of its number."""
        self._pace.next_row = rows
        self.ended = self._pace.ended

    def waiting(self, now_us: int) -> Waiting | None:
        return self._pace.waiting(now_us)

    def times(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """When the rows were due."""
        return self._pace.times(self._pace.next_row - batch.num_rows, batch.num_rows)

    def promise(self, now_us: int) -> int | None:
        """The next row's time is known. Where there is a pace nothing is promised before its time, so that epochs do not run ahead."""
        due_us = int(self._pace.times(self._pace.next_row, 1)[0])
        return due_us if self._pace.rate is None else min(due_us, now_us)

    @abstractmethod
    def _rows(self, first: int, count: int) -> pa.RecordBatch:
        """Rows first .. first + count - 1 of this partition."""


class MadeSource(Declared, Source):
    """A source whose rows are functions of (seed, partition, number). Subclasses are dataclasses that have these fields.

    rate: rows/s of the whole source, None: as fast as they are taken. rows: of the whole source, None: endless. count: partitions,
    None: one per site. columns: the schema. reader: the class of its readers. begin_us: when row 0 is due, if it has a rate; None: when a
    reader is asked first. Rows have the times at which they are due, so only with it are they the same whenever they are read.
    """

    columns: ClassVar[pa.Schema]
    reader: ClassVar[type[MadeReader]]
    rate: int | None
    rows: int | None
    count: int | None
    begin_us: int | None
    looked_up: ClassVar[tuple[str, ...]] = ("begin_us",)
    cuts: ClassVar[tuple[str, ...]] = ("time", "place")
    MAY: ClassVar[Mapping[str, May]] = {
        "rate": optional(whole(1, MOST_A_SECOND)), "rows": optional(whole(0, MOST_ROWS)), "seed": whole(-WIDEST, WIDEST),
        "count": optional(whole(1, MOST_PARTITIONS)).called("partitions"), "begin_us": optional(whole(0, 2**62)),
    }  # fmt: skip

    def begun(self, now_us: int) -> Source:
        return self if self.rate is None or self.begin_us is not None else replace(self, begin_us=now_us)  # type: ignore[type-var]

    def began_us(self, now_us: int) -> int:
        return now_us if self.begin_us is None else self.begin_us

    def first_time(self, begin_us: int) -> int:
        return FIRST_US if self.rate is None else begin_us

    def to_json(self) -> dict[str, Any]:
        said = super().to_json()
        if self.begin_us is None:
            del said["begin_us"]
        return said

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    @property
    def streaming(self) -> bool:
        return self.rows is None

    @property
    def tells_due(self) -> bool:
        return self.rate is not None

    def partitions(self, sites: int) -> int:
        return self.count or sites

    def open(self, partition: int, of: int) -> Reader:
        return self.reader(self, partition, of)
