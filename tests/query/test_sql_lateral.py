"""LATERAL (SELECT ...): a query in FROM about the rows beside it."""

from __future__ import annotations

from typing import Any

import pytest

from evenflow.errors import QueryError
from tests.query.test_sql_brought_along import asked

pytestmark = pytest.mark.one_in(2)

O = "FROM orders o"  # noqa: E741

GIVEN: dict[str, list[tuple[Any, ...]]] = {
    # Columns of the row.
    f"SELECT id, x.c, d {O}, LATERAL (SELECT o.id + 1 AS c, o.qty * 2 AS d) x WHERE x.c > 4": [(4, 5, 2), (5, 6, 4)],
    f"SELECT id, z.c {O} JOIN LATERAL (SELECT id * 2 AS b) y JOIN LATERAL (SELECT y.b + qty AS c) z ON z.c > 8": [(3, 11), (4, 9), (5, 12)],
    f"SELECT x.* {O} LEFT JOIN LATERAL (SELECT id, kind) AS x (n, m) ON true WHERE id = 1": [(1, "new")],
    # Rows beside it.
    f"SELECT id, u.town {O}, LATERAL (SELECT town FROM users WHERE name = o.who) u": [(1, "Rom"), (2, "Oslo"), (3, "Rom"), (5, "Oslo")],
    f"SELECT id, u.town {O} LEFT JOIN LATERAL (SELECT * FROM users WHERE name = o.who AND length(town) > o.qty) u ON town <> 'Rom'": [
        (1, None), (2, None), (3, None), (4, None), (5, "Oslo")],
    f"SELECT id, u.* {O} LEFT JOIN LATERAL (SELECT concat(town, o.id) AS a, name FROM users WHERE name = o.who) u ON true WHERE id > 3": [
        (4, None, None), (5, "Oslo5", "bob")],
    # What they are together, of none too.
    f"SELECT id, c, m {O}, LATERAL (SELECT count(*) AS c, max(town) AS m FROM users WHERE name = o.who) u WHERE id > 2": [
        (3, 1, "Rom"), (4, 0, None), (5, 1, "Oslo")],
    "SELECT name, c + 1 AS c FROM users u LEFT JOIN LATERAL (SELECT count(*) * 2 AS c FROM orders WHERE who = u.name) ON true": [
        ("ann", 5), ("bob", 5), ("zoe", 1)],
    "SELECT name, k, s FROM users u JOIN LATERAL (SELECT kind AS k, sum(qty) AS s FROM orders WHERE who = u.name GROUP BY kind) x": [
        ("ann", "new", 3), ("ann", "used", 5), ("bob", "used", None), ("bob", None, 2)],
    "SELECT name, c FROM users u LEFT JOIN LATERAL (SELECT count(*) AS c FROM orders WHERE who = u.name GROUP BY who) x ON true": [
        ("ann", 2), ("bob", 2), ("zoe", None)],
    "SELECT name, k FROM users u, LATERAL (SELECT DISTINCT kind IS NULL AS k FROM orders WHERE who = u.name) x": [
        ("ann", False), ("bob", False), ("bob", True)],
    f"SELECT id, c {O}, LATERAL (SELECT count(*) + max(length(name)) AS c FROM users WHERE nullif(name, 'zoe') <=> o.who) u": [
        (1, 4), (2, 4), (3, 4), (4, 4), (5, 4)],
    # The first of them.
    "SELECT name, id, qty FROM users u, LATERAL (SELECT id, qty FROM orders WHERE who = u.name ORDER BY qty DESC LIMIT 1) x": [
        ("ann", 3, 5), ("bob", 5, 2)],
    "SELECT name, q FROM users u LEFT JOIN LATERAL (SELECT -qty q FROM orders WHERE who = u.name ORDER BY q NULLS LAST LIMIT 1) ON true": [
        ("ann", -5), ("bob", -2), ("zoe", None)],
    "SELECT name, id FROM users u, LATERAL (SELECT id FROM orders WHERE who = u.name ORDER BY id LIMIT 2 OFFSET 1) x": [
        ("ann", 3), ("bob", 5)],
    "SELECT name, id FROM users u LEFT JOIN LATERAL (SELECT id FROM orders WHERE who = u.name ORDER BY id OFFSET 1) x": [
        ("ann", 3), ("bob", 5), ("zoe", None)],
    # The first groups of them.
    """SELECT name, x.* FROM users u, LATERAL (SELECT kind AS k, count(*) AS c, sum(qty) AS s FROM orders WHERE who = u.name
       GROUP BY kind ORDER BY c DESC, k LIMIT 1) x""": [
        ("ann", "new", 1, 3), ("bob", None, 1, 2)],
    """SELECT name, x.* FROM users u LEFT JOIN LATERAL (SELECT kind AS k, sum(qty) AS s FROM orders WHERE who = u.name GROUP BY kind
       HAVING count(*) > 0 ORDER BY s DESC NULLS LAST LIMIT 1) x""": [
        ("ann", "used", 5), ("bob", None, 2), ("zoe", None, None)],
    "SELECT name, k FROM users u, LATERAL (SELECT DISTINCT kind AS k FROM orders WHERE who = u.name ORDER BY k DESC LIMIT 1) x": [
        ("ann", "used"), ("bob", "used")],
    "SELECT name, k FROM users u, LATERAL (SELECT kind AS k FROM orders WHERE who = u.name GROUP BY ALL ORDER BY k LIMIT 1 OFFSET 1) x": [
        ("ann", "used"), ("bob", "used")],
    "SELECT name, c FROM users u, LATERAL (SELECT count(*) AS c FROM orders WHERE who = u.name ORDER BY c LIMIT 1) x": [
        ("ann", 2), ("bob", 2), ("zoe", 0)],
    # HAVING without groups is asked of no rows, too.
    "SELECT name, c FROM users u, LATERAL (SELECT count(*) AS c FROM orders WHERE who = u.name HAVING count(*) = 0) x": [("zoe", 0)],
    "SELECT name, c FROM users u LEFT JOIN LATERAL (SELECT max(id) AS c FROM orders WHERE who = u.name HAVING max(id) > 3) x": [
        ("ann", None), ("bob", 5), ("zoe", None)],
}  # fmt: skip


