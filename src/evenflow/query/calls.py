"""What `.agg(name="...")` says: which aggregate functions are called on what, and what is made of their results.

`sum(a + b) / count(*)` is split into the calls sum(hidden) and count(*), the hidden column `a + b` before them, and an expression
over their results after them. So the aggregate box itself only ever calls functions on columns.

An aggregate function of the user's becomes calls that collect its arguments' rows, and an aggregator one call that keeps its state; the
expression after them calls what makes a result of these (`evenflow.query.user.scope`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from evenflow.errors import ExpressionError
from evenflow.query.aggregates import COLLECT_ROWS, IGNORING_NULLS, LEAST_RSD
from evenflow.query.expression import compile_expression, parse_aggregate, resolve
from evenflow.query.sql.composed import is_tried
from evenflow.query.sql.decimal_math import LIMBS, mean_type, sum_type
from evenflow.query.sql.filtered import counted, distinct_values, filtered
from evenflow.query.sql.functions import aggregate_named
from evenflow.query.sql.parser import parse, to_sql
from evenflow.query.user.aggregator import Aggregator
from evenflow.query.user.function import UserFunction
from evenflow.query.user.scope import OF_ROWS, OF_STATE, aggregate_of


@dataclass(frozen=True, slots=True)
class Call:
    """One call. column: an input column, or None; expression: what to compute first instead, or None. Neither: count(*).

    made: the user's aggregator that is called, on `arguments`, of which each is a column or an expression.
    """

    function: str
    column: str | None
    expression: str | None = None
    made: Aggregator | None = None
    arguments: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregation:
    """calls, and what becomes of them: `result` is an expression over the names given to the calls; None: the one
    call's result."""

    calls: tuple[Call, ...]
    result: str | None


def parse_aggregation(
    text: str, schema: pa.Schema, names: str = "_agg{}", *, of_rows: bool = False, known: dict[Call, str] | None = None
) -> Aggregation:
    """Split an aggregate expression over columns of `schema`. names: what the results of the calls are called in `result`.

    known: the names of calls that others have made, to which those of this one are added; such a call is not made again. of_rows:
    aggregators, too, are given the rows of a group anew each time, as where rows leave a window.

    Raises ExpressionError if it is not SQL, calls no aggregate function, or one that Evenflow does not have; UnknownColumn;
    TypeMismatch.
    """
    tree = parse(text).transform(_plainly)
    found = [node for node in tree.walk(prune=_is_aggregate) if _is_aggregate(node)]
    if not found:
        parse_aggregate(text, schema)  # It knows best what to say.
    if (
        known is None
        and len(found) == 1
        and tree.unnest() is found[0]
        and _users(found[0]) is None
        and _of_decimals(found[0], text, schema) is None
    ):
        return Aggregation((_call(found[0], text, schema),), None)
    calls: list[Call] = []
    for node in found:
        made = _users(node)
        if (exact := _of_decimals(node, text, schema)) is not None:
            mine, finish = exact
            results = [exp.column(names.format(len(calls) + number), quoted=True) for number in range(len(mine))]
            calls += mine
            total = finish(results)
            if node is tree:
                tree = total
            else:
                node.replace(total)
            continue
        mine = (_call(node, text, schema),) if made is None else _user_calls(node, made, text, schema, of_rows=of_rows)
        named = [names.format(len(calls) + number) for number in range(len(mine))]
        seen = None if known is None or made is not None else known.setdefault(mine[0], named[0])
        if seen is None or seen == named[0]:
            calls += mine
        results = [exp.column(name, quoted=True) for name in ([seen] if seen is not None else named)]
        if made is None:
            after: exp.Expr = results[0]
        else:
            prefix = OF_ROWS if mine[0].made is None else OF_STATE
            after = exp.Anonymous(this=f"{prefix}{node.name.lower()}", expressions=results)
        if node is tree:
            tree = after
        else:
            node.replace(after)
    return Aggregation(tuple(calls), to_sql(tree))


def _plainly(node: exp.Expr) -> exp.Expr:
    """A call that has to be said by others."""
    found = filtered(node) if isinstance(node, exp.Filter) else None
    node = node if found is None else found
    values = distinct_values(node)
    return counted(values) if values else node


