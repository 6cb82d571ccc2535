"""Pairs of rows of a join: what its condition says of them, and the rows that come out of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.query.join import Join, OutColumn, compile_condition, out_columns, pair_schema
from evenflow.state.keys import identity
from evenflow.stream.arrays import Bools, Int64s
from evenflow.stream.rows import Rows


@dataclass(slots=True)
class Picked:
    """m rows picked from batches of one schema. which, place: int64 (m,), the batch and the row in it; which: None if there is one."""

    batches: Sequence[pa.RecordBatch]
    place: Int64s
    which: Int64s | None = None
    _columns: dict[str, pa.Array] = field(default_factory=dict)

    def column(self, name: str) -> pa.Array:
        """The values of one column, gathered when first asked for."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self._gathered(name)
        return found

    def _gathered(self, name: str) -> pa.Array:
        if self.which is None or self.which.size == 0:
            return self.batches[0].column(name).take(pa.array(self.place))
        order = np.argsort(self.which, kind="stable")
        stops = np.cumsum(np.bincount(self.which, minlength=len(self.batches)))
        parts, start = [], 0
        for batch, stop in zip(self.batches, stops.tolist(), strict=True):
            if stop > start:
                parts.append(batch.column(name).take(pa.array(self.place[order[start:stop]])))
            start = stop
        back = np.empty(order.size, np.int64)
        back[order] = np.arange(order.size)
        return pa.concat_arrays(parts).take(pa.array(back))

    def take(self, index: Int64s) -> Picked:
        return Picked(self.batches, self.place[index], None if self.which is None else self.which[index])


class Pairing:
    """How pairs of a left and a right row are judged and put out.

    schema: of the result. left_names, right_names: columns that a row must bring besides its key, in the input's order.
    """

    def __init__(self, join: Join, left: pa.Schema, right: pa.Schema) -> None:
        self._columns: list[OutColumn] = out_columns(join, left, right)
        self.schema = pa.schema([column.field for column in self._columns])
        self._condition = None if join.condition is None else compile_condition(join.condition, left, right)
        read = () if self._condition is None else self._condition.columns
        self._pair_schema = pa.schema([pair_schema(left, right).field(name) for name in read])
        needed = set(read)
        needed |= {f"l.{column.left}" for column in self._columns if column.left}
        needed |= {f"r.{column.right}" for column in self._columns if column.right}
        self.left_names = [name for name in left.names if f"l.{name}" in needed]
        self.right_names = [name for name in right.names if f"r.{name}" in needed]

    def holding(self, left: Picked, right: Picked) -> Int64s | None:
        """Which pairs the condition holds for, ascending; None: for all of them. A null is not true."""
        if self._condition is None or left.place.size == 0:
            return None
        sides = {"l": left, "r": right}
        arrays = [sides[name[0]].column(name[2:]) for name in self._pair_schema.names]
        # A condition without columns still has as many rows as there are pairs.
        batch = pa.RecordBatch.from_arrays([*arrays, pa.nulls(left.place.size)], [*self._pair_schema.names, ""])
        true = self._condition(batch).fill_null(False).cast(pa.bool_())
        return np.flatnonzero(true.to_numpy(zero_copy_only=False))

    def batch(self, left: Picked | None, right: Picked | None) -> pa.RecordBatch:
        """The result of each pair; without one side, of rows that have no partner there."""
        count = (left or right).place.size  # type: ignore[union-attr]
        arrays = []
        for column in self._columns:
            values = [
                side.column(name) for side, name in ((left, column.left), (right, column.right)) if side is not None and name is not None
            ]
            if not values:
                arrays.append(pa.nulls(count, column.field.type))
            else:
                arrays.append(values[0] if len(values) == 1 else pc.coalesce(*values))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def identities(rows: Rows, keys: Sequence[str]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], Bools]:
    """(hash, check, whether the key may equal another) of each row: a key with a null in it equals nothing."""
    hashes, checks = identity(rows, keys)
    known = np.ones(rows.count, np.bool_)
    for key in keys:
        column = rows.batch.column(key)
        if column.null_count:
            known &= column.is_valid().to_numpy(zero_copy_only=False)
    return hashes, checks, known
