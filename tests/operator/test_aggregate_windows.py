"""Time windows and row windows against plain Python."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.operator.aggregate_cases import ALL_CALLS, SCHEMA, call, expected, make_batch, make_rows, same, tick

from evenflow.operator.totals.combine import Combine
from evenflow.operator.totals.row_window import RowWindowAggregate
from evenflow.operator.totals.time_window import TimeWindowAggregate
from evenflow.query.aggregates import AggCall, RowWindow, TimeWindow, combinable
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK
from evenflow.stream.rows import Rows

pytestmark = pytest.mark.one_in(2)

SECOND = 1_000_000
WINDOWS = [TimeWindow("ts", 10 * SECOND, 10 * SECOND), TimeWindow("ts", 10 * SECOND, 4 * SECOND)]


def micros(value: Any) -> int:
    return int(pa.scalar(value, pa.timestamp("us")).value)


def starts_of(time: int, window: TimeWindow) -> list[int]:
    last = time - time % window.slide_us
    return [s for s in range(last, time - window.size_us, -window.slide_us) if s <= time < s + window.size_us][::-1]


def epochs_with_watermark(rng: np.random.Generator, count: int, n: int) -> list[tuple[pa.RecordBatch, int, int]]:
    """Batches whose times move on, each with the watermark before and after."""
    made, before = [], NO_WATERMARK
    for epoch in range(count):
        batch = make_batch(rng, n, span_us=12 * SECOND)
        times = (np.asarray(batch.column("ts").fill_null(0).cast(pa.int64())) + epoch * 3 * SECOND).tolist()
        stamps = [None if old is None else t for t, old in zip(times, batch.column("ts").to_pylist(), strict=True)]
        index = SCHEMA.get_field_index("ts")
        batch = batch.set_column(index, SCHEMA.field("ts"), pa.array(stamps, pa.timestamp("us")))
        after = END_OF_STREAM if epoch == count - 1 else max([before, *(s - SECOND for s in stamps if s is not None)])
        made.append((batch, before, after))
        before = after
    return made


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("keys", [("k",), ("s", "f")])
def test_time_windows_close_once_with_the_totals_of_their_rows(window: TimeWindow, keys: tuple[str, ...]) -> None:
    rng = np.random.default_rng(1)
    operator = TimeWindowAggregate(SCHEMA, keys, ALL_CALLS, window=window, time="ts")
    held: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    wanted_late, emitted = 0, 0
    for epoch, (batch, before, after) in enumerate(epochs_with_watermark(rng, 8, 150)):
        late_rows = []
        for row in batch.to_pylist():
            if row["ts"] is None:
                continue
            starts = [s for s in starts_of(micros(row["ts"]), window) if s + window.size_us > before]
            if not starts:
                late_rows.append(row)
            for start in starts:
                # repr tells -0.0 from 0.0, which are one key.
                held[(start, repr(tuple((row[k] + 0.0 if isinstance(row[k], float) else row[k]) for k in keys)))].append(row)
        out, late = operator.process(make_rows(batch, keys), tick(epoch, before, after))
        assert repr(late.batch.to_pylist()) == repr(late_rows)
        wanted_late += len(late_rows)
        seen = set()
        for partition in range(8):
            mine = out.take(np.flatnonzero(out.partition == partition)).batch.column("window_start").to_pylist()
            assert mine == sorted(mine)
        for row in out.batch.to_pylist():
            key = (micros(row["window_start"]), repr(tuple(row[k] for k in keys)))
            assert micros(row["window_end"]) == key[0] + window.size_us <= after
            for c in ALL_CALLS:
                assert same(row[c.name], expected(c, held[key])), (key, c.name)
            seen.add(key)
        due = {key for key in held if key[0] + window.size_us <= after}
        assert seen == due
        for key in due:
            del held[key]
        emitted += len(seen)
    assert operator.late_rows == wanted_late > 0
    assert emitted > 60
    assert not held
    assert operator.capture(0) is None, "no state is left"


@pytest.mark.parametrize("mode", ["append", "update"])
@pytest.mark.parametrize("lateness_us", [0, 2 * SECOND])
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_that_change_come_as_they_are_at_each_epoch(window: TimeWindow, lateness_us: int, mode: Any) -> None:
    """A model: every window's rows, until the watermark has passed its end and the lateness. What is put out in each epoch, exactly."""
    rng = np.random.default_rng(4)
    window = replace(window, mode=mode, lateness_us=lateness_us)
    operator = TimeWindowAggregate(SCHEMA, ("k",), ALL_CALLS, window=window)
    held: dict[tuple[int, Any], list[dict[str, Any]]] = defaultdict(list)
    late_rows, repeated, put_out = 0, 0, set()
    for epoch, (batch, before, after) in enumerate(epochs_with_watermark(rng, 8, 150)):
        touched = set()
        for row in batch.to_pylist():
            if row["ts"] is None:
                continue
            starts = [s for s in starts_of(micros(row["ts"]), window) if s + window.size_us + lateness_us > before]
            late_rows += not starts
            for start in starts:
                held[start, row["k"]].append(row)
                touched.add((start, row["k"]))
        complete = {key for key in held if before < key[0] + window.size_us <= after}
        again = {key for key in touched if key[0] + window.size_us <= before}
        wanted = touched if mode == "update" else complete | again
        out, _ = operator.process(make_rows(batch, ("k",)), tick(epoch, before, after))
        found = {(micros(row["window_start"]), row["k"]): row for row in out.batch.to_pylist()}
        assert found.keys() == wanted and out.count == len(wanted)
        for key, row in found.items():
            for c in ALL_CALLS:
                assert same(row[c.name], expected(c, held[key])), (key, c.name)
        repeated += len(put_out & wanted)
        put_out |= wanted
        held = defaultdict(list, {key: rows for key, rows in held.items() if key[0] + window.size_us + lateness_us > after})
    assert operator.late_rows == late_rows
    assert repeated > 10 or (mode == "append" and not lateness_us)
    assert not held and operator.capture(0) is None


