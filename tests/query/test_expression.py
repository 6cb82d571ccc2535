"""Expressions: what they give, what they refuse and how, and what they cost."""

from __future__ import annotations

import datetime
import math
import pickle
import re
from decimal import Decimal, localcontext
from functools import partial
from operator import add, mul, sub
from time import perf_counter
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import ArithmeticOverflow, EvenflowError, ExpressionError, TypeMismatch, UnknownColumn
from evenflow.query.expression import DivideByZero, InvalidValue, compile_expression, parse_aggregate, split_alias
from evenflow.query.sql.parser import parse, render, to_sql
from evenflow.query.user.scope import scope

BATCH = pa.record_batch(
    {
        "proto": pa.array([6, 17, None], pa.int32()),
        "bytes": pa.array([100, 2**62, -1], pa.int64()),
        "rate": pa.array([1.5, float("nan"), None]),
        "name": pa.array(["web", "12", None]),
        "odd name": pa.array([1, 2, 3], pa.int16()),
        "ok": pa.array([True, False, None]),
        "ts": pa.array([0, 86_400_000_000, None], pa.timestamp("us")),
        "price": pa.array([1, 2, None], pa.decimal128(10, 2)),
        "id": pa.array([1, 0, 2], pa.int32()),
    }
)


def values(text: str, batch: pa.RecordBatch = BATCH) -> list[Any]:
    compiled = compile_expression(text, batch.schema)
    array = compiled(batch)
    assert isinstance(array, pa.Array)
    assert (len(array), array.type) == (batch.num_rows, compiled.type)
    return array.to_pylist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("proto = 6", [True, False, None]),
        ("proto <=> null", [False, False, True]),
        ("PROTO + 1", [7, 18, None]),
        ("`odd name` * 2", [2, 4, 6]),
        ("rate > 1", [True, True, None]),  # NaN is the greatest
        ("rate = rate", [True, True, None]),
        ("ok and false", [False, False, False]),
        ("ok or null", [True, None, None]),
        ("bytes div 3 % 10", [3, 1, 0]),
        ("-7 % 3", [-1, -1, -1]),
        ("id | 4 & 6 ^ 2", [7, 6, 6]),
        ("1 + 2 * 3", [7, 7, 7]),
        ("case when proto = 6 then 'tcp' when proto = 17 then 'udp' end", ["tcp", "udp", None]),
        ("coalesce(name, 'none')", ["web", "12", "none"]),
        ("null", [None, None, None]),
        ("price > 1.5", [False, True, None]),
        ("ts + interval 1 day", [datetime.datetime(1970, 1, 2), datetime.datetime(1970, 1, 3), None]),
        ("ts - (interval 1 year - interval 11 month)", [datetime.datetime(1969, 12, 1), datetime.datetime(1969, 12, 2), None]),
        ("-interval 1 month / 2 + ts", [datetime.datetime(1969, 12, 1), datetime.datetime(1969, 12, 2), None]),
        ("interval 12 months <=> interval 1 year and interval 1 month < interval 1 year", [True, True, True]),
        ("abs(interval -1 day) = interval 1 day", [True, True, True]),
        ("ts = timestamp '1970-01-02 00:00:00'", [False, True, None]),
        ("try_cast(name as int)", [None, 12, None]),
        ("round(2.675D, 2)", [2.68] * 3),
        ("round(2.675, 2)", [Decimal("2.68")] * 3),
        ("name like '1_'", [False, True, None]),
        ("not name rlike '^w'", [False, True, None]),
    ],
)
def test_values(text: str, expected: list[Any]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("proto", pa.int32()), ("proto + 1", pa.int32()), ("proto + bytes", pa.int64()), ("`odd name` + `odd name`", pa.int16()),
        ("proto / 2", pa.float64()), ("proto = 6", pa.bool_()), ("proto || 'x'", pa.string()), ("ts - ts", pa.duration("us")),
        ("3000000000", pa.int64()), ("price", pa.decimal128(10, 2)), ("date_trunc('hour', ts)", pa.timestamp("us", "UTC")),
        ("cast(proto as decimal(12, 2))", pa.decimal128(12, 2)), ("if(ok, proto, rate)", pa.float64()),
    ],
)  # fmt: skip
def test_types(text: str, type: pa.DataType) -> None:
    compiled = compile_expression(text, BATCH.schema)
    assert compiled.type == type == compiled(BATCH).type


def test_a_bare_column_is_not_copied() -> None:
    result = compile_expression("Bytes", BATCH.schema)(BATCH)
    assert result.buffers()[1].address == BATCH.column("bytes").buffers()[1].address


