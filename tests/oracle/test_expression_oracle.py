"""Every expression here must give, row by row and with the same type, what batch Spark SQL gives. One Spark job computes them all."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from evenflow.query.expression import compile_expression
from tests.oracle.catalyst import AS_WRITTEN, interpreted

pytestmark = pytest.mark.oracle

UTC = datetime.UTC
NAN, INF = float("nan"), float("inf")

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), [0, 1, -1, 7, -7, None, 2147483, 6]),
    "j": (pa.int32(), [3, -3, 3, -3, 2, 5, None, 6]),
    "l": (pa.int64(), [0, 10, -10, 2**40, -(2**40), 5, None, 123456789]),
    "h": (pa.int16(), [0, 1, -1, 300, None, 6, 7, -300]),
    "d": (pa.float64(), [0.5, -0.5, NAN, INF, -INF, None, 2.675, 1e15]),
    "e": (pa.float64(), [1.0, NAN, 0.25, 100.0, 1234.5678, 2.5, None, 3.5]),
    "f": (pa.float32(), [0.1, -2.5, NAN, None, 3.25, 0.0, 1.5, 100.0]),
    "s": (pa.string(), ["", "hello", "Hello World", None, "  pad  ", "äöü ß 日本", "a_b%c", "x,y,,z"]),
    "r": (pa.string(), ["l", "", "World", "x", None, "ö", "%", ","]),
    "n": (pa.string(), ["1", " 22 ", "-3", "0", None, "+4", "2147483647", "6"]),
    "g": (pa.string(), ["1.5", "1e3", "NaN", "-Infinity", None, ".5", " 7. ", "-0.25"]),
    "x": (pa.string(), ["12", "1.5", "abc", "", None, "99999999999", "true", "2024-02-30"]),
    "b": (pa.bool_(), [True, False, None, True, False, None, True, False]),
    "c": (pa.bool_(), [True, True, True, None, None, None, False, False]),
    "t": (
        pa.timestamp("us", "UTC"),
        [
            datetime.datetime(2024, 2, 29, 13, 45, 59, 123456, UTC), datetime.datetime(1970, 1, 1, tzinfo=UTC),
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), None, datetime.datetime(2000, 1, 1, 0, 0, 1, tzinfo=UTC),
            datetime.datetime(2023, 12, 31, 23, 0, 0, 500000, UTC), datetime.datetime(1999, 12, 31, 1, 2, 3, tzinfo=UTC),
            datetime.datetime(2024, 1, 1, tzinfo=UTC),
        ],
    ),
    "u": (
        pa.date32(),
        [datetime.date(2024, 2, 29), datetime.date(1970, 1, 1), datetime.date(1969, 12, 31), None, datetime.date(2000, 1, 1),
         datetime.date(2023, 12, 31), datetime.date(1999, 1, 3), datetime.date(2024, 1, 1)],
    ),
    "m": (
        pa.string(),
        ["2024-02-29", "2024-3-5 01:02:03", "1969-12-31T23:59:59.5Z", None, "2000-01-01 00:00:00+02:00", "1999", "2024-01",
         "2024-01-01 5:06:07.123456"],
    ),
}  # fmt: skip

COMPARISONS = """
i = 6
i <> j
i < j
i >= 0
l > i
h = 6
h <= j
i <=> j
s <=> r
i = null
null <=> null
d = e
d = d
d > e
d < e
d >= d
e <= d
d > 0.5
d >= 2.675
d < 100.0
d <= 0.5
d = 0.5
d != 0.5
0.5 < d
f > 1.5
f = e
d = double('NaN')
d < double('NaN')
n = 6
n > i
g < d
s = 'hello'
s < r
b = c
t > timestamp '2000-01-01 00:00:00'
t < '2024-01-01'
u >= date '2000-01-01'
u = t
u < '2000-01-01'
i between -1 and 6
i not between j and l
d between 0 and 10
i in (1, 6, 7)
i not in (1, 6, 7)
i in (1, null)
d in (0.5D, double('NaN'))
i > 0.5
i in (0.5, 6)
i between 0.5 and 6.5
s in ('hello', '', 'x')
i in (j, 7)
n in (1, 22)
b and c
b or c
not b
b and null
b or true
b is true
b is not false
i is null
s is not null
isnull(d)
isnotnull(d)
isnan(d)
isnan(f)
i > 0 and j > 0 or b
j <> 2 and i / (j - 2) > 0
i = 0 or 10 / i > 1
"""

ARITHMETIC = """
i
1.5
1.50
.5
9999999999999999999
1.5E-2
i * 0.5
l * 1.25
1.5 + j
d * 0.1
f * 0.1
e * 0.25
i / 2.0
i % 0.7
-1.5
round(2.675, 2)
abs(-0.05)
coalesce(i, 0.5)
case when i > 1 then i else 0.5 end
greatest(i, 0.5)
i + j
i - j
i * j
-i
i + 1
h + h
h + 1
l + i
i + d
f + i
f + f
f * 2
d * e
e / 4
i / 4
i / j
l / j
i div 4
i div j
l div 7
i % 4
i % j
l % j
d % 3.0D
e % j
mod(i, j)
pmod(i, 4)
pmod(i, j)
pmod(e, 3)
n + 1
n * 2L
g + 1.0D
1 + 1
i & j
i | j
i ^ j
~i
i & 6 | j ^ 3
i | j & 3
l & i
shiftleft(i, 2)
shiftright(i, 1)
shiftleft(l, 33)
i << 1
i >> 1
h << 1
getbit(i, 1)
bit_count(i)
abs(i)
abs(d)
ceil(e)
floor(e - 1)
ceil(i)
floor(e)
round(d, 2)
round(e)
round(e, 1)
round(d * 10, 1)
round(i, -1)
round(f, 1)
bround(e)
bround(e, 1)
rint(e)
sqrt(d)
cbrt(e)
exp(f)
ln(e)
ln(d)
log10(e)
log2(d)
log(2, e)
log(e)
pow(e, 2)
power(i, 3)
pow(d, 0.5D)
sign(d)
signum(i)
greatest(i, j)
least(i, j, 2)
greatest(d, e)
least(d, e)
greatest(s, r)
least(d, i)
sin(e)
degrees(e)
try_divide(i, h)
negative(l)
"""

CONDITIONS = """
case when i > 0 then 'pos' when i < 0 then 'neg' else 'zero' end
case when i > 0 then i end
case i when 1 then 'one' when 7 then 'seven' else s end
case when i <> 0 then 100 / i else 0 end
case when b then i else d end
if(b, i, j)
if(i > 0, s, null)
if(i = 0, 0, 10 div i)
coalesce(i, j, 0)
coalesce(s, 'none')
coalesce(i, d)
coalesce(null, i)
nullif(i, j)
nullif(i, 6)
100 / nullif(i, 0)
ifnull(i, 0)
nvl(s, r)
nvl2(s, 1, 2)
nanvl(d, e)
"""

CASTS = """
cast(i as bigint)
cast(i as double)
cast(i as string)
cast(l as string)
cast(d as string)
cast(e as string)
cast(f as string)
cast(b as string)
cast(b as int)
cast(b as double)
cast(i as boolean)
cast(n as int)
cast(n as bigint)
cast(n as double)
cast(g as double)
g::float
cast(f as double)
cast(d as float)
try_cast(x as int)
try_cast(x as bigint)
try_cast(x as double)
try_cast(x as boolean)
try_cast(x as date)
try_cast(m as timestamp)
try_cast(d as int)
try_cast(l as int)
try_cast(l as smallint)
cast(t as string)
cast(t as date)
cast(t as bigint)
cast(t as double)
cast(u as string)
cast(u as timestamp)
cast(m as timestamp)
cast(m as date)
cast(i as timestamp)
string(i)
int('12')
1L
2.5D
'it''s'
"double quoted"
true
cast(null as int)
"""

STRINGS = r"""
upper(s)
lower(s)
length(s)
char_length(r)
substring(s, 1, 3)
substring(s, 0, 2)
substring(s, -3, 2)
substring(s, -10, 6)
substring(s, 3)
substring(s, j, 2)
substr(s, 2, i)
concat(s, r)
concat(s, '-', i)
s || r || 'x'
s || i
concat_ws('-', s, r, 'q')
trim(s)
ltrim(s)
rtrim(s)
btrim(s, 'hx')
trim(both 'h' from s)
trim(leading 'H' from s)
replace(s, 'l', 'L')
replace(s, r, '#')
replace(s, 'o')
regexp_replace(s, '[aeiou]', '*')
regexp_replace(s, '(l+)(o)', '$2-$1')
regexp_extract(s, '([a-z])([a-z]+)', 2)
regexp_extract(s, '(\\w)(,)?', 2)
regexp_extract(s, 'e.', 0)
s like '%l%'
s like 'h_llo'
s like 'a\\_b%'
s like 'a/_b/%c' escape '/'
s not like '%o%'
s ilike 'HELLO%'
s like r
s rlike '^h.*o$'
s regexp 'o'
regexp_like(s, '[0-9,]')
instr(s, 'l')
instr(s, r)
locate('ö', s)
locate('l', s, 4)
position('o' in s)
startswith(s, 'he')
startswith(s, r)
endswith(s, 'o')
contains(s, 'l')
contains(s, r)
left(s, 3)
right(s, 3)
right(s, 0)
left(s, j)
lpad(s, 7, '*')
rpad(s, 7, '*')
lpad(s, 4)
lpad(s, 12, 'ab')
rpad(s, i, 'xy')
reverse(s)
initcap(s)
repeat(r, 3)
split(s, ',')
split(s, 'l')
substring_index(s, ',', 2)
substring_index(s, 'l', -1)
md5(s)
sha2(s, 256)
crc32(s)
ascii(r)
upper(i)
length(i)
"""

TIMES = """
year(t)
month(t)
day(t)
dayofmonth(u)
quarter(u)
hour(t)
minute(t)
second(t)
dayofweek(u)
weekday(u)
dayofyear(u)
weekofyear(u)
year(m)
extract(year from t)
extract(hour from t)
date_trunc('hour', t)
date_trunc('DAY', t)
date_trunc('week', t)
date_trunc('month', t)
date_trunc('quarter', t)
date_trunc('minute', t)
date_trunc('second', t)
date_trunc('year', u)
trunc(u, 'month')
trunc(u, 'week')
to_date(m)
to_date(t)
to_timestamp(m)
unix_timestamp(t)
unix_seconds(t)
unix_millis(t)
unix_micros(t)
timestamp_seconds(l div 1000)
timestamp_micros(l)
timestamp_millis(l)
from_unixtime(i)
date_add(u, 3)
date_sub(u, j)
u + 5
u - 1
datediff(u, date '2000-01-01')
datediff(t, u)
add_months(u, 1)
last_day(u)
t + interval 5 seconds
t - interval '1' day
t + interval 1 hour 30 minutes
t + interval '1 02:03:04' day to second
t - timestamp '2000-01-01 00:00:00'
u + interval 1 day
u + interval 5 hours
u - date '2000-01-01'
interval 5 seconds * 2
t > timestamp '2024-01-01 00:00:00+01:00' - interval 10 seconds
(t - timestamp '2000-01-01') > interval 1 day
timestamp '2024-01-01 12:00:00'
date '2024-02-29'
unix_date(u)
"""

COERCIONS = """
'a' 'b'
sqrt(n)
i < 1.5
h = 1.5D
abs(n)
-n
n div 2
b = 'true'
b < c
concat(i, b)
i in ('1', '6')
i between '1' and '6'
length(null)
null + 1
f + 1.5
i <=> null
date_trunc('hour', m)
date_trunc('hour', cast(t as timestamp_ntz))
date_format(t, null)
cast(t as int)
mod(-7, 3)
i % 0.5D
-9223372036854775808
-9223372036854775808L
-128Y
1e3
substring(s, '2')
left(i, 1)
lpad(i, 5, '0')
u - u
t - u
u - t
s || null
split(s, ',', 2)
log(0.0D)
pow(-8, 1/3)
getbit(l, 40)
shiftleft(i, 33)
try_divide(1, 0)
nullif(n, 6)
interval '1' hour / 2
- interval 1 day
date_add(t, 1)
date_add(u, '1')
trim('x', 'xxa')
ltrim('x', 'xxa')
cast('2024' as date)
I + `J`
S like 'h%'
"""

EXPRESSIONS = [
    line for group in (COMPARISONS, ARITHMETIC, CONDITIONS, CASTS, STRINGS, TIMES, COERCIONS) for line in group.split("\n") if line.strip()
]


@pytest.fixture(scope="module")
def batch() -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values, type) for name, (type, values) in COLUMNS.items()})


@pytest.fixture(scope="module")
def expected(spark: SparkSession, batch: pa.RecordBatch) -> pa.Table:
    # Hundreds of expressions over eight rows: compiling them to Java would take a minute, interpreting them takes no time.
    with interpreted(spark, AS_WRITTEN):
        frame = spark.createDataFrame(pa.Table.from_batches([batch])).coalesce(1)
        return frame.selectExpr(*[f"({text}) as e{i}" for i, text in enumerate(EXPRESSIONS)]).toArrow()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("index", range(len(EXPRESSIONS)), ids=EXPRESSIONS)
def test_as_spark(index: int, batch: pa.RecordBatch, expected: pa.Table) -> None:
    compiled = compile_expression(EXPRESSIONS[index], batch.schema)
    result, wanted = compiled(batch), expected.column(index)
    assert len(result) == batch.num_rows
    assert result.type == compiled.type
    assert _type(compiled.type) == _type(wanted.type)
    for row, (mine, sparks) in enumerate(zip(result.to_pylist(), wanted.to_pylist())):
        assert _same(mine, sparks), f"row {row}: {mine!r}, Spark has {sparks!r}; inputs {batch.slice(row, 1).to_pylist()[0]}"


def test_there_are_enough() -> None:
    assert len(EXPRESSIONS) == len(set(EXPRESSIONS)) >= 120


def _type(type: pa.DataType) -> str:
    return "list<string>" if pa.types.is_list(type) else str(type)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return bool(a == b) and (a is None) == (b is None)