@pytest.mark.parametrize("window", WINDOWS)
def test_combined_windows_equal_uncombined_ones(window: TimeWindow) -> None:
    rng = np.random.default_rng(2)
    calls = [c for c in ALL_CALLS if combinable([c], SCHEMA)]
    combine = Combine(SCHEMA, ("k",), calls, window)
    merged = TimeWindowAggregate(combine.schemas[0], ("k",), calls, window=window, partial=True)
    plain = TimeWindowAggregate(SCHEMA, ("k",), calls, window=window)
    late = 0
    for epoch, (batch, before, after) in enumerate(epochs_with_watermark(rng, 6, 200)):
        producer = Rows(batch, rng.integers(0, 3, 200).astype(np.int32))
        (partial,) = combine.process(producer, tick(epoch, before, after))
        assert partial.hash is not None
        one, _ = merged.process(make_rows(partial.batch, ("k",)), tick(epoch, before, after))
        two, missed = plain.process(make_rows(batch, ("k",)), tick(epoch, before, after))
        late += missed.count
        a, b = one.batch.to_pylist(), two.batch.to_pylist()
        assert [(r["k"], r["window_start"], r["window_end"]) for r in a] == [(r["k"], r["window_start"], r["window_end"]) for r in b]
        for left, right in zip(a, b, strict=True):
            for c in calls:
                assert same(left[c.name], right[c.name]), c.name
    if window.size_us == window.slide_us:
        assert merged.late_rows == plain.late_rows == late > 0


@pytest.mark.parametrize("size", [6, 2, 7, 4, 3])
@pytest.mark.parametrize(("start_us", "lateness_us"), [(0, 0), (700_000, SECOND)])
def test_combined_rows_are_late_once_and_only_if_they_are_in_no_window(size: int, start_us: int, lateness_us: int) -> None:
    """As many as of rows that come as they are, also where some of them have fewer windows than others."""
    window = TimeWindow("ts", size * SECOND, 2 * SECOND, "append", lateness_us, start_us)
    calls = [AggCall("n", "count", None, pa.int64())]
    combine = Combine(SCHEMA, ("k",), calls, window, places=4)
    merged = TimeWindowAggregate(combine.schemas[0], ("k",), calls, window=window, partial=True)
    plain = TimeWindowAggregate(SCHEMA, ("k",), calls, window=window)
    for epoch, (batch, before, after) in enumerate(epochs_with_watermark(np.random.default_rng(4), 6, 200)):
        (partial,) = combine.process(Rows(batch, np.zeros(200, np.int32)), tick(epoch, before, after))
        merged.process(make_rows(partial.batch, ("k",)), tick(epoch, before, after))
        plain.process(make_rows(batch, ("k",)), tick(epoch, before, after))
    assert plain.late_rows > 50
    assert merged.late_rows == plain.late_rows


def test_a_window_of_the_past_reaches_below_zero() -> None:
    schema = pa.schema([("ts", pa.timestamp("us"))])
    operator = TimeWindowAggregate(schema, (), [call("count")], window=TimeWindow("ts", 10, 10))
    batch = pa.RecordBatch.from_arrays([pa.array([-1, -10, -11, 0, 9], pa.timestamp("us"))], schema=schema)
    out, _ = operator.process(make_rows(batch, ()), tick(1, NO_WATERMARK, END_OF_STREAM))
    found = [(micros(r["window_start"]), r["count_all"]) for r in out.batch.to_pylist()]
    assert found == [(-20, 1), (-10, 2), (0, 2)]


@pytest.mark.parametrize(("history", "slide"), [(1, 1), (3, 2), (10, 3), (70, 1), (5, 8)])
@pytest.mark.parametrize("time", [None, "ts"])
def test_row_windows_show_the_last_rows_of_each_key(history: int, slide: int, time: str | None) -> None:
    rng = np.random.default_rng(3)
    calls = [*ALL_CALLS, call("approx_count_distinct", "small"), call("approx_count_distinct", "s")]
    operator = RowWindowAggregate(SCHEMA, ("k",), calls, window=RowWindow(history, slide), time=time)
    seen: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    windows = 0
    for epoch in range(6):
        batch = make_batch(rng, 150, keys=6)
        wanted = []
        for row in batch.to_pylist():
            seen[row["k"]].append(row)
            if len(seen[row["k"]]) % slide == 0:
                wanted.append((row, seen[row["k"]][-history:]))
        (out,) = operator.process(make_rows(batch, ("k",)), tick(epoch))
        found = out.batch.to_pylist()
        assert len(found) == len(wanted)
        for result, (row, rows) in zip(found, wanted, strict=True):
            assert result["k"] == row["k"]
            assert time is None or result["ts"] == row["ts"]
            for c in calls:
                tolerance = 0.1 if c.function == "approx_count_distinct" else 1e-9
                want = expected(c, rows)
                ok = abs(result[c.name] - want) <= 1 + tolerance * want if tolerance > 0.01 else same(result[c.name], want)
                assert ok, (c.name, result[c.name], want)
        windows += len(found)
    assert windows > 50
    assert operator.schemas[0].names[:2] == (["k", "ts"] if time else ["k", calls[0].name])
