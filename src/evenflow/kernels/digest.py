"""Digests: whether two replicas made the same rows, whatever order they are in (protocol E3).

A row's digest is the hash of all its columns; a partition's is the sum over its rows, so it depends on neither order nor grouping. Where
order counts, as for rows that a task pushes a second time (I2), the digest is a polynomial in the rows' hashes instead.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.hash import Hashes, hash_columns
from evenflow.kernels.jit import kernel


@kernel(
    "void(uint64[::1], Array(int32, 1, 'C', readonly=True), uint64[::1])",
    "void(uint64[::1], int32[::1], uint64[::1])",
)
def _add(hashes: Hashes, partition: npt.NDArray[np.int32], digest: Hashes) -> None:
    for row in range(hashes.size):
        digest[partition[row]] += hashes[row]


def add_digests(batch: pa.RecordBatch, partition: npt.NDArray[np.int32], digest: Hashes) -> None:
    """Add the rows to their partitions' digests. partition: int32 (n,). digest: uint64 (P,), changed. Nested columns are left out."""
    names = [field.name for field in batch.schema if not pa.types.is_nested(field.type)]
    _add(hash_columns(batch, names), partition, digest)


_RADIX: Final = np.uint64(0x9E3779B185EBCA87)


@kernel("uint64(uint64[::1], uint64)")
def _roll(hashes: Hashes, digest: np.uint64) -> np.uint64:
    total = digest
    for row in range(hashes.size):
        total = total * _RADIX + hashes[row]
    return total


def roll_rows(batch: pa.RecordBatch, digest: int) -> int:
    """The digest of a sequence of rows, given that of what came before. It depends on their order, and not on how they are cut."""
    return int(_roll(_whole_rows(batch), np.uint64(digest)))


def _whole_rows(batch: pa.RecordBatch) -> Hashes:
    """uint64 (n,): a hash of all columns; lists count by their values and where those are in their row."""
    flat = [i for i, field in enumerate(batch.schema) if not pa.types.is_nested(field.type)]
    hashes = hash_columns(pa.RecordBatch.from_arrays([batch.column(i) for i in flat], [str(i) for i in flat]), [str(i) for i in flat])
    if len(flat) == batch.num_columns:
        return hashes
    total = hashes if flat else np.zeros(batch.num_rows, np.uint64)
    for i in range(batch.num_columns):
        if i not in flat:
            total = total * _RADIX + _lists(batch.column(i))
    return total


def _lists(lists: pa.Array) -> Hashes:
    """uint64 (n,): a hash of each list. Raises TypeError for other nested columns."""
    if not pa.types.is_list(lists.type):
        raise TypeError(f"a column of type {lists.type} has no digest")
    lengths = lists.value_lengths()
    counts = lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(counts)
    within = np.arange(ends[-1] if ends.size else 0) - np.repeat(ends - counts, counts)
    values = _whole_rows(pa.RecordBatch.from_arrays([lists.flatten()], ["values"])) * (2 * within.astype(np.uint64) + np.uint64(1))
    sums: Hashes = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
    lengths_hashed: Hashes = hash_columns(pa.RecordBatch.from_arrays([lengths], ["length"]), ["length"])
    return np.asarray(sums[ends] - sums[ends - counts] + lengths_hashed, np.uint64)
