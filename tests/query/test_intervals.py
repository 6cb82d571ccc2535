"""The last unit of an interval: what a whole number counts in, and whether a moved date is one. Each answer is that of Spark 4.1."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.expression import compile_expression

DAY, TIMES = datetime.date(2024, 1, 31), pa.timestamp("us", "UTC")
BATCH = pa.record_batch(
    {
        "dd": pa.array([DAY]),
        "ts": pa.array([datetime.datetime(2024, 1, 31, 5)], TIMES),
        "b": pa.array([True]),
        "i": pa.array([datetime.timedelta(days=2)], pa.duration("us")),
    }
)
COUNTS = {
    "dd - DATE '2024-01-01'": 30,
    "ts - TIMESTAMP '2024-01-01 00:00:00'": 2_610_000,
    "INTERVAL 3 HOURS": 3,
    "INTERVAL '3 hours'": 3,
    "INTERVAL '1 02' DAY TO HOUR": 26,
    "INTERVAL '-1 02' DAY TO HOUR": -26,
    "INTERVAL '-1.9' SECOND": -1,
    "INTERVAL 1 WEEK": 7,
    "INTERVAL 1 DAY 2 HOURS": 26,
    "INTERVAL 5000 MILLISECONDS": 5,
    "-INTERVAL 3 HOURS": -3,
    "abs(INTERVAL -2 DAYS)": 2,
    "INTERVAL 1 DAY + INTERVAL 2 HOURS": 26,
    "INTERVAL 1 DAY * 2": 172_800,
    "INTERVAL 2 DAYS / 2": 86_400,
    "make_dt_interval(1, 2)": 93_600,
    "if(b, INTERVAL 1 DAY, INTERVAL 2 DAYS)": 1,
    "CASE WHEN b THEN INTERVAL 1 DAY END": 1,
    "coalesce(dd - DATE '2024-01-01', INTERVAL 1 HOUR)": 720,
    "greatest(INTERVAL 1 DAY, INTERVAL 3 HOURS)": 24,
    "try_subtract(dd, DATE '2024-01-01')": 30,
    "array(INTERVAL 3 HOURS)[0]": 3,
    "array(INTERVAL 1 DAY, NULL, INTERVAL 3 HOURS)[0]": 24,
    "element_at(array(INTERVAL 1 DAY, dd - DATE '2024-01-01'), -1)": 30,
    "array_max(array(INTERVAL 1 DAY, INTERVAL 36 HOURS))": 36,
    "CAST(i AS INTERVAL HOUR)": 48,
    "CAST(i AS INTERVAL DAY TO MINUTE)": 2880,
    "CAST(INTERVAL 26 HOURS AS INTERVAL DAY)": 1,
    "CAST(INTERVAL '-25' HOUR AS INTERVAL DAY)": -1,
}
MOVED: dict[str, Any] = {
    "dd + INTERVAL 24 HOURS": datetime.datetime(2024, 2, 1, tzinfo=datetime.UTC),
    "dd + INTERVAL 1 DAY * 2": datetime.datetime(2024, 2, 2, tzinfo=datetime.UTC),
    "dd + make_dt_interval(1)": datetime.datetime(2024, 2, 1, tzinfo=datetime.UTC),
    "dd + INTERVAL 1 WEEK": datetime.date(2024, 2, 7),
    "INTERVAL 1 DAY + dd": datetime.date(2024, 2, 1),
    "dd + (DATE '2024-01-03' - dd)": datetime.date(2024, 1, 3),
    "dd + if(b, INTERVAL 1 DAY, INTERVAL 2 DAYS)": datetime.date(2024, 2, 1),
    "dd + array_min(array(INTERVAL 1 DAY, INTERVAL 2 DAYS))": datetime.date(2024, 2, 1),
    "dd + get(array(INTERVAL 1 DAY), 1)": None,
    "dd + nvl(dd - dd, INTERVAL 1 DAY)": DAY,
    "dd - (INTERVAL 3 DAYS - INTERVAL 1 DAY)": datetime.date(2024, 1, 29),
    "dd + CAST(i AS INTERVAL DAY)": datetime.date(2024, 2, 2),
    "dd + NULLIF(INTERVAL 1 DAY, INTERVAL 1 DAY)": None,
    "dd + CAST(NULL AS INTERVAL DAY)": None,
}


def value(text: str) -> tuple[pa.DataType, Any]:
    compiled = compile_expression(text, BATCH.schema)
    return compiled.type, compiled(BATCH).to_pylist()[0]


@pytest.mark.parametrize("span", COUNTS)
def test_a_whole_number_counts_in_the_last_unit(span: str) -> None:
    assert value(f"CAST({span} AS INT)") == (pa.int32(), COUNTS[span])


def test_a_smaller_number_holds_as_many_of_them_as_it_can() -> None:
    assert value("TRY_CAST(INTERVAL 3 DAYS AS TINYINT)") == (pa.int8(), 3)
    assert value("TRY_CAST(INTERVAL 300 HOURS AS TINYINT)") == (pa.int8(), None)


@pytest.mark.parametrize("text", MOVED)
def test_a_date_that_is_moved_by_days_is_a_date(text: str) -> None:
    type_ = TIMES if isinstance(MOVED[text], datetime.datetime) else pa.date32()
    assert value(text) == (type_, MOVED[text])


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("CAST(i AS INT)", ExpressionError, r"CAST\(CAST\(i AS INTERVAL HOUR\) AS int\), or count with i div INTERVAL '1' SECOND"),
        ("CAST(named_struct('a', INTERVAL 3 HOURS).a AS INT)", ExpressionError, "is not known here"),
        ("CAST(array(i)[0] AS INT)", ExpressionError, "is not known here"),
        ("CAST(array(INTERVAL 3 HOURS) AS ARRAY<INT>)", TypeMismatch, "cannot cast interval to int"),
        ("dd + i", ExpressionError, r"dd \+ CAST\(i AS INTERVAL DAY\), or move CAST\(dd AS TIMESTAMP\)"),
        ("INTERVAL '1.5' DAY", ExpressionError, "no whole number of days, and only seconds have a fraction"),
    ],
)
def test_an_interval_whose_last_unit_nobody_knows_is_refused(text: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        value(text)


def test_what_is_proposed_instead_is_accepted() -> None:
    assert value("i div INTERVAL '1' SECOND")[1] == 172_800
    assert value("CAST(dd AS TIMESTAMP) + i")[1] == datetime.datetime(2024, 2, 2, tzinfo=datetime.UTC)


@pytest.mark.parametrize("value", ["INTERVAL 5 SECONDS", "array(1)", "true"])
def test_what_has_no_form_is_refused_though_the_form_is_null(value: str) -> None:
    with pytest.raises(TypeMismatch, match="to_char needs a number, a time or bytes"):
        compile_expression(f"to_char({value}, NULL)", pa.schema({"x": pa.int64()}))
