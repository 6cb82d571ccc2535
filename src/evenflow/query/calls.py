"""What `.agg(name="...")` says: which aggregate functions are called on what, and what is made of their results.

`sum(a + b) / count(*)` is split into the calls sum(hidden) and count(*), the hidden column `a + b` before them, and an expression
over their results after them. So the aggregate box itself only ever calls functions on columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from evenflow.errors import ExpressionError
from evenflow.query.expression import parse_aggregate, resolve
from evenflow.query.sql.functions import AGGREGATES
from evenflow.query.sql.parser import parse, to_sql


@dataclass(frozen=True, slots=True)
class Call:
    """One call. column: an input column, or None; expression: what to compute first instead, or None. Neither: count(*)."""

    function: str
    column: str | None
    expression: str | None = None


@dataclass(frozen=True, slots=True)
class Aggregation:
    """calls, and what becomes of them: `result` is an expression over the names given to the calls; None: the one
    call's result."""

    calls: tuple[Call, ...]
    result: str | None


def parse_aggregation(text: str, schema: pa.Schema, names: str = "_agg{}") -> Aggregation:
    """Split an aggregate expression over columns of `schema`. names: what the results of the calls are called in `result`.

    Raises ExpressionError if it is not SQL, calls no aggregate function, or one that Evenflow does not have; UnknownColumn;
    TypeMismatch.
    """
    tree = parse(text)
    found = [node for node in tree.walk(prune=_is_aggregate) if _is_aggregate(node)]
    if not found:
        parse_aggregate(text, schema)  # It knows best what to say.
    calls = tuple(_call(node, text, schema) for node in found)
    if len(found) == 1 and tree.unnest() is found[0]:
        return Aggregation(calls, None)
    for number, node in enumerate(found):
        node.replace(exp.column(names.format(number), quoted=True))
    return Aggregation(calls, to_sql(tree))


def _is_aggregate(node: exp.Expr) -> bool:
    if isinstance(node, exp.Filter | exp.Window | exp.IgnoreNulls | exp.RespectNulls):
        return True
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


def _call(node: exp.Expr, text: str, schema: pa.Schema) -> Call:
    function, argument, options = parse_aggregate(to_sql(node), schema)
    if options:
        raise ExpressionError(f"{text!r}: {function} takes no {', '.join(options)} here; leave it out")
    if argument is None:
        return Call(function, None)
    tree = parse(argument)
    if isinstance(tree, exp.Column) and not tree.table:
        return Call(function, resolve(tree.name, schema))
    return Call(function, None, argument)
