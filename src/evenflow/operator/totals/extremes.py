"""Extremes: values as whole numbers that are in their order, so that the greatest and the least of rows are found by numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.operator.order import sort_key
from evenflow.stream.arrays import Int64s


def ranked(values: pa.Array) -> tuple[Int64s, pa.Array]:
    """(the rank of each row's value, int64 (n,), from 0 on and undefined where null; a value of each rank), as Spark orders them: NaN is
    the greatest, -0.0 is 0.0, see `look_alike`. Cost: O(n log n), of text and decimals that of the distinct values."""
    if not len(values):
        return np.empty(0, np.int64), values
    keys = sort_key(values)
    key = pa.array(keys) if isinstance(keys, np.ndarray) else keys
    codes = key.dictionary_encode()
    order = pc.sort_indices(codes.dictionary).to_numpy()
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    at = codes.indices.fill_null(0).to_numpy(zero_copy_only=False)
    ranks = rank[at] if order.size else np.zeros(len(values), np.int64)
    first = np.zeros(order.size, np.int64)
    there = np.flatnonzero(key.is_valid().to_numpy(zero_copy_only=False))
    first[ranks[there]] = there
    return ranks, values.take(pa.array(first))


def look_alike(values: pa.Array) -> bool:
    """Whether values of one rank are sure to be the same to the last bit: there are no zeros of both signs."""
    if pa.types.is_nested(values.type):
        return False
    if not pa.types.is_floating(values.type):
        return True
    numbers = values.to_numpy(zero_copy_only=False)
    signs = np.signbit(numbers[numbers == 0.0])
    return not signs.any() or bool(signs.all())


def first_of(ranks: Int64s, best: Int64s, low: Int64s) -> Int64s:
    """int64 (m,): the first row of rank best[i] from row low[i] on, where there is one; 0 to n - 1. ranks: int64 (n,), n > 0."""
    order = np.argsort(ranks, kind="stable")
    found = np.searchsorted(ranks[order] * (ranks.size + 1) + order, best * (ranks.size + 1) + low)
    return order[np.minimum(found, ranks.size - 1)]


__all__ = ["first_of", "look_alike", "ranked"]
