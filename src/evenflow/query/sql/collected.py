"""Aggregates of all values of a group, as functions of the array in which they were collected. Null of no values, as in Spark.

Their names begin with `_`: nobody writes them but the parser, in the place of what they are for (`composed`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ArithmeticOverflow, ExpressionError, TypeMismatch
from evenflow.query.sql.casts import cast
from evenflow.query.sql.lists import Lists, array_of, codes, element_type, listwise, tallied
from evenflow.query.sql.node import InvalidValue, Node, lift, literal, rowwise
from evenflow.query.sql.shapes import over_arrays
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.types import BINARY, DOUBLE, LONG, NULL, STRING, floating, integral, name_of
from evenflow.stream.arrays import Floats, Int64s


def _sums(given: Lists, values: Floats) -> Floats:
    return np.bincount(given.parents, weights=values, minlength=given.rows).astype(np.float64)


def _centred(given: Lists) -> tuple[Floats, Floats]:
    """How many there are, and each value's distance from its row's mean: exactly 0 where all are equal."""
    values, count = given.values.to_numpy(zero_copy_only=False), given.counts.astype(np.float64)
    with np.errstate(all="ignore"):
        off = values - values[given.starts[given.parents]]
        return count, off - (_sums(given, off) / count)[given.parents]


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
                spread = np.sqrt(_sums(one, x * x) * _sums(one, y * y))
                return pa.array(both / spread, mask=(one.counts < 2) | (spread == 0.0))
            if what == "covar_pop":
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


def _ascending(given: Lists) -> Int64s:
    """Places of the values, each list's from the least on; -0.0 is before 0.0, though they are equal."""
    (numbers,) = codes(given.values)
    if not pa.types.is_floating(given.values.type):
        return np.lexsort((numbers, given.parents))
    values = given.values.to_numpy(zero_copy_only=False)
    return np.lexsort(((values == 0.0) & ~np.signbit(values), numbers, given.parents))


def _shares(share: Node, what: str) -> list[float]:
    """The percentages of a call: one number, or an array of them."""
    listed = pa.types.is_list(share.type)
    given = constant_of(cast(share, pa.list_(DOUBLE) if listed else DOUBLE), f"the percentage of {what}")
    found = given if isinstance(given, list) else [given]
    parts = [part for part in found if isinstance(part, float) and 0.0 <= part <= 1.0]
    if not found or len(parts) < len(found):
        raise ExpressionError(f"the percentage of {what} is a number from 0 to 1, or an array of such, not {share.text}")
    return parts


def _each_share(one: Callable[[float], Node], share: Node, type_: pa.DataType, what: str) -> Node:
    """A function of one percentage, or the array of what it is for several."""
    parts = [one(part) for part in _shares(share, what)]
    if not pa.types.is_list(share.type):
        return parts[0]

    def kernel(*columns: pa.Array) -> pa.Array:
        count = len(columns)
        places = pa.array(np.arange(count * len(columns[0])).reshape(count, -1).T.ravel())
        starts = pa.array(np.arange(0, count * len(columns[0]) + 1, count), pa.int32())
        missing = columns[0].is_null() if columns[0].null_count else None
        return pa.ListArray.from_arrays(starts, pa.concat_arrays(list(columns)).take(places), pa.list_(type_), mask=missing)

    return lift(over_arrays(kernel), pa.list_(type_), *parts, strict=False)


def _quantile(a: Node, share: Node, accuracy: Node | None = None) -> Node:
    """percentile_approx: the least value at which that share of the values, or more, is reached; exact, whatever the accuracy."""
    if accuracy is not None and not isinstance(constant_of(accuracy, "the accuracy of percentile_approx"), int):
        raise ExpressionError(f"the accuracy of percentile_approx is a whole number, not {accuracy.text}")
    return _each_share(partial(_one_quantile, a), share, element_type(a, "percentile_approx"), "percentile_approx")


