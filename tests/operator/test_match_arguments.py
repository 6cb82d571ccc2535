"""What aggregates of a pattern's variables are taken of, in conditions and measures: rows of the variable, of whatever type they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.kernels.hash import hash_columns
from evenflow.operator.match import Match
from evenflow.query.expression import DivideByZero, InvalidValue
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("x", pa.int64()), ("y", pa.int64()), ("f", pa.float64()), ("s", pa.string())])
Row = dict[str, Any]


def matched(
    pattern: str, define: Sequence[tuple[str, str]], measures: Sequence[tuple[str, str]], given: Sequence[Row], cuts: Sequence[int] = (),
    skip: str = "past last row", rows: str = "one", schema: pa.Schema = SCHEMA,
) -> list[Row]:  # fmt: skip
    """What comes out of one key of the empty name. cuts: how many rows the epochs have, but for the last. Row n has the time n."""
    match = Match(schema, (), "ts", pattern, define, measures, 100, skip, rows)
    whole = pa.RecordBatch.from_pylist([{"ts": at, **row} for at, row in enumerate(given)], schema=schema)
    found: list[Row] = []
    begin, before = 0, NO_WATERMARK
    for epoch, count in enumerate([*cuts, len(given) - sum(cuts)], 1):
        some = whole.slice(begin, count)
        begin += count
        after = END_OF_STREAM if begin == len(given) else begin
        made = Rows(some, np.zeros(count, np.int32), hash_columns(some, []))
        found += match.process(made, Tick(epoch, 0, before, after))[0].batch.to_pylist()
        before = after
    return [{name: value for name, value in row.items() if name not in ("match_start", "match_end")} for row in found]


CUTS = [(), (1,), (2,), (1, 1)]
DIVIDED = [{"x": 4, "y": 2}, {"x": 6, "y": 3}, {"x": 1, "y": 0}]


@pytest.mark.parametrize("cuts", CUTS)
def test_a_condition_computes_nothing_of_rows_that_cannot_be_its_variable(cuts: Sequence[int]) -> None:
    for call in ("SUM(A.x / A.y)", "MAX(A.x / A.y)", "AVG(A.x / A.y)", "COUNT(A.x / A.y)", "LAST(A.x / A.y)", "FIRST(A.x / A.y)"):
        define = [("A", f"y <> 0 AND {call} < 100"), ("B", f"y = 0 AND {call} > 1")]
        assert matched("A+ B", define, [("n", "count(*)")], DIVIDED, cuts) == [{"n": 3}], call


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("rows", ["one", "all"])
def test_a_measure_computes_nothing_of_rows_of_other_variables(rows: str, cuts: Sequence[int]) -> None:
    calls = ["SUM(A.x / A.y)", "LAST(A.x / A.y)", "FINAL STDDEV(A.x / A.y)", "SIZE(COLLECT_LIST(A.x / A.y))", "SUM(x / (y + 1))"]
    measures = [(f"m{at}", call if rows == "all" else call.removeprefix("FINAL ")) for at, call in enumerate(calls)]
    found = matched("A+ B", [("A", "y <> 0"), ("B", "y = 0")], measures, DIVIDED, cuts, rows=rows)
    assert [[row[f"m{at}"] for at in range(4)] for row in found][-1] == [4.0, 2.0, 0.0, 2]
    assert found[-1]["m4"] == pytest.approx(4 / 3 + 6 / 4 + 1)
    if rows == "all":
        assert [row["m0"] for row in found] == [2.0, 4.0, 4.0]


@pytest.mark.parametrize("cuts", CUTS)
def test_texts_of_other_variables_are_not_cast(cuts: Sequence[int]) -> None:
    given = [{"x": 1, "s": "7"}, {"x": 1, "s": "8"}, {"x": 2, "s": "that is all"}]
    define = [("A", "x = 1 AND SUM(CAST(A.s AS BIGINT)) < 16"), ("B", "x = 2")]
    assert matched("A+ B", define, [("total", "SUM(CAST(A.s AS BIGINT))"), ("said", "B.s")], given, cuts) == [
        {"total": 15, "said": "that is all"}
    ]


def test_what_cannot_be_computed_of_a_row_of_the_variable_is_an_error() -> None:
    with pytest.raises(DivideByZero):
        matched("A+", [("A", "SUM(A.x / A.y) < 100")], [("n", "count(*)")], DIVIDED)
    with pytest.raises(DivideByZero):
        matched("A B+", [("B", "y = 0 OR y = 3")], [("n", "sum(B.x / B.y)")], DIVIDED)
    with pytest.raises(DivideByZero):
        matched("A+ B", [("A", "y <> 0"), ("B", "y = 0")], [("n", "sum(x / y)")], DIVIDED)
    with pytest.raises(InvalidValue):
        matched("A+", [], [("n", "sum(cast(A.s as bigint))")], [{"s": "7"}, {"s": "none"}])


# ---------------------------------------------------------------- strings beside AND


@pytest.mark.parametrize("cuts", CUTS[:2])
def test_a_string_beside_and_is_read_as_a_boolean(cuts: Sequence[int]) -> None:
    def count(condition: str, *texts: str | None) -> int:
        given = [{"s": text, "x": at + 1} for at, text in enumerate(texts)]
        return len(matched("A B", [("B", condition)], [("n", "count(*)")], given, cuts))

    for condition in ("A.s AND x > 0", "x > 0 AND (A.s)", "A.s AND COUNT(*) > 1 AND x > 0", "FIRST(s) AND x = 2"):
        for text, wanted in (("true", 1), ("TRUE", 1), ("no", 0), (None, 0)):
            assert count(condition, text, "whatever") == wanted, (condition, text)
    for condition in ("s AND COUNT(*) > 1", "(s) AND A.x > 0", "COUNT(*) > 1 AND s AND x > 0"):
        for text, wanted in (("true", 1), ("t", 1), ("false", 0), (None, 0)):
            assert count(condition, "true", text) == wanted, (condition, text)
    with pytest.raises(InvalidValue):
        count("A.s AND x > 0", "maybe", "true")


# ---------------------------------------------------------------- rows of which no column is kept


@pytest.mark.parametrize("cuts", CUTS)
def test_aggregates_of_no_column(cuts: Sequence[int]) -> None:
    given = [{"x": 1}] * 4
    measures = [("n", "count(*)"), ("s", "SUM(1)"), ("last", "LAST(2)"), ("all", "SIZE(COLLECT_LIST(3))")]
    for define in ([], [("A", "SUM(1) < 3")], [("A", "FIRST(1) = 1 AND COUNT(*) < 3")], [("A", "x = 1")]):
        found = matched("A{2}", define, measures, given, cuts)
        assert found == [{"n": 2, "s": 2, "last": 2, "all": 2}] * 2, define


# ---------------------------------------------------------------- doubles


def test_sums_and_averages_of_doubles_are_added_up_in_the_order_of_rows() -> None:
    """1e16 + 1 is 1e16: from the other end the sum would be greater."""
    values = [1e16, 1.0, 1.0, -1e16, 0.5]
    given = [{"f": value} for value in values]
    sums = list(np.add.accumulate(values))
    assert sums[2] == 1e16 and sum(reversed(values)) != sums[-1]
    for at in range(len(values)):
        for call, value in (("SUM(A.f)", sums[at]), ("AVG(A.f)", sums[at] / (at + 1)), ("SUM(f)", sums[at])):
            define = [("A", f"COUNT(A.*) <> {at + 1} OR {call} = CAST('{float(value)!r}' AS DOUBLE)")]
            for cuts in ((), (2,), (1, 2)):
                assert matched(f"A{{{at + 1}}} Z*", define, [("n", "count(*)")], given, cuts) == [{"n": 5}], (call, at)


def test_doubles_that_are_null_or_no_number() -> None:
    def count(condition: str, *values: float | None) -> list[int]:
        return [row["n"] for row in matched("A+", [("A", condition)], [("n", "count(*)")], [{"f": value} for value in values])]

    nan, inf = float("nan"), float("inf")
    assert count("SUM(A.f) IS NULL", None, None, 1.0, None) == [2, 1]
    assert count("COALESCE(AVG(A.f), 2.5) = 2.5", None, 2.5, None, 2.0, 3.0) == [3]
    assert count("COUNT(*) < 3 OR ISNAN(SUM(A.f))", 1.0, nan, 2.0, None, inf) == [5]
    assert count("COUNT(*) < 3 OR ISNAN(AVG(A.f))", 1.0, inf, -inf, 1.0) == [4]
    assert count("SUM(A.f) < CAST('inf' AS DOUBLE)", 1e308, 1e308, 1e308) == [1, 1, 1]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_doubles_against_numpy(kind: pa.DataType, seed: int) -> None:
    """Rows are of the match as long as sum and average are within bounds."""
    rng = np.random.default_rng(seed)
    values = [None if rng.random() < 0.2 else float(np.float32(value)) for value in rng.normal(size=60) * 3]
    schema = SCHEMA.set(3, pa.field("f", kind))
    wanted, at = [], 0
    while at < len(values):
        total, known, upto = 0.0, 0, at
        while upto < len(values):
            more = total if values[upto] is None else total + values[upto]
            count = known + (values[upto] is not None)
            if upto > at and not ((abs(more) < 6 if count else False) or (abs(more / max(count, 1)) < 0.5 and count > 0)):
                break
            total, known, upto = more, count, upto + 1
        wanted.append(upto - at)
        at = upto
    define = [("A", "COUNT(*) = 1 OR ABS(SUM(A.f)) < 6 OR ABS(AVG(f)) < 0.5")]
    given = [{"f": value} for value in values]
    for cuts in ((), (7, 20), (30,)):
        found = matched("A+", define, [("n", "count(*)")], given, cuts, schema=schema)
        assert [row["n"] for row in found] == wanted
