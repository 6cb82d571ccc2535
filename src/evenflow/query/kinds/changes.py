"""What boxes owe where rows can be taken back: an aggregate of a changelog, and the table that a changelog leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.aggregates import COLLECT_ROWS, AggCall
from evenflow.stream.change import CHANGE, is_changelog
from evenflow.stream.schema import has_map

REMEDY: Final = "let it end in a sink, .complete() or an aggregate, or make it plain rows again with .where(...) and .drop('_change')"

MOST_COLUMNS: Final = 60
"""Of a table that is kept whole."""


def check_retracting(name: str, keys: Sequence[str], calls: Sequence[AggCall], schema: pa.Schema, *, windowed: bool, changes: bool) -> None:
    """Raise QueryError or TypeMismatch unless an aggregate can take back what it has counted."""
    if windowed:
        raise QueryError(f"box {name!r} is given a changelog, and its windows would have to take back what they have put out; {REMEDY}")
    if CHANGE in keys:
        raise QueryError(f"box {name!r} groups a changelog by what its rows do; to count changes, rename the column in a select before")
    if not changes:
        raise QueryError(
            f"box {name!r} is given a changelog, so its groups may come to an end, which only a changelog can say: give mode='changelog', "
            "or mode='complete'"
        )
    for call in calls:
        _check_subtracts(name, call)


def _check_subtracts(name: str, call: AggCall) -> None:
    if call.function == COLLECT_ROWS:
        raise QueryError(
            f"box {name!r}: an aggregator of your own cannot take rows back, and a changelog takes some back; aggregate with it before the "
            "results change"
        )
    shown = f"{call.function}({call.column or '*'})"
    if call.function not in ("count", "sum", "avg"):
        raise QueryError(
            f"box {name!r}: {shown} of a changelog would have to know the order in which rows came, and what is taken back has "
            "none; say in another way which row it is, such as max_by(x, y)"
        )


def check_complete(name: str, schema: pa.Schema) -> pa.Schema:
    """The columns of a whole table that a changelog leaves. Raises QueryError or TypeMismatch if there is none."""
    if not is_changelog(schema):
        raise QueryError(
            f"box {name!r} keeps the table that a changelog leaves, and is given plain rows; give the aggregate before it mode='changelog'"
        )
    result = pa.schema([field for field in schema if field.name != CHANGE])
    for field in result:
        if has_map(field.type):
            raise TypeMismatch(f"box {name!r}: {field.name!r} is {field.type}, by which rows cannot be told apart; leave it out before")
    if not 1 <= len(result) <= MOST_COLUMNS:
        raise QueryError(f"box {name!r}: a table of {len(result)} columns; it must have between 1 and {MOST_COLUMNS}")
    return result
