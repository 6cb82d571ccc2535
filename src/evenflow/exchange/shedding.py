"""Which rows are left out where a source has more than can be done: what follows from a row's place and value alone.

A row of a source stays iff the hash of its place, which is the source's name, its partition and its position there, is below what is kept
of its class. So whoever makes an epoch again from its cut leaves out the same rows, and less to keep only takes away (nested sampling).
This file knows neither load nor time, nor who decides how much is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.plan.layout import Shed
from evenflow.stream.epoch import ALL_KEPT
from evenflow.stream.sampling import Positions, place_hashes
from evenflow.stream.worth import CLASSES_MAX, Classes

ALL: Final = ALL_KEPT
"""Kept of a class of which nothing is left out."""

EXACT: Final = 8
"""So many rows of a class are kept to the row. Of fewer it is a share: else it could be that none stays, epoch for epoch."""


def classes(shed: Shed, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """int64 (n,): the class of each row."""
    return class_of(shed.column, shed.classes, rows)


def class_of(column: str | None, of: Classes, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """int64 (n,): the class of each row by its value in a column. Whole numbers that a float cannot tell apart are of one class."""
    if column is None:
        return np.zeros(rows.num_rows, np.int64)
    values = rows.column(column).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return of.of(values).astype(np.int64)


def checked(keep: tuple[int, ...], dropped: tuple[int, ...], rows: int | None = None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`keep` and `dropped` of a record that somebody else wrote. rows: that its source gave, if that is known. Raises ValueError."""
    if not (
        0 < len(keep) == len(dropped) <= CLASSES_MAX
        and all(0 <= share <= ALL for share in keep)
        and min(dropped) >= 0
        and (rows is None or sum(dropped) <= rows)
    ):
        raise ValueError(f"{dropped!r:.60} of {rows} rows left out, and {keep!r:.60} kept, nobody can have said")
    return keep, dropped


def staying(source: str, partition: int, positions: Positions, of: npt.NDArray[np.int64], keep: Sequence[int]) -> npt.NDArray[np.bool_]:
    """bool (n,): whether each row stays. of: its class. keep: by class, how much of ALL."""
    return place_hashes(source, partition, positions) < np.array(keep, np.uint64)[of]


def to_keep(shed: Shed, of: npt.NDArray[np.int64], budget: float, hashes: npt.NDArray[np.uint64]) -> tuple[int, ...]:
    """By class, how much of ALL is kept so that about `budget` of these rows are: what is worth most first. of: the class of each row.
    hashes: of their places.

    As many as there may be, by the hash of the first row that goes: how many are below a share is chance, and a site that has a tenth more
    keeps all others waiting. What is estimated from rows below that hash is as true (a sample of the k least, its threshold the next).
    """
    counts = np.bincount(of, minlength=len(shed.classes))
    keep, left = [0] * len(shed.classes), max(0.0, budget)
    for number in shed.classes.best_first():
        count = int(counts[number])
        if count <= left:
            keep[number] = ALL
        elif left < EXACT:
            keep[number] = int(ALL * left / count)
        else:
            keep[number] = int(np.partition(hashes[of == number], int(left))[int(left)])
        left = max(0.0, left - count)
    return tuple(keep)
