"""Functions of variants give, row by row over texts of JSON and paths, what batch Spark gives, down to the bytes. One Spark job."""

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

SEED: Final = 20_261_124
JSON: Final = (
    '{"a":1,"b":0.80}', '{"b":[1,"x",null,true,1e3,300,70000,5000000000],"a":{"c":{"d":-1.5}}}', "[]", "{}", "null", "true", "false", "0",
    "-0", "-0.0", "0.00", "127", "128", "-128", "-129", "32768", "2147483648", "9223372036854775807", "9223372036854775808", "100.0",
    "12345678901234567890.123456789", "0.000000000000000000000000000000000000001", "1" * 38, "1" * 39, "1.5E2", "1e400", "-1e-400", "1E5",
    "01", "1.", ".5", "+1", "NaN", "Infinity", "'x'", '"x', '"x"y', "truex", "true x", "nul", "1 2", "1x", '{"a":1}x', "[1,]",
    '{"a":1,"a":2}', '{"a"}', "", " ", "\t [1 , 2 ]\n", '"\\u00e4\\n\\/\\"\\\\"', '"\\ud83d\\ude00"',
    '"' + "é" * 31 + '"', '"' + "é" * 32 + '"',
    '"' + "x" * 300 + '"',
    '{"ä b":1,"z":{"a":[{"k":1},{"k":"2","l":null}]},"":2}', '[[1,2.5],[1e5,null],["x"]]', '[{"a":1},{"b":[]},{"a":2.50}]', '"2024-02-29"',
    '"2024-02-29 12:34:56.5"', '" 12 "', '"1.5"', '"true"', '"abc"', '"\\u0001"', '{"a":null,"b":{"y":null},"c":[null,1,{"k":null}]}',
    '{"\\uff5e":1,"\\ud83d\\ude00":2}', "[" + ",".join(map(str, range(300))) + "]", "253402300800", "99999999999999", "1704067200.25",
    "{" + ",".join(f'"f{k}":{k}' for k in range(260)) + "}", None,
)  # fmt: skip
PATHS: Final = ("$", "$.a", "$.b[1]", "$.a.c.d", "$['a']", '$["ä b"]', "$[0]", "$[1].b", "$[7].x", "$.z.a[0].k", "$.f200", "$.a[2].x", None)
BAD_PATHS: Final = (
    "a",
    "$.",
    "$[",
    "$[-1]",
    "$..a",
    "$.a b",
    "$ .a",
    "$[ 1 ]",
    "$['a",
    "$.b[*]",
    "",
    "$[99999999999]",
    "$.a ",
    "$. a",
    "$ ['a']",
    "$['a ']",
    "$.\ta",
)
TYPES: Final = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(5,1)", "decimal(38,10)", "string", "binary", "date",
    "timestamp", "timestamp_ntz", "variant", "array<int>", "array<string>", "array<variant>", "map<string,string>", "map<string,variant>",
    "struct<a: int, b: array<string>>", "struct<a: struct<c: variant>>", "array<struct<a: double>>",
)  # fmt: skip
COLUMNS: Final = (
    "a",
    "h",
    "i",
    "l",
    "f",
    "d",
    "s",
    "b",
    "z",
    "u",
    "p",
    "q",
    "if(is_valid_utf8(w), w, null)",
    "array(i, j)",
    "array(s)",
    "null",
    "array(t, t2)",
)
CALLS: Final = """
parse_json(x)
try_parse_json(x)
is_variant_null(try_parse_json(x))
is_valid_variant(try_parse_json(x))
is_variant_null(variant_get(try_parse_json(x), '$.a'))
to_json(try_parse_json(x))
to_json(struct(try_parse_json(x) as v, 1 as one))
schema_of_variant(try_parse_json(x))
variant_set(try_parse_json(x), p, 1)
variant_set(try_parse_json(x), p, 'new', false)
variant_set(try_parse_json(x), p, try_parse_json(y))
variant_insert(try_parse_json(x), p, try_parse_json(y))
variant_array_append(try_parse_json(x), p, 1.50)
try_variant_set(try_parse_json(x), p, 1)
try_variant_set(try_parse_json(x), p, 'new', false)
try_variant_insert(try_parse_json(x), p, date '2024-02-29')
try_variant_array_append(try_parse_json(x), p, array(1, null))
variant_delete(try_parse_json(x), p)
variant_delete(try_parse_json(x), p, '$.b', null, '$[0]')
variant_set(try_parse_json(x), '$.a.b[3].c', 1)
variant_strip_nulls(try_parse_json(x))
variant_strip_nulls(try_parse_json(x), false)
try_cast(try_parse_json(x) as variant)
variant_get(try_parse_json(x), p)
variant_set(parse_json('{}'), q, 1)
variant_get(parse_json('{"a":{"b":1}}'), q)
coalesce(try_parse_json(x), try_parse_json(y))
if(x > y, try_parse_json(x), null)
array(try_parse_json(x))
"""


