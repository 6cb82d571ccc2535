"""Joins with the newest row: `ASOF JOIN`, and `JOIN u FOR SYSTEM_TIME AS OF t.ts`, which is the same of a table that has every change.

Both are `Stream.join_latest` in event time: a row of the left side with the row of its key that was the newest at the row's time. Which
that is, is known when the watermark has passed, so rows come once and stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from evenflow.query.script.lowering import Item, Lower
from evenflow.query.script.relation import Relation, Visible, free_name, is_column, own_column
from evenflow.query.sql.parser import to_sql
from evenflow.stream.change import is_changelog
from evenflow.stream.schema import quoted

_HOW = {("", ""): "inner", ("", "INNER"): "inner", ("LEFT", ""): "left", ("LEFT", "OUTER"): "left"}


def version_of(join: exp.Join) -> exp.Version | None:
    """FOR SYSTEM_TIME AS OF of what is joined; None if that is not said."""
    version = join.this.args.get("version") if isinstance(join.this, exp.Table) else None
    return version if isinstance(version, exp.Version) else None


def is_as_of(join: exp.Join) -> bool:
    return join.method.upper() == "ASOF" or version_of(join) is not None


def without_version(tree: exp.Expr) -> exp.Expr:
    """The table of FROM as it is without its FOR SYSTEM_TIME AS OF."""
    plain = tree.copy()
    plain.set("version", None)
    return plain


def newest(lower: Lower, left: Relation, join: exp.Join, right: Relation, conditions: Sequence[exp.Expr]) -> Relation:
    """left with the newest row of right for each of its rows. conditions: of ON and MATCH_CONDITION, each by itself."""
    script, version = lower.script, version_of(join)
    how = _HOW.get((join.side.upper(), join.kind.upper()))
    word = "ASOF JOIN" if version is None else "JOIN ... FOR SYSTEM_TIME AS OF"
    if how is None or (version is not None and join.method):
        script.fail(join, f"{word} is an inner or a left join; write one of these")
    shared = {v.table.lower() for v in left.columns} & {v.table.lower() for v in right.columns} - {""}
    if shared:
        script.fail(join.this, f"two tables are called {shared.pop()!r}; give one of them an alias with AS")
    for relation in (left, right):
        if is_changelog(relation.stream.schema) or relation.running:
            script.fail(join, f"{word} takes rows that come once on both sides, each with its time, and one of these changes")
        if relation.stream.event_time is None:
            script.fail(join, f"{word} goes by event time; declare a watermark on both sides")
    both = replace(left, columns=(*left.columns, *right.columns))
    keys, timed = list[tuple[exp.Expr, exp.Expr]](), version is not None
    if version is not None:
        _check_moment(lower, left, version)
    for part in conditions:
        sides = _by_side(lower, left, both, part)
        if sides is None or not isinstance(part, exp.EQ | exp.GTE | exp.LTE):
            script.fail(part, f"{word} takes equalities between the two sides; write other conditions in WHERE")
        elif isinstance(part, exp.EQ):
            keys.append(sides)
        elif timed or not _is_not_later(left, right, part, sides):
            times = " >= ".join(_named(relation) for relation in (left, right))
            script.fail(part, f"{word} takes the newest row that is not later in event time: {times}" if not timed else _ONLY_KEYS)
        else:
            timed = True
    if not keys or not timed:
        says = "which columns are equal" if timed else f"in ON which is not later, {_named(left)} >= {_named(right)}, and which are equal"
        script.fail(join, f"{word} has to say {says}")
    return _drawn(lower, left, right, keys, how, join)


_ONLY_KEYS = "the newest row is that of one time only; write other conditions in WHERE"


def _check_moment(lower: Lower, left: Relation, version: exp.Version) -> None:
    moment, time = version.expression, left.stream.event_time
    if str(version.name).upper() != "TIMESTAMP" or str(version.args.get("kind")).upper() != "AS OF":
        lower.script.fail(version, "of the versions of a table only FOR SYSTEM_TIME AS OF a row's time is available")
    if not is_column(moment) or lower.rewritten(left, moment) != own_column(str(time)):
        lower.script.fail(version, f"FOR SYSTEM_TIME AS OF takes the event time of the rows before it, {_named(left)}")


def _by_side(lower: Lower, left: Relation, both: Relation, part: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """What a comparison says of the left, and what of the right; None if it is none between the two."""
    if not isinstance(part, exp.Binary):
        return None
    own, found = set(left.columns), dict[str, exp.Expr]()
    for tree in (part.this, part.expression):
        with lower.script.at(tree):
            sides = {"l" if both.find(column) in own else "r" for column in tree.find_all(exp.Column)}
        if len(sides) == 1:
            found[sides.pop()] = tree
    return (found["l"], found["r"]) if len(found) == 2 else None


def _is_not_later(left: Relation, right: Relation, part: exp.Expr, sides: tuple[exp.Expr, exp.Expr]) -> bool:
    """Whether it says that the right's event time is at most the left's."""
    greater = part.this if isinstance(part, exp.GTE) else part.expression
    times = [relation.matches(side)[0].column for relation, side in zip((left, right), sides, strict=True) if is_column(side)]
    return greater is sides[0] and times == [left.stream.event_time, right.stream.event_time]


def _named(relation: Relation) -> str:
    """The event time as the text has it."""
    found = next((v for v in relation.columns if v.column == relation.stream.event_time), None)
    return str(relation.stream.event_time) if found is None else f"{found.table}.{found.name}" if found.table else found.name


def _drawn(lower: Lower, left: Relation, right: Relation, keys: Sequence[tuple[exp.Expr, exp.Expr]], how: str, join: exp.Join) -> Relation:
    """Both sides with columns of the same names for what is equal, those of the right else with names that the left does not have."""
    taken = [*left.stream.columns]
    names, ours, theirs, columns = list[str](), list[Item](), list[Item](), list[Visible]()
    for mine, other in keys:
        names.append(free_name(f"_as_of{len(names)}", taken))
        taken.append(names[-1])
        ours.append((names[-1], left.rewritten(mine)))
        theirs.append((names[-1], right.rewritten(other)))
    for visible in right.columns:
        name = free_name(visible.column, taken)
        taken.append(name)
        theirs.append((name, own_column(visible.column)))
        columns.append(replace(visible, column=name))
    with lower.script.at(join):
        with_keys = left.stream.with_columns({name: to_sql(tree) for name, tree in ours})
        known = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in (*names, _time_of(right, theirs)))  # Null equals nothing.
        followed = lower.project(right, theirs).stream.where(known)
        stream = with_keys.join_latest(followed, names, how, order="event_time")  # type: ignore[arg-type]
    return Relation(stream, (*left.columns, *columns))


def _time_of(relation: Relation, items: Sequence[Item]) -> str:
    """What the event time is called among these."""
    return next(name for name, tree in items if is_column(tree) and tree.name == relation.stream.event_time)


__all__ = ["is_as_of", "newest", "version_of", "without_version"]