def test_used_columns_in_order_of_use() -> None:
    assert compile_expression("bytes + Proto * BYTES", BATCH.schema).columns == ("bytes", "proto")
    assert compile_expression("1 + 1", BATCH.schema).columns == ()


def test_it_pickles_and_reads_columns_by_name() -> None:
    compiled = pickle.loads(pickle.dumps(compile_expression("bytes + proto", BATCH.schema)))
    assert compiled.text == "bytes + proto"
    assert compiled(BATCH.select(["proto", "bytes"]).slice(0, 1)).to_pylist() == [106]


def test_no_rows() -> None:
    for text in ("proto = 6", "1", "case when bytes > 0 then 1 / proto else 0 end", "cast(name as int)", "round(rate, 1)", "null"):
        assert values(text, BATCH.slice(0, 0)) == []


@pytest.mark.parametrize("text", ["bytes * 4", "bytes + 9223372036854775807", "cast(bytes as int)", "abs(-9223372036854775808 + id * 0L)"])
def test_overflow_is_an_error(text: str) -> None:
    with pytest.raises(ArithmeticOverflow, match=re.escape(repr(text))):
        values(text)


@pytest.mark.parametrize("text", ["1 / id", "1 div id", "5 % id", "rate / 0.0", "1 / 0", "pmod(3, id)"])
def test_division_by_zero_is_an_error(text: str) -> None:
    with pytest.raises(DivideByZero, match=re.escape(repr(text))):
        values(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("case when id <> 0 then 10 / id else -1 end", [10.0, -1.0, 5.0]),
        ("if(id = 0, 0, 10 div id)", [10, 0, 5]),
        ("id <> 0 and 10 / id > 5", [True, False, False]),
        ("id = 0 or 10 / id > 5", [True, True, False]),
        ("10 / nullif(id, 0)", [10.0, None, 5.0]),
        ("try_divide(10, id)", [10.0, None, 5.0]),
        ("coalesce(proto, 1 div (id - 2))", None),
        ("coalesce(bytes, 1 div id)", [100, 2**62, -1]),
    ],
)
def test_what_is_not_asked_for_does_not_fail(text: str, expected: list[Any] | None) -> None:
    if expected is None:
        with pytest.raises(DivideByZero):
            values(text)
    else:
        assert values(text) == expected


@pytest.mark.parametrize("text", ["cast(name as int)", "name = 6", "cast(name as date)", "name + 1", "cast('maybe' as boolean) or ok"])
def test_a_malformed_value_is_an_error(text: str) -> None:
    with pytest.raises((InvalidValue, ExpressionError), match="cast|valid"):
        values(text)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("protto = 6", UnknownColumn, r"'protto' \(did you mean 'proto'\?\); the columns are proto, bytes"),
        ("nothing", UnknownColumn, "no column 'nothing'; the columns are"),
        ("a.proto", ExpressionError, "no qualifier"),
        ("proto +", ExpressionError, "line 1, column"),
        ("proto = = 6", ExpressionError, "line 1, column 9"),
        ("name = 'x", ExpressionError, "quote"),
        ("", ExpressionError, "empty"),
        ("select 1", ExpressionError, "not available"),
        ("proto; bytes", ExpressionError, "not one expression"),
        ("uper(name)", ExpressionError, r"no function 'uper'; near names are upper.*callable"),
        ("substring(name)", ExpressionError, "substring takes 2 to 3 arguments, not 1"),
        ("sum(bytes)", ExpressionError, r"aggregate; use it in agg"),
        ("rand() > 0.5", ExpressionError, "replayed"),
        ("proto in (select 1)", ExpressionError, "subquery"),
        ("sum(proto) over ()", ExpressionError, "not available"),
        ("proto + ok", TypeMismatch, r"\+ needs numbers, but ok is boolean"),
        ("proto and ok", TypeMismatch, "AND needs a boolean, but proto is int"),
        ("ok = 1", TypeMismatch, "mixes boolean and int"),
        ("case when name then 1 end", TypeMismatch, "needs a boolean"),
        ("rate div 2", TypeMismatch, "whole numbers"),
        ("ts + 1", TypeMismatch, "cannot combine timestamp_ntz and int"),
        ("year(proto)", TypeMismatch, "needs a date, but proto is int"),
        ("cast(proto as date)", TypeMismatch, "cannot cast int to date"),
        ("date '2024-13-01'", ExpressionError, "not a valid date"),
        ("ts + interval 1 fortnight", ExpressionError, "unit must be one of"),
        ("ts + interval '1 month 2 days'", ExpressionError, "added one after the other, ts "),
        ("interval 1 month * proto", ExpressionError, r"only move a time, as in ts \+ n \* INTERVAL '1' MONTH"),
        ("interval 1 month / 0", ExpressionError, "is no interval"),
        ("interval 1 month * name", TypeMismatch, "no number of times"),
        ("map(null, 1)", TypeMismatch, "the keys of a map have a type; cast the null"),
        ("map_from_arrays(array(null), array(1))", TypeMismatch, "the keys of a map have a type; cast the null"),
        ("proto + interval 1 month", TypeMismatch, "months move a date or a timestamp, not int"),
        ("name rlike '(?=x)'", ExpressionError, "not available"),
        ("name rlike name", ExpressionError, "must be a literal"),
        ("to_timestamp(name, 'dd/MM/GGGG')", ExpressionError, "'GGGG' of the pattern"),
    ],
)
def test_errors_say_where_and_what_to_do(text: str, error: type[EvenflowError], message: str) -> None:
    with pytest.raises(error, match=message):
        compile_expression(text, BATCH.schema)


