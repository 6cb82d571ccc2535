"""How Spark compares structures and lists: part by part, where null comes before everything and equals null, NaN comes last and equals NaN.

So two structures whose fields are null are equal, though two nulls by themselves are not: what is null as a whole is left to the caller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.query.sql.shapes import nulls
from evenflow.stream.values import comparable, plain_values

Signs = npt.NDArray[np.int8]


def signs(a: pa.Array, b: pa.Array) -> Signs:
    """int8 (n,): -1 where a comes before b, 0 where they are equal, 1 where a comes after b. a, b: of one type without maps."""
    if pa.types.is_struct(a.type):
        found: Signs = np.zeros(len(a), np.int8)
        for one, other in zip(a.flatten(), b.flatten(), strict=True):
            found = np.where(found == 0, signs(one, other), found)
    elif pa.types.is_nested(a.type):
        found = np.array([_sign(x, y) for x, y in zip(plain_values(a), plain_values(b), strict=True)], np.int8)
    elif pa.types.is_null(a.type):
        return np.zeros(len(a), np.int8)
    else:
        found = _of_leaves(a, b)
    if a.null_count or b.null_count:
        left, right = nulls(a), nulls(b)
        found = np.where(left | right, right.astype(np.int8) - left.astype(np.int8), found)
    return found


def _of_leaves(a: pa.Array, b: pa.Array) -> Signs:
    if pa.types.is_floating(a.type):
        x, y = (each.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) for each in (a, b))
        above, below = np.isnan(x), np.isnan(y)
        apart = (x > y).astype(np.int8) - (x < y).astype(np.int8)
        found: Signs = np.where(above | below, above.astype(np.int8) - below.astype(np.int8), apart)
        return found
    more, less = (pc.fill_null(f(a, b), False).to_numpy(zero_copy_only=False) for f in (pc.greater, pc.less))
    made: Signs = more.astype(np.int8) - less.astype(np.int8)
    return made


def _sign(x: Any, y: Any) -> int:
    """Of two Python values."""
    one, other = comparable(x), comparable(y)
    return (one > other) - (one < other)


__all__ = ["Signs", "comparable", "signs"]
