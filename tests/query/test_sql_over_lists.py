"""OVER frames of what needs all their values, and of values without the nulls: each as it is of the rows of its frame."""

from __future__ import annotations

import math
from calendar import monthrange
from collections.abc import Callable
from datetime import datetime, timedelta
from statistics import median
from typing import Any

import pyarrow as pa
import pytest

from evenflow.errors import QueryError
from tests.query.test_spanned import COUNT, TABLE, VALUES, WORDS, around, run, within

pytestmark = pytest.mark.one_in(2)

W = "OVER (PARTITION BY k ORDER BY ts, n"


def values(rows: list[int], of: list[Any] = VALUES) -> list[Any]:
    return [of[i] for i in rows if of[i] is not None]


def first(rows: list[int], of: list[Any]) -> Any:
    return next(iter(values(rows, of)), None)


def last(rows: list[int], of: list[Any]) -> Any:
    return next(reversed(values(rows, of)), None)


def middle(rows: list[int]) -> float | None:
    return median(found) if (found := values(rows)) else None


def correlation(rows: list[int]) -> float | None:
    pairs = [(VALUES[i], i) for i in rows if VALUES[i] is not None]
    if not pairs:
        return None
    x, y = (sum(each) / len(pairs) for each in zip(*pairs, strict=True))
    xx, yy = sum((a - x) ** 2 for a, _ in pairs), sum((b - y) ** 2 for _, b in pairs)
    return sum((a - x) * (b - y) for a, b in pairs) / math.sqrt(xx * yy) if xx and yy else None


def same(given: Any, wanted: Any) -> bool:
    return bool(given == (pytest.approx(wanted) if isinstance(wanted, float) else wanted))


ASKED: dict[str, tuple[str, Callable[[int], Any]]] = {
    "m": (f"median(x) {W} ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)", lambda at: middle(around(at, -3, 0))),
    "c": (f"corr(x, n) {W} ROWS BETWEEN 5 PRECEDING AND 2 PRECEDING)", lambda at: correlation(around(at, -5, -2))),
    "l": (f"collect_list(w) {W} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)", lambda at: values(around(at, -2, 0), WORDS)),
    "lr": (f"collect_list(w) RESPECT NULLS {W} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
           lambda at: [WORDS[i] for i in around(at, -2, 0)]),
    "sr": (f"array_size(collect_set(w) RESPECT NULLS {W} ROWS BETWEEN 4 PRECEDING AND CURRENT ROW))",
           lambda at: len({WORDS[i] for i in around(at, -4, 0)})),
    "s": ("median(x) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 9 SECONDS PRECEDING AND CURRENT ROW)",
          lambda at: middle(within(at, 9))),
    "f": (f"first_value(w) IGNORE NULLS {W} ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)", lambda at: first(around(at, -3, 0), WORDS)),
    "ff": (f"first_value(x) IGNORE NULLS {W})", lambda at: first(around(at, -COUNT, 0), VALUES)),
    "la": (f"last_value(w) IGNORE NULLS {W})", lambda at: last(around(at, -COUNT, 0), WORDS)),
    "nn": (f"nth_value(x, 2) IGNORE NULLS {W} ROWS UNBOUNDED PRECEDING)",
           lambda at: [*values(around(at, -COUNT, 0)), None, None][1]),
    "lg": (f"lag(w) IGNORE NULLS {W})", lambda at: last(around(at, -COUNT, -1), WORDS)),
    "l3": (f"lag(w, 3) IGNORE NULLS {W})", lambda at: [*reversed(values(around(at, -COUNT, -1), WORDS)), None, None, None][2]),
    "l2": (f"lag(x, 2, -1.0D) IGNORE NULLS {W})", lambda at: [*reversed(values(around(at, -COUNT, -1))), -1, -1][1]),
    "cd": (f"approx_count_distinct(w) {W} ROWS BETWEEN 4 PRECEDING AND 1 PRECEDING)",
           lambda at: len(set(values(around(at, -4, -1), WORDS)))),
    "cf": ("approx_count_distinct(x) FILTER (WHERE n % 2 = 0) OVER (PARTITION BY k ORDER BY ts RANGE INTERVAL 9 SECONDS PRECEDING)",
           lambda at: len({VALUES[i] for i in within(at, 9) if i % 2 == 0} - {None})),
}  # fmt: skip
AHEAD: dict[str, tuple[str, Callable[[int], Any]]] = {
    "m": (f"median(x) {W} ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING)", lambda at: middle(around(at, -1, 2))),
    "f": (f"first_value(w) IGNORE NULLS {W} ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING)", lambda at: first(around(at, 1, 3), WORDS)),
    "lg": (f"lag(x) IGNORE NULLS {W})", lambda at: last(around(at, -COUNT, -1), VALUES)),
    "ld": (f"lead(w) IGNORE NULLS {W})", lambda at: first(around(at, 1, COUNT), WORDS)),
    "l3": (f"lead(x, 3) IGNORE NULLS {W})", lambda at: [*values(around(at, 1, COUNT)), None, None, None][2]),
    "l2": (f"lag(w, 2, 'none') IGNORE NULLS {W})", lambda at: [*reversed(values(around(at, -COUNT, -1), WORDS)), "none", "none"][1]),
    "ln": (f"lag(x, -1) IGNORE NULLS {W})", lambda at: first(around(at, 1, COUNT), VALUES)),
    "p": (f"lead(n, 2) {W})", lambda at: [*around(at, 1, COUNT), None, None][1]),
}


