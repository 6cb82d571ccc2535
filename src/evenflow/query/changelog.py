"""What boxes make of changelogs: which put one out, which take one in, and which must refuse it.

Whatever treats each row by itself passes changes on as they are, and so does a union. An aggregate takes back what it has counted. Others
would have to know every row that is left, so they refuse, by their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.aggregates import AggCall, TimeWindow
from evenflow.query.check import StreamType
from evenflow.stream.change import CHANGE, is_changelog

REFUSED: Final = {
    "join": "would pair a row again that is taken back",
    "dedup": "would have to know what is left when the first of equal rows is taken back",
    "top": "would have to know the next best row when one is taken back",
    "resample": "has put out values between rows that may be taken back",
    "pattern": "has found matches with rows that may be taken back",
    "bsort": "would part a row from the one that replaces it",
    "sort": "would part a row from the one that replaces it",
    "repartition": "would part a row from the one that replaces it",
}  # fmt: skip
"""Kinds of boxes that cannot have a changelog as their input, and why."""

REMEDY: Final = "let it end in a sink, .complete() or an aggregate, or make it plain rows again with .where(...) and .drop('_change')"


def check_input(name: str, kind: str, inputs: Sequence[StreamType]) -> None:
    """Raise QueryError if such a box is given a changelog and cannot take rows back."""
    if kind in REFUSED and any(is_changelog(given.schema) for given in inputs):
        raise QueryError(f"box {name!r} ({kind}) is given a changelog, and {REFUSED[kind]}; {REMEDY}")


def puts_out_changes(params: Mapping[str, Any]) -> bool:
    """Whether an aggregate box with these parameters puts out a changelog."""
    window = params["window"]
    return params.get("mode") == "changelog" or (isinstance(window, TimeWindow) and window.mode == "changelog")


def check_aggregate(name: str, params: Mapping[str, Any], given: StreamType) -> None:
    """Raise QueryError or TypeMismatch unless the aggregate can put out what its mode says, of this input."""
    mode, window = params.get("mode", "update"), params["window"]
    if mode not in ("update", "changelog"):
        raise QueryError(f"box {name!r}: the mode of its results is {mode!r}; it must be 'update', 'changelog' or 'complete'")
    if mode != "update" and window is not None:
        raise QueryError(f"box {name!r}: the mode is said where the window is, .window(..., mode={mode!r}); rows and sessions come once")
    if is_changelog(given.schema):
        _check_retracting(name, params, given.schema)
    if puts_out_changes(params) and CHANGE in (*params["keys"], *(call.name for call in params["calls"])):
        raise QueryError(f"box {name!r} puts out a column {CHANGE!r} of its own; give yours another name in a select before")


def _check_retracting(name: str, params: Mapping[str, Any], schema: pa.Schema) -> None:
    if params["window"] is not None:
        raise QueryError(f"box {name!r} is given a changelog, and its windows would have to take back what they have put out; {REMEDY}")
    if CHANGE in params["keys"]:
        raise QueryError(f"box {name!r} groups a changelog by what its rows do; to count changes, rename the column in a select before")
    if not puts_out_changes(params):
        raise QueryError(
            f"box {name!r} is given a changelog, so its groups may come to an end, which only a changelog can say: give mode='changelog', "
            "or mode='complete'"
        )
    for call in params["calls"]:
        _check_subtracts(name, call, schema)


def _check_subtracts(name: str, call: AggCall, schema: pa.Schema) -> None:
    shown = f"{call.function}({call.column or '*'})"
    if call.function not in ("count", "sum", "avg"):
        raise QueryError(
            f"box {name!r}: {shown} of a changelog would have to know every row that is left; count, sum and avg can take rows back"
        )
    if call.function != "count" and not pa.types.is_integer(schema.field(call.column).type):
        kind = schema.field(call.column).type
        raise TypeMismatch(
            f"box {name!r}: {shown} of a changelog would have to take back {kind} values, which leaves a rest in the last digits; "
            "cast the column to bigint, in units that are small enough, such as cents"
        )


def check_complete(name: str, schema: pa.Schema) -> pa.Schema:
    """The columns of a whole table that a changelog leaves. Raises QueryError or TypeMismatch if there is none."""
    if not is_changelog(schema):
        raise QueryError(
            f"box {name!r} keeps the table that a changelog leaves, and is given plain rows; give the aggregate before it mode='changelog'"
        )
    result = pa.schema([field for field in schema if field.name != CHANGE])
    for field in result:
        if pa.types.is_nested(field.type):
            raise TypeMismatch(f"box {name!r}: {field.name!r} is {field.type}, by which rows cannot be told apart; leave it out before")
    if not 1 <= len(result) <= MOST_COLUMNS:
        raise QueryError(f"box {name!r}: a table of {len(result)} columns; it must have between 1 and {MOST_COLUMNS}")
    return result


MOST_COLUMNS: Final = 60
"""Of a table that is kept whole."""
