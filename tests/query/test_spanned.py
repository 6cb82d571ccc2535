"""Totals OVER a span of event time before each row, of rows that come once, are those of the rows in it."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow import testing
from evenflow.errors import QueryError
from evenflow.kernels.hash import hash_columns
from evenflow.operator.user.spanned import Spanned as Operator
from evenflow.query.planner import layout
from evenflow.query.ranked import Place
from evenflow.query.spanned import Spanned
from evenflow.site.options import FlowOptions
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in

NOON = datetime(2026, 1, 1, 12)
RANDOM = np.random.default_rng(5)
COUNT = 200
SECONDS = (np.arange(COUNT) // 2 * 2 + RANDOM.integers(0, 4, COUNT)).tolist()
KEYS = [None if key == 4 else f"k{key}" for key in RANDOM.integers(0, 5, COUNT)]
VALUES = [None if value == 0 else float(value) / 8 for value in RANDOM.integers(0, 40, COUNT)]
WORDS = [None if value is None else f"w{value % 3}" for value in VALUES]
TABLE = pa.table({
    "ts": pa.array([NOON + timedelta(seconds=s) for s in SECONDS], pa.timestamp("us")), "k": KEYS, "x": VALUES, "w": WORDS,
    "n": pa.array(range(COUNT), pa.int64()), "d": pa.array(range(COUNT), pa.int64()).cast(pa.decimal128(20, 0)),
})  # fmt: skip
OVER = "OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '9' SECONDS PRECEDING AND CURRENT ROW)"


def run(text: str, epoch_rows: int, table: pa.Table = TABLE) -> list[dict[str, Any]]:
    flow = ef.Dataflow("q")
    rows = flow.source(ef.sources.memory(table), name="t").with_watermark("ts", "5 seconds")
    ef.sql(text, {"t": rows}).to(ef.sinks.memory("out"), name="out")
    assert ef.Dataflow.from_json(flow.to_json()).to_json() == flow.to_json()
    options = FlowOptions(epoch_rows=epoch_rows, linger_ms=1)
    world = SimWorld(layout(flow.network, sites=2, partitions=4), sites=2, replicas=2, options=options, read_rows=epoch_rows)
    world.run_until_quiet()
    return list(world.output("out").to_pylist())


def within(at: int, before: int, until: int = 0) -> list[int]:
    """Rows of the same key whose time is from `before` to `until` seconds before that of one."""
    return [i for i in range(COUNT) if KEYS[i] == KEYS[at] and SECONDS[at] - before <= SECONDS[i] <= SECONDS[at] - until]


@pytest.mark.parametrize("epoch_rows", one_in(2, [7, 1000]))
def test_totals_of_the_last_seconds(epoch_rows: int) -> None:
    text = f"""SELECT n, k, sum(x) {OVER} AS s, count(x) {OVER} + 1 AS c, max(w) {OVER} AS m, sum(d) {OVER} AS d,
        count(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 20 SECONDS PRECEDING AND INTERVAL 3 SECONDS PRECEDING) AS b,
        avg(n) OVER (PARTITION BY k ORDER BY ts RANGE INTERVAL 1 SECOND PRECEDING) AS a FROM t"""
    found = {row["n"]: row for row in run(text, epoch_rows)}
    assert len(found) == COUNT
    for at, row in found.items():
        rows, near = within(at, 9), within(at, 1)
        given = [VALUES[i] for i in rows if VALUES[i] is not None]
        assert row["s"] == (sum(v for v in given if v is not None) if given else None)
        assert row["c"] == len(given) + 1
        assert row["m"] == max((WORDS[i] or "" for i in rows), default="") or (row["m"] is None and not given)
        assert row["d"] == sum(rows)
        assert row["b"] == len(within(at, 20, 3))
        assert row["a"] == pytest.approx(sum(near) / len(near))


@pytest.mark.parametrize("epoch_rows", one_in(2, [7, 1000]))
def test_totals_of_the_next_seconds_wait_for_them(epoch_rows: int) -> None:
    def ahead(frame: str) -> str:
        return f"OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN {frame})"

    text = f"""SELECT n, k, x, w, d, ts, sum(d) {ahead("INTERVAL '3' SECONDS PRECEDING AND INTERVAL '9' SECONDS FOLLOWING")} AS s,
        count(*) {ahead("CURRENT ROW AND INTERVAL '4' SECONDS FOLLOWING")} AS c, max(w) {
        ahead("INTERVAL '1' SECOND FOLLOWING AND INTERVAL '6' SECONDS FOLLOWING")
    } AS m, count(x) {ahead("INTERVAL '9' SECONDS PRECEDING AND CURRENT ROW")} AS p FROM t"""
    out = run(text, epoch_rows)
    found = {row["n"]: row for row in out}
    assert len(out) == len(found) == COUNT
    for at, row in found.items():
        assert (row["k"], row["x"], row["w"], int(row["d"])) == (KEYS[at], VALUES[at], WORDS[at], at)
        assert row["ts"] == NOON + timedelta(seconds=SECONDS[at])
        assert row["s"] == sum(within(at, 3, -9))
        assert row["c"] == len(within(at, 0, -4))
        assert row["m"] == max((WORDS[i] for i in within(at, -1, -6) if WORDS[i] is not None), default=None)
        assert row["p"] == sum(VALUES[i] is not None for i in within(at, 9))


def test_windows_go_on_behind_rows_that_waited() -> None:
    over = "OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '9' SECONDS FOLLOWING)"
    inner = f"SELECT ts, count(*) {over} AS c FROM t"
    text = f"SELECT window.start AS s, max(c) AS m, count(*) AS n FROM ({inner}) GROUP BY window(ts, '20 seconds')"
    wanted: dict[datetime, tuple[int, int]] = {}
    for at, second in enumerate(SECONDS):
        start = NOON + timedelta(seconds=second // 20 * 20)
        most, count = wanted.get(start, (0, 0))
        wanted[start] = max(most, len(within(at, 0, -9))), count + 1
    for epoch_rows in (5, 60):
        assert {row["s"]: (row["m"], row["n"]) for row in run(text, epoch_rows)} == wanted


def test_windows_go_on_behind_it() -> None:
    text = f"SELECT window.start AS s, max(c) AS m FROM (SELECT ts, count(*) {OVER} AS c FROM t) GROUP BY window(ts, '20 seconds')"
    most: dict[datetime, int] = {}
    for at, second in enumerate(SECONDS):
        start = NOON + timedelta(seconds=second // 20 * 20)
        most[start] = max(most.get(start, 0), len(within(at, 9)))
    assert {row["s"]: row["m"] for row in run(text, 11)} == most


def test_rows_without_a_time_are_among_themselves() -> None:
    table = pa.table({"ts": pa.array([None, None, NOON, NOON], pa.timestamp("us")), "k": ["a"] * 4, "n": [1, 2, 3, 4]})
    for over in (OVER, OVER.replace("CURRENT ROW", "INTERVAL '5' SECONDS FOLLOWING")):
        found = run(f"SELECT n, count(*) {over} AS c FROM t", 10, table)
        assert sorted((row["n"], row["c"]) for row in found) == [(1, 2), (2, 2), (3, 2), (4, 2)]


def in_order(at: int) -> list[int]:
    """Rows of the same key as one, by time and number."""
    return sorted((i for i in range(COUNT) if KEYS[i] == KEYS[at]), key=lambda i: (SECONDS[i], i))


def around(at: int, low: int, high: int) -> list[int]:
    """Rows of the same key from so many rows behind one to so many."""
    rows = in_order(at)
    place = rows.index(at)
    return rows[max(0, place + low) : max(0, place + high + 1)]


BY_ROWS = "OVER (PARTITION BY k ORDER BY ts, n"


def each_once(text: str, epoch_rows: int) -> dict[int, dict[str, Any]]:
    """What comes out of each row, by its number."""
    out = run(text, epoch_rows)
    found = {row["n"]: row for row in out}
    assert len(out) == len(found) == COUNT
    return found


@pytest.mark.parametrize("epoch_rows", one_in(2, [7, 1000]))
def test_rows_that_follow_by_number_are_waited_for(epoch_rows: int) -> None:
    text = f"""SELECT n, ts, lead(n) {BY_ROWS}) AS a, lead(w, 3, concat('none ', n)) {BY_ROWS}) AS b, lag(x, 2) {BY_ROWS}) AS c,
        sum(d) {BY_ROWS} ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING) AS d, max(x) {BY_ROWS} ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING) AS e,
        count(*) {BY_ROWS} ROWS BETWEEN 4 PRECEDING AND 2 PRECEDING) AS f, avg(n) {BY_ROWS} ROWS 1 PRECEDING) AS g FROM t"""
    for at, row in each_once(text, epoch_rows).items():
        rows = in_order(at)
        place = rows.index(at)
        ahead = rows[place + 3 :]
        assert row["ts"] == NOON + timedelta(seconds=SECONDS[at])
        assert row["a"] == next(iter(rows[place + 1 :]), None)
        assert row["b"] == (WORDS[ahead[0]] if ahead else f"none {at}")
        assert row["c"] == (VALUES[rows[place - 2]] if place >= 2 else None)
        assert row["d"] == sum(around(at, -3, 2))
        assert row["e"] == max((VALUES[i] for i in around(at, 1, 3) if VALUES[i] is not None), default=None)
        assert row["f"] == len(around(at, -4, -2))
        assert row["g"] == pytest.approx(np.mean(around(at, -1, 0)))


def test_frames_by_rows_and_by_time_stand_in_one_query() -> None:
    span = "OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '4' SECONDS PRECEDING AND INTERVAL '3' SECONDS FOLLOWING)"
    text = f"""SELECT n, count(*) {span} AS a, lead(ts, 2) OVER (PARTITION BY k ORDER BY ts) AS b,
        count(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND CURRENT ROW) AS c,
        count(*) OVER (PARTITION BY n % 3 ORDER BY ts ROWS BETWEEN 5 PRECEDING AND CURRENT ROW) AS d FROM t"""
    found = {row["n"]: row for row in run(text, 13)}
    assert len(found) == COUNT
    for at, row in found.items():
        later = sorted(SECONDS[i] for i in in_order(at))
        assert row["a"] == len(within(at, 4, -3))
        assert row["c"] == len(within(at, 0))
        ahead = [*later[2:], None, None]
        assert row["b"] in [
            None if after is None else NOON + timedelta(seconds=after)
            for own, after in zip(later, ahead, strict=True) if own == SECONDS[at]
        ]  # fmt: skip
        before = [i for i in range(COUNT) if i % 3 == at % 3 and SECONDS[i] < SECONDS[at]]
        assert min(6, len(before) + 1) <= row["d"] <= 6


@pytest.mark.parametrize("epoch_rows", one_in(2, [7, 1000]))
def test_all_rows_so_far(epoch_rows: int) -> None:
    so_far, peers, last = (
        f"{BY_ROWS} ROWS UNBOUNDED PRECEDING)",
        "OVER (PARTITION BY k ORDER BY ts)",
        "ROWS BETWEEN UNBOUNDED PRECEDING AND",
    )
    text = f"""SELECT n, ts, sum(x) {so_far} AS a, count(*) {peers} AS b, avg(n) {peers} AS c, max(x) {BY_ROWS} {last} 2 PRECEDING) AS d,
        row_number() {BY_ROWS}) AS e, rank() {peers} AS f, dense_rank() {peers} AS g, first_value(n) {so_far} AS h,
        last_value(x) {so_far} AS i,
        count(x) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL '3' SECONDS PRECEDING) AS j,
        min(ts) {so_far} AS l, sum(n) {BY_ROWS} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS m FROM t"""
    for at, row in each_once(text, epoch_rows).items():
        rows = in_order(at)
        place = rows.index(at)
        upto, tied = rows[: place + 1], [i for i in rows if SECONDS[i] <= SECONDS[at]]
        values = [VALUES[i] for i in upto if VALUES[i] is not None]
        assert row["a"] == (sum(v for v in values if v is not None) if values else None)
        assert (row["b"], row["c"]) == (len(tied), pytest.approx(np.mean(tied)))
        assert row["d"] == max((VALUES[i] or 0.0 for i in rows[: max(0, place - 1)] if VALUES[i] is not None), default=None)
        assert (row["e"], row["f"]) == (place + 1, sum(SECONDS[i] < SECONDS[at] for i in rows) + 1)
        assert row["g"] == len({SECONDS[i] for i in tied})
        assert (row["h"], row["i"]) == (rows[0], VALUES[at])
        assert row["j"] == sum(VALUES[i] is not None for i in within(at, 10_000, 3))
        assert (row["l"], row["m"]) == (NOON + timedelta(seconds=SECONDS[rows[0]]), sum(around(at, -2, 0)))


@pytest.mark.parametrize("epoch_rows", one_in(2, [7, 1000]))
def test_all_rows_so_far_of_decimals_and_texts(epoch_rows: int) -> None:
    so_far, until = f"{BY_ROWS} ROWS UNBOUNDED PRECEDING)", f"{BY_ROWS} ROWS BETWEEN UNBOUNDED PRECEDING AND"
    text = f"""SELECT n, sum(d * 1.25) {so_far} AS a, avg(d) {until} 1 FOLLOWING) AS b, max(w) {so_far} AS c,
        min(w) {until} 2 PRECEDING) AS e, last_value(w) {so_far} AS f, nth_value(w, 3) {so_far} AS g,
        max(struct(x, w)) {so_far} AS h, min(d) {until} 1 PRECEDING) AS i,
        first_value(named_struct('w', w, 'l', array(n))) {so_far} AS j, avg(n * 46116860184273879) {so_far} AS l FROM t"""
    for at, row in {row["n"]: row for row in run(text, epoch_rows)}.items():
        rows = in_order(at)
        place = rows.index(at)
        own, ahead = rows[: place + 1], rows[: place + 2]
        words = [word for word in (WORDS[i] for i in own) if word is not None]
        before = [word for word in (WORDS[i] for i in rows[: max(0, place - 1)]) if word is not None]
        pairs = [(VALUES[i] or 0.0, WORDS[i] or "") for i in own if VALUES[i] is not None]
        assert row["a"] == sum(own) * Decimal("1.25")
        assert row["b"] == (Decimal(sum(ahead)) / len(ahead)).quantize(Decimal("0.0001"), ROUND_HALF_UP)
        assert (row["c"], row["e"], row["f"]) == (max(words, default=None), min(before, default=None), WORDS[at])
        assert row["g"] == (WORDS[rows[2]] if place >= 2 else None)
        best = max(pairs, default=(None, None))
        assert row["h"] == {"x": best[0], "w": best[1]}
        assert row["i"] == min(map(Decimal, rows[:place]), default=None)
        assert row["j"] == {"w": WORDS[rows[0]], "l": [rows[0]]}
        assert row["l"] == pytest.approx(sum(own) * 46116860184273879 / len(own), rel=1e-15)


def test_all_rows_so_far_and_some_that_follow() -> None:
    ahead = "ROWS BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING"
    text = f"""SELECT n, sum(x) {BY_ROWS} {ahead}) AS a, count(*) {BY_ROWS} {ahead}) AS b, lead(n) {BY_ROWS}) AS c,
        dense_rank() {BY_ROWS}) AS d, avg(x) {BY_ROWS}) AS e FROM t"""
    found = {row["n"]: row for row in run(text, 13)}
    assert len(found) == COUNT
    for at, row in found.items():
        rows = in_order(at)
        place = rows.index(at)
        values, own = ([VALUES[i] for i in rows[:stop] if VALUES[i] is not None] for stop in (place + 3, place + 1))
        assert (row["a"], row["b"]) == (sum(v or 0.0 for v in values) if values else None, len(rows[: place + 3]))
        assert (row["c"], row["d"]) == (next(iter(rows[place + 1 :]), None), place + 1)
        assert row["e"] == (pytest.approx(sum(v or 0.0 for v in own) / len(own)) if own else None)


@pytest.mark.parametrize("epoch_rows", one_in(2, [7, 1000]))
def test_deviations_and_what_is_made_of_others(epoch_rows: int) -> None:
    so_far, ahead = f"{BY_ROWS} ROWS UNBOUNDED PRECEDING)", f"{BY_ROWS} ROWS BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING)"
    last = "(PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '9' SECONDS PRECEDING AND CURRENT ROW)"
    text = f"""SELECT n, stddev(x) {so_far} AS a, var_pop(x) {OVER} AS b,
        variance(n) {BY_ROWS} ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS c,
        stddev_pop(d) {ahead} AS d, bool_or(x > 4) {OVER} AS e, max_by(n, x) {so_far} AS f, count_if(x > 1) w AS g,
        var_samp(n) FILTER (WHERE n % 3 = 0) {so_far} AS h FROM t WINDOW w AS {last}""".replace("(x > 1) w", "(x > 1) OVER w")
    found = {row["n"]: row for row in run(text, epoch_rows)}
    assert len(found) == COUNT
    for at, row in found.items():
        rows = in_order(at)
        own, recent = rows[: rows.index(at) + 1], within(at, 9)
        xs, near = ([VALUES[i] or 0.0 for i in some if VALUES[i] is not None] for some in (own, recent))
        assert row["a"] == (pytest.approx(np.std(xs, ddof=1), rel=1e-12) if len(xs) > 1 else None)
        assert row["b"] == (pytest.approx(np.var(near), rel=1e-12, abs=1e-15) if near else None)
        by_rows = around(at, -2, 1)
        assert row["c"] == (pytest.approx(np.var(by_rows, ddof=1), rel=1e-12) if len(by_rows) > 1 else None)
        assert row["d"] == pytest.approx(np.std(rows[: rows.index(at) + 3]), rel=1e-12)
        assert row["e"] == (max(near) > 4 if near else None)
        assert row["f"] == max((VALUES[i] or 0.0, i) for i in own if VALUES[i] is not None)[1] if xs else row["f"] is None
        assert row["g"] == sum(x > 1 for x in near)
        thirds = [i for i in own if i % 3 == 0]
        assert row["h"] == (pytest.approx(np.var(thirds, ddof=1), rel=1e-12) if len(thirds) > 1 else None)


def test_a_filter_leaves_rows_of_a_frame_out() -> None:
    text = f"""SELECT n, sum(n) FILTER (WHERE n % 3 = 0) {BY_ROWS}) AS a, count(*) FILTER (WHERE x > 1) {BY_ROWS} ROWS BETWEEN 1 PRECEDING
        AND 2 FOLLOWING) AS b FROM t"""
    for at, row in {row["n"]: row for row in run(text, 13)}.items():
        rows = in_order(at)
        own = [i for i in rows[: rows.index(at) + 1] if i % 3 == 0]
        assert row["a"] == (sum(own) if own else None)
        assert row["b"] == sum((VALUES[i] or 0.0) > 1 for i in around(at, -1, 2))


def test_rows_by_their_place_in_time() -> None:
    inner = f"SELECT n, rank() {BY_ROWS}) AS p, k FROM t"
    found = {row["n"]: row["p"] for row in run(f"SELECT n, p FROM ({inner}) WHERE p > 2 AND p % 5 = 0", 13)}
    wanted = {at: place for at in range(COUNT) if (place := in_order(at).index(at) + 1) > 2 and place % 5 == 0}
    assert found == wanted
    assert {row["n"] for row in run(f"SELECT n FROM t QUALIFY row_number() {BY_ROWS}) % 5 = 0", 60)} == set(wanted)


def test_windows_go_by_the_time_of_the_row_that_was_waited_for() -> None:
    inner = f"SELECT n, lead(ts) {BY_ROWS}) AS until, lead(n) {BY_ROWS}) AS next FROM t"
    text = f"SELECT window.start AS s, sum(next - n) AS m FROM ({inner}) GROUP BY window(until, '20 seconds')"
    wanted: dict[datetime, int] = {}
    for at in range(COUNT):
        for after in around(at, 1, 1):
            start = NOON + timedelta(seconds=SECONDS[after] // 20 * 20)
            wanted[start] = wanted.get(start, 0) + after - at
    for epoch_rows in (5, 60):
        assert {row["s"]: row["m"] for row in run(text, epoch_rows)} == wanted


def test_a_row_comes_out_as_soon_as_what_follows_is_there() -> None:
    schema = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("n", pa.int64())])
    columns = "k string, ts timestamp_ntz, n bigint"
    places = Place("after", "lead", "n", 2), Place("s", "sum", "n", -2_000_000, 1_000_000, span=True)
    over = Operator(schema, ("k",), Spanned(columns, "ts", places))

    def epoch(number: int, rows: list[tuple[str, int]], watermark: int) -> list[Any]:
        given = [(key, NOON + timedelta(seconds=n), n) for key, n in rows]
        batch = pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in given], schema)
        out, _ = over.process(Rows(batch, np.zeros(len(rows), np.int32)), Tick(number, number, NO_WATERMARK, watermark))
        return [tuple(row.values())[2:] for row in out.batch.to_pylist()]

    start = int((NOON - datetime(1970, 1, 1)) / timedelta(microseconds=1))
    assert epoch(1, [("a", 1), ("a", 2), ("b", 2)], start + 3_000_000) == []
    assert epoch(2, [("a", 3), ("b", 3)], start + 4_000_000) == [(1, 3, 3)]
    assert epoch(3, [], start + 90_000_000) == []
    assert epoch(4, [("b", 100)], start + 101_000_000) == [(2, 100, 5)]
    assert sorted(epoch(5, [], END_OF_STREAM)) == [(2, None, 6), (3, None, 5), (3, None, 6), (100, None, 100)]


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ("ORDER BY ts RANGE BETWEEN INTERVAL 1 SECOND PRECEDING AND UNBOUNDED FOLLOWING", "would be waited for"),
        ("ORDER BY n RANGE BETWEEN 3 PRECEDING AND CURRENT ROW", "its column, ts"),
        ("ORDER BY n ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING", "its column, ts"),
        ("ORDER BY ts, n DESC ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING", "takes columns, ascending"),
        ("ORDER BY ts ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "would be waited for"),
        ("ORDER BY ts, n RANGE BETWEEN CURRENT ROW AND CURRENT ROW", "several columns"),
        ("ORDER BY ts RANGE BETWEEN 3 PRECEDING AND CURRENT ROW", "INTERVAL '10' MINUTES"),
        ("ORDER BY n", "its column, ts"),
    ],
)
def test_what_would_wait_or_be_kept_is_refused(over: str, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        run(f"SELECT sum(n) OVER (PARTITION BY k {over}) AS s FROM t", 10)


@pytest.mark.parametrize("epoch_rows", one_in(2, [7, 1000]))
def test_several_orders_wait_for_rows(epoch_rows: int) -> None:
    """Each for its own; a row comes once, with what all of them have waited for."""
    by_word, by_third = "OVER (PARTITION BY w ORDER BY ts, n", "OVER (PARTITION BY n % 3 ORDER BY ts, n"
    text = f"""SELECT n, ts, x, concat(k, w) AS kw, lead(n) {BY_ROWS}) AS a, lead(d, 2, -1) {by_word}) + 1 AS b,
        sum(x) {by_third} ROWS BETWEEN 1 PRECEDING AND 3 FOLLOWING) AS c, lag(w) {by_word}) AS e, count(*) {BY_ROWS}) AS f,
        lead(struct(w, n)) OVER (ORDER BY ts, n) AS g, max(n) OVER (PARTITION BY x ORDER BY ts, n) AS h,
        rank() {by_word}) AS i FROM t"""

    def among(same: list[Any], at: int) -> tuple[list[int], int]:
        rows = sorted((i for i in range(COUNT) if same[i] == same[at]), key=lambda i: (SECONDS[i], i))
        return rows, rows.index(at)

    for at, row in each_once(text, epoch_rows).items():
        (keys, key), (words, word) = among(KEYS, at), among(WORDS, at)
        (thirds, third), (every, one) = among([i % 3 for i in range(COUNT)], at), among([0] * COUNT, at)
        assert (row["ts"], row["x"]) == (NOON + timedelta(seconds=SECONDS[at]), VALUES[at])
        assert row["kw"] == (None if KEYS[at] is None or WORDS[at] is None else f"{KEYS[at]}{WORDS[at]}")
        assert row["a"] == next(iter(keys[key + 1 :]), None)
        assert row["b"] == next(iter(words[word + 2 :]), -1) + 1
        values = [VALUES[i] or 0.0 for i in thirds[max(0, third - 1) : third + 4] if VALUES[i] is not None]
        assert row["c"] == (sum(values) if values else None)
        assert row["e"] == (WORDS[words[word - 1]] if word else None)
        assert (row["f"], row["i"]) == (key + 1, word + 1)
        assert row["g"] == next(({"w": WORDS[i], "n": i} for i in every[one + 1 :]), None)
        assert row["h"] == max(i for i in range(COUNT) if VALUES[i] == VALUES[at] and (SECONDS[i], i) <= (SECONDS[at], at))


def test_what_waits_for_rows_has_no_time_for_windows() -> None:
    with pytest.raises(QueryError, match="event time"):
        run(
            "SELECT count(*) AS c FROM (SELECT ts, lead(n) OVER (PARTITION BY k ORDER BY ts) AS a FROM t) GROUP BY window(ts, '1 minute')",
            10,
        )


def test_what_all_rows_so_far_cannot_be() -> None:
    for call, says in (
        ("sum(w)", "sum is of numbers, not of string; cast it to double"), ("max(map(k, n))", "maps have no order"),
        ("ntile(3)", "ntile of every row changes with every row to come"),
        ("median(n)", "all its values would be kept for ever"),
        ("approx_count_distinct(n)", "all its values would be kept for ever"),
    ):  # fmt: skip
        with pytest.raises(QueryError, match=says):
            run(f"SELECT {call} OVER (PARTITION BY k ORDER BY ts) AS a FROM t", 10)
    with pytest.raises(QueryError, match="avg needs a number, not string"):
        run("SELECT avg(w) OVER (PARTITION BY k ORDER BY ts ROWS 3 PRECEDING) AS a FROM t", 10)
    with pytest.raises(QueryError, match="rank of every row would change .*; order them by event time, or take the best: row_number"):
        run("SELECT rank() OVER (PARTITION BY k ORDER BY n) AS a FROM t", 10)


def test_parts_and_totals_survive_deaths_and_restarts() -> None:
    """Goal: rows whose parts are apart, and totals that are no words, are state like any other. Method: a site dies, then all is lost and
    begins again from a checkpoint; the results are those of a run without."""
    text = f"""SELECT n, w, lead(n) {BY_ROWS}) AS a, lead(w, 2) OVER (PARTITION BY n % 3 ORDER BY ts, n) AS b, sum(d) {BY_ROWS}) AS c,
        max(struct(w, n)) {BY_ROWS}) AS e, nth_value(w, 5) {BY_ROWS}) AS f FROM t"""

    def simulated(**options: Any) -> testing.Simulation:
        flow = ef.Dataflow("q")
        columns = "ts timestamp_ntz, k string, x double, w string, n bigint, d decimal(20,0)"
        ef.sql(text, {"t": flow.source(testing.source(columns), name="t").with_watermark("ts", "5 seconds")}).to(
            ef.sinks.memory("out"), name="out"
        )
        return testing.simulate(flow, **options)

    plain, test = simulated(), simulated(sites=3, replicas=2, seed=3)
    plain.give("t", TABLE)
    test.give("t", TABLE.slice(0, 70)).settle().kill()
    test.give("t", TABLE.slice(70, 60)).settle().checkpoint()
    test.lose_everything().restart(sites=2).give("t", TABLE.slice(130))
    found, wanted = (sorted(map(str, each.finish().rows("out"))) for each in (test, plain))
    assert found == wanted and len(found) == COUNT


def test_zeros_and_nans_of_either_sign_are_peers() -> None:
    """They are equal in Spark's order."""
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("x", pa.float64())])
    given = [0.0, -0.0, 0.0, float("nan"), -float("nan")]
    columns = [pa.array([1] * 5, pa.int64()), pa.array([5] * 5, pa.timestamp("us")), pa.array(given)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    places = Place("r", "rank"), Place("d", "dense_rank")
    operator = Operator(schema, ["k"], Spanned("k bigint, ts timestamp, x double", "ts", places, ("x",)))
    made = operator.process(Rows(batch, np.zeros(5, np.int32), hash_columns(batch, ["k"])), Tick(1, 1, 0, 100))[0].batch
    assert (made.column("r").to_pylist(), made.column("d").to_pylist()) == ([1, 1, 1, 4, 4], [1, 1, 1, 2, 2])
