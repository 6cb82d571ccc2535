"""Rank: rows that come and go with their places in an order, with neighbours, and with totals of the rows around them.

One row more can move all others on. So the rows of a key that has changed are placed twice, as they were before the epoch and as they are
after it, and what is put out is the difference. Rows without a place that is asked for are not put out, but kept: they may get one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.operator.changes.around import Ordered, around, numbers_of
from evenflow.operator.changes.by_key import ByKey
from evenflow.operator.order import sort_key
from evenflow.query.ranked import PLACES, Place, Ranked
from evenflow.stream.arrays import Int64s
from evenflow.stream.change import CHANGE, DELETE, INSERT, all_say
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class Rank(ByKey):
    """See `query.ranked.Ranked`, which describes it. Cost: O(n log n) of the n rows of the keys that have changed."""

    def __init__(self, schema: pa.Schema, keys: tuple[str, ...], described: Ranked) -> None:
        self._row = pa.schema([field for field in schema if field.name != CHANGE])
        super().__init__(keys, [self._row], [self._row.names])
        self._ranked = described
        self._output = described.output
        self.schemas: tuple[pa.Schema, ...] = (self._output, schema)
        self._none, self._no_late = Rows.empty(self._output), Rows.empty(schema, keyed=True)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if rows.count == 0:
            return self._none, self._no_late
        change = self._take_changes(rows, tick.epoch)
        heads, _ = change.keys()
        made = self._made(heads) if heads.size else self._none
        self._settle(change, tick.epoch)
        return made, self._no_late

    def _made(self, heads: Int64s) -> Rows:
        at, slots = self._walk(heads, 0)
        batch = self._kept[0].rows(self._table.words, self._table.objects, slots)
        order, peers = self._sorted(at, batch)
        sides = [self._placed(at, order, peers, batch, np.maximum(times[order], 0)) for times in self._times(slots)]
        index = np.concatenate([side[0] for side in sides])
        added = [pa.concat_arrays(columns) for columns in zip(*(side[1] for side in sides), strict=True)]
        signs = np.repeat([-1, 1], [len(side[0]) for side in sides])
        ids = index.copy()  # Of a row with the values that are put out beside it.
        for column in added if self._ranked.shown else ():
            numbers = numbers_of(column)
            if numbers.size:
                _, ids = np.unique(ids * (int(numbers.max()) + 1) + numbers, return_inverse=True)
        _, one, of = np.unique(ids, return_index=True, return_inverse=True)
        more = np.bincount(of, weights=signs, minlength=one.size).astype(np.int64)
        found = np.argsort(one, kind="stable")  # In order of the keys, and of the places that rows had or have.
        more, one = more[found], one[found]
        out = np.concatenate([np.repeat(one[more * sign > 0], np.abs(more[more * sign > 0])) for sign in (-1, 1)])
        gone = int(-more[more < 0].sum())
        if not out.size:
            return self._none
        kinds = pa.concat_arrays([all_say(DELETE, gone), all_say(INSERT, out.size - gone)])
        rows = batch.take(pa.array(index[out]))
        shown = [column.take(pa.array(out)) for column in added] if self._ranked.shown else []
        made = pa.RecordBatch.from_arrays([*rows.columns, *shown, kinds], schema=self._output)
        return Rows(made, self._table.owner_of(slots[index[out]]))

    def _sorted(self, at: Int64s, batch: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """(which row comes where, int64 (n,); the number of those that are equal to each in its key and the order, by place)."""
        by = self._ranked.by
        named = dict(by)
        keys: list[Any] = [pa.array(at)]
        sorting: list[tuple[str, ...]] = [("0", "ascending", "at_start")]
        for name, descending in (*by, *((name, False) for name in batch.schema.names if name not in named)):
            key = sort_key(batch.column(name))
            sorting.append((str(len(keys)), *(("descending", "at_end") if descending else ("ascending", "at_start"))))
            keys.append(pa.array(key) if isinstance(key, np.ndarray) else key)
        order = np.asarray(pc.sort_indices(pa.table(keys, names=[str(n) for n in range(len(keys))]), sort_keys=sorting)).astype(np.int64)
        new = np.zeros(order.size, np.bool_)
        for key in keys[: 1 + len(by)]:
            numbers = numbers_of(key)[order]
            new[1:] |= numbers[1:] != numbers[:-1]
        return order, np.cumsum(new)

    def _placed(
        self, at: Int64s, order: Int64s, peers: Int64s, batch: pa.RecordBatch, times: Int64s
    ) -> tuple[Int64s, list[pa.Array]]:  # fmt: skip
        """(rows that are put out, the columns that are added to them), by key and place. times: how often each is there, by place."""
        rows, ties = np.repeat(order, times), np.repeat(peers, times)
        ties = np.cumsum(np.diff(ties, prepend=-1) != 0)  # Of those that are there.
        group = at[rows]
        start = np.searchsorted(group, group) if group.size else group
        number = np.arange(rows.size) - start
        taken = pa.array(rows)
        stop = np.searchsorted(group, group, "right") if group.size else group
        name, descending = self._ranked.by[0] if any(place.span for place in self._ranked.places) else ("", False)
        line = Ordered(group, start, stop, batch.column(name).take(taken) if name else None, descending, ties)
        made: list[pa.Array] = []
        for place in self._ranked.places:
            if place.function in PLACES:
                made.append(pa.array(_place(place, number, ties, start, group), place.type(self._row)))
            else:
                values = None if place.column is None else batch.column(place.column).take(taken)
                made.append(around(place, values, line, place.type(self._row)))
        if self._ranked.kept is None:
            return rows, made
        name, least, most = self._ranked.kept
        by = made[next(at for at, place in enumerate(self._ranked.places) if place.name == name)].to_numpy()
        kept = np.flatnonzero((by >= least) & (by <= (most if most is not None else by)))
        return rows[kept], [column.take(pa.array(kept)) for column in made]


def _place(place: Place, number: Int64s, ties: Int64s, start: Int64s, group: Int64s) -> npt.NDArray[Any]:
    """(n,), from 1, or shares of 1. number: of each row in its key, from 0."""
    function = place.function
    if function == "row_number" or not number.size:
        return number + 1
    if function == "dense_rank":
        return np.asarray(ties - ties[start] + 1)
    first = np.searchsorted(ties, ties) - start
    if function == "rank":
        return first + 1
    count = np.searchsorted(group, group, "right") - start
    if function == "percent_rank":
        return np.asarray(first / np.maximum(count - 1, 1))
    if function == "cume_dist":
        return np.asarray((np.searchsorted(ties, ties, "right") - start) / count)
    each, longer = count // place.number, count % place.number  # The first parts are longer by one row.
    in_longer = longer * (each + 1)
    return np.where(number < in_longer, number // (each + 1), longer + (number - in_longer) // np.maximum(each, 1)) + 1
