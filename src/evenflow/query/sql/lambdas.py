"""Functions that are given a function: transform, filter, exists, forall, aggregate, zip_with, array_sort; of maps map_filter,
transform_keys, transform_values.

`x -> f(x, column)` is compiled as an expression over all elements of all rows at once, in which the variables are columns, and so are
those columns of the row that it names. Only `aggregate`, in which each step needs the one before it, goes from place to place, of all
rows together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql.compared import order_of
from evenflow.query.sql.lists import Lists, array_of, as_type, bools, codes, element_type, valid, with_elements
from evenflow.query.sql.nested import checked_map, map_type
from evenflow.query.sql.node import FAILURES, Node, Value, holds, scatter, spread
from evenflow.query.sql.parser import render
from evenflow.query.sql.shapes import entries_of, lengths_of, map_from, mask_of, owners_of
from evenflow.query.sql.types import BOOL, INT, NULL, integral, name_of
from evenflow.query.user.scope import called_name
from evenflow.stream.arrays import Int64s


class Walker(Protocol):
    """Who compiles expressions: see `evenflow.query.sql.walker`."""

    used: dict[str, None]
    called: dict[str, Any]
    variables: Mapping[str, tuple[str, pa.DataType]]

    def node(self, tree: exp.Expr) -> Node: ...

    def nodes(self, trees: Iterable[exp.Expr]) -> list[Node]: ...

    def within(self, variables: Mapping[str, tuple[str, pa.DataType]]) -> Walker: ...


Build = Callable[[Walker, exp.Expr, Sequence[exp.Expr]], Node]


@dataclass(frozen=True, slots=True)
class Body:
    """A lambda ready to run. node: over a batch of variables and columns. variables: their hidden names. outer: of the columns it reads."""

    node: Node
    variables: tuple[str, ...]
    outer: tuple[str, ...]

    def over(self, batch: pa.RecordBatch, rows: Int64s, *values: pa.Array) -> pa.Array:
        """One value for each of the given ones. rows: of the batch, whose columns belong to each."""
        columns = dict(zip(self.variables, values, strict=False))
        at = pa.array(rows)
        columns |= {name: batch.column(name).take(at) for name in self.outer}
        return spread(self.node.run(pa.record_batch(columns)), len(rows))


def _body(walker: Walker, tree: exp.Expr, types: Sequence[pa.DataType], what: str) -> Body:
    """types: of what the function is given; it may take fewer."""
    if not isinstance(tree, exp.Lambda):
        raise ExpressionError(f"{what} needs a function such as x -> x + 1, not {render(tree)!r}")
    names = [variable.name.lower() for variable in tree.expressions]
    if not 1 <= len(names) <= len(types):
        raise ExpressionError(f"{what} gives its function {len(types)} values, and {render(tree)!r} takes {len(names)}")
    hidden = tuple(f"\0{len(walker.variables)} {name}" for name in names)
    inner = walker.within(dict(zip(names, zip(hidden, types, strict=False), strict=True)))
    node = inner.node(tree.this)
    outer = tuple(name for name in inner.used if name not in hidden)
    walker.used.update(dict.fromkeys(outer))
    walker.called.update(inner.called)
    return Body(node, hidden, outer)


def _boolean(body: Body, what: str) -> Body:
    if body.node.type not in (BOOL, NULL):
        raise TypeMismatch(f"the function of {what} gives {name_of(body.node.type)}, and must give a boolean")
    return body if body.node.type == BOOL else Body(as_type(body.node, BOOL, what), body.variables, body.outer)


def _elementwise(
    walker: Walker, tree: exp.Expr, what: str, given: Sequence[exp.Expr], *, of: pa.DataType | None = None
) -> tuple[Node, Body]:
    """The array of a call, and its function of an element and its place."""
    if len(given) != 2:
        raise ExpressionError(f"{render(tree)!r}: {what} takes an array and a function")
    array = walker.node(given[0])
    element = element_type(array, what)
    return with_elements(array, element, what), _body(walker, given[1], [element, INT], what)


def _run(array: Node, body: Body, finish: Callable[[Lists, pa.Array], pa.Array]) -> Callable[[pa.RecordBatch], Value]:
    def run(batch: pa.RecordBatch) -> Value:
        given = Lists.of(spread(array.run(batch), batch.num_rows))
        return finish(given, body.over(batch, given.parents, given.values, pa.array(given.places, INT)))

    return run


def _transform(walker: Walker, tree: exp.Expr, given: Sequence[exp.Expr]) -> Node:
    array, body = _elementwise(walker, tree, "transform", given)
    return Node(pa.list_(body.node.type), _run(array, body, lambda lists, values: lists.with_values(values)), None, _raises(array, body))


def _filter(walker: Walker, tree: exp.Expr, given: Sequence[exp.Expr]) -> Node:
    array, body = _elementwise(walker, tree, "filter", given)
    body = _boolean(body, "filter")
    return Node(array.type, _run(array, body, lambda lists, found: lists.where(holds(found, len(found)))), None, _raises(array, body))


def _some(what: str) -> Callable[[Walker, exp.Expr, Sequence[exp.Expr]], Node]:
    """exists and forall, in the logic of three values."""
    decisive = what == "exists"

    def build(walker: Walker, tree: exp.Expr, given: Sequence[exp.Expr]) -> Node:
        array, body = _elementwise(walker, tree, what, given)
        body = _boolean(body, what)

        def finish(lists: Lists, found: pa.Array) -> pa.Array:
            decided = lists.any(holds(found if decisive else pc.invert(found), len(found)))
            unknown = lists.any(~valid(found))
            return bools(decided == decisive, lists.missing | (unknown & ~decided))

        at_once = _run(array, body, finish)

        def guarded(batch: pa.RecordBatch) -> Value:
            try:
                return at_once(batch)
            except FAILURES:
                lists = Lists.of(spread(array.run(batch), batch.num_rows))
                return finish(lists, _until(decisive, lists, body, batch))

        return Node(BOOL, guarded if body.node.raises else at_once, None, _raises(array, body))

    return build


def _until(decisive: bool, lists: Lists, body: Body, batch: pa.RecordBatch) -> pa.Array:
    """What a condition is of each element up to the one that decides its row; of those behind it, which nobody asks, what it is not."""
    answers, known = np.full(len(lists.values), not decisive), np.ones(len(lists.values), np.bool_)
    rows, place = np.flatnonzero(lists.counts > 0), 0
    while len(rows):
        at = lists.starts[rows] + place
        found = body.over(batch, rows, lists.values.take(pa.array(at)), pa.repeat(pa.scalar(place, INT), len(rows)))
        answers[at], known[at] = holds(found, len(found)), valid(found)
        place += 1
        rows = rows[((answers[at] != decisive) | ~known[at]) & (lists.counts[rows] > place)]
    return bools(answers, ~known)


def _zip_with(walker: Walker, tree: exp.Expr, given: Sequence[exp.Expr]) -> Node:
    """The shorter array is filled up with nulls."""
    if len(given) != 3:
        raise ExpressionError(f"{render(tree)!r}: zip_with takes two arrays and a function")
    left, right = walker.nodes(given[:2])
    body = _body(walker, given[2], [element_type(left, "zip_with"), element_type(right, "zip_with")], "zip_with")

    def run(batch: pa.RecordBatch) -> Value:
        one, other = (Lists.of(spread(node.run(batch), batch.num_rows)) for node in (left, right))
        missing = one.missing | other.missing
        counts = np.where(missing, 0, np.maximum(one.counts, other.counts))
        parents = np.repeat(np.arange(len(counts)), counts)
        places = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
        sides = [side.values.take(_at(side, parents, places)) for side in (one, other)]
        return array_of(body.over(batch, parents, *sides), counts, missing)

    return Node(pa.list_(body.node.type), run, None, _raises(left, body) or right.raises)


def _at(side: Lists, parents: Int64s, places: Int64s) -> pa.Array:
    there = places < side.counts[parents]
    return pa.array(np.where(there, side.starts[parents] + places, 0), mask=~there)


def _aggregate(walker: Walker, tree: exp.Expr, given: Sequence[exp.Expr]) -> Node:
    if not 3 <= len(given) <= 4:
        raise ExpressionError(f"{render(tree)!r}: aggregate takes an array, a value to begin with, and one or two functions")
    array, zero = walker.nodes(given[:2])
    element = element_type(array, "aggregate")
    merge = _body(walker, given[2], [zero.type, element], "aggregate")
    if merge.node.type != zero.type:
        if zero.type != NULL and not (integral(zero.type) and integral(merge.node.type)):
            raise TypeMismatch(
                f"{render(tree)!r}: the function gives {name_of(merge.node.type)}, and begins with {name_of(zero.type)}; cast that"
            )
        if zero.type == NULL:
            raise TypeMismatch(f"{render(tree)!r}: it begins with void; cast the null to the type of the result")
        merge = Body(as_type(merge.node, zero.type, "aggregate"), merge.variables, merge.outer)
    finish = _body(walker, given[3], [zero.type], "aggregate") if len(given) == 4 else None
    type = zero.type if finish is None else finish.node.type

    def run(batch: pa.RecordBatch) -> Value:
        lists = Lists.of(spread(array.run(batch), batch.num_rows))
        asked = rows = np.flatnonzero(~lists.missing)  # Nothing is computed of rows without an array.
        if not len(rows):
            return pa.nulls(batch.num_rows, type)
        state = spread(zero.run(batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))), len(rows))
        done_rows, done = list[Int64s](), list[pa.Array]()
        place = 0
        while len(rows):
            ends = lists.counts[rows] == place
            if ends.any():
                done_rows.append(rows[ends])
                done.append(state.filter(pa.array(ends)))
                rows, state = rows[~ends], state.filter(pa.array(~ends))
                continue
            state = merge.over(batch, rows, state, lists.values.take(pa.array(lists.starts[rows] + place)))
            place += 1
        whole = pa.concat_arrays(done).take(pa.array(np.argsort(np.concatenate(done_rows), kind="stable")))
        if finish is not None:
            whole = finish.over(batch, asked, whole)
        return whole if len(asked) == batch.num_rows else scatter(whole, asked, batch.num_rows)

    return Node(type, run, None, _raises(array, merge) or zero.raises or (finish is not None and finish.node.raises))


def _array_sort(walker: Walker, tree: exp.Expr, given: Sequence[exp.Expr]) -> Node:
    """By a function of two elements, which is asked of all pairs of a row at once: its cost is half the square of an array's length."""
    array = walker.node(given[0])
    element = element_type(array, "array_sort")
    body = _body(walker, given[1], [element, element], "array_sort")
    if body.node.type != INT:
        raise TypeMismatch(f"{render(tree)!r}: the function of array_sort gives {name_of(body.node.type)}, and must give an int")

    if element == NULL:  # Spark sorts none of these, and so asks nothing.
        return array

    def run(batch: pa.RecordBatch) -> Value:
        lists = Lists.of(spread(array.run(batch), batch.num_rows))
        parents, values = lists.parents, lists.values

        def told(one: Int64s, other: Int64s) -> pa.Array:
            return body.over(batch, parents[one], values.take(pa.array(one)), values.take(pa.array(other)))

        return lists.with_values(values.take(pa.array(order_of(lists, told))))

    return Node(array.type, run, None, True)


