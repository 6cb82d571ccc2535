"""Joins of results that change, and queries inside conditions, leave what batch Spark gives for the same text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld
from tests.oracle.running import Answer, assert_same_rows, left

pytestmark = pytest.mark.oracle

RANDOM = np.random.default_rng(11)
COUNT = 240


def some(most: int, nulls: float = 0.0, count: int = COUNT) -> pa.Array:
    return pa.array(RANDOM.integers(0, most, count), pa.int64(), mask=RANDOM.random(count) < nulls)


TABLES = {
    "orders": pa.table({"id": pa.array(range(COUNT), pa.int64()), "who": some(30, 0.05), "price": some(1000), "kind": some(4)}),
    "items": pa.table({"of": some(2 * COUNT, 0.05, 500), "part": some(12, 0.0, 500), "n": some(9, 0.1, 500)}),
    "people": pa.table({"id": pa.array(range(40), pa.int64()), "town": some(5, 0.2, 40)}),
}
FLOW_OPTIONS = FlowOptions(epoch_rows=53, linger_ms=1)

JOINS = {
    "an outer join without bounds": "SELECT p.id AS id, o.id AS o, o.price FROM people AS p LEFT JOIN orders AS o ON p.id = o.who",
    "both sides may be missing, with a condition": """
        SELECT o.id AS o, i.part, i.n FROM orders AS o FULL JOIN items AS i ON o.id = i.of AND o.kind * 2 >= i.n""",
    "a right join, whose columns are expressions": """
        SELECT o.price, i.part FROM orders AS o RIGHT JOIN items AS i ON o.id + 1 = i.of""",
    "an aggregate with an aggregate": """
        SELECT a.who, a.total, b.parts FROM (SELECT who, sum(price) AS total FROM orders GROUP BY who) AS a
        JOIN (SELECT o.who, count(*) AS parts FROM orders AS o JOIN items AS i ON o.id = i.of GROUP BY o.who) AS b ON a.who = b.who
        WHERE a.total > 1000""",
    "rows with an aggregate of their key": """
        SELECT o.id, o.price FROM orders AS o JOIN (SELECT who, avg(price) AS mean FROM orders GROUP BY who) AS m ON o.who = m.who
        WHERE o.price > 1.2 * m.mean""",
    "how many have how many": """
        SELECT c, count(*) AS people FROM (SELECT p.id, count(o.id) AS c FROM people AS p LEFT JOIN orders AS o ON p.id = o.who AND
        o.kind <> 2 GROUP BY p.id) GROUP BY c""",
    "those of a group that changes": """
        SELECT o.id FROM orders AS o LEFT SEMI JOIN (SELECT of FROM items GROUP BY of HAVING sum(n) > 4) AS i ON o.id = i.of""",
    "those of no group": """
        SELECT o.id, o.kind FROM orders AS o LEFT ANTI JOIN (SELECT of FROM items GROUP BY of HAVING sum(n) > 4) AS i ON o.id = i.of""",
    "nulls that equal each other": """
        SELECT a.who, a.c, b.town FROM (SELECT who, count(*) AS c FROM orders GROUP BY who) AS a
        LEFT JOIN (SELECT id, town FROM people WHERE town = 1) AS b ON a.who <=> b.town""",
    "a total beside each group": """
        SELECT g.kind, g.c, t.c AS whole FROM (SELECT kind, count(*) AS c FROM orders GROUP BY kind) AS g CROSS JOIN
        (SELECT count(*) AS c FROM orders) AS t""",
    "by a range": """
        SELECT p.id, g.kind FROM people AS p JOIN (SELECT kind, count(*) AS c FROM orders GROUP BY kind) AS g ON p.id * 8 < g.c""",
    "rows that occur more than once": """
        SELECT a.kind, b.part FROM (SELECT kind FROM orders WHERE price < 300) AS a LEFT JOIN
        (SELECT part, count(*) AS c FROM items GROUP BY part) AS b ON a.kind = b.part""",
}  # fmt: skip


def run(sql: str, sites: int, mode: Any = "changelog") -> pa.Table:
    flow = ef.Dataflow("q")
    read = {
        name: flow.source(ef.sources.memory([table.slice(i, 60).to_batches() for i in range(0, table.num_rows, 60)]), name=name)
        for name, table in TABLES.items() if f" {name} " in sql.replace("\n", " ").replace(")", " ") + " "
    }  # fmt: skip
    ef.sql(sql, read, output_mode=mode).to(ef.sinks.memory("out"), name="out")
    assert ef.Dataflow.from_json(flow.to_json()).to_json() == flow.to_json()
    planned = layout(flow.network, sites=sites, partitions=4)
    world = SimWorld(planned, sites=sites, replicas=min(sites, 2), options=FLOW_OPTIONS, read_rows=53)
    world.run_until_quiet()
    return world.output("out")


@pytest.fixture(scope="module", autouse=True)
def tables(spark: Any) -> None:
    for name, table in TABLES.items():
        schema = ", ".join(f"{column} bigint" for column in table.column_names)
        spark.createDataFrame([tuple(row.values()) for row in table.to_pylist()], schema).createOrReplaceTempView(name)


def check(spark: Any, texts: dict[str, str]) -> None:
    for number, (name, sql) in enumerate(texts.items()):
        expected = Answer.of(spark.sql(sql))
        assert expected.rows, f"{name}: a query without rows proves nothing"
        found = run(sql, sites=1 + number % 3)
        assert_same_rows(left(found), expected)


def test_joins_of_what_changes(spark: Any) -> None:
    check(spark, JOINS)


def test_the_whole_result_of_a_join_in_its_order(spark: Any) -> None:
    sql = """SELECT p.town, sum(c) AS orders, count(*) AS people FROM (SELECT who, count(*) AS c FROM orders GROUP BY who) AS a
             RIGHT JOIN people AS p ON a.who = p.id GROUP BY p.town ORDER BY orders DESC, town LIMIT 3"""
    found = run(sql, 2, "complete").to_pylist()[-3:]
    assert [tuple(row.values()) for row in found] == [tuple(row) for row in spark.sql(sql).collect()]


QUERIES = {
    "more than the mean": "SELECT o.id, o.price FROM orders AS o WHERE o.price > (SELECT avg(price) FROM orders)",
    "more than the mean of its own": """
        SELECT id, price FROM orders AS o WHERE price > 1.5 * (SELECT avg(price) FROM orders AS i WHERE i.who = o.who)""",
    "a count of none is 0": "SELECT p.id, p.town FROM people AS p WHERE (SELECT count(*) FROM orders WHERE who = p.id AND kind = 1) = 0",
    "a value beside the row": """
        SELECT p.id, (SELECT count(price) + 1 FROM orders AS o WHERE o.who = p.id) AS c,
        (SELECT sum(n) FROM items ) AS s FROM people AS p""",
    "a group more than a share of all": """
        SELECT who, sum(price) AS total FROM orders GROUP BY who HAVING sum(price) * 25 > (SELECT sum(price) FROM orders)""",
    "in groups": "SELECT o.id, o.kind FROM orders AS o WHERE o.id IN (SELECT of FROM items GROUP BY of HAVING sum(n) > 6)",
    "in a join": """
        SELECT p.id FROM people AS p WHERE p.id IN (SELECT o.who FROM orders AS o JOIN items AS i ON o.id = i.of WHERE i.part = 3)""",
    "there is another one": """
        SELECT o.id FROM orders AS o WHERE EXISTS (SELECT 1 FROM orders AS x JOIN items AS i ON x.id = i.of
        WHERE x.who = o.who AND x.id <> o.id AND i.n > 7)""",
    "there is none": """
        SELECT o.id FROM orders AS o WHERE o.kind = 2 AND NOT EXISTS (SELECT * FROM orders AS x
        WHERE x.who = o.who AND x.price > o.price)""",
    "not in, without a null": "SELECT p.id FROM people AS p WHERE p.town NOT IN (SELECT kind FROM orders WHERE price > 990)",
    "several in a query": """
        SELECT o.id FROM orders AS o WHERE (who, o.price) IN (SELECT who, max(price) FROM orders GROUP BY who)""",
    "a structure in a query": "SELECT id FROM orders AS o WHERE struct(who, kind + 1) IN (SELECT id, town FROM people WHERE town > 1)",
    "several not in a query, with nulls": """
        SELECT o.id, o.who, o.kind FROM orders AS o WHERE (o.who, o.kind) NOT IN (SELECT id, town FROM people WHERE id > 25)""",
    "several not in one about the row around": """
        SELECT o.id FROM orders AS o WHERE o.id < 90 AND (o.who, 1) NOT IN (SELECT i.part, i.n % 2 FROM items AS i WHERE i.of = o.id)""",
    "in a list of a query, twice": """
        SELECT p.id FROM people AS p WHERE p.id IN (SELECT who FROM orders WHERE kind = 1) AND
        p.id NOT IN (SELECT who FROM orders WHERE kind = 2 AND who IS NOT NULL)""",
    "with a name": """
        WITH busy AS (SELECT who, count(*) AS c FROM orders GROUP BY who) SELECT b.who FROM busy AS b
        WHERE b.c * 30 > (SELECT sum(c) FROM busy ) AND b.who NOT IN (SELECT town FROM people WHERE town IS NOT NULL)""",
}  # fmt: skip

QUALIFIED = {
    "beside what they are over": """
        SELECT kind, who % 3 AS third, count(*) AS c, rank() OVER (PARTITION BY who % 3 ORDER BY sum(price) DESC) AS place,
        100 * sum(price) / sum(sum(price)) OVER (PARTITION BY kind) AS share
        FROM orders GROUP BY 1, third HAVING count(*) > 2 AND sum(price) > (SELECT max(price) FROM orders)""",
    "beside sets of keys": """
        SELECT kind, who % 2 AS odd, sum(price) AS s, rank() OVER (PARTITION BY grouping(kind) ORDER BY sum(price), who % 2) AS r
        FROM orders WHERE who IS NOT NULL GROUP BY GROUPING SETS ((kind, who % 2), (who % 2))""",
    "groups above the mean of all": """
        SELECT who, sum(price) AS s FROM orders GROUP BY who QUALIFY s > 1.5 * avg(s) OVER ()""",
    "over groups by all": """
        SELECT kind, who % 3 AS third, count(*) AS c, 7 AS seven, sum(price) / sum(sum(price)) OVER (PARTITION BY kind) AS share,
        rank() OVER (ORDER BY kind) + count(*) AS place FROM orders GROUP BY ALL HAVING c > 15""",
    "over one group": "SELECT sum(price) AS s, count(*) OVER () AS c, sum(sum(price)) OVER () AS t FROM orders GROUP BY ALL",
    "places": "SELECT id, who FROM orders QUALIFY rank() OVER (PARTITION BY who ORDER BY price DESC) = 2",
    "names of the list, distinct afterwards": """
        SELECT DISTINCT kind + 1 AS more, count(*) OVER (PARTITION BY kind) AS c FROM orders QUALIFY more > 2 AND c > 20""",
    "beside groups": """
        SELECT who, sum(price) AS total FROM orders GROUP BY who HAVING count(*) > 1
        QUALIFY row_number() OVER (ORDER BY total DESC, who) <= 5 AND who IN (SELECT id FROM people WHERE town > 0)""",
    "a name for what is over, and columns of nobody": """
        SELECT o.* EXCEPT (price) FROM orders AS o JOIN people AS p ON o.who = p.id
        QUALIFY sum(o.price) OVER w > 2000 AND lead(o.id) OVER w IS NOT NULL AND p.town < 3
        WINDOW w AS (PARTITION BY p.town ORDER BY o.id)""",
}  # fmt: skip

SETS = {
    "each once": "SELECT kind AS k, who FROM orders WHERE price < 300 UNION SELECT town, id FROM people",
    "each once, of groups": """
        SELECT who, count(*) AS c FROM orders GROUP BY who UNION SELECT id, CAST(town AS BIGINT) FROM people""",
    "groups and rows": "SELECT who, count(*) AS c FROM orders GROUP BY who UNION ALL SELECT id, town FROM people",
    "in both": "SELECT kind, part FROM orders AS o JOIN items AS i ON o.id = i.of INTERSECT SELECT town, id FROM people",
    "in both, of nulls": "SELECT who FROM orders INTERSECT SELECT town FROM people",
    "in one only": "SELECT who, kind FROM orders EXCEPT SELECT id, town FROM people",
    "in no group": "SELECT id FROM people EXCEPT SELECT who FROM orders GROUP BY who HAVING count(*) > 7",
    "numbers of groups": "SELECT DISTINCT c % 3 AS c FROM (SELECT who, count(*) AS c FROM orders GROUP BY who)",
    "by what both have": """
        SELECT id, price, town FROM orders NATURAL JOIN people""",
    "by what both have, and alone": """
        SELECT id, price, town FROM orders NATURAL LEFT JOIN people""",
}

OVER = {
    "structures and decimals": """
        SELECT id, CAST(max(struct(price, id)) OVER (PARTITION BY kind ORDER BY id ROWS 3 PRECEDING) AS STRING) AS a,
        CAST(min(array(who, price)) OVER (PARTITION BY kind ORDER BY id) AS STRING) AS b,
        sum(CAST(price AS DECIMAL(30, 2))) OVER (PARTITION BY kind ORDER BY id) AS c,
        avg(CAST(price AS DECIMAL(30, 2))) OVER (PARTITION BY who) AS d FROM orders""",
    "frames by value": """
        SELECT who, price, kind, sum(price) OVER (PARTITION BY kind ORDER BY price RANGE BETWEEN 50 PRECEDING AND 20 FOLLOWING) AS a,
        count(who) OVER (ORDER BY who DESC RANGE BETWEEN 2 PRECEDING AND 1 PRECEDING) AS b,
        max(id) OVER (PARTITION BY kind ORDER BY who RANGE BETWEEN UNBOUNDED PRECEDING AND 3 PRECEDING) AS c,
        count(*) OVER (ORDER BY CAST(price AS DOUBLE) DESC RANGE BETWEEN CURRENT ROW AND 1.5 FOLLOWING) AS d FROM orders""",
    "frames by time": """
        SELECT id, sum(price) OVER (PARTITION BY kind ORDER BY timestamp_seconds(price) RANGE INTERVAL 2 MINUTES PRECEDING) AS a,
        count(*) OVER (ORDER BY date_add(DATE '2026-01-01', CAST(who AS INT))
          RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND INTERVAL 2 DAYS FOLLOWING) AS b FROM orders""",
    "shares of places, and nulls last": """
        SELECT id, ntile(7) OVER (PARTITION BY kind ORDER BY who DESC NULLS FIRST, id) AS a, percent_rank() OVER (ORDER BY who) AS b,
        cume_dist() OVER (PARTITION BY kind ORDER BY who NULLS LAST) AS c,
        nth_value(price, 3) OVER (PARTITION BY kind ORDER BY id ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS d FROM orders""",
    "some rows, nulls last": "SELECT id FROM orders WHERE price > 500 ORDER BY who NULLS LAST, id LIMIT 90",
    "deviations": """
        SELECT id, stddev(price) OVER (PARTITION BY kind ORDER BY id) AS a, var_pop(who) OVER (PARTITION BY kind) AS b,
        variance(price) OVER (PARTITION BY kind ORDER BY id ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING) AS c,
        stddev_pop(price) OVER (PARTITION BY kind ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS d,
        min_by(id, price * 10000 + id) OVER (PARTITION BY who ORDER BY id) AS e FROM orders""",
}  # fmt: skip


def test_functions_over_rows(spark: Any) -> None:
    check(spark, OVER)


def test_averages_of_whole_numbers_that_are_no_doubles(spark: Any) -> None:
    """To the last digit, which rows are compared without elsewhere."""
    sql = """SELECT who, avg(n) OVER (PARTITION BY kind ORDER BY who) AS a, avg(n) OVER (PARTITION BY kind) AS b,
        avg(n) OVER (PARTITION BY kind ORDER BY who ROWS 1 PRECEDING) AS c FROM (
        SELECT kind, who, CASE WHEN who = 0 THEN 9007199254740992 WHEN who = 1 THEN 1 WHEN who = 2 THEN 0 END AS n
        FROM orders WHERE who < 4 GROUP BY kind, who)"""
    wanted = sorted(map(tuple, spark.sql(sql).collect()), key=repr)
    assert 2.0**53 / 3 in {row[2] for row in wanted}
    assert sorted((tuple(row.values()) for row in left(run(sql, 2)).to_pylist()), key=repr) == wanted


@pytest.mark.conformance
def test_rows_of_some_places(spark: Any) -> None:
    check(spark, QUALIFIED)


@pytest.mark.conformance
def test_sets_of_rows(spark: Any) -> None:
    check(spark, SETS)


def test_queries_inside_conditions(spark: Any) -> None:
    check(spark, QUERIES)


def test_not_in_a_list_with_a_null_is_no_row(spark: Any) -> None:
    sql = "SELECT p.id FROM people AS p WHERE p.id NOT IN (SELECT who FROM orders )"
    assert spark.sql(sql).count() == 0
    changes = run(sql, 2)["_change"].to_pylist()
    assert changes.count("insert") == changes.count("delete")
