"""TableJoin: rows of a stream and the rows of a table that have the same key. The table is the same at every site, so nothing moves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from evenflow.operator.join.join_side import Held, JoinSide, Run
from evenflow.operator.join.pairing import Pairing, Picked, identities
from evenflow.operator.operator import Stateless
from evenflow.query.join import Join
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class TableJoin(Stateless):
    """Inner, left, semi and anti join with a table. Cost: O(rows x log(table) + pairs).

    left: schema of the stream; table: held once per operator. Results are in order of the stream's rows, then the table's, with the
    stream's partition and hash. A key with a null in it equals nothing.
    """

    def __init__(self, join: Join, left: pa.Schema, table: pa.Table) -> None:
        self._join = join
        self._pairing = Pairing(join, left, table.schema)
        self.schemas: tuple[pa.Schema, ...] = (self._pairing.schema,)
        whole = table.combine_chunks().to_batches()
        batch = whole[0] if whole else pa.RecordBatch.from_pylist([], schema=table.schema)
        rows = Rows(batch, np.zeros(batch.num_rows, np.int32))
        hashes, checks, possible = identities(rows, join.right_keys)
        kept = np.flatnonzero(possible)
        zeros = np.zeros(kept.size, np.int64)
        columns = batch.select(self._pairing.right_names).take(pa.array(kept))
        held = Held(columns, rows.partition[kept], hashes[kept], checks[kept], zeros, np.zeros(kept.size, np.bool_), zeros)
        self._table = JoinSide(columns.schema, None)
        self._table.add(Run.of(held))

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if rows.count == 0:
            return (Rows.empty(self.schemas[0], keyed=rows.hash is not None),)
        index, pairs = self._found(rows)
        if self._join.how in ("semi", "anti"):
            met = np.zeros(rows.count, np.bool_)
            met[index] = True
            chosen = np.flatnonzero(met == (self._join.how == "semi"))
            return (self._rows(rows, chosen, self._pairing.batch(Picked([rows.batch], chosen), None)),)
        found = self._rows(rows, index, self._pairing.batch(Picked([rows.batch], index), pairs))
        if self._join.how == "inner":
            return (found,)
        alone = np.setdiff1d(np.arange(rows.count), index)
        if alone.size == 0:
            return (found,)
        lonely = self._rows(rows, alone, self._pairing.batch(Picked([rows.batch], alone), None))
        batch = pa.concat_batches([found.batch, lonely.batch])
        both = Rows(batch, np.concatenate([found.partition, lonely.partition]))
        if found.hash is not None and lonely.hash is not None:
            both.hash = np.concatenate([found.hash, lonely.hash])
        return (both.take(np.argsort(np.concatenate([index, alone]), kind="stable")),)

    def _found(self, rows: Rows) -> tuple[Int64s, Picked]:
        """(row, its partner) of each pair for which all holds, by row."""
        # The hash that comes with the rows is of the key that brought them here, not of the table's.
        hashes, checks, possible = identities(Rows(rows.batch, rows.partition), self._join.left_keys)
        some = np.flatnonzero(possible)
        zeros = np.zeros(some.size, np.int64)
        nothing = pa.RecordBatch.from_arrays([pa.array(zeros)], [""])
        new = Run.of(Held(nothing, rows.partition[some], hashes[some], checks[some], zeros, np.zeros(some.size, np.bool_), zeros))
        row, which, place = self._table.find(new, None, None)
        row, pairs = some[row], self._table.pick(which, place)
        true = self._pairing.holding(Picked([rows.batch], row), pairs)
        return (row, pairs) if true is None else (row[true], pairs.take(true))

    @staticmethod
    def _rows(rows: Rows, index: Int64s, batch: pa.RecordBatch) -> Rows:
        return Rows(batch, rows.partition[index], None if rows.hash is None else rows.hash[index])
