"""What `.agg(name="...")` says: which aggregate functions are called on what, and what is made of their results.

`sum(a + b) / count(*)` is split into the calls sum(hidden) and count(*), the hidden column `a + b` before them, and an expression
over their results after them. So the aggregate box itself only ever calls functions on columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from evenflow.errors import ExpressionError

NODES: Final[Mapping[type[exp.Expression], str]] = {
    exp.Count: "count", exp.Sum: "sum", exp.Min: "min", exp.Max: "max", exp.Avg: "avg", exp.Stddev: "stddev", exp.StddevSamp: "stddev",
    exp.ApproxDistinct: "approx_count_distinct", exp.First: "first", exp.Last: "last", exp.FirstValue: "first", exp.LastValue: "last",
    exp.AnyValue: "first", exp.ArrayAgg: "collect_list",
}  # fmt: skip
FUNCTIONS: Final = tuple(dict.fromkeys(NODES.values()))
_AS: Final = re.compile(r"^(.*\S)\s+as\s+(?:`((?:[^`]|``)+)`|(\w+))\s*$", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Call:
    """One call. argument: an expression over the input's columns, a plain name if it is a column; None for count(*)."""

    function: str
    argument: str | None


@dataclass(frozen=True, slots=True)
class Aggregation:
    """calls, and what becomes of them: `result` is an expression over the names given to the calls; None: the one call's result."""

    calls: tuple[Call, ...]
    result: str | None


def parse_aggregation(text: str, names: str = "_agg{}") -> Aggregation:
    """Split an aggregate expression in Spark SQL. names: what the results of the calls are called in `result`.

    Raises ExpressionError if it is not SQL, calls no aggregate function, or one that Evenflow does not have.
    """
    try:
        tree = sqlglot.parse_one(text, read="spark")
    except SqlglotError as error:
        raise ExpressionError(f"{text!r} is not a Spark SQL expression: {str(error).splitlines()[0]}") from error
    found = [node for node in tree.walk(prune=_is_aggregate) if _is_aggregate(node)]
    if not found:
        raise ExpressionError(f"{text!r} calls no aggregate function; use one of {', '.join(FUNCTIONS)}, for example 'max({text})'")
    calls = tuple(_call(node, text) for node in found)
    if len(found) == 1 and _bare(tree) is found[0]:
        return Aggregation(calls, None)
    for number, node in enumerate(found):
        node.replace(exp.column(names.format(number), quoted=True))
    return Aggregation(calls, tree.sql("spark"))


def split_alias(text: str) -> tuple[str, str | None]:
    """("expression", "name") of "expression as name"; no name if there is none."""
    match = _AS.match(text)
    if match is None:
        return text.strip(), None
    return match[1].strip(), match[3] if match[2] is None else match[2].replace("``", "`")


def _is_aggregate(node: exp.Expression) -> bool:
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Filter | exp.Window | exp.IgnoreNulls | exp.RespectNulls))


def _bare(node: exp.Expression) -> exp.Expression:
    return node.unnest()


def _call(node: exp.Expression, text: str) -> Call:
    function = NODES.get(type(node))
    if function is None or isinstance(node, exp.Count) and isinstance(node.this, exp.Distinct):
        what = "count(distinct ...)" if function else node.sql("spark")
        hint = "approx_count_distinct(x)" if function else ", ".join(FUNCTIONS)
        raise ExpressionError(f"{text!r}: {what} is not an aggregate that Evenflow has; use {hint}")
    argument = node.this
    if argument is None or isinstance(argument, exp.Star):
        if function != "count":
            raise ExpressionError(f"{text!r}: {function}() needs a column")
        return Call("count", None)
    if function == "count" and isinstance(argument, exp.Literal) and not node.args.get("expressions"):
        return Call("count", None)
    if any(_is_aggregate(inner) for inner in argument.walk()):
        raise ExpressionError(f"{text!r} calls an aggregate inside an aggregate; compute the inner one in a box of its own")
    if any(node.args.get(extra) for extra in ("expressions", "ignore_nulls", "accuracy", "order")):
        raise ExpressionError(f"{text!r}: {function} takes exactly one argument and no option; compute others in a select before")
    if isinstance(argument, exp.Column) and not argument.table:
        return Call(function, argument.name)
    return Call(function, argument.sql("spark"))