# Maps


def _entries(walker: Walker, tree: exp.Expr, what: str, given: Sequence[exp.Expr]) -> tuple[Node, Body]:
    """The map of a call, and its function of a key and a value."""
    if len(given) != 2:
        raise ExpressionError(f"{render(tree)!r}: {what} takes a map and a function")
    node = walker.node(given[0])
    if not pa.types.is_map(node.type):
        raise TypeMismatch(f"{what} needs a map, but {node.text} is {name_of(node.type)}")
    body = _body(walker, given[1], [node.type.key_type, node.type.item_type], what)
    if len(body.variables) != 2:
        raise ExpressionError(f"{render(tree)!r}: the function of {what} takes a key and a value")
    return node, body


def _over_entries(what: str) -> Build:
    """map_filter, transform_keys and transform_values."""

    def build(walker: Walker, tree: exp.Expr, given: Sequence[exp.Expr]) -> Node:
        node, body = _entries(walker, tree, what, given)
        body = _boolean(body, what) if what == "map_filter" else body
        type_ = {
            "map_filter": lambda: node.type,
            "transform_keys": lambda: map_type(body.node.type, node.type.item_type),
            "transform_values": lambda: map_type(node.type.key_type, body.node.type),
        }[what]()

        def run(batch: pa.RecordBatch) -> Value:
            array = spread(node.run(batch), batch.num_rows)
            lengths, (keys, items) = lengths_of(array), entries_of(array)
            made = body.over(batch, owners_of(lengths), keys, items)
            if what == "transform_values":
                return map_from(lengths, keys, made, mask_of(array))
            if what == "transform_keys":
                return checked_map(lengths, made, items, mask_of(array))
            keep = holds(made, len(made))
            counts = np.bincount(owners_of(lengths)[keep], minlength=len(array))
            return map_from(counts, keys.filter(pa.array(keep)), items.filter(pa.array(keep)), mask_of(array))

        return Node(type_, run, None, _raises(node, body) or what == "transform_keys")

    return build


