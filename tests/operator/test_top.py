"""Top rows of windows against plain Python."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.operator.aggregate_cases import SCHEMA, make_batch, make_rows, tick
from tests.operator.test_session_window import SECOND, epochs, micros

from evenflow.operator.top import Top
from evenflow.query.aggregates import TimeWindow
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK
from evenflow.stream.rows import Rows

PARTITIONS = 8
"""How many partitions the cases have."""
TUMBLING, SLIDING = TimeWindow("ts", 10 * SECOND, 10 * SECOND), TimeWindow("ts", 10 * SECOND, 4 * SECOND)


def starts_of(time: int, window: TimeWindow) -> list[int]:
    last = time - time % window.slide_us
    return [s for s in range(last, time - window.size_us, -window.slide_us) if s <= time < s + window.size_us]


def ascending(value: Any) -> tuple[Any, ...]:
    """Spark's order: null first, NaN last."""
    if value is None:
        return (0,)
    return (2,) if isinstance(value, float) and math.isnan(value) else (1, value)


class Reversed(tuple[Any, ...]):
    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return tuple(self) > tuple(other)


def sort_key(row: dict[str, Any], by: list[tuple[str, bool]]) -> list[Any]:
    first = [Reversed(ascending(row[c])) if descending else ascending(row[c]) for c, descending in by]
    return [*first, *(ascending(value) for value in row.values())]


@pytest.mark.parametrize("window", [TUMBLING, SLIDING], ids=["tumbling", "sliding"])
@pytest.mark.parametrize("by", [[("f", True)], [("small", False), ("s", True)]])
@pytest.mark.parametrize(("keys", "count"), [(("k",), 2), ((), 5)])
def test_the_first_rows_of_each_window(window: TimeWindow, by: list[tuple[str, bool]], keys: tuple[str, ...], count: int) -> None:
    operator = Top(SCHEMA, keys, window, count, by)
    held: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    late_rows, put_out = 0, 0
    for epoch, (batch, before, after) in enumerate(epochs(np.random.default_rng(4), 9, 90), 1):
        wanted_late = []
        for row in batch.to_pylist():
            if row["ts"] is None:
                continue
            starts = [s for s in starts_of(micros(row["ts"]), window) if s + window.size_us > before]
            for start in starts:
                held[start, tuple(row[k] for k in keys)].append(row)
            if not starts:
                wanted_late.append(row)
        out, late = operator.process(make_rows(batch, keys), tick(epoch, before, after))
        assert repr(late.batch.to_pylist()) == repr(wanted_late)
        late_rows += late.count
        found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for row in out.batch.to_pylist():
            start = micros(row.pop("window_start"))
            assert micros(row.pop("window_end")) == start + window.size_us <= after
            key = start, tuple(row[k] for k in keys)
            found[key].append(row)
            assert row.pop("rank") == len(found[key])
        due = {key for key in held if key[0] + window.size_us <= after}
        assert found.keys() == due
        for key in due:
            wanted = sorted(held.pop(key), key=lambda row: sort_key(row, by))[:count]
            assert repr([[row[name] for name in SCHEMA.names] for row in found[key]]) == repr([list(row.values()) for row in wanted])
        put_out += len(due)
    assert operator.late_rows == late_rows > 10
    assert put_out > 20 and not held
    assert operator.state_bytes() == 0


def test_what_cannot_be_among_the_first_is_not_kept() -> None:
    """State follows the keys, not the rows."""
    operator, rng = Top(SCHEMA, ("k",), TimeWindow("ts", 100 * SECOND, 100 * SECOND), 2, [("i", True)]), np.random.default_rng(6)
    for epoch in range(1, 130):
        operator.process(make_rows(make_batch(rng, 300, keys=5, nulls=False), ("k",)), tick(epoch))
    assert [rows.count for _, rows in operator._runs] == [10, 10, 10], "two rows of each of five keys in each run"
    out, _ = operator.process(make_rows(make_batch(rng, 0), ("k",)), tick(130, NO_WATERMARK, END_OF_STREAM))
    assert out.count == 10 and out.batch.column("rank").to_pylist() == [1, 2] * 5


def test_a_window_is_put_out_when_the_watermark_reaches_its_end() -> None:
    operator = Top(SCHEMA, (), TUMBLING, 1, [("i", False)])
    rows = make_rows(make_batch(np.random.default_rng(10), 5, span_us=SECOND, nulls=False), ())
    assert operator.process(rows, tick(1, NO_WATERMARK, 10 * SECOND - 1))[0].count == 0
    assert operator.process(rows, tick(2, 10 * SECOND - 1, 10 * SECOND))[0].count == 1
    assert [port.count for port in operator.process(rows, tick(3, 10 * SECOND, 11 * SECOND))] == [0, 5]


@pytest.mark.parametrize("name", ["_number", "_window_start", "__window_start"])
def test_a_column_may_have_any_name(name: str) -> None:
    """Goal: what the operator notes of a row is never taken for a column of it. Method: order by one that has a name from inside."""
    schema = pa.schema([("k", pa.int64()), (name, pa.int64()), ("ts", pa.timestamp("us"))])
    operator = Top(schema, ("k",), TUMBLING, 2, [(name, True)])
    columns = [pa.array([1] * 3), pa.array([5, 7, 6]), pa.array([SECOND] * 3).cast(schema.field("ts").type)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    operator.process(make_rows(batch, ("k",)), tick(1, NO_WATERMARK, NO_WATERMARK))
    moved = Top(schema, ("k",), TUMBLING, 2, [(name, True)])
    for partition in range(PARTITIONS):
        if (found := operator.capture(partition)) is not None:
            assert operator.show(partition).column(name).to_pylist() == [7, 6]
            moved.install(partition, found.to_bytes())
    out, _ = moved.process(Rows.empty(schema, keyed=True), tick(2, NO_WATERMARK, END_OF_STREAM))
    assert out.batch.column(name).to_pylist() == [7, 6]
