"""Joins give what the same join gives in batch Spark SQL, however the run is cut up."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in
from tests.oracle.running import CUTS, Cut, assert_same_rows

pytestmark = [pytest.mark.oracle, pytest.mark.one_in(2)]

NEAR = "r.seen between l.ts - interval 2 seconds and l.ts + interval 5 seconds"
HOWS = {"inner": "INNER", "left": "LEFT OUTER", "right": "RIGHT OUTER", "full": "FULL OUTER", "semi": "LEFT SEMI", "anti": "LEFT ANTI"}


def table(seed: int, time: str, value: str, count: int = 1500) -> pa.Table:
    """Rows in order of time but for a second, with nulls in the keys and NaN, -0.0 and nulls in the values."""
    rng = random.Random(seed)
    times = sorted(rng.randrange(200_000_000) for _ in range(count))
    shaken = [max(0, t - rng.randrange(1_000_000)) for t in times]
    numbers = [rng.choice([None, float("nan"), 0.0, -0.0, rng.gauss(0, 1)]) for _ in range(count)]
    return pa.table(
        {
            time: pa.array(shaken, pa.timestamp("us")),
            "k": pa.array([rng.choice([None, *range(8)]) for _ in range(count)], pa.int64()),
            "s": [rng.choice([None, "", "é", "long enough to be no word"]) for _ in range(count)],
            value: pa.array(numbers, pa.float64()),
        }
    )


LEFT, RIGHT = table(1, "ts", "x"), table(2, "seen", "y")
NAMES = pa.table({"k": pa.array([1, 2, 2, None], pa.int64()), "name": ["one", "two", "zwei", "none"]})


def run(draw: Any, cut: Cut) -> pa.Table:
    """The rows of sink `out` of draw(left, right)."""
    flow = ef.Dataflow("joins")
    sides = []
    for name, given, time in (("left", LEFT, "ts"), ("right", RIGHT, "seen")):
        parts = [given.take(list(range(i, given.num_rows, cut.inputs))).combine_chunks().to_batches() for i in range(cut.inputs)]
        sides.append(flow.source(ef.sources.memory(parts), name=name).with_watermark(time, "5 seconds"))
    draw(*sides).to(ef.sinks.memory("out"), name="out")
    sides[1].to(ef.sinks.discard())
    options = FlowOptions(epoch_rows=cut.epoch_rows // 10, linger_ms=1)
    planned = layout(flow.network, sites=cut.sites, partitions=cut.partitions)
    world = SimWorld(planned, sites=cut.sites, seed=cut.seed, options=options, read_rows=cut.epoch_rows // 10)
    world.run_until_quiet()
    return world.output("out")


@pytest.fixture(scope="module")
def views(spark: Any) -> Any:
    for name, given in (("l", LEFT), ("r", RIGHT), ("n", NAMES)):
        columns = ", ".join(
            f"{f.name} {'timestamp' if pa.types.is_timestamp(f.type) else {'int64': 'bigint'}.get(str(f.type), str(f.type))}"
            for f in given.schema
        )
        rows = [tuple(row.values()) for row in given.to_pylist()]
        spark.createDataFrame(rows, columns).createOrReplaceTempView(name)
    return spark


@pytest.mark.parametrize("cut", CUTS[1:], ids=str)
@pytest.mark.parametrize("how", one_in(2, HOWS))
def test_two_streams(views: Any, how: str, cut: Cut) -> None:
    """By a bigint and a string, with a condition on the rest."""
    got = run(
        lambda left, right: left.join(right, how=how, condition=f"l.k = r.k and l.s = r.s and {NEAR} and coalesce(x, 0) >= y", suffix="_r"),
        cut,
    )
    columns = "l.*" if how in ("semi", "anti") else "l.*, r.seen, r.k k_r, r.s s_r, r.y"
    sql = f"SELECT {columns} FROM l {HOWS[how]} JOIN r ON l.k = r.k AND l.s = r.s AND {NEAR} AND coalesce(x, 0) >= y"
    assert_same_rows(got, views.sql(sql))


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_keys_that_come_out_once(views: Any, how: str) -> None:
    got = run(lambda left, right: left.drop("s").join(right.drop("s"), ["k"], how, within="3 seconds"), CUTS[2])
    near = "l.ts BETWEEN r.seen - interval 3 seconds AND r.seen + interval 3 seconds"
    key = {"right": "r.k", "full": "coalesce(l.k, r.k) k"}.get(how, "l.k")
    assert_same_rows(got, views.sql(f"SELECT {key}, ts, x, seen, y FROM l {HOWS[how]} JOIN r ON l.k = r.k AND {near}"))


def test_a_double_is_a_key_as_in_spark(views: Any) -> None:
    """NaN equals NaN and -0.0 equals 0.0."""
    got = run(lambda left, right: left.select("ts", "x").join(right.select("seen", "y"), condition=f"l.x = r.y and {NEAR}"), CUTS[1])
    assert_same_rows(got, views.sql(f"SELECT ts, x, seen, y FROM l JOIN r ON l.x = r.y AND {NEAR}"))


@pytest.mark.parametrize("cut", CUTS[1:], ids=str)
def test_windows_of_both_sides_and_windows_of_the_joined(views: Any, cut: Cut) -> None:
    def counts(left: ef.Stream, right: ef.Stream) -> ef.Stream:
        joined = left.where("k > 1").join(right.drop("s"), "k", "left", f"{NEAR} and x < y")
        mine = joined.group_by("k").window("10 seconds").agg(pairs="count(y)")
        return mine.join(right.group_by("k").window("10 seconds").agg(rows="count(*)"), ["k", "window_start", "window_end"], "inner")

    per = "window(ts, '10 seconds')"
    sql = f"""
        WITH j AS (SELECT l.k, ts, y FROM l LEFT JOIN r ON l.k = r.k AND {NEAR} AND x < y WHERE l.k > 1),
             a AS (SELECT k, {per}.start window_start, {per}.end window_end, count(y) pairs FROM j GROUP BY k, {per}),
             b AS (SELECT k, window(seen, '10 seconds').start window_start, window(seen, '10 seconds').end window_end, count(*) rows
                   FROM r GROUP BY k, window(seen, '10 seconds'))
        SELECT k, window_start, window_end, pairs, rows FROM a JOIN b USING (k, window_start, window_end)"""
    assert_same_rows(run(counts, cut), views.sql(sql))


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_a_dataframe_of_spark_as_the_table(views: Any, how: str) -> None:
    got = run(lambda left, right: left.join(views.table("n"), "k", how), CUTS[1])
    assert_same_rows(got, views.sql(f"SELECT * FROM l {HOWS[how]} JOIN n USING (k)"))