def _one_quantile(a: Node, part: float) -> Node:
    element = element_type(a, "percentile_approx")

    def run(arrays: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        order = _ascending(given)
        at = np.maximum(np.ceil(given.counts * part).astype(np.int64) - 1, 0) + given.starts
        there = given.counts > 0
        return given.values.take(pa.array(order)).take(pa.array(np.where(there, at, 0), mask=~there))

    return listwise(run, element, a)


def _discrete(a: Node, share: Node, ascends: Node) -> Node:
    """percentile_disc: the first value, in order, up to which there is that share of the values."""
    if constant_of(ascends, "the order of percentile_disc"):
        return _each_share(partial(_one_quantile, a), share, DOUBLE, "percentile_disc")
    turned = listwise(lambda arrays: _negated(arrays), pa.list_(DOUBLE), a)
    found = _each_share(partial(_one_quantile, turned), share, DOUBLE, "percentile_disc")
    if pa.types.is_list(found.type):
        return listwise(lambda arrays: _negated(arrays), found.type, found)
    return lift(lambda value: pc.negate(value), DOUBLE, found)


def _negated(arrays: pa.Array) -> pa.Array:
    given = Lists.of(arrays)
    return given.with_values(pc.negate(given.values))


def _mode(a: Node, order: Node | None = None) -> Node:
    """The value that is there most often, of several such the least; or the greatest, if the order of a WITHIN GROUP descends."""
    element = element_type(a, "mode")
    least = order is None or constant_of(order, "whether mode is deterministic") is not False

    def run(arrays: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        parents, numbers, places, often = tallied(given)
        best = np.lexsort((numbers if least else -numbers, -often, parents))
        whose = parents[best]
        chosen = best[np.flatnonzero(np.append(True, np.diff(whose) != 0))] if len(best) else best
        at = np.full(given.rows, -1, np.int64)
        at[parents[chosen]] = places[chosen]
        found = given.values.take(pa.array(at, mask=at < 0))
        return pc.add(found, pa.scalar(0.0, element)) if floating(element) else found  # Of zeros the one without a sign.

    return listwise(run, element, a)


def _high(a: Node) -> Node:
    """The part of a whole number that a sum of cannot overflow, with `_low` below it; of what is no whole number all of it."""
    if not integral(a.type):
        return a
    return lift(lambda value: pc.shift_right(value, pa.scalar(32, LONG)), LONG, cast(a, LONG))


def _low(a: Node) -> Node:
    if not integral(a.type):
        return literal(pa.scalar(0, LONG))
    return lift(lambda value: pc.bit_wise_and(value, pa.scalar(2**32 - 1, LONG)), LONG, cast(a, LONG))


def _try_total(high: Node, low: Node) -> Node:
    """try_sum: null where a bigint overflows; of decimals it is null already."""
    if not integral(high.type):
        return high

    def one(upper: int, lower: int) -> int | None:
        total = upper * 2**32 + lower
        return total if -(2**63) <= total < 2**63 else None

    return rowwise(one, LONG, high, low)


def _total_of(mean: bool, a: Node, *, tried: bool = False) -> Node:
    """sum(DISTINCT x) and avg(DISTINCT x), of the array of distinct values; null of none. tried: try_sum, which is null without room."""
    what = "avg(DISTINCT ...)" if mean else "try_sum(DISTINCT ...)" if tried else "sum(DISTINCT ...)"
    element = element_type(a, what)
    if not integral(element) and not floating(element):
        raise TypeMismatch(f"{what} needs numbers, but {a.text} has {name_of(element)}; cast it to double or bigint")

    def one(values: list[Any]) -> Any:
        if not values:
            return None
        total = sum(values) if integral(element) else math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
        if mean:
            return float(total) / len(values)  # Rounded twice, as an average without DISTINCT.
        if integral(element) and not -(2**63) <= total < 2**63:
            if tried:
                return None
            raise ArithmeticOverflow(f"{what}: {total} does not fit into bigint")
        return total

    return rowwise(one, DOUBLE if mean or floating(element) else LONG, a, raises=not mean and not tried)


def _listable(a: Node) -> Node:
    return a if a.type == BINARY else cast(a, STRING)


def _listed(a: Node, separator: Node) -> Node:
    """listagg, of the array of values; null of none."""
    element = element_type(a, "listagg")
    if separator.type not in (element, NULL):
        kind = name_of(element)
        raise TypeMismatch(
            f"listagg puts a {kind} between values that are {kind}, and {separator.text} is {name_of(separator.type)}; cast it"
        )

    def run(arrays: pa.Array, separators: pa.Array) -> pa.Array:
        between = pc.fill_null(separators, pa.scalar(b"" if element == BINARY else "", element))
        return pc.if_else(pc.equal(pc.list_value_length(arrays), 0), pa.scalar(None, element), pc.binary_join(arrays, between))

    return listwise(run, element, a, cast(separator, element))


def _percentile(a: Node, share: Node, often: Node | None = None) -> Node:
    """Between the two values that are next to it, as far as it is between them. often: how often each value counts."""
    if often is not None:
        a = _repeated(a, often)
    return _each_share(partial(_one_percentile, a), share, DOUBLE, "percentile")


def _repeated(a: Node, often: Node) -> Node:
    def run(arrays: pa.Array, counts: pa.Array) -> pa.Array:
        given, times = Lists.of(arrays), counts.flatten().to_numpy(zero_copy_only=False)
        if len(times) != len(given.values) or (times < 0).any():
            raise InvalidValue("percentile: a frequency is a whole number from 0 on")
        values = given.values.take(pa.array(np.repeat(np.arange(len(times)), times)))
        sizes = np.bincount(given.parents, weights=times, minlength=given.rows).astype(np.int64)
        return array_of(values, sizes, given.missing)

    return listwise(run, a.type, a, often, raises=True)


def _one_percentile(a: Node, part: float) -> Node:
    def run(arrays: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        values = given.values.to_numpy(zero_copy_only=False)[_ascending(given)]
        there = given.counts > 0
        if not len(values):
            return pa.nulls(given.rows, DOUBLE)
        at = (given.counts - 1) * part
        low, high = (np.where(there, given.starts + place.astype(np.int64), 0) for place in (np.floor(at), np.ceil(at)))
        with np.errstate(all="ignore"):
            made = np.where(low == high, values[low], values[low] + (at - np.floor(at)) * (values[high] - values[low]))
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
    "_percentile": Signature(_percentile, 2, 3),
    "_quantile": Signature(_quantile, 2, 3),
    "_discrete": Signature(_discrete, 3, 3),
    "_mode": Signature(_mode, 1, 2),
    "_tried": _of_one(lambda a: a),
    "_high": _of_one(_high),
    "_low": _of_one(_low),
    "_try_total": Signature(_try_total, 2, 2),
    "_total_of": _of_one(partial(_total_of, False)),
    "_try_total_of": _of_one(partial(_total_of, False, tried=True)),
    "_listable": _of_one(_listable),
    "_listed": Signature(_listed, 2, 2),
    "_mean_of": _of_one(partial(_total_of, True)),
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
