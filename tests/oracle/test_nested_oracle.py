"""Structures, lists and maps in expressions: row by row and with the same type what batch Spark SQL gives, in one job."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from evenflow.errors import EvenflowError
from evenflow.query.expression import compile_expression
from evenflow.query.sql.types import name_of
from evenflow.stream.schema import parse_ddl, schema_of_spark
from tests.oracle.catalyst import AS_WRITTEN, interpreted

pytestmark = pytest.mark.oracle

NAN = float("nan")
DAY = datetime.datetime(2024, 2, 29, 13, 45)
DDL = (
    "i int, s string, st struct<a: int, B: string, d: double, `odd name`: int>, "
    "su struct<a: bigint, B: string, d: double, `odd name`: int>, "
    "deep struct<one: struct<x: int, y: string>, two: array<int>, m: map<string, int>>, m map<string, int>, mi map<int, struct<v: int>>, "
    "l array<int>, ls array<struct<x: int, y: string>>, ll array<array<int>>, t timestamp_ntz, f array<double>"
)
ROWS: list[tuple[Any, ...]] = [
    (1, "k", (1, "x", 0.5, 7), (1, "x", 0.5, 7), ((1, "a"), [1, 2], {"p": 1}), {"j": 2, "k": 1}, {1: (5,), 2: None}, [1, 2, 3],
     [(1, "p"), (2, None)], [[1], [2, 3]], DAY, [0.0, NAN]),
    (2, "j", None, (1, None, 0.5, 7), None, None, None, None, None, None, None, None),
    (3, "zz", (None, None, None, None), (None, None, None, None), (None, None, None), {}, {}, [], [], [], DAY, []),
    (None, None, (2, "x", NAN, 1), (2, "x", NAN, 1), ((None, "b"), [None], {"q": None}), {"k": None}, {3: (None,)}, [None, 5],
     [None, (3, "q")],
     [None, [None]], DAY, [-0.0, NAN]),
    (2, "k", (2, "x", -0.0, 1), (2, "w", 0.0, 1), ((2, "a"), [1, 2], {"p": 1}), {"a": 1, "k": 7}, {2: (6,)}, [4, 5],
     [(4, "r")], [[9]], DAY, [NAN]),
]  # fmt: skip

TAKEN_APART = """
st.a
st.b
ST.A
st.`odd name`
st['B']
deep.one.x
deep.one
deep.two[0] is null or true
deep.m['p']
m['k']
m[s]
m['none']
mi[1]
mi[i].v
element_at(m, 'k')
element_at(m, s)
try_element_at(l, 2)
try_element_at(l, -1)
try_element_at(m, 'k')
get(l, 1)
get(l, -1)
get(l, i)
get(ls, 0).x
get(get(ll, 1), 0)
ls.x
ls.y
size(l)
size(m)
size(ls)
cardinality(m)
array_size(ll)
map_keys(m)
map_values(m)
map_entries(mi)
map_keys(mi)
map_contains_key(m, 'k')
map_contains_key(m, s)
st is null
st.a is null
m is not null
"""
PUT_TOGETHER = """
struct(i, s)
struct(i AS a, s AS b, 1)
struct(st.a, st.B AS c)
named_struct('p', i, 'q', st)
array(i, 2)
array(i, null, 2L)
array(s, 'x')
array(st, su)
array(l, array(9))
coalesce(l, array())
map('a', i, 'b', 2)
map(1, st)
map('x', l)
map_from_arrays(array('a', 'b'), array(i, 5))
map_from_entries(map_entries(m))
map_from_entries(map_entries(mi))
map_from_entries(array(struct('a', i)))
if(i = 1, st, null)
if(i = 1, m, map('z', 1))
coalesce(st, su)
coalesce(l, array(0))
coalesce(m, map())
case when i = 1 then l when i = 2 then array(7) end
nvl2(st, 'there', 'not')
nullif(st, named_struct('a', 2, 'B', 'x', 'd', 0.0D, 'odd name', 1))
ifnull(deep.one, struct(0 AS x, 'n' AS y))
"""
COMPARED = """
st = su
st <=> su
st <> su
st < su
st <= su
st > su
st >= su
st = st
struct(1 AS a, null AS b) = struct(1 AS a, null AS b)
struct(1 AS a, cast(null AS int) AS b) < struct(1 AS a, 0 AS b)
struct(i, s) = struct(2 AS i, 'k' AS s)
struct(i, s) IN (struct(2, 'k'), struct(1, 'k'))
l = array(1, 2, 3)
l < array(1, 3)
l > array(1, 2)
l <=> null
ll = array(array(1), array(2, 3))
f = array(0.0D, double('NaN'))
deep.one = struct(1 AS x, 'a' AS y)
deep.one BETWEEN struct(1 AS x, 'a' AS y) AND struct(2 AS x, 'a' AS y)
ls = array(struct(4 AS x, 'r' AS y))
struct(t) = struct(timestamp_ntz'2024-02-29 13:45:00')
"""
CAST_TO = """
cast(st AS string)
cast(l AS string)
cast(m AS string)
cast(ls AS string)
cast(deep AS string)
cast(mi AS string)
cast(l AS array<string>)
cast(l AS array<bigint>)
cast(m AS map<string, bigint>)
cast(deep.one AS struct<p: bigint, q: string>)
cast(ls AS array<struct<u: double, v: string>>)
try_cast(map('a', s) AS map<string, int>)
cast(ll AS array<array<double>>)
cast(array('2024-01-01 10:00:00', s) AS array<string>)
cast(cast(array('2024-01-01 10:00:00') AS array<timestamp>) AS array<string>)
cast(named_struct('a b', '2024-01-01 10:00:00') AS struct<`a b`: timestamp_ntz>)
cast(cast(map('k', '2024-01-01T10:00:00+01:00') AS map<string, timestamp>) AS string)
"""
DECIMALS = """
cast(i AS decimal(10,2)) + cast(s IS NULL AS int)
cast(i AS decimal(10,2)) + cast(2 AS decimal(5,3))
cast(i AS decimal(10,2)) - 7
cast(i AS decimal(10,2)) * cast(i AS decimal(12,4))
cast(i AS decimal(10,2)) / 3
cast(i AS decimal(10,2)) / cast(7 AS decimal(20,10))
cast(i AS decimal(38,18)) / cast(7 AS decimal(38,18))
cast(i AS decimal(38,10)) * cast(3 AS decimal(38,10))
cast(i AS decimal(10,2)) % cast(2 AS decimal(5,3))
cast(i AS decimal(10,2)) * i
cast(i AS decimal(10,2)) + 0.5D
cast(i AS decimal(10,2)) > 1
- cast(i AS decimal(10,2))
cast(i AS decimal(10,2)) + null
1L + cast(i AS decimal(5,1))
"""
INTERVALS = """
t - timestamp_ntz'2024-02-29 00:00:00'
(t - timestamp_ntz'2024-02-29 00:00:00') * 2
(t - timestamp_ntz'2024-02-29 00:00:00') / 2
t + (t - timestamp_ntz'2024-02-29 00:00:00')
t - timestamp_ntz'2024-02-29 00:00:00' > INTERVAL '1' HOUR
struct(t - timestamp_ntz'2024-02-28 00:00:00' AS d)
(t - timestamp_ntz'2024-02-29 00:00:00') + INTERVAL '1' DAY
- (t - timestamp_ntz'2024-02-29 00:00:00')
coalesce(t - timestamp_ntz'2024-02-29 00:00:00', INTERVAL '1' HOUR)
"""
EXPRESSIONS = [line for text in (TAKEN_APART, PUT_TOGETHER, COMPARED, CAST_TO, DECIMALS, INTERVALS) for line in text.strip().split("\n")]
REFUSED = """
m = m
map(1, 2) < map(1, 3)
st.zz
i.a
st[0]
l['a']
cast(st AS int)
cast(st AS struct<a: int>)
size(i)
map_keys(l)
map(m, 1)
named_struct('a')
array(1, st)
st = l
element_at(i, 1)
"""


@pytest.fixture(scope="module")
def batch() -> pa.RecordBatch:
    schema = parse_ddl(DDL)
    columns = [[_given(row[at], schema.field(at).type) for row in ROWS] for at in range(len(schema))]
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


@pytest.fixture(scope="module")
def expected(spark: SparkSession) -> tuple[pa.Schema, list[Row]]:
    # As in test_expression_oracle: interpreting takes less than compiling.
    with interpreted(spark, AS_WRITTEN):
        frame = spark.createDataFrame(ROWS, DDL).coalesce(1)
        found = frame.selectExpr(*(f"({text}) AS c{at}" for at, text in enumerate(EXPRESSIONS)))
        return schema_of_spark(found.schema.jsonValue(), "Spark"), found.collect()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("index", range(len(EXPRESSIONS)), ids=EXPRESSIONS)
def test_as_spark(index: int, batch: pa.RecordBatch, expected: tuple[pa.Schema, list[Row]]) -> None:
    schema, rows = expected
    compiled = compile_expression(EXPRESSIONS[index], batch.schema)
    result = compiled(batch)
    assert len(result) == batch.num_rows
    assert result.type == compiled.type
    assert name_of(compiled.type) == name_of(schema.field(index).type)
    for row, (mine, sparks) in enumerate(zip(result.to_pylist(), rows, strict=True)):
        assert _same(mine, sparks[index]), f"row {row}: {mine!r}, Spark has {sparks[index]!r}; inputs {ROWS[row]}"
    for start in (1, 3):
        assert result.slice(start).equals(compiled(batch.slice(start))) or _has_nan(result), "a slice is computed as the rows it shows"


def _has_nan(array: pa.Array) -> bool:
    return "nan" in str(array.to_pylist())


@pytest.mark.parametrize("text", REFUSED.strip().split("\n"))
def test_what_spark_refuses(text: str, batch: pa.RecordBatch, spark: SparkSession) -> None:
    with pytest.raises(EvenflowError):
        compile_expression(text, batch.schema)
    with pytest.raises(Exception, match=r"\["):
        spark.createDataFrame(ROWS[:1], DDL).selectExpr(text)


def _given(value: Any, type_: pa.DataType) -> Any:
    """Spark's tuples as Arrow takes them."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {field.name: _given(each, field.type) for field, each in zip(type_, value, strict=True)}
    if pa.types.is_map(type_):
        return [(key, _given(each, type_.item_type)) for key, each in value.items()]
    return [_given(each, type_.value_type) for each in value] if pa.types.is_list(type_) else value


def _same(mine: Any, sparks: Any) -> bool:
    if mine is None or sparks is None:
        return mine is sparks
    if isinstance(sparks, Row):
        return isinstance(mine, dict) and len(mine) == len(sparks) and all(map(_same, mine.values(), sparks))
    if isinstance(sparks, Mapping):
        return len(mine) == len(sparks) and all(
            _same(key, k) and _same(item, i) for (key, item), (k, i) in zip(mine, sparks.items(), strict=True)
        )
    if isinstance(sparks, list):
        return len(mine) == len(sparks) and all(map(_same, mine, sparks))
    if isinstance(sparks, float):
        return (math.isnan(mine) and math.isnan(sparks)) or mine == sparks
    return bool(mine == sparks)
