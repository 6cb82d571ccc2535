"""COLLATE UTF8_LCASE: texts are compared by their small letters."""

from __future__ import annotations

from typing import Any

import pytest

from evenflow.errors import QueryError
from evenflow.query.sql.collated import folded
from tests.query.test_sql_brought_along import asked

CASES = "(SELECT id, CASE WHEN id % 2 = 1 THEN upper(who) ELSE who END AS w FROM orders)"
GIVEN: dict[str, list[tuple[Any, ...]]] = {
    "SELECT id FROM orders WHERE who COLLATE UTF8_LCASE = 'ANN'": [(1,), (3,)],
    "SELECT id, 'BOB' COLLATE UTF8_LCASE <> who AS a, collate(who, 'UTF8_LCASE') < 'B' AS b FROM orders WHERE id > 2": [
        (3, True, True), (4, None, None), (5, False, False)],
    "SELECT id FROM orders WHERE who COLLATE UTF8_LCASE IN ('Bob', 'x') OR kind COLLATE UTF8_LCASE LIKE 'N%'": [(1,), (2,), (4,), (5,)],
    "SELECT id FROM orders WHERE who COLLATE UTF8_LCASE BETWEEN 'AA' AND 'B'": [(1,), (3,)],
    "SELECT id FROM orders WHERE who COLLATE UTF8_BINARY = 'ANN' OR id = 2": [(2,)],
    "SELECT id FROM orders WHERE CAST(who AS STRING COLLATE UTF8_BINARY) = 'ANN' OR id = 2": [(2,)],
    "SELECT id, town FROM orders JOIN users ON upper(who) = name COLLATE UTF8_LCASE WHERE id < 3": [(1, "Rom"), (2, "Oslo")],
    f"SELECT count(*) AS c, min(id) AS i FROM {CASES} GROUP BY w COLLATE UTF8_LCASE": [(1, 4), (2, 1), (2, 2)],
    f"SELECT id, row_number() OVER (PARTITION BY w COLLATE UTF8_LCASE ORDER BY id DESC) AS p FROM {CASES}": [
        (1, 2), (2, 2), (3, 1), (4, 1), (5, 1)],
    f"SELECT id, rank() OVER (ORDER BY w COLLATE UTF8_LCASE DESC) AS p FROM {CASES}": [(1, 3), (2, 1), (3, 3), (4, 5), (5, 1)],
    "SELECT 'ΟΔΟΣ' COLLATE UTF8_LCASE = 'οδος' AS a, 'οδοσ' = 'οδος' COLLATE UTF8_LCASE AS b FROM users": [(True, True)] * 3,
    "SELECT 'İ' COLLATE UTF8_LCASE = 'i' AS a FROM users": [(False,)] * 3,
}  # fmt: skip


@pytest.mark.parametrize("text", GIVEN)
def test_it_gives_what_spark_gives(text: str) -> None:
    assert asked(text) == GIVEN[text]


def test_letters_one_by_one() -> None:
    assert [folded(text) for text in ("ΟΔΟΣ", "Straße", "İ", "ǅ", "")] == ["οδοσ", "straße", "i̇", "ǆ", ""]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT who COLLATE UTF8_LCASE AS w FROM orders",
        "SELECT id FROM orders WHERE trim(who COLLATE UTF8_LCASE) = 'ANN'",
        "SELECT id FROM orders WHERE who COLLATE UNICODE_CI = 'ANN'",
        "SELECT max(who COLLATE UTF8_LCASE) AS m FROM orders",
        "SELECT id FROM orders WHERE who COLLATE UTF8_LCASE IN (SELECT name FROM users)",
        "SELECT id FROM orders WHERE CAST(who AS STRING COLLATE UTF8_LCASE) = 'ANN'",
        "SELECT id FROM orders WHERE try_cast(who AS STRING COLLATE UNICODE) = 'ANN'",
        "SELECT id FROM orders WHERE CAST(array(who) AS ARRAY<STRING COLLATE UTF8_LCASE>)[0] = 'ANN'",
        "SELECT id FROM orders WHERE CAST(named_struct('a', who) AS STRUCT<a: STRING COLLATE UTF8_LCASE>).a = 'ANN'",
    ],
)
def test_where_it_would_be_part_of_a_type_it_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match=r"line 1.*lower\(x\)"):
        asked(text)


def test_a_schema_has_none_either() -> None:
    with pytest.raises(QueryError, match="COLLATE UTF8_LCASE"):
        asked("SELECT from_json(who, 'a STRING COLLATE UTF8_LCASE').a AS a FROM orders")
