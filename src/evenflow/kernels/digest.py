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
    """Add the rows to their partitions' digests. partition: int32 (n,). digest: uint64 (P,), changed."""
    _add(hash_columns(batch, batch.schema.names), partition, digest)


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


def set_of_rows(batch: pa.RecordBatch) -> int:
    """The digest of rows whose order is free, as that of an epoch's rows is (E3): of their values and how many there are, and not of the
    order. 0 for none."""
    return int(np.add.reduce(_whole_rows(batch))) if batch.num_rows else 0


def in_one_order(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in an order that follows from their values alone: that of their hashes. Rows with equal hashes are equal (as for
    `set_of_rows`)."""
    return batch.take(pa.array(np.argsort(_whole_rows(batch), kind="stable"))) if batch.num_rows > 1 else batch


def _whole_rows(batch: pa.RecordBatch) -> Hashes:
    """uint64 (n,): a hash of all columns, by their place."""
    names = [str(at) for at in range(batch.num_columns)]
    return hash_columns(pa.RecordBatch.from_arrays(batch.columns, names), names)
