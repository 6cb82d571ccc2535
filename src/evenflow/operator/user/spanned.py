"""Spanned: each row with totals of the rows of its key in a span of time before it.

Rows come in order of event time, those of one time in one epoch, so what a row's frame holds is there when the row is. What is kept of a
key are the rows of the last span: times and values, a run of bytes for each column of fixed width, a list for each other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.kernels.columns import integers_of, is_word, nulls_of
from evenflow.operator.changes.framed import framed
from evenflow.operator.changes.spans import spanned
from evenflow.operator.totals.totals import value_words
from evenflow.operator.user.process import Process
from evenflow.processor import BatchProcessor, Groups
from evenflow.query import spanned as described
from evenflow.state.keys import to_array
from evenflow.stream.arrays import Bools, Int64s, Objects

TIMES: Final = "times__"


class Spanned(Process):
    """See `query.spanned.Spanned`, which describes it. Cost: O(n log n) of the rows of the epoch and those that are kept of their keys."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], description: described.Spanned) -> None:
        super().__init__(keys, Totals(description, schema), schema, "over", verify=False, time=description.time)


class Totals(BatchProcessor):
    """What is called with the rows of an epoch."""

    keeps_key = True

    def __init__(self, description: described.Spanned, schema: pa.Schema) -> None:
        self.output = description.output  # type: ignore[misc]
        self._described, self._rows = (
            description,
            pa.schema([schema.field(name) for name in description.output.names if name in schema.names]),
        )
        self._of = list(dict.fromkeys(place.column for place in description.places if place.column is not None))
        self._fields = {name: (f"of{at}__", f"null{at}__") for at, name in enumerate(self._of)}

    def open(self, store: Any) -> None:
        store.value(TIMES, "binary")
        for name, (values, missing) in self._fields.items():
            kind = self._rows.field(name).type
            if is_word(kind):
                store.value(values, "binary")
                store.value(missing, "binary")
            else:
                store.list(values, kind)

    def process(self, rows: pa.RecordBatch, groups: Groups, state: Any) -> Any:  # type: ignore[override]
        held = _words(getattr(state, TIMES).get())
        lengths = held[1]
        group = np.concatenate([np.repeat(np.arange(len(groups)), lengths), groups.ids])
        order = np.argsort(group, kind="stable")
        group, came = group[order], np.flatnonzero(order >= held[0].size)
        time = rows.column(self._described.time)
        times = pa.concat_arrays([to_array(held[0], time.type, None), time]).take(pa.array(order))
        values = {
            name: pa.concat_arrays([self._kept(state, name, rows.column(name).type), rows.column(name)]).take(pa.array(order))
            for name in self._of
        }
        start, stop = np.searchsorted(group, group), np.searchsorted(group, group, "right")
        out = {name: rows.column(name) for name in self._rows.names}
        for place in self._described.places:
            low, high = spanned(group, times, place.low, place.high, start, stop, descending=False)
            low, high = low[came], np.maximum(low, high)[came]
            of = None if place.column is None else values[place.column]
            out[place.name] = framed(place.function, of, low, high, place.type(self._rows), place.number)
        self._keep(state, len(groups), group, times, values, stop)
        return out, np.arange(rows.num_rows)

    def _kept(self, state: Any, name: str, kind: pa.DataType) -> pa.Array:
        values, missing = self._fields[name]
        if not is_word(kind):
            return pa.array([value for each in getattr(state, values).get() for value in each], kind)
        words, _ = _words(getattr(state, values).get())
        null = np.frombuffer(b"".join(each or b"" for each in getattr(state, missing).get()), np.bool_)
        return to_array(words, kind, null)

    def _keep(
        self, state: Any, count: int, group: Int64s, times: pa.Array, values: dict[str, pa.Array], stop: Int64s
    ) -> None:  # fmt: skip
        """Of each key the rows that are not further behind its newest one than frames reach."""
        at = integers_of(times)
        known = np.flatnonzero(nulls_of(times) == 0) if times.null_count else np.arange(group.size)
        kept = known[at[known] >= at[stop[known] - 1] - self._described.held_us]
        ends = np.cumsum(np.bincount(group[kept], minlength=count))
        getattr(state, TIMES).put(_cut(at[kept], ends))
        for name, (words, missing) in self._fields.items():
            column = values[name].take(pa.array(kept))
            if is_word(column.type):
                null = nulls_of(column)
                getattr(state, words).put(_cut(value_words(column, "plain"), ends))
                getattr(state, missing).put(_cut(null.view(np.bool_) if null.size else np.zeros(kept.size, np.bool_), ends))
            else:
                listed, begin = column.to_pylist(), 0
                parts = []
                for end in ends.tolist():
                    parts.append(listed[begin:end])
                    begin = end
                getattr(state, words).put(parts)


def _words(parts: Objects) -> tuple[Int64s, Int64s]:
    """(the words of all keys one after the other, how many each has)."""
    lengths = np.array([len(part) // 8 if part else 0 for part in parts], np.int64)
    return np.frombuffer(b"".join(part or b"" for part in parts), np.int64), lengths


def _cut(values: Int64s | Bools, ends: Int64s) -> list[bytes]:
    """The bytes of each key's values."""
    whole, size = values.tobytes(), values.itemsize
    begins = [0, *(ends[:-1] * size).tolist()]
    return [whole[begin:end] for begin, end in zip(begins, (ends * size).tolist(), strict=True)]
