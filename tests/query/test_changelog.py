"""Results that change, as changelogs and as whole tables: what is left is what batch arithmetic gives, wherever epochs are cut."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError, TypeMismatch
from evenflow.operator.complete import Complete
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.stream.change import CHANGE, KINDS, changed_rows, taken_back
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows
from evenflow.world.sim.world import SimWorld

COUNT = 300
BIG = 2**62
RANDOM = np.random.default_rng(5)
ROWS = [
    (datetime(2026, 1, 1) + timedelta(seconds=i), None if k == 6 else k, int(v))
    for i, (k, v) in enumerate(zip(RANDOM.integers(0, 7, COUNT).tolist(), RANDOM.integers(-44, 50, COUNT), strict=True))
]
TABLE = pa.table(list(zip(*ROWS, strict=True)), schema=pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.int64())]))
OF_KEY = {k: [v for _, other, v in ROWS if other == k] for k in (None, *range(6))}
TOTALS = Counter((k, len(vs), sum(vs)) for k, vs in OF_KEY.items())
POSITIVE = [row for row in TOTALS if row[2] > 0]
Draw = Callable[[ef.Stream], ef.Stream]


def start() -> ef.Stream:
    return ef.Dataflow("changes").source(ef.sources.memory(TABLE), name="in").with_watermark("ts", "0 seconds")


def run(draw: Draw, epoch_rows: int = 20, sites: int = 2) -> list[tuple[Any, ...]]:
    flow = draw(start()).to(ef.sinks.memory("out"), name="out").flow
    assert ef.Dataflow.from_json(flow.to_json()).to_json() == flow.to_json()
    options = FlowOptions(epoch_rows=epoch_rows, linger_ms=1)
    world = SimWorld(layout(flow.network, sites=sites, partitions=4), sites=sites, options=options, read_rows=epoch_rows)
    world.run_until_quiet()
    return [tuple(row.values()) for row in world.output("out").to_pylist()]


def left(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """What changes leave; none takes back what is not there."""
    there: Counter[tuple[Any, ...]] = Counter()
    for *row, change in rows:
        there[tuple(row)] += -1 if change in ("update_before", "delete") else 1
        assert there[tuple(row)] in (0, 1)
    return +there


def totals(stream: ef.Stream) -> ef.Stream:
    return stream.group_by("k").agg(n="count(*)", total="sum(v)", mode="changelog")


@pytest.mark.parametrize(("epoch_rows", "sites"), [(1000, 1), (20, 2), (3, 2)])
def test_what_changes_leave_is_the_result(epoch_rows: int, sites: int) -> None:
    found = run(totals, epoch_rows, sites)
    assert left(found) == TOTALS
    assert {row[-1] for row in found} == ({"insert"} if epoch_rows == 1000 else {"insert", "update_before", "update_after"})


def test_a_row_that_replaces_another_comes_right_behind_it() -> None:
    found = run(totals)
    befores = [at for at, row in enumerate(found) if row[-1] == "update_before"]
    assert befores and all(found[at + 1][-1] == "update_after" and found[at + 1][0] == found[at][0] for at in befores)


def test_results_that_stay_equal_are_no_change() -> None:
    found = run(lambda s: s.group_by("k").agg(most="max(v)", mode="changelog"))
    assert left(found) == Counter((k, max(vs)) for k, vs in OF_KEY.items())
    for before, after in pairwise(found):
        assert after[-1] != "update_after" or before[:2] != after[:2]


def test_a_condition_takes_results_back() -> None:
    found = run(lambda s: totals(s).where("total > 0"))
    assert left(found) == Counter(POSITIVE)
    assert any(row[-1] == "update_before" and after[-1] != "update_after" for row, after in pairwise(found))


@pytest.mark.parametrize("again", [False, True], ids=["by another key", "by its key"])
def test_an_aggregate_subtracts_what_is_taken_back_and_ends_groups(again: bool) -> None:
    """By the same key nothing goes over an exchange in between."""
    by = "k" if again else "odd"
    found = run(
        lambda s: (
            totals(s).where("total > 0").with_columns(odd="n % 2").group_by(by)
            .agg(keys="count(*)", most="sum(total)", mean="avg(total)", some="count(k)", mode="changelog")
        )
    )  # fmt: skip
    groups: dict[Any, list[tuple[Any, ...]]] = {}
    for row in POSITIVE:
        groups.setdefault(row[0] if again else row[1] % 2, []).append(row)
    wanted: Counter[tuple[Any, ...]] = Counter()
    for key, rows in groups.items():
        most = sum(row[2] for row in rows)
        wanted[key, len(rows), most, most / len(rows), sum(row[0] is not None for row in rows)] += 1
    assert left(found) == wanted
    assert "delete" in {row[-1] for row in found}


def test_sums_are_taken_back_exactly_beyond_64_bits() -> None:
    def draw(stream: ef.Stream) -> ef.Stream:
        changes = stream.group_by("k").agg(n="count(*)", big=f"max(v) * 0L + {BIG}L", mode="changelog")
        return changes.with_columns(one="1").group_by("one").agg(mean="avg(big)", keys="count(*)", mode="changelog")

    assert left(run(draw, 7)) == Counter([(1, float(BIG), 7)])


def test_windows_that_change_and_begin_at_their_own_time() -> None:
    def draw(stream: ef.Stream) -> ef.Stream:
        windows = stream.group_by("k").window("40 seconds", "20 seconds", mode="changelog", allowed_lateness="forever", start="7 seconds")
        return windows.agg(n="count(*)", half="sum(v) / 2")

    wanted: dict[tuple[Any, datetime], list[int]] = {}
    for ts, k, v in ROWS:
        since = (ts - datetime(1970, 1, 1)) // timedelta(seconds=1)
        for back in (0, 20):
            wanted.setdefault((k, datetime(1970, 1, 1) + timedelta(seconds=(since - 7) // 20 * 20 + 7 - back)), []).append(v)
    answer = Counter((k, s, s + timedelta(seconds=40), len(vs), sum(vs) / 2) for (k, s), vs in wanted.items())
    assert left(run(draw)) == answer
    once = run(lambda s: s.group_by("k").window("40 seconds", "20 seconds", start="67 seconds").agg(n="count(*)", half="sum(v) / 2"))
    assert Counter(once) == answer


def test_a_whole_table_in_its_order() -> None:
    found = run(lambda s: totals(s).where("total > 0").complete("3 ms", order_by="total desc", limit=3))
    wanted = sorted(POSITIVE, key=lambda row: -row[2])[:3]
    assert found[-3:] == wanted and len(found) > 3
    assert run(lambda s: totals(s).complete("1 hour"), 1000) == sorted(TOTALS, key=lambda row: (row[0] is not None, row[0] or 0))


def test_complete_mode_of_groups_and_windows_forgets_nothing() -> None:
    wanted = sorted(TOTALS, key=lambda row: (row[0] is not None, row[0] or 0))
    assert run(lambda s: s.group_by("k").agg(n="count(*)", total="sum(v)", mode="complete"))[-7:] == wanted
    found = run(lambda s: s.group_by().window("1 minute", mode="complete").agg(n="count(*)"))
    assert [row[-1] for row in found[-5:]] == [60] * 5


def test_a_table_that_waits_goes_on_waiting_where_it_is_taken_to() -> None:
    """By another instance in the process, as by its bytes: it comes in the interval after the change, with nothing new."""
    schema = pa.schema([("n", pa.int64()), (CHANGE, pa.string())])
    given = Rows(pa.record_batch([pa.array([2, 1]), ["insert", "insert"]], schema=schema), np.zeros(2, np.int32))

    def ticked(operator: Complete, epoch: int, rows: Rows) -> list[Any]:
        found: list[Any] = operator.process(rows, Tick(epoch, 600 * epoch, NO_WATERMARK, NO_WATERMARK))[0].batch.column("n").to_pylist()
        return found

    here, there = Complete(schema, every_us=1000), Complete(schema, every_us=1000)
    assert ticked(here, 1, given) == []
    there.absorb(0, here)
    assert ticked(there, 2, Rows.empty(schema)) == [1, 2]
    assert ticked(there, 4, Rows.empty(schema)) == [], "nothing has changed since"


# ---------------------------------------------------------------- sinks


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_table_of_a_database_is_the_result_all_the_time(tmp_path: Path, overwrite: bool) -> None:
    path = str(tmp_path / "out.db")
    changes = totals(start().where("k IS NOT NULL")).where("total > 0")
    shown = changes.complete("1 ms") if overwrite else changes
    flow = shown.to(ef.sinks.memory("out"), name="out").flow
    world = SimWorld(layout(flow.network, sites=2, partitions=4), sites=2, options=FlowOptions(epoch_rows=20, linger_ms=1), read_rows=20)
    world.run_until_quiet()
    writer = ef.sinks.table(path, "totals", key=() if overwrite else "k", overwrite=overwrite).open("run")
    batches = [batch for batch in world.output("out").to_batches() if batch.num_rows]
    assert len(batches) > 3
    there: Counter[tuple[Any, ...]] = Counter()
    for epoch, batch in enumerate(batches, 1):
        writer.write(epoch, batch)
        writer.write(epoch, batch)
        rows = [tuple(row.values()) for row in batch.to_pylist()]
        if overwrite:
            there = Counter(rows)
        for *row, change in [] if overwrite else rows:
            there[tuple(row)] += -1 if change in ("update_before", "delete") else 1
        with sqlite3.connect(path) as connection:
            assert Counter(connection.execute("SELECT * FROM totals").fetchall()) == +there
    writer.close()
    assert +there == Counter(row for row in POSITIVE if row[0] is not None)


def test_the_newest_table_in_memory() -> None:
    sink = ef.sinks.memory("newest-table")
    writer = sink.open("run")
    assert sink.newest().num_rows == 0
    for epoch, values in enumerate([[1, 2], [3], []], 1):
        writer.write(epoch, pa.record_batch([pa.array(values, pa.int64())], names=["n"]))
    assert sink.newest().to_pylist() == [{"n": 3}] and sink.rows().num_rows == 3


# ---------------------------------------------------------------- SQL


def sql(text: str, mode: str, **more: Any) -> Draw:
    return lambda stream: ef.sql(text, {"t": stream}, output_mode=mode, **more)  # type: ignore[arg-type]


def test_sql_in_changelog_mode_takes_back_what_having_leaves_out() -> None:
    inner = "SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k HAVING sum(v) > 0"
    assert left(run(sql(inner, "changelog"))) == Counter(POSITIVE)
    text = f"SELECT n % 2 AS odd, count(*) AS c, sum(s) AS s FROM ({inner}) GROUP BY n % 2"
    sides = {odd: [s for _, n, s in POSITIVE if n % 2 == odd] for odd in (0, 1)}
    assert left(run(sql(text, "changelog"))) == Counter((odd, len(side), sum(side)) for odd, side in sides.items() if side)


@pytest.mark.parametrize("epoch_rows", [1, 30])
def test_sql_best_rows_as_changes(epoch_rows: int) -> None:
    text = "SELECT k, v, ts, p FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, ts) AS p FROM t) WHERE p <= 2"
    best = {k: sorted(((v, ts) for ts, other, v in ROWS if other == k), key=lambda row: (-row[0], row[1]))[:2] for k in OF_KEY}
    wanted = Counter((k, *row, place) for k, rows in best.items() for place, row in enumerate(rows, 1))
    assert left(run(sql(text, "changelog"), epoch_rows)) == wanted


def test_sql_in_complete_mode_sorts_and_cuts() -> None:
    text = "SELECT k, sum(v) AS s FROM t GROUP BY k HAVING sum(v) > 0 ORDER BY s DESC LIMIT 2"
    assert run(sql(text, "complete", every="1 hour"))[-2:] == [(k, s) for k, _, s in sorted(POSITIVE, key=lambda row: -row[2])[:2]]


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("SELECT k, count(*) FROM t GROUP BY k, session_window(ts, '1 minute')", "update", "column 39: rows join sessions that have come"),
        ("SELECT k, count(*) FROM t GROUP BY k, session_window(ts, CASE WHEN v > 0 THEN '1 minute' END)", "update", "come once"),
        ("SELECT first(n) FROM (SELECT k, count(*) AS n FROM t GROUP BY k)", "changelog", r"first\(n\) of a changelog would have to know"),
        ("SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY n + 1", "complete", "sorted by names of its columns"),
        ("SELECT k, count(*) AS n FROM t GROUP BY k LIMIT 1 + 1", "complete", "LIMIT takes a number"),
        ("SELECT k FROM t", "whole", "output_mode is 'whole'; it must be one of append, update, changelog, complete"),
    ],
)
def test_mistakes_in_sql(text: str, mode: str, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        sql(text, mode)(start())


# ---------------------------------------------------------------- who refuses


def joined(changes: ef.Stream) -> ef.Stream:
    return changes.join(changes.flow.source(ef.sources.memory(TABLE)).select("k", "v"), "k", within="1 minute")


REFUSALS: list[tuple[str, Draw, str]] = [
    ("join", joined, "joins results that change, which have no time of their own"),
    ("dedup", lambda c: c.drop_duplicates(["k"]), "'drop_duplicates' .dedup. is given a changelog"),
    ("bsort", lambda c: c.bsort("n", 5), "would part a row from the one that replaces it"),
    ("repartition", lambda c: c.repartition(), "'repartition' .repartition. is given a changelog"),
    ("update", lambda c: c.group_by("n").agg(c="count(*)"), "give mode='changelog', or mode='complete'"),
    ("first", lambda c: c.group_by("n").agg(m="first(total)", mode="changelog"), "would have to know the order in which rows"),
    ("what rows do", lambda c: c.group_by(CHANGE).agg(c="count(*)", mode="changelog"), "rename the column in a select before"),
    ("rows", lambda c: c.group_by("k").rows(3).agg(c="count(*)"), "its windows would have to take back"),
    ("left of latest", lambda c: c.join_latest(start_in(c), "k", suffix="_r"), "the newest row of now, not the one that it came with"),
    ("right of latest", lambda c: start_in(c).join_latest(c, "k", order="arrival"), "say when a row is gone, deleted="),
    ("plain rows", lambda c: c.drop(CHANGE).complete(), "is given plain rows; give the aggregate before it mode='changelog'"),
    ("maps", lambda c: c.with_columns(ls="map('a', 1)").complete(), "by which rows cannot be told apart"),
    ("how often", lambda c: c.complete("0 seconds"), "every in microseconds is 0"),
    ("how many", lambda c: c.complete(limit=0), "the limit of a table is 0"),
    ("by what", lambda c: c.complete(order_by="weight"), "no column 'weight'"),
    ("no key", lambda c: c.to(ef.sinks.table("x.db", "t")), "give it the key by which a row of it is known"),
    ("overwritten", lambda c: c.to(ef.sinks.table("x.db", "t", "k", overwrite=True)), "would overwrite the table with them"),
    ("its own", lambda c: c.drop(CHANGE).group_by("k").agg("count(*) as _change", mode="changelog"), "of its own; give yours another name"),
    ("mode", lambda c: c.drop(CHANGE).group_by("k").agg(n="count(*)", mode="append"), "not 'update', 'changelog' or 'complete'"),
    ("mode of rows", lambda c: c.drop(CHANGE).group_by("k").rows(3).agg(n="count(*)", mode="changelog"), "windows of rows come once"),
    ("mode of sessions", lambda c: start().group_by("k").session("1 minute", mode="update").agg(n="count(*)"), "no update mode: rows join"),
]  # fmt: skip


def start_in(stream: ef.Stream) -> ef.Stream:
    return stream.flow.source(ef.sources.memory(TABLE), name=stream.flow.free("more")).select("k", "v")


@pytest.mark.parametrize(("draw", "says"), [(draw, says) for _, draw, says in REFUSALS], ids=[name for name, _, _ in REFUSALS])
def test_who_cannot_take_rows_back_says_so(draw: Draw, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        draw(totals(start()))


def test_a_row_must_say_what_it_does() -> None:
    batch = pa.record_batch([pa.array(["insert", None, "delete"])], names=[CHANGE])
    with pytest.raises(TypeMismatch, match=r"a row's _change is None; it must be one of insert, update_before"):
        taken_back(batch)
    assert taken_back(pa.record_batch([pa.array(KINDS)], names=[CHANGE])).tolist() == [False, True, False, True]


def test_changed_rows_compare_lists_nulls_and_nan() -> None:
    def rows(values: list[Any], kind: pa.DataType) -> pa.RecordBatch:
        return pa.record_batch([pa.array(values, kind)], names=["x"])

    of = np.arange(3)
    for old, new, kind, changed in (
        ([[1], None, [2]], [[1], None, [3]], pa.list_(pa.int64()), [2]),
        ([1.0, None, float("nan")], [1.0, None, float("nan")], pa.float64(), [2]),
        ([None, 1, 2], [0, None, 2], pa.int64(), [0, 1]),
    ):
        made, groups = changed_rows(rows(old, kind), of, rows(new, kind), of, keys=0)
        assert groups.tolist() == [group for group in changed for _ in range(2)]
        assert made.column(CHANGE).to_pylist() == ["update_before", "update_after"] * len(changed)
