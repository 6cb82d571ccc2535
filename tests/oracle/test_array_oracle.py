"""Functions of arrays, and functions of functions, give row by row what batch Spark gives. One Spark job computes them all."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from evenflow.query.expression import compile_expression
from tests.oracle.catalyst import frame_of

pytestmark = pytest.mark.oracle

NAN = float("nan")
ROWS = pa.record_batch({
    "a": pa.array([[1, 2, None], [], None, [3, 1, 3], [None], [2, 2, 2, -1]], pa.list_(pa.int32())),
    "b": pa.array([[2, None], [1], [4], None, [None, 5], []], pa.list_(pa.int32())),
    "f": pa.array([[1.5, NAN, None], [NAN, NAN, 0.0], [], None, [-1.0], [float("inf"), 2.0]], pa.list_(pa.float64())),
    "s": pa.array([["x", None, ""], ["ä", "b"], None, [], ["x", "x"], ["Z", "a"]], pa.list_(pa.string())),
    "n": pa.array([1, 2, None, 3, 0, 2], pa.int32()),
    "t": pa.array(["x", "b", "q", None, "", "a"]),
})  # fmt: skip
EXPRESSIONS = """
transform(a, x -> x * 2 + 1)
transform(a, (x, i) -> x + i)
transform(a, x -> x + n)
transform(s, x -> upper(x))
transform(a, x -> size(filter(b, y -> y > x)))
filter(a, x -> x > 1)
filter(s, (x, i) -> i > 0)
exists(a, x -> x = 2)
exists(a, x -> x > 5)
forall(a, x -> x > 0)
forall(f, x -> x >= 0)
exists(array(3, n, 1), x -> 10 div (x - 1) > 0)
forall(array(3, 1), x -> 10 div (x - 1) < 0)
aggregate(a, struct(0 AS s, 0 AS n), (z, x) -> struct(z.s + coalesce(x, 0) AS s, z.n + 1 AS n), z -> z.s / nullif(z.n, 0))
aggregate(if(n > 0, array(n), null), 10 div n, (z, x) -> z + x, z -> 10 div z)
aggregate(a, 0, (acc, x) -> acc + coalesce(x, 0))
aggregate(a, 0, (acc, x) -> acc + x)
aggregate(s, '', (acc, x) -> acc || coalesce(x, '-'), acc -> length(acc))
reduce(a, 1L, (acc, x) -> acc * coalesce(x, 1))
zip_with(a, b, (x, y) -> coalesce(x, 0) - coalesce(y, 0))
zip_with(a, s, (x, y) -> concat(y, x))
array_sort(a)
array_sort(f)
array_sort(s, (x, y) -> coalesce(length(y), 0) - coalesce(length(x), 0))
array_sort(filter(a, x -> x IS NOT NULL), (x, y) -> if(x > y, 1, 0))
array_sort(filter(a, x -> x IS NOT NULL), (x, y) -> if(x < y, -1, 1))
array_sort(array(3, 1, n, 2), (x, y) -> if(coalesce(x, 9) < coalesce(y, 9), -1, 1))
array_sort(array(2, 1, 3, coalesce(n, 7)), (x, y) -> CASE (x - y + 9) % 3 WHEN 1 THEN 1 WHEN 2 THEN -1 ELSE 0 END)
array_sort(transform(sequence(1, 100), x -> x * 37 % 101), (x, y) -> if(x < y, -1, 1))
array_sort(transform(sequence(1, 100), x -> x * 37 % 101), (x, y) -> if(x > y, 1, 0))
array_sort(transform(sequence(1, 100), x -> x * 37 % 101), (x, y) -> CASE WHEN x < y THEN -1 WHEN x > y THEN 1 END)
array_sort(array(1, 2, 3), (x, y) -> if(abs(x - y) = 2, NULL, x - y))
sort_array(a)
sort_array(f, false)
array_contains(a, 2)
array_contains(f, double('NaN'))
array_position(a, 3)
array_position(s, t)
array_min(a)
array_max(f)
array_min(f)
array_max(s)
array_distinct(a)
array_distinct(f)
array_union(a, b)
array_intersect(a, b)
array_except(a, b)
arrays_overlap(a, b)
array_append(a, n)
array_prepend(s, t)
array_append(a, cast(1.1 as float))
array_insert(a, 1, cast(1.1 as float))
array_union(a, array(cast(1.1 as float)))
array_append(array(a), array(cast(1.1 as float)))
array_contains(array(16777217L), cast(16777216 as float))
arrays_overlap(array(16777217), array(cast(16777216 as float)))
array_remove(a, 3)
array_remove(a, n)
array_compact(a)
array_repeat(t, n)
array_join(s, '-')
array_join(s, '-', '?')
slice(a, 2, 2)
slice(a, -2, 1)
flatten(array(a, b))
sequence(1, n)
sequence(5L, 1, -2)
reverse(a)
concat(a, b)
concat_ws(',', s, t)
size(a)
"""


def plain(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return "NaN"
    return [plain(each) for each in value] if isinstance(value, list) else value


def test_arrays_are_as_sparks(spark: Any) -> None:
    texts = EXPRESSIONS.strip().splitlines()
    answers = frame_of(spark, ROWS).selectExpr(*[f"{text} AS e{k}" for k, text in enumerate(texts)]).collect()
    wrong = []
    for k, text in enumerate(texts):
        made = compile_expression(text, ROWS.schema)
        got, wanted = [plain(value) for value in made(ROWS).to_pylist()], [plain(row[k]) for row in answers]
        if got != wanted:
            wrong.append(f"{text}: {got} instead of {wanted}")
    assert not wrong, "\n".join(wrong)
