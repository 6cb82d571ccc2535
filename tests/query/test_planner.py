"""Where the network is cut, and what stands before and behind an exchange."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError
from evenflow.operator.catalogue import build
from evenflow.plan.layout import Dealt, Keyed, Layout, Port, Segment, Single, Spread
from evenflow.query.planner import layout
from evenflow.query.text import layout_text, network_text
from evenflow.query.whole import moved_whole
from tests.query.networks import PACKETS, Tracker, packets, session_monitor


class Keeper(Tracker):
    """Its output rows carry the key of the rows that they answer."""

    keeps_key = True


def planned(flow: ef.Dataflow, **options: int) -> Layout:
    return layout(flow.network, sites=2, partitions=8, **options)


def kinds(segment: Segment) -> list[str]:
    return [step.kind for step in segment.steps]


def two_feeds(name: str = "feeds") -> tuple[ef.Dataflow, ef.Stream]:
    flow = ef.Dataflow(name)
    return flow, packets(flow, name="left", partitions=2).union(packets(flow, name="right").where("proto = 17", name="udp"))


def test_a_dataflow_without_a_sink_is_not_planned() -> None:
    flow = ef.Dataflow("loose")
    packets(flow).where("proto = 6", name="tcp")
    with pytest.raises(QueryError, match="'tcp' leads to no sink"):
        planned(flow)


def test_stateless_boxes_stay_with_the_source_and_the_watermark_goes_last() -> None:
    flow = ef.Dataflow("f")
    packets(flow).where("proto = 6").select("src", "ts").to(ef.sinks.discard())
    (only,) = planned(flow).segments
    assert (only.kind, only.source, only.partitions, kinds(only)) == ("ingress", "packets", 3, ["filter", "select", "discard", "watermark"])
    assert only.steps[-1].params == {"time": "ts", "delay_us": 10_000_000, "idle_us": None}
    assert only.steps[-1].source == Port(-1) and only.steps[2].source == Port(1)


def test_a_keyed_box_is_behind_an_exchange_by_its_key() -> None:
    flow = ef.Dataflow("f")
    packets(flow, watermark=False).key_by("src", "dst").process(Tracker()).to(ef.sinks.memory("m"))
    _, process, egress = planned(flow).segments
    first, second = planned(flow).arcs
    assert (first.route, first.producer, first.consumer, process.partitions) == (Keyed(("src", "dst")), 0, 1, 8)
    assert (process.kind, kinds(process), process.user_code, process.sensitive) == ("inner", ["process"], True, True)
    assert (second.route, egress.kind, egress.partitions, egress.sink, egress.sensitive) == (Single(), "egress", 1, "memory", True)
    assert planned(flow).sinks.keys() == {"memory"} and planned(flow).sources.keys() == {"packets"}


def test_rows_that_are_dealt_out_are_a_segment_of_its_own() -> None:
    flow = ef.Dataflow("f")
    there = packets(flow).where("proto = 6").repartition(5).select("src", "length", "ts")
    there.group_by("src").agg(n="count(*)").to(ef.sinks.discard())
    plan = planned(flow)
    source, dealt, counted = plan.segments
    assert (kinds(source), kinds(dealt)) == (["filter", "watermark"], ["select", "combine"])
    assert (dealt.kind, dealt.partitions, dealt.sensitive, plan.dealt()) == ("inner", 5, True, (1,)), "combining minds the order"
    assert [arc.route for arc in plan.arcs] == [Dealt(), Keyed(("src",))] and counted.partitions == 8
    assert "dealt out" in layout_text(plan)


def test_a_watermark_behind_a_deal_is_refused() -> None:
    flow = ef.Dataflow("f")
    packets(flow, watermark=False).repartition().with_watermark("ts", "1 second").to(ef.sinks.discard())
    with pytest.raises(QueryError, match="declare it before 'repartition', right after the source"):
        planned(flow)


def test_a_union_disappears_and_what_follows_it_runs_in_every_producer() -> None:
    flow, both = two_feeds()
    both.where("length > 100", name="big").group_by("src").rows(5, order="arrival").agg(m="max(length)").to(ef.sinks.discard())
    left, right, rows = planned(flow).segments
    assert [step.box for step in left.steps] == ["big", "aggregate", "watermark"]
    assert [step.box for step in right.steps] == ["udp", "big", "aggregate", "watermark_2"]
    assert len(rows.inputs) == 2 and rows.sensitive
    assert {planned(flow).arcs[i].schema for i in rows.inputs} == {pa.schema([PACKETS.field(n) for n in ("ts", "src", "length")])}


def test_united_streams_agree_on_what_may_be_null() -> None:
    flow = ef.Dataflow("f")
    strict = pa.schema([pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.string())])
    loose = pa.schema([pa.field("x", pa.int64()), pa.field("y", pa.string())])
    one, two = (flow.source(ef.sources.memory([], 1, schema=s), name=n) for s, n in ((strict, "one"), (loose, "two")))
    one.union(two).to(ef.sinks.memory("m"))
    result = planned(flow)
    assert all(arc.schema.equals(loose) for arc in result.arcs)
    assert [len(segment.steps) for segment in result.segments] == [1, 0, 0]
    assert not result.segments[0].user_code
    assert_operators_agree(result)


def test_a_combinable_aggregate_is_combined_before_the_exchange() -> None:
    flow = ef.Dataflow("f")
    packets(flow).group_by("src").agg(n="count(*)", total="sum(length)").to(ef.sinks.discard())
    ingress, aggregate = planned(flow).segments
    assert kinds(ingress) == ["combine", "watermark"]
    assert aggregate.steps[0].params["partial"] is True
    assert not aggregate.sensitive
    assert "rate" not in planned(flow).arcs[0].schema.names


@pytest.mark.parametrize(
    "draw",
    [
        lambda s: s.group_by("src").agg(n="sum(length)", combine=False),
        lambda s: s.group_by("src").rows(10).agg(n="sum(length)"),
        lambda s: s.group_by("src").agg(n="first(length)"),
        lambda s: s.group_by("src").agg(n="approx_count_distinct(length)"),
        lambda s: s.group_by("src").agg(n="max(dst)"),
    ],
    ids=["not wanted", "row window", "order", "sketch", "text"],
)
def test_other_aggregates_are_not_combined(draw) -> None:
    flow = ef.Dataflow("f")
    draw(packets(flow)).to(ef.sinks.discard())
    ingress, aggregate = planned(flow).segments
    assert "combine" not in kinds(ingress)
    assert aggregate.steps[-2].params["partial"] is False


def test_an_aggregate_whose_late_rows_are_read_gets_whole_rows() -> None:
    flow = ef.Dataflow("f")
    counts = packets(flow).group_by("src").window("1 minute").agg(n="count(*)")
    counts.to(ef.sinks.discard(), name="results")
    counts.late().to(ef.sinks.memory("m"), name="late")
    result = planned(flow)
    assert "combine" not in kinds(result.segments[0])
    assert result.arcs[0].schema == PACKETS
    assert result.arcs[1].port == Port(0, 1)


@pytest.mark.parametrize(
    ("draw", "reason"),
    [
        (lambda s: s.group_by("src").agg(n="sum(length)", combine=False), "combine=False"),
        (lambda s: s.group_by("src").rows(10).agg(n="sum(length)"), "windows that count rows"),
        (lambda s: s.group_by("src").agg(n="count(*)", a="first(length)", b="max(dst)"), r"first\(length\), max\(dst\) cannot be combined"),
        (lambda s: s.group_by("src").agg(n="count(*)", order="event_time"), "wanted in order"),
        (lambda s: s.group_by("src").session("1 minute").agg(n="count(*)"), "session"),
        (lambda s: s.key_by("src").process(Tracker()), "a process box needs every row"),
    ],
    ids=["not wanted", "row window", "calls", "order", "session", "process"],
)
def test_keys_that_can_only_be_moved_whole_are_told_and_why(draw, reason: str) -> None:
    flow = ef.Dataflow("f")
    draw(packets(flow)).to(ef.sinks.discard())
    (found,) = moved_whole(planned(flow))
    assert (found.segment, found.keys) == (1, ("src",))
    assert re.search(reason, found.reason)
    assert f"  keys    can only be moved whole: {found.reason}" in layout_text(planned(flow)).splitlines()
    assert str(found) == f"{found.box} by src: {found.reason}"


def test_windows_over_a_time_with_a_zone_are_combined_before_the_exchange() -> None:
    kind = pa.timestamp("us", "UTC")
    flow = ef.Dataflow("f")
    schema = pa.schema([("ts", kind), ("src", pa.string())])
    rows = flow.source(ef.sources.memory([], 1, schema=schema)).with_watermark("ts", "1 second")
    made = rows.group_by("src").window("1 minute").agg(n="count(*)")
    assert made.schema.field("window_start").type == made.schema.field("window_end").type == kind
    made.to(ef.sinks.discard())
    assert not moved_whole(planned(flow))
    assert "combine" in [step.kind for step in planned(flow).segments[0].steps]


def test_late_rows_that_are_read_keep_keys_whole() -> None:
    flow = ef.Dataflow("f")
    counts = packets(flow).group_by("src").window("1 minute").agg(n="count(*)")
    counts.to(ef.sinks.discard(), name="results")
    counts.late().to(ef.sinks.memory("m"), name="late")
    assert [found.reason for found in moved_whole(planned(flow))] == ["its late rows are read"]


def test_keys_that_are_combined_are_not_moved_whole_and_no_keys_are_no_keys() -> None:
    flow = ef.Dataflow("f")
    counts = packets(flow).group_by("src").window("1 minute").agg(n="count(*)")
    counts.group_by().agg(n="first(n)").to(ef.sinks.discard())
    assert moved_whole(planned(flow)) == ()


def test_columns_that_nobody_reads_are_not_sent() -> None:
    flow = ef.Dataflow("f")
    packets(flow).group_by("src").rows(10, tie_break=["dst"]).agg(m="max(length)").to(ef.sinks.discard())
    assert planned(flow).arcs[0].schema.names == ["ts", "src", "dst", "length"]


def test_order_is_put_before_what_depends_on_it_and_then_frames_may_arrive_in_any() -> None:
    flow = ef.Dataflow("f")
    packets(flow).key_by("src").process(Tracker()).late().to(ef.sinks.memory("m"))
    flow.stream("Tracker").to(ef.sinks.discard())
    _, process, _ = planned(flow).segments
    assert kinds(process) == ["order", "process", "discard"]
    assert process.steps[0].params == {"time": "ts", "tie_break": ("src", "dst", "proto", "length", "rate")}
    assert not process.sensitive
    assert planned(flow).arcs[1].port == Port(0, 1)


def test_an_order_that_leaves_ties_open_needs_frames_in_canonical_order() -> None:
    flow = ef.Dataflow("f")
    packets(flow).key_by("src").process(Tracker(), tie_break=["dst"]).to(ef.sinks.discard())
    assert planned(flow).segments[1].sensitive


def test_who_feeds_a_sensitive_segment_is_sensitive_too() -> None:
    flow = ef.Dataflow("f")
    counts = packets(flow, watermark=False).group_by("src").agg(n="count(*)")
    counts.group_by("n").agg(all="collect_list(src)").to(ef.sinks.discard())
    assert [segment.sensitive for segment in planned(flow).segments] == [False, True, True]
    flow = ef.Dataflow("g")
    packets(flow, watermark=False).group_by("src").agg(n="count(*)").group_by("n").agg(m="max(src)").to(ef.sinks.discard())
    assert [segment.sensitive for segment in planned(flow).segments] == [False, False, False]


def test_float_sums_need_canonical_order_and_integer_sums_do_not() -> None:
    for column, sensitive in (("rate", True), ("length", False)):
        flow = ef.Dataflow("f")
        packets(flow).group_by("src").agg(n=f"sum({column})").to(ef.sinks.discard())
        assert planned(flow).segments[1].sensitive is sensitive


def test_rows_that_are_where_their_key_wants_them_are_not_sent_again() -> None:
    flow = ef.Dataflow("f")
    counts = packets(flow).group_by("src").window("1 minute").agg(n="count(*)")
    counts.where("n > 1").group_by("src").window("1 hour").agg(m="max(n)").to(ef.sinks.discard())
    assert kinds(planned(flow).segments[1]) == ["aggregate", "filter", "select", "aggregate", "discard"]


@pytest.mark.parametrize(
    ("draw", "segments"),
    [
        (lambda s: s.key_by("src").process(Tracker()).group_by("src").count(), 3),
        (lambda s: s.key_by("src").process(Keeper()).group_by("src").count(), 2),
        (lambda s: s.group_by("src", "dst").count().group_by("src").agg(n="count(*)"), 3),
        (lambda s: s.group_by("src").count().with_columns(src="upper(src)").group_by("src").agg(n="count(*)"), 3),
        (lambda s: s.group_by("src").count().select("src as host").group_by("host").agg(n="count(*)"), 3),
    ],
    ids=["process", "process that keeps its key", "other key", "changed key", "renamed key"],
)
def test_where_that_is_unsure_there_is_a_cut(draw, segments: int) -> None:
    flow = ef.Dataflow("f")
    draw(packets(flow)).to(ef.sinks.discard())
    assert len(planned(flow).segments) == segments


def test_without_a_key_there_is_one_partition() -> None:
    flow = ef.Dataflow("f")
    packets(flow).agg(n="count(*)").to(ef.sinks.discard())
    _, total = planned(flow).segments
    assert (total.partitions, planned(flow).arcs[0].route) == (1, Single())


def test_a_sink_that_writes_in_the_sites_has_writers_and_one_that_commits() -> None:
    flow = ef.Dataflow("f")
    packets(flow).to(ef.sinks.parquet("out"), name="files")
    result = planned(flow)
    _, stage, commit = result.segments
    assert (stage.kind, stage.partitions, kinds(stage), result.arcs[0].route) == ("egress", 2, ["stage"], Spread())
    assert (commit.kind, commit.partitions, kinds(commit), result.arcs[1].route) == ("egress", 1, ["commit"], Single())
    assert (stage.sink, commit.sink) == (None, None)
    assert stage.steps[0].params["path"] == "out"
    assert planned(flow, writers=5).segments[1].partitions == 5


def test_a_watermark_stands_once_and_before_keyed_boxes() -> None:
    flow = ef.Dataflow("f")
    rows = packets(flow, watermark=False)
    rows.with_watermark("ts", "1 s").union(rows.with_watermark("ts", "2 s")).to(ef.sinks.discard())
    with pytest.raises(QueryError, match="'watermark_2'.*'packets' has a watermark from 'watermark' already"):
        planned(flow)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ef.sinks.table("a.db", "t"), ef.sinks.table("./b/../a.db", "t", "src")),
        (ef.sinks.table("postgres://h/d", "t"), ef.sinks.table("postgresql://h/d", "t")),
        (ef.sinks.table(len, "t"), ef.sinks.table(len, "t")),
        (ef.sinks.parquet("/data/t"), ef.sinks.parquet("file:///data/t/")),
        (ef.sinks.delta("s3://data/t"), ef.sinks.delta("s3://data/t/", partition_by="src")),
        (ef.sinks.iceberg("data.t"), ef.sinks.iceberg("data.t", commit_s=2)),
    ],
    ids=lambda sink: f"{sink.kind}",
)  # fmt: skip
def test_two_boxes_do_not_write_into_one_place(one: Any, other: Any) -> None:
    """Each takes the epochs of the other for its own, and what it has of them is lost."""
    flow, stream = two_feeds()
    stream.where("proto = 1").to(one, name="a")
    stream.where("proto = 2").to(other, name="b")
    with pytest.raises(QueryError, match=r"sinks 'a' and 'b' would both write into .*; unite their streams before, or give each its own"):
        planned(flow)


def test_two_boxes_write_into_two_tables_of_a_database() -> None:
    flow, stream = two_feeds()
    for table in ("t", "u"):
        stream.to(ef.sinks.table("a.db", table))
    planned(flow)


def test_a_layout_is_a_function_of_its_arguments() -> None:
    one, two = (layout(session_monitor().network, sites=4) for _ in range(2))
    assert layout_text(one) == layout_text(two)
    with pytest.raises(QueryError, match="at least 1"):
        layout(session_monitor().network, sites=0)


def assert_operators_agree(result: Layout) -> None:
    """Every schema that the planner wrote down is the one that the operator before it puts out, and every input is an earlier port."""
    for segment in result.segments:
        ports = {-1: (segment.schema,)}
        for number in segment.inputs:
            assert result.arcs[number].schema.equals(segment.schema) and result.arcs[number].producer < segment.id
        for index, step in enumerate(segment.steps):
            assert ports[step.source.step][step.source.port].equals(step.schema), step
            ports[index] = build(step).schemas
        for number in segment.outputs:
            arc = result.arcs[number]
            assert ports[arc.port.step][arc.port.port].equals(arc.schema), arc


@pytest.mark.parametrize("draw", [session_monitor, lambda: finished(two_feeds()[1])], ids=["sessions", "feeds"])
def test_operators_put_out_what_the_planner_says(draw) -> None:
    assert_operators_agree(planned(draw()))


def finished(stream: ef.Stream) -> ef.Dataflow:
    counts = stream.group_by("src").window("1 minute", slide="20 s").agg(n="count(*)", m="max(rate) - min(rate)", s="stddev(length + 1)")
    counts.to(ef.sinks.memory("m"), name="minutes")
    counts.group_by("src").window("1 hour").agg(peak="max(n)").to(ef.sinks.parquet("out"))
    stream.group_by().agg(n="count(*)", firsts="collect_list(src)").to(ef.sinks.console())
    return stream.flow


SESSIONS_TEXT = (Path(__file__).parent / "sessions_network.txt").read_text(encoding="utf-8")
LAYOUT_TEXT = (Path(__file__).parent / "sessions_layout.txt").read_text(encoding="utf-8")


def test_the_session_network_as_text() -> None:
    assert network_text(session_monitor().network) == SESSIONS_TEXT


def test_the_session_layout_as_text() -> None:
    assert layout_text(layout(session_monitor().network, sites=4, partitions=16)) == LAYOUT_TEXT


def test_explain_prints_both(capsys: pytest.CaptureFixture[str]) -> None:
    session_monitor().explain(sites=4, partitions=16)
    assert capsys.readouterr().out == f"{SESSIONS_TEXT}\n{LAYOUT_TEXT}"


def test_what_is_printed_of_names_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    flow = ef.Dataflow("a\x1b[2Jb")
    rows = packets(flow).where("proto = 6\n and length > 0", name="one\ntwo").select("src as `x\x1b[31m\x07`")
    rows.to(ef.sinks.memory("out"), name="fo\rur")
    flow.explain(sites=2, partitions=4)
    out = capsys.readouterr().out
    assert set("\x1b\x07\r").isdisjoint(out)
    lines = out.splitlines()
    assert sum(line.startswith("  one\\ntwo ") for line in lines) == 1 and "\\x1b[31m\\x07" in out and "fo\\x0dur" in out
    assert len(flow.to_text().splitlines()) == 6
