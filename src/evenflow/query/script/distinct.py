"""count(DISTINCT x) in windows of time, exactly: every value of a group first becomes one row, and then rows are counted.

For each x there is a branch that groups by the keys and x, in the same windows; whether a value counts under a FILTER is the greatest of
a flag over its rows. Null does not count, but is grouped too: a group of nulls alone is a group. The other aggregates are a branch of
their own. What the branches give for a group comes together in one more aggregate, which is over windows that hold the end of just one of
the given windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from evenflow.query.aggregates import TimeWindow
from evenflow.query.script.relation import free_name
from evenflow.query.sql.parser import parse, to_sql
from evenflow.query.sql.types import name_of
from evenflow.query.user.scope import built_in
from evenflow.stream.change import is_changelog

if TYPE_CHECKING:
    from evenflow.query.builder import Stream
    from evenflow.query.grouped import GroupedStream, Mode, SessionStream, WindowedStream
    from evenflow.query.script.lowering import Lower


@dataclass(frozen=True, slots=True)
class Distinct:
    """One count(DISTINCT value) FILTER (WHERE condition); name: of its result."""

    name: str
    value: str
    condition: str | None


def aggregated(
    lower: Lower, over: GroupedStream[Stream] | WindowedStream[Stream] | SessionStream[Stream], calls: Mapping[str, str], tree: exp.Expr
) -> Stream:
    """The box, or boxes, of aggregate calls. over: a grouped stream, windowed perhaps. calls: name of the result by the call's text."""
    distinct = [found for text, name in calls.items() if (found := _distinct(lower, text, name, tree)) is not None]
    plain = {text: name for text, name in calls.items() if name not in {d.name for d in distinct}}
    window = over.over
    if not distinct:
        mode: Mode = "changelog" if window is None and (lower.changes or is_changelog(over.stream.schema)) else "update"
        return over.agg(*(f"{text} as `{name}`" for text, name in plain.items()), mode=mode)
    assert isinstance(window, TimeWindow), "elsewhere the values are collected"
    return _together(over, window, distinct, plain)


def _distinct(lower: Lower, text: str, name: str, tree: exp.Expr) -> Distinct | None:
    call = parse(text)
    first = call.expressions[0] if call.expressions else None
    if not isinstance(first, exp.Distinct):
        return None
    if call.name.lower() != "count" or len(first.expressions) != 1:
        where = next(tree.find_all(exp.Distinct), tree)
        lower.script.fail(where, "DISTINCT is available in count(DISTINCT x) of one value; group by the others in a query inside this one")
    value = first.expressions[0]
    if isinstance(value, exp.Case) and value.this is None and len(value.args["ifs"]) == 1 and not value.args.get("default"):
        branch = value.args["ifs"][0]
        return Distinct(name, to_sql(branch.args["true"]), to_sql(branch.this))
    return Distinct(name, to_sql(value), None)


def _together(
    over: GroupedStream[Stream] | WindowedStream[Stream] | SessionStream[Stream],
    window: TimeWindow,
    distinct: Sequence[Distinct],
    plain: Mapping[str, str],
) -> Stream:
    source, keys = over.stream, over.keys
    values = list(dict.fromkeys(d.value for d in distinct))
    branches: list[tuple[Stream, list[str]]] = []
    if plain:
        stream = over.agg(*(f"{text} as `{name}`" for text, name in plain.items()))
        branches.append((stream, list(plain.values())))
    for number, value in enumerate(values):
        mine = [d for d in distinct if d.value == value]
        column = free_name(f"_value{number}", source.columns)
        flags = {free_name(f"_flag{i}", source.columns): d for i, d in enumerate(mine)}
        counts = {flag: (f"({d.condition}) AND " if d.condition else "") + f"({value}) IS NOT NULL" for flag, d in flags.items()}
        made = {column: _guarded(value, mine), **{flag: f"CASE WHEN {counted} THEN 1 ELSE 0 END" for flag, counted in counts.items()}}
        grouped = (
            source.with_columns(made)
            .group_by(*keys, column)
            .window(f"{window.size_us} us", f"{window.slide_us} us", start=f"{window.start_us} us")
        )
        stream = grouped.agg(*(f"{built_in('max')}(`{flag}`) as `{d.name}`" for flag, d in flags.items()))
        branches.append((stream, [d.name for d in mine]))
    if len(branches) > 1:
        joined = _united(branches, [*keys, "window_start", "window_end"])
    else:
        joined = branches[0][0]
    # A group has one row of the plain branch, so the greatest of its values is its value.
    again = [f"{built_in('max')}(`{name}`) as `{name}`" for name in plain.values()]
    again += [f"{built_in('sum')}(`{d.name}`) as `{d.name}`" for d in distinct]
    inner = {"window_start", "window_end"} & set(keys)
    assert not inner, "keys of these names are renamed before"
    counted = joined.group_by(*keys).window(f"{window.slide_us} us", start=f"{window.start_us} us").agg(*again)
    start = f"window_end - INTERVAL '{window.size_us}' MICROSECOND"
    return counted.with_columns({"window_start": start, **{d.name: f"{built_in('coalesce')}(`{d.name}`, 0L)" for d in distinct}})


def _guarded(value: str, counts: Sequence[Distinct]) -> str:
    """The value where some count wants it; where none does, it may not even exist."""
    conditions = [d.condition for d in counts if d.condition is not None]
    return value if len(conditions) < len(counts) else f"CASE WHEN {' OR '.join(f'({c})' for c in conditions)} THEN {value} END"


def _united(branches: Sequence[tuple[Stream, list[str]]], kept: Sequence[str]) -> Stream:
    """All branches with the columns of all, null where a branch has none of that name."""
    types = {name: stream.schema.field(name).type for stream, names in branches for name in names}
    sides = []
    for stream, names in branches:
        made = {name: name if name in names else f"CAST(NULL AS {name_of(type_)})" for name, type_ in types.items()}
        sides.append(stream.select(*(f"`{name}`" for name in kept), **made))
    return sides[0].union(*sides[1:])
