"""The order of each array's elements by a function of two of them, as Java's sort finds it, which Spark's array_sort asks.

Java's sort only asks whether a later element is below an earlier one, so one number per pair decides. Where these make one line of the
elements, as those of an order do, every sort finds that line, and counting finds it for all arrays at once. Other functions give what
the sort makes of them, so for such arrays it is done as Java does it, and what it does not ask for may be null or an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from evenflow.query.sql.lists import Lists
from evenflow.query.sql.node import FAILURES, InvalidValue
from evenflow.stream.arrays import Int64s

Told = Callable[[Int64s, Int64s], pa.Array]
"""What the function says of elements and of others, both by their places among all elements: an int each."""

Below = Callable[[int, int], bool]
"""Whether the element at a place of an array is below the one at an earlier place."""

_SHORT: Final = 32
"""Arrays with fewer elements Java sorts by insertion."""


def order_of(lists: Lists, told: Told) -> Int64s:
    """Places of the elements, ascending within each array. Cost: half the square of an array's length.

    Raises InvalidValue if the function gives null for a pair that is asked for, and what it raises for such a pair.
    """
    places, starts = lists.places, lists.starts
    firsts = np.repeat(starts, lists.counts)
    later = np.repeat(np.arange(len(places)), places)
    begins = np.cumsum(places) - places
    earlier = firsts[later] + np.arange(len(later)) - begins[later]
    order = np.arange(len(places))
    try:
        found = told(later, earlier)
    except FAILURES:
        for start, count in zip(starts.tolist(), lists.counts.tolist(), strict=True):
            order[start : start + count] = start + np.array(_sorted(count, _asking(told, start)), np.int64)
        return order
    null = found.is_null().to_numpy(zero_copy_only=False)
    numbers = found.fill_null(0).to_numpy(zero_copy_only=False)
    place = firsts + np.bincount(np.where(numbers < 0, earlier, later), minlength=len(places))
    order[place] = np.arange(len(places))
    unclear = np.zeros(lists.rows, np.bool_)
    unclear[lists.parents[np.bincount(place, minlength=len(places)) != 1]] = True
    unclear[lists.parents[later[null]]] = True
    for row in np.flatnonzero(unclear).tolist():
        start, count = int(starts[row]), int(lists.counts[row])
        pairs = slice(int(begins[start]), int(begins[start]) + count * (count - 1) // 2)
        below = _reading(numbers[pairs].tolist(), null[pairs].tolist())
        order[start : start + count] = start + np.array(_sorted(count, below), np.int64)
    return order


def _asking(told: Told, start: int) -> Below:
    def below(one: int, other: int) -> bool:
        number = told(np.array([start + one]), np.array([start + other]))[0].as_py()
        return _known(number) < 0

    return below


def _reading(numbers: list[int], null: list[bool]) -> Below:
    """numbers: of each place with each earlier one."""

    def below(one: int, other: int) -> bool:
        pair = one * (one - 1) // 2 + other
        return _known(None if null[pair] else numbers[pair]) < 0

    return below


def _known(number: int | None) -> int:
    if number is None:
        raise InvalidValue("the function of array_sort gave null for a pair of elements; it must give a number below, at or above 0")
    return number


def _sorted(count: int, below: Below) -> list[int]:
    """As Java's TimSort, but that it merges halves, and asks for each pair that it merges."""
    run = _run(0, count, below)
    return run if len(run) == count else _merged(0, count, below)


def _merged(begin: int, end: int, below: Below) -> list[int]:
    if end - begin < _SHORT:
        return _inserted(begin, end, below)
    middle = (begin + end) // 2
    left, right = _merged(begin, middle, below), _merged(middle, end, below)
    out, i, j = list[int](), 0, 0
    while i < len(left) and j < len(right):
        if below(right[j], left[i]):
            out.append(right[j])
            j += 1
        else:
            out.append(left[i])
            i += 1
    return out + left[i:] + right[j:]


def _run(begin: int, end: int, below: Below) -> list[int]:
    """The places that begin in order, or strictly in reverse: then turned round."""
    if end - begin < 2:
        return list(range(begin, end))
    falls, at = below(begin + 1, begin), begin + 2
    while at < end and below(at, at - 1) == falls:
        at += 1
    return list(range(begin, at))[:: -1 if falls else 1]


def _inserted(begin: int, end: int, below: Below) -> list[int]:
    """Java's binary insertion sort."""
    out = _run(begin, end, below)
    for pivot in range(begin + len(out), end):
        low, high = 0, len(out)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if below(pivot, out[middle]) else (middle + 1, high)
        out.insert(low, pivot)
    return out
