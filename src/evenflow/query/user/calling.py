"""How functions of the user's are called on Arrow arrays, and what becomes of what they return.

What they raise passes as it is, with the user's traceback. What they return must be of the declared type, without loss, and of the right
length: otherwise it is a TypeMismatch that names the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.query.user.aggregator import Aggregator, result_type, unpack
from evenflow.query.user.function import UserFunction
from evenflow.query.user.row import as_given
from evenflow.stream.schema import type_name
from evenflow.stream.values import NOT_OF_TYPE, array_of


class Called(Protocol):
    """What an expression calls. type: of the result."""

    @property
    def type(self) -> pa.DataType: ...

    def apply(self, arrays: Sequence[pa.Array], count: int) -> pa.Array:
        """One value per row. arrays: the arguments, each of `count` values."""


@dataclass(frozen=True, slots=True)
class OfRows:
    """A function that gives one value per row."""

    function: UserFunction

    @property
    def type(self) -> pa.DataType:
        return self.function.type

    def apply(self, arrays: Sequence[pa.Array], count: int) -> pa.Array:
        made, run = self.function, self.function.function
        what = f"the function {made.name!r}"
        if count == 0:
            return pa.array([], made.type)
        if made.takes == "rows":
            columns = [values_of(array) for array in arrays]
            return typed([run(*row) for row in zip(*columns)] if columns else [run() for _ in range(count)], made.type, what)
        if not arrays:
            raise TypeMismatch(f"{what} takes columns and is called without any, so it cannot know how many rows there are; give it one")
        given = [_column(made, array) for array in arrays]
        return _returned(_once(made, given, what), made.type, count, what)


@dataclass(frozen=True, slots=True)
class OfGroups:
    """An aggregate function over the rows of each group, which are lists of equal lengths."""

    function: UserFunction

    @property
    def type(self) -> pa.DataType:
        return self.function.type

    def apply(self, arrays: Sequence[pa.Array], count: int) -> pa.Array:
        made, what = self.function, f"the aggregate function {self.function.name!r}"
        found = []
        for rows in _groups(arrays, count):
            found.append(_plain(_once(made, [_column(made, array) for array in rows], what), made, what))
        return typed(found, made.type, what)


@dataclass(frozen=True, slots=True)
class FoldedGroups:
    """An aggregator over the rows of each group, which are lists of equal lengths."""

    aggregator: Aggregator

    @property
    def type(self) -> pa.DataType:
        return result_type(self.aggregator)

    def apply(self, arrays: Sequence[pa.Array], count: int) -> pa.Array:
        made, found = self.aggregator, []
        for rows in _groups(arrays, count):
            state = made.zero()
            for values in zip(*map(values_of, rows), strict=True):
                state = made.update(state, *values)
            found.append(made.finish(state))
        return typed(found, self.type, f"the aggregator {type(made).__name__}")


@dataclass(frozen=True, slots=True)
class Finished:
    """The results of an aggregator's states."""

    aggregator: Aggregator

    @property
    def type(self) -> pa.DataType:
        return result_type(self.aggregator)

    def apply(self, arrays: Sequence[pa.Array], count: int) -> pa.Array:
        made, (states,) = self.aggregator, arrays
        found = [made.finish(unpack(made, kept)) for kept in states.to_pylist()]
        return typed(found, self.type, f"the aggregator {type(made).__name__}")


@dataclass(frozen=True, slots=True)
class Tried:
    """The first argument of an aggregator as it is. trial: but raises where `update` raises for the row alone, on the state of no rows.

    arguments: functions of a batch. In front of an aggregate box, so that rows can be put aside before they are in any state.
    """

    aggregator: Aggregator
    text: str
    type: pa.DataType
    columns: tuple[str, ...]
    arguments: tuple[Callable[[pa.RecordBatch], pa.Array], ...]
    trial: bool = False

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        arrays = [argument(batch) for argument in self.arguments]
        if self.trial:
            for values in zip(*map(values_of, arrays), strict=True):
                self.aggregator.update(self.aggregator.zero(), *values)
        return arrays[0]