@pytest.mark.parametrize("text", GIVEN)
def test_it_gives_what_spark_gives(text: str) -> None:
    assert asked(text) == GIVEN[text]


def test_rows_that_come_once() -> None:
    text = f"SELECT id, c, u.town {O}, LATERAL (SELECT o.id + 1 AS c) x, LATERAL (SELECT town FROM users WHERE name = o.who) u"
    assert asked(text, "append") == [(1, 2, "Rom"), (2, 3, "Oslo"), (3, 4, "Rom"), (5, 6, "Oslo")]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT count(*) AS c FROM users WHERE length(town) > o.qty", "by equalities"),
        ("SELECT sum(o.qty) AS c FROM users WHERE name = o.who", "by equalities"),
        ("SELECT town FROM users WHERE name = o.who LIMIT 1", "say ORDER BY"),
        ("SELECT count(*) AS c FROM users WHERE name = o.who LIMIT 0", "leaves none"),
        ("SELECT DISTINCT * FROM users WHERE name = o.who ORDER BY town LIMIT 1", "by their names"),
        ("SELECT o.id AS c WHERE o.id > 2", "WHERE of a SELECT without FROM"),
        ("SELECT town FROM users UNION ALL SELECT o.who FROM users", "LATERAL takes a SELECT"),
    ],
)
def test_what_cannot_be_is_said(query: str, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        asked(f"SELECT id {O}, LATERAL ({query}) x")


def test_aggregates_change() -> None:
    with pytest.raises(QueryError, match="changelog"):
        asked(f"SELECT id, c {O}, LATERAL (SELECT count(*) AS c FROM users WHERE name = o.who) u", "append")
