"""LATERAL VIEW, and a function in the list of columns that makes rows: explode, posexplode, inline, stack, json_tuple, to an explode box.

What is taken apart becomes a column that SQL cannot see, and its parts columns that it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from sqlglot import exp

from evenflow.query.exploding import parts_of
from evenflow.query.expression import compile_expression
from evenflow.query.script.lowering import Lower, is_window
from evenflow.query.script.relation import Relation, Visible, computed, free_name, own_column
from evenflow.query.script.spans import window_spans_us
from evenflow.query.sql.parser import dotted, free_variable, parse, to_sql
from evenflow.query.user.scope import built_in, called_name, is_known
from evenflow.stream.change import is_changelog

GENERATORS: Final = ("explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple")


@dataclass(frozen=True, slots=True)
class Made:
    """What a call makes. names: what its columns are called where nobody says it; columns: what the stream calls them."""

    relation: Relation
    names: Sequence[str]
    columns: Sequence[str]


def is_generator(tree: exp.Expr) -> bool:
    """Whether a node is a call that makes rows."""
    return isinstance(tree, exp.Anonymous) and called_name(tree.name) in GENERATORS and not is_known(tree.name)


def viewed(lower: Lower, relation: Relation, view: exp.Lateral) -> Relation:
    """The relation with the columns of a LATERAL VIEW."""
    call, alias = view.this, view.args.get("alias")
    if not view.args.get("view") or not is_generator(call):
        lower.script.fail(view, f"LATERAL is there as LATERAL VIEW of {', '.join(GENERATORS)}")
    names = [column.name for column in alias.args.get("columns") or ()] if alias is not None else []
    return generated(lower, relation, call, names, alias.name if alias is not None else "", outer=bool(view.args.get("outer")))


def generated(lower: Lower, relation: Relation, call: exp.Expr, names: Sequence[str], table: str, *, outer: bool = False) -> Relation:
    """The relation with the columns that a call makes. names: of them, none: those that Spark gives. table: what qualifies them."""
    if not is_changelog(relation.stream.schema):  # What is taken back is taken apart, too.
        lower.check_final(relation, call, f"{call.name}(...)")
    tree = relation.dotted(call)
    name = called_name(tree.name)
    if name == "json_tuple":
        made = _told(lower, relation, tree)
    elif name == "stack":
        made = _exploded(lower, relation, _stacked(lower, tree), "inline", outer=outer)
    else:
        made = _exploded(lower, relation, tree, name, outer=outer)
    if names and len(names) != len(made.columns):
        lower.script.fail(call, f"{call.name}(...) makes {len(made.columns)} columns, and {len(names)} names are given; give as many")
    shown = tuple(Visible(name, table, column) for name, column in zip(names or made.names, made.columns, strict=True))
    return replace(made.relation, columns=(*relation.columns, *shown), identity=None)


def _exploded(lower: Lower, relation: Relation, call: exp.Expr, name: str, *, outer: bool) -> Made:
    if len(call.expressions) != 1:
        lower.script.fail(call, f"{name} takes one array or map")
    stream = relation.stream
    column = free_name("_exploded", stream.columns)
    tree = lower.rewritten(relation, call.expressions[0])
    with lower.script.at(call):
        type_ = compile_expression(to_sql(tree), stream.schema).type
        parts = parts_of(name, type_)
        taken = [*stream.columns, column]
        into = list[str]()
        for part in parts:
            into.append(free_name(f"_{part}", [*taken, *into]))
        position = free_name("_pos", [*taken, *into]) if name.startswith("pos") else None
        widened = computed(relation, [(column, tree)])
        one = name.endswith(("explode", "explode_outer")) and pa.types.is_list(type_)
        made = widened.stream.explode(
            column, into=into[0] if one else tuple(into), position=position, outer=outer or name.endswith("_outer")
        )
    shown = [*(["pos"] if position is not None else []), *parts]
    return Made(replace(relation, stream=made), shown, [*([position] if position is not None else []), *into])


def _stacked(lower: Lower, call: exp.Expr) -> exp.Expr:
    """stack(n, a, b, ...) as inline of an array of n structures, the last one filled up with nulls."""
    count, *values = call.expressions or [None]
    if not isinstance(count, exp.Literal) or count.is_string or not count.this.isdigit() or not int(count.this) or not values:
        lower.script.fail(call, "stack takes a number of rows, and the values that are dealt into them")
    rows = int(count.this)
    width = -(-len(values) // rows)
    values = [*values, *[exp.Null()] * (rows * width - len(values))]
    structs = [
        exp.Anonymous(
            this=built_in("named_struct"),
            expressions=[part for at in range(width) for part in (exp.Literal.string(f"col{at}"), values[row * width + at])],
        )
        for row in range(rows)
    ]
    return exp.Anonymous(this="inline", expressions=[exp.Anonymous(this=built_in("array"), expressions=structs)])


def _told(lower: Lower, relation: Relation, call: exp.Expr) -> Made:
    """json_tuple makes columns and no rows."""
    text, *names = call.expressions
    if not names:
        lower.script.fail(call, "json_tuple takes a text and the names that are looked for")
    hidden = free_name("_told", relation.stream.columns)
    tree = lower.rewritten(relation, exp.Anonymous(this="_json_tuple", expressions=[text, *names]))
    with lower.script.at(call):
        widened = computed(relation, [(hidden, tree)])
        columns = [free_name(f"_c{at}", [*widened.stream.columns]) for at in range(len(names))]
        fields: list[tuple[str, exp.Expr]] = [(column, dotted(own_column(hidden), [f"c{at}"])) for at, column in enumerate(columns)]
        made = computed(widened, fields)
    return Made(made, [f"c{at}" for at in range(len(names))], columns)


def without_generator(lower: Lower, tree: exp.Select, relation: Relation) -> tuple[exp.Select, Relation]:
    """A SELECT of which a column makes rows, as one of the columns that it makes."""
    found = [(at, item) for at, item in enumerate(tree.expressions) if is_generator(_bare(item))]
    if not found:
        return tree, relation
    if len(found) > 1:
        lower.script.fail(found[1][1], "one column of a SELECT may make rows; write LATERAL VIEW for more")
    at, item = found[0]
    call, names = _bare(item), [item.alias] if isinstance(item, exp.Alias) else []
    if isinstance(item, exp.Aliases):
        names = [each.name for each in item.args["expressions"]]
    before = len(relation.columns)
    relation = generated(lower, relation, call, names, "_made")
    columns: list[exp.Expr] = [exp.column(v.name, table="_made", quoted=True) for v in relation.columns[before:]]
    tree.set("expressions", [*tree.expressions[:at], *columns, *tree.expressions[at + 1 :]])
    return tree, relation


def of_windows(lower: Lower, relation: Relation, condition: exp.Expr) -> exp.Expr:
    """A condition of WHERE, in which windows may stand that do not slide."""
    for call in _window_calls(condition):
        shown = _windows(lower, relation, call)
        if shown.name == "filter":
            lower.script.fail(call, "a row is in several windows that slide; make them in a query inside this one, as a column")
        call.replace(exp.Paren(this=shown))
    return condition


def with_windows(lower: Lower, tree: exp.Select, relation: Relation) -> Relation:
    """A SELECT without groups in which window(...) stands: the window that a row is in, or a row for each that slides over it."""
    if tree.args.get("group") is not None:
        return relation
    made: list[tuple[exp.Expr, exp.Expr]] = []
    for at, item in enumerate(tree.expressions):
        for call in _window_calls(item):
            shown = next((shown for known, shown in made if known == call), None)
            if shown is None:
                relation, shown = _with_window(lower, relation, call, bool(made))
                made.append((call.copy(), shown))
            whole = item.unalias() is call
            call.replace(shown.copy())
            if whole and not isinstance(item, exp.Alias):
                tree.expressions[at] = exp.alias_(shown.copy(), "window", quoted=True)
        tree.set("expressions", list(tree.expressions))
    return relation


def _window_calls(tree: exp.Expr) -> list[exp.Anonymous]:
    calls = [node for node in tree.find_all(exp.Anonymous) if is_window(node) and node.name.lower() == "window"]
    return [node for node in calls if not isinstance(node.parent, exp.Window)]


def _with_window(lower: Lower, relation: Relation, call: exp.Anonymous, another: bool) -> tuple[Relation, exp.Expr]:
    """The relation in which each row has its window, or is there once for each, and that window. another: whether one was made before."""
    listed = _windows(lower, relation, call)
    if called_name(listed.name) == "filter":
        if another:
            lower.script.fail(call, "one window of a SELECT may slide; make the other one in a query inside this one")
        before = len(relation.columns)
        relation = generated(lower, relation, exp.Anonymous(this="explode", expressions=[listed]), ["window"], "_made")
        return relation, exp.column(relation.columns[before].name, table="_made", quoted=True)
    known = exp.Not(this=exp.Is(this=exp.Paren(this=call.expressions[0].copy()), expression=exp.Null()))
    with lower.script.at(call):  # As in Spark: a row without a time is in no window.
        return relation.where(relation.stream.where(to_sql(lower.rewritten(relation, known)))), exp.Paren(this=listed)


def _windows(lower: Lower, relation: Relation, call: exp.Anonymous) -> exp.Expr:
    """The window of a row as a structure; as an array of them, where they slide."""
    if not 2 <= len(call.expressions) <= 4:
        lower.script.fail(call, "window takes a time, a size, and perhaps a slide and a start: window(time, size[, slide[, start]])")
    spans = window_spans_us(lower, call.expressions[1:])
    size, slide, start = (*spans, *[spans[0], 0][len(spans) - 1 :])
    time = to_sql(call.expressions[0])
    bound = f"_window_start({time}, {slide}L, {start % slide}L)"

    def pair(back: int) -> str:
        begin = f"{bound} - INTERVAL '{back}' MICROSECOND" if back else bound
        return f"{built_in('named_struct')}('start', {begin}, 'end', {bound} + INTERVAL '{size - back}' MICROSECOND)"

    with lower.script.at(call):
        if size == slide:
            return parse(pair(0))
        several = ", ".join(pair(at * slide) for at in range(-(-size // slide) - 1, -1, -1))
        each = free_variable(time)
        return parse(f"{built_in('filter')}({built_in('array')}({several}), {each} -> {each}.end > {time})")


def _bare(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Alias | exp.Aliases) else item
