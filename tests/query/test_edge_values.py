"""Edge values at which expressions once gave something else than Spark. What Spark gives is written down here."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from evenflow.errors import EvenflowError, TypeMismatch
from evenflow.query.expression import compile_expression

UTC = pa.timestamp("us", "UTC")
BATCH = pa.record_batch({
    "s": pa.array(["axa", "0a0", None]),
    "r": pa.array(["a", None, "x"]),
    "nothing": pa.array([None, None, None], pa.string()),
    "i": pa.array([1, -33, None], pa.int32()),
    "far": pa.array([9_500_000_000_999_999, -1, 2**63 - 1]).view(UTC),
    "near": pa.array([0, 5, None]).view(UTC),
    "day": pa.array([0, 2**31 - 1, -719_163], pa.int32()).view(pa.date32()),
    "b": pa.array([True, None, None]),
    "c": pa.array([False, True, None]),
    "l": pa.array([2**62, -1, 0]),
    "w": pa.array(["1", "", "x"]),
})  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("concat_ws('-', nothing)", ["", "", ""]),
        ("concat_ws('-', nothing, r)", ["a", "", "x"]),
        ("concat_ws(r, nothing, nothing)", ["", None, ""]),
        ("concat_ws('-', null, cast(null as string))", ["", "", ""]),
        ("unix_micros(greatest(far, near))", [9_500_000_000_999_999, 5, 2**63 - 1]),
        ("unix_micros(least(near, far))", [0, -1, 2**63 - 1]),
        ("greatest(b, c)", [True, True, None]),
        ("least(b, c, true)", [False, True, True]),
        ("least(cast('1970-01-02' as date), near) = near", [True, True, None]),
        ("position('a', s, 2)", [3, 2, None]),
        ("position('a' in s)", [1, 2, None]),
        ("locate('a', s, i)", [1, 0, 0]),
        ("locate('a', s, null)", [0, 0, 0]),
        ("trim(both r from s)", ["x", None, None]),
        ("trim(both '0' from s)", ["axa", "a", None]),
        ("ltrim(null, s)", [None, None, None]),
        ("btrim(s, r)", ["x", None, None]),
        ("shiftleft(i, -1)", [-(2**31), -(2**31), None]),
        ("shiftright(1024, 33)", [512, 512, 512]),
        ("shiftright(l, 63)", [0, -1, 0]),
        ("shiftleft(1L, i)", [2, 2**31, None]),
        ("cast(far as bigint)", [9_500_000_000, -1, 9_223_372_036_854]),
        ("cast(far as string)", ["2271-01-16 16:53:20.999999", "1969-12-31 23:59:59.999999", "+294247-01-10 04:00:54.775807"]),
        ("cast(day as string)", ["1970-01-01", "+5881580-07-11", "0000-12-31"]),
        ("year(day)", [1970, 5_881_580, 0]),
        ("split(s, '')", [["a", "x", "a"], ["0", "a", "0"], None]),
        ("split('', '')", [[""]] * 3),
        ("trunc(day, 'year') = day", [True, False, False]),
        ("round(1.5D, 330)", [1.5] * 3),
        ("round(0.0D, 2147483647)", [0.0] * 3),
        ("dayofyear(day)", [1, 193, 366]),
        ("from_unixtime(253402300800)", ["+10000-01-01 00:00:00"] * 3),
        ("try_cast(far as int)", [None, -1, None]),
        ("try_cast(l as timestamp) is null", [False, False, False]),
        ("try_cast(9e300D as timestamp)", [None, None, None]),
        ("try_divide(w, 2)", [0.5, None, None]),
        ("try_divide(i, 0)", [None, None, None]),
        ("try_mod(i, 0)", [None, None, None]),
        ("add_months(nothing, w)", [None, None, None]),
        ("cast(9223372036854775807.0D as bigint)", [2**63 - 1] * 3),
        ("cast('1f' as double)", [1.0] * 3),
        ("cast(4.9e-324D as string)", ["4.9E-324"] * 3),
        ("cast(round(-0.2D) as string)", ["0.0"] * 3),
        ("unix_timestamp('2000-01-01 00:00:00')", [946_684_800] * 3),
        ("unix_seconds(cast('2000-07-01 12:00:00 America/New_York' as timestamp))", [962_467_200] * 3),
        ("unix_seconds(cast('+10000-01-01' as timestamp))", [253_402_300_800] * 3),
        ("(-9223372036854775808) % -1", [0] * 3),
        ("-9223372036854775808L", [-(2**63)] * 3),
        ("-128Y", [-128] * 3),
        ("- 32768S", [-32_768] * 3),
        ("-9223372036854775807L", [1 - 2**63] * 3),
        ("pmod(-9223372036854775808, -1)", [0] * 3),
        ("cast(sign(-0.0D) as string)", ["-0.0"] * 3),
        ("bround(-1.7976931348623157E308, 64)", [-1.7976931348623157e308] * 3),
        ("regexp_replace('aab', 'a*', '-')", ["--b-"] * 3),
        ("locate('', 'abc', 9)", [1] * 3),
        ("coalesce(1, coalesce('x', 2))", [1] * 3),
    ],
)
def test_as_spark(text: str, expected: list[Any]) -> None:
    compiled = compile_expression(text, BATCH.schema)
    assert compiled(BATCH).to_pylist() == expected
    assert [compiled(BATCH.slice(row, 1))[0].as_py() for row in range(3)] == expected, "each row by itself"


@pytest.mark.parametrize(
    "text",
    [
        "unix_timestamp('2000-01-01')", "unix_timestamp(w)", "to_timestamp('2000-1-1', 'yyyy-MM-dd')", "from_unixtime(l)",
        "add_months(day, 1)",
        "position('a', s, 9223372036854775807)", "cast(far as int)", "date_trunc('week', timestamp_micros(-9223372036854775808))",
    ],
)  # fmt: skip
def test_what_has_no_value_is_an_error_of_evenflow(text: str) -> None:
    with pytest.raises(EvenflowError):
        compile_expression(text, BATCH.schema)(BATCH)


@pytest.mark.parametrize(
    "text",
    ["cast(i as timestamp_ntz)", "cast(timestamp_ntz '2000-01-01' as bigint)", "date_add(day, l)", "unix_seconds(s)", "unix_date(s)",
     "md5(i)",
     "isnan(near)"],
)  # fmt: skip
def test_what_spark_refuses_by_type_is_refused(text: str) -> None:
    with pytest.raises(TypeMismatch):
        compile_expression(text, BATCH.schema)


def test_a_condition_of_case_is_no_bare_null() -> None:
    """As in Spark, which takes it in `if` only."""
    with pytest.raises(TypeMismatch, match="CASE WHEN needs a boolean"):
        compile_expression("case when null then 1 end", pa.schema([]))
