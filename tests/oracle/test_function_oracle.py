"""Functions of patterns of times, maps, JSON and decimals give, row by row over edge values, what batch Spark gives. One Spark job."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pytest

from evenflow.errors import EvenflowError
from evenflow.query.expression import compile_expression
from tests.oracle.catalyst import Catalyst, interpreted
from tests.oracle.comparing import differences
from tests.oracle.edge_values import edge_batch

pytestmark = pytest.mark.oracle

SEED: Final = 20_261_122
TIMES = """
date_format(t, 'yyyy-MM-dd HH:mm:ss')
date_format(t, 'y MM d')
date_format(u, 'dd.MM.yy')
date_format(z, 'EEEE, d MMMM y')
date_format(t, 'E MMM')
date_format(t, "hh:mm a KK kk SSS ss''")
date_format(t, "yyyyMMdd'T'HHmmss.SSSSSSX")
date_format(t, 'D DDD L LLL')
date_format(t, 'yyyyy yyy')
date_format(t, '')
from_unixtime(i, 'yyyy-MM-dd')
from_unixtime(l % 100000000000, 'yy M')
to_timestamp('29/02/2024 12:34', 'dd/MM/yyyy HH:mm')
to_timestamp(s, 'dd/MM/yyyy HH:mm')
to_date(m, 'yyyy-MM-dd')
to_date(date_format(u, 'yyyyMMdd'), 'yyyyMMdd')
to_date(date_format(u, 'd MMM yy'), 'd MMM yy')
to_timestamp(date_format(t, 'yyyy/M/d h:m a'), 'yyyy/M/d h:m a')
to_timestamp(date_format(t, 'dd MMMM yyyy HH'), 'dd MMMM yyyy HH')
to_timestamp(m, 'yyyy-MM-dd[ HH:mm:ss]')
to_timestamp(date_format(t, 'yyyy-MM-dd HH:mm:ss.SSS'), 'yyyy-MM-dd HH:mm:ss.SSS')
unix_timestamp('01.02.2024', 'dd.MM.yyyy')
unix_timestamp(m, 'yyyy-M-d')
to_timestamp('12:34', 'HH:mm')
timestampdiff(SECOND, t, t2)
timestampdiff(DAY, t, t2)
timestampdiff(HOUR, z, t)
timestampdiff(WEEK, t2, z)
"""
MAPS = """
map_filter(map('a', i, 'b', j), (k, v) -> v > 0)
map_filter(map('a', i, 'b', j), (q, v) -> q = 'a' and v > l)
transform_values(map('a', i, 'b', j), (q, v) -> v % 7 + length(q))
transform_keys(map('a', i, 'b', j), (q, v) -> concat(q, 'x'))
map_concat(map('a', i), map('b', j, 'c', null))
map_concat(map('a', i), map('b', l))
map_concat(map('a', i), if(i > 3, null, map('z', j)))
arrays_zip(array(i, j), array(s))
transform_values(if(i > 2, null, map('a', i)), (q, v) -> v)
arrays_zip(array(i), array(s, s2), if(i > 1, null, array(j)))
"""
DECIMALS = """
ceil(p)
floor(p)
ceil(q)
floor(q)
ceiling(cast(p as decimal(10,0)))
round(p)
round(p, 1)
round(p, 5)
round(p, -1)
round(p, -9)
round(p, -12)
round(q, 3)
round(q)
bround(p, 1)
bround(q, 0)
round(cast(p as decimal(38,2)), -1)
round(cast(p as decimal(10,0)), 0)
floor(cast(q as decimal(38,0)))
round(p, 2147483647)
pmod(p, p)
pmod(p, cast(i as decimal(12,3)))
pmod(q, p)
pmod(i, p)
"""
JSON = r"""
to_json(struct(i, l, d, f, s))
to_json(struct(p, b, u))
to_json(struct(w, r, n, m))
to_json(struct(if(t between timestamp '0001-01-01' and timestamp '9999-12-31', t, null) as t))
to_json(struct(if(z > timestamp_ntz '0001-01-01 00:00:00' and z < timestamp_ntz '9999-12-31 00:00:00', z, null) as z))
to_json(array(i, j))
to_json(map('a', i, 'b"', j))
to_json(map(i, s))
to_json(struct(struct(i as x, array(s) as y) as inner, map('k', d) as m))
to_json(struct(null as a))
to_json(struct(q))
to_json(if(i > 3, null, struct(i)))
get_json_object(to_json(struct(i, s, d)), '$.i')
get_json_object(to_json(struct(i, s, d)), '$.s')
get_json_object(to_json(struct(i, s, d)), '$.d')
get_json_object(to_json(struct(array(i, j) as x)), '$.x[1]')
get_json_object(to_json(struct(array(i, j) as x)), '$.x')
get_json_object('{"a":1.50,"b":[1e3, {"c":null}],"a":2}', '$.a')
get_json_object('{"a":null,"a":2}', '$.a')
get_json_object('{"a":1.50,"b":[1e3, {"c":null}],"a":2}', '$.b')
get_json_object('{"a":1.50,"b":[1e3, {"c":null}],"a":2}', '$.b[1]')
get_json_object('{"a":1.50,"b":[1e3, {"c":null}],"a":2}', '$.b[1].c')
get_json_object('{"a":1.50,"b":[1e3, {"c":null}],"a":2}', '$')
get_json_object('{"a":1', '$.a')
get_json_object('{"a":1} x', '$.a')
get_json_object(' {"a" : "\\u00e4\\n/" }', '$.a')
get_json_object('{"a":{"b c":"\\u00e4\\n/"}}', '$.a')
get_json_object('{"a":{"b c":true}}', "$.a['b c']")
get_json_object('{"a":{"b c":true}}', "$['a'].b c")
get_json_object('[{"a":01}]', '$[0].a')
get_json_object('[{"a":-0.0}]', '$[0].a')
get_json_object('[NaN]', '$[0]')
get_json_object("{'a':1}", '$.a')
get_json_object('12', '$')
get_json_object('"x"', '$')
get_json_object('[{"a":1},{"a":2}]', '$.a')
get_json_object('{"a":[{"b":1},{"b":2}]}', '$.a.b')
get_json_object('', '$')
get_json_object(s, '$')
get_json_object(n, '$')
get_json_object('{"a":12345678901234567890123456789.123456789012345678901}', '$.a')
get_json_object('{"a":[12345678901234567890123456789.123456789012345678901,1E400,1.0E-5]}', '$.a')
get_json_object("{'a':'x\"y'}", '$.a')
get_json_object(' null', '$')
"""
REFUSED: Final = {
    "date_format(t, 'YYYY')": "'YYYY'", "date_format(t, 'G')": "'G'", "to_date(s, 'E d')": "'E'", "to_timestamp(s, 'hh:mm')": "both",
    "date_format(t, 'yyyy''T')": "quote", "get_json_object(s, 'a')": "begins with $",
    "timestampdiff(FORTNIGHT, t, t2)": "unit", "to_json(i)": "needs a struct", "map_filter(array(i), (k, v) -> true)": "needs a map",
    "map_filter(map(1, 2), k -> true)": "a key and a value",
}  # fmt: skip
"""What is not there, and what the message names."""


def test_they_are_as_sparks(spark: Any) -> None:
    batch = edge_batch(SEED, 64)
    texts = [line for block in (TIMES, MAPS, DECIMALS, JSON) for line in block.strip().splitlines()]
    drawn = {text: compile_expression(text, batch.schema) for text in texts}
    with interpreted(spark):
        answers: dict[str, pa.Array] = Catalyst(spark, batch).answers(texts)
    found = "\n".join(map(str, differences(drawn, batch, answers)))
    assert not found, found


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_there_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(EvenflowError) as refused:
        compile_expression(text, edge_batch(SEED, 1).schema)
    assert REFUSED[text] in str(refused.value)
