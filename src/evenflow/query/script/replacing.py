"""Aggregates of running results: each state replaces the one before it, so what they have counted of that one is taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from evenflow.query.expression import compile_expression
from evenflow.query.script.lowering import Lower
from evenflow.query.script.relation import Relation, free_name
from evenflow.query.script.running import Changes
from evenflow.query.sql.functions import aggregate_named
from evenflow.query.sql.parser import parse, to_sql
from evenflow.query.user.scope import built_in
from evenflow.stream.schema import ddl_of


def of_changes(
    lower: Lower, relation: Relation, calls: Mapping[str, str], keys: Sequence[str] | None, where: exp.Expr
) -> tuple[Relation, Mapping[str, str]]:
    """What each new state changes, and the calls over that, where a group's states stay in one group. keys: None if there is a window.

    Sums of whole numbers are those of numbers with a sign, which is quickest. Of others the changes are a changelog, whose sums are exact:
    a product with a sign would cut digits of decimals, and what was infinite or large for a while would stay in a double.
    """
    identity = relation.identity
    if keys is None or identity is None or not set(keys) <= set(identity):
        lower.check_final(relation, where, "an aggregate of an aggregate")
    assert identity is not None
    sign = free_name("_sign", relation.stream.columns)
    signed: dict[str, str] = {}
    whole = True
    for text, name in calls.items():
        call = parse(text)
        made = _signed(call, sign)
        if made is None:
            message = f"{text} of a running aggregate would have to know every state that is replaced; count, sum and avg do not"
            lower.script.fail(where, f"{message}; or give the GROUP BY before it a window(...)")
        signed[made] = name
        with lower.script.at(where):
            whole &= aggregate_named(call.name) == "count" or _is_whole(relation, call.expressions[0])
    with lower.script.at(where):
        keyed = relation.stream.key_by(*identity) if identity else relation.stream.with_columns({"_one": "1"}).key_by("_one")
        changes = keyed.process(Changes(ddl_of(keyed.stream.schema), sign if whole else ""), order="arrival")
    return replace(relation, stream=changes), signed if whole else calls


def _is_whole(relation: Relation, value: exp.Expr) -> bool:
    return bool(pa.types.is_integer(compile_expression(to_sql(value), relation.stream.schema).type))


def _signed(call: exp.Expr, sign: str) -> str | None:
    """An aggregate over rows as one over changes, each with its sign; None if it cannot follow them."""
    function = aggregate_named(call.name) if isinstance(call, exp.Anonymous) else None
    if function not in ("count", "sum", "avg") or isinstance(call.expressions[0], exp.Distinct):
        return None
    value = call.expressions[0]
    if isinstance(value, exp.Star | exp.Literal) and function == "count":
        return f"{built_in('sum')}(`{sign}`)"
    text = to_sql(value)
    count = f"{built_in('sum')}(CASE WHEN {text} IS NULL THEN 0L ELSE `{sign}` END)"
    if function == "count":
        return count
    total = f"{built_in('sum')}(({text}) * `{sign}`)"
    return f"{total} / {built_in('nullif')}({count}, 0L)" if function == "avg" else f"CASE WHEN {count} > 0 THEN {total} END"
