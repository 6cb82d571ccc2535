"""Changelogs: streams whose rows say what they do to a result.

A stream with a text column `_change` is a changelog. Its rows come into a result and are taken back from it; what is left is the result
as it is now. Of a result that changes, the row as it was comes directly before the row as it is.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import TypeMismatch
from evenflow.stream.arrays import Int64s
from evenflow.stream.values import plain_values

CHANGE: Final = "_change"
"""The column that says what a row does."""

KINDS: Final = ("insert", "update_before", "update_after", "delete")
"""What rows do. The second and the fourth take a row back that came before, as a whole."""

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)


CHANGE_FIELD: Final = pa.field(CHANGE, pa.string())


def is_changelog(schema: pa.Schema) -> bool:
    """Whether rows of these columns are changes."""
    return CHANGE in schema.names and bool(pa.types.is_string(schema.field(CHANGE).type))


def taken_back(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """bool (n,): rows that take one back. Raises TypeMismatch for a row that says none of KINDS."""
    kinds = pc.index_in(batch.column(CHANGE), value_set=pa.array(KINDS))
    if kinds.null_count:
        wrong = batch.column(CHANGE)[int(np.flatnonzero(kinds.is_null().to_numpy(zero_copy_only=False))[0])].as_py()
        raise TypeMismatch(f"a row's {CHANGE} is {wrong!r}; it must be one of {', '.join(KINDS)}")
    codes = kinds.to_numpy()
    taken: npt.NDArray[np.bool_] = (codes == UPDATE_BEFORE) | (codes == DELETE)
    return taken


def all_say(kind: int, count: int) -> pa.Array:
    """The column of so many rows that do the same. kind: its place in KINDS."""
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), [KINDS[kind]]).dictionary_decode()


def changed_rows(
    old: pa.RecordBatch, of_old: Int64s, new: pa.RecordBatch, of_new: Int64s, keys: int
) -> tuple[pa.RecordBatch, Int64s]:  # fmt: skip
    """(rows with their change behind them, the group of each), group by group; nothing of groups in which nothing is different.

    old, new: results before and after, of the same columns. of_old, of_new: int64, ascending, the group of each, at most one of a group.
    keys: the first columns, in which the results of a group are equal anyway.
    """
    both, at_old, at_new = np.intersect1d(of_old, of_new, assume_unique=True, return_indices=True)
    same = np.ones(both.size, np.bool_)
    for before, after in zip(old.columns[keys:], new.columns[keys:], strict=True):
        same &= _equal(before.take(pa.array(at_old)), after.take(pa.array(at_new)))
    stay_old, stay_new = np.ones(of_old.size, np.bool_), np.ones(of_new.size, np.bool_)
    stay_old[at_old[same]] = stay_new[at_new[same]] = False
    codes = np.concatenate([np.full(of_old.size, DELETE), np.full(of_new.size, INSERT)])
    codes[at_old], codes[of_old.size + at_new] = UPDATE_BEFORE, UPDATE_AFTER
    index = np.flatnonzero(np.concatenate([stay_old, stay_new]))
    groups = np.concatenate([of_old, of_new])[index]
    order = np.argsort(groups, kind="stable")  # What was comes before what is.
    index = index[order]
    rows = pa.concat_batches([old, new]).take(pa.array(index))
    kinds = pa.array(KINDS).take(pa.array(codes[index]))
    return pa.RecordBatch.from_arrays([*rows.columns, kinds], schema=old.schema.append(CHANGE_FIELD)), groups[order]


def _equal(one: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    """bool (n,): values that are equal, or both null. NaN is a change, which says too much and nothing wrong."""
    if pa.types.is_nested(one.type):
        return np.array([a == b for a, b in zip(plain_values(one), plain_values(other), strict=True)], np.bool_)
    equal = pc.fill_null(pc.equal(one, other), False)
    either: npt.NDArray[np.bool_] = pc.or_(equal, pc.and_(one.is_null(), other.is_null())).to_numpy(zero_copy_only=False)
    return either
