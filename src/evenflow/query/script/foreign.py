"""What other systems write in FROM and behind a query, and what is written here: Flink, RisingWave, Materialize, ksqlDB."""

from __future__ import annotations

from sqlglot import exp

from evenflow.query.script.lowering import Lower
from evenflow.query.sql.foreign import INSTEAD
from evenflow.query.sql.parser import to_sql
from evenflow.query.user.scope import built_in


def no_stream(tree: exp.Expr) -> str:
    """What to say of an item of FROM that is no stream."""
    shown, remedy = to_sql(tree), "name one, or write a query in parentheses"
    call = tree.this if isinstance(tree, exp.Table | exp.Lateral) else tree
    if isinstance(call, exp.Anonymous) and call.name.lower() == "table" and len(call.expressions) == 1:
        call = call.expressions[0]
    if isinstance(call, exp.Anonymous):
        remedy = INSTEAD.get(call.name.lower(), remedy)
    elif isinstance(tree, exp.Lateral) and isinstance(call, exp.Subquery):
        remedy = "a query in FROM is not about the rows beside it: join it, and take the best of a key with row_number() OVER (...) <= n"
    return f"{shown!r} is no stream; {remedy}"


def with_lateral_views(tree: exp.Select) -> None:
    """LATERAL f(x), LATERAL TABLE(f(x)) and UNNEST(x) among the joins as LATERAL VIEW, which they are."""
    joins: list[exp.Expr] = []
    views: list[exp.Expr] = []
    for join in tree.args.get("joins") or ():
        view = _view(join)
        (joins if view is None else views).append(join if view is None else view)
    if views:
        tree.set("joins", joins or None)
        tree.set("laterals", [*views, *(tree.args.get("laterals") or ())])


def _view(join: exp.Join) -> exp.Lateral | None:
    item, on = join.this, join.args.get("on")
    if join.args.get("using") or (on is not None and not (isinstance(on, exp.Boolean) and on.this)):
        return None
    outer = str(join.args.get("side") or "").upper() == "LEFT"
    if isinstance(item, exp.Unnest) and len(item.expressions) == 1:
        name = "posexplode" if item.args.get("offset") else "explode"
        call: exp.Expr = exp.Anonymous(this=built_in(name), expressions=[item.expressions[0]])
    elif isinstance(item, exp.Lateral) and not item.args.get("view"):
        call = item.this
        if isinstance(call, exp.Anonymous) and call.name.lower() == "table" and len(call.expressions) == 1:
            call = call.expressions[0]
    else:
        return None
    if not isinstance(call, exp.Anonymous):
        return None
    return exp.Lateral(this=call, view=True, outer=outer, alias=item.args.get("alias"))


def with_first_of_each(lower: Lower, tree: exp.Select) -> exp.Select:
    """DISTINCT ON (keys) ... ORDER BY keys, order as QUALIFY row_number() OVER (PARTITION BY keys ORDER BY order) = 1; the tree itself if
    it says no such thing."""
    distinct, order = tree.args.get("distinct"), tree.args.get("order")
    on = None if distinct is None else distinct.args.get("on")
    if on is None:
        return tree
    keys = on.expressions if isinstance(on, exp.Tuple) else [on.unnest()]
    parts = list(order.expressions if order is not None else ())
    leading, rest = parts[: len(keys)], parts[len(keys) :]
    if not rest or {to_sql(part.this) for part in leading} != {to_sql(key) for key in keys}:
        by = ", ".join(map(to_sql, keys))
        lower.script.fail(on, f"DISTINCT ON ({by}) is the first row of each: say which is first, ORDER BY {by}, time DESC, or write "
                              f"QUALIFY row_number() OVER (PARTITION BY {by} ORDER BY time DESC) = 1")  # fmt: skip
    made = tree.copy()
    place = exp.Window(
        this=exp.Anonymous(this="row_number"), partition_by=[key.copy() for key in keys],
        order=exp.Order(expressions=[part.copy() for part in rest]),
    )  # fmt: skip
    first: exp.Expr = exp.EQ(this=place, expression=exp.Literal.number(1))
    if (qualify := made.args.get("qualify")) is not None:
        first = exp.And(this=exp.Paren(this=qualify.this), expression=first)
    made.set("distinct", None)
    made.set("qualify", exp.Qualify(this=first))
    if not lower.changes:  # A stream has no order, and this one said which row is the first.
        made.set("order", None)
    return made


__all__ = ["no_stream", "with_first_of_each", "with_lateral_views"]
