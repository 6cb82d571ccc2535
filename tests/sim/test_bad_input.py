"""Input that is odd or wrong, through whole dataflows: the answers of Spark's semantics, or an error that names the box."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import BoxFailed, NondeterministicBox
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.stream.epoch import END_OF_STREAM, IDLE
from evenflow.world.sim.world import SimWorld

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.float64()), ("v", pa.float64())])
Draw = Callable[[ef.Stream], ef.Stream]


def batch(*rows: tuple[int, float | None, float | None]) -> pa.RecordBatch:
    """rows: (ts in microseconds, k, v)."""
    return pa.record_batch([list(column) for column in zip(*rows)] if rows else [[], [], []], schema=SCHEMA)


def world_of(parts: list[list[pa.RecordBatch]], draw: Draw, options: FlowOptions | None = None) -> SimWorld:
    """Three sites, one source partition per list, and what `draw` makes of the stream in sink `out`."""
    flow = ef.Dataflow("odd")
    draw(flow.source(ef.sources.memory(parts), name="rows")).to(ef.sinks.memory("out"), name="out")
    return SimWorld(layout(flow.network, sites=3, partitions=16), sites=3, options=options or FlowOptions(linger_ms=1))


def newest(table: pa.Table) -> dict[str, tuple[Any, ...]]:
    """The last row of each key, by the key's text (NaN is not equal to itself), in the order of the texts."""
    rows = {str(row.pop("k")): tuple(row.values()) for row in table.to_pylist()}
    return dict(sorted(rows.items()))


def test_null_keys_are_a_group_of_their_own_and_so_are_nan_keys() -> None:
    parts = [[batch((1, None, 1.0), (2, math.nan, 2.0), (3, 0.0, 4.0))], [batch((4, -0.0, 8.0), (5, None, 16.0), (6, math.nan, 32.0))]]
    world = world_of(parts, lambda s: s.group_by("k").agg(n="count(*)", total="sum(v)"))
    world.run_until_quiet()
    assert newest(world.output("out")) == {"None": (2, 17.0), "nan": (2, 34.0), "0.0": (2, 12.0)}


def test_nan_is_the_greatest_value_and_null_is_none() -> None:
    """Spark's order: NaN above infinity. A null takes part in no aggregate."""
    parts = [[batch((1, 1.0, math.nan), (2, 1.0, math.inf), (3, 1.0, None), (4, 2.0, None), (5, 3.0, math.nan), (6, 3.0, -1.0))]]
    world = world_of(parts, lambda s: s.group_by("k").agg(n="count(v)", low="min(v)", high="max(v)", total="sum(v)"))
    world.run_until_quiet()
    wanted = {"1.0": (2, math.inf, math.nan, math.nan), "2.0": (0, None, None, None), "3.0": (2, -1.0, math.nan, math.nan)}
    assert str(newest(world.output("out"))) == str(wanted)


def test_empty_batches_change_nothing() -> None:
    parts = [[batch(), batch((1, 1.0, 1.0)), batch(), batch((2, 1.0, 2.0)), batch()], [batch()]]
    world = world_of(parts, lambda s: s.where("v > 0").group_by("k").agg(n="count(*)", total="sum(v)"))
    world.run_until_quiet()
    assert newest(world.output("out")) == {"1.0": (2, 3.0)}


def test_a_batch_larger_than_the_window_goes_through_in_parts() -> None:
    """5,000 rows at once, where 2 epochs of 10 rows may be under way and a site grants room for one byte."""
    options = FlowOptions(linger_ms=1, window_epochs=2, epoch_rows=10, memory_bytes=1)
    rows = [(i, float(i % 7), 1.0) for i in range(5_000)]
    world = world_of([[batch(*rows)]], lambda s: s.group_by("k").agg(n="count(*)"), options)
    world.run_until_quiet()
    assert sum(n for (n,) in newest(world.output("out")).values()) == 5_000
    assert max(site.part.closed for site in world.sites) >= 500


def windows(stream: ef.Stream) -> ef.Stream:
    return stream.with_watermark("ts", "0 seconds").group_by("k").window("10 microseconds").agg(n="count(*)")


# Epochs of one row: the fourth and the last belong to the window [0, 10), which the third one's time has closed.
LATE = [[batch((1, 1.0, 1.0), (2, 1.0, 2.0), (25, 1.0, 3.0), (3, 1.0, 4.0), (26, 1.0, 5.0), (9, 1.0, 6.0))]]
ONE_ROW = FlowOptions(linger_ms=1, epoch_rows=1)