def _map_zip_with(walker: Walker, tree: exp.Expr, given: Sequence[exp.Expr]) -> Node:
    """A map of all keys of both, those of the first one first; a value that a map does not have is null."""
    if len(given) != 3:
        raise ExpressionError(f"{render(tree)!r}: map_zip_with takes two maps and a function")
    left, right = walker.nodes(given[:2])
    for node in (left, right):
        if not pa.types.is_map(node.type):
            raise TypeMismatch(f"map_zip_with needs maps, but {node.text} is {name_of(node.type)}")
    if left.type.key_type != right.type.key_type:
        raise TypeMismatch(f"map_zip_with: the keys of {left.text} and {right.text} are of different types; cast one of them")
    body = _body(walker, given[2], [left.type.key_type, left.type.item_type, right.type.item_type], "map_zip_with")
    if len(body.variables) != 3:
        raise ExpressionError(f"{render(tree)!r}: the function of map_zip_with takes a key and two values")
    type_ = map_type(left.type.key_type, body.node.type)

    def run(batch: pa.RecordBatch) -> Value:
        sides = [spread(node.run(batch), batch.num_rows) for node in (left, right)]
        missing = np.logical_or.reduce([~valid(side) for side in sides])
        owners = [owners_of(lengths_of(side)) for side in sides]
        keys, items = zip(*(entries_of(side) for side in sides), strict=True)
        size = len(keys[0])
        parents, (numbers,) = np.concatenate(owners), codes(pa.concat_arrays(list(keys)))
        pairs = parents * (int(numbers.max(initial=0)) + 1) + numbers
        _, first, group = np.unique(pairs, return_index=True, return_inverse=True)
        places = [np.full(len(first), -1, np.int64) for _ in sides]
        for at, end in ((1, len(pairs)), (0, size)):
            begin = size if at else 0
            places[at][group[begin:end][::-1]] = np.arange(end - begin)[::-1]
        order = np.argsort(parents[first] * (len(pairs) + 1) + first, kind="stable")
        order = order[~missing[parents[first][order]]]
        held = [item.take(pa.array(np.maximum(p[order], 0), mask=p[order] < 0)) for item, p in zip(items, places, strict=True)]
        own = parents[first][order]
        key = pa.concat_arrays(list(keys)).take(pa.array(first[order]))
        made = body.over(batch, own, key, *held)
        counts = np.bincount(own, minlength=batch.num_rows)
        return map_from(counts, key, made, pa.array(missing) if missing.any() else None)

    return Node(type_, run, None, _raises(left, body) or right.raises)


def _raises(array: Node, body: Body) -> bool:
    return array.raises or body.node.raises


HIGHER: Final[Mapping[str, Build]] = {
    "transform": _transform, "filter": _filter, "exists": _some("exists"), "any_match": _some("exists"), "forall": _some("forall"),
    "aggregate": _aggregate, "reduce": _aggregate, "zip_with": _zip_with, "array_sort": _array_sort,
    "map_filter": _over_entries("map_filter"), "transform_keys": _over_entries("transform_keys"),
    "transform_values": _over_entries("transform_values"), "map_zip_with": _map_zip_with,
}  # fmt: skip


def is_higher(tree: exp.Expr, arguments: Sequence[Any]) -> bool:
    """Whether a call is given a function."""
    return any(isinstance(argument, exp.Lambda) for argument in arguments) and called_name(tree.name) in HIGHER
