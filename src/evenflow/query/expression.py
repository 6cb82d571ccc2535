"""Spark SQL expressions over Arrow record batches.

`compile_expression` turns text such as "coalesce(bytes, 0) / 8" into a function from record batch to array: it is parsed once,
type-checked once by the rules of Spark's ANSI mode, and becomes a tree of Arrow kernel calls. What each piece means is in
`evenflow.query.sql`. The caller adds the box's name to the errors raised here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from decimal import InvalidOperation
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from sqlglot import exp

from evenflow.errors import ArithmeticOverflow, EvenflowError, ExpressionError, QueryError, TypeMismatch
from evenflow.query.sql.depth import SHALLOW, depth_of, room
from evenflow.query.sql.functions import AGGREGATES, aggregate_named
from evenflow.query.sql.node import DivideByZero, InvalidValue, spread
from evenflow.query.sql.parser import parse, to_sql
from evenflow.query.sql.stars import has_stars, with_columns_for_stars
from evenflow.query.sql.types import name_of
from evenflow.query.sql.walker import Walker, resolve
from evenflow.query.user.calling import Called
from evenflow.query.user.scope import in_reach, names
from evenflow.stream.schema import quoted


class Compiled:
    """An expression ready to run. text: as given. type: of the result. columns: the columns it reads, in order of first use. functions: of
    the user's that it calls, which it keeps.

    Calling it with a batch that has those columns gives an array of the batch's length; a bare column is returned as it is.
    Raises ArithmeticOverflow, DivideByZero or InvalidValue, as Spark's ANSI mode does. Pickles as its text, schema and functions.
    """

    __slots__ = ("_deep", "_run", "_schema", "columns", "functions", "text", "type")

    def __init__(self, text: str, schema: pa.Schema, functions: Mapping[str, Called] = MappingProxyType({})) -> None:
        walker = Walker(schema, functions)
        with names(functions):
            tree = parse(text)
        try:
            with room(text):
                node = walker.node(tree)
        except QueryError as error:
            error.expression, error.span = text, None if error.span is None else _closed(text, *error.span)
            raise
        self._deep = depth_of(tree) > SHALLOW
        self.text, self._schema, self.type, self._run = text, schema, node.type, node.run
        self.columns: tuple[str, ...] = tuple(walker.used)
        self.functions: Mapping[str, Called] = walker.called

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        try:
            with room(self.text) if self._deep else nullcontext():
                value = self._run(batch)
        except pa.ArrowInvalid as error:
            raise _failure(self.text, error) from None
        except (ArithmeticOverflow, DivideByZero, InvalidValue) as error:
            raise type(error)(f"{error} (in {self.text!r})") from None
        except (OverflowError, InvalidOperation) as error:
            raise ArithmeticOverflow(f"a number left the range of its type in {self.text!r}: {error}") from None
        except UnicodeError as error:
            raise InvalidValue(f"{error} (in {self.text!r})") from None
        return value if isinstance(value, pa.Array) else spread(value, batch.num_rows)

    def __reduce__(self) -> tuple[Any, tuple[str, pa.Schema, dict[str, Called]]]:
        return (Compiled, (self.text, self._schema, dict(self.functions)))

    def __repr__(self) -> str:
        return f"Compiled({self.text!r}: {name_of(self.type)})"


def _closed(text: str, start: int, end: int) -> tuple[int, int]:
    """The letters and the brackets that close behind them, of which the parser keeps no place."""
    while (bracket := text.find(")", end)) >= 0 and text.count("(", start, end) > text.count(")", start, end):
        end = bracket + 1
    return start, end


def compile_expression(text: str, schema: pa.Schema) -> Compiled:
    """The expression over batches of `schema`. A trailing `as name` must already have been removed.

    It is compiled once in a process, which takes milliseconds: a site builds the same boxes for each move, copy and group of partitions
    that comes back from its disk. Where the user's functions are in reach, a name may mean another one each time.
    Raises ExpressionError (not an expression, unknown function), UnknownColumn, TypeMismatch.
    """
    return Compiled(text, schema) if in_reach() else _compiled(text, schema.serialize().to_pybytes())


@lru_cache(maxsize=1024)
def _compiled(text: str, schema: bytes) -> Compiled:
    """schema: serialized, since schemas of other metadata are equal."""
    return Compiled(text, pa.ipc.read_schema(pa.py_buffer(schema)))


def split_alias(text: str) -> tuple[str, str | None]:
    """("a + 1", "b") for "a + 1 as b"; ("a", "a") for a bare column, ("s.a", "a") for a field; (text, None) for what has no name."""
    tree = parse(text)
    if isinstance(tree, exp.Alias):
        return to_sql(tree.this), str(tree.alias)
    if isinstance(tree, exp.Dot) and isinstance(tree.expression, exp.Identifier):
        return text, str(tree.expression.name)
    return text, str(tree.name) if isinstance(tree, exp.Column) and not isinstance(tree.this, exp.Star) else None


def fields_of(text: str, schema: pa.Schema) -> list[str]:
    """The names of the fields of an expression that is a structure. Raises TypeMismatch if it is none."""
    found = compile_expression(text, schema).type
    if not pa.types.is_struct(found):
        raise TypeMismatch(f"{text}.*: {text} is {name_of(found)}, and has no fields")
    return [field.name for field in found]


def without_stars(given: Any, schema: pa.Schema) -> Any:
    """An expression's text with columns in the place of each * that is an argument of a function, and fields in that of `s.*`:
    `struct(*)`, `hash(s.*)`. What is no text, or has none, is left as it is. Raises as `fields_of`."""
    if not isinstance(given, str) or "*" not in given or not has_stars(tree := parse(given)):
        return given

    def columns(star: exp.Expr) -> list[exp.Expr]:
        if isinstance(star, exp.Star):
            return [exp.column(name, quoted=True) for name in schema.names]
        owner = to_sql(star).removesuffix(".*")
        return [parse(f"{owner}.{quoted(name)}") for name in fields_of(owner, schema)]

    return to_sql(with_columns_for_stars(tree, columns))


def parse_aggregate(text: str, schema: pa.Schema) -> tuple[str, str | None, Mapping[str, Any]]:
    """The parts of an aggregate call: its function, its argument's text (None for `count(*)`), and its options.

    "sum(a * b)" gives ("sum", "a * b", {}). Synonyms become one name (mean is avg, stddev_samp is stddev, array_agg is
    collect_list). Options: rsd for approx_count_distinct (relative standard deviation), ignore_nulls for first and last.
    Raises ExpressionError if it is not one aggregate call, and whatever is wrong with its argument.
    """
    tree = parse(text)
    if isinstance(tree, exp.Alias):
        raise ExpressionError(f'{text!r}: give the name of the result as agg({tree.alias}="{to_sql(tree.this)}")')
    ignore_nulls = isinstance(tree, exp.IgnoreNulls)
    call = tree.this if isinstance(tree, exp.IgnoreNulls | exp.RespectNulls) else tree
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if (function := aggregate_named(name)) is None:
        raise ExpressionError(_no_aggregate(text, call))
    if not call.expressions:
        raise ExpressionError(f"{text!r}: {name} needs an argument")
    first, *rest = call.expressions
    if isinstance(first, exp.Distinct):
        raise ExpressionError(_distinct(text, function, first))
    if isinstance(first, exp.Star):
        if function != "count":
            raise ExpressionError(f"{text!r}: only count takes *")
        return function, None, {}
    if function == "count" and isinstance(first, exp.Literal):
        return function, None, {}
    argument = to_sql(first)
    compile_expression(argument, schema)
    options = _options(text, function, rest)
    return function, argument, {**options, "ignore_nulls": True} if ignore_nulls else options


def _options(text: str, function: str, rest: list[exp.Expr]) -> dict[str, Any]:
    if not rest:
        return {}
    if len(rest) == 1 and function == "approx_count_distinct" and isinstance(rest[0], exp.Literal) and not rest[0].is_string:
        return {"rsd": float(rest[0].this)}
    if len(rest) == 1 and function in ("first", "last") and isinstance(rest[0], exp.Boolean):
        return {"ignore_nulls": bool(rest[0].this)}
    raise ExpressionError(f"{text!r}: {function} does not take these further arguments: {', '.join(map(to_sql, rest))}")


def _no_aggregate(text: str, call: exp.Expr) -> str:
    known = ", ".join(sorted(set(AGGREGATES.values())))
    inner = [n for n in call.find_all(exp.Anonymous) if n.name.lower() in AGGREGATES]
    if isinstance(call, exp.Filter):
        return f"{text!r}: FILTER is not available with {call.this.name}; aggregate over CASE WHEN condition THEN value END instead"
    if inner and "distinct" in text.lower() and not call.find(exp.Distinct):
        made = to_sql(inner[0])
        return f"{text!r} is made of {made!r}; aggregate that and compute with it in a later select, or group by the values first"
    if inner:
        return f"{text!r}: the aggregate must be the outermost call; aggregate {to_sql(inner[0])!r} and compute with it in a later select"
    return f"{text!r} is not an aggregate; the aggregates are {known}"


def _distinct(text: str, function: str, argument: exp.Distinct) -> str:
    column = to_sql(argument.expressions[0]) if argument.expressions else "x"
    if function == "count":
        return f"{text!r}: distinct values are counted exactly by ef.sql; here use approx_count_distinct({column}), or group by it first"
    return f"{text!r}: DISTINCT is not available in {function}; group by {column} first"


def _failure(text: str, error: pa.ArrowInvalid) -> EvenflowError:
    """Arrow's error as the one that Spark would raise."""
    message = str(error)
    if "divide by zero" in message:
        return DivideByZero(f"division by zero in {text!r}; guard it with nullif(divisor, 0) or CASE WHEN")
    if "overflow" in message:
        return ArithmeticOverflow(f"a number left the range of its type in {text!r}; cast an operand to bigint or double first")
    return InvalidValue(f"{message} (in {text!r})")


__all__ = [
    "Compiled", "DivideByZero", "InvalidValue", "compile_expression", "parse_aggregate", "resolve", "split_alias",
]  # fmt: skip
