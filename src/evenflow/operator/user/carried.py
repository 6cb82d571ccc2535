"""Carried: of frames that begin with a key's first row, what is left of the rows that are not kept any more.

A row that no other frame needs is folded into three words for each place and forgotten: how many there were, the total, and whether that is
one. A frame's total goes on from there, in the rows' order, so its digits do not depend on what was kept when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from evenflow.kernels.columns import nulls_of
from evenflow.operator.changes.around import Ordered, frame
from evenflow.operator.totals.so_far import so_far
from evenflow.operator.totals.totals import value_words
from evenflow.query.ranked import PLACES, Place
from evenflow.state.keys import to_array
from evenflow.stream.arrays import Bools, Int64s

CARRIED: Final = "carried__"
WORDS: Final = 3
NOTHING, VALUE, NULL = 0, 1, 2
"""What the total is: there is none, it is the word, it is null."""


@dataclass(frozen=True, slots=True)
class Run:
    """A place's totals up to each row of a line, and before the first of each key: n rows and g keys, in their order.

    at: int64 (g,), where those of a key begin. counts: int64 (n + g,). totals: (n + g,), None where only counts matter.
    """

    place: Place
    at: Int64s
    counts: Int64s
    totals: pa.Array | None


def runs(places: Sequence[Place], carried: Int64s, line: Ordered, begin: Int64s, values: Mapping[str, pa.Array]) -> list[Run]:
    """carried: int64 (g, 3 for each place), of the keys. begin: int64 (g,), where the rows of each key begin. values: of the line, by
    column."""
    keys = np.arange(begin.size)
    at, size = begin + keys, line.group.size + keys.size
    rows = np.ones(size, np.bool_)
    rows[at] = False
    index = np.empty(size, np.int64)
    index[at], index[rows] = keys, keys.size + np.arange(line.group.size)
    start = np.empty(size, np.int64)
    start[at], start[rows] = at, at[line.group]
    made = []
    for number, place in enumerate(places):
        count, word, kind = carried[:, WORDS * number : WORDS * number + WORDS].T
        made.append(_run(place, at, rows, index, start, (count, np.ascontiguousarray(word), kind), line, values))
    return made


def _run(
    place: Place, at: Int64s, rows: Bools, index: Int64s, start: Int64s, carried: tuple[Int64s, Int64s, Int64s], line: Ordered,
    values: Mapping[str, pa.Array],
) -> Run:  # fmt: skip
    count, word, kind = carried
    counted = rows.copy()
    if place.function == "dense_rank":
        assert line.ties is not None, "a rank is among rows that are equal in the order"
        counted[rows] = np.diff(line.ties, prepend=-1) != 0
    column = None if place.column is None else values[place.column]
    if column is not None and column.null_count and place.function not in ("first_value", "last_value"):
        counted[rows] &= column.is_valid().to_numpy(zero_copy_only=False)
    counts = np.asarray(so_far("count", None, start, pa.int64(), counted)) + np.repeat(count, np.diff(np.append(at, start.size)))
    if column is None or place.function == "count":
        return Run(place, at, counts, None)
    function = {"first_value": "first", "last_value": "last", "avg": "sum"}.get(place.function, place.function)
    if function == "sum":
        column = column.cast(pa.float64() if pa.types.is_floating(column.type) else pa.int64())
    counted[at] = kind != NOTHING
    both = pa.concat_arrays([to_array(word, column.type, kind != VALUE), column]).take(pa.array(index))
    return Run(place, at, counts, so_far(function, both, start, column.type, counted))


def total(run: Run, line: Ordered, begin: Int64s, of: Int64s, kind: pa.DataType) -> pa.Array:
    """The place of some rows of the line. of: which. kind: of the result."""
    group, function = line.group[of], run.place.function
    if function in ("rank", "dense_rank"):
        assert line.ties is not None, "a rank is among rows that are equal in the order"
        behind = np.searchsorted(line.ties, line.ties[of]) + (function == "dense_rank")
    elif function in PLACES:
        behind = of + 1
    else:
        behind = frame(run.place, line)[1][of]
    at = run.at[group] + np.maximum(behind - begin[group], 0)
    if function in PLACES:
        return pa.array(run.counts[at] + (function == "rank"), kind)
    if run.totals is None:
        return pa.array(run.counts[at], kind)
    totals = run.totals.take(pa.array(at))
    if function != "avg":
        return totals.cast(kind)
    sums = totals.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy()
    return pa.array(sums / np.maximum(run.counts[at], 1), kind, mask=run.counts[at] == 0)


def carried_on(found: Sequence[Run], gone: Int64s) -> Int64s:
    """What is carried when the first rows of each key are forgotten. gone: int64 (g,), how many."""
    carried = np.zeros((gone.size, WORDS * len(found)), np.int64)
    for number, run in enumerate(found):
        at, words = run.at + gone, carried[:, WORDS * number : WORDS * number + WORDS]
        words[:, 0] = run.counts[at]
        if run.totals is not None:
            totals = run.totals.take(pa.array(at))
            missing = nulls_of(totals).astype(np.bool_) if totals.null_count else np.zeros(gone.size, np.bool_)
            words[:, 1] = np.where(missing, 0, value_words(totals, "plain"))
            some = run.counts[at] > 0
            words[:, 2] = np.where(some, np.where(missing, NULL, VALUE), NOTHING)
    return carried


def read(parts: Sequence[bytes | None], places: int) -> Int64s:
    """int64 (g, 3 for each place), of the keys. parts: what `write` made, None of a new key."""
    none = bytes(8 * WORDS * places)
    return np.frombuffer(b"".join(part or none for part in parts), np.int64).reshape(len(parts), WORDS * places)


def write(carried: Int64s) -> list[bytes]:
    return [row.tobytes() for row in carried]


__all__ = ["CARRIED", "Run", "carried_on", "read", "runs", "total", "write"]
