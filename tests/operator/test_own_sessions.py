"""Sessions whose rows have a gap each of their own, against plain Python that keeps lists of sessions, as Spark's operator does."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.operator.aggregate_cases import ALL_CALLS, SCHEMA, call, expected, make_batch, make_rows, moving_epochs, same, tick
from tests.operator.test_session_window import IN_ANY_ORDER, SECOND, micros

from evenflow.operator.totals.ordered_totals import EventOrder
from evenflow.operator.totals.own_sessions import OwnSessionAggregate
from evenflow.query.aggregates import OwnSessions
from evenflow.stream.epoch import END_OF_STREAM
from evenflow.stream.rows import Rows

WINDOW = OwnSessions("ts", ends="until")
WIDER = SCHEMA.append(pa.field("until", pa.timestamp("us")))
GAPS_S = (None, -1, 0, 0.001, 0.5, 3, 3, 8, 40)


def with_ends(rng: np.random.Generator, batch: pa.RecordBatch, gaps_s: tuple[float | None, ...] = GAPS_S) -> pa.RecordBatch:
    """Each row with an end of its own, some without one, and some of no length."""
    times = batch.column("ts").cast(pa.int64()).to_pylist()
    gaps = [gaps_s[at] for at in rng.integers(0, len(gaps_s), batch.num_rows)]
    ends = [None if t is None or g is None else t + round(g * SECOND) for t, g in zip(times, gaps, strict=True)]
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(ends, pa.timestamp("us"))], schema=WIDER)


def epochs(rng: np.random.Generator, count: int, n: int, gaps_s: tuple[float | None, ...]) -> list[tuple[pa.RecordBatch, int, int]]:
    """Batches whose times move on, each with the watermark before and after."""
    return [(with_ends(rng, batch, gaps_s), before, after) for batch, before, after in moving_epochs(rng, count, n, back=0.15)]


class Sessions:
    """The oracle: sessions of a key are lists of rows, joined where a row's own session overlaps or touches theirs."""

    def __init__(self) -> None:
        self.open: dict[Any, list[list[dict[str, Any]]]] = defaultdict(list)

    def add(self, key: Any, row: dict[str, Any]) -> None:
        start, end = micros(row["ts"]), micros(row["until"])
        touching = [s for s in self.open[key] if start <= last(s) and first(s) <= end]
        rest = [s for s in self.open[key] if s not in touching]
        self.open[key] = [*rest, [*(r for s in touching for r in s), row]]

    def close(self, watermark: int) -> dict[Any, list[dict[str, Any]]]:
        closed = {(key, first(s)): s for key, sessions in self.open.items() for s in sessions if last(s) <= watermark}
        for key, sessions in self.open.items():
            self.open[key] = [s for s in sessions if last(s) > watermark]
        return closed


def first(session: list[dict[str, Any]]) -> int:
    return min(micros(row["ts"]) for row in session)


def last(session: list[dict[str, Any]]) -> int:
    return max(micros(row["until"]) for row in session)


@pytest.mark.parametrize(("keys", "gaps_s"), [(("k",), GAPS_S), (("name", "b"), GAPS_S), ((), (None, 0, 0.01, 0.1, 0.3))])
def test_a_session_is_put_out_once_with_the_totals_of_its_rows(keys: tuple[str, ...], gaps_s: tuple[float | None, ...]) -> None:
    rng = np.random.default_rng(len(keys))
    operator = OwnSessionAggregate(WIDER, keys, IN_ANY_ORDER, window=WINDOW)
    oracle, late_rows, put_out, several = Sessions(), 0, 0, 0
    for epoch, (batch, before, after) in enumerate(epochs(rng, 8, 120, gaps_s), 1):
        late = []
        for row in batch.to_pylist():
            if row["ts"] is None or row["until"] is None or row["until"] <= row["ts"]:
                continue
            if micros(row["until"]) <= before:
                late.append(row["ts"])
            else:
                oracle.add(tuple(row[k] for k in keys), row)
        several += sum(len(sessions) > 1 for sessions in oracle.open.values())
        closed = oracle.close(after)
        out, left = operator.process(make_rows(batch, keys), tick(epoch, before, after))
        assert left.batch.column("ts").to_pylist() == late
        late_rows += len(late)
        found = {(tuple(row[k] for k in keys), micros(row["window_start"])): row for row in out.batch.to_pylist()}
        assert out.count == len(found)
        assert found.keys() == closed.keys()
        for key, row in found.items():
            assert micros(row["window_end"]) == last(closed[key])
            for c in IN_ANY_ORDER:
                assert same(row[c.name], expected(c, closed[key])), (c, key)
        put_out += len(found)
    assert operator.late_rows == late_rows > 3 and put_out > 50 and several > 3
    assert all(operator.capture(partition) is None for partition in range(8)), "nothing is open, and nothing blank is kept"