@pytest.mark.parametrize("times", [1, 3])
def test_texts_that_repeat_are_worked_out_once_and_come_back_in_their_places(times: int) -> None:
    texts = ["a/b/c", None, "a/b/c", "x", "", "x/y"] * times
    batch = pa.record_batch({"s": pa.array(texts, pa.string())})
    expected = ["a/b", None, "a/b", "x", "", "x/y"] * times
    assert compile_expression("substring_index(s, '/', 2)", batch.schema)(batch).to_pylist() == expected
    last = ["c/c", None, "c/c", "x/x", "/", "y/y"] * times
    assert compile_expression("substring_index(s, '/', -1) || '/' || substring_index(s, '/', -1)", batch.schema)(batch).to_pylist() == last


def test_an_ambiguous_column_is_refused() -> None:
    with pytest.raises(ExpressionError, match=r"ambiguous.*'a', 'A'"):
        compile_expression("a + 1", pa.schema({"a": pa.int32(), "A": pa.int32()}))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("count(*)", ("count", None, {})),
        ("COUNT(1)", ("count", None, {})),
        ("count(name)", ("count", "name", {})),
        ("max(rate)", ("max", "rate", {})),
        ("sum(proto * bytes)", ("sum", "proto * bytes", {})),
        ("mean(rate)", ("avg", "rate", {})),
        ("stddev_samp(rate)", ("stddev", "rate", {})),
        ("approx_count_distinct(name, 0.01)", ("approx_count_distinct", "name", {"rsd": 0.01})),
        ("first(name, true)", ("first", "name", {"ignore_nulls": True})),
        ("last(name) ignore nulls", ("last", "name", {"ignore_nulls": True})),
        ("array_agg(name)", ("collect_list", "name", {})),
        ("sum(case when proto = 6 then `odd name` else 0 end)", ("sum", "CASE WHEN proto = 6 THEN `odd name` ELSE 0 END", {})),
    ],
)
def test_aggregates(text: str, parts: tuple[str, str | None, dict[str, Any]]) -> None:
    assert parse_aggregate(text, BATCH.schema) == parts


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("count(distinct name)", ExpressionError, r"approx_count_distinct\(name\)"),
        ("sum(distinct bytes)", ExpressionError, "group by the values first"),
        ("sum(bytes) / 2", ExpressionError, "outermost"),
        ("upper(name)", ExpressionError, "not an aggregate; the aggregates are approx_count_distinct, avg"),
        ("bytes", ExpressionError, "not an aggregate"),
        ("sum(byte)", UnknownColumn, "did you mean 'bytes'"),
        ("sum(*)", ExpressionError, "only count"),
        ("max(bytes, proto)", ExpressionError, "further arguments: proto"),
        ("sum(bytes) as total", ExpressionError, r'agg\(total="SUM\(bytes\)|agg\(total="sum\(bytes\)'),
        ("sum(max(bytes))", ExpressionError, "aggregate"),
        ("count(name) filter (where ok)", ExpressionError, "CASE WHEN"),
        ("sum()", ExpressionError, "needs an argument"),
    ],
)
def test_aggregate_errors(text: str, error: type[EvenflowError], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_aggregate(text, BATCH.schema)


def test_aliases() -> None:
    assert split_alias("proto + 1 as next") == ("proto + 1", "next")
    assert split_alias("proto") == ("proto", "proto")
    assert split_alias("proto + 1") == ("proto + 1", None)


def test_a_filter_costs_microseconds() -> None:
    """The bound is ten times what it takes, so that only a change of kind, such as parsing per call, can break it."""
    batch = pa.record_batch({"proto": pa.array([6, 17] * 100, pa.int32())})
    compiled = compile_expression("proto = 6", batch.schema)
    best = math.inf
    for _ in range(20):
        start = perf_counter()
        for _ in range(100):
            compiled(batch)
        best = min(best, (perf_counter() - start) / 100)
    assert best < 60e-6


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("CAST(named_struct('a', s) AS struct<a: timestamp>)", pa.struct([("a", pa.timestamp("us", "UTC"))])),
        ("CAST(array(s) AS array<timestamp_ntz>)", pa.list_(pa.timestamp("us"))),
        ("CAST(map('k', s) AS map<string, timestamp>)", pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
    ],
)
def test_a_timestamp_inside_a_type_has_a_zone_as_one_outside_has(text: str, type_: pa.DataType) -> None:
    assert compile_expression(text, pa.schema([("s", pa.string())])).type == type_


