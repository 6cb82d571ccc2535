"""join_latest: what it makes of times, nulls and keys that go, in one epoch and in many, and what it refuses."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError, TypeMismatch, UnknownColumn
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld

ROWS = [(10, "a", 1), (20, None, 2), (30, "a", 3), (30, "b", 4), (50, "a", 5)]
CHANGES = [(5, "a", 0.5), (15, None, 1.5), (30, "a", None), (40, "b", 4.0), (45, "a", -1.0), (49, "b", 9.0)]


def table(rows: list[Any], names: list[str]) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.table([pa.array(columns[0], pa.timestamp("us")), *columns[1:]], names=names)


def drawn(*, timed: bool = True, changes: pa.Table | None = None, **more: Any) -> ef.Stream:
    flow = ef.Dataflow("latest")
    rates = table(CHANGES, ["at", "k", "rate"]) if changes is None else changes
    left = flow.source(ef.sources.memory(table(ROWS, ["ts", "k", "id"])), name="rows")
    right = flow.source(ef.sources.memory(rates), name="changes")
    if timed:
        left, right = left.with_watermark("ts", "1 second"), right.with_watermark("at", "1 second")
    return left.join_latest(right, "k", **more)


def found(stream: ef.Stream, epoch_rows: int = 1_000) -> list[tuple[Any, ...]]:
    stream.to(ef.sinks.memory("out"), name="out")
    options = FlowOptions(linger_ms=1.0, epoch_rows=epoch_rows)
    world = SimWorld(layout(stream.flow.network, sites=2, partitions=4), sites=2, options=options, read_rows=epoch_rows, seed=1)
    world.run_until_quiet()
    rows: list[dict[str, Any]] = world.output("out").to_pylist()
    return sorted((row["id"], *(row[name] for name in row if name not in ("id", "ts", "k", "at"))) for row in rows)


@pytest.mark.parametrize("epoch_rows", [1, 2, 1_000])
def test_the_newest_change_that_is_not_later_counts(epoch_rows: int) -> None:
    """A null is a key; a change that says null is a change; a row and a change at the same time meet."""
    assert found(drawn(), epoch_rows) == [(1, 0.5), (2, 1.5), (3, None), (4, None), (5, -1.0)]
    assert found(drawn(how="inner"), epoch_rows) == [(1, 0.5), (2, 1.5), (3, None), (5, -1.0)]


@pytest.mark.parametrize("epoch_rows", [1, 1_000])
def test_a_key_that_is_deleted_has_nothing_until_it_comes_again(epoch_rows: int) -> None:
    assert found(drawn(how="inner", deleted="rate < 0"), epoch_rows) == [(1, 0.5), (2, 1.5), (3, None)]
    assert found(drawn(how="inner", deleted="rate is null"), epoch_rows) == [(1, 0.5), (2, 1.5), (5, -1.0)]


def test_the_key_is_found_whatever_the_case_of_its_letters() -> None:
    changes = table(CHANGES, ["at", "K", "rate"])
    assert found(drawn(changes=changes)) == [(1, 0.5), (2, 1.5), (3, None), (4, None), (5, -1.0)]


def test_event_time_and_key_go_on() -> None:
    made = drawn()
    assert made.columns == ["ts", "k", "id", "at", "rate"] and made.event_time == "ts"
    behind = made.group_by("k").window("10 seconds").agg(n="count(*)").to(ef.sinks.discard())
    names = [segment.name for segment in layout(behind.flow.network, sites=2).segments]
    assert names.count("aggregate") == 0, "the same key needs no other exchange"


def test_by_arrival_nothing_waits_and_no_watermark_is_needed() -> None:
    made = drawn(timed=False)
    assert made.event_time is None and made.box.params["order"] == "arrival"
    assert [row[0] for row in found(made)] == [1, 2, 3, 4, 5]


def test_columns_of_every_plain_type_are_kept() -> None:
    changes = pa.table(
        {
            "at": pa.array([5], pa.timestamp("us")), "k": ["a"], "b": [True], "i": pa.array([7], pa.int32()), "s": ["x"], "raw": [b"\x00"],
            "day": [date(2026, 1, 2)], "d": pa.array([Decimal("1.50")], pa.decimal128(9, 2)), "f": pa.array([0.5], pa.float32()),
        }
    )  # fmt: skip
    seen = (True, 7, "x", b"\x00", date(2026, 1, 2), Decimal("1.50"), 0.5)
    for epoch_rows in (1, 1_000):
        rows = found(drawn(changes=changes, how="inner"), epoch_rows)
        assert rows == [(1, *seen), (3, *seen), (5, *seen)]


def test_structures_lists_and_maps_are_kept() -> None:
    place = pa.struct([("city", pa.string()), ("at", pa.list_(pa.int32()))])
    changes = pa.table(
        {
            "at": pa.array([5, 35], pa.timestamp("us")), "k": ["a", "a"],
            "s": pa.array([{"city": "Oslo", "at": [1, None]}, None], place),
            "m": pa.array([[("x", 1)], []], pa.map_(pa.string(), pa.int64())), "l": [[1, 2], None],
        }
    )  # fmt: skip
    first, second = ({"city": "Oslo", "at": [1, None]}, [("x", 1)], [1, 2]), (None, [], None)
    for epoch_rows in (1, 1_000):
        assert found(drawn(changes=changes, how="inner"), epoch_rows) == [(1, *first), (3, *first), (5, *second)]


def test_it_survives_json() -> None:
    flow = drawn(deleted="rate < 0").to(ef.sinks.discard()).flow
    assert ef.Dataflow.from_json(flow.to_json()).to_json() == flow.to_json()


LISTS = pa.table({"at": pa.array([1], pa.timestamp("us")), "k": ["a"], "l": [[1]]})


@pytest.mark.parametrize(
    ("more", "error", "says"),
    [
        ({"how": "full"}, QueryError, "how is 'full'; it must be 'left' or 'inner'"),
        ({"changes": table([(1, "a", 2)], ["at", "k", "id"])}, QueryError, "both streams have a column 'id'; give suffix='_r'"),
        ({"changes": table([(1, 7, 2)], ["at", "k", "rate"])}, TypeMismatch, "the key 'k' is string on the left and int64 on the right"),
        ({"changes": table([(1, "a", 2)], ["at", "key", "rate"])}, UnknownColumn, "there is no column 'k'"),
        ({"timed": False, "order": "event_time"}, QueryError, "needs a watermark on both streams"),
        ({"deleted": "gone"}, UnknownColumn, "there is no column 'gone'"),
    ],
)
def test_mistakes(more: dict[str, Any], error: type[QueryError], says: str) -> None:
    with pytest.raises(error, match=says):
        drawn(**more)


def test_a_table_is_not_a_stream_of_changes() -> None:
    left = ef.Dataflow("f").source(ef.sources.memory(table(ROWS, ["ts", "k", "id"])))
    with pytest.raises(QueryError, match=r"follows a stream, not Table; a table that stays as it is goes into join"):
        left.join_latest(LISTS, "k")  # type: ignore[arg-type]


def test_a_stream_can_follow_itself() -> None:
    rows = ef.Dataflow("f").source(ef.sources.memory(table(ROWS, ["ts", "k", "id"]))).with_watermark("ts", "1 second")
    assert [(row[0], row[2]) for row in found(rows.join_latest(rows, "k", suffix="_r"))] == [(n, n) for n in range(1, 6)]
