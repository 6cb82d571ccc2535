"""Collations of columns that come from Spark: by what Spark compares their texts, where that is not their bytes. Columns here have none, so
such a column is refused before its texts are compared otherwise than they were."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from evenflow.errors import TypeMismatch

INSTEAD: Final = "columns are compared by their bytes here; in its place take lower(x), or x COLLATE UTF8_BINARY to compare by bytes"
_COLLATED: Final = re.compile(r"\bcollate (\w+)", re.IGNORECASE)
_OF_FIELDS: Final = "__COLLATIONS"
"""Where the JSON of a structure's field has collations, each behind who provides it."""


def collation_of(type_: Any) -> str | None:
    """By what Spark compares texts of this type, given as it is written or as its JSON; None if by their bytes, as here."""
    return next((name for name in _collations(type_) if name.upper() != "UTF8_BINARY"), None)


def check_collations(described: Mapping[str, Any], what: str) -> None:
    """TypeMismatch for a column with a collation. described: a structure in Spark's JSON. what: whose it is."""
    for field in described["fields"]:
        if (collation := collation_of(field)) is not None:
            raise TypeMismatch(f"{what}: column {field['name']!r} is a string collate {collation}, and {INSTEAD}")


def _collations(type_: Any) -> Iterator[str]:
    if isinstance(type_, str):
        yield from _COLLATED.findall(type_)
    elif isinstance(type_, list):
        for each in type_:
            yield from _collations(each)
    elif isinstance(type_, Mapping):
        for key, each in type_.items():
            if key == "metadata":
                yield from (str(name).rpartition(".")[2] for name in (each or {}).get(_OF_FIELDS, {}).values())
            elif key != "name":
                yield from _collations(each)
