"""Rows: the columns of one epoch at one site, with the partition that owns each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.stream.taking import rows_taken


@dataclass(slots=True)
class Rows:
    """The rows of one epoch for all the partitions of a segment that a site hosts.

    batch: the user's columns, n >= 0 rows. partition: int32, shape (n,), the partition of this segment that owns each row.
    hash: uint64, shape (n,), the stable hash of the segment's key (E1), or None in a segment without a key.
    Within one partition the rows are in input order (stream, producer partition, row) if the segment is order-sensitive;
    rows of different partitions may be interleaved in any way, and no result may depend on how.
    """

    batch: pa.RecordBatch
    partition: npt.NDArray[np.int32]
    hash: npt.NDArray[np.uint64] | None = None

    @property
    def count(self) -> int:
        return int(self.batch.num_rows)

    def take(self, index: npt.NDArray[np.int64]) -> Rows:
        """Rows at `index`, int64, in that order."""
        return Rows(rows_taken(self.batch, index), self.partition[index], None if self.hash is None else self.hash[index])

    def slice(self, start: int, stop: int) -> Rows:
        """Rows that lie side by side. Copies nothing."""
        hash_ = None if self.hash is None else self.hash[start:stop]
        return Rows(self.batch.slice(start, stop - start), self.partition[start:stop], hash_)

    @staticmethod
    def empty(schema: pa.Schema, *, keyed: bool = False) -> Rows:
        arrays = [pa.array([], f.type) for f in schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return Rows(batch, np.empty(0, np.int32), np.empty(0, np.uint64) if keyed else None)
