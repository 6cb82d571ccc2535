"""Carried: of frames that begin with a key's first row, what is left of the rows that are not kept any more.

A row that no other frame needs is folded into four words for each place and forgotten: how many there were, the total (of deviations the
mean and the squares), and whether that is one. A total that is no word, of text for example, is a value beside them. A frame's total goes
on from there, in the rows' order, so its digits do not depend on what was kept when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from evenflow.kernels.columns import floats_of, is_word, nulls_of
from evenflow.operator.changes.around import Ordered, frame
from evenflow.operator.totals.deviations import Moments, deviation, gone_on, moments
from evenflow.operator.totals.so_far import so_far
from evenflow.operator.totals.totals import value_words
from evenflow.operator.totals.wide_sums import Wide, mean_of, sums, total_of, wide, wide_of
from evenflow.query.ranked import PLACED, PLACES, Place
from evenflow.state.keys import to_array
from evenflow.stream.arrays import Bools, Int64s

CARRIED: Final = "carried__"
WORDS: Final = 4
NOTHING, VALUE, NULL = 0, 1, 2
"""What the total is: there is none, it is the value, it is null."""


class Carried(NamedTuple):
    """Of one place and g keys. counts, state: int64 (g,). total: what is added up exactly, or the values."""

    counts: Int64s
    total: Wide | Moments | pa.Array | None
    state: Int64s


@dataclass(frozen=True, slots=True)
class Run:
    """A place's totals up to each row of a line, and before the first of each key: n rows and g keys, in their order.

    at: int64 (g,), where those of a key begin. counts: int64 (n + g,). totals: (n + g,), None where only counts matter. scale: of the
    values, if they are decimals.
    """

    place: Place
    at: Int64s
    counts: Int64s
    totals: Wide | Moments | pa.Array | None
    scale: int = 0


def is_exact(place: Place, kind: pa.DataType) -> bool:
    """Whether its total is a sum of whole numbers or decimals. kind: of its column."""
    return place.function in ("sum", "avg") and not pa.types.is_floating(kind)


def is_beside(place: Place, kind: pa.DataType) -> bool:
    """Whether its total is a value that is no word. kind: of its column."""
    return place.function != "count" and not is_exact(place, kind) and not is_word(kind)


def runs(places: Sequence[Place], carried: Sequence[Carried], line: Ordered, begin: Int64s, values: Mapping[str, pa.Array]) -> list[Run]:
    """carried: of each place. begin: int64 (g,), where the rows of each key begin. values: of the line, by column."""
    keys = np.arange(begin.size)
    at, size = begin + keys, line.group.size + keys.size
    rows = np.ones(size, np.bool_)
    rows[at] = False
    index = np.empty(size, np.int64)
    index[at], index[rows] = keys, keys.size + np.arange(line.group.size)
    start = np.empty(size, np.int64)
    start[at], start[rows] = at, at[line.group]
    return [_run(place, at, rows, index, start, each, line, values) for place, each in zip(places, carried, strict=True)]


def _run(
    place: Place, at: Int64s, rows: Bools, index: Int64s, start: Int64s, carried: Carried, line: Ordered, given: Mapping[str, pa.Array],
) -> Run:  # fmt: skip
    counted = rows.copy()
    if place.function == "dense_rank":
        assert line.ties is not None, "a rank is among rows that are equal in the order"
        counted[rows] = np.diff(line.ties, prepend=-1) != 0
    column = None if place.column is None else given[place.column]
    if column is not None and column.null_count and (place.known or place.function not in PLACED):
        counted[rows] &= column.is_valid().to_numpy(zero_copy_only=False)
    before = np.repeat(carried.counts, np.diff(np.append(at, start.size)))
    counts = np.asarray(so_far("count", None, start, pa.int64(), counted)) + before
    if column is None or carried.total is None:
        return Run(place, at, counts, None)
    if isinstance(carried.total, Moments):
        reals = np.append(np.zeros(at.size), floats_of(column))[index]
        return Run(place, at, counts, gone_on(carried.total, carried.counts, reals, counted, start))
    if isinstance(carried.total, Wide):
        both = wide_of(column).behind(carried.total).take(index)
        return Run(place, at, counts, sums(both, start, np.arange(1, start.size + 1)), getattr(column.type, "scale", 0))
    function = {"first_value": "first", "last_value": "last", "nth_value": "first", "avg": "sum"}.get(place.function, place.function)
    if function == "sum":
        column = column.cast(pa.float64())
    if place.function == "nth_value":
        counted &= counts == place.number
    counted[at] = carried.state != NOTHING
    values = pa.concat_arrays([carried.total, column]).take(pa.array(index))
    return Run(place, at, counts, so_far(function, values, start, column.type, counted, earliest=True))


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
    counts = run.counts[at]
    if function in PLACES:
        return pa.array(counts + (function == "rank"), kind)
    if run.totals is None:
        return pa.array(counts, kind)
    if isinstance(run.totals, Moments):
        return pa.array(*deviation(counts, run.totals.squares[at]))
    if isinstance(run.totals, Wide):
        found = run.totals.take(at)
        return total_of(found, kind, counts == 0) if function == "sum" else mean_of(found, counts, kind, run.scale)
    totals = run.totals.take(pa.array(at))
    if function != "avg":
        return totals.cast(kind)
    return pa.array(totals.fill_null(0.0).to_numpy() / np.maximum(counts, 1), kind, mask=counts == 0)


def carried_on(run: Run, gone: Int64s) -> Carried:
    """What is carried when the first rows of each key are forgotten. gone: int64 (g,), how many."""
    at = run.at + gone
    counts = run.counts[at]
    if run.totals is None:
        return Carried(counts, None, np.zeros(gone.size, np.int64))
    there = np.where(counts >= (run.place.number if run.place.function == "nth_value" else 1), VALUE, NOTHING)
    if isinstance(run.totals, Wide | Moments):
        return Carried(counts, run.totals.take(at), there)
    totals = run.totals.take(pa.array(at))
    missing = nulls_of(totals).astype(np.bool_) if totals.null_count else np.zeros(gone.size, np.bool_)
    return Carried(counts, totals, np.where(missing & (there == VALUE), NULL, there))


class Fields:
    """Where the totals of places are kept. kinds: of the column of each place, None if it has none."""

    def __init__(self, places: Sequence[Place], kinds: Sequence[pa.DataType | None]) -> None:
        self._places = places
        # A sum of floats is a double, whatever they are.
        self._kinds = [
            pa.float64() if kind is not None and place.function in ("sum", "avg") and pa.types.is_floating(kind) else kind
            for place, kind in zip(places, kinds, strict=True)
        ]
        beside = enumerate(zip(places, self._kinds, strict=True))
        self._beside = {at: f"carried{at}__" for at, (place, kind) in beside if kind is not None and is_beside(place, kind)}

    def open(self, store: Any) -> None:
        store.value(CARRIED, "binary")
        for at, name in self._beside.items():
            store.value(name, self._kinds[at])

    def read(self, state: Any) -> list[Carried]:
        """Of each place and the keys of a call."""
        parts = getattr(state, CARRIED).get()
        none = bytes(8 * WORDS * len(self._places))
        words = np.frombuffer(b"".join(part or none for part in parts), np.int64).reshape(len(parts), -1)
        return [self._read(state, at, words[:, WORDS * at : WORDS * at + WORDS].T) for at in range(len(self._places))]

    def _read(self, state: Any, at: int, words: Int64s) -> Carried:
        place, kind = self._places[at], self._kinds[at]
        counts, low, high, there = map(np.ascontiguousarray, words)
        if kind is None or place.function == "count":
            return Carried(counts, None, there)
        if place.function == "stddev":
            return Carried(counts, moments(low, high), there)
        if is_exact(place, kind):
            return Carried(counts, wide(low, high), there)
        if (name := self._beside.get(at)) is not None:
            return Carried(counts, pa.array(getattr(state, name).get().tolist(), kind), there)
        return Carried(counts, to_array(low, kind, there != VALUE), there)

    def write(self, state: Any, carried: Sequence[Carried]) -> None:
        made = np.zeros((carried[0].counts.size, WORDS * len(carried)), np.int64)
        for at, (counts, total, there) in enumerate(carried):
            words = made[:, WORDS * at : WORDS * at + WORDS]
            words[:, 0], words[:, 3] = counts, there
            if isinstance(total, Wide | Moments):
                words[:, 1], words[:, 2] = total.words()
            elif at in self._beside:
                getattr(state, self._beside[at]).put(total)
            elif total is not None:
                words[:, 1] = np.where(there == VALUE, value_words(total, "plain"), 0)
        whole, size = made.tobytes(), 8 * made.shape[1]
        getattr(state, CARRIED).put([whole[at : at + size] for at in range(0, len(whole), size)])


__all__ = ["Carried", "Fields", "Run", "carried_on", "runs", "total"]
