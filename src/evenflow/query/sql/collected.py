"""Aggregates of all values of a group, as functions of the array in which they were collected. Null of no values, as in Spark.

Their names begin with `_`: nobody writes them but the parser, in the place of what they are for (`composed`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql.casts import cast
from evenflow.query.sql.lists import Lists, codes, element_type, listwise
from evenflow.query.sql.node import Node
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.types import DOUBLE, LONG, integral, name_of
from evenflow.stream.arrays import Floats


def _sums(given: Lists, values: Floats) -> Floats:
    return np.bincount(given.parents, weights=values, minlength=given.rows).astype(np.float64)


def _centred(given: Lists) -> tuple[Floats, Floats]:
    """How many there are, and each value's distance from its row's mean."""
    values, count = given.values.to_numpy(zero_copy_only=False), given.counts.astype(np.float64)
    with np.errstate(all="ignore"):
        mean = _sums(given, values) / count
    return count, values - mean[given.parents]


def _moments(power: int, a: Node) -> Node:
    """skewness and kurtosis: null also where all values are equal."""

    def run(arrays: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        with np.errstate(all="ignore"):
            count, off = _centred(given)
            second, high = _sums(given, off**2), _sums(given, off**power)
            made = np.sqrt(count) * high / np.sqrt(second**3) if power == 3 else count * high / (second * second) - 3.0
        return pa.array(made, mask=(given.counts == 0) | (second == 0.0))

    return listwise(run, DOUBLE, a)


def _together(what: str, a: Node, b: Node) -> Node:
    def run(left: pa.Array, right: pa.Array) -> pa.Array:
        one, other = Lists.of(left), Lists.of(right)
        with np.errstate(all="ignore"):
            (count, x), (_, y) = _centred(one), _centred(other)
            both = _sums(one, x * y)
            if what == "corr":
                made, least = both / np.sqrt(_sums(one, x * x) * _sums(one, y * y)), 2
            elif what == "covar_pop":
                made, least = both / count, 1
            else:
                made, least = both / (count - 1), 2
        return pa.array(made, mask=one.counts < least)

    return listwise(run, DOUBLE, a, b)


def _regression(what: str, a: Node, b: Node) -> Node:
    """The regr_ family: a is what depends, b is what it depends on. Both have a null where either of the two is null."""

    def run(left: pa.Array, right: pa.Array) -> pa.Array:
        one, other = Lists.of(left), Lists.of(right)
        with np.errstate(all="ignore"):
            (count, y), (_, x) = _centred(one), _centred(other)
            xx, yy, xy = _sums(one, x * x), _sums(one, y * y), _sums(one, x * y)
            mean_y, mean_x = (_sums(each, each.values.to_numpy(zero_copy_only=False)) / count for each in (one, other))
            slope = xy / xx
            r2 = np.where(yy == 0.0, 1.0, xy * xy / (xx * yy))
            made = {"avgx": mean_x, "avgy": mean_y, "sxx": xx, "syy": yy, "sxy": xy, "slope": slope, "r2": r2,
                    "intercept": mean_y - slope * mean_x}[what]  # fmt: skip
        missing = one.counts < 1
        if what in ("slope", "r2", "intercept"):
            missing = missing | (xx == 0.0) | ((one.counts < 2) if what != "r2" else False)
        return pa.array(made, mask=missing)

    return listwise(run, DOUBLE, a, b)


def _quantile(a: Node, share: Node) -> Node:
    """percentile_approx: the least value at which that share of the values, or more, is reached. It is exact here."""
    part = constant_of(cast(share, DOUBLE), "the percentage of percentile_approx")
    if not isinstance(part, float) or not 0.0 <= part <= 1.0:
        raise ExpressionError(f"the percentage of percentile_approx is one number from 0 to 1, not {share.text}")
    element = element_type(a, "percentile_approx")

    def run(arrays: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        (numbers,) = codes(given.values)
        order = np.lexsort((numbers, given.parents))
        at = np.maximum(np.ceil(given.counts * part).astype(np.int64) - 1, 0) + given.starts
        there = given.counts > 0
        return given.values.take(pa.array(order)).take(pa.array(np.where(there, at, 0), mask=~there))

    return listwise(run, element, a)


def _tried_sum(a: Node) -> Node:
    """try_sum: null where a bigint overflows."""
    element = element_type(a, "try_sum")
    if not integral(element):
        raise TypeMismatch(f"try_sum needs whole numbers here, but {a.text} has {name_of(element)}; for others there is sum")

    def run(arrays: pa.Array) -> pa.Array:
        totals = [None if not values else sum(values) for values in arrays.to_pylist()]
        return pa.array([None if total is None or not -(2**63) <= total < 2**63 else total for total in totals], LONG)

    return listwise(run, LONG, a)


def _percentile(a: Node, share: Node) -> Node:
    """Between the two values that are next to it, as far as it is between them."""
    part = constant_of(cast(share, DOUBLE), "the percentage of percentile")
    if not isinstance(part, float) or not 0.0 <= part <= 1.0:
        raise ExpressionError(f"the percentage of percentile is one number from 0 to 1, not {share.text}")

    def run(arrays: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        (numbers,) = codes(given.values)
        values = given.values.to_numpy(zero_copy_only=False)[np.lexsort((numbers, given.parents))]
        there = given.counts > 0
        if not len(values):
            return pa.nulls(given.rows, DOUBLE)
        at = (given.counts - 1) * part
        low, high = (np.where(there, given.starts + place.astype(np.int64), 0) for place in (np.floor(at), np.ceil(at)))
        with np.errstate(all="ignore"):
            made = np.where(low == high, values[low], (np.ceil(at) - at) * values[low] + (at - np.floor(at)) * values[high])
            made = np.where(values[low] == values[high], values[low], made)
        return pa.array(made, mask=~there)

    return listwise(run, DOUBLE, a)


def _folded(fold: Any, a: Node) -> Node:
    """The fold of each row's values with a function of numpy."""
    element = element_type(a, "an aggregate")
    if fold is not np.multiply and not integral(element):
        raise TypeMismatch(f"an aggregate of bits needs whole numbers, but {a.text} has {name_of(element)}")

    def run(arrays: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        there = np.flatnonzero(given.counts)
        made = fold.reduceat(given.values.to_numpy(zero_copy_only=False), given.starts[there]) if len(there) else []
        at = np.full(given.rows, -1, np.int64)
        at[there] = np.arange(len(there))
        return pa.array(made, element).take(pa.array(at, mask=at < 0))

    return listwise(run, element, a)


def _of_one(build: Callable[[Node], Node]) -> Signature:
    return Signature(build, 1, 1)


FUNCTIONS: Final = {
    "_skewness": _of_one(partial(_moments, 3)),
    "_kurtosis": _of_one(partial(_moments, 4)),
    "_percentile": Signature(_percentile, 2, 2),
    "_quantile": Signature(_quantile, 2, 2),
    "_try_sum": _of_one(_tried_sum),
    **{
        f"_regr_{what}": Signature(partial(_regression, what), 2, 2)
        for what in ("avgx", "avgy", "sxx", "syy", "sxy", "slope", "r2", "intercept")
    },
    "_product": _of_one(partial(_folded, np.multiply)),
    "_bit_and": _of_one(partial(_folded, np.bitwise_and)),
    "_bit_or": _of_one(partial(_folded, np.bitwise_or)),
    "_bit_xor": _of_one(partial(_folded, np.bitwise_xor)),
    "_corr": Signature(partial(_together, "corr"), 2, 2),
    "_covar_pop": Signature(partial(_together, "covar_pop"), 2, 2),
    "_covar_samp": Signature(partial(_together, "covar_samp"), 2, 2),
}