def test_late_rows_are_counted_and_dropped() -> None:
    world = world_of(LATE, windows, ONE_ROW)
    world.run_until_quiet()
    assert world.output("out").column("n").to_pylist() == [2, 2]
    assert sum(site.part.late_rows() for site in world.sites) == 2
    (late,) = [found for site in world.sites for found in site.part.late_by_box()]
    assert late[2] == 2 and late[1] in {step.box for step in world.layout.segments[late[0]].steps}


IN_ORDER: dict[str, Draw] = {
    "OVER": lambda s: ef.sql("SELECT v, count(*) OVER (ORDER BY ts ROWS UNBOUNDED PRECEDING) AS n FROM s", {"s": s}),
    "OVER last rows": lambda s: ef.sql("SELECT v, count(*) OVER (ORDER BY ts ROWS 9 PRECEDING) AS n FROM s", {"s": s}),
    "sort": lambda s: s.sort().select("v"),
}


@pytest.mark.parametrize("name", IN_ORDER)
def test_late_rows_of_boxes_in_order_of_event_time_are_counted(name: str) -> None:
    """A row without a time is before all others: it is late once some of these have come out, and so are rows of times that are over."""
    whole = pa.Table.from_batches(LATE[0])
    times = pa.array([None, None, 25, 3, None, 30], pa.timestamp("us"))
    parts = [whole.set_column(0, "ts", times).to_batches()]
    world = world_of(parts, lambda s: IN_ORDER[name](s.with_watermark("ts", "0 seconds")), ONE_ROW)
    world.run_until_quiet()
    assert world.output("out").column("v").to_pylist() == [1.0, 2.0, 3.0, 6.0]
    assert sum(site.part.late_rows() for site in world.sites) == 2


@pytest.mark.parametrize("time", [END_OF_STREAM, IDLE])
def test_a_row_with_the_greatest_time_is_not_the_end_of_its_source(time: int) -> None:
    """It makes those that come behind it late, as any row from the future does; they are read, and the run ends when the source does."""
    whole = pa.Table.from_batches(LATE[0])
    times = pa.array([10, 20, time, 30, 40, time], pa.int64()).cast(pa.timestamp("us"))
    parts = [whole.set_column(0, "ts", times).to_batches()]
    world = world_of(parts, lambda s: s.with_watermark("ts", "0 seconds").sort().select("v"), ONE_ROW)
    world.run_until_quiet()
    assert world.output("out").column("v").to_pylist() == [1.0, 2.0, 3.0, 6.0]
    assert sum(site.part.late_rows() for site in world.sites) == 2


def test_rows_that_failed_are_kept_only_where_somebody_said_so() -> None:
    def halved(stream: ef.Stream) -> ef.Stream:
        return stream.with_columns(h="100 / CAST(k AS BIGINT)").on_error("skip")

    rows = [batch(*[(i, float(i % 3), 1.0) for i in range(90)])]
    for keep in (False, True):
        world = world_of([rows] * 2, halved, FlowOptions(linger_ms=1, epoch_rows=10, keep_failed_rows=keep))
        world.run_for(0.001)
        for site in world.sites:
            site.part.failed_rows()  # A world asks from the beginning on.
        world.run_until_quiet()
        found = [each for site in world.sites for each in site.part.failed_rows()]
        assert sum(site.part.counters.rows_failed for site in world.sites) == 60
        assert bool(found) is keep and len(found) <= 20 * len(world.sites)
        assert all("k=0.0" in row and "division by zero" in error for _, row, error in found), found


def test_late_rows_can_be_had_as_a_stream() -> None:
    world = world_of(LATE, lambda s: windows(s).late(), ONE_ROW)
    world.run_until_quiet()
    assert world.output("out").column("v").to_pylist() == [4.0, 6.0]


class Refuses(ef.Processor):
    output = "v double"

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        if None in key:
            raise LookupError("who is null?")
        return [(1.0,)]


class Dice(ef.Processor):
    """Not a function of its rows: counts its calls."""

    output = "v double"

    def __init__(self) -> None:
        self.calls = itertools.count()

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        return [(float(next(self.calls)),)]


@pytest.mark.parametrize(
    ("processor", "error", "said"),
    [(Refuses(), BoxFailed, "who is null"), (Dice(), NondeterministicBox, "column 'v'")],
    ids=["raises", "dice"],
)
def test_user_code_that_fails_ends_the_run_with_the_name_of_its_box(processor: ef.Processor, error: type[BoxFailed], said: str) -> None:
    world = world_of([[batch((1, None, 1.0))]], lambda s: s.key_by("k").process(processor).name("mine"))
    with pytest.raises(BoxFailed, match=said) as raised:
        world.run_until_quiet()
    assert (raised.value.box, raised.value.epoch) == ("mine", 1)
    assert type(raised.value) is error
    assert "in process" in raised.value.user_traceback or error is NondeterministicBox
