"""The calendar for all dates and timestamps, also where Arrow's ends: its years have 16 bits, Spark's dates reach five million years.

The calendar repeats every 400 years to the day of the week. So what lies outside of the years 1 to 9999 is moved by a multiple of
400 years into 1970 to 2369, computed there, and its year moved back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ArithmeticOverflow
from evenflow.query.sql.types import DATE, INT, LONG, STRING, name_of
from evenflow.stream.arrays import Int64s

CYCLE_DAYS: Final = 146_097
CYCLE_YEARS: Final = 400
_DAY_US: Final = 86_400_000_000
_FIRST_DAY: Final = -719_162
"""0001-01-01."""
_LAST_DAY: Final = 2_932_896
"""9999-12-31."""

Value = Any


def floor_divided(value: Value, by: int | pa.Scalar) -> Value:
    """Whole times, rounded towards the past: Arrow's division of whole numbers goes towards zero."""
    towards_zero = pc.divide(value, by)
    return pc.if_else(pc.greater(pc.multiply(towards_zero, by), value), pc.subtract(towards_zero, 1), towards_zero)


def field(value: Value, kernel: Callable[[Value], Value], *, years: bool = False) -> Value:
    """A field of dates, or of timestamps without a zone, as int; `years`: it counts years."""
    if usual(value):
        return kernel(value).cast(INT)
    moved, cycles = _moved(value)
    found = kernel(moved).cast(LONG)
    if years:
        found = pc.add(found, pc.multiply(cycles, CYCLE_YEARS))
    return _as_given(value, found.cast(INT))


def floor(value: Value, kernel: Callable[[Value], Value]) -> Value:
    """The start of a unit of dates, or of timestamps without a zone. ArithmeticOverflow if it lies before the first one."""
    if usual(value):
        return kernel(value)
    moved, cycles = _moved(value)
    kind, cycle = (INT, CYCLE_DAYS) if value.type == DATE else (LONG, CYCLE_DAYS * _DAY_US)
    start = kernel(moved).cast(kind).cast(LONG)
    try:
        back = pc.add_checked(start, pc.multiply_checked(pc.subtract(cycles, pc.sign(cycles)), cycle))
        back = pc.add_checked(back, pc.multiply(pc.sign(cycles), cycle)).cast(kind)
    except pa.ArrowInvalid:
        raise ArithmeticOverflow(f"the start of the unit lies before the first {name_of(value.type)}") from None
    return _as_given(value, back.cast(value.type))


def text(value: Value) -> Value:
    """Dates and timestamps without a zone as Spark shows them: four digits of the year or more, with a sign if it is not 0000 to 9999."""
    if usual(value):
        return _shown(value)
    moved, cycles = _moved(value)
    whole = _shown(moved).to_pylist()
    shown = [None if t is None else year_text(int(t[:4]) + CYCLE_YEARS * c) + t[4:] for t, c in zip(whole, cycles.to_pylist())]
    return _as_given(value, pa.array(shown, STRING))


def year_text(year: int) -> str:
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}"


def months_later(days: Int64s, months: Int64s) -> Int64s:
    """The days since 1970 of dates some months later, on the last day of the month if it has no such day."""
    moved = np.mod(days, CYCLE_DAYS)
    date = moved.astype("datetime64[D]")
    month = date.astype("datetime64[M]")
    day = (date - month.astype("datetime64[D]")).astype(np.int64)
    whole, rest = np.divmod(month.astype(np.int64) + months, 12 * CYCLE_YEARS)
    target = rest.astype("datetime64[M]")
    last = ((target + 1).astype("datetime64[D]") - target.astype("datetime64[D]")).astype(np.int64) - 1
    found: Int64s = (
        target.astype("datetime64[D]").astype(np.int64) + np.minimum(day, last) + ((days - moved) // CYCLE_DAYS + whole) * CYCLE_DAYS
    )
    return found


def last_of_month(days: Int64s) -> Int64s:
    """The days since 1970 of the last day of the month of each."""
    moved = np.mod(days, CYCLE_DAYS)
    month = moved.astype("datetime64[D]").astype("datetime64[M]") + 1
    found: Int64s = month.astype("datetime64[D]").astype(np.int64) - 1 + (days - moved)
    return found


def days_of(year: int, month: int, day: int) -> int | None:
    """Days since 1970 of a date of the proleptic Gregorian calendar; None if there is no such date."""
    if not 1 <= month <= 12:
        return None
    cycles, inner = divmod(year - 1970, CYCLE_YEARS)
    first = np.datetime64(f"{inner + 1970:04}-{month:02}", "M")
    length = int(((first + 1).astype("datetime64[D]") - first.astype("datetime64[D]")).astype(np.int64))
    if not 1 <= day <= length:
        return None
    return int(first.astype("datetime64[D]").astype(np.int64)) + day - 1 + cycles * CYCLE_DAYS


def usual(value: Value) -> bool:
    """Whether all lie in the years 1 to 9999."""
    least, most = (_FIRST_DAY, _LAST_DAY) if value.type == DATE else (_FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1)
    numbers = value.cast(INT if value.type == DATE else LONG)
    if isinstance(numbers, pa.Scalar):
        return not numbers.is_valid or bool(least <= numbers.as_py() <= most)
    ends = pc.min_max(numbers)
    return not ends["min"].is_valid or bool(ends["min"].as_py() >= least and ends["max"].as_py() <= most)


def _moved(value: Value) -> tuple[pa.Array, pa.Array]:
    """As an array of values in 1970 to 2369, and by how many cycles of 400 years each was moved."""
    array = pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) and not value.is_valid else value
    if isinstance(array, pa.Scalar):
        array = pa.repeat(array, 1)
    cycle = CYCLE_DAYS if value.type == DATE else CYCLE_DAYS * _DAY_US
    kind = INT if value.type == DATE else LONG
    missing = array.is_null().to_numpy(zero_copy_only=False)
    numbers = array.cast(kind).fill_null(0).to_numpy().astype(np.int64)
    cycles, inner = np.floor_divide(numbers, cycle), np.mod(numbers, cycle)
    return pa.array(inner, LONG, mask=missing).cast(kind).cast(value.type), pa.array(cycles, LONG, mask=missing)


def _as_given(value: Value, found: pa.Array) -> Value:
    return found[0] if isinstance(value, pa.Scalar) else found


def _shown(value: Value) -> Value:
    """As text, fractions of a second without trailing zeros."""
    text = value.cast(STRING)
    return text if value.type == DATE else pc.replace_substring_regex(text, pattern=r"\.?0*$", replacement="")
