"""What a column is called that was given no name: its expression as it was written, also where the parser made others of it."""

from __future__ import annotations

from sqlglot import exp

from evenflow.query.sql.composed import WRITTEN
from evenflow.query.sql.parser import to_sql


def title_of(tree: exp.Expr) -> str:
    """The name, without quotes: `MAX_BY(a, b) + 1`."""
    return to_sql(tree.transform(_written)).replace("`", "")


def _written(node: exp.Expr) -> exp.Expr:
    call = node.meta.get(WRITTEN)
    return node if call is None else call.copy().transform(_written)


__all__ = ["title_of"]
