"""When a generated row is due: schedules that are functions of the row's number, in integers, without drift.

Row i of partition p of n is row i * n + p of the whole source; with a rate it is due that many row intervals after the start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

FIRST_US: Final = 1_700_000_000_000_000
"""Time of row 0 of a source without a rate, in microseconds since 1970: fixed, so that its rows are always the same."""

REST_US: Final = 1000
"""A reader need not be asked again sooner than this: rows of a millisecond come together, and its wake-ups cost little."""


@dataclass(slots=True)
class Pace:
    """The schedule of one partition. rate: rows/s of the whole source, None: as fast as asked. rows: of the whole source, None:
    endless.
    """

    rate: int | None
    rows: int | None
    partition: int
    of: int
    start_us: int | None = field(default=None, init=False)
    next_row: int = field(default=0, init=False)

    @property
    def total(self) -> int | None:
        """Rows of this partition."""
        return None if self.rows is None else (self.rows - self.partition + self.of - 1) // self.of

    @property
    def ended(self) -> bool:
        return self.total is not None and self.next_row >= self.total

    def due(self, now_us: int, max_rows: int) -> int:
        """How many rows may be delivered now, at most `max_rows`. The first call sets the start."""
        if self.start_us is None:
            self.start_us = now_us
        count = max_rows
        if self.rate is not None:
            intervals = (now_us - self.start_us) * self.rate // 1_000_000
            count = min(count, (intervals - self.partition) // self.of + 1 - self.next_row)
        if self.total is not None:
            count = min(count, self.total - self.next_row)
        return max(count, 0)

    def wake_us(self, now_us: int) -> int | None:
        """When to ask again: at the next row's time, but not within `REST_US`."""
        if self.rate is None or self.start_us is None or self.ended:
            return None
        intervals = self.next_row * self.of + self.partition
        return max(self.start_us - (-intervals * 1_000_000 // self.rate), now_us + REST_US)

    def take(self, count: int) -> npt.NDArray[np.int64]:
        """Times of the next `count` rows, microseconds since 1970, int64, and on to the row after them."""
        first, self.next_row = self.next_row, self.next_row + count
        if self.rate is None:
            return np.arange(FIRST_US + first, FIRST_US + first + count)
        assert self.start_us is not None
        # Whole intervals in Python's integers, the rest in small ones: no overflow after years at any rate.
        whole, rest = divmod((first * self.of + self.partition) * 1_000_000, self.rate)
        step = self.of * 1_000_000
        return (np.arange(count) * step + rest) // self.rate + (self.start_us + whole)