XML: Final = (
    '<a x="1"><b>b1</b><b>2</b><c/></a>', "<a><b>1</b><b>2.75</b></a>", "<a><c>1e3</c></a>", "<a>70000<!-- no -->1</a>", "<a", "", "x",
    "<a/>", "<a><b><![CDATA[<x>]]></b></a>", '<?xml version="1.0"?><a><b>&lt;é</b></a>', "<r><a><b>in</b></a></r>", "<a><b> 3 </b></a>",
    None,
)  # fmt: skip
XPATHS: Final = (
    "a/b/text()", "a/b", "/a/@x", "//b[2]", "a/b[last()]", "a/zz", "a/@*", "a/c", "sum(a/b)", "count(a/*)", "a/b = 2", "string(a/b)",
    "1 div 0", "concat('<', a/b)", "-1.5", "3000000000", "name(/*)",
)  # fmt: skip
OTHERS: Final = r"""
make_timestamp(u, TIME'6:30:45.887')
make_timestamp(u, TIME'23:59:59.999999', 'Europe/Berlin')
make_timestamp_ltz(u, TIME'6:30', 'Europe/Madrid')
make_timestamp_ntz(u, TIME'06:30:45')
try_make_timestamp(u, TIME'6:30:45.887', s)
try_make_timestamp_ntz(u, TIME'6:30:45.887')
date_format(TIME'14:30:45.12', 'hh:mm:ss.SSS a')
v div interval 5 hours
v div v
interval '1-1' year to month div interval '-1' month
interval 3 days div interval 0 hours
bitmap_count(X '1010')
cast(p as boolean)
cast(q as boolean)
cast(b as decimal(3,1))
try_cast(b as decimal(1,1))
cast(b as decimal(1,1))
collation(s)
t + make_interval(i % 1000, j % 1000)
t - make_interval(0, 1, a, 2, h, 4, 5.5)
z + make_interval(a, null, 1)
z - make_ym_interval(a, i % 100)
make_ym_interval(1, 1) + z
t + interval 1 month * a
t - a * interval '1-1' year to month
t + (interval 1 year * h)
t + -make_ym_interval(1)
u + make_ym_interval(0, i % 100)
u - interval 5 month * a
u + make_interval(0, 1, 0, a)
to_json(map(struct(1 as i, array('x') as k), s))
schema_of_json('[{"col":01}]', map('allowNumericLeadingZeros', 'true'))
from_json('{"a":-007,"b":"007","c":[00,01.5,0.5e01]}', 'a int, b string, c array<double>', map('allowNumericLeadingZeros', 'true'))
from_json('{"a":007}', 'a int', map('allowNumericLeadingZeros', 'false'))
"""


def _batch() -> pa.RecordBatch:
    rows = len(JSON)
    dealt = {"x": JSON, "y": [JSON[(7 * k + 3) % rows] for k in range(rows)], "p": [PATHS[k % len(PATHS)] for k in range(rows)]}
    dealt["q"] = [BAD_PATHS[k % len(BAD_PATHS)] for k in range(rows)]
    return pa.record_batch({name: pa.array(values, pa.string()) for name, values in dealt.items()})


def _check(spark: Any, batch: pa.RecordBatch, texts: list[str]) -> None:
    drawn = {text: compile_expression(text, batch.schema) for text in texts}
    with interpreted(spark):
        answers: dict[str, pa.Array] = Catalyst(spark, batch).answers(texts)
    found = "\n".join(map(str, differences(drawn, batch, answers)))
    assert not found, found


def test_they_are_as_sparks(spark: Any) -> None:
    gets = [f"try_variant_get(try_parse_json(x), '{path}', '{type_}')" for type_ in TYPES for path in ("$", "$.b", "$[1]")]
    casts = [f"cast(try_parse_json(x) as {type_})" for type_ in TYPES]
    _check(spark, _batch(), [*CALLS.strip().splitlines(), *gets, *casts])


def test_values_become_variants_as_sparks(spark: Any) -> None:
    made = [f"cast({column} as variant)" for column in COLUMNS]
    texts = [f"to_json({each})" for each in made if "(t, " not in each]
    back = [f"cast(cast({column} as variant) as string)" for column in COLUMNS if column not in ("u", "z", "array(t, t2)")]
    whole = [
        "to_variant_object(struct(i, s, d, p, b))",
        "to_variant_object(map('k', l, 'j', null))",
        "to_variant_object(array(struct(f, w)))",
    ]
    _check(spark, edge_batch(SEED, 48), [*made, *texts, *back, *whole, *(f"schema_of_variant({each})" for each in [*made, *whole])])


@pytest.mark.conformance
def test_paths_of_xml_are_as_sparks(spark: Any) -> None:
    batch = pa.record_batch({"x": pa.array(XML, pa.string())})
    kinds = ("boolean", "double", "float", "int", "long", "short", "string")
    nodes = [f'xpath(x, "{path}")' for path in XPATHS[:8]]
    _check(spark, batch, [*nodes, *(f'xpath_{kind}(x, "{path}")' for kind in kinds for path in XPATHS)])


@pytest.mark.conformance
def test_times_and_other_functions_are_as_sparks(spark: Any) -> None:
    _check(spark, edge_batch(SEED, 48), OTHERS.strip().splitlines())


@pytest.mark.parametrize(("text", "named"), {
    "cast(struct(i) as variant)": "to_variant_object", "to_variant_object(i)": "needs a struct", "variant_get(s, '$.a')": "needs a variant",
    "parse_json(s) = parse_json(s)": "cannot be compared", "parse_json(s).value": "has no fields", "parse_json(s)[0]": "variant_get",
    "to_variant_object(map(i, s))": "cannot be a variant", "hash(parse_json(s))": "cannot be hashed",
}.items())  # fmt: skip
def test_what_is_not_there_is_refused_by_its_name(text: str, named: str) -> None:
    with pytest.raises(EvenflowError) as refused:
        compile_expression(text, edge_batch(SEED, 1).schema)
    assert named in str(refused.value)
