"""Functions OVER results that change, and ORDER BY with LIMIT and OFFSET: places in an order, which change with every row.

Each OVER (...) of a query is a box that adds its columns. It keeps all rows, so it is for changelog and complete mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

import pyarrow as pa
from sqlglot import exp

from evenflow.query.built import params_of
from evenflow.query.changing import as_changes
from evenflow.query.ranked import FRAMED, LISTED, NEIGHBOURS, PLACED, PLACES, Place, Ranked, misfit
from evenflow.query.script.frames import framed_by
from evenflow.query.script.lowering import Item, Lower, is_aggregate
from evenflow.query.script.relation import Relation, Visible, computed, free_name, is_column, own_column
from evenflow.query.sql.composed import GIVEN, is_tried
from evenflow.query.sql.decimal_math import may_overflow
from evenflow.query.sql.parser import to_sql
from evenflow.query.sql.types import name_of
from evenflow.query.user.scope import built_in, called_name
from evenflow.stream.change import CHANGE
from evenflow.stream.schema import ddl_of, has_map, quoted

_WITHOUT_NULLS: Final = ("count", "sum", "avg", "mean", "min", "max", "std", "stddev", "stddev_samp", LISTED)
_SAME: Final = {
    "first": "first_value", "last": "last_value", "mean": "avg", "array_agg": LISTED, "std": "stddev", "stddev_samp": "stddev",
}  # fmt: skip
_TOLD: Final = ("first", "last", "first_value", "last_value")
"""Which may say by an argument that nulls are left out: first(x, true)."""
Order = Sequence[tuple[exp.Expr, bool]]
Draw = Callable[[Lower, Relation, Sequence[Item], Sequence[str], Sequence[tuple[str, bool]], Sequence[Place], exp.Expr], Relation]


def with_named_windows(lower: Lower, tree: exp.Select) -> None:
    """Write out what `WINDOW w AS (...)` names, wherever it says OVER w or OVER (w ...)."""
    named: dict[str, exp.Window] = {}
    for window in tree.args.get("windows") or ():
        _write_out(lower, window, named)
        if named.setdefault(window.name.lower(), window) is not window:
            lower.script.fail(window, f"two windows are called {window.name!r}; give one of them another name")
    tree.set("windows", None)
    qualify = tree.args.get("qualify")
    for window in [window for item in (*tree.expressions, *([] if qualify is None else [qualify])) for window in item.find_all(exp.Window)]:
        _write_out(lower, window, named)
        _say_nulls(lower, window)
        _spread_out(window)


def _say_nulls(lower: Lower, window: exp.Window) -> None:
    """IGNORE NULLS, wherever it is said, stands around the call; RESPECT NULLS, which is what nobody says, nowhere."""
    said = window.this
    call = said.this if isinstance(said, exp.IgnoreNulls | exp.RespectNulls) else said
    ignored = isinstance(said, exp.IgnoreNulls)
    if not isinstance(call, exp.Anonymous):
        if said is not call and not isinstance(call, exp.Filter):
            lower.script.fail(window, f"{to_sql(call)} has no IGNORE NULLS; {', '.join((*PLACED, *NEIGHBOURS))} have")
        return
    first = call.expressions[0] if call.expressions else None
    if isinstance(first, exp.IgnoreNulls | exp.RespectNulls):
        ignored = isinstance(first, exp.IgnoreNulls)
        if not ignored and called_name(call.name) not in (*_TOLD, "nth_value", *NEIGHBOURS):
            lower.script.fail(window, f"RESPECT NULLS stands behind the call: {call.name}({to_sql(first.this)}) RESPECT NULLS")
        call.expressions[0] = first.this
    if called_name(call.name) in _TOLD and len(call.expressions) == 2 and isinstance(call.expressions[1], exp.Boolean):
        ignored = bool(call.expressions.pop().this)
    if ignored and called_name(call.name) not in (*_TOLD, "nth_value", *NEIGHBOURS):
        lower.script.fail(window, f"{call.name} has no IGNORE NULLS; {', '.join((*PLACED, *NEIGHBOURS))} have")
    if ignored and call.name.lower() == "lag" and not lower.changes and len(call.expressions) == 1 and window.args.get("spec") is None:
        # The last one before is known by itself; the row that it was of need not be.
        call = exp.Anonymous(this=built_in("last_value"), expressions=call.expressions)
        before = {"kind": "ROWS", "start": "UNBOUNDED", "start_side": "PRECEDING", "end": exp.Literal.number(1), "end_side": "PRECEDING"}
        window.set("spec", exp.WindowSpec(**before))
    window.set("this", exp.IgnoreNulls(this=call) if ignored else call)


def _spread_out(window: exp.Window) -> None:
    """OVER behind an aggregate that is made of others, `variance(x)`, stands behind each of these."""
    call = window.this.this if isinstance(window.this, exp.Filter) else window.this
    if isinstance(call, exp.Anonymous) and is_aggregate(call):
        return
    said = call.meta.get(GIVEN)
    if said is None:
        return

    def one(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Anonymous) or not is_aggregate(node):
            return node
        made = window.copy()
        made.set("this", exp.Filter(this=node, expression=window.this.expression.copy()) if window.this is not call else node)
        made.meta[GIVEN] = said
        return made

    window.replace(exp.Paren(this=call.copy().transform(one)))


def counted_exactly(items: Sequence[Item]) -> list[Item]:
    """approx_count_distinct OVER frames is of the values of each frame, which are there anyway."""

    def one(node: exp.Expr) -> exp.Expr:
        call = node.this.this if isinstance(node, exp.Window) and isinstance(node.this, exp.Filter) else node.this
        if not isinstance(node, exp.Window) or not isinstance(call, exp.Anonymous) or call.name.lower() != "approx_count_distinct":
            return node
        listed = node.copy()
        listed.meta[GIVEN] = call.name, list(call.expressions)
        values = exp.Anonymous(this=built_in(LISTED), expressions=call.expressions[:1])
        listed.set("this", exp.Filter(this=values, expression=node.this.expression.copy()) if call is not node.this else values)
        distinct = exp.Anonymous(this=built_in("array_distinct"), expressions=[listed])
        return exp.Cast(this=exp.Anonymous(this=built_in("size"), expressions=[distinct]), to=exp.DataType.build("bigint", dialect="spark"))

    return [(name, item.copy().transform(one)) for name, item in items]


def _write_out(lower: Lower, window: exp.Window, named: Mapping[str, exp.Window]) -> None:
    alias = window.args.get("alias")
    if alias is None:
        return
    if (meant := named.get(alias.name.lower())) is None:
        lower.script.fail(window, f"no window is called {alias.name!r}; write WINDOW {alias.name} AS (...) behind the query")
    for part in ("partition_by", "order", "spec"):
        if (given := meant.args.get(part)) and window.args.get(part):
            lower.script.fail(window, f"the window {alias.name!r} says that already; leave it out here")
        elif given:
            window.set(part, [each.copy() for each in given] if isinstance(given, list) else given.copy())
    window.set("alias", None)


def order_of(lower: Lower, relation: Relation, parts: Sequence[exp.Expr]) -> list[tuple[exp.Expr, bool]]:
    """(expression over the stream's columns, whether it descends) of ORDER BY."""
    found: list[tuple[exp.Expr, bool]] = []
    for part in parts:
        desc = bool(part.args.get("desc"))
        value = lower.rewritten(relation, part.this)
        if bool(part.args.get("nulls_first")) == desc:  # Nulls are least where nothing is said.
            found.append((exp.Is(this=value.copy(), expression=exp.Null()), desc))
        found.append((value, desc))
    return found


def in_time_order(lower: Lower, relation: Relation, order: Sequence[tuple[exp.Expr, bool]], where: exp.Expr, what: str) -> list[str] | None:
    """Columns behind the event time in ORDER BY, None if there are none. Refuses what does not begin with it, or is no column."""
    time = relation.stream.event_time
    if time is None or not order or order[0] != (own_column(time), False):
        column = "one with a watermark" if time is None else next((v.name for v in relation.columns if v.column == time), time)
        lower.script.fail(where, f"rows come in order of event time, so {what} must say ORDER BY its column, {column}, ascending")
    if any(desc or not is_column(part) for part, desc in order[1:]):
        lower.script.fail(where, "behind the event time, ORDER BY takes columns, ascending; compute them in a query inside this one")
    return [part.name for part, _ in order[1:]] or None


def together(items: Sequence[Item]) -> list[list[exp.Window]]:
    """The functions OVER rows, those OVER the same in one list."""
    groups: dict[str, list[exp.Window]] = {}
    for window in dict.fromkeys(node for _, item in items for node in item.find_all(exp.Window)):
        key = exp.Tuple(expressions=[*(window.args.get("partition_by") or ()), exp.Literal.string("by")])
        order = window.args.get("order")
        groups.setdefault(to_sql(key) + (to_sql(order) if order is not None else ""), []).append(window)
    return list(groups.values())


def placed_rows(
    lower: Lower, relation: Relation, items: Sequence[Item], groups: Sequence[Sequence[exp.Window]] | None = None, draw: Draw | None = None,
    whole: Callable[[Relation], Relation] | None = None,
) -> Relation:  # fmt: skip
    """The query's columns, of which some have functions OVER (...). groups: see `together`, in the order in which their boxes stand.
    draw: the box of those OVER the same, `drawn` of what changes. whole: what stands behind all of them."""
    if draw is None:
        relation = relation.where(as_changes(relation.stream))
    made: dict[exp.Window, tuple[str, exp.Expr | None]] = {}
    for windows in together(items) if groups is None else groups:
        relation = _with(lower, relation, windows, made, draw or drawn)
    if whole is not None:
        relation = whole(relation)

    def one(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Window):
            return own_column(relation.find(node).column, node) if isinstance(node, exp.Column) else node
        name, default = made[node]
        if default is None:
            return own_column(name, node)
        value = exp.Dot(this=own_column(name, node), expression=exp.to_identifier("value", quoted=True))
        nothing = exp.Is(this=own_column(name, node), expression=exp.Null())
        return exp.Case(ifs=[exp.If(this=nothing, true=lower.rewritten(relation, default))], default=value)

    columns = []
    for name, item in items:
        with lower.script.at(item):
            columns.append((name, item.copy().transform(one)))
    return lower.project(relation, columns)


def _with(
    lower: Lower, relation: Relation, windows: Sequence[exp.Window], made: dict[exp.Window, tuple[str, exp.Expr | None]], draw: Draw
) -> Relation:  # fmt: skip
    """The relation with a column for each of these functions, which are OVER the same."""
    first = windows[0]
    order = first.args.get("order")
    by = order_of(lower, relation, order.expressions if order is not None else ())
    keys = [lower.rewritten(relation, key) for key in first.args.get("partition_by") or ()]
    new: list[Item] = []

    def named(tree: exp.Expr) -> str:
        if is_column(tree):
            return tree.name
        new.append((free_name(f"_over{len(new)}", [*relation.stream.columns, *(name for name, _ in new)]), tree))
        return new[-1][0]

    key_names, by_names = [named(key) for key in keys], [(named(part), desc) for part, desc in by]
    places = []
    for window in windows:
        name = free_name(f"_place{len(made)}", relation.stream.columns)
        place, default = _place(lower, relation, window, name, ordered=bool(by), named=named)
        places.append(place)
        made[window] = name, default
    return draw(lower, relation, new, key_names, by_names, places, first)


def drawn(
    lower: Lower, relation: Relation, new: Sequence[Item], keys: Sequence[str], by: Sequence[tuple[str, bool]], places: Sequence[Place],
    where: exp.Expr, kept: tuple[str, int, int | None] | None = None, shown: bool = True,
) -> Relation:  # fmt: skip
    """The box, behind what has to be computed for it."""
    with lower.script.at(where):
        stream = computed(relation, new).stream
        names = [name for name in stream.columns if name != CHANGE]
        maps = [name for name in names if has_map(stream.schema.field(name).type)]
        if maps:
            lower.script.fail(where, f"{maps[0]!r} is a map, by which rows cannot be told apart; leave it out in a query inside this one")
        schema = pa.schema([stream.schema.field(name) for name in names])
        wrong = next(filter(None, (misfit(place, schema.field(place.column).type) for place in places if place.column is not None)), None)
        if wrong is not None:
            lower.script.fail(where, wrong)
        for place, tree in ((place, tree) for place in places for name, tree in new if name == place.column):
            if place.function in ("sum", "avg") and is_tried(tree) and may_overflow(schema.field(place.column).type):
                lower.script.fail(
                    where, f"try_sum and try_avg OVER rows are not of {name_of(schema.field(place.column).type)}: cast it to double"
                )
        rows = stream if stream.columns[-1] == CHANGE else stream.select(*(quoted(name) for name in [*names, CHANGE]))
        described = Ranked(ddl_of(schema), tuple(by), tuple(places), kept, shown)
        box = lower.flow.add("process", params_of(keys, described), (rows,), None, "rank")
    extra = tuple(Visible(place.name, "_over", place.name) for place in places) if shown else ()
    return Relation(box, (*relation.columns, *extra), running=True)


def _place(
    lower: Lower, relation: Relation, window: exp.Window, name: str, *, ordered: bool, named: Callable[[exp.Expr], str]
) -> tuple[Place, exp.Expr | None]:
    """What a function OVER rows asks for, and what it is where there is nothing."""
    known = isinstance(window.this, exp.IgnoreNulls)
    call, script = window.this.this if known else _unfiltered(window.this), lower.script
    function = called_name(call.name) if isinstance(call, exp.Anonymous) else ""
    arguments = list(call.expressions) if isinstance(call, exp.Anonymous) else []
    if function in PLACES:
        if not ordered:
            script.fail(window, f"{function}() OVER needs ORDER BY; say which rows are the first")
        if function != "ntile" and arguments:
            script.fail(window, f"{function}() takes nothing")
        return Place(name, function, number=_count(lower, window, arguments) if function == "ntile" else 1), None
    if function in NEIGHBOURS:
        step = _step(arguments[1]) if len(arguments) > 1 else 1
        if not 1 <= len(arguments) <= 3 or step is None or not ordered:
            script.fail(
                window, f"{function} takes a value, a number of rows, and what it is where there are not so many, OVER (ORDER BY ...)"
            )
        if window.args.get("spec") is not None:
            script.fail(window, f"{function} has no frame; leave ROWS BETWEEN out")
        value = lower.rewritten(relation, arguments[0])
        if len(arguments) > 2:  # A row whose value is null is told from no row.
            held = exp.Anonymous(this=built_in("named_struct"), expressions=[exp.Literal.string("value"), value])
            nothing = exp.Is(this=value.copy(), expression=exp.Null())
            value = exp.Case(ifs=[exp.If(this=nothing, true=exp.Null())], default=held) if known else held
        place = Place(name, function, named(value), step if function == "lead" else -step, known=known)
        return place, arguments[2] if len(arguments) > 2 else None
    function = _SAME.get(function, function)
    nth = 1
    if function == "nth_value" and len(arguments) == 2:
        nth = _count(lower, window, arguments[1:])
        del arguments[1:]
    elif function == "nth_value":
        script.fail(window, "nth_value takes a value and the number of a row of the frame")
    if function not in FRAMED or len(arguments) > 1 or (arguments and isinstance(arguments[0], exp.Distinct)):
        _refuse(lower, window, call)
    if not arguments:
        script.fail(window, f"{function}() OVER takes a value; write {'count(*)' if function == 'count' else function + '(x)'}")
    if function == "stddev":
        arguments = [exp.Cast(this=arguments[0].copy(), to=exp.DataType.build("double", dialect="spark"))]
    star = isinstance(arguments[0], exp.Star | exp.Literal)
    column = None if star and function == "count" else named(lower.rewritten(relation, arguments[0]))
    low, high, peers, span, months = framed_by(lower, relation, window)
    return Place(name, function, column, low, high, peers, span, nth, known, months), None


def _refuse(lower: Lower, window: exp.Window, call: exp.Expr) -> NoReturn:
    """Of a call that is no function of frames, by the name that the text has."""
    said, given = window.meta.get(GIVEN, ("", ()))
    if said:
        call = exp.Anonymous(this=said, expressions=list(given))
    last = ""
    if is_aggregate(window.this) and not call.find(exp.Distinct):
        last = (
            ", and, of rows that come once, of any aggregate the last rows in order of event time: ROWS BETWEEN 9 PRECEDING AND CURRENT ROW"
        )
    there = ", ".join((*PLACES, *NEIGHBOURS, *FRAMED))
    lower.script.fail(given[0] if given else window, f"{to_sql(call)} OVER (...) is not available here; {there} are{last}")


def _unfiltered(call: exp.Expr) -> exp.Expr:
    """An aggregate with FILTER as one of what is null where its condition is not true, if it leaves nulls out."""
    inner = call.this if isinstance(call, exp.Filter) else None
    if not isinstance(inner, exp.Anonymous) or called_name(inner.name) not in _WITHOUT_NULLS or len(inner.expressions) > 1:
        return call
    value = inner.expressions[0] if inner.expressions else exp.Star()
    if isinstance(value, exp.Distinct):
        return call
    value = exp.Literal.number(1) if isinstance(value, exp.Star) or isinstance(value.this, exp.Star) else value.copy()
    made = exp.Case(ifs=[exp.If(this=call.expression.this.copy(), true=value)])
    return exp.Anonymous(this=inner.this, expressions=[made])


def _step(tree: exp.Expr) -> int | None:
    """A whole number that is written in the text; None if it is none."""
    number = tree.this if isinstance(tree, exp.Neg) else tree
    if not _is_number(number):
        return None
    return -int(number.this) if number is not tree else int(number.this)


def _count(lower: Lower, window: exp.Window, arguments: Sequence[exp.Expr]) -> int:
    """A number from 1 on that is written in the text."""
    if len(arguments) != 1 or not _is_number(arguments[0]) or int(arguments[0].this) < 1:
        lower.script.fail(window, f"{window.this.name.lower()} takes a number of at least 1 that is no column")
    return int(arguments[0].this)


def _is_number(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Literal) and not tree.is_string and bool(tree.this.isdigit())


def number_of(lower: Lower, tree: exp.Expr | None, word: str) -> int | None:
    """The number of LIMIT or OFFSET; None if there is none."""
    if tree is None:
        return None
    if not _is_number(tree.expression):
        lower.script.fail(tree, f"{word} takes a number")
    return int(tree.expression.this)


def cut(
    lower: Lower, relation: Relation, order: Sequence[exp.Expr], hidden: int, limit: int | None, offset: int, where: exp.Expr
) -> Relation:
    """The rows of a relation behind the first `offset`, `limit` of them. hidden: how many of its last columns are not to be seen."""
    visible = relation.columns[: len(relation.columns) - hidden]
    relation = relation.where(as_changes(relation.stream))
    by: list[tuple[str, bool]] = []
    new: list[Item] = []
    for part, desc in order_of(lower, relation, order):
        if not is_column(part):
            new.append((free_name(f"_by{len(new)}", relation.stream.columns), part))
        by.append((part.name if is_column(part) else new[-1][0], desc))
    place = Place(free_name("_place", relation.stream.columns), "row_number")
    kept = place.name, offset + 1, None if limit is None else offset + limit
    made = drawn(lower, relation, new, (), by, [place], where, kept, shown=False)
    return lower.project(made, [(v.name, own_column(v.column)) for v in visible])
