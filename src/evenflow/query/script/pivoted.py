"""PIVOT and UNPIVOT behind an item of FROM: a group by all other columns with an aggregate for each value, and a row for each column.

As in Spark, an aggregate of a value of which a group has no rows is null where all of them are numbers or booleans; else each aggregates
its values where the row has this value, and null elsewhere, so that a count is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from evenflow.query.aggregates import result_type
from evenflow.query.calls import parse_aggregation
from evenflow.query.expression import compile_expression
from evenflow.query.script.lowering import Lower, Tables, is_aggregate, is_aggregated
from evenflow.query.script.relation import Relation, is_column
from evenflow.query.sql.functions import aggregate_named
from evenflow.query.sql.parser import to_sql
from evenflow.query.sql.titles import title_of
from evenflow.query.sql.types import common, name_of, stringy
from evenflow.query.user.scope import built_in
from evenflow.stream.change import CHANGE
from evenflow.stream.schema import quoted

_FROM: Final = "_pivoted"


def pivoted(lower: Lower, tree: exp.Expr, relation: Relation, tables: Tables) -> Relation:
    """The relation of an item of FROM behind what its PIVOT or UNPIVOT makes of it."""
    for pivot in tree.args["pivots"]:
        made = _unpivoted(lower, pivot, relation, tables) if pivot.args.get("unpivot") else _pivoted(lower, pivot, relation, tables)
        alias = pivot.args.get("alias")
        relation = made.called("") if alias is None else lower.renamed(made, alias).called(alias.name)
    return relation


def _queried(lower: Lower, query: exp.Select, relation: Relation, tables: Tables) -> Relation:
    query.set("from_", exp.From(this=exp.to_table(_FROM)))
    return lower.query(query, {**tables, _FROM: relation})


# ---------------------------------------------------------------- PIVOT


def _pivoted(lower: Lower, pivot: exp.Pivot, relation: Relation, tables: Tables) -> Relation:
    fields = pivot.args.get("fields") or []
    if len(fields) != 1 or not isinstance(fields[0], exp.In):
        lower.script.fail(pivot, "PIVOT is for one IN of values: PIVOT (sum(x) FOR kind IN ('a', 'b'))")
    among, calls = fields[0], [relation.dotted(each) for each in pivot.expressions]
    keys = [key.unnest() for key in (among.this.expressions if isinstance(among.this, exp.Tuple) else [among.this])]
    if not all(map(is_column, keys)):
        lower.script.fail(among, "PIVOT is FOR columns; compute what is none in a query inside this one")
    if among.args.get("query") is not None or any(each.find(exp.Select) for each in among.expressions):
        lower.script.fail(among, "PIVOT takes a list of values: the columns of a query are known before its rows come")
    for call in calls:
        if not is_aggregated(call):
            lower.script.fail(call, "PIVOT takes aggregates, such as sum(x)")
    quick = all(_is_of_numbers(lower, relation, call) for call in calls)
    read = {relation.find(column).column for part in (*keys, *calls) for column in part.find_all(exp.Column) if is_column(column)}
    kept = [
        exp.column(v.name, table=_FROM, quoted=True)
        for v in relation.columns
        if not v.qualified and v.column not in read and v.name != CHANGE
    ]
    made: list[exp.Expr] = []
    for each in among.expressions:
        value, name = (each.this, each.args["alias"].name) if isinstance(each, exp.PivotAlias | exp.Alias) else (each, None)
        values = value.expressions if isinstance(value, exp.Tuple) else [value.unnest()]
        if len(values) != len(keys):
            lower.script.fail(each, f"PIVOT is FOR {len(keys)} columns, and this is {len(values)} values")
        here = exp.and_(*(exp.NullSafeEQ(this=key.copy(), expression=v.copy()) for key, v in zip(keys, values, strict=True)), copy=False)
        shown = name or "_".join("null" if isinstance(v, exp.Null) else v.name or to_sql(v) for v in values)
        for call in calls:
            title = shown if len(calls) == 1 else f"{shown}_{_title(call)}"
            made.append(exp.alias_(_of_value(call.unalias(), here, quick=quick), title, quoted=True))
    group = exp.Group(expressions=[key.copy() for key in kept]) if kept else None
    relation = relation.called(_FROM)
    return _queried(lower, exp.Select(expressions=[*kept, *made], group=group), relation, tables)


def _of_value(call: exp.Expr, here: exp.Expr, *, quick: bool) -> exp.Expr:
    """The aggregate of the rows for which a condition is true."""
    if quick:
        counted = exp.Anonymous(this=built_in("count"), expressions=[_where(here, exp.Literal.number(1))])
        there = exp.GT(this=counted, expression=exp.Literal.number(0))
        holder = exp.Paren(this=call.copy())
        for node in [node for node in holder.walk(prune=_is_call) if _is_call(node)]:
            if isinstance(node, exp.Filter):
                node.set("expression", exp.Where(this=exp.and_(here.copy(), node.expression.this)))
            else:
                node.replace(exp.Filter(this=node.copy(), expression=exp.Where(this=here.copy())))
        return exp.Case(ifs=[exp.If(this=there, true=holder)])
    holder = exp.Paren(this=call.copy())
    for node in [node for node in holder.walk() if is_aggregate(node)]:
        first, *rest = node.expressions
        first = _where(here, exp.Literal.number(1) if isinstance(first, exp.Star) else first)
        node.set("expressions", [first, exp.true()] if aggregate_named(node.name) in ("first", "last") else [first, *rest])
    return holder


def _is_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Filter) or is_aggregate(node)


def _where(here: exp.Expr, value: exp.Expr) -> exp.Expr:
    if isinstance(value, exp.Distinct):
        return exp.Distinct(expressions=[_where(here, each) for each in value.expressions])
    return exp.Case(ifs=[exp.If(this=here.copy(), true=value.copy())])


def _is_of_numbers(lower: Lower, relation: Relation, call: exp.Expr) -> bool:
    """Whether the results are numbers or booleans."""
    own = lower.rewritten(relation, call.unalias()).transform(
        lambda node: node.this if isinstance(node, exp.Filter) else node.expressions[0] if isinstance(node, exp.Distinct) else node
    )
    schema = relation.stream.schema
    with lower.script.at(call):
        made = parse_aggregation(to_sql(own), schema)
        types: list[Any] = []
        for each in made.calls:
            text = each.expression if each.column is None else quoted(each.column)
            types.append(result_type(each.function, None if text is None else compile_expression(text, schema).type))
        if made.result is not None:
            types = [compile_expression(made.result, pa.schema([(f"_agg{at}", type_) for at, type_ in enumerate(types)])).type]
    known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(types[0]) for test in known)


def _title(call: exp.Expr) -> str:
    """What Spark calls the column of an aggregate."""
    if isinstance(call, exp.Alias):
        return str(call.alias)
    return title_of(call).replace("(*)", "(1)").lower()


# ---------------------------------------------------------------- UNPIVOT


def _unpivoted(lower: Lower, pivot: exp.Pivot, relation: Relation, tables: Tables) -> Relation:
    fields = pivot.args.get("fields") or []
    if len(fields) != 1 or not isinstance(fields[0], exp.In) or len(pivot.expressions) != 1:
        lower.script.fail(pivot, "UNPIVOT is UNPIVOT (value FOR name IN (a, b))")
    among, given = fields[0], pivot.expressions[0].unnest()
    names = [each.name for each in (given.expressions if isinstance(given, exp.Tuple) else [given])]
    rows: list[tuple[str, list[exp.Column]]] = []
    for each in among.expressions:
        bare, alias = (each.this, each.args["alias"].name) if isinstance(each, exp.PivotAlias | exp.Alias) else (each, None)
        columns = bare.expressions if isinstance(bare, exp.Tuple) else [bare.unnest()]
        if len(columns) != len(names) or not all(map(is_column, columns)):
            lower.script.fail(each, f"UNPIVOT is of {len(names)} columns for each row; name them")
        rows.append((alias or "_".join(relation.find(column).name for column in columns), columns))
    types = [_meeting(lower, relation, pivot, [columns[at] for _, columns in rows]) for at in range(len(names))]
    taken = {relation.find(column).column for _, columns in rows for column in columns}
    stack: list[exp.Expr] = [exp.Literal.number(len(rows))]
    for name, columns in rows:
        stack += [exp.Literal.string(name), *(exp.cast(each.copy(), name_of(type_)) for each, type_ in zip(columns, types, strict=True))]
    kept = [v for v in relation.columns if not v.qualified and v.column not in taken and v.name != CHANGE]
    shown = [among.this.name, *names]
    view = exp.Lateral(
        this=exp.Anonymous(this=built_in("stack"), expressions=stack), view=True,
        alias=exp.TableAlias(this=exp.to_identifier("_unpivoted"), columns=[exp.to_identifier(name, quoted=True) for name in shown]),
    )  # fmt: skip
    items = [exp.column(v.name, table=_FROM, quoted=True) for v in kept]
    items += [exp.column(name, table="_unpivoted", quoted=True) for name in shown]
    query = exp.Select(expressions=items, laterals=[view])
    if not pivot.args.get("include_nulls"):
        there = [exp.Not(this=exp.Is(this=exp.column(name, table="_unpivoted", quoted=True), expression=exp.Null())) for name in names]
        query.set("where", exp.Where(this=exp.or_(*there)))
    relation = relation.called(_FROM)
    return _queried(lower, query, relation, tables)


def _meeting(lower: Lower, relation: Relation, where: exp.Expr, columns: Sequence[exp.Column]) -> pa.DataType:
    """The type in which the columns of a value meet."""
    with lower.script.at(where):
        types = [relation.stream.schema.field(relation.find(column).column).type for column in columns]
        if len({stringy(type_) for type_ in types}) > 1:
            lower.script.fail(where, "UNPIVOT makes one column of texts and others; make texts of these inside, CAST(x AS STRING)")
        return common(types, "what UNPIVOT makes one column of")


__all__ = ["pivoted"]
