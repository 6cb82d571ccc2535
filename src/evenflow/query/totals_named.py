"""Totals of groups as PySpark names them: `groups.sum("x")`, whose column is `sum(x)`, and `agg({"x": "max"})`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from evenflow.errors import QueryError
from evenflow.query.absent import absent
from evenflow.query.given import names_of
from evenflow.query.shaping import ShapedStream
from evenflow.stream.schema import is_number, quoted

S = TypeVar("S", bound=ShapedStream)


class NamedTotals(Generic[S]):
    """What has `agg` has these, too."""

    stream: S
    keys: tuple[str, ...]

    if not TYPE_CHECKING:  # A type checker knows which attributes there are.

        def __getattr__(self, name: str) -> NoReturn:
            """Only called for what is not there: see `HandledStream`."""
            raise AttributeError(absent(type(self).__name__, name, []), name=name, obj=self)

    def agg(self, *expressions: Any, **named: Any) -> S:
        raise NotImplementedError(f"{type(self).__name__} must say what its totals are")

    def count(self) -> S:
        """The number of rows, in column `count`."""
        return self.agg(count="count(*)")

    def sum(self, *columns: Any, **how: Any) -> S:
        """`sum(x)` of each of these columns, or of all numbers that are no keys. how: as in `agg`, mode="changelog"."""
        return self._each("sum", columns, how)

    def avg(self, *columns: Any, **how: Any) -> S:
        """`avg(x)` of each: see `sum`."""
        return self._each("avg", columns, how)

    mean = avg

    def min(self, *columns: Any, **how: Any) -> S:
        """`min(x)` of each: see `sum`."""
        return self._each("min", columns, how)

    def max(self, *columns: Any, **how: Any) -> S:
        """`max(x)` of each: see `sum`."""
        return self._each("max", columns, how)

    def _each(self, function: str, columns: tuple[Any, ...], how: Mapping[str, Any]) -> S:
        names = names_of("aggregate", function, columns)
        if not names:
            numbers = (field for field in self.stream.schema if is_number(field.type))
            names = tuple(field.name for field in numbers if field.name not in self.keys)
        if not names:
            raise QueryError(f"box 'aggregate': {function}() of all numbers, and there are none; name columns, such as {function}('x')")
        return self.agg(*(_call(function, name) for name in names), **how)


def named_calls(given: Iterable[Any]) -> Iterator[Any]:
    """What `agg` is given, with `{"x": "max"}` written out."""
    for each in given:
        if isinstance(each, Mapping):
            yield from (_call(str(function), str(column)) for column, function in each.items())
        else:
            yield each


def _call(function: str, column: str) -> str:
    if column == "*":
        return f"{function}(*) AS {quoted(f'{function}(1)')}"
    return f"{function}({quoted(column)}) AS {quoted(f'{function}({column})')}"


__all__ = ["NamedTotals", "named_calls"]
