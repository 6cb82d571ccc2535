"""What people who come from Spark write, and what it gives: each answer is batch Spark's, which the oracle asks for more of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError
from evenflow.testing import run, simulate, source

pytestmark = pytest.mark.one_in(2)

ORDERS = pa.table({
    "id": pa.array([1, 2, 3, 4, 5], pa.int64()),
    "who": pa.array(["ann", "bob", "ann", None, "bob"]),
    "kind": pa.array(["new", "used", "used", "new", None]),
    "qty": pa.array([3, None, 5, 1, 2], pa.int32()),
    "price": pa.array([Decimal("7.50"), Decimal("-1.25"), None, Decimal("2.00"), Decimal("2.00")], pa.decimal128(8, 2)),
    "disc": pa.array([0.0, -0.0, 0.1, None, 0.1]),
    "attrs": pa.array([[("x", "1")], [], None, [("y", None)], [("x", "2")]], pa.map_(pa.string(), pa.string())),
})  # fmt: skip
USERS = pa.table({"name": ["ann", "bob", "zoe"], "town": ["Rom", "Oslo", "Rom"]})
TABLES = {"orders": ORDERS, "users": USERS}


def asked(text: str, mode: Any = "changelog") -> list[tuple[Any, ...]]:
    """The rows that the query leaves, sorted."""
    flow = ef.Dataflow("q")
    read = {name: flow.source(source(table.schema), name=name) for name, table in TABLES.items() if name in text}
    ef.sql(text, read, output_mode=mode).to(ef.sinks.memory("out"), name="out")
    there: list[tuple[Any, ...]] = []
    for row in run(flow, {name: TABLES[name] for name in read}, epoch_rows=2, sites=2).table("out").to_pylist():
        change = row.pop("_change", "insert")
        if change in ("update_before", "delete"):
            there.remove(tuple(row.values()))
        else:
            there.append(tuple(row.values()))
    return sorted(there, key=str)


def columns(text: str) -> list[str]:
    flow = ef.Dataflow("q")
    read = {name: flow.source(source(table.schema), name=name) for name, table in TABLES.items() if name in text}
    return [name for name in ef.sql(text, read, output_mode="changelog").columns if name != "_change"]


GIVEN: dict[str, list[tuple[Any, ...]]] = {
    # Values.
    "SELECT id, disc IN (0.0, 7) AS z FROM orders WHERE id < 4": [(1, True), (2, True), (3, False)],
    "SELECT id, disc IN (-0.0, NULL) AS z FROM orders WHERE id < 4": [(1, True), (2, True), (3, None)],
    "SELECT corr(x, y) AS c FROM (SELECT id AS x, 0.1D AS y FROM orders)": [(None,)],
    "SELECT skewness(x) AS s FROM (SELECT 0.1D AS x FROM orders)": [(None,)],
    "SELECT id, price div 2 AS d, price div 0.4 AS e, id div price AS f FROM orders WHERE id <> 5": [
        (1, 3, 18, 0), (2, 0, -3, -1), (3, None, None, None), (4, 1, 5, 2)],
    "SELECT round(stddev(price), 6) AS s FROM orders": [(3.630743,)],
    # Names of the list in the list.
    "SELECT id AS a, a * 2 AS b, b + 1 AS c FROM orders WHERE id < 3": [(1, 2, 3), (2, 4, 5)],
    "SELECT who, sum(qty) AS s, s * 2 AS d FROM orders GROUP BY who": [("ann", 8, 16), ("bob", 2, 4), (None, 1, 2)],
    "SELECT id + 1 AS id, id AS same FROM orders WHERE id = 1": [(2, 1)],
    "SELECT named_struct('n', qty) AS s, s.n + 1 AS m FROM orders WHERE id = 1": [({"n": 3}, 4)],
    # Hints say how Spark is to do it, and nothing of the rows.
    "SELECT /*+ BROADCAST(u) */ o.id, u.town FROM orders o JOIN users u ON o.who = u.name WHERE o.id = 1": [(1, "Rom")],
    # NULL beside a column of the other query; names of the second query do not matter.
    "SELECT id, qty FROM orders WHERE id = 1 UNION ALL SELECT 0, NULL FROM users WHERE name = 'ann'": [(0, None), (1, 3)],
    "SELECT NULL AS a, 1 AS b FROM users WHERE name = 'ann' UNION ALL SELECT qty, NULL FROM orders WHERE id = 1": [(3, None), (None, 1)],
    "SELECT 1 AS a, 2 AS b FROM users WHERE name = 'ann' UNION ALL SELECT 3, 3 FROM users WHERE name = 'bob'": [(1, 2), (3, 3)],
    # Maps that nobody reads are in nobody's way.
    "SELECT o.id, u.town FROM orders o LEFT JOIN users u ON o.who = u.name AND u.town = 'Oslo' WHERE o.id < 3": [(1, None), (2, "Oslo")],
    "SELECT id FROM orders WHERE qty > (SELECT avg(qty) FROM orders)": [(1,), (3,)],
    # The total of no rows comes once, when their source has ended, however long others go on.
    "SELECT id, (SELECT count(*) FROM users WHERE name = 'nobody') AS c FROM orders WHERE id <> 2": [(1, 0), (3, 0), (4, 0), (5, 0)],
    "SELECT id, m FROM orders LEFT JOIN (SELECT max(town) m FROM users WHERE name = 'nobody') ON true WHERE id > 3": [(4, None), (5, None)],
    "SELECT id, m FROM orders LEFT JOIN (SELECT max(c) AS m FROM (SELECT count(*) c FROM users WHERE name = 'x' GROUP BY town)) ON true": [
        (1, None), (2, None), (3, None), (4, None), (5, None)],
    """SELECT o.id, town FROM orders o JOIN users ON who = name AND o.id > (SELECT count(*) FROM users)
       AND o.id IN (SELECT id FROM orders)""": [
        (5, "Oslo")],
    # Tests with queries inside expressions: in Spark neither is ever null.
    "SELECT id, CASE WHEN EXISTS (SELECT 1 FROM users u WHERE u.name = o.who) THEN 'y' ELSE 'n' END AS k FROM orders o WHERE id > 3": [
        (4, "n"), (5, "y")],
    "SELECT id, who IN (SELECT name FROM users) AS a, who NOT IN (SELECT name FROM users WHERE town = 'Rom') b FROM orders WHERE id > 2": [
        (3, True, False), (4, False, False), (5, True, True)],
    "SELECT id FROM orders WHERE id = 4 OR who IN (SELECT name FROM users WHERE town = 'Oslo')": [(2,), (4,), (5,)],
    # USING and NATURAL.
    "SELECT name, c FROM (SELECT who AS name, count(*) AS c FROM orders GROUP BY who) FULL JOIN users USING (name)": [
        ("ann", 2), ("bob", 2), ("zoe", None), (None, 1)],
    "SELECT u.*, id FROM (SELECT id, who AS name FROM orders) o LEFT JOIN users u USING (name)": [
        ("ann", "Rom", 1), ("ann", "Rom", 3), ("bob", "Oslo", 2), ("bob", "Oslo", 5), (None, None, 4)],
    "SELECT o.*, u.name AS n, town FROM (SELECT id, who AS name FROM orders WHERE id < 3) o RIGHT JOIN users u USING (name)": [
        ("ann", 1, "ann", "Rom"), ("bob", 2, "bob", "Oslo"), (None, None, "zoe", "Rom")],
    "SELECT name, o.name AS a, u.name AS b FROM (SELECT id, who AS name FROM orders WHERE id > 2) o FULL JOIN users u USING (name)": [
        ("ann", "ann", "ann"), ("bob", "bob", "bob"), ("zoe", None, "zoe"), (None, None, None)],
    "SELECT u.*, o.name AS n FROM (SELECT id, who AS name FROM orders WHERE id > 3) o NATURAL JOIN users u": [("bob", "Oslo", "bob")],
    "SELECT id, u.name FROM (SELECT id, who AS name FROM orders) o LEFT JOIN users u USING (name) WHERE u.name IS NULL": [(4, None)],
    """SELECT o.name AS a, v.*, u.name AS n FROM (SELECT id, who AS name FROM orders WHERE id = 4 OR id = 5) o LEFT JOIN users u
       USING (name) LEFT JOIN (SELECT name, id AS i FROM users JOIN orders ON name = who WHERE id < 3) v USING (name)""": [
        ("bob", "bob", 2, "bob"), (None, None, None, None)],
    # Columns to rows and rows to columns.
    "SELECT * FROM (SELECT who, kind, qty FROM orders) PIVOT (sum(qty) FOR kind IN ('new', 'used' AS u))": [
        ("ann", 3, 5), ("bob", None, None), (None, 1, None)],
    "SELECT * FROM (SELECT kind, qty FROM orders) PIVOT (count(*) AS c, max(qty) AS m FOR kind IN ('new', 'no'))": [(2, 3, None, None)],
    "SELECT * FROM (SELECT kind, who FROM orders) PIVOT (count(*) AS c, max(who) AS m FOR kind IN ('new', 'no'))": [(2, "ann", 0, None)],
    "SELECT * FROM (SELECT id, qty, CAST(id AS INT) AS n FROM orders WHERE id < 3) UNPIVOT (v FOR what IN (qty, n AS number))": [
        (1, "number", 1), (1, "qty", 3), (2, "number", 2)],
    "SELECT * FROM (SELECT id, qty FROM orders WHERE id = 2) UNPIVOT INCLUDE NULLS (v FOR what IN (qty))": [(2, "qty", None)],
    # What is taken back is taken apart, too.
    "SELECT e, count(*) c FROM (SELECT who, collect_list(qty) AS l FROM orders GROUP BY who) LATERAL VIEW explode(l) v AS e GROUP BY e": [
        (1, 1), (2, 1), (3, 1), (5, 1)],
}  # fmt: skip


@pytest.mark.parametrize("text", GIVEN)
def test_it_gives_what_spark_gives(text: str) -> None:
    assert asked(text) == GIVEN[text]


@pytest.mark.parametrize(
    "inner", ["SELECT count(*) AS c FROM users WHERE name = 'nobody'", "SELECT median(length(name)) AS c FROM users WHERE name = 'x'"]
)
def test_the_total_of_no_rows_comes_once(inner: str) -> None:
    """When their source has ended, however many epochs of others follow."""
    flow = ef.Dataflow("q")
    read = {name: flow.source(source(table.schema), name=name) for name, table in TABLES.items()}
    left = ef.sql(f"SELECT id, c FROM orders LEFT JOIN ({inner}) ON true", read, output_mode="changelog")
    left.to(ef.sinks.memory("out"), name="out")
    test = simulate(flow, sites=1, epoch_rows=1)
    test.give("users", USERS).settle().end("users")
    for at in range(ORDERS.num_rows):
        test.give("orders", ORDERS.slice(at, 1)).settle()
    rows = test.finish().rows()
    there = [row["id"] for row in rows if row["_change"] == "insert"]
    for row in rows:
        if row["_change"] != "insert":
            there.remove(row["id"])
    assert sorted(there) == ORDERS["id"].to_pylist()


def test_columns_of_using_come_first() -> None:
    """By their places, as INSERT INTO and UNION take them, and in Spark."""
    inner = "SELECT * FROM (SELECT count(*) AS c, who AS name FROM orders GROUP BY who) JOIN users USING (name)"
    assert columns(inner) == ["name", "c", "town"]
    assert columns("SELECT * FROM (SELECT qty, who AS name FROM orders) NATURAL JOIN users") == ["name", "qty", "town"]
    right = "SELECT * FROM (SELECT count(*) AS c, who AS town FROM orders GROUP BY who) RIGHT JOIN users USING (town)"
    assert columns(right) == ["town", "c", "name"]


@pytest.mark.parametrize("how", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "NATURAL JOIN"])
def test_a_table_has_all_its_columns_behind_using(how: str) -> None:
    """Those of USING first, as in Spark, where * has them once."""
    sides = f"(SELECT id, who AS name FROM orders) o {how} users u {'' if 'NATURAL' in how else 'USING (name)'}"
    assert columns(f"SELECT u.* FROM {sides}") == ["name", "town"]
    assert columns(f"SELECT o.* FROM {sides}") == ["name", "id"]
    assert columns(f"SELECT * FROM {sides}") == ["name", "id", "town"]
    assert columns(f"SELECT o.name AS a, u.name AS b FROM {sides}") == ["a", "b"]
    third = "JOIN (SELECT name, length(town) AS l FROM users) v USING (name)"
    assert columns(f"SELECT * FROM {sides} {third}") == ["name", "id", "town", "l"]
    assert columns(f"SELECT v.*, u.town FROM {sides} {third}") == ["name", "l", "town"]
    several = f"(SELECT id, who FROM orders) o {how} (SELECT qty, who, id FROM orders) u {'' if 'NATURAL' in how else 'USING (id, who)'}"
    assert columns(f"SELECT u.* FROM {several}") == ["id", "who", "qty"]
    assert columns(f"SELECT o.* FROM {several}") == ["id", "who"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT qty AS a, id AS a, a + 1 AS b FROM orders", "two columns|2 columns"),
        ("SELECT * FROM (SELECT kind, qty FROM orders) PIVOT (max(qty) FOR kind IN (SELECT name FROM users))", "list of values"),
        ("SELECT * FROM (SELECT kind, qty FROM orders) PIVOT (upper(kind) FOR kind IN ('a'))", "aggregate"),
        ("SELECT * FROM (SELECT kind, qty FROM orders) UNPIVOT (v FOR w IN (kind, qty))", "CAST"),
        ("SELECT NULL AS a FROM users UNION ALL SELECT NULL FROM orders", "CAST"),
        ("SELECT id FROM orders o LEFT JOIN users u ON o.who = u.name AND o.id = (SELECT max(id) FROM orders)", "query inside ON"),
        ("SELECT attrs FROM orders o LEFT JOIN users u ON o.who = u.name", "map"),
    ],
)
def test_what_cannot_be_is_said(text: str, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        asked(text)


def test_distinct_zeros_have_no_sign() -> None:
    """Of rows that come once, too: which of equal rows came first is not to be seen."""
    assert [str(row) for row in asked("SELECT DISTINCT disc, id > 1 AS later FROM orders WHERE disc < 0.1", "append")] == [
        "(0.0, False)", "(0.0, True)"]  # fmt: skip
