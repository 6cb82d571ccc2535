"""JOIN to a join box: the condition is told which columns are the left's (l.) and the right's (r.), and what one side can decide alone
is decided before the join, so that fewer rows are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from evenflow.errors import ExpressionError, UnknownColumn
from evenflow.query.changing import as_changes
from evenflow.query.expression import compile_expression
from evenflow.query.join import split_condition
from evenflow.query.script.as_of import is_as_of, newest, without_version
from evenflow.query.script.lowering import Lower, Tables
from evenflow.query.script.relation import Relation, Visible, computed, free_name, is_column, own_column
from evenflow.query.script.values import with_values
from evenflow.query.sql.parser import to_sql
from evenflow.query.sql.types import meet
from evenflow.query.user.scope import built_in
from evenflow.stream.change import CHANGE, is_changelog
from evenflow.stream.schema import type_name

_HOW: Final = {
    ("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "inner",
    **{(side, kind): side.lower() for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")},
    ("LEFT", "SEMI"): "semi", ("LEFT", "ANTI"): "anti", ("", "SEMI"): "semi", ("", "ANTI"): "anti",
}  # fmt: skip


Beside = Callable[[Lower, Relation, exp.Join, Tables, list[exp.Expr]], Relation]
Met = Callable[[Relation, list[exp.Expr], Tables], Relation]
_STRICT: Final = (exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul)


def joined_all(
    lower: Lower, left: Relation, joins: Sequence[exp.Join], tables: Tables, pending: list[exp.Expr], beside: Beside, met: Met
) -> Relation:  # fmt: skip
    """left with everything that is joined to it. Tables with commas between them are taken in an order in which each shares a key with
    those before it, wherever they stand. beside: joins a query about the row beside it. met: the rows for which conditions are true.

    RIGHT and FULL JOIN make rows that are null on the left. WHERE is asked of these, too, and ON of the joins before is not; so up to
    the last of them WHERE waits, and only what is never true of nulls is asked before already, to keep fewer rows.
    """
    outer = max((at for at, join in enumerate(joins) if join.side.upper() in ("RIGHT", "FULL")), default=-1)
    early = [part for part in pending if _is_never_of_nulls(part)]
    commas = next((at for at, join in enumerate(joins) if not _is_comma(join)), len(joins))
    if commas > 1:
        left = _in_any_order(lower, left, joins[:commas], tables, pending if outer < 0 else early)
    for at, join in enumerate(joins):
        if at < commas and commas > 1:
            continue
        of_on: list[exp.Expr] = []
        waits = at < outer
        if isinstance(join.this, exp.Values):
            left = with_values(lower, left, join)
        elif is_lateral(join):
            left = beside(lower, left, join, tables, of_on if waits else pending)
        elif is_as_of(join):
            right = lower.table(without_version(join.this), tables)
            given = (join.args.get("match_condition"), join.args.get("on"))
            left = newest(lower, left, join, right, [part for tree in given if tree is not None for part in conjuncts(tree)])
        else:
            left = joined(lower, left, join, lower.table(join.this, tables), early if waits else pending)
            if waits:
                of_on, early = [part for part in early if part.find(exp.Select)], [part for part in early if not part.find(exp.Select)]
        if of_on:
            left = met(left, of_on, tables)
    return left


def _is_never_of_nulls(part: exp.Expr) -> bool:
    """Whether a condition is not true where its columns are null."""
    compared = isinstance(part, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE) and part.find(exp.Column) is not None
    return compared and all(isinstance(node, _STRICT) for side in (part.this, part.expression) for node in side.walk())


def is_lateral(join: exp.Join) -> bool:
    """Whether it is of a query about the row beside it."""
    return isinstance(join.this, exp.Lateral) and isinstance(join.this.this, exp.Subquery)


def _is_comma(join: exp.Join) -> bool:
    bare = (
        not isinstance(join.this, exp.Values)
        and not is_lateral(join)
        and not is_as_of(join)
        and not any(map(join.args.get, ("on", "using", "method")))
    )
    return bare and (join.side, join.kind.upper()) in (("", ""), ("", "CROSS"))


def _in_any_order(lower: Lower, left: Relation, joins: Sequence[exp.Join], tables: Tables, pending: list[exp.Expr]) -> Relation:
    waiting = [(join, lower.table(join.this, tables)) for join in joins]
    order = [left.columns[0].table, *(right.columns[0].table for _, right in waiting)]
    while waiting:
        at = next((at for at, (_, right) in enumerate(waiting) if _share_a_key(lower, left, right, pending)), 0)
        join, right = waiting.pop(at)
        left = joined(lower, left, join, right, pending)
    if len(set(order)) < len(order) or "" in order:
        return left
    return replace(left, columns=tuple(sorted(left.columns, key=lambda visible: order.index(visible.table))))  # `*` is in FROM's order.


def _share_a_key(lower: Lower, left: Relation, right: Relation, pending: Iterable[exp.Expr]) -> bool:
    """Whether a condition of WHERE says that something of the one equals something of the other."""
    both = replace(left, columns=(*left.columns, *right.columns))
    equal = (part for part in pending if isinstance(part, exp.EQ | exp.NullSafeEQ))
    return any({_side(lower, both, left, part.this), _side(lower, both, left, part.expression)} == {"l", "r"} for part in equal)


def joined(lower: Lower, left: Relation, join: exp.Join, right: Relation, pending: list[exp.Expr]) -> Relation:
    """left JOIN right ON ... . pending: conditions of WHERE; those that an inner join can take are taken out of it."""
    script = lower.script
    how = _HOW.get((join.side.upper(), join.kind.upper()))
    natural = join.method.upper() == "NATURAL"
    if how is None or (join.args.get("method") and not natural):
        word = " ".join(part for part in (join.method, join.side, join.kind) if part)
        script.fail(join, f"{word} JOIN is not available; write INNER, LEFT, RIGHT, FULL, LEFT SEMI or LEFT ANTI JOIN ... ON")
    left, right = (_joinable(lower, relation, join) for relation in (left, right))
    shared = {v.table.lower() for v in left.columns} & {v.table.lower() for v in right.columns} - {""}
    if shared:
        script.fail(join.this, f"two tables are called {shared.pop()!r}; give one of them an alias with AS")
    on, using = join.args.get("on"), [name.name for name in join.args.get("using") or ()]
    if natural:
        theirs = {v.name.lower() for v in right.columns if not v.qualified}
        using = list(dict.fromkeys(v.name for v in left.columns if not v.qualified and v.name.lower() in theirs))
        if not using:
            script.fail(join, "a NATURAL JOIN is by the columns that both sides have, and these have none; write JOIN ... ON")
    if using:
        left = _named(left, "_left", right)
        right = _named(right, "_right", left)
    both = replace(left, columns=(*left.columns, *right.columns))
    if on is not None:
        on = both.dotted(on)
    pending[:] = [both.dotted(part) for part in pending]
    parts = conjuncts(on) if on is not None else _equal(lower, left, right, using, join)
    for part in [part for part in parts if part.find(exp.Select) is not None]:
        if how != "inner":
            script.fail(part, "a query inside ON of an outer, a semi or an anti join is not available; join it in a query in FROM before")
        parts.remove(part)
        pending.append(part)  # Of an inner join ON is WHERE.
    if how == "inner":
        left, right, parts = _alone_first(lower, both, left, right, parts, pending)
    if not parts and not lower.changes:
        script.fail(join, "a join of every row with every row is not available; say in ON which columns are equal")
    left, right, parts = _keys_as_columns(lower, both, left, right, parts)
    right = _renamed(lower, left, right)
    with script.at(on if on is not None else join):
        condition = to_sql(exp.and_(*(_sided(left, right, part) for part in parts))) if parts else None
        bounded = condition is not None and _bounded(left, right, condition)
        if lower.changes and not bounded and (how != "inner" or not _has_key(left, right, condition)):
            left = left.where(as_changes(left.stream))
        changes = any(is_changelog(relation.stream.schema) for relation in (left, right))
        stream = left.stream.join(right.stream, condition=condition, how=how, unbounded=how == "inner" and not bounded and not changes)
    kept = left.columns if how in ("semi", "anti") else (*left.columns, *right.columns)
    if changes:
        made = Relation(stream, _once(kept, using, how), running=True)
        return _of_either(lower, made, left, right, using) if using and how == "full" else made
    # Behind a full join a row of the right alone has no end of the left's windows, and so none of them would have it.
    windows = left.windows if left.windows is not None and stream.event_time == left.windows.end and how != "full" else None
    until = _until(_sided(left, right, part) for part in parts) if how == "inner" else {}
    made = Relation(stream, _once(kept, using, how), windows, until=tuple(until.get(stream.event_time or "", ())))
    return _of_either(lower, made, left, right, using) if using and how == "full" else made


def _joinable(lower: Lower, relation: Relation, join: exp.Join) -> Relation:
    """A side of a join. What changes has to be a changelog; what its rows do is no column of theirs here."""
    if not is_changelog(relation.stream.schema):
        if relation.running:
            lower.script.fail(
                join,
                "a join would count every state of a running aggregate as a row of its own; use changelog or complete mode, or give the "
                "GROUP BY before it a window(...), so that each of its results comes once",
            )
        return relation
    return replace(relation, columns=tuple(visible for visible in relation.columns if visible.column != CHANGE))


def _has_key(left: Relation, right: Relation, condition: str | None) -> bool:
    """Whether something of the one side has to equal something of the other."""
    return condition is not None and bool(split_condition(condition, left.stream.schema, right.stream.schema, None, None).keys)


def _aligned(lower: Lower, both: Relation, left: Relation, sides: Mapping[str, Relation], part: exp.NullSafeEQ) -> exp.NullSafeEQ:
    """a <=> b of two sides as one of values of one type, where Spark has one: structures are compared by their hashes, which numbers of
    several types do not share."""
    trees = part.this, part.expression
    of = [_side(lower, both, left, tree) for tree in trees]
    if {*of} != {"l", "r"}:
        return part
    with lower.script.at(part):
        relations = [sides[side or ""] for side in of]
        found = [compile_expression(to_sql(r.rewritten(tree)), r.stream.schema).type for r, tree in zip(relations, trees, strict=True)]
        type_ = None if found[0] == found[1] else meet(found[0], found[1])
        if type_ is None:
            return part
        cast = exp.DataType.build(type_name(type_), dialect="spark")
    return exp.NullSafeEQ(**{
        place: tree if kind == type_ else exp.Cast(this=tree.copy(), to=cast.copy())
        for place, tree, kind in zip(("this", "expression"), trees, found, strict=True)
    })  # fmt: skip


def _null_safe(part: exp.NullSafeEQ) -> exp.EQ:
    """a <=> b as one between structures of them, which are equal where both are null."""
    made = [
        exp.Anonymous(this=built_in("named_struct"), expressions=[exp.Literal.string("v"), side]) for side in (part.this, part.expression)
    ]
    return exp.EQ(this=made[0], expression=made[1])


def _bounded(left: Relation, right: Relation, condition: str) -> bool:
    """Whether rows can be forgotten. Spark, too, keeps those of an inner join for ever where they cannot."""
    times = left.stream.event_time, right.stream.event_time
    found = split_condition(condition, left.stream.schema, right.stream.schema, *times)
    return None not in (*times, found.low_us, found.high_us)


def _until(parts: Iterable[exp.Expr]) -> dict[str, list[str]]:
    """Columns that a condition says to be at least as great as a column of the other side, by that one."""
    found: dict[str, list[str]] = {}
    for part in parts:
        if isinstance(part, exp.LTE | exp.LT | exp.GTE | exp.GT) and is_column(part.this) and is_column(part.expression):
            less, more = (part.this, part.expression) if isinstance(part, exp.LTE | exp.LT) else (part.expression, part.this)
            found.setdefault(less.name, []).append(more.name)
    return found


def conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    """The conditions that AND puts together; BETWEEN is two of them. What stands in each branch of an OR is taken out of it."""
    if isinstance(tree, exp.Paren):
        inner = conjuncts(tree.this)
        return inner if isinstance(tree.this, exp.And | exp.Paren) or len(inner) > 1 or inner[0] is not tree.this else [tree]
    if isinstance(tree, exp.Or):
        return _taken_out(tree)
    if isinstance(tree, exp.And):
        return [*conjuncts(tree.this), *conjuncts(tree.expression)]
    if isinstance(tree, exp.Between):
        least, most = (exp.GTE(this=tree.this.copy(), expression=tree.args["low"].copy()),
                       exp.LTE(this=tree.this.copy(), expression=tree.args["high"].copy()))  # fmt: skip
        return [least, most]
    return [tree]


def _taken_out(tree: exp.Or) -> list[exp.Expr]:
    """(a AND b) OR (a AND c) as a AND (b OR c), which is the same whatever is null; the tree itself where nothing is in each branch."""
    branches = [[part.unnest() for part in conjuncts(branch)] for branch in _branches(tree)]
    shared = [part for part in branches[0] if all(part in branch for branch in branches[1:])]
    if not shared:
        return [tree]
    rests = [[part for part in branch if part not in shared] for branch in branches]
    if not all(rests):
        return shared
    return [*shared, exp.paren(exp.or_(*(exp.and_(*(part.copy() for part in rest)) for rest in rests)), copy=False)]


def _branches(tree: exp.Expr) -> list[exp.Expr]:
    inner = tree.unnest()
    return [*_branches(inner.this), *_branches(inner.expression)] if isinstance(inner, exp.Or) else [tree]


def _equal(lower: Lower, left: Relation, right: Relation, using: Sequence[str], join: exp.Join) -> list[exp.Expr]:
    """USING (a, b) as equalities."""
    parts: list[exp.Expr] = []
    with lower.script.at(join):
        for name in using:
            sides = [relation.find(exp.column(name)) for relation in (left, right)]
            parts.append(exp.EQ(this=_of(sides[0]), expression=_of(sides[1])))
    return parts


def _named(relation: Relation, name: str, other: Relation) -> Relation:
    """The relation with a name for a query that has none, so that its columns are told from those of the other side."""
    table = free_name(name, [visible.table for visible in (*relation.columns, *other.columns)])
    return replace(relation, columns=tuple(v if v.table else replace(v, table=table) for v in relation.columns))


def _of(visible: Visible) -> exp.Column:
    return exp.column(visible.name, table=visible.table or None, quoted=True)


def _alone_first(
    lower: Lower, both: Relation, left: Relation, right: Relation, parts: list[exp.Expr], pending: list[exp.Expr]
) -> tuple[Relation, Relation, list[exp.Expr]]:
    """Conditions that only one side has a say in become filters before the join; those of WHERE on both sides become part of it."""
    rest = []
    for part in (*parts, *pending):
        side = _side(lower, both, left, part)
        of_where = any(part is waiting for waiting in pending)
        if side is None:
            if not of_where:
                rest.append(part)
            continue
        if side in ("l", "r"):
            with lower.script.at(part):
                if side == "l":
                    left = left.where(left.stream.where(to_sql(left.rewritten(part))))
                else:
                    right = right.where(right.stream.where(to_sql(right.rewritten(part))))
        else:
            rest.append(part)
        if of_where:
            pending[:] = [waiting for waiting in pending if waiting is not part]
    return left, right, rest


def _side(lower: Lower, both: Relation, left: Relation, part: exp.Expr) -> str | None:
    """l, r or lr: whose columns a condition is about; None if it is about none of them, or about tables that come later."""
    if part.find(exp.Subquery, exp.Select, exp.Window):
        return None
    try:
        found = {both.find(column) for column in part.find_all(exp.Column)}
    except (UnknownColumn, ExpressionError):
        return None
    own = set(left.columns)
    return "".join(sorted({"l" if visible in own else "r" for visible in found})) or None


def _keys_as_columns(
    lower: Lower, both: Relation, left: Relation, right: Relation, parts: list[exp.Expr]
) -> tuple[Relation, Relation, list[exp.Expr]]:
    """`f(left) = g(right)`: what is no column becomes one that SQL cannot see, so that rows can be brought together by it."""
    made: dict[str, list[tuple[str, exp.Expr]]] = {"l": [], "r": []}
    hidden: dict[str, list[Visible]] = {"l": [], "r": []}
    sides = {"l": left, "r": right}
    changed = []
    for part in parts:
        if isinstance(part, exp.NullSafeEQ):
            part = _null_safe(_aligned(lower, both, left, sides, part))
        if isinstance(part, exp.EQ) and {_side(lower, both, left, part.this), _side(lower, both, left, part.expression)} == {"l", "r"}:
            part = part.copy()
            for place in ("this", "expression"):
                tree = part.args[place]
                side = _side(lower, both, left, tree) or ""
                if not is_column(tree.unnest()):
                    name = free_name(f"_on{len(made['l']) + len(made['r'])}", [*left.stream.columns, *right.stream.columns])
                    made[side].append((name, sides[side].rewritten(tree)))
                    hidden[side].append(Visible(name, f"_{side}", name))
                    part.set(place, exp.column(name, table=f"_{side}", quoted=True))
        changed.append(part)
    with lower.script.at(parts[0] if parts else exp.Null()):
        left, right = (computed(sides[side], made[side]) for side in ("l", "r"))
    left, right = (replace(relation, columns=(*relation.columns, *hidden[side])) for relation, side in ((left, "l"), (right, "r")))
    return left, right, changed


def _renamed(lower: Lower, left: Relation, right: Relation) -> Relation:
    """The right side with names for its columns that the left does not have, and without columns that SQL cannot see."""
    taken = [*left.stream.columns]
    items = []
    for visible in right.columns:
        name = free_name(visible.column, taken)
        taken.append(name)
        items.append((name, own_column(visible.column)))
    stream = lower.project(right, items).stream
    columns = tuple(replace(v, column=name) for v, (name, _) in zip(right.columns, items, strict=True))
    return replace(right, stream=stream, columns=columns)


def _sided(left: Relation, right: Relation, part: exp.Expr) -> exp.Expr:
    """A condition over l.column and r.column."""
    own, both = set(left.columns), replace(left, columns=(*left.columns, *right.columns))

    def sided(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        visible = both.find(node)
        return exp.column(visible.column, table="l" if visible in own else "r", quoted=True)

    return exp.paren(part.copy().transform(sided), copy=False) if isinstance(part, exp.Or) else part.copy().transform(sided)


def _of_either(lower: Lower, relation: Relation, left: Relation, right: Relation, using: Sequence[str]) -> Relation:
    """The columns of USING behind a full join: those of whichever side has a row."""
    made: list[tuple[str, exp.Expr]] = []
    for name in using:
        sides = [own_column(side.find(exp.column(name, quoted=True)).column) for side in (left, right)]
        made.append((free_name(f"_using{len(made)}", relation.stream.columns), exp.Coalesce(this=sides[0], expressions=sides[1:])))
    names = {name.lower() for name in using}
    shown = [replace(v, qualified=v.qualified or v.name.lower() in names) for v in relation.columns]
    kept = [(name, own_column(name)) for name in relation.stream.columns if name != CHANGE]
    stream = lower.project(relation, [*kept, *made]).stream
    return replace(relation, stream=stream, columns=(*(Visible(name, "", made[at][0]) for at, name in enumerate(using)), *shown))


def _once(columns: Sequence[Visible], using: Sequence[str], how: str) -> tuple[Visible, ...]:
    """Without hidden columns, and with columns of USING once, before all others: the right's of a right join, else the left's. Those of
    the other side go on behind its name."""
    names = [name.lower() for name in using]
    seen = [visible for visible in columns if visible.table not in ("_l", "_r")]
    shown = [visible for visible in (seen if how == "right" else reversed(seen)) if not visible.qualified]
    by_name = {visible.name.lower(): visible for visible in shown if visible.name.lower() in names}
    first = [by_name[name] for name in names]
    others = [visible for visible in shown if visible.name.lower() in names and visible not in first]
    others.sort(key=lambda visible: names.index(visible.name.lower()))
    rest = (visible for visible in seen if visible not in first and visible not in others)
    return (*first, *(replace(visible, qualified=True) for visible in others), *rest)