@pytest.mark.parametrize("epoch_rows", [7, 1000])
@pytest.mark.parametrize("asked", [ASKED, AHEAD], ids=["behind", "ahead"])
def test_each_row_has_that_of_its_frame(epoch_rows: int, asked: dict[str, tuple[str, Callable[[int], Any]]]) -> None:
    found = run(f"SELECT n, {', '.join(f'{text} AS {name}' for name, (text, _) in asked.items())} FROM t", epoch_rows)
    assert sorted(row["n"] for row in found) == list(range(COUNT))
    for row in found:
        for name, (_, wanted) in asked.items():
            assert same(row[name], wanted(row["n"])), (name, row)


def test_nothing_but_nulls() -> None:
    table = TABLE.set_column(TABLE.schema.get_field_index("x"), "x", pa.nulls(COUNT, pa.float64()))
    text = f"""SELECT n, median(x) {W} ROWS 2 PRECEDING) AS m, last_value(x) IGNORE NULLS {W}) AS l, lag(x) IGNORE NULLS {W}) AS g,
        collect_list(x) {W} ROWS 2 PRECEDING) AS c FROM t"""
    assert {(row["m"], row["l"], row["g"], len(row["c"])) for row in run(text, 50, table)} == {(None, None, None, 0)}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (f"median(x) {W})", "kept for ever"),
        (f"approx_count_distinct(x) {W})", "kept for ever"),
        (f"sum(x) IGNORE NULLS {W})", "no IGNORE NULLS"),
        (f"row_number() IGNORE NULLS {W})", "no IGNORE NULLS"),
    ],
)
def test_what_cannot_be_is_said(call: str, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        run(f"SELECT n, {call} AS v FROM t", 50)


@pytest.mark.parametrize("epoch_rows", [7, 1000])
def test_frames_by_months_of_rows_that_come_once(epoch_rows: int) -> None:
    """By the calendar: from a day of the month before on, and as long as that is."""
    days = [0, 28, 29, 30, 31, 59, 60, 61, 90, 91, 120, 200]
    start = datetime(2024, 1, 1, 6)
    table = pa.table({
        "ts": pa.array([start + timedelta(days=day) for day in days], pa.timestamp("us")), "k": ["a"] * len(days),
        "n": pa.array(range(len(days)), pa.int64()),
    })  # fmt: skip
    text = """SELECT n, count(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '1' MONTH PRECEDING AND CURRENT ROW) AS a,
        max(n) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '2' MONTH FOLLOWING) AS b FROM t"""
    times = [start + timedelta(days=day) for day in days]

    def later(at: datetime, months: int) -> datetime:
        year, month = divmod(at.month - 1 + months, 12)
        last = monthrange(at.year + year, month + 1)[1]
        return at.replace(year=at.year + year, month=month + 1, day=min(at.day, last))

    found = run(text, epoch_rows, table)
    wanted = [
        (at, sum(later(t, -1) <= other <= t for other in times), max(i for i, o in enumerate(times) if t <= o <= later(t, 2)))
        for at, t in enumerate(times)
    ]
    assert sorted((row["n"], row["a"], row["b"]) for row in found) == wanted
