"""What users write: columns and event time that come out, and what is refused, with the box's name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import evenflow as ef
from evenflow.errors import EvenflowError, QueryError, TypeMismatch, UnknownColumn
from evenflow.query.aggregates import TimeWindow
from tests.query.networks import Tracker, packets, session_monitor

Draw = Callable[[ef.Stream], object]


@pytest.fixture
def flow() -> ef.Dataflow:
    return ef.Dataflow("test")


@pytest.fixture
def rows(flow: ef.Dataflow) -> ef.Stream:
    return packets(flow)


@pytest.fixture
def timeless(flow: ef.Dataflow) -> ef.Stream:
    return packets(flow, name="timeless", watermark=False)


def types(stream: ef.Stream) -> dict[str, str]:
    return {field.name: str(field.type) for field in stream.schema}


# ---------------------------------------------------------------- what comes out


def test_a_select_gives_exactly_its_columns(rows: ef.Stream) -> None:
    out = rows.select("ts", "src as host", "length + 1 as more", twice=lambda batch: pc.multiply(batch.column("rate"), 2.0))
    assert types(out) == {"ts": "timestamp[us]", "host": "string", "more": "int32", "twice": "double"}
    assert out.event_time == "ts"


def test_event_time_goes_with_its_column(rows: ef.Stream) -> None:
    """Under another name, too, as a watermark does in Spark."""
    assert rows.with_columns(big="length > 100").event_time == "ts"
    assert rows.drop("ts").event_time is None
    renamed = rows.select("src", "ts as time")
    assert (renamed.event_time, renamed.type.watermark_delay_us) == ("time", rows.type.watermark_delay_us)
    assert rows.select("ts as time", "ts").event_time == "ts"
    assert rows.with_column_renamed("ts", "at").event_time == rows.with_columns_renamed({"ts": "at"}).event_time == "at"
    assert rows.to_df(*"abcdef").event_time == "a"
    assert rows.select("ts + interval 1 hour as time").event_time is None
    assert rows.with_columns(ts="timestamp '2020-01-01 00:00:00'").event_time is None


def test_with_columns_replaces_in_place_and_adds_at_the_end(rows: ef.Stream) -> None:
    out = rows.with_columns(length="cast(length as double)", kb="length / 1024")
    assert out.columns == [*rows.columns, "kb"]
    assert types(out)["length"] == "double"


def test_names_are_found_whatever_the_case_of_their_letters(rows: ef.Stream) -> None:
    """As Spark finds them by default; tests/query/test_cleaned.py has the other methods."""
    made = rows.with_column("LENGTH", "length + 1")
    assert made.columns == [name if name != "length" else "LENGTH" for name in rows.columns]
    assert made.select("length * 2 as n").flow is rows.flow
    assert rows.with_columns(Length="Length + 1", kb="length / 1024").columns[-1] == "kb"
    assert rows.group_by("SRC").agg(n="count(*)").columns == ["src", "n"]
    assert rows.key_by("Src").keys == ("src",)
    assert rows.drop("TS").event_time is None
    lists = rows.select("src", "split(src, ',') AS Parts", "ts")
    assert lists.explode("parts").columns == ["src", "Parts", "ts"]
    assert lists.select("ts", "map(src, 1) AS Each").explode("EACH").columns == ["ts", "key", "value"]
    top = rows.group_by("src").window("1 minute").top(3, order_by=["LENGTH desc", "Src"])
    assert top.box.params["by"] == (("length", True), ("src", False))
    totals = rows.group_by("src").agg(n="count(*)", mode="changelog")
    assert totals.complete(order_by="N desc").box.params["by"] == (("n", True),)
    assert rows.sort(tie_break="SRC").box.params["tie_break"] == ("src",)
    assert rows.bsort("TS", 5).box.params["column"] == "ts"
    assert rows.lookup(str, "said string", on="SRC").box.params["on"] == ("src",)
    two = rows.with_column("n", "1").select("n", "length as N")
    assert two.with_column("N", "2").columns == ["n", "N"]
    with pytest.raises(EvenflowError, match="ambiguous"):
        rows.select("length as ab", "length as AB").with_column("Ab", "1")
    with pytest.raises(EvenflowError, match="two columns called"):
        rows.with_columns({"LENGTH": "1", "Length": "2"})


def test_a_star_stands_for_all_columns(rows: ef.Stream) -> None:
    assert rows.select("*", "length * 2 as twice").columns == [*rows.columns, "twice"]


def test_a_running_aggregate_has_keys_then_calls_and_no_time(rows: ef.Stream) -> None:
    out = rows.group_by("src").agg("count(*) as n", total="sum(length)", mean="avg(length)")
    assert types(out) == {"src": "string", "n": "int64", "total": "int64", "mean": "double"}
    assert out.event_time is None


def test_a_time_window_puts_its_bounds_behind_the_keys(rows: ef.Stream) -> None:
    out = rows.group_by("src").window("1 minute", slide="30 seconds").agg(total="sum(length)")
    assert out.columns == ["src", "window_start", "window_end", "total"]
    assert out.event_time == "window_end"
    assert out.box.params["window"] == TimeWindow("ts", 60_000_000, 30_000_000)


def test_a_row_window_keeps_the_time_of_the_row_that_completed_it(rows: ef.Stream, timeless: ef.Stream) -> None:
    out = rows.group_by("src").rows(100, slide=10).agg(m="max(length)")
    assert (out.columns, out.event_time, out.box.params["order"]) == (["src", "ts", "m"], "ts", "event_time")
    out = timeless.group_by("src").rows(100).agg(m="max(length)")
    assert (out.columns, out.event_time, out.box.params["order"]) == (["src", "m"], None, "arrival")


def test_a_process_gives_what_it_declares(rows: ef.Stream) -> None:
    out = rows.key_by("src").process(Tracker())
    assert types(out) == {"ts": "timestamp[us]", "src": "string", "app": "string", "dur": "double"}
    assert (out.event_time, out.box.name) == ("ts", "Tracker")


def test_an_expression_in_an_aggregate_is_computed_before_it(rows: ef.Stream) -> None:
    out = rows.group_by("src").agg(peak="max(length + 1)", again="sum(length + 1)")
    before = rows.flow.network.box("aggregate.in")
    assert before.schemas[0].names == [*rows.columns, "_arg0"]
    assert [call.column for call in out.box.params["calls"]] == ["_arg0", "_arg0"]
    assert out.columns == ["src", "peak", "again"]


def test_a_compound_result_is_computed_after_it(rows: ef.Stream) -> None:
    out = rows.group_by("src").agg(mean="sum(length) / count(*)", n="count(*)").name("stats")
    assert types(out) == {"src": "string", "mean": "double", "n": "int64"}
    assert (out.box.name, out.box.inputs) == ("stats.out", (("stats", 0),))
    assert len(rows.flow.network.box("stats").params["calls"]) == 3


def test_late_rows_are_as_they_came_in(rows: ef.Stream) -> None:
    plain = rows.group_by("src").window("1 minute").agg(n="count(*)").late()
    assert (plain.columns, plain.event_time, plain.port) == (rows.columns, None, 1)
    computed = rows.group_by("src").window("1 minute").agg(n="max(length * 2)").late()
    assert computed.columns == rows.columns


def test_windows_over_windows_count_a_result_where_its_window_was(rows: ef.Stream) -> None:
    minutes = rows.group_by("src").window("1 minute").agg(n="count(*)")
    hours = minutes.group_by("src").window("1 hour").agg(peak="max(n)")
    assert hours.columns == ["src", "window_start", "window_end", "peak"]
    (_, moment) = rows.flow.network.box(hours.box.inputs[0][0]).params["columns"][-1]
    batch = pa.record_batch({"window_end": pa.array([3_600_000_000, None], pa.timestamp("us"))})
    assert moment(batch).view(pa.int64()).to_pylist() == [3_599_999_999, None]


def test_without_group_by_all_rows_are_one_group(rows: ef.Stream) -> None:
    assert rows.agg(n="count(*)").columns == ["n"]
    assert rows.group_by().count().columns == ["count"]


def test_a_union_keeps_time_only_if_all_know_it(flow: ef.Dataflow) -> None:
    timed, other = packets(flow, name="one"), packets(flow, name="two", watermark=False)
    assert timed.union(timed.where("proto = 6")).event_time == "ts"
    assert timed.union(other).event_time is None


def test_names_are_given_and_changed(rows: ef.Stream) -> None:
    one, two = rows.where("proto = 6"), rows.where("proto = 17")
    assert (one.box.name, two.box.name) == ("filter", "filter_2")
    after = one.select("src")
    assert one.name("tcp").box.name == "tcp"
    assert after.box.inputs == (("tcp", 0),)
    assert "Stream('tcp': ts timestamp" in repr(one) and repr(one).endswith("event time ts)")


def test_a_stream_feeds_several_boxes_and_sinks(rows: ef.Stream) -> None:
    rows.to(ef.sinks.discard()).to(ef.sinks.memory("m"))
    rows.where("proto = 6").to(ef.sinks.discard())
    assert rows.flow.network.dangling() == ()
    assert len(rows.flow.network.readers(rows.box.name)) == 3


# ---------------------------------------------------------------- what is refused

WRONG: list[tuple[str, Draw, type[EvenflowError], str]] = [
    ("unknown column", lambda s: s.where("prto = 6"), UnknownColumn, "'filter'.*prto"),
    ("unknown in select", lambda s: s.select("lenght"), UnknownColumn, "'select'.*'lenght'.*'length'"),
    ("no boolean", lambda s: s.where("length + 1"), TypeMismatch, "'filter'.*not boolean"),
    ("type mismatch", lambda s: s.where("src > date '2020-01-01' + length + true"), EvenflowError, "'filter'"),
    ("function without type", lambda s: s.select(x=lambda batch: [None]), EvenflowError, "'select'.*'x'"),
    ("function that fails", lambda s: s.select(x=lambda batch: 1 / 0), TypeMismatch, "'select'.*ZeroDivisionError"),
    ("nameless", lambda s: s.select("length + 1"), QueryError, "has no name; write 'length \\+ 1 as name'"),
    ("twice", lambda s: s.select("src", "dst as src"), QueryError, "two columns called 'src'"),
    ("nothing left", lambda s: s.select(), QueryError, "selects no columns"),
    ("drop unknown", lambda s: s.drop("nope"), UnknownColumn, "'select'.*'nope'"),
    ("union", lambda s: s.union(s.select("src")), TypeMismatch, "'union'.*different columns"),
    ("union of one", lambda s: s.union(), QueryError, "'union'.*at least 2"),
    ("no time column", lambda s: s.with_watermark("src", "1 s"), EvenflowError, "'watermark_2'"),
    ("second watermark", lambda s: s.with_watermark("ts", "1 s"), QueryError, "already; declare it once"),
    ("bad delay", lambda s: s.drop("rate").with_watermark("ts", "soon"), QueryError, "'watermark_2'.*span of time"),
    ("late watermark", lambda s: s.group_by("ts").count().with_watermark("ts", "1 s"), QueryError, "declare it before 'aggregate'"),
    ("process without key", lambda s: s.process(Tracker()), QueryError, "no key; write .key_by"),
    ("empty key", lambda s: s.key_by(), QueryError, "'key_by' has no key"),
    ("unknown key", lambda s: s.key_by("sorce"), UnknownColumn, "'key_by'.*'sorce'.*did you mean 'src'"),
    ("key twice", lambda s: s.group_by("src", "src").count(), QueryError, "two columns called 'src'"),
    ("class", lambda s: s.key_by("src").process(Tracker), QueryError, "write process\\(Tracker\\(\\)\\)"),
    ("no output", lambda s: s.key_by("src").process(ef.Processor()), QueryError, "set output ="),
    ("expression as key", lambda s: s.group_by("length + 1"), QueryError, "a name, such as .length . 1 AS k"),
    ("unknown in agg", lambda s: s.group_by("src").agg(n="sum(bytes)"), UnknownColumn, "'aggregate'.*bytes"),
    ("sum of text", lambda s: s.group_by("src").agg(n="sum(dst)"), TypeMismatch, "'aggregate'.*sum needs a number"),
    ("no aggregate", lambda s: s.group_by("src").agg(n="length"), EvenflowError, "'aggregate'.*length"),
    ("nothing", lambda s: s.group_by("src").agg(), QueryError, "aggregates nothing"),
    ("nameless aggregate", lambda s: s.group_by("src").agg("sum(length)"), QueryError, "agg\\(name='sum\\(length\\)'\\)"),
    ("name of a key", lambda s: s.group_by("src").agg(src="max(dst)"), QueryError, "two columns called 'src'"),
    ("slide over size", lambda s: s.group_by("src").window("10 s", slide="20 s"), QueryError, "slides by 20 s but is only 10 s long"),
    ("zero window", lambda s: s.group_by("src").window("0 s"), QueryError, "longer than zero"),
    ("other column", lambda s: s.group_by("src").window("1 s", column="rate"), QueryError, "the watermark is on 'ts'"),
    ("zero rows", lambda s: s.group_by("src").rows(0), QueryError, "at least 1 row"),
    ("rows slide", lambda s: s.group_by("src").rows(5, slide=6), QueryError, "slides by 6 rows but holds 5"),
    ("tie break", lambda s: s.group_by("src").rows(5, tie_break=["seq"]).agg(n="count(*)"), UnknownColumn, "'seq'"),
    ("order", lambda s: s.group_by("src").rows(5, order="random").agg(n="count(*)"), QueryError, "'event_time' or 'arrival'"),
    ("late of a filter", lambda s: s.where("proto = 6").late(), QueryError, "'filter' judges no row late"),
    ("late by arrival", lambda s: s.key_by("src").process(Tracker(), order="arrival").late(), QueryError, "judges no row late"),
    ("column of the exchange", lambda s: s.select("length as _to"), QueryError, "a column cannot be called '_to'"),
    ("no partitions", lambda s: s.repartition(0), QueryError, "'repartition': a number of partitions is a whole number from 1 to 4096"),
    ("too many partitions", lambda s: s.repartition(4097), QueryError, "or left out, not 4097"),
    ("watermark behind a deal", lambda s: s.select("ts").repartition().with_watermark("ts", "1 s"), QueryError, "already; declare it once"),
    ("no sink", lambda s: s.to("out"), QueryError, "is not a sink"),
    ("name taken", lambda s: s.where("proto = 6").name("packets"), QueryError, "two boxes would be called 'packets'"),
    ("sink taken", lambda s: s.to(ef.sinks.discard(), name="packets"), QueryError, "two boxes are called 'packets'"),
    ("combine", lambda s: s.group_by("src").agg(combine="sum(length)"), QueryError, "sum\\(x\\) as combine"),
]  # fmt: skip


@pytest.mark.parametrize(("draw", "kind", "says"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_mistake_is_refused_at_once(rows: ef.Stream, draw: Draw, kind: type[EvenflowError], says: str) -> None:
    with pytest.raises(kind, match=says) as error:
        draw(rows)
    assert "box" in str(error.value)


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda s: s.group_by("src").window("1 minute"), "needs event time.*with_watermark"),
        (lambda s: s.group_by("src").rows(5, order="event_time").agg(n="count(*)"), "needs a watermark"),
        (lambda s: s.key_by("src").process(Tracker(), order="event_time"), "needs a watermark"),
    ],
)
def test_what_needs_time_is_refused_without_it(timeless: ef.Stream, draw: Draw, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        draw(timeless)


def test_a_mistake_leaves_nothing_behind(rows: ef.Stream) -> None:
    before = len(rows.flow.network)
    with pytest.raises(QueryError):
        rows.group_by("src").agg(n="max(length + 1)", m="sum(length) + dst")
    assert len(rows.flow.network) == before


def test_drawing_needs_no_spark() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import evenflow as ef; ef.Dataflow('f'); print(ef.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("0.1.0\n", 0), done.stderr


def test_streams_of_two_dataflows_do_not_meet(rows: ef.Stream) -> None:
    with pytest.raises(QueryError, match="'union' would join dataflows 'other' and 'test'"):
        rows.union(packets(ef.Dataflow("other")))


def test_what_is_no_source_is_refused(flow: ef.Dataflow) -> None:
    with pytest.raises(QueryError, match="'source'.*is not a source"):
        flow.source("packets.parquet")


def test_a_box_is_found_by_name(rows: ef.Stream) -> None:
    flow = session_monitor()
    assert flow.stream("stats").columns == ["app", "src", "ts", "max_dur", "avg_dur"]
    with pytest.raises(QueryError, match="no box is called 'statz'; there are 'packets'"):
        flow.stream("statz")
    with pytest.raises(QueryError, match="'screen' is a sink"):
        flow.stream("screen")
