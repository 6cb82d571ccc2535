"""Nodes: a compiled piece of an expression, and how pieces are put together.

A node knows its type and how to compute itself over a batch; it may give a scalar instead of an array when it does not depend
on the rows. Everything is decided when the node is built, so that running it is a chain of Arrow kernel calls and nothing else.
This file knows nothing about SQL text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import InvalidOperation
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import EvenflowError
from evenflow.query.sql.folding import LARGEST, affordable, size_of

Value = Any
"""pa.Array of the batch's length, or pa.Scalar when the node does not depend on rows."""

Run = Callable[[pa.RecordBatch], Value]
Kernel = Callable[..., Value]


class DivideByZero(EvenflowError, ArithmeticError):
    """A number was divided by zero, as in Spark's DIVIDE_BY_ZERO."""


class InvalidValue(EvenflowError, ValueError):
    """A value cannot be cast to the type asked for, as in Spark's CAST_INVALID_INPUT."""


FAILURES = (pa.ArrowInvalid, EvenflowError, OverflowError, UnicodeError, InvalidOperation)
"""What running a node may raise because of the values of some row."""

NO_ROWS: Any = None


@dataclass(frozen=True, slots=True)
class Node:
    """type: of the result. run: computes it. constant: the value if it is known already. text: for messages.

    raises: it may refuse some value (overflow, division by zero, cast), so it may only see the rows that Spark would show it.
    unit: the last unit of an interval (`UNITS`), or of a list's, which Spark has in its type; empty if it is not known, as of a column.
    """

    type: pa.DataType
    run: Run
    constant: pa.Scalar | None = None
    raises: bool = False
    text: str = ""
    unit: str = ""


UNITS: Final = ("day", "hour", "minute", "second")


def measured(node: Node, unit: str) -> Node:
    """The interval with its last unit, which is one of `UNITS`, or not known."""
    return replace(node, unit=unit)


def unit_of(nodes: Sequence[Node]) -> str:
    """The last unit of what is any of these intervals, or their sum: the shortest. Empty if one is not known; a null needs none."""
    units = [node.unit for node in nodes if node.unit or node.constant is None or node.constant.is_valid]
    return max(units, key=UNITS.index) if units and all(units) else ""


def literal(value: pa.Scalar, text: str = "") -> Node:
    return Node(value.type, lambda batch: value, value, False, text)


def call(name: str, options: pc.FunctionOptions | None = None) -> Kernel:
    """The Arrow compute function `name` as a Python callable, without the wrapper's argument handling (half a microsecond)."""
    invoke = pc.get_function(name).call
    if options is None:
        return lambda *args: invoke(args)
    return lambda *args: invoke(args, options)


def lift(
    kernel: Kernel, type: pa.DataType, *args: Node, raises: bool = False, strict: bool = True, order: Sequence[int] | None = None
) -> Node:
    """A node that applies `kernel` to the values of `args`. Folded now if all are constant, that is little work, and it does not fail.

    strict: it is null where an argument is; then, as in Spark, an argument is not computed where one before it is null. order: in
    which the arguments are computed, if not from left to right.
    """
    run = _chain(kernel, args)
    turns = tuple(range(len(args))) if order is None else tuple(order)
    if strict and any(args[k].raises for k in turns[1:]):
        run = _in_turn(run, kernel, type, args, turns)
    if args and all(a.constant is not None for a in args) and affordable([a.constant for a in args]):
        try:
            constant = run(NO_ROWS)
        except FAILURES:
            pass  # It fails when, and only when, a row asks for it.
        else:
            if isinstance(constant, pa.Scalar) and size_of(constant) <= LARGEST:
                return literal(constant if constant.type == type else constant.cast(type))
    return Node(type, run, None, raises or any(a.raises for a in args))


def _chain(kernel: Kernel, args: Sequence[Node]) -> Run:
    """Specialised by arity, and for constants on either side, because this is the cost of every call."""
    if len(args) == 1:
        first = args[0].run
        return lambda batch: kernel(first(batch))
    if len(args) == 2:
        left, right = args[0].run, args[1].run
        if args[1].constant is not None:
            value = args[1].constant
            return lambda batch: kernel(left(batch), value)
        return lambda batch: kernel(left(batch), right(batch))
    runs = tuple(a.run for a in args)
    return lambda batch: kernel(*[run(batch) for run in runs])


def _in_turn(run: Run, kernel: Kernel, type: pa.DataType, args: Sequence[Node], turns: Sequence[int]) -> Run:
    """`run`, and if some row fails, once more with each argument only for the rows where those before it are not null."""

    def each(batch: pa.RecordBatch) -> Value:
        count, values = batch.num_rows, dict[int, pa.Array]()
        rows = np.arange(count)
        for turn in turns:
            value = _on_rows(args[turn], batch)
            there = value.is_valid()
            keep = there.to_numpy(zero_copy_only=False)
            rows, batch = rows[keep], batch.filter(there)
            values = {k: v.filter(there) for k, v in values.items()} | {turn: value.filter(there)}
        found = spread(kernel(*[values[k] for k in range(len(args))]), len(rows)) if len(rows) else pa.array([], type)
        return scatter(found, rows, count)

    def guarded(batch: pa.RecordBatch) -> Value:
        try:
            return run(batch)
        except FAILURES:
            if batch is NO_ROWS:
                raise
            return each(batch)

    return guarded


