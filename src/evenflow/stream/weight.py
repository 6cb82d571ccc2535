"""Weights of rows: how many rows of its source a row stands for, where others were left out by chance (Horvitz and Thompson 1952).

A row that stays with probability kappa stands for 1 / kappa rows, so a sum over the rows that stayed, each by its weight, is right in the
mean. The weight is a column of the rows from where they enter, so it is in the epoch's record with them, and all replicas have the same.
Where more are left out on the way it is multiplied: a row that stays twice by chance stays with the product of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.stream.epoch import ALL_KEPT

WEIGHT: Final = "_w"
"""Name of the column."""
WEIGHT_FIELD: Final = pa.field(WEIGHT, pa.float64())


def narrowed(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """These columns of a batch as its source gave it; each row stands for itself so far."""
    if WEIGHT not in names or WEIGHT in batch.schema.names:
        return batch.select(names)
    ones = pa.array(np.ones(batch.num_rows))
    columns = [ones if name == WEIGHT else batch.column(name) for name in names]
    fields = [WEIGHT_FIELD if name == WEIGHT else batch.schema.field(name) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def read_names(names: Sequence[str], source: pa.Schema) -> list[str]:
    """The columns that a source is asked for. source: its own, of which one may be called so, too."""
    return [name for name in names if name != WEIGHT or WEIGHT in source.names]


def weighed(rows: pa.RecordBatch, of: npt.NDArray[np.int64], keep: Sequence[int]) -> pa.RecordBatch:
    """Rows that stayed, with what they stand for now, which is more. of: the class of each; keep: by class, how much of ALL_KEPT stays."""
    at = rows.schema.get_field_index(WEIGHT)
    before = rows.column(at).to_numpy(zero_copy_only=False)
    return rows.set_column(at, WEIGHT_FIELD, pa.array(before * ALL_KEPT / np.array(keep, np.float64)[of]))
