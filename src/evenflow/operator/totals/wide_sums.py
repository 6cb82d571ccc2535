"""Wide sums: exact totals of whole numbers and decimals over many ranges of rows, all in one pass.

A value is two words, the low and the high 64 bits of its unscaled number. Sums are made of its parts of 32 bits, which no number of rows
that fits memory carries out of a word, and put together at the end, so what is between may be as large as it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ArithmeticOverflow
from evenflow.kernels.columns import integers_of, nulls_of
from evenflow.kernels.wide import averages
from evenflow.stream.arrays import Bools, Int64s
from evenflow.stream.decimals import EXACT, MOST, fitted

_PART: Final = 0xFFFFFFFF


class Wide(NamedTuple):
    """n whole numbers of 128 bits. low, high: int64 (n,); high: None where the low words are the numbers."""

    low: Int64s
    high: Int64s | None = None

    def take(self, at: Int64s) -> Wide:
        return Wide(self.low[at], None if self.high is None else self.high[at])

    def words(self) -> tuple[Int64s, Int64s]:
        """Both words of each."""
        return self.low, self.low >> 63 if self.high is None else self.high

    def where(self, rows: Bools) -> Wide:
        """0 elsewhere."""
        return Wide(np.where(rows, self.low, 0), None if self.high is None else np.where(rows, self.high, 0))

    def behind(self, other: Wide) -> Wide:
        """The others, then these."""
        if self.high is None and other.high is None:
            return Wide(np.concatenate([other.low, self.low]))
        return Wide(*(np.concatenate(parts) for parts in zip(other.words(), self.words(), strict=True)))


def wide(low: Int64s, high: Int64s) -> Wide:
    """Of both words."""
    return Wide(low, None if np.array_equal(high, low >> 63) else high)


def wide_of(values: pa.Array) -> Wide:
    """The unscaled numbers of integers or decimals, 0 where null."""
    if pa.types.is_decimal(values.type):
        words = np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), values.offset * 16).reshape(-1, 2)
        made = wide(words[:, 0], words[:, 1])
    else:
        low = integers_of(values)
        made = wide(low, np.zeros_like(low)) if values.type.id == pa.uint64().id else Wide(low)
    return made.where(nulls_of(values) == 0) if values.null_count else made


def sums(values: Wide, begin: Int64s, end: Int64s) -> Wide:
    """Of the values from each begin to before each end. begin, end: int64 (m,), 0 <= begin <= end <= n. Raises ArithmeticOverflow for a sum
    that has no room in 128 bits. Cost: O(n + m)."""
    if _adds_up(values):
        return Wide(_between(values.low, begin, end))
    low, high = values.words()
    parts = low & _PART, (low >> 32) & _PART, high & _PART, high >> 32
    return _joined([_between(part, begin, end) for part in parts])


def _adds_up(values: Wide) -> bool:
    """Whether any sum of them fits a word."""
    most = max(abs(int(values.low.min(initial=0))), abs(int(values.low.max(initial=0))))
    return values.high is None and most * values.low.size < 2**63


def _between(values: Int64s, begin: Int64s, end: Int64s) -> Int64s:
    until = np.zeros(values.size + 1, np.int64)
    np.cumsum(values, out=until[1:])
    return until[end] - until[begin]


def _joined(parts: Sequence[Int64s]) -> Wide:
    carried, words = np.zeros_like(parts[0]), []
    for part in parts:
        carried = carried + part
        words.append(carried & _PART)
        carried = carried >> 32
    if (wrong := carried != -(words[-1] >> 31)).any():
        raise ArithmeticOverflow(f"{np.count_nonzero(wrong)} sums of rows have more than {MOST} digits: cast the column to double")
    return wide(words[0] | (words[1] << 32), words[2] | (words[3] << 32))


def total_of(found: Wide, kind: pa.DataType, empty: Bools) -> pa.Array:
    """Sums as bigint or as decimals. kind: of the result. empty: bool (n,), where there is none. Raises ArithmeticOverflow for one that
    does not fit."""
    if not pa.types.is_decimal(kind):
        if found.high is not None:
            raise ArithmeticOverflow("a sum OVER rows left the range of bigint: cast the column to double")
        return pa.array(found.low, kind, mask=empty)
    made = _decimals(found, pa.decimal128(MOST, kind.scale))
    most = pa.scalar(Decimal(10**kind.precision - 1).scaleb(-kind.scale, EXACT), made.type)
    if len(made) and pc.any(pc.or_(pc.greater(made, most), pc.less(made, pc.negate(most)))).as_py():
        digits = f"decimal({kind.precision},{kind.scale})"
        raise ArithmeticOverflow(f"a sum OVER rows has more digits than {digits}: cast the column to fewer digits or to double")
    return pc.if_else(pa.array(empty), pa.scalar(None, kind), _decimals(found, kind))


def _decimals(found: Wide, kind: pa.DataType) -> pa.Array:
    """Of a type that has the digits."""
    words = np.stack(found.words(), axis=1)
    return pa.Array.from_buffers(kind, found.low.size, [None, pa.py_buffer(np.ascontiguousarray(words))])


def mean_of(found: Wide, counts: Int64s, kind: pa.DataType, scale: int = 0) -> pa.Array:
    """Sums divided by counts, null where that is 0: of integers as `Aggregate` divides them, of decimals rounded to the result's type.

    scale: of the values. Raises ArithmeticOverflow where the sum has more than 38 digits, or the average more than its type.
    """
    empty = counts == 0
    if not pa.types.is_decimal(kind):
        if found.high is None:
            return pa.array(found.low.astype(np.float64) / np.maximum(counts, 1), kind, mask=empty)
        low, high, count = map(np.ascontiguousarray, (found.low, found.high, counts))
        return pa.array(averages(low, high, count), kind, mask=empty)
    totals = total_of(found, pa.decimal128(MOST, scale), empty).to_pylist()
    return pa.array(
        [None if total is None else fitted(EXACT.divide(total, Decimal(count)), kind) for total, count in zip(totals, counts.tolist())],
        kind,
    )


__all__ = ["Wide", "mean_of", "sums", "total_of", "wide", "wide_of"]
