"""Queries that once had other answers than batch Spark, though nothing was refused: each answer here is Spark's, which the oracle asks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.drawn import one_in
from tests.query.test_sql_brought_along import asked

GIVEN: dict[str, list[tuple[Any, ...]]] = {
    # WHERE waits for RIGHT and FULL JOIN, which make rows without a left side; ON of the joins before does not.
    """SELECT o.id, u.name, v.name AS v FROM orders o JOIN users u ON o.who = u.name RIGHT JOIN users v ON u.name = v.name WHERE
       o.qty > 2""": [(1, "ann", "ann"), (3, "ann", "ann")],
    """SELECT v.name FROM orders o JOIN users u ON o.who = u.name AND u.town = 'Rom' FULL JOIN users v ON u.name = v.name WHERE o.id
       IS NULL""": [("bob",), ("zoe",)],
    """SELECT v.name FROM orders o JOIN users u ON o.who = u.name FULL JOIN users v ON u.name = v.name AND v.town = 'Oslo' WHERE
       o.id IS NULL""": [("ann",), ("zoe",)],
    "SELECT o.id, v.name FROM orders o, users u RIGHT JOIN users v ON u.name = v.name WHERE o.who = u.name AND o.qty > 1": [
        (1, "ann"), (3, "ann"), (5, "bob")],
    """SELECT o.id, v.name FROM orders o, users u, users w RIGHT JOIN users v ON u.name = v.name WHERE o.who = u.name AND w.name =
       u.name AND o.qty > 1""": [(1, "ann"), (3, "ann"), (5, "bob")],
    """SELECT o.id, v.name FROM orders o JOIN users u ON o.who = u.name AND o.id > (SELECT count(*) FROM users) RIGHT JOIN users v
       ON u.name = v.name""": [(5, "bob"), (None, "ann"), (None, "zoe")],
    "SELECT o.id, v.name FROM orders o JOIN LATERAL (SELECT o.qty * 2 AS d) l ON l.d > 5 RIGHT JOIN users v ON o.who = v.name": [
        (1, "ann"), (3, "ann"), (None, "bob"), (None, "zoe")],
    """SELECT o.id, v.name FROM orders o JOIN LATERAL (SELECT name, town FROM users WHERE name = o.who) l ON l.town = 'Rom' FULL
       JOIN users v ON o.who = v.name""": [(1, "ann"), (3, "ann"), (None, "bob"), (None, "zoe")],
    """SELECT o.id, v.name, w.town FROM orders o JOIN users u ON o.who = u.name RIGHT JOIN users v ON u.name = v.name JOIN users w
       ON v.town = w.town WHERE o.id IS NULL AND w.name <> 'zoe'""": [(None, "zoe", "Rom")],
    "SELECT o.id, v.name FROM orders o RIGHT JOIN users v ON o.who = v.name JOIN users u ON u.name = v.name WHERE o.id IS NULL": [
        (None, "zoe")],
    """SELECT o.id, u.name FROM orders o JOIN users u ON o.who = u.name LEFT JOIN users v ON u.name = v.name AND v.town = 'Rom'
       WHERE v.name IS NULL AND o.id > 2""": [(5, "bob")],
    """SELECT o.id, v.name FROM orders o JOIN users u ON o.who = u.name AND o.who IN (SELECT name FROM users WHERE town = 'Rom')
       RIGHT JOIN users v ON u.name = v.name""": [(1, "ann"), (3, "ann"), (None, "bob"), (None, "zoe")],
}  # fmt: skip


@pytest.mark.parametrize("text", one_in(3, GIVEN))
def test_it_gives_what_spark_gives(text: str) -> None:
    assert asked(text) == GIVEN[text]
