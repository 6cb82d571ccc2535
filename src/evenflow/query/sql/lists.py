"""Arrays of a whole column at once: their elements in a row, how many each row has, and whose each is.

A function of arrays is one of all elements and of what says whose they are, so its cost is that of its elements, and no row of them is
looked at in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import TypeMismatch
from evenflow.query.sql.casts import cast
from evenflow.query.sql.node import Node, Value, call, lift, literal, spread
from evenflow.query.sql.types import NULL, STRING, common, name_of
from evenflow.stream.arrays import Bools, Int64s
from evenflow.stream.schema import has_map
from evenflow.stream.values import comparable, plain_values

_rank: Final = call("rank", pc.RankOptions(sort_keys="ascending", tiebreaker="dense"))


@dataclass(frozen=True, slots=True)
class Lists:
    """values: elements of all rows, in order. counts: int64, shape (rows,), 0 for null. missing: bool, shape (rows,)."""

    values: pa.Array
    counts: Int64s
    missing: Bools

    @staticmethod
    def of(array: pa.Array) -> Lists:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        counts = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        return Lists(array.flatten(), counts, missing)

    @property
    def rows(self) -> int:
        return len(self.counts)

    @property
    def parents(self) -> Int64s:
        """Row of each element: int64, shape (elements,)."""
        return np.repeat(np.arange(self.rows), self.counts)

    @property
    def starts(self) -> Int64s:
        """Place of each row's first element."""
        return np.cumsum(self.counts) - self.counts

    @property
    def places(self) -> Int64s:
        """Place of each element in its array, from 0."""
        return np.arange(len(self.values)) - np.repeat(self.starts, self.counts)

    def with_values(self, values: pa.Array) -> pa.Array:
        """The same arrays of other elements."""
        return array_of(values, self.counts, self.missing)

    def where(self, keep: Bools) -> pa.Array:
        """Those elements only."""
        return array_of(self.values.filter(pa.array(keep)), np.bincount(self.parents[keep], minlength=self.rows), self.missing)

    def any(self, holds: Bools) -> Bools:
        """Rows of which it holds for some element."""
        return np.bincount(self.parents[holds], minlength=self.rows) > 0


def array_of(values: pa.Array, counts: Int64s, missing: Bools) -> pa.Array:
    """An array column. values: in order; counts: of each row. Rows that are missing have none."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    mask = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=pa.list_(values.type), mask=mask)


def listwise(function: Callable[..., pa.Array], type: pa.DataType, *args: Node, raises: bool = False, strict: bool = True) -> Node:
    """A node that applies a function of whole columns; it is given arrays, also of what does not depend on rows."""

    def kernel(*values: Value) -> Value:
        counts = [len(value) for value in values if isinstance(value, pa.Array)]
        found = function(*(spread(value, counts[0] if counts else 1) for value in values))
        return found if counts else found[0]

    return lift(kernel, type, *args, raises=raises, strict=strict)


def element_type(node: Node, what: str) -> pa.DataType:
    """Of the elements of an array. Raises TypeMismatch if it is none."""
    if not pa.types.is_list(node.type):
        raise TypeMismatch(f"{what} needs an array, but {node.text} is {name_of(node.type)}")
    return node.type.value_type


def with_elements(node: Node, type: pa.DataType, what: str) -> Node:
    """The array with its elements cast."""
    if node.type == NULL:
        return literal(pa.scalar(None, pa.list_(type)))
    own = element_type(node, what)
    if own == type:
        return node
    element = cast(Node(own, lambda batch: batch.column(0)), type)

    def run(array: pa.Array) -> pa.Array:
        given = Lists.of(array)
        return given.with_values(spread(element.run(pa.record_batch({"": given.values})), len(given.values)))

    return listwise(run, pa.list_(type), node, raises=element.raises)


def met(what: str, *types: pa.DataType) -> pa.DataType:
    """The type in which elements meet; arrays meet in their elements'."""
    lists = [type for type in types if pa.types.is_list(type)]
    if lists and all(type == NULL or pa.types.is_list(type) for type in types):
        return pa.list_(met(what, *(type.value_type for type in lists)))
    found = common(types, what)
    return found


def as_type(node: Node, type: pa.DataType, what: str) -> Node:
    """A cast that knows arrays, too."""
    if node.type == type:
        return node
    if pa.types.is_list(type):
        return with_elements(node, type.value_type, what)
    return cast(node, type)


def codes(*arrays: pa.Array) -> list[Int64s]:
    """A number for each value, the same for equal ones and greater for greater ones; NaN is the greatest, null is greater still."""
    together = pa.concat_arrays(list(arrays))
    if together.type == NULL:
        numbers = np.zeros(len(together), np.int64)
    elif pa.types.is_nested(together.type):
        numbers = _by_text(together) if has_map(together.type) else _by_parts(together)
    else:
        numbers = _rank(together).to_numpy(zero_copy_only=False).astype(np.int64)
    return list(np.split(numbers, np.cumsum([len(array) for array in arrays])[:-1]))


def tallied(given: Lists) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """(list, number as of `codes`, a place where it is, how often it is there) of each distinct value of each list, ascending."""
    (numbers,) = codes(given.values)
    by = np.lexsort((numbers, given.parents))
    parents, found = given.parents[by], numbers[by]
    first = np.ones(len(by), np.bool_)
    first[1:] = (np.diff(parents) != 0) | (np.diff(found) != 0)
    starts = np.flatnonzero(first)
    return parents[starts], found[starts], by[starts], np.diff(np.append(starts, len(by)))


def _by_parts(array: pa.Array) -> Int64s:
    """Structures and lists, which Arrow cannot compare, in Spark's order. Each is looked at in Python."""
    keys = [comparable(value) for value in plain_values(array)]
    places = {key: place for place, key in enumerate(sorted(set(keys)))}
    return np.array([len(places) if key == _NOTHING else places[key] for key in keys], np.int64)


_NOTHING: Final = comparable(None)


def _by_text(array: pa.Array) -> Int64s:
    """Maps: equal ones have one number, in no order."""
    encoded = pc.dictionary_encode(pa.array([repr(value) for value in array.to_pylist()], STRING))
    numbers: Int64s = encoded.indices.to_numpy().astype(np.int64)
    return numbers


def firsts(parents: Int64s, numbers: Int64s) -> Bools:
    """The first of equal elements of a row."""
    found = np.zeros(len(parents), np.bool_)
    if len(parents):
        _, at = np.unique(parents * (int(numbers.max()) + 1) + numbers, return_index=True)
        found[at] = True
    return found


def among(parents: Int64s, numbers: Int64s, other_parents: Int64s, other_numbers: Int64s) -> Bools:
    """Elements that the row's other array has, too."""
    if not len(numbers) or not len(other_numbers):
        return np.zeros(len(numbers), np.bool_)
    by = int(max(numbers.max(), other_numbers.max())) + 1
    return np.isin(parents * by + numbers, other_parents * by + other_numbers)


def bools(true: Bools, null: Bools) -> pa.Array:
    return pa.array(true, mask=null)


def valid(array: pa.Array) -> Bools:
    found: Any = array.is_valid().to_numpy(zero_copy_only=False)
    return np.asarray(found, np.bool_)