def values_of(array: pa.Array) -> list[Any]:
    """Python values; null is None, times are in UTC without saying so, structures are Rows and maps dicts, as in Spark."""
    array = _zoneless(array)
    values: list[Any] = array.to_pylist()
    given = as_given(array.type)
    return values if given is None else [given(value) for value in values]


def typed(values: Sequence[Any], type_: pa.DataType, what: str) -> pa.Array:
    """What a function returned, row by row."""
    try:
        return array_of(values, type_)
    except NOT_OF_TYPE as error:
        wrong = next((value for value in values if not _fits(value, type_)), None)
        raise TypeMismatch(f"{what} returned {wrong!r}, and is declared to return {type_name(type_)}: {error}") from error


def _fits(value: Any, type_: pa.DataType) -> bool:
    try:
        array_of([value], type_)
    except NOT_OF_TYPE:
        return False
    return True


def _groups(arrays: Sequence[pa.Array], count: int) -> Iterator[list[pa.Array]]:
    """The rows of each group, a column per argument."""
    columns = [(array.values, array.offsets.to_pylist()) for array in arrays]
    for group in range(count):
        yield [values.slice(at[group], at[group + 1] - at[group]) for values, at in columns]


def _zoneless(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    zoned = pa.types.is_timestamp(array.type) and array.type.tz is not None
    return array.cast(pa.timestamp(array.type.unit)) if zoned else array


def _column(made: UserFunction, array: pa.Array) -> Any:
    """An argument as the function takes it. In pandas, integers with nulls are floats, and dates are objects, as in Spark."""
    array = _zoneless(array)
    return array if made.takes == "arrow" else array.to_pandas(date_as_object=True, coerce_temporal_nanoseconds=True)


def _once(made: UserFunction, given: list[Any], what: str) -> Any:
    """What the function makes of these columns."""
    if not made.iterates:
        return made.function(*given)
    found = made.function(iter([given[0] if len(given) == 1 else tuple(given)]))
    if made.aggregate:
        return found
    columns = list(found)
    if len(columns) != 1:
        raise TypeMismatch(f"{what} yielded {len(columns)} columns for one; yield exactly one for each that it is given")
    return columns[0]


def _returned(value: Any, type_: pa.DataType, count: int, what: str) -> pa.Array:
    """A column that a function returned: a Series, an array, or a list."""
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if isinstance(value, str | bytes) or not hasattr(value, "__len__") or hasattr(value, "columns"):
        raise TypeMismatch(f"{what} returned {type(value).__name__}, not a column: return one value per row")
    if len(value) != count:
        raise TypeMismatch(f"{what} returned {len(value)} values for {count} rows: return exactly one value per row")
    try:
        if isinstance(value, pa.Array):
            return value if value.type == type_ else value.cast(type_)
        made = typed(value, type_, what) if isinstance(value, list) else pa.Array.from_pandas(value, type=type_, safe=True)
    except NOT_OF_TYPE as error:
        if isinstance(error, TypeMismatch):
            raise
        came = getattr(value, "dtype", None) or getattr(value, "type", "values")
        raise TypeMismatch(f"{what} returned {came}, and is declared to return {type_name(type_)}: {error}") from error
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def _plain(value: Any, made: UserFunction, what: str) -> Any:
    """One value as Python has it. What pandas has for nothing (NaN, NaT) is null, as in Spark."""
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if pa.types.is_list(made.type):
        return value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(value, str | bytes) and hasattr(value, "__len__"):
        raise TypeMismatch(f"{what} returned {type(value).__name__}, not one value: return a scalar")
    value = value.item() if hasattr(value, "item") else value
    return None if made.takes == "pandas" and value is not None and value != value else value
