"""Stars among the arguments of functions: `struct(*)`, `hash(t.*)`. Each stands for columns, as in Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from evenflow.query.sql.composed import count_call
from evenflow.query.sql.parser import struct_call
from evenflow.query.user.scope import called_name

_CALLS: Final[Mapping[str, Callable[[list[exp.Expr]], exp.Expr]]] = {"struct": struct_call, "count": count_call}
"""Calls of which the parser makes others, by what they are given."""


def with_columns_for_stars(tree: exp.Expr, columns: Callable[[exp.Expr], list[exp.Expr]]) -> exp.Expr:
    """The expression with what `columns` says in the place of each star, but for that of `count(*)`, which is about rows. It is changed."""
    holders = [node for node in tree.walk() if _has_star(node)]
    for holder in reversed(holders):  # What is within another one comes first.
        given = [made for each in holder.expressions for made in (columns(each) if each.is_star else [each])]
        name = called_name(holder.name) if isinstance(holder, exp.Anonymous) else ""
        if name not in _CALLS:
            holder.set("expressions", given)
            continue
        made = _CALLS[name](given)
        tree = made if holder is tree else tree
        holder.replace(made)
    return tree


def has_stars(tree: exp.Expr) -> bool:
    """Whether there is one for which columns come."""
    return any(map(_has_star, tree.walk()))


def _has_star(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Anonymous | exp.Distinct):
        return False
    counts = isinstance(node, exp.Anonymous) and called_name(node.name) == "count"
    return any(each.is_star and not (counts and isinstance(each, exp.Star)) for each in node.expressions)


__all__ = ["has_stars", "with_columns_for_stars"]