def scatter(values: pa.Array, rows: npt.NDArray[np.int64], count: int) -> pa.Array:
    """An array of `count` rows that has `values` at `rows`, and null elsewhere."""
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


def attempt(node: Node) -> Node:
    """The node, null in the rows where it would fail."""
    if not node.raises:
        return node

    def one(batch: pa.RecordBatch) -> pa.Array:
        try:
            return spread(node.run(batch), batch.num_rows)
        except FAILURES:
            return pa.nulls(batch.num_rows, node.type)

    def run(batch: pa.RecordBatch) -> Value:
        try:
            return node.run(batch)
        except FAILURES:
            if batch is NO_ROWS:
                raise
            pieces = [one(batch.slice(row, 1)) for row in range(batch.num_rows)]
            return pa.concat_arrays(pieces) if pieces else pa.array([], node.type)

    return Node(node.type, run, node.constant, False, node.text, node.unit)


def rowwise(function: Callable[..., Any], type: pa.DataType, *args: Node, raises: bool = False, nulls: bool = False) -> Node:
    """A node that calls a Python function per row, for what Arrow has no kernel. Null if any argument is null, unless `nulls`.

    The function must depend on its arguments only: where one column of texts decides, it is called once for each that occurs often.
    """

    def one(values: Sequence[Any]) -> Any:
        return None if not nulls and None in values else function(*values)

    def kernel(*values: Value) -> Value:
        arrays = [v for v in values if isinstance(v, pa.Array)]
        if not arrays:
            return pa.scalar(one([v.as_py() for v in values]), type)
        count = len(arrays[0])
        if len(arrays) == 1 and pa.types.is_string(arrays[0].type):
            # Finding equal texts costs a twentieth of a call.
            encoded = pc.dictionary_encode(arrays[0], null_encoding="encode")
            if 2 * len(encoded.dictionary) < count:
                return kernel(*(encoded.dictionary if v is arrays[0] else v for v in values)).take(encoded.indices)
        columns = [v.to_pylist() if isinstance(v, pa.Array) else [v.as_py()] * count for v in values]
        return pa.array([one(row) for row in zip(*columns)], type)

    return lift(kernel, type, *args, raises=raises, strict=not nulls)


def spread(value: Value, count: int) -> pa.Array:
    """`value` as an array of `count` rows."""
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, count)
    return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value


def holds(value: Value, count: int) -> npt.NDArray[np.bool_]:
    """Where a condition is true (not null, not false): bool, shape (count,)."""
    mask: npt.NDArray[np.bool_] = pc.fill_null(spread(value, count), False).to_numpy(zero_copy_only=False)
    return mask


_if_else = call("if_else")
_coalesce = call("coalesce")
_FALSE = pa.scalar(False)


def choose(cases: Sequence[tuple[Node, Node]], default: Node) -> Node:
    """CASE WHEN: the value of the first case whose condition is true. All values have the default's type.

    A value that may fail is only computed for the rows that take it, as Spark does: first it is tried on all rows, which is
    the fast way, and if some row fails, once more on the rows that are meant.
    """
    type = default.type
    nodes = [n for case in cases for n in case] + [default]
    unit = unit_of([*(value for _, value in cases), default]) if pa.types.is_duration(type) else ""

    def eager(batch: pa.RecordBatch) -> Value:
        result = default.run(batch)
        for condition, value in reversed(cases):
            result = _if_else(_coalesce(condition.run(batch), _FALSE), value.run(batch), result)
        return result

    def by_rows(batch: pa.RecordBatch) -> Value:
        rows = np.arange(batch.num_rows)
        taken, pieces = [], []
        for condition, value in cases:
            mask = holds(_on_rows(condition, batch), batch.num_rows)
            taken.append(rows[mask])
            pieces.append(_on_rows(value, batch.filter(pa.array(mask))))
            rows, batch = rows[~mask], batch.filter(pa.array(~mask))
        taken.append(rows)
        pieces.append(_on_rows(default, batch))
        order = np.argsort(np.concatenate(taken), kind="stable")
        return pa.concat_arrays(pieces).take(pa.array(order))

    def guarded(batch: pa.RecordBatch) -> Value:
        try:
            return eager(batch)
        except FAILURES:
            if batch is NO_ROWS:
                raise
            return by_rows(batch)

    if all(n.constant is not None for n in nodes):
        return measured(literal(eager(NO_ROWS)), unit)
    raises = any(n.raises for n in nodes)
    return Node(type, guarded if raises else eager, None, raises, unit=unit)


def _on_rows(node: Node, batch: pa.RecordBatch) -> pa.Array:
    """The node over the rows that take it; over no rows it is not run at all, because a constant may fail too."""
    if batch.num_rows == 0:
        return pa.array([], node.type)
    return spread(node.run(batch), batch.num_rows)
