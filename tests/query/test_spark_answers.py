"""What Spark 4 answers where a first reading of its manual says something else. Each answer is Spark's; the oracle asks it of others."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from evenflow.errors import ArithmeticOverflow, EvenflowError
from evenflow.query.expression import InvalidValue, compile_expression


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


HALF = pa.scalar('{"a":"x\\ud83d","\\uDE00":["\\ude00\\ud83d\\ude00"]}')


def test_half_a_character_is_a_question_mark() -> None:
    assert value("from_json(t, 'a STRING').a", t=HALF) == "x?"
    assert value("from_json(t, 'MAP<STRING, STRING>')", t=HALF) == [("a", "x?"), ("?", '["?\U0001f600"]')]
    assert value("get_json_object(t, '$.a')", t=HALF) == "x?"
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
