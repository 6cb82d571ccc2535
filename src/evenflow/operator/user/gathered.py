"""Gathered: rows whose parts come apart, from boxes that each wait for something else, put together again.

A part that comes before the others is kept, under what its row is known by, and forgotten when the row comes out. A row whose parts come in
one epoch is never kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.kernels.columns import is_word
from evenflow.operator.user.process import Process
from evenflow.processor import BatchProcessor, Groups
from evenflow.query import spanned as described
from evenflow.stream.arrays import Bools, Int64s
from evenflow.stream.values import plain_values

CAME: Final = "came__"
MOST_WORDS: Final = 60
"""Columns of fixed width that are kept as words; a key's state has at most 64 of them. Those of wider rows are lists of one value."""


class Gathered(Process):
    """See `query.spanned.Gathered`, which describes it. Cost: O(rows), whatever the state's size."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], description: described.Gathered) -> None:
        super().__init__(keys, Gathering(description, schema, keys), schema, "over", verify=False)


class Gathering(BatchProcessor):
    """What is called with the parts of an epoch."""

    def __init__(self, description: described.Gathered, schema: pa.Schema, keys: Sequence[str]) -> None:
        self.output = description.output  # type: ignore[misc]
        self._part, self._keys, self._names = description.part, list(keys), description.output.names
        self._parts = [[name for name in part if name not in keys] for part in description.parts]
        self._every = (1 << len(self._parts)) - 1
        held = [schema.field(name) for part in self._parts for name in part]
        self._listed = sum(is_word(field.type) for field in held) > MOST_WORDS
        self._fields = {field.name: (f"c{at}__", field.type) for at, field in enumerate(held)}

    def open(self, store: Any) -> None:
        store.plain = True
        store.value(CAME, "bigint")
        for name, kind in self._fields.values():
            (store.list if self._listed else store.value)(name, kind)

    def process(self, rows: pa.RecordBatch, groups: Groups, state: Any) -> Any:  # type: ignore[override]
        part = rows.column(self._part).to_numpy(zero_copy_only=False)
        before = getattr(state, CAME).get(0).astype(np.int64)
        came = before | np.bitwise_or.reduceat(np.int64(1) << part.astype(np.int64), groups.starts)
        whole = came == self._every
        kept = before.any() or not whole.all()
        answered = groups.last[whole]
        made = {name: rows.column(name).take(pa.array(answered)) for name in self._keys}
        for number, names in enumerate(self._parts):
            at = np.full(len(groups), -1)
            mine = np.flatnonzero(part == number)
            at[groups.ids[mine]] = mine
            for name in names:
                values = self._values(state, name, rows.column(name), at, held=bool(before.any()))
                made[name] = values.filter(pa.array(whole))
                if kept:
                    self._keep(state, name, values, whole)
        if kept:
            getattr(state, CAME).put(pa.array(came, mask=whole))
        return {name: made[name] for name in self._names}, answered

    def _values(self, state: Any, name: str, column: pa.Array, at: Int64s, *, held: bool) -> pa.Array:
        """(g,), of the part that came now, else of what is kept. at: int64 (g,), the rows of that part, -1 where it did not come."""
        if not held:
            return column.take(pa.array(at, mask=at < 0))
        field, kind = self._fields[name]
        old = getattr(state, field)
        if self._listed:
            kept = pa.array([value[0] if value else None for value in old.get()], kind)
        elif is_word(kind):
            kept = pa.array(old.get(), kind, mask=~old.exists())
        else:
            kept = pa.array(old.get().tolist(), kind)
        return pa.concat_arrays([kept, column]).take(pa.array(np.where(at < 0, np.arange(at.size), at.size + at)))

    def _keep(self, state: Any, name: str, values: pa.Array, whole: Bools) -> None:
        """Until the row is whole. A null is not kept: it is what a row has where nothing is."""
        left = values.take(pa.array(np.arange(whole.size), mask=whole))
        field = getattr(state, self._fields[name][0])
        field.put([None if value is None else [value] for value in plain_values(left)] if self._listed else left)


__all__ = ["Gathered"]
