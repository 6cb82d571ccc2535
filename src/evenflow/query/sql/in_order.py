"""Aggregates of rows in an order: array_agg(x ORDER BY y), listagg(x, ',') WITHIN GROUP (ORDER BY y, z DESC), and the like.

Each value is collected beside what it is ordered by; rows of equal keys are in the order of the values, so that replicas agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sqlglot import exp

from evenflow.query.user.scope import built_in, is_known, nothing_known

Read = Callable[[str], exp.Expr]

_JOINED: Final = "_listed(transform({list}, each -> _listable(each)), {rest})"
_FORMS: Final = {
    "array_agg": "{list}", "collect_list": "{list}", "listagg": _JOINED, "string_agg": _JOINED,
    "first": "try_element_at({list}, 1)", "first_value": "try_element_at({list}, 1)",
    "last": "try_element_at({list}, -1)", "last_value": "try_element_at({list}, -1)",
}  # fmt: skip
"""What an aggregate is of the values in their order. Of first and last nulls count."""
NAMES: Final = frozenset(_FORMS)


def ordered(name: str, given: Sequence[exp.Expr], order: Sequence[exp.Expr], read: Read) -> exp.Expr | None:
    """The aggregate over its rows in that order; None if it is none that an order means something to."""
    distinct = bool(given) and isinstance(given[0], exp.Distinct)
    arguments = [*given[0].expressions, *given[1:]] if distinct else list(given)
    most = 2 if name in ("listagg", "string_agg") else 1
    if name not in _FORMS or not 1 <= len(arguments) <= most or any(isinstance(each, exp.Star) for each in arguments):
        return None
    if distinct and (len(order) != 1 or _key(order[0]) != arguments[0] or name[:4] in ("firs", "last")):
        return None
    places = {"x": arguments[0], "rest": arguments[1] if len(arguments) > 1 else exp.Null()}
    places |= {f"k{at}": _key(each) for at, each in enumerate(order)}
    text = _FORMS[name].format(list=_list(name, order, distinct), rest="`\0rest`")
    with nothing_known():
        tree = read(text)
    return put(tree, {f"\0{name}": each for name, each in places.items()})


def put(tree: exp.Expr, places: Mapping[str, exp.Expr]) -> exp.Expr:
    """A copy of a tree that was read where nothing is known: these are put in the places of its columns of these names, and its calls are
    of built-in functions, whatever the user has of their names."""

    def one(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.name in places:
            return places[node.name].copy()
        if isinstance(node, exp.Anonymous):
            node.set("this", built_in(node.name))
        elif isinstance(node, exp.If) and not isinstance(node.parent, exp.Case) and is_known("if"):
            parts = [node.args[part] for part in ("this", "true", "false") if node.args.get(part) is not None]
            return exp.Anonymous(this=built_in("if"), expressions=[part.transform(one) for part in parts])
        return node

    return tree.transform(one)


def _key(each: exp.Expr) -> exp.Expr:
    found: exp.Expr = each.this if isinstance(each, exp.Ordered) else each
    return found


def _falls(each: exp.Expr) -> bool:
    return isinstance(each, exp.Ordered) and bool(each.args.get("desc"))


def _nulls_first(each: exp.Expr) -> bool:
    """As in Spark, null is least where nothing else is said."""
    said = each.args.get("nulls_first") if isinstance(each, exp.Ordered) else None
    return not _falls(each) if said is None else bool(said)


def _list(name: str, order: Sequence[exp.Expr], distinct: bool) -> str:
    """The values in their order."""
    falls = [_falls(each) for each in order]
    plain = len(set(falls)) == 1 and all(_nulls_first(each) != fall for each, fall in zip(order, falls, strict=True))
    keeps = name[:4] in ("firs", "last")
    held = ", ".join([*(f"'k{at}', `\0k{at}`" for at in range(len(order))), "'x', `\0x`"])
    row = f"named_struct({held})" if keeps else f"CASE WHEN `\0x` IS NOT NULL THEN named_struct({held}) END"
    rows = f"collect_list({row})"
    if distinct:
        rows = f"array_distinct({rows})"
    if plain:
        rows = f"sort_array({rows}, {'false' if falls[0] else 'true'})"
    else:
        rows = f"array_sort({rows}, (l, r) -> {_compared(order)})"
    return f"transform({rows}, each -> each.x)"


def _compared(order: Sequence[exp.Expr]) -> str:
    """-1, 0 or 1 of two rows l and r."""
    parts = []
    for at, each in enumerate(order):
        one, other = f"l.k{at}", f"r.k{at}"
        less, null = (1, -1) if _falls(each) else (-1, 1), -1 if _nulls_first(each) else 1
        parts.append(f"WHEN {one} IS NULL AND {other} IS NOT NULL THEN {null} WHEN {other} IS NULL AND {one} IS NOT NULL THEN {-null} "
                     f"WHEN {one} < {other} THEN {less[0]} WHEN {one} > {other} THEN {less[1]} ")  # fmt: skip
    return f"CASE {''.join(parts)}WHEN l.x IS NULL AND r.x IS NOT NULL THEN -1 WHEN l.x < r.x THEN -1 WHEN l.x > r.x THEN 1 ELSE 0 END"
