"""Python values as arrays: structures, lists and maps take what a plain column takes, and no integer loses anything."""

from __future__ import annotations

import math
from collections import namedtuple
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.query.user.aggregator import Aggregator, pack, unpack
from evenflow.stream.schema import parse_type
from evenflow.stream.values import NOT_OF_TYPE, array_of, plain_values, shown_values

NAN = math.nan
FAR = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))
"""In UTC a time of the year 10000."""
Row = namedtuple("Row", ["n", "x"])
PLAIN: list[tuple[str, Any]] = [
    ("double", NAN), ("double", math.inf), ("float", 0.1), ("float", NAN), ("timestamp_ltz", datetime(2024, 1, 1)), ("timestamp_ltz", FAR),
    ("timestamp", datetime(2024, 1, 1, tzinfo=UTC)), ("timestamp", 10**18), ("date", datetime(2024, 1, 1)), ("boolean", True),
    ("interval day to second", timedelta(1)), ("decimal(9,2)", Decimal("1.5")), ("string", "a"), ("binary", b"a"), ("array<float>", [0.1]),
    ("double", None), ("double", np.float64("nan")), ("bigint", np.int32(7)), ("int", 7.0),
]  # fmt: skip
WRAPS: dict[str, tuple[str, Any]] = {
    "structure": ("struct<n: bigint, x: {}>", lambda x: {"n": 1, "x": x}),
    "tuple": ("struct<n: bigint, x: {}>", lambda x: (1, x)),
    "named tuple": ("struct<n: bigint, x: {}>", lambda x: Row(1, x)),
    "list": ("array<struct<x: {}, n: bigint>>", lambda x: [{"x": x, "n": 1}, None]),
    "map": ("map<bigint, {}>", lambda x: {1: x}),
    "pairs": ("map<int, array<{}>>", lambda x: [(1, [x])]),
}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize(("kind", "value"), PLAIN)
def test_what_a_plain_column_takes_is_taken_beside_integers(kind: str, value: Any, wrap: str) -> None:
    made, (form, wrapped) = array_of([value], parse_type(kind)), WRAPS[wrap]
    whole = array_of([wrapped(value)], parse_type(form.format(kind)))
    inside = whole
    while pa.types.is_nested(inside.type) and inside.type != made.type:
        if pa.types.is_struct(inside.type):
            inside = inside.field("x").drop_null() if value is not None else inside.field("x")
        else:
            inside = inside.items if pa.types.is_map(inside.type) else inside.values
    assert repr(plain_values(inside)[:1]) == repr(plain_values(made))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint", 1.5), ("struct<n: bigint, x: double>", {"n": 1.5, "x": NAN}), ("struct<n: bigint, x: double>", (1.5, NAN)),
        ("struct<n: bigint, x: double>", Row(1.5, NAN)), ("array<bigint>", [1, 1.5]), ("array<array<int>>", [[1], [2.5]]),
        ("map<bigint, double>", {1.5: NAN}), ("map<string, smallint>", {"a": 1.5}), ("map<string, smallint>", [("a", 1.5)]),
        ("struct<at: timestamp, m: array<map<bigint, struct<n: int>>>>", {"at": 10**18, "m": [{7: {"n": 0.5}}]}),
    ],
)  # fmt: skip
def test_integers_of_which_something_would_be_cut_off_are_refused(kind: str, value: Any) -> None:
    with pytest.raises(NOT_OF_TYPE):
        array_of([value], parse_type(kind))


class Mean(Aggregator):
    output = "double"
    state = "struct<n: bigint, mean: double>"


def test_nan_is_a_state() -> None:
    kept = pack(Mean(), {"n": 3, "mean": NAN})
    assert kept["n"] == 3 and math.isnan(unpack(Mean(), kept)["mean"])


def test_times_beyond_the_years_of_python_are_shown_as_texts() -> None:
    far = 10**18 + 1_500_000
    for type_, values, shown in (
        ("timestamp", [far, 0, None], ["+33658-09-27T01:46:41.500000", datetime(1970, 1, 1), None]),
        ("timestamp_ltz", [10**18, 0, None], ["+33658-09-27T01:46:40Z", datetime(1970, 1, 1, tzinfo=UTC), None]),
        ("timestamp", [-(10**17), None, None], ["-1199-02-15T14:13:20", None, None]),
        ("date", [4_000_000, 0, None], ["+12921-08-18", date(1970, 1, 1), None]),
    ):
        one = parse_type(type_)
        assert shown_values(pa.array(values, one)) == shown
        rows = [{"l": [value], "m": [("k", value)], "t": 1} for value in values]
        nested = pa.array(rows, pa.struct([("l", pa.list_(one)), ("m", pa.map_(pa.string(), one)), ("t", pa.duration("us"))]))
        assert shown_values(nested) == [{"l": [value], "m": [("k", value)], "t": timedelta(microseconds=1)} for value in shown]
