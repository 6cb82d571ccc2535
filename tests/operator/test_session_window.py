"""Session windows against plain Python that keeps a list of sessions per key, as Spark's streaming operator does."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.operator.aggregate_cases import ALL_CALLS, SCHEMA, call, expected, make_batch, make_rows, moving_epochs, same, tick

from evenflow.operator.order import Order
from evenflow.operator.totals.session_window import SessionWindowAggregate
from evenflow.query.aggregates import FOREVER_US, SessionWindow
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, behind

pytestmark = pytest.mark.one_in(2)

SECOND = 1_000_000
IN_ANY_ORDER = [c for c in ALL_CALLS if c.function not in ("first", "last", "collect_list")]
DISTINCT = [call("approx_count_distinct", "i"), call("approx_count_distinct", "s")]


def micros(value: Any) -> int:
    return int(pa.scalar(value, pa.timestamp("us")).value)


def epochs(rng: np.random.Generator, count: int, n: int) -> list[tuple[pa.RecordBatch, int, int]]:
    return list(moving_epochs(rng, count, n, back=0.1))


class Sessions:
    """The oracle: sessions of a key are lists of rows, joined where a row touches several."""

    def __init__(self, gap: int) -> None:
        self.gap, self.open = gap, defaultdict(list)

    def add(self, key: Any, row: dict[str, Any]) -> None:
        time = micros(row["ts"])
        touching = [s for s in self.open[key] if any(abs(micros(r["ts"]) - time) <= self.gap for r in s)]
        rest = [s for s in self.open[key] if s not in touching]
        self.open[key] = [*rest, [*(r for s in touching for r in s), row]]

    def close(self, watermark: int) -> dict[Any, list[dict[str, Any]]]:
        closed = {}
        for key, sessions in self.open.items():
            for rows in sessions:
                if max(micros(r["ts"]) for r in rows) + self.gap <= watermark:
                    closed[key, min(micros(r["ts"]) for r in rows)] = rows
            self.open[key] = [s for s in sessions if max(micros(r["ts"]) for r in s) + self.gap > watermark]
        return closed


@pytest.mark.parametrize("gap", [SECOND // 3, 2 * SECOND, 7 * SECOND])
@pytest.mark.parametrize("keys", [("k",), ("name", "b")])
def test_a_session_is_put_out_once_with_the_totals_of_its_rows(gap: int, keys: tuple[str, ...]) -> None:
    rng = np.random.default_rng(gap)
    operator = SessionWindowAggregate(SCHEMA, keys, IN_ANY_ORDER, window=SessionWindow("ts", gap))
    oracle, late_rows, put_out, of_several_stretches = Sessions(gap), 0, 0, 0
    for epoch, (batch, before, after) in enumerate(epochs(rng, 7, 120), 1):
        late = []
        for row in batch.to_pylist():
            if row["ts"] is None:
                continue
            if micros(row["ts"]) + gap <= before:
                late.append(row["ts"])
            else:
                oracle.add(tuple(row[k] for k in keys), row)
        closed = oracle.close(after)
        out, left = operator.process(make_rows(batch, keys), tick(epoch, before, after))
        assert left.batch.column("ts").to_pylist() == late
        late_rows += len(late)
        found = {(tuple(row[k] for k in keys), micros(row["window_start"])): row for row in out.batch.to_pylist()}
        assert out.count == len(found)
        assert found.keys() == closed.keys()
        for key, row in found.items():
            rows = closed[key]
            times = [micros(r["ts"]) for r in rows]
            assert micros(row["window_end"]) == max(times) + gap
            of_several_stretches += max(times) // gap > min(times) // gap
            for c in IN_ANY_ORDER:
                assert same(row[c.name], expected(c, rows)), (c, key)
        put_out += len(found)
    assert operator.late_rows == late_rows
    assert late_rows > 5 and put_out > 50 and of_several_stretches > 10


@pytest.mark.parametrize("lateness", [0, 5 * SECOND, FOREVER_US])
@pytest.mark.parametrize(("gap", "keys"), [(SECOND // 3, ("k",)), (2 * SECOND, ("name", "b")), (7 * SECOND, ("k",))])
def test_changes_leave_the_sessions_that_there_are(gap: int, keys: tuple[str, ...], lateness: int) -> None:
    """After each epoch: those that are over, and those that are open as they are by then. Nothing is said of what has not changed."""
    rng = np.random.default_rng(gap + 1)
    operator = SessionWindowAggregate(SCHEMA, keys, IN_ANY_ORDER, window=SessionWindow("ts", gap, "changelog", lateness))
    oracle, over, there, kinds = Sessions(gap), dict[Any, Any](), dict[Any, Any](), Counter[str]()
    for epoch, (batch, before, after) in enumerate(epochs(rng, 7, 120), 1):
        for row in batch.to_pylist():
            if row["ts"] is not None and micros(row["ts"]) + gap > behind(before, lateness):
                oracle.add(tuple(row[k] for k in keys), row)
        open_now = {(key, min(micros(r["ts"]) for r in rows)): rows for key, found in oracle.open.items() for rows in found}
        wanted = over | open_now
        out, _ = operator.process(make_rows(batch, keys), tick(epoch, before, after))
        for row in out.batch.to_pylist():
            kind = row.pop("_change")
            kinds[kind] += 1
            name = tuple(row[k] for k in keys), micros(row["window_start"])
            if kind in ("update_before", "delete"):
                assert repr(there.pop(name)) == repr(row), name
            else:
                assert name not in there
                there[name] = row
        assert there.keys() == wanted.keys()
        for name, row in there.items():
            assert micros(row["window_end"]) == max(micros(r["ts"]) for r in wanted[name]) + gap
            for c in IN_ANY_ORDER:
                assert same(row[c.name], expected(c, wanted[name])), (c, name)
        over |= oracle.close(behind(after, lateness))
    assert kinds["update_before"] == kinds["update_after"] > 5 and kinds["delete"] > 0 and kinds["insert"] > 50, kinds
    assert (operator.late_rows == 0) == (lateness == FOREVER_US)


def test_rows_in_order_give_first_last_and_lists() -> None:
    """Behind an `order` step, whose input is shuffled; sketches of several stretches are united."""
    gap, rng = 4 * SECOND, np.random.default_rng(3)
    batch = make_batch(rng, 300, keys=6, span_us=200 * SECOND)
    batch = batch.filter(batch.column("ts").is_valid())
    order, operator = (
        Order("ts", ("i",), SCHEMA),
        SessionWindowAggregate(SCHEMA, ("k",), [*ALL_CALLS, *DISTINCT], window=SessionWindow("ts", gap)),
    )
    oracle = Sessions(gap)
    for row in sorted(batch.to_pylist(), key=lambda row: row["ts"]):
        oracle.add(row["k"], row)
    wanted, seen = oracle.close(END_OF_STREAM), 0
    for epoch, watermark in enumerate((60 * SECOND, 120 * SECOND, END_OF_STREAM), 1):
        rows, _ = order.process(make_rows(batch if epoch == 1 else batch.slice(0, 0), ("k",)), tick(epoch, NO_WATERMARK, watermark))
        out, late = operator.process(rows, tick(epoch, NO_WATERMARK, watermark))
        assert late.count == 0
        for row in out.batch.to_pylist():
            rows_of = wanted[row["k"], micros(row["window_start"])]
            seen += 1
            for c in ALL_CALLS:
                assert same(row[c.name], expected(c, rows_of)), (c, row)
            for c in DISTINCT:
                exact = len({r[c.column] for r in rows_of if r[c.column] is not None})
                assert abs(row[c.name] - exact) <= 1 + exact // 5
    assert seen == len(wanted) > 30


def test_a_row_between_two_sessions_makes_them_one() -> None:
    operator = SessionWindowAggregate(SCHEMA, ("k",), [call("count")], window=SessionWindow("ts", 10))

    def rows(*times: int) -> Any:
        nothing = {field.name: None for field in SCHEMA}
        made = [{**nothing, "k": 1} for _ in times]
        batch = pa.RecordBatch.from_pylist(made, SCHEMA)
        stamps = pa.array(times, pa.timestamp("us"))
        return make_rows(batch.set_column(SCHEMA.get_field_index("ts"), SCHEMA.field("ts"), stamps), ("k",))

    assert operator.process(rows(100, 120), tick(1, 0, 105))[0].count == 0
    assert operator.process(rows(110), tick(2, 105, 129))[0].count == 0  # a gap exactly is no gap, as in Spark
    out, _ = operator.process(rows(), tick(3, 129, 130))
    assert [(micros(r["window_start"]), micros(r["window_end"]), r["count_all"]) for r in out.batch.to_pylist()] == [(100, 130, 3)]
    assert operator.process(rows(120), tick(4, 130, 130))[1].count == 1  # its own session has ended at 130
    assert operator.process(rows(121), tick(5, 130, 131))[0].batch.column("count_all").to_pylist() == [1]
    assert operator.capture(0) is None and operator.process(rows(), tick(6, 131, END_OF_STREAM))[0].count == 0


def test_stretches_are_looked_at_when_they_fall_due_and_not_before() -> None:
    """An epoch that ends no session costs its own rows, whatever is open."""
    operator = SessionWindowAggregate(SCHEMA, ("i",), [call("count")], window=SessionWindow("ts", 50 * SECOND))
    rng = np.random.default_rng(5)
    operator.process(make_rows(make_batch(rng, 5_000, span_us=SECOND, nulls=False), ("i",)), tick(1, 0, 1))
    asked: list[int] = []
    held = operator._table.held
    operator._table.held = lambda slots: asked.append(len(slots)) or held(slots)  # type: ignore[method-assign]
    for epoch in range(2, 40):
        operator.process(make_rows(make_batch(rng, 1, span_us=SECOND, nulls=False), ("i",)), tick(epoch, 1, epoch))
    assert sum(asked) == 0
    out, _ = operator.process(make_rows(make_batch(rng, 0), ("i",)), tick(40, 1, END_OF_STREAM))
    assert out.count > 4_000 and operator.state_bytes() < 1 << 22
