"""Digests: whether two replicas made the same rows, whatever order they are in (protocol E3).

A row's digest is the hash of all its columns; a partition's is the sum over its rows, so it depends on neither order nor grouping.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.operator.kernels.hash import Hashes, hash_columns
from evenflow.operator.kernels.jit import kernel


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
