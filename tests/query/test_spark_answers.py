"""What Spark 4 answers where a first reading of its manual says something else. Each answer is Spark's; the oracle asks it of others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import ArithmeticOverflow, EvenflowError, ExpressionError, QueryError
from evenflow.query.expression import InvalidValue, compile_expression
from evenflow.query.planner import layout
from evenflow.world.sim.world import SimWorld


def value(text: str, **columns: pa.Scalar) -> Any:
    """Of the expression over a row of these columns."""
    batch = pa.record_batch({name: pa.array([each.as_py()], each.type) for name, each in {"_": pa.scalar(0), **columns}.items()})
    return compile_expression(text, batch.schema)(batch).to_pylist()[0]


def read(json: str, type_: str) -> Any:
    return value(f"from_json(t, 'a {type_}, b INT').a", t=pa.scalar(json))


def cell(csv: str, type_: str) -> Any:
    return value(f"from_csv(t, 'a {type_}', map('sep', ';')).a", t=pa.scalar(csv))


@pytest.mark.parametrize("operator", ["/", "%"])
def test_null_divided_by_zero_is_null(operator: str) -> None:
    type_ = pa.decimal128(8, 2)
    batch = pa.record_batch({"x": pa.array([None, Decimal("7.00")], type_), "y": pa.array([Decimal(0), Decimal(2)], type_)})
    found = compile_expression(f"x {operator} y", batch.schema)(batch).to_pylist()
    assert found == [None, Decimal("3.5") if operator == "/" else Decimal(1)]
    with pytest.raises(ArithmeticError):
        value(f"x {operator} y", x=pa.scalar(Decimal(1), type_), y=pa.scalar(Decimal(0), type_))


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        ("1.245", "DECIMAL(4,2)", "1.25"),
        ("0.5", "DECIMAL(4,0)", "1"),
        ("-0.5", "DECIMAL(4,0)", "-1"),
        ("12345678901234567890123456789012", "DECIMAL(38,0)", "12345678901234567890123456789012"),
        ("NaN", "DECIMAL(4,2)", None),
        ("1,234.50", "DECIMAL(8,2)", "1234.50"),
        ("1_0", "DECIMAL(8,2)", None),
        (" 1", "DECIMAL(8,2)", None),
        ("1 ", "DECIMAL(8,2)", None),
        (",", "DECIMAL(8,2)", None),
        ("1e2", "DECIMAL(8,2)", "100.00"),
        ("123.4", "DECIMAL(4,2)", None),
        ("1e9999", "DECIMAL(4,2)", None),
    ],
)
def test_decimals_in_texts(text: str, type_: str, expected: str | None) -> None:
    made = None if expected is None else Decimal(expected)
    assert (read(f'{{"a": "{text}"}}', type_), cell(text, type_)) == (made, made)


@pytest.mark.parametrize(
    ("number", "us"), [("1700000000", 1_700_000_000_000_000), ("1700000000000000", (1700000000000000 * 10**6 + 2**63) % 2**64 - 2**63)]
)
def test_seconds_of_a_time_run_over_as_a_bigint_does(number: str, us: int) -> None:
    found = value("unix_micros(from_json(t, 'a TIMESTAMP').a)", t=pa.scalar(f'{{"a": {number}}}'))
    assert found == us


@pytest.mark.parametrize("digits", [20, 5000])
@pytest.mark.parametrize("type_", ["TIMESTAMP", "BIGINT"])
def test_a_number_beyond_a_bigint_is_null_and_the_rest_of_its_row_stays(type_: str, digits: int) -> None:
    found = value(f"from_json(t, 'a {type_}, b INT')", t=pa.scalar(f'{{"a": {"9" * digits}, "b": 1}}'))
    assert found == {"a": None, "b": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from_json('{\"a\":1}', 'a variant').a::int", 1),
        ("to_json(from_json('{\"a\":{\"b\":[1,null,\"x\",2.50]}}', 'a variant'))", '{"a":{"b":[1,null,"x",2.5]}}'),
        ("to_json(from_json('{\"x\":1,\"y\":null}', 'map<string,variant>'))", '{"x":1,"y":null}'),
        ("from_json('{\"x\":1,\"y\":null}', 'map<string,variant>')['y'] IS NULL", False),
        ("to_json(from_json('[1,null,\"x\"]', 'array<variant>'))", '[1,null,"x"]'),
        ("from_json('{\"a\":1}', 'array<variant>')", None),
        ("to_json(from_json('{\"s\":{\"x\":[1]}}', 's struct<x:variant>'))", '{"s":{"x":[1]}}'),
        ("is_variant_null(from_json('{\"a\":null}', 'a variant').a)", True),
        ("from_json('{}', 'a variant').a IS NULL", True),
        ("to_json(from_json('[1,2]', 'variant'))", "[1,2]"),
        ("to_json(from_json('{\"a\":1} x', 'variant'))", '{"a":1}'),
        ("from_json('null', 'variant') IS NULL", False),
        ("from_json('{', 'variant')", None),
        ("from_json('', 'variant')", None),
        ("from_json('{\"a\":1,\"a\":2}', 'variant')", None),
        ("to_json(from_json('{\"a\":{\"b\":1,\"b\":2},\"c\":3}', 'c int, a variant'))", '{"c":3}'),
        ("to_json(from_json('{\"a\":NaN}', 'a variant'))", '{"a":"NaN"}'),
        ("to_json(from_json('{\"a\":1,\"b\":\"q\"}', 'a variant, b int, _corrupt_record string'))",
         '{"a":1,"_corrupt_record":"{\\"a\\":1,\\"b\\":\\"q\\"}"}'),
    ],
)  # fmt: skip
def test_variants_in_json(text: str, expected: object) -> None:
    assert value(text) == expected


def test_a_variant_that_does_not_fit_fails_fast() -> None:
    with pytest.raises(InvalidValue, match="FAILFAST|does not fit"):
        value("""from_json('{"a":{"b":1,"b":2}}', 'a variant', map('mode', 'FAILFAST'))""")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020-01-01T00:00:00+05:00", None),
        ("2020-01-01T00:00:00Z", None),
        ("2020-01-01T01:00:00", datetime(2020, 1, 1, 1)),
        ("2020-01-01 01:00:00 ", datetime(2020, 1, 1, 1)),
        ("2020-01-01", datetime(2020, 1, 1)),
        ("01/02/2020", None),
    ],
)
@pytest.mark.parametrize("options", ["", ", map('timestampFormat', 'dd/MM/yyyy')"])
def test_a_time_without_a_zone_has_none_in_its_text(text: str, expected: datetime | None, options: str) -> None:
    json = value(f"from_json(t, 'a timestamp_ntz'{options}).a", t=pa.scalar(f'{{"a": "{text}"}}'))
    assert (json, value(f"from_csv(t, 'a timestamp_ntz'{options}).a", t=pa.scalar(text))) == (expected, expected)


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("2024-01-01 12:00:00.5", "yyyy-MM-dd HH:mm:ss.SSS", datetime(2024, 1, 1, 12, 0, 0, 500_000)),
        ("2024-01-01 12:00:00.12", "yyyy-MM-dd HH:mm:ss.SSS", datetime(2024, 1, 1, 12, 0, 0, 120_000)),
        ("2024-01-01 12:00:00.123", "yyyy-MM-dd HH:mm:ss.SSS", datetime(2024, 1, 1, 12, 0, 0, 123_000)),
        ("2024-01-01 12:00:00.", "yyyy-MM-dd HH:mm:ss.SSS", None),
        ("2024-01-01 12:00:00.1234", "yyyy-MM-dd HH:mm:ss.SSS", None),
        ("2024-01-01 12:00:00.5Q", "yyyy-MM-dd HH:mm:ss.SSS\\'Q\\'", datetime(2024, 1, 1, 12, 0, 0, 500_000)),
        ("2024-01-01 12:00:00", "yyyy-MM-dd HH:mm:ss[.SSSSSS]", datetime(2024, 1, 1, 12)),
        ("2024-01-01 12:00:00.25", "yyyy-MM-dd HH:mm:ss[.SSSSSS]", datetime(2024, 1, 1, 12, 0, 0, 250_000)),
        ("20240101120000123", "yyyyMMddHHmmssSSS", None),
        ("2024010112000012", "yyyyMMddHHmmssSSS", None),
        ("202401011200001", "yyyyMMddHHmmssSSS", None),
        ("20240101 1200001", "yyyyMMdd HHmmssSSS", datetime(2024, 1, 1, 12, 0, 0, 100_000)),
        ("12:00:00.520240101", "HH:mm:ss.SSSyyyyMMdd", None),
        ("2024-01-01 50", "yyyy-MM-dd SSSss", None),
        ("2024-01-01 5:10", "yyyy-MM-dd SSS:ss", datetime(2024, 1, 1, 0, 0, 10, 500_000)),
    ],
)
def test_a_fraction_has_up_to_as_many_digits_as_letters(text: str, pattern: str, expected: datetime | None) -> None:
    utc = None if expected is None else expected.replace(tzinfo=UTC)
    assert value(f"try_to_timestamp(t, '{pattern}')", t=pa.scalar(text)) == utc
    options = f"'a timestamp', map('timestampFormat', '{pattern}')"
    assert value(f"from_json(t, {options}).a", t=pa.scalar(f'{{"a": "{text}"}}')) == utc
    assert value(f"from_csv(t, {options}).a", t=pa.scalar(text)) == utc


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("typeof(+'3')", "double"),
        ("+ ' 3.5 '", 3.5),
        ("+t", 7.0),
        ("+ + t + 1", 8.0),
        ("typeof(+1)", "int"),
        ("+ -3", -3),
        ("typeof(+2.50)", "decimal(3,2)"),
    ],
)
def test_plus_makes_a_text_a_double(text: str, expected: object) -> None:
    assert value(text, t=pa.scalar("7")) == expected


def test_plus_is_of_numbers_and_intervals() -> None:
    assert value("+t", t=pa.scalar(timedelta(1), pa.duration("us"))) == timedelta(1)
    assert value("+ INTERVAL '1' DAY") == timedelta(1)
    with pytest.raises(QueryError, match="needs a number"):
        compile_expression("+b", pa.schema({"b": pa.bool_()}))


def test_decimal_is_a_cast() -> None:
    assert [value(text) for text in ("decimal(1.5)", "decimal('2.5')", "typeof(decimal(1))")] == [Decimal(2), Decimal(3), "decimal(10,0)"]


@pytest.mark.parametrize("value_", ["struct(i)", "array(i)", "map('a', i)", "map(i, 1)", "struct(array(i))", "struct(INTERVAL '1' MONTH)"])
def test_intervals_are_not_written_as_json(value_: str) -> None:
    with pytest.raises(QueryError, match="interval"):
        compile_expression(f"to_json({value_})", pa.schema({"i": pa.duration("us")}))


HALF = pa.scalar('{"a":"x\\ud83d","\\uDE00":["\\ude00\\ud83d\\ude00"]}')


def test_half_a_character_is_a_question_mark_and_an_escape_in_json() -> None:
    assert value("from_json(t, 'a STRING').a", t=HALF) == "x?"
    assert value("from_json(t, 'MAP<STRING, STRING>')", t=HALF) == [("a", "x?"), ("?", '["\\uDE00\U0001f600"]')]
    assert value("get_json_object(t, '$.a')", t=HALF) is None
    assert value("get_json_object(t, '$')", t=pa.scalar('{"a":["\\uDe00"]}')) == '{"a":["\\uDE00"]}'
    assert value("json_object_keys(t)", t=HALF) == ["a", "?"]
    assert value("_json_tuple(t, 'a').c0", t=HALF) == "x?"


def test_numbers_that_are_read_as_texts() -> None:
    assert [read(f'{{"a": {number}}}', "STRING") for number in ("-0", "1e400", "[-1e400]", "1.50")] == [
        "0",
        '"Infinity"',
        '["-Infinity"]',
        "1.5",
    ]


@pytest.mark.parametrize(("error", "typed"), [(OverflowError, ArithmeticOverflow), (UnicodeError, InvalidValue)])
def test_what_a_row_raises_is_typed(error: type[Exception], typed: type[EvenflowError]) -> None:
    found = compile_expression("a + 1", pa.schema({"a": pa.int64()}))

    def run(batch: pa.RecordBatch) -> pa.Array:
        raise error("no")

    found._run = run
    with pytest.raises(typed, match=r"a \+ 1"):
        found(pa.record_batch({"a": [1]}))


@pytest.mark.parametrize("text", ["to_csv(s, map('mode', 'FAILFAST'))",
                                  "schema_of_csv('1', map('dateFormat', 'yyyy'))"])  # fmt: skip
def test_options_without_an_effect_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match="takes the options sep"):
        compile_expression(text, pa.schema({"s": pa.struct({"a": pa.int64()})}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("regexp_extract_all(t, '.+', 0)", ["a", "b", "c", "d.", "e"]),
        ("regexp_extract_all(t, '(?s).+', 0)", ["a\rb\u0085c\u2028d.\u2029e\r\n"]),
        (r"regexp_extract_all(t, '[.]|\\.', 0)", ["."]),
        (r"regexp_extract_all(t, '[\\]x.]', 0)", ["."]),
        ("regexp_instr(t, '.\u2029')", 8),
        ("regexp_substr(t, 'e$')", "e"),
        ("regexp_substr(t, 'a$')", None),
        ("regexp_count(t, '.')", 6),
        ("str_to_map('a\rb', '.b', 'q')", [("a\rb", None)]),
    ],
)
def test_ends_of_lines_are_javas(text: str, expected: Any) -> None:
    assert value(text, t=pa.scalar("a\rb\u0085c\u2028d.\u2029e\r\n")) == expected


def test_a_key_of_an_address_that_is_no_pattern_is_typed() -> None:
    for name in ("parse_url", "try_parse_url"):
        with pytest.raises(InvalidValue, match="is none"):
            value(f"{name}('http://a.b/?k=1', 'QUERY', t)", t=pa.scalar("("))


def test_a_mask_hides_decimal_digits_only() -> None:
    assert value("mask(t)", t=pa.scalar("7²٣")) == "n²n"


def rows(text: str) -> list[tuple[Any, ...]]:
    """The rows of a query over a small table, all of which come at once."""
    times = [datetime(2026, 1, 1, 12, 0, 3), None, datetime(2026, 1, 1, 12, 0, 14)]
    numbers = {"b": [1, 2, 2], "c": [5, 5, 6], "w": [7, 8, 9], "_each": [1, 2, 3]}
    given = {"ts": pa.array(times, pa.timestamp("us")), "a": ["x", "x", "y"], **numbers}
    flow = ef.Dataflow("q")
    t = flow.source(ef.sources.memory(pa.table(given)), name="t")
    ef.sql(text, {"t": t}).to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(flow.network, sites=1, partitions=2), sites=1)
    world.run_until_quiet()
    return sorted((tuple(row.values()) for row in world.output("out").to_pylist()), key=repr)


ROLLED = [("x", 1, 0, 1), ("x", 2, 0, 1), ("x", None, 1, 2), ("x", None, 1, 2), ("y", 2, 0, 1), ("y", None, 1, 1), ("y", None, 1, 1)]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("a, ROLLUP (a, b)", ROLLED),
        ("ROLLUP (b), a", [(a, b, 2 * g, n) for a, b, g, n in dict.fromkeys(ROLLED)]),
        ("a, b, c GROUPING SETS ((a), (b))", [(None, 1, 5, 1), (None, 2, 5, 2), ("x", None, 3, 2), ("y", None, 3, 1)]),
        ("GROUPING SETS ((a), (a))", [("x", None, 0, 2), ("x", None, 0, 2), ("y", None, 0, 1), ("y", None, 0, 1)]),
    ],
)
def test_sets_of_keys(group: str, expected: list[tuple[Any, ...]]) -> None:
    """Sets are crossed with the keys beside them; a set that is there twice makes its groups twice."""
    b = "CAST(NULL AS INT)" if "((a), (a))" in group else "b"
    assert rows(f"SELECT a, {b} AS b, grouping_id() AS g, count(*) AS n FROM t GROUP BY {group}") == sorted(expected, key=repr)


def test_a_key_in_no_set_is_null_everywhere() -> None:
    found = rows("SELECT a, c, count(*) AS n FROM t GROUP BY a, b, c GROUPING SETS ((a), (b))")
    assert found == sorted([("x", None, 2), ("y", None, 1), (None, None, 1), (None, None, 2)], key=repr)


@pytest.mark.parametrize("size", ["'10 seconds'", "'10 seconds', '5 seconds'"])
def test_a_row_without_a_time_is_in_no_window(size: str) -> None:
    found = rows(f"SELECT window(ts, {size}) AS win, b FROM t")
    assert sorted({b for _, b in found}) == [1, 2] and len(found) == (2 if "," not in size else 4)
    assert all(win is not None for win, _ in found)


def test_windows_take_no_column_away() -> None:
    for column in ("w", "_each"):
        assert len(rows(f"SELECT window(timestampadd(SECOND, {column}, ts), '10 seconds', '5 seconds') AS s FROM t")) == 4


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("b IN (SELECT c FROM t AS u LIMIT 1)", "LIMIT"),
        ("EXISTS (SELECT c FROM t AS u WHERE u.c = t.b LIMIT 0)", "LIMIT"),
        ("EXISTS (SELECT count(*) FROM t AS u WHERE u.c = t.b)", "EXISTS is true"),
        ("b IN (SELECT max(c) FROM t AS u)", "without aggregates"),
    ],
)
def test_what_would_be_another_query_as_a_join_is_refused(condition: str, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        rows(f"SELECT b FROM t WHERE {condition}")
