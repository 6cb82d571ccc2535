"""Columns that nobody reads do not enter: what is kept of a source, and that the answer is the same."""

from __future__ import annotations

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld

SCHEMA = pa.schema([(name, pa.int64()) for name in ("a", "b", "c", "d")] + [("ts", pa.timestamp("us"))])
ROWS = pa.RecordBatch.from_pylist([{"a": i % 3, "b": i, "c": -i, "d": 7, "ts": i} for i in range(100)], schema=SCHEMA)


def kept(shape: object) -> list[str]:
    flow = ef.Dataflow("f")
    shape(flow.source(ef.sources.memory([[ROWS]]), name="in"))  # type: ignore[operator]
    names: list[str] = layout(flow.network, sites=2).segments[0].schema.names
    return names


def test_what_is_read_is_kept_in_the_order_of_the_source() -> None:
    assert kept(lambda s: s.group_by("a").agg(n="count(*)", t="sum(c)").to(ef.sinks.discard())) == ["a", "c"]
    assert kept(lambda s: s.where("d > 1").select("c + a as x").to(ef.sinks.memory("out"))) == ["a", "c", "d"]
    assert kept(lambda s: s.with_watermark("ts", "1 second").group_by("b").agg(n="count(*)").to(ef.sinks.discard())) == ["b", "ts"]
    assert kept(lambda s: s.select("1 as one").to(ef.sinks.memory("out"))) == ["a"], "a row without a column cannot be counted"


def test_what_a_box_only_hands_on_and_nobody_reads_is_not_kept() -> None:
    """An aggregate of an expression, a new column, and a chain of both with a filter between: only what is read enters."""
    end = ef.sinks.discard()
    assert kept(lambda s: s.group_by("a").agg(t="sum(b * 2)").to(end)) == ["a", "b"]
    assert kept(lambda s: s.with_column("x", "b + 1").where("x > 0 and d > 0").group_by("a").agg(t="sum(x + 1)").to(end)) == ["a", "b", "d"]
    timed = kept(lambda s: s.with_watermark("ts", "1 second").with_column("x", "b").group_by("a").agg(n="count(x)").to(end))
    assert timed == ["a", "b", "ts"]
    assert kept(lambda s: s.with_column("x", "b + 1").group_by("a").agg(n="count(*)").to(end)) == ["a", "b"], "an error in x is an error"


def test_what_one_of_several_reads_is_kept() -> None:
    def shape(s: object) -> None:
        made = s.with_column("x", "b + 1")  # type: ignore[attr-defined]
        made.group_by("a").agg(t="sum(x)").to(ef.sinks.discard())
        made.select("c").to(ef.sinks.memory("out"))

    assert kept(shape) == ["a", "b", "c"]
    assert kept(lambda s: s.with_column("x", "b + 1").to(ef.sinks.memory("out"))) == SCHEMA.names


def test_rows_that_are_left_out_by_a_filter_are_whole() -> None:
    def shape(s: object) -> None:
        made = s.with_column("x", "b + 1").where("1 / c > 0").on_error("skip")  # type: ignore[attr-defined]
        made.select("a").to(ef.sinks.memory("out"))
        made.dead_letters().select("d", "error").to(ef.sinks.memory("dead"))

    assert kept(shape) == SCHEMA.names


def several(s: object) -> None:
    s.select("a").to(ef.sinks.memory("x"))  # type: ignore[attr-defined]
    s.where("b > 0").to(ef.sinks.memory("y"))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "shape",
    [
        lambda s: s.to(ef.sinks.memory("out")),
        lambda s: s.where("a = 1").to(ef.sinks.memory("out")),
        several,
    ],
)
def test_where_a_row_goes_on_as_it_is_everything_is_kept(shape: object) -> None:
    assert kept(shape) == SCHEMA.names


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_answer_is_the_same(replicas: int) -> None:
    flow = ef.Dataflow("f")
    rows = flow.source(ef.sources.memory([[ROWS]]), name="in").where("d = 7")
    rows.group_by("a").agg(n="count(*)", total="sum(c)").to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(flow.network, sites=2), sites=2, replicas=replicas, options=FlowOptions(linger_ms=1))
    assert world.layout.segments[0].schema.names == ["a", "c", "d"]
    world.run_until_quiet()
    newest = {row["a"]: row for row in world.output("out").to_pylist()}
    assert newest == {a: {"a": a, "n": len(range(a, 100, 3)), "total": -sum(range(a, 100, 3))} for a in range(3)}


def test_the_answer_is_the_same_behind_boxes_that_hand_on_less() -> None:
    flow = ef.Dataflow("f")
    rows = flow.source(ef.sources.memory([[ROWS]]), name="in").with_column("x", "b - c").where("x >= 20")
    rows.group_by("a").agg(n="count(*)", total="sum(x * 2)").to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(flow.network, sites=2), sites=2, options=FlowOptions(linger_ms=1))
    assert world.layout.segments[0].schema.names == ["a", "b", "c"]
    world.run_until_quiet()
    newest = {row["a"]: row for row in world.output("out").to_pylist()}
    assert newest == {
        a: {"a": a, "n": len(range(a, 100, 3)) - len(range(a, 10, 3)), "total": 4 * (sum(range(a, 100, 3)) - sum(range(a, 10, 3)))}
        for a in range(3)
    }
