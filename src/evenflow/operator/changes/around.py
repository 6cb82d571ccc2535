"""Around: where the rows are that a function OVER rows is of, and what it makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.operator.changes.framed import framed
from evenflow.operator.changes.spans import spanned
from evenflow.operator.order import sort_key
from evenflow.query.ranked import NEIGHBOURS, Place
from evenflow.stream.arrays import Int64s


@dataclass(frozen=True, slots=True)
class Ordered:
    """n rows of several keys, one key's behind the other, in order. group: int64 (n,), rising, whose. start, stop: int64 (n,), where
    its key's begin, and behind which they end. by: the column of the order by whose distances spans go, if some do; descending: whether
    it descends. ties: int64 (n,), rising, equal where rows are equal in the order, if frames go by that."""

    group: Int64s
    start: Int64s
    stop: Int64s
    by: pa.Array | None = None
    descending: bool = False
    ties: Int64s | None = None


def around(place: Place, values: pa.Array | None, rows: Ordered, kind: pa.DataType, of: Int64s | None = None) -> pa.Array:
    """A neighbour, or a total of a frame, of each row. values: of the place's column, (n,), None for count(*). kind: of the result. of: the
    rows that are asked for, all of them if None."""
    if place.function in NEIGHBOURS:
        here = np.arange(rows.group.size)
        assert values is not None, "a neighbour is of a column"
        if place.known and place.low and values.null_count:
            return _known(values, int(place.low), rows, here if of is None else of)
        here, start, stop = (each if of is None else each[of] for each in (here, rows.start, rows.stop))
        there = here + int(place.low or 0)
        out = (there < start) | (there >= stop)
        return values.take(pa.array(np.where(out, 0, there), mask=out))
    low, high = frame(place, rows)
    if of is not None:
        low, high = low[of], high[of]
    return framed(place.function, values, low, np.maximum(low, high), kind, place.number, place.anchor, place.known)


def _known(values: pa.Array, step: int, rows: Ordered, of: Int64s) -> pa.Array:
    """The neighbours of some rows, among those that are not null."""
    until = np.append(0, np.cumsum(values.is_valid().to_numpy(zero_copy_only=False)))
    there = until[of] + step if step < 0 else until[of + 1] + step - 1
    out = (there < until[rows.start[of]]) | (there >= until[rows.stop[of]])
    return values.drop_null().take(pa.array(np.where(out, 0, there), mask=out))


def frame(place: Place, rows: Ordered) -> tuple[Int64s, Int64s]:
    """(first, behind the last) of each row's frame; it is empty where they are not in this order."""
    here = np.arange(rows.group.size)
    if place.span:
        assert rows.by is not None, "spans are of a column"
        return spanned(rows.group, rows.by, place.low, place.high, rows.start, rows.stop, rows.descending, place.months)
    low = rows.start if place.low is None else np.maximum(rows.start, here + int(place.low))
    high = rows.stop if place.high is None else np.minimum(rows.stop, here + int(place.high) + 1)
    if place.peers:
        assert rows.ties is not None, "peers are equal in the order"
        low = low if place.low is None else np.searchsorted(rows.ties, rows.ties)
        high = high if place.high is None else np.searchsorted(rows.ties, rows.ties, "right")
    return np.minimum(low, rows.stop), high


def numbers_of(column: Any) -> Int64s:
    """int64 (n,), >= 0: equal where values are. column: of Arrow, or what `sort_key` makes of one."""
    if isinstance(column, pa.Array) and pa.types.is_nested(column.type):
        column = sort_key(column)
    array = pa.array(column) if isinstance(column, np.ndarray) else column
    return pc.dictionary_encode(array, null_encoding="encode").indices.to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]


__all__ = ["Ordered", "around", "frame", "numbers_of"]
