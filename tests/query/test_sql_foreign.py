"""SQL as other systems' documentation writes it: what means the same here runs, and a refusal says what is written instead."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow import testing
from evenflow.errors import EvenflowError

NOON = datetime(2026, 1, 1, 12)
BIDS = pa.table({
    "ts": pa.array([NOON + timedelta(seconds=s) for s in range(6)], pa.timestamp("us")),
    "item": ["a", "b", "a", "b", "a", "c"], "price": pa.array([3, 9, 5, 2, 1, 7], pa.int64()),
    "tags": pa.array([["x", "y"], [], ["z"], None, ["x"], ["y"]], pa.list_(pa.string())),
})  # fmt: skip


def lowered(text: str, mode: Any = "append") -> ef.Stream:
    bid = ef.Dataflow("q").source(testing.source(BIDS.schema), name="bid").with_watermark("ts", "1 second")
    return ef.sql(text, {"bid": bid}, output_mode=mode)


def run(text: str, mode: Any = "append") -> list[dict[str, Any]]:
    stream = lowered(text, mode)
    stream.to(ef.sinks.memory("out"), name="out")
    rows: list[dict[str, Any]] = testing.run(stream.flow, {"bid": BIDS}).table("out").to_pylist()
    return rows


def test_distinct_on_is_the_first_row_of_each() -> None:
    """It was read as DISTINCT of whole rows."""
    text = "SELECT DISTINCT ON (item) item, price FROM bid ORDER BY item, price DESC"
    whole = run(text, "complete")
    assert [(row["item"], row["price"]) for row in whole[-3:]] == [("a", 5), ("b", 9), ("c", 7)]
    assert {(row["item"], row["price"]) for row in run(text)} >= {("a", 5), ("b", 9), ("c", 7)}
    first = run("SELECT DISTINCT ON (item) item, price FROM bid ORDER BY item, ts")
    assert sorted((row["item"], row["price"]) for row in first) == [("a", 3), ("b", 9), ("c", 7)]


@pytest.mark.parametrize(
    ("vectors", "total", "mean"),
    [
        ([[1.5, 2], None, [1e8, -3], [1, 0.1]], [1e8, -0.8999999761581421], [33333332.0, -0.29999998211860657]),
        ([[1, None], [1, 2]], [1.0, 2.0], [1.0, 2.0]),
        ([[3e38], [3e38], [0.1], [0.2], [0.3]], [float("inf")], [1.2000000427639215e38]),
        ([[16777216], [1], [1]], [16777216.0], [5592405.5]),
        ([[], []], [], []),
        ([None, [None]], None, None),
    ],
)  # fmt: skip
def test_vectors_are_added_and_averaged_as_spark_does(vectors: list[Any], total: Any, mean: Any) -> None:
    """What Spark 4.3 gives for them, digit by digit."""
    table = pa.table({"v": pa.array(vectors, pa.list_(pa.float32()))})
    source = ef.Dataflow("v").source(testing.source(table.schema), name="t")
    stream = ef.sql("SELECT vector_sum(v) AS s, vector_avg(v) AS a FROM t", {"t": source}, output_mode="complete")
    stream.to(ef.sinks.memory("out"), name="out")
    assert testing.run(stream.flow, {"t": table}).table("out").to_pylist()[-1] == {"s": total, "a": mean}


def test_vectors_of_other_types_are_refused() -> None:
    with pytest.raises(EvenflowError, match=r"vector_sum needs an array of floats, not array<bigint>; cast it to array<float>"):
        lowered("SELECT vector_sum(array(price)) AS s FROM bid")


@pytest.mark.parametrize(
    "of", ["CROSS JOIN UNNEST(tags) AS t (tag)", ", LATERAL explode(tags) AS t(tag)", ", LATERAL TABLE(explode(tags)) AS t(tag)"]
)
def test_rows_of_arrays_stand_among_the_joins(of: str) -> None:
    found = [(row["item"], row["tag"]) for row in run(f"SELECT item, tag FROM bid {of} WHERE price > 1 AND t.tag <> 'y'")]
    assert sorted(found) == [("a", "x"), ("a", "z")]
    outer = of.replace("CROSS", "LEFT").replace(", LATERAL", "LEFT JOIN LATERAL") + " ON TRUE"
    assert [row["tag"] for row in run(f"SELECT tag FROM bid {outer} WHERE item = 'b'")] == [None, None]


GROUPS = "SELECT window.start AS b, window.end AS e, item, sum(price) AS s FROM bid GROUP BY {}, item"
BOUNDS = "SELECT window_start AS b, window_end AS e, item, sum(price) AS s FROM {} GROUP BY window_start, window_end, item"
CALLS = "SELECT {0}_START{1} AS b, {0}_END{1} AS e, item, sum(price) AS s FROM bid GROUP BY item, {0}{1}"


@pytest.mark.parametrize(
    ("text", "window"),
    [
        (BOUNDS.format("TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECONDS))"), "window(ts, '2 seconds')"),
        (BOUNDS.format("TUMBLE(bid, ts, INTERVAL '2 SECONDS') x").replace("window_start,", "x.window_start,"), "window(ts, '2 seconds')"),
        (BOUNDS.format("TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '4' SECONDS, INTERVAL '1' SECOND))"),
         "window(ts, '4 seconds', '4 seconds', '1 second')"),
        (BOUNDS.format("HOP(bid, ts, INTERVAL '2' SECONDS, INTERVAL '4' SECONDS)"), "window(ts, '4 seconds', '2 seconds')"),
        (CALLS.format("TUMBLE", "(ts, INTERVAL '2' SECONDS)"), "window(ts, '2 seconds')"),
        (CALLS.format("HOP", "(ts, INTERVAL '2' SECONDS, INTERVAL '4' SECONDS)"), "window(ts, '4 seconds', '2 seconds')"),
    ],
)  # fmt: skip
def test_windows_of_tables_are_windows_that_come_once(text: str, window: str) -> None:
    """As Flink and RisingWave write them."""
    stream = lowered(text)
    assert any(box.params.get("window") is not None for box in stream.flow.network.boxes), "it is no running aggregate"
    key = lambda row: (row["b"], row["item"])  # noqa: E731
    assert sorted(run(text), key=key) == sorted(run(GROUPS.format(window)), key=key)


def test_rows_have_the_bounds_of_their_windows() -> None:
    rows = run(
        "SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '4' SECONDS)) WHERE window_end > TIMESTAMP '2026-01-01 12:00:04'"
    )
    assert [(row["item"], row["window_start"]) for row in rows] == [(item, NOON + timedelta(seconds=4)) for item in "ac"]
    both = run("SELECT l.item, r.price FROM TUMBLE(bid, ts, INTERVAL '2' SECONDS) l JOIN TUMBLE(bid, ts, INTERVAL '2' SECONDS) r "
               "ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.price < r.price")  # fmt: skip
    assert sorted((row["item"], row["price"]) for row in both) == [("a", 7), ("a", 9), ("b", 5)]


def test_the_best_rows_of_windows_of_tables() -> None:
    inner = BOUNDS.format("TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '4' SECONDS))").replace(" AS b", "").replace(" AS e", "")
    places = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY s DESC) AS place FROM ({inner})"
    assert [(row["item"], row["s"]) for row in run(f"SELECT * FROM ({places}) WHERE place <= 1")] == [("b", 11), ("c", 7)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts)))", r"column 15: .*TUMBLE.*; write GROUP"),
        ("SELECT * FROM TABLE(TUMBLE(DATA => TABLE bid, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' MINUTE))", "write GROUP BY window"),
        ("SELECT * FROM HOP(bid, ts, INTERVAL '1 MINUTE')", r"HOP.* is no stream; write GROUP BY window"),
        ("SELECT * FROM TABLE(CUMULATE(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' MINUTE, INTERVAL '1' HOUR))", "windows of its step"),
        ("SELECT * FROM TABLE(SESSION(TABLE bid PARTITION BY item, DESCRIPTOR(ts), INTERVAL '2' MINUTES))", "write GROUP BY session"),
        ("SELECT item, sum(price) AS s FROM bid GROUP BY TUMBLE(ts), item", "'tumble'; write GROUP BY window"),
        ("SELECT TUMBLE_START(ts, INTERVAL '1' HOUR) AS b FROM bid GROUP BY TUMBLE(ts, INTERVAL '1' DAY)", "no function .*TUMBLE_START"),
        ("SELECT item, count(*) AS c FROM bid GROUP BY item EMIT ON WINDOW CLOSE", "near 'EMIT'; what is put out when is output_mode="),
        ("SELECT item, COUNT(*) AS c FROM bid WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY item EMIT CHANGES", "write GROUP BY window"),
        ("SELECT first_value(ts) OVER (ORDER BY ts SESSION WITH GAP INTERVAL '5 minutes') AS s FROM bid", "write GROUP BY session"),
        ("SELECT count(*) AS c FROM bid WATERMARK ts DELAY OF INTERVAL 10 SECONDS", "give the stream a watermark before"),
        ("SELECT PROCTIME() AS p FROM bid", "no function 'proctime'; it gives something else each time"),
        ("SELECT item FROM bid WHERE mz_now() <= ts + INTERVAL '5 min'", "no function 'mz_now'; it gives something else each time"),
        ("SELECT JSON_VALUE(item, '$.a') AS j FROM bid", "write get_json_object"),
        ("SELECT date_bin(INTERVAL '1 minute', ts, TIMESTAMP '2000-01-01') AS b FROM bid", "write time_bucket"),
        ("SELECT FLOOR(ts TO HOUR) AS h FROM bid", "write date_trunc"),
        ("CREATE MATERIALIZED VIEW v AS SELECT item FROM bid", "write CREATE TEMPORARY VIEW"),
        ("SELECT * FROM bid, LATERAL (SELECT item AS i FROM bid LIMIT 3)", "say ORDER BY"),
        ("SELECT DISTINCT ON (item) item, price FROM bid", r"DISTINCT ON \(item\) is the first row of each: say which"),
        ("SELECT DISTINCT ON (item) item, price FROM bid ORDER BY price, item", "say which is first, ORDER BY item, time DESC"),
    ],
)  # fmt: skip
def test_refusals_say_what_is_written_instead(text: str, says: str) -> None:
    with pytest.raises(EvenflowError, match=says):
        lowered(text)
