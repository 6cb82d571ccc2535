"""Functions of arrays. Their elements are of one type; equality is that of Spark's sets, for which NaN is NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import TypeMismatch
from evenflow.query.sql.casts import cast
from evenflow.query.sql.lists import (
    Lists,
    among,
    array_of,
    as_type,
    bools,
    codes,
    element_type,
    firsts,
    listwise,
    met,
    valid,
    with_elements,
)
from evenflow.query.sql.node import InvalidValue, Node, literal, measured
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.steps import sequence_of_times, temporal
from evenflow.query.sql.types import BOOL, FLOAT, INT, INTERVAL, LONG, NULL, STRING, decimal, floating, integral, name_of, numeric, stringy
from evenflow.stream.arrays import Bools, Int64s

LONGEST: Final = 2**31 - 16
"""Elements of a column's arrays, as of one of Spark's."""


def _alike(what: str, a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type of elements of both. As in Spark a text meets texts only here, a decimal decimals of its digits, and whole numbers meet a
    float in float, which is double everywhere else."""
    apart = stringy(a) != stringy(b) or ((decimal(a) or decimal(b)) and a != b)
    if apart and NULL not in (a, b) and not (what == "array_contains" and decimal(b) and numeric(a)):
        raise TypeMismatch(f"{what} mixes {name_of(a)} and {name_of(b)}; cast one of them")
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.list_(_alike(what, a.value_type, b.value_type))
    return FLOAT if FLOAT in (a, b) and all(kind == FLOAT or integral(kind) for kind in (a, b)) else met(what, a, b)


def _pair(what: str, a: Node, b: Node) -> tuple[Node, Node, pa.DataType]:
    """Two arrays of one type."""
    type = _alike(what, element_type(a, what), element_type(b, what))
    return with_elements(a, type, what), with_elements(b, type, what), type


def _with_value(what: str, a: Node, value: Node) -> tuple[Node, Node, pa.DataType]:
    """An array, and a value of its elements' type."""
    type = _alike(what, element_type(a, what), value.type)
    return with_elements(a, type, what), as_type(value, type, what), type


def _count(node: Node, what: str) -> Node:
    if not integral(node.type) and node.type != NULL and not stringy(node.type):
        raise TypeMismatch(f"{what} needs a whole number, but {node.text} is {name_of(node.type)}")
    return cast(node, INT)


# Made


def _repeat(value: Node, count: Node) -> Node:
    if count.type not in (INT, NULL):
        raise TypeMismatch(f"array_repeat needs an int, but {count.text} is {name_of(count.type)}; cast it")

    def run(values: pa.Array, counts: pa.Array) -> pa.Array:
        times = np.maximum(counts.fill_null(0).to_numpy(zero_copy_only=False), 0).astype(np.int64)
        if times.sum() > LONGEST:
            raise InvalidValue(f"array_repeat would make {times.max()} elements of one row; an array has at most {LONGEST}")
        return array_of(values.take(pa.array(np.repeat(np.arange(len(values)), times))), times, ~valid(counts))

    return listwise(run, pa.list_(value.type), value, _count(count, "array_repeat"), strict=False)


