"""Decimals in lines and files that Arrow reads: those of which its readers end the process are found before it has them.

Arrow looks the power of ten between a text's places and its column's up without a bound, in readers of JSON and of CSV alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from evenflow.sources.json_rows import UNREADABLE, check_numbers

_PLACES: Final = rb"-0*[1-9][0-9]++(?![0-9A-Za-z-])"
FAR: Final = tuple(map(re.compile, (rb"e" + _PLACES, rb"E" + _PLACES, rb"\+-", rb"\\u00[2-6]")))
"""One of these is in each decimal that Arrow must not be given, or in a text that hides it, and in few others, not even in UUIDs. Each
begins with what is found fast.
"""


def far(data: bytes) -> list[int]:
    """Where there are decimals that Arrow must not be given, if any are."""
    return [found.start() for each in FAR for found in each.finditer(data)]


def has_decimal(type_: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(type_)) or any(has_decimal(type_.field(at).type) for at in range(type_.num_fields))


def check_decimals(column: str, values: Iterable[Any], type_: pa.DataType) -> None:
    """values: of a column, as texts or as JSON has them. Raises pa.ArrowInvalid for a decimal that has far more places than its column."""
    try:
        check_numbers(values, type_)
    except (TypeError, *UNREADABLE) as error:
        raise pa.ArrowInvalid(f"column {column!r}: {error}") from error
