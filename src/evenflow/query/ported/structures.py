"""Structures that are made anew, field by field: `withField` and `dropFields`, which SQL does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn, Protocol

from evenflow.query.ported.tree import Expression, type_of, updated_types
from evenflow.stream.schema import quoted


class Writer(Protocol):
    """Who writes expressions as SQL."""

    def sql(self, tree: Expression) -> str: ...

    def refuse(self, tree: Expression, why: str) -> NoReturn: ...


def updated(writer: Writer, tree: Expression) -> str:
    """The structure with other fields; null where it is null."""
    given = tree.children[0]
    while given.kind == "UpdateFields":
        given = given.children[0]
    if not isinstance(type_of(given), Mapping):
        writer.refuse(given, "which fields it has is not known here; write named_struct(...) in its place")
    owner, made = writer.sql(given), list[str]()
    for field in updated_types(tree):
        name = str(field["name"])
        value = writer.sql(field["made"]) if "made" in field else f"{owner}.{quoted(name)}"
        made.append(f"{quoted_text(name)}, {value}")
    return f"if({owner} IS NULL, NULL, named_struct({', '.join(made)}))"


def quoted_text(text: str) -> str:
    """A string as SQL writes it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


__all__ = ["quoted_text", "updated"]