def _sequence(start: Node, stop: Node, step: Node | None = None) -> Node:
    if temporal(start) or temporal(stop):
        return sequence_of_times(start, stop, step)
    for node in (start, stop, *([step] if step is not None else [])):
        if not integral(node.type) and node.type != NULL:
            raise TypeMismatch(f"sequence makes whole numbers here, but {node.text} is {name_of(node.type)}")
    type = met("sequence", start.type, stop.type, *([step.type] if step is not None else []))
    nodes = [as_type(node, type, "sequence") for node in ((start, stop) if step is None else (start, stop, step))]

    def run(*columns: pa.Array) -> pa.Array:
        there = np.logical_and.reduce([valid(column) for column in columns])
        first, last, *by = (column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) for column in columns)
        steps = by[0] if by else np.where(last >= first, 1, -1)
        wrong = there & ((steps == 0) & (first != last) | (steps > 0) & (first > last) | (steps < 0) & (first < last))
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise InvalidValue(f"sequence from {first[at]} never comes to {last[at]} in steps of {steps[at]}")
        counts = np.where(there, (last - first) // np.where(steps == 0, 1, steps) + 1, 0)
        if counts.sum() > LONGEST or (counts < 0).any():
            raise InvalidValue(f"sequence would make {counts.max()} numbers of one row; an array has at most {LONGEST}")
        parents = np.repeat(np.arange(len(counts)), counts)
        places = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
        return array_of(pa.array(first[parents] + places * steps[parents]).cast(type), counts, ~there)

    return listwise(run, pa.list_(type), *nodes, raises=True)


# Looked into


def _contains(a: Node, value: Node) -> Node:
    if value.type == NULL:
        raise TypeMismatch("array_contains looks for a value, and null is none; exists(a, x -> x is null) says whether there is a null")
    a, value, _ = _with_value("array_contains", a, value)

    def run(arrays: pa.Array, values: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        found = given.any(_equal(given, values))
        unknown = given.any(~valid(given.values))
        return bools(found, given.missing | ~valid(values) | (unknown & ~found))

    return listwise(run, BOOL, a, value)


def _equal(given: Lists, values: pa.Array) -> Bools:
    """Elements that are their row's value."""
    mine, theirs = codes(given.values, values)
    return np.asarray((mine == theirs[given.parents]) & valid(given.values), np.bool_)


def _position(a: Node, value: Node) -> Node:
    a, value, _ = _with_value("array_position", a, value)

    def run(arrays: pa.Array, values: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        at = np.flatnonzero(_equal(given, values))[::-1]
        found = np.zeros(given.rows, np.int64)
        found[given.parents[at]] = given.places[at] + 1
        return pa.array(found, mask=given.missing | ~valid(values))

    return listwise(run, LONG, a, value)


def _extreme(sign: int, a: Node) -> Node:
    """array_min and array_max: nulls do not count, and NaN is the greatest."""
    type = element_type(a, "array_min")

    def run(arrays: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        there = np.flatnonzero(valid(given.values))
        parents, (numbers,) = given.parents[there], codes(given.values)
        order = there[np.lexsort((sign * numbers[there], parents))]
        rows, first = np.unique(given.parents[order], return_index=True)
        at = np.full(given.rows, -1, np.int64)
        at[rows] = order[first]
        return given.values.take(pa.array(at, mask=at < 0))

    found = listwise(run, type, a)
    return measured(found, a.unit) if type == INTERVAL else found


def _overlap(a: Node, b: Node) -> Node:
    a, b, _ = _pair("arrays_overlap", a, b)

    def run(left: pa.Array, right: pa.Array) -> pa.Array:
        one, other = Lists.of(left), Lists.of(right)
        mine, theirs = codes(one.values, other.values)
        there = valid(one.values)
        found = one.any(among(one.parents, mine, other.parents, theirs) & there)
        unknown = (one.any(~there) | other.any(~valid(other.values))) & (one.counts > 0) & (other.counts > 0)
        return bools(found, one.missing | other.missing | (unknown & ~found))

    return listwise(run, BOOL, a, b)


# Changed


def _distinct(a: Node) -> Node:
    element_type(a, "array_distinct")

    def run(arrays: pa.Array) -> pa.Array:
        given = _one_zero(Lists.of(arrays))
        return given.where(firsts(given.parents, codes(given.values)[0]))

    return listwise(run, a.type, a)


def _one_zero(given: Lists) -> Lists:
    """With 0.0 for -0.0, as in Spark's sets."""
    return replace(given, values=pc.add(given.values, pa.scalar(0, given.values.type))) if floating(given.values.type) else given


def _union(a: Node, b: Node) -> Node:
    a, b, _ = _pair("array_union", a, b)
    return _distinct(concatenated(a, b))


def _meeting(what: str, wanted: bool, a: Node, b: Node) -> Node:
    """array_intersect and array_except: each element once, those that the other array has, or has not."""
    a, b, type = _pair(what, a, b)

    def run(left: pa.Array, right: pa.Array) -> pa.Array:
        one, other = _one_zero(Lists.of(left)), Lists.of(right)
        mine, theirs = codes(one.values, other.values)
        keep = firsts(one.parents, mine) & (among(one.parents, mine, other.parents, theirs) == wanted)
        found = one.where(keep)
        return pc.if_else(pa.array(other.missing), pa.scalar(None, found.type), found) if other.missing.any() else found

    return listwise(run, pa.list_(type), a, b)


def concatenated(*nodes: Node) -> Node:
    """concat of arrays."""
    type = met("concat", *(element_type(node, "concat") for node in nodes))
    given = [with_elements(node, type, "concat") for node in nodes]

    def run(*columns: pa.Array) -> pa.Array:
        parts = [Lists.of(column) for column in columns]
        missing = np.logical_or.reduce([part.missing for part in parts])
        order = np.argsort(np.concatenate([part.parents for part in parts]), kind="stable")
        whole = pa.concat_arrays([part.values for part in parts])
        parents = np.concatenate([part.parents for part in parts])[order]
        keep = ~missing[parents]
        counts = np.bincount(parents[keep], minlength=len(missing))
        return array_of(whole.take(pa.array(order[keep])), counts, missing)

    return listwise(run, pa.list_(type), *given)


def _append(what: str, a: Node, value: Node) -> Node:
    a, value, _ = _with_value(what, a, value)

    def run(arrays: pa.Array, values: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        place = given.starts + (given.counts if what == "array_append" else 0)
        order = np.insert(np.arange(len(given.values)), place, len(given.values) + np.arange(given.rows))
        counts = np.where(given.missing, 0, given.counts + 1)
        parents = np.insert(given.parents, place, np.arange(given.rows))
        keep = ~given.missing[parents]
        return array_of(pa.concat_arrays([given.values, values]).take(pa.array(order[keep])), counts, given.missing)

    return listwise(run, a.type, a, value, strict=False)


def _insert(a: Node, place: Node, value: Node) -> Node:
    """array_insert: from 1, or from -1 for behind the last one; what is between is filled up with nulls."""
    a, value, type = _with_value("array_insert", a, value)
    if not (integral(place.type) and place.type != LONG) and place.type != NULL:
        raise TypeMismatch(f"array_insert needs an int for the place, but {place.text} is {name_of(place.type)}")

    def run(arrays: pa.Array, places: pa.Array, values: pa.Array) -> pa.Array:
        made = list[list[Any] | None]()
        for row, (items, at) in enumerate(zip(_ranges(Lists.of(arrays)), places.to_pylist(), strict=True)):
            if items is None or at is None:
                made.append(None)
                continue
            if at == 0:
                raise InvalidValue("array_insert counts places from 1, or from -1 for behind the last one, and 0 is none of them")
            new, size = -row - 2, len(items)
            if at > 0:
                made.append([*items[: at - 1], *[-1] * (at - 1 - size), new, *items[at - 1 :]])
            elif -at <= size + 1:
                made.append([*items[: size + at + 1], new, *items[size + at + 1 :]])
            else:
                made.append([new, *[-1] * (-at - size - 1), *items])
        given = Lists.of(arrays)
        flat = np.array([each for items in made if items is not None for each in items], np.int64)
        where = np.where(flat < -1, len(given.values) - flat - 2, np.maximum(flat, 0))
        counts = np.array([0 if items is None else len(items) for items in made], np.int64)
        taken = pa.concat_arrays([given.values, values]).take(pa.array(where, mask=flat == -1))
        return array_of(taken, counts, np.array([items is None for items in made]))

    return listwise(run, pa.list_(type), a, cast(place, INT), value, strict=False, raises=True)


def _ranges(given: Lists) -> Iterator[list[int] | None]:
    """The places of each row's elements, None of no array."""
    for start, count, missing in zip(given.starts.tolist(), given.counts.tolist(), given.missing.tolist(), strict=True):
        yield None if missing else list(range(start, start + count))


def _remove(a: Node, value: Node) -> Node:
    a, value, _ = _with_value("array_remove", a, value)

    def run(arrays: pa.Array, values: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        found = given.where(~_equal(given, values))
        return pc.if_else(values.is_valid(), found, pa.scalar(None, found.type)) if values.null_count else found

    return listwise(run, a.type, a, value)


def _compact(a: Node) -> Node:
    def run(arrays: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        return given.where(valid(given.values))

    element_type(a, "array_compact")
    return listwise(run, a.type, a)


def _slice(a: Node, start: Node, length: Node) -> Node:
    element_type(a, "slice")

    def run(arrays: pa.Array, starts: pa.Array, lengths: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        there = ~given.missing & valid(starts) & valid(lengths)
        begin, size = (column.fill_null(1).to_numpy(zero_copy_only=False).astype(np.int64) for column in (starts, lengths))
        if (there & (begin == 0)).any():
            raise InvalidValue("slice: elements are counted from 1, it cannot begin with the number 0")
        if (there & (size < 0)).any():
            raise InvalidValue("slice: the length is at least 0")
        first = np.where(begin > 0, begin - 1, given.counts + begin)
        first = np.where(first < 0, given.counts, first)
        parents, places = given.parents, given.places
        keep = (places >= first[parents]) & (places < (first + size)[parents]) & there[parents]
        return array_of(given.values.filter(pa.array(keep)), np.bincount(parents[keep], minlength=given.rows), ~there)

    return listwise(run, a.type, a, _count(start, "slice"), _count(length, "slice"), raises=True)


def _flatten(a: Node) -> Node:
    inner = element_type(a, "flatten")
    element_type(Node(inner, a.run, text=a.text), "flatten")

    def run(arrays: pa.Array) -> pa.Array:
        outer = Lists.of(arrays)
        within = Lists.of(outer.values)
        missing = outer.missing | outer.any(within.missing)
        parents = outer.parents[within.parents]
        keep = ~missing[parents]
        return array_of(within.values.filter(pa.array(keep)), np.bincount(parents[keep], minlength=outer.rows), missing)

    return listwise(run, inner, a)


def reversed_array(a: Node) -> Node:
    def run(arrays: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        order = np.repeat(given.starts + given.counts - 1, given.counts) - given.places
        return given.with_values(given.values.take(pa.array(order)))

    return listwise(run, a.type, a)


def _sorted(what: str, a: Node, up: bool, nulls_first: bool) -> Node:
    element_type(a, what)

    def run(arrays: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        (numbers,) = codes(given.values)
        missing = ~valid(given.values)
        keys: tuple[Int64s | Bools, ...] = (numbers if up else -numbers, ~missing if nulls_first else missing, given.parents)
        return given.with_values(given.values.take(pa.array(np.lexsort(keys))))

    return listwise(run, a.type, a)


def _sort_array(a: Node, up: Node | None = None) -> Node:
    rising = True if up is None else constant_of(up, "the order of sort_array")
    if rising is None:
        return literal(pa.scalar(None, a.type if pa.types.is_list(a.type) else pa.list_(NULL)))
    if a.type == NULL:
        return literal(pa.scalar(None, pa.list_(NULL)))
    return _sorted("sort_array", a, bool(rising), bool(rising))


def _join(a: Node, separator: Node, instead: Node | None = None) -> Node:
    """Nulls are left out, or written as `instead`."""
    if pa.types.is_nested(element_type(a, "array_join")):
        raise TypeMismatch(f"array_join needs an array of texts, but {a.text} is {name_of(a.type)}")
    for text in (separator, *([instead] if instead is not None else [])):
        if not stringy(text.type) and text.type != NULL:
            raise TypeMismatch(f"array_join needs a string between the elements, but {text.text} is {name_of(text.type)}; cast it")
    texts = with_elements(a, STRING, "array_join")
    nodes = [texts, cast(separator, STRING), *([cast(instead, STRING)] if instead is not None else [])]

    def run(arrays: pa.Array, separators: pa.Array, *others: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        if others:
            filled = pc.coalesce(given.values, others[0].take(pa.array(given.parents)))
            arrays = array_of(filled, given.counts, given.missing | ~valid(others[0]))
        else:
            arrays = given.where(valid(given.values))
        return pc.binary_join(arrays, separators)

    return listwise(run, STRING, *nodes)


def words_joined(separator: Node, nodes: Sequence[Node]) -> Node:
    """concat_ws of arrays and texts: null ones count as none."""
    given = [with_elements(node, STRING, "concat_ws") if pa.types.is_list(node.type) else node for node in nodes]

    def run(separators: pa.Array, *columns: pa.Array) -> pa.Array:
        rows = len(separators)
        parts = [
            Lists.of(c if pa.types.is_list(c.type) else array_of(c, np.ones(rows, np.int64), np.zeros(rows, np.bool_))) for c in columns
        ]
        parents = np.concatenate([part.parents for part in parts])
        order = np.argsort(parents, kind="stable")
        values = pa.concat_arrays([part.values for part in parts]).take(pa.array(order))
        whole = Lists.of(array_of(values, np.bincount(parents, minlength=rows), np.zeros(rows, np.bool_)))
        return pc.binary_join(whole.where(valid(whole.values)), separators)

    return listwise(run, STRING, separator, *given, strict=False)


def _one(build: Callable[[Node], Node]) -> Signature:
    return Signature(build, 1, 1)


def _two(build: Callable[[Node, Node], Node]) -> Signature:
    return Signature(build, 2, 2)


FUNCTIONS: Final = {
    "array_repeat": _two(_repeat),
    "sequence": Signature(_sequence, 2, 3),
    "array_contains": _two(_contains),
    "array_position": _two(_position),
    "array_min": _one(partial(_extreme, 1)),
    "array_max": _one(partial(_extreme, -1)),
    "arrays_overlap": _two(_overlap),
    "array_distinct": _one(_distinct),
    "array_union": _two(_union),
    "array_intersect": _two(partial(_meeting, "array_intersect", True)),
    "array_except": _two(partial(_meeting, "array_except", False)),
    "array_append": _two(partial(_append, "array_append")),
    "array_prepend": _two(partial(_append, "array_prepend")),
    "array_insert": Signature(_insert, 3, 3),
    "array_remove": _two(_remove),
    "array_compact": _one(_compact),
    "slice": Signature(_slice, 3, 3),
    "flatten": _one(_flatten),
    "array_sort": _one(lambda a: _sorted("array_sort", a, True, False)),
    "sort_array": Signature(_sort_array, 1, 2),
    "array_join": Signature(_join, 2, 3),
}