@pytest.mark.parametrize("operator", ["+", "-", "*"])
@pytest.mark.parametrize(("one", "other"), [((10, 2), (10, 2)), ((18, 4), (9, 0)), ((20, 10), (17, 3)), ((1, 1), (5, 5))])
def test_arrows_decimals_are_those_of_python(operator: str, one: tuple[int, int], other: tuple[int, int]) -> None:
    types = [pa.decimal128(*one), pa.decimal128(*other)]
    most = [Decimal(10**p - 1).scaleb(-s) for p, s in (one, other)]
    pairs = [(x, y) for x in (most[0], -most[0], None, Decimal(0)) for y in (most[1], -most[1], None)]
    columns = [pa.array(column, type_) for column, type_ in zip(zip(*pairs, strict=True), types, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, ["a", "b"])
    made = compile_expression(f"a {operator} b", batch.schema)(batch).to_pylist()
    compute = {"+": add, "-": sub, "*": mul}[operator]
    with localcontext() as context:
        context.prec = 80
        assert made == [None if x is None or y is None else compute(x, y) for x, y in pairs]


@pytest.mark.parametrize("text", ["rate", "Order", "`odd name`", "`from`", "7", "0.50", "1E6", "'it''s'", "'a\\\\b'", "''", "`7a`"])
def test_a_leaf_that_is_shown_reads_as_it_was_written(text: str) -> None:
    tree = parse(text)
    assert render(tree) == render(tree) == to_sql(tree)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("1.5", pa.decimal128(2, 1)), ("1.50", pa.decimal128(3, 2)), (".5", pa.decimal128(1, 1)), ("0.05", pa.decimal128(2, 2)),
        ("-1.5", pa.decimal128(2, 1)), ("12.", pa.decimal128(2, 0)), ("9223372036854775808", pa.decimal128(19, 0)),
        ("1.5D", pa.float64()), ("1.5F", pa.float32()), ("1e3", pa.float64()), ("1.5E-2", pa.float64()), ("1.5BD", pa.decimal128(2, 1)),
        ("id * 0.5", pa.decimal128(12, 1)), ("rate * 0.5", pa.float64()),
        ("price * 0.5", pa.decimal128(12, 3)), ("1.5 + 2", pa.decimal128(3, 1)),
    ],
)  # fmt: skip
def test_a_number_with_a_point_is_a_decimal_of_its_digits_as_in_spark(text: str, type_: pa.DataType) -> None:
    assert compile_expression(text, BATCH.schema).type == type_


def test_a_number_of_more_digits_than_a_decimal_has_is_refused() -> None:
    with pytest.raises(ExpressionError, match="more than 38 digits"):
        compile_expression("1." + "3" * 38, BATCH.schema)


def test_an_expression_is_compiled_once_for_what_it_reads() -> None:
    """A site builds the same boxes for each move, and each time that partitions come back from its disk."""
    longs, texts = pa.schema([("a", pa.int64())]), pa.schema([("a", pa.string())])
    assert compile_expression("coalesce(a, 7)", longs) is compile_expression("coalesce(a, 7)", pa.schema([("a", pa.int64())]))
    assert compile_expression("a || a", texts).type == pa.string() == compile_expression("a || a", longs).type
    assert compile_expression("a || a", texts) is not compile_expression("a || a", longs)
    told = pa.schema([pa.field("a", pa.int64(), metadata={"unit": "day"})])
    assert compile_expression("coalesce(a, 7)", told) is not compile_expression("coalesce(a, 7)", longs)


def test_what_calls_functions_of_the_users_is_compiled_where_they_are() -> None:
    schema = pa.schema([("a", pa.int64())])
    found = []
    for more in (1, 2):
        with scope({"f": ef.udf("bigint")(partial(add, more))}):
            found += compile_expression("f(a)", schema)(pa.record_batch([[1]], schema=schema)).to_pylist()
    assert found == [2, 3]