def rows_at(*spans: tuple[int, int], key: int = 1) -> Rows:
    nothing = {field.name: None for field in SCHEMA}
    batch = pa.RecordBatch.from_pylist([{**nothing, "k": key, "i": number} for number, _ in enumerate(spans)], SCHEMA)
    stamps = [pa.array(each, pa.timestamp("us")) for each in zip(*spans, strict=True)] or [pa.array([], pa.timestamp("us"))] * 2
    batch = batch.set_column(SCHEMA.get_field_index("ts"), SCHEMA.field("ts"), stamps[0])
    return make_rows(pa.RecordBatch.from_arrays([*batch.columns, stamps[1]], schema=WIDER), ("k",))


def bounds(rows: Rows) -> list[tuple[int, int, int]]:
    return [(micros(r["window_start"]), micros(r["window_end"]), r["count_all"]) for r in rows.batch.to_pylist()]


def test_a_long_session_holds_short_ones_and_a_row_between_two_makes_them_one() -> None:
    operator = OwnSessionAggregate(WIDER, ("k",), [call("count")], window=WINDOW)
    assert operator.process(rows_at((100, 200), (110, 112), (300, 310), (320, 325)), tick(1, 0, 105))[0].count == 0
    assert operator.process(rows_at((310, 320)), tick(2, 105, 199))[0].count == 0, "what touches is one, as in Spark"
    assert bounds(operator.process(rows_at(), tick(3, 199, 200))[0]) == [(100, 200, 2)]
    assert operator.process(rows_at((150, 200)), tick(4, 200, 201))[1].count == 1, "its own session has ended at 200"
    out, late = operator.process(rows_at((150, 202)), tick(5, 201, 202))
    assert bounds(out) == [(150, 202, 1)] and late.count == 0, "what has been put out is not taken back"
    assert bounds(operator.process(rows_at(), tick(6, 202, END_OF_STREAM))[0]) == [(300, 325, 3)]
    assert operator.capture(0) is None


def test_a_place_that_became_free_before_others_is_used_again() -> None:
    operator = OwnSessionAggregate(WIDER, ("k",), [call("count"), call("max", "s")], window=WINDOW)
    operator.process(rows_at((10, 20), (30, 40), (50, 900)), tick(1, 0, 5))
    assert bounds(operator.process(rows_at(), tick(2, 5, 45))[0]) == [(10, 20, 1), (30, 40, 1)]
    slots = [operator.table.count]
    for epoch in range(3, 20):
        at = 1_000 + 10 * epoch
        operator.process(rows_at((at, at + 5)), tick(epoch, 45, 46))
        slots.append(operator.table.count)
    assert slots[:3] == [3, 3, 3] and slots[-1] == 18, "two blank ones were taken first"
    assert len(bounds(operator.process(rows_at(), tick(20, 46, END_OF_STREAM))[0])) == 18
    assert operator.table.count == 0


def test_rows_of_a_session_are_brought_into_order() -> None:
    operator = OwnSessionAggregate(
        WIDER, ("k",), [call("first", "i"), call("last", "i"), call("collect_list", "i"), *ALL_CALLS[:1]], window=WINDOW,
        order=EventOrder("ts", ("i",)),
    )  # fmt: skip
    operator.process(rows_at((50, 60), (10, 20)), tick(1, 0, 5))
    operator.process(rows_at((15, 55), (12, 13)), tick(2, 5, 6))
    (row,) = operator.process(rows_at(), tick(3, 6, 100))[0].batch.to_pylist()
    assert (row["first_i"], row["last_i"], row["collect_list_i"]) == (1, 0, [1, 1, 0, 0])


def test_what_falls_due_is_looked_at_and_nothing_else() -> None:
    """An epoch that ends no session costs its own rows, whatever is open."""
    operator = OwnSessionAggregate(WIDER, ("i",), [call("count")], window=WINDOW)
    rng = np.random.default_rng(5)

    def some(n: int) -> Rows:
        return make_rows(with_ends(rng, make_batch(rng, n, span_us=SECOND, nulls=False), (50,)), ("i",))

    operator.process(some(5_000), tick(1, 0, 1))
    asked: list[int] = []
    held = operator._table.held
    operator._table.held = lambda slots: asked.append(len(slots)) or held(slots)  # type: ignore[method-assign]
    for epoch in range(2, 40):
        operator.process(some(1), tick(epoch, 1, epoch))
    assert sum(asked) == 0
    assert operator.process(some(0), tick(40, 1, END_OF_STREAM))[0].count > 4_000
