"""Places, neighbours and totals over rows in an order, of results that change. Their operator is `operator.changes.rank`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np
import pyarrow as pa

from evenflow.query.built import Built
from evenflow.query.sql import calendar
from evenflow.query.sql.decimal_math import mean_type, sum_type
from evenflow.stream.arrays import Int64s
from evenflow.stream.change import CHANGE_FIELD
from evenflow.stream.schema import has_map, is_number, parse_ddl

PLACES: Final = ("row_number", "rank", "dense_rank", "ntile", "percent_rank", "cume_dist")
NEIGHBOURS: Final = ("lag", "lead")
PLACED: Final = ("first_value", "last_value", "nth_value")
LISTED: Final = "collect_list"
"""All values of a frame, which other aggregates are made of: the middle, the correlation of two columns."""
FRAMED: Final = ("count", "sum", "avg", "min", "max", "stddev", LISTED, *PLACED)
_DAY_US: Final = 86_400_000_000
SHORT: Final = 18
"""Digits of decimals that frames by value go by: each is one word, whatever they are."""


@dataclass(frozen=True)
class Place:
    """One column that is added. function: of PLACES, NEIGHBOURS or FRAMED. column: that it is of, or None.

    low, high: of a neighbour, how many rows on it is (low); of a frame, where it begins and ends, counted from a row on, None without an
    end. peers: the frame goes on to rows that are equal in the order. span: low and high are no numbers of rows, but distances in the
    one column of the order: days of dates, microseconds of times, units of the last digit of decimals. months: by the calendar, of both
    dates and times. number: of ntile, how many parts; of nth_value, which row of the frame. known: neighbours and rows of the frame are
    counted without those in which the column is null.
    """

    name: str
    function: str
    column: str | None = None
    low: float | None = None
    high: float | None = None
    peers: bool = False
    span: bool = False
    number: int = 1
    known: bool = False
    months: bool = False

    @property
    def from_first(self) -> bool:
        """Whether it is of all rows from the first one on, as far as its frame goes."""
        return self.function in PLACES or (self.function in FRAMED and self.low is None)

    @property
    def anchor(self) -> Literal["low", "high"] | None:
        """The end that the frames of all rows of a key have in common."""
        return "low" if self.low is None else "high" if self.high is None else None

    def type(self, schema: pa.Schema) -> pa.DataType:
        """Of its values, as in Spark."""
        if self.function in PLACES:
            return pa.float64() if self.function in ("percent_rank", "cume_dist") else pa.int32()
        if self.function == "count":
            return pa.int64()
        kind = schema.field(self.column).type
        if pa.types.is_decimal(kind) and self.function in ("sum", "avg"):
            return (sum_type if self.function == "sum" else mean_type)(kind)
        if self.function in ("avg", "stddev") or (self.function == "sum" and pa.types.is_floating(kind)):
            return pa.float64()
        if self.function == LISTED:
            return pa.list_(kind)
        return pa.int64() if self.function == "sum" else kind


def months_on(values: Int64s, months: int, kind: pa.DataType) -> Int64s:
    """Days of dates, or microseconds of times, so many months later by the calendar. values: int64 (n,). kind: of which of the two."""
    day = 1 if pa.types.is_date(kind) else _DAY_US
    days, rest = np.divmod(values, day)
    return calendar.months_later(days, np.full(days.size, months)) * day + rest


def misfit(place: Place, kind: pa.DataType) -> str | None:
    """Why a place cannot be of a column of this type; None if it can."""
    if place.function in ("sum", "avg") and not is_number(kind):
        return f"{place.function} is of numbers, not of {kind}; cast it to double"
    if place.function in ("min", "max") and has_map(kind):
        return f"{place.function} cannot work on {kind}: maps have no order"
    return None


@dataclass
class Ranked(Built):
    """keys: rows of equal values in them are in one order. columns: of the rows, as DDL. by: (column, whether it descends); rows that are
    equal in it are in order of all their columns. places: what is added. kept: (column, least, most) of those rows only that have such a
    place, or None. shown: whether the places are put out.

    State: the rows.
    """

    operator: ClassVar[str] = "changes.rank:Rank"

    columns: str
    by: tuple[tuple[str, bool], ...]
    places: tuple[Place, ...]
    kept: tuple[str, int, int | None] | None = None
    shown: bool = True

    @property
    def output(self) -> pa.Schema:  # type: ignore[override]
        schema = parse_ddl(self.columns)
        added = [pa.field(place.name, place.type(schema)) for place in self.places] if self.shown else []
        return pa.schema([*schema, *added, CHANGE_FIELD])
