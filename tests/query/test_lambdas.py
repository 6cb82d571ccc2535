"""Functions that are given a function ask it of what Spark's ask, in their order: each answer here is Spark's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from evenflow.query.expression import compile_expression
from evenflow.query.sql.node import DivideByZero, InvalidValue

INTS = pa.list_(pa.int32())


def value_of(text: str, lists: list[Any], of: pa.DataType = INTS) -> list[Any]:
    batch = pa.record_batch({"a": pa.array(lists, of), "n": pa.array(range(len(lists)), pa.int32())})
    found: list[Any] = compile_expression(text, batch.schema)(batch).to_pylist()
    return found


@pytest.mark.parametrize(
    ("function", "lists", "wanted"),
    [
        ("if(x > y, 1, 0)", [[3, 1, 2], [70, 80]], [[3, 1, 2], [70, 80]]),  # Never below 0, so all are where they were.
        ("if(x < y, -1, 1)", [[3, 1, 2], [70, 80], [2, 1, 2, 1]], [[1, 2, 3], [70, 80], [1, 1, 2, 2]]),
        ("if(x < y, -1, 0)", [[3, 1, 2], None, []], [[1, 2, 3], None, []]),
        ("CASE WHEN x < y THEN -1 WHEN x > y THEN 1 END", [[3, 1, 2], [70], [9, 8]], [[1, 2, 3], [70], [8, 9]]),
        ("-1", [[1, 2, 3], [4, 5]], [[3, 2, 1], [5, 4]]),
        ("1", [[1, 2, 3], [4, 5]], [[1, 2, 3], [4, 5]]),
        # A circle: 1 is before 2, 2 before 3, and 3 before 1.
        (
            "CASE (x - y + 3) % 3 WHEN 1 THEN 1 WHEN 2 THEN -1 ELSE 0 END",
            [[1, 2, 3], [3, 1, 2], [2, 1, 3]],
            [[1, 2, 3], [3, 1, 2], [3, 1, 2]],
        ),
        # Errors and nulls of pairs that no sort asks for: of an element and itself, of the first one with the last one here.
        ("(x - y) * (10 div abs(x - y))", [[3, 1, 2]], [[1, 2, 3]]),
        ("if(abs(x - y) = 2, NULL, x - y)", [[1, 2, 3]], [[1, 2, 3]]),
        ("if(abs(x - y) = 2, 1 div 0, x - y)", [[1, 2, 3], [4]], [[1, 2, 3], [4]]),
        ("(x - y) * (1 - 2 * (n % 2))", [[2, 1, 3], [2, 1, 3]], [[1, 2, 3], [3, 2, 1]]),
    ],
)
def test_an_array_is_sorted_as_java_sorts_it_and_within_its_row(function: str, lists: list[Any], wanted: list[Any]) -> None:
    assert value_of(f"array_sort(a, (x, y) -> CAST({function} AS int))", lists) == wanted


def test_long_arrays_are_sorted_stably_whatever_the_function_says_of_equal_ones() -> None:
    lists = [[(k * 37) % 101 for k in range(count)] for count in (31, 32, 33, 64, 100)]
    for function in ("if(x < y, -1, 1)", "if(x < y, -1, 0)", "x - y", "CASE WHEN x < y THEN -1 WHEN x > y THEN 1 END", "10 * (x - y)"):
        assert value_of(f"array_sort(a, (x, y) -> {function})", lists) == [sorted(each) for each in lists], function
    twice = [each * 2 for each in lists]
    assert value_of("array_sort(a, (x, y) -> CASE x % 3 - y % 3 WHEN 0 THEN 0 WHEN 1 THEN 10 WHEN 2 THEN 10 ELSE -1 END)", twice) == [
        sorted(each, key=lambda x: x % 3) for each in twice
    ]
    assert value_of("array_sort(a, (x, y) -> if(x > y, 1, 0))", lists) == lists


@pytest.mark.parametrize("lists", [[[2, 1, 2]], [[5, 6], [1, 1]], [list(range(40)) * 2]])
def test_a_function_that_gives_null_where_it_is_asked_cannot_sort(lists: list[Any]) -> None:
    with pytest.raises(InvalidValue, match="null"):
        value_of("array_sort(a, (x, y) -> CASE WHEN x < y THEN -1 WHEN x > y THEN 1 END)", lists)


def test_an_error_where_the_function_is_asked_ends_the_sort() -> None:
    with pytest.raises(DivideByZero):
        value_of("array_sort(a, (x, y) -> CAST((x - y) * (10 div abs(x - y)) AS int))", [[1, 2], [2, 3, 2]])


@pytest.mark.parametrize(
    ("text", "lists", "wanted"),
    [
        ("exists(a, x -> 10 div x > 0)", [[1, 0], [], None, [2]], [True, False, None, True]),
        ("exists(a, x -> 10 div x > 0)", [[-1, 1, 0], [None, 1, 0]], [True, True]),
        ("forall(a, x -> 10 div x < 0)", [[1, 0], [], None, [-2], [-2, None]], [False, True, None, True, None]),
        ("exists(a, (x, i) -> 10 div x + n > i)", [[10, 0], [1, 0]], [True, True]),
        ("aggregate(a, struct(0 AS s, 0 AS n), (z, x) -> struct(z.s + x AS s, z.n + 1 AS n), z -> z.s / z.n)", [None, [4, 8]], [None, 6.0]),
        ("aggregate(a, 0, (z, x) -> z + x, z -> 1 div z)", [None, [1], None, [1, -2]], [None, 1, None, -1]),
        ("aggregate(a, 10 div n, (z, x) -> z + x)", [None, [1], []], [None, 11, 5]),
        ("transform(a, x -> raise_error('no'))", [[], None], [[], None]),
        ("zip_with(a, if(n < 9, NULL, a), (x, y) -> raise_error('no'))", [[1], None], [None, None]),
    ],
)
def test_what_is_not_asked_for_is_no_error(text: str, lists: list[Any], wanted: list[Any]) -> None:
    assert value_of(text, lists) == wanted


@pytest.mark.parametrize(
    ("text", "lists"),
    [
        ("exists(a, x -> 10 div x > 0)", [[1], [-1, 0, 1]]),
        ("forall(a, x -> 10 div x > 0)", [[1, 0]]),
        ("exists(a, x -> 10 div x > 0)", [[None, 0]]),
        ("aggregate(a, 0, (z, x) -> z + x, z -> 1 div z)", [[], None]),
        ("aggregate(a, 10 div n, (z, x) -> z + x)", [[1]]),
    ],
)
def test_what_is_asked_for_is_an_error(text: str, lists: list[Any]) -> None:
    with pytest.raises(DivideByZero):
        value_of(text, lists)
