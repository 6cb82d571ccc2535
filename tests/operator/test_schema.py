"""Schemas as DDL text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from evenflow.errors import QueryError
from evenflow.stream.schema import ddl_of, parse_ddl


def test_reads_and_writes_every_type() -> None:
    text = (
        "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h string, i binary, j date, k timestamp, "
        "l timestamp_ltz, m decimal(10,2), n array<array<double>>, o map<string, struct<a: int, `b c`: array<date>>>, "
        "p interval day to second, `two words` int not null, `a``b` string"
    )
    schema = parse_ddl(text)
    assert ddl_of(schema) == text
    assert schema.field("k").type == pa.timestamp("us")
    assert schema.field("m").type == pa.decimal128(10, 2)
    assert not schema.field("two words").nullable
    assert schema.names[-1] == "a`b"


def test_reads_sparks_other_spellings() -> None:
    assert parse_ddl("A: LONG, b Integer NOT NULL, c decimal") == parse_ddl("A bigint, b int not null, c decimal(10,0)")
    assert parse_ddl("  ") == pa.schema([])
    assert parse_ddl("a STRUCT<X: LONG NOT NULL, y ARRAY<Int>>, b INTERVAL DAY") == parse_ddl(
        "a struct<X bigint, y: array<int>>, b interval day to second"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a", "name type"), ("a int,", "name type"), ("a strin", "unknown type 'strin'"), ("a int, a int", "more than once"),
        ("a map<int>", "map<key type"), ("a struct<b: int, B: int>", "more than once"), ("a map<map<int, int>, int>", "key of a map"),
        ("a struct<b>", "name type"),
    ],
)  # fmt: skip
def test_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        parse_ddl(text)
    with pytest.raises(QueryError, match="time64"):
        ddl_of(pa.schema([("a", pa.time64("us"))]))
