"""Standard deviations of moments: counts, means and squared deviations, as `kernels.moments` makes them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from evenflow.kernels.moments import moments_so_far
from evenflow.stream.arrays import Bools, Floats, Int64s


class Moments(NamedTuple):
    """Of n sets of rows, whose counts stand elsewhere. means, squares: float64 (n,), 0 of no rows."""

    means: Floats
    squares: Floats

    def take(self, at: Int64s) -> Moments:
        return Moments(self.means[at], self.squares[at])

    def words(self) -> tuple[Int64s, Int64s]:
        """Both words of each."""
        return self.means.view(np.int64), self.squares.view(np.int64)


def moments(low: Int64s, high: Int64s) -> Moments:
    """Of both words."""
    return Moments(low.view(np.float64), high.view(np.float64))


def gone_on(known: Moments, counts: Int64s, values: Floats, counted: Bools, start: Int64s) -> Moments:
    """Moments up to each row of groups of which each begins with what is known of the rows before. known, counts: (g,), in the order of the
    groups. values, counted: (n,), of no meaning at the beginnings. start: int64 (n,), where each row's group begins."""
    begins = np.flatnonzero(start == np.arange(start.size))
    means, squares, before = np.zeros(start.size), np.zeros(start.size), np.zeros(start.size, np.int64)
    means[begins], squares[begins], before[begins] = known.means, known.squares, counts
    moments_so_far(np.ascontiguousarray(values), counted.view(np.uint8), np.ascontiguousarray(start), before, means, squares)
    return Moments(means, squares)


def deviation(counts: Int64s, squares: Floats) -> tuple[Floats, pa.DataType, Bools]:
    """(value, type, whether it is null) of sample deviations, the arguments of an array. It is null of fewer than two rows, as Spark's."""
    few = counts < 2
    return np.sqrt(np.divide(squares, counts - 1, out=np.zeros(counts.size), where=~few)), pa.float64(), few


__all__ = ["Moments", "deviation", "gone_on", "moments"]