def _is_aggregate(node: exp.Expr) -> bool:
    if isinstance(node, exp.Filter | exp.Window | exp.IgnoreNulls | exp.RespectNulls):
        return True
    return isinstance(node, exp.Anonymous) and (aggregate_named(node.name) or _users(node)) is not None


def _users(node: exp.Expr) -> UserFunction | Aggregator | None:
    """The user's aggregate that a node calls."""
    return aggregate_of(node.name) if isinstance(node, exp.Anonymous) else None


def _of_decimals(node: exp.Expr, text: str, schema: pa.Schema) -> tuple[tuple[Call, ...], Callable[[Sequence[exp.Expr]], exp.Expr]] | None:
    """A sum or an average of decimals: the calls that it is made of, which are sums of whole numbers, and what is made of their results.
    None for any other call."""
    function = aggregate_named(node.name) if isinstance(node, exp.Anonymous) else None
    if function not in ("sum", "avg") or len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Distinct | exp.Star):
        return None
    argument = to_sql(node.expressions[0])
    given: Any = compile_expression(argument, schema).type
    if not pa.types.is_decimal(given):
        return None
    tried = "try_" if is_tried(node.expressions[0]) else ""
    sums = tuple(Call("sum", None, f"_limb({argument}, {at})") for at in range(LIMBS))
    if function == "sum":
        made = sum_type(given)
        return sums, lambda parts: _finished(f"_decimal_{tried}sum", parts, made.precision, made.scale)
    made = mean_type(given)
    counted = _argument("count", argument, schema)
    return (*sums, counted), lambda parts: _finished(f"_decimal_{tried}avg", parts, made.precision, made.scale, given.scale)


def _finished(name: str, parts: Sequence[exp.Expr], *numbers: int) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=[*parts, *(exp.Literal.number(number) for number in numbers)])


def _user_calls(node: exp.Expr, made: UserFunction | Aggregator, text: str, schema: pa.Schema, *, of_rows: bool) -> tuple[Call, ...]:
    """What an aggregate box does of a call of the user's aggregate."""
    if not node.expressions:
        raise ExpressionError(f"{text!r}: {node.name} needs an argument")
    for argument in node.expressions:
        if isinstance(argument, exp.Distinct | exp.Star):
            raise ExpressionError(f"{text!r}: {node.name} takes no DISTINCT and no *; name its columns")
        if any(_is_aggregate(inner) for inner in argument.walk()):
            raise ExpressionError(f"{text!r}: an aggregate cannot be inside an aggregate; compute the inner one in a query before")
    if isinstance(made, Aggregator) and not of_rows:
        arguments = tuple(_argument("", to_sql(argument), schema) for argument in node.expressions)
        return (Call(node.name.lower(), None, None, made, arguments),)
    return tuple(_argument(COLLECT_ROWS, to_sql(argument), schema) for argument in node.expressions)


def _argument(function: str, argument: str, schema: pa.Schema) -> Call:
    """A call of a function on a column, or on an expression that must be computed before."""
    tree = parse(argument)
    if isinstance(tree, exp.Column) and not tree.table:
        return Call(function, resolve(tree.name, schema))
    return Call(function, None, argument)


def _call(node: exp.Expr, text: str, schema: pa.Schema) -> Call:
    function, argument, options = parse_aggregate(to_sql(node), schema)
    if options.get("rsd", 1.0) < LEAST_RSD:
        raise ExpressionError(
            f"{text!r}: approx_count_distinct has a relative standard deviation of 0.05 here, and cannot have {options['rsd']:g}; leave it "
            f"out or ask for at least {LEAST_RSD}, or count exactly with count(DISTINCT x) of ef.sql in a window"
        )
    if options.get("ignore_nulls"):
        if function not in IGNORING_NULLS:
            raise ExpressionError(f"{text!r}: IGNORE NULLS is for first and last; {function} leaves nulls out anyway")
        function = IGNORING_NULLS[function]
    if argument is not None and function == "stddev" and pa.types.is_decimal(compile_expression(argument, schema).type):
        argument = to_sql(exp.cast(parse(argument), "double"))
    return Call(function, None) if argument is None else _argument(function, argument, schema)
