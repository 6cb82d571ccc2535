"""What people who come from Spark write, held against batch Spark: the answers that `tests/query` has by hand of them are
Spark's, and more texts of the same kinds give what Spark gives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.drawn import one_in
from tests.query.test_sql_brought_along import GIVEN, TABLES, asked, columns
from tests.query.test_sql_collate import GIVEN as COLLATED
from tests.query.test_sql_lateral import GIVEN as LATERAL
from tests.query.test_sql_wrong_answers import GIVEN as ONCE_WRONG
from tests.query.test_sql_zeros import GIVEN as OF_ZEROS
from tests.query.test_sql_zeros import TIED, ZEROS

pytestmark = [pytest.mark.oracle, pytest.mark.one_in(2)]

TYPES = {
    "orders": "id bigint, who string, kind string, qty int, price decimal(8, 2), disc double, attrs map<string, string>",
    "users": "name string, town string",
    "zeros": "ts timestamp, id bigint, x double, k string",
    "tied": "ts timestamp_ntz, id bigint, x double, f float",
}

MORE = (
    # PIVOT and UNPIVOT.
    "SELECT * FROM (SELECT who, kind, qty FROM orders) PIVOT (sum(qty) FOR (who, kind) IN (('ann', 'new') AS an, ('bob', 'used')))",
    "SELECT * FROM (SELECT who, qty, price FROM orders) PIVOT (avg(price) FOR qty IN (3, 5, 1))",
    "SELECT * FROM (SELECT who, disc, id FROM orders) PIVOT (count(id) FOR disc IN (0.0D AS z, 0.1D AS t, NULL AS n))",
    "SELECT who, new + 1 AS n FROM (SELECT who, kind, qty FROM orders) PIVOT (max(qty) FOR kind IN ('new')) WHERE who IS NOT NULL",
    "SELECT * FROM (SELECT id, who, kind FROM orders) UNPIVOT EXCLUDE NULLS (v FOR what IN (who, kind AS k))",
    "SELECT what, count(v) AS c FROM (SELECT id, who, kind FROM orders) UNPIVOT INCLUDE NULLS (v FOR what IN (who, kind)) GROUP BY what",
    # Names of the list in the list.
    "SELECT id * 2 AS b, b + 1 AS c, c * c AS d FROM orders WHERE id > 1 AND qty IS NOT NULL",
    "SELECT kind, count(*) AS c, sum(qty) AS s, s / c AS mean, mean > 2 AS big FROM orders GROUP BY kind",
    "SELECT upper(who) AS u, length(u) AS l FROM orders ORDER BY l, u LIMIT 9",
    # Joins.
    "SELECT * FROM (SELECT who AS name, sum(qty) AS s FROM orders GROUP BY who) FULL JOIN users USING (name)",
    "SELECT name, upper(town) AS t FROM (SELECT who AS name FROM orders) NATURAL JOIN users",
    "SELECT * FROM users LEFT JOIN (SELECT who AS name, kind FROM orders) USING (name)",
    "SELECT o.id, u.town FROM orders o FULL JOIN users u ON o.who = u.name AND o.qty > 2",
    "SELECT /*+ MERGE(u), REPARTITION(3) */ count(*) AS c, max(town) AS t FROM orders o LEFT JOIN users u ON o.who <=> u.name",
    "SELECT o.id FROM orders o LEFT ANTI JOIN users u ON o.who = u.name",
    # Queries inside expressions.
    "SELECT id, EXISTS (SELECT 1 FROM users u WHERE u.name = o.who AND u.town = 'Rom') AND qty > 2 AS a FROM orders o",
    "SELECT id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM users WHERE name = o.who) OR kind = 'used'",
    "SELECT id, CASE WHEN who IN (SELECT name FROM users) THEN 'in' WHEN who IS NULL THEN 'null' ELSE 'out' END AS k FROM orders",
    "SELECT id, kind NOT IN (SELECT town FROM users) AS a FROM orders",
    "SELECT name, (SELECT count(*) FROM orders o WHERE o.who = u.name) AS c, (SELECT max(id) FROM orders) AS m FROM users u",
    "SELECT name FROM users u WHERE (SELECT sum(qty) FROM orders o WHERE o.who = u.name) > 5 OR town = 'Oslo'",
    "SELECT who, count(*) AS c FROM orders GROUP BY who HAVING count(*) > (SELECT count(*) FROM users WHERE town = 'Oslo')",
    "SELECT id, (SELECT max(town) FROM users u WHERE nullif(u.name, 'zoe') <=> o.who) AS t FROM orders o",
    "SELECT id, lag(kind, -1) OVER (ORDER BY id) AS a, lead(kind, -2, 'x') IGNORE NULLS OVER (ORDER BY id) AS b FROM orders",
    # Sets of rows.
    "SELECT NULL AS a, name AS b FROM users UNION SELECT qty, NULL FROM orders",
    "SELECT who FROM orders UNION SELECT name FROM users INTERSECT SELECT who FROM orders WHERE id > 2",
    "SELECT who FROM orders EXCEPT SELECT name FROM users WHERE town = 'Rom'",
    "SELECT disc FROM orders INTERSECT SELECT disc FROM orders WHERE id > 1",
    "SELECT DISTINCT disc, kind IS NULL AS n FROM orders",
    "SELECT who FROM orders EXCEPT ALL SELECT name FROM users",
    "SELECT kind FROM orders INTERSECT ALL SELECT kind FROM orders WHERE id > 1",
    "SELECT disc, qty > 1 AS q FROM orders INTERSECT ALL SELECT abs(disc), true FROM orders",
    "SELECT disc FROM orders EXCEPT ALL SELECT -0.0D FROM users WHERE town = 'Rom'",
    "SELECT who, count(*) AS c FROM orders GROUP BY who EXCEPT ALL SELECT name, 2 FROM users WHERE town = 'Rom'",
    "SELECT who FROM orders UNION ALL SELECT name FROM users INTERSECT ALL SELECT who FROM orders EXCEPT ALL SELECT 'ann' FROM users",
    # Values, totals of none, and what is taken back.
    "SELECT disc, count(*) AS c FROM orders GROUP BY disc",
    "SELECT max(disc) AS a, min(disc) AS b, sum(price) AS c, avg(price) AS d, corr(qty, id) AS e, median(qty) AS f FROM orders",
    "SELECT count(*) AS a, sum(qty) AS b, max(who) AS c, collect_list(id) AS d, median(qty) AS e FROM orders WHERE id > 9",
    "SELECT c, count(*) AS n FROM (SELECT who, count(*) AS c FROM orders GROUP BY who) GROUP BY c",
    "SELECT grouping_id() AS g, who, kind, count(*) AS c FROM orders GROUP BY CUBE (who, kind)",
    "SELECT id, rank() OVER (ORDER BY disc) AS a, sum(qty) OVER (PARTITION BY who ORDER BY id) AS b FROM orders",
    "SELECT id, median(qty) OVER (PARTITION BY kind) AS a, corr(qty, id) OVER (ORDER BY id) AS b FROM orders",
    "SELECT id, regr_slope(qty, id) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS a FROM orders",
    "SELECT id, collect_list(who) OVER (ORDER BY qty DESC RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a FROM orders WHERE id < 5",
    "SELECT id, percentile(qty, 0.25) FILTER (WHERE id > 1) OVER (ORDER BY id ROWS 2 PRECEDING) AS a FROM orders",
    "SELECT id, percentile_disc(0.5) WITHIN GROUP (ORDER BY qty DESC) OVER (PARTITION BY kind) AS a FROM orders",
    "SELECT id, lag(kind) IGNORE NULLS OVER (ORDER BY id) AS a, lead(who, 2, kind) IGNORE NULLS OVER (ORDER BY id) AS b FROM orders",
    "SELECT id, first(qty) IGNORE NULLS OVER (PARTITION BY who ORDER BY id) AS a, last(qty, true) OVER (ORDER BY id) AS b FROM orders",
    "SELECT id, nth_value(who, 3) IGNORE NULLS OVER (ORDER BY id) AS a, lag(who, 0) IGNORE NULLS OVER (ORDER BY id) AS b FROM orders",
    """SELECT id, sum(qty) OVER (ORDER BY price RANGE BETWEEN 1.5 PRECEDING AND 2 FOLLOWING) AS a,
       count(*) OVER (ORDER BY price DESC RANGE BETWEEN 5.505 PRECEDING AND CURRENT ROW) AS b FROM orders""",
    """SELECT d, count(*) OVER (ORDER BY d RANGE BETWEEN INTERVAL '1' MONTH PRECEDING AND CURRENT ROW) AS a,
       sum(id) OVER (ORDER BY d DESC RANGE BETWEEN INTERVAL '12' MONTH PRECEDING AND INTERVAL '2' MONTH FOLLOWING) AS b,
       collect_list(id) OVER (ORDER BY d RANGE BETWEEN INTERVAL '1-1' YEAR TO MONTH PRECEDING AND CURRENT ROW) AS c
       FROM (SELECT id, date_add(add_months(DATE '2024-01-28', qty), CAST(id AS INT)) AS d FROM orders)""",
    """SELECT CAST(t AS STRING) AS s,
       count(*) OVER (ORDER BY t RANGE BETWEEN INTERVAL '1' MONTH PRECEDING AND INTERVAL '1' MONTH FOLLOWING) AS a,
       max(id) OVER (PARTITION BY id % 2 ORDER BY t DESC RANGE INTERVAL 3 MONTHS PRECEDING) AS b
       FROM (SELECT id, TIMESTAMP '2024-01-31 12:00:00' + id * INTERVAL '10' DAY AS t FROM orders)""",
    """SELECT id, approx_count_distinct(who) OVER (ORDER BY id) AS a, approx_count_distinct(kind) OVER (PARTITION BY who) AS b,
       approx_count_distinct(disc, 0.01) FILTER (WHERE id > 1) OVER (ORDER BY id ROWS 2 PRECEDING) AS c FROM orders""",
    "SELECT p, e, count(*) AS c FROM orders LATERAL VIEW posexplode(split(kind, 'e')) v AS p, e GROUP BY p, e",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def tables(spark: Any) -> None:
    for name, table in {**TABLES, "zeros": ZEROS, "tied": TIED}.items():
        rows = [tuple(dict(value) if isinstance(value, list) else value for value in row.values()) for row in table.to_pylist()]
        spark.createDataFrame(rows, TYPES[name]).createOrReplaceTempView(name)


def answer(spark: Any, text: str) -> list[tuple[Any, ...]]:
    """Batch Spark's rows, with structures as `asked` has them, sorted as there."""
    rows = [
        tuple(value.asDict(recursive=True) if hasattr(value, "asDict") else value for value in row) for row in spark.sql(text).collect()
    ]
    return sorted(rows, key=str)


@pytest.mark.parametrize("text", one_in(6, {**GIVEN, **LATERAL, **COLLATED}))
def test_what_is_held_by_hand_is_what_spark_gives(spark: Any, text: str) -> None:
    assert answer(spark, text) == {**GIVEN, **LATERAL, **COLLATED}[text]
    assert columns(text) == spark.sql(text).columns


@pytest.mark.parametrize("text", one_in(8, ONCE_WRONG))
def test_what_once_was_wrong_is_what_spark_gives(spark: Any, text: str) -> None:
    assert answer(spark, text) == ONCE_WRONG[text]


@pytest.mark.parametrize("text", one_in(8, MORE))
def test_it_gives_what_spark_gives(spark: Any, text: str) -> None:
    assert asked(text, "complete" if "LIMIT" in text else "changelog") == answer(spark, text)


@pytest.mark.parametrize("text", one_in(2, OF_ZEROS))
def test_zeros_have_the_signs_that_spark_gives_them(spark: Any, text: str) -> None:
    assert sorted(map(repr, answer(spark, text))) == OF_ZEROS[text]
