"""The operators on one stream as they are drawn: what they put out, what they refuse, and that JSON and text know them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import ExpressionError, QueryError, TypeMismatch, UnknownColumn
from evenflow.query.aggregates import OwnSessions, SessionWindow
from evenflow.query.planner import layout
from evenflow.query.sql.gaps import span_of_text
from evenflow.query.text import layout_text, network_text
from tests.query.networks import packets


@pytest.fixture
def rows() -> ef.Stream:
    return packets(ef.Dataflow("f"))


@pytest.fixture
def timeless() -> ef.Stream:
    return packets(ef.Dataflow("f"), watermark=False)


Draw = Callable[[ef.Stream], object]


def check(draw: Draw, stream: ef.Stream, kind: type[QueryError], says: str) -> None:
    with pytest.raises(kind, match=says) as found:
        draw(stream)
    assert type(found.value) is kind


def test_a_session_puts_its_bounds_behind_the_keys(rows: ef.Stream) -> None:
    out = rows.group_by("src").session("5 minutes").agg(n="count(*)", total="sum(length)")
    assert out.columns == ["src", "window_start", "window_end", "n", "total"]
    assert out.event_time == "window_end"
    assert out.box.params["window"] == SessionWindow("ts", 300_000_000)
    assert out.box.params["order"] is None
    assert out.late().columns == rows.columns
    per_hour = out.group_by("src").window("1 hour").agg(sessions="count(*)")
    assert per_hour.columns == ["src", "window_start", "window_end", "sessions"]
    assert rows.group_by().session(timedelta(seconds=1)).agg(last="last(length)").box.params["order"] == "event_time"


@pytest.mark.parametrize("name", ["window", "session_window"])
def test_bounds_may_be_written_as_fields_as_in_spark(rows: ef.Stream, name: str) -> None:
    out = rows.group_by("src").window("1 minute").agg(n="count(*)")
    fields = out.select("src", f"{name}.start", f"{name}.END as ends", "n")
    assert fields.columns == ["src", "start", "ends", "n"]
    assert out.select("src", f"{name}.end as window_end").event_time == "window_end", "it is the column itself"
    pair = out.where(f"{name}.start >= '2024-01-01'").select(name, json=f"to_json({name})")
    assert str(pair.schema.field(name).type) == "struct<start: timestamp[us], end: timestamp[us]>"
    with pytest.raises(QueryError, match="has no field 'middle'; its fields are start, end"):
        out.select(f"{name}.middle")
    with pytest.raises(ExpressionError, match="there is no column 'window' that has fields"):
        rows.select("window.start")


def test_a_gap_computed_from_the_row_is_each_rows_own_end(rows: ef.Stream) -> None:
    gap = "CASE WHEN length > 100 THEN '5 minutes' ELSE '1 minute' END"
    out = rows.group_by("src").session(gap).agg(n="count(*)")
    assert out.box.params["window"] == OwnSessions("ts", ends="_session_end")
    assert (out.columns, out.event_time) == (["src", "window_start", "window_end", "n"], "window_end")
    assert out.late().columns == rows.columns, "what is computed for it is not seen"
    again = out.group_by("src").session("CASE WHEN n > 3 THEN INTERVAL 1 HOUR ELSE INTERVAL 1 MINUTE END").agg(bursts="count(*)")
    assert again.box.params["window"] == OwnSessions("_window_time", ends="_session_end")
    ended = rows.with_columns(until="ts + INTERVAL 1 MINUTE").group_by("src").session(ends="until").agg(n="count(*)")
    assert ended.box.params["window"] == OwnSessions("ts", ends="until")


@pytest.mark.parametrize(
    ("text", "span_us"),
    [
        ("5 minutes", 300_000_000),
        ("interval 1 hour -30 seconds", 3_570_000_000), ("1.5 seconds", 1_500_000),
        (" 2 DAYS\n", 172_800_000_000),
        ("- 3 second", -3_000_000), (".25 seconds", 250_000), ("1 week 1 microsecond", 604_800_000_001),
        ("0 month 7 days", 604_800_000_000),
        ("5 min", None), ("5minutes", None), ("1.5 minutes", None), ("minutes", None), ("", None), ("interval", None), ("5", None),
        ("99999999999999999999 days", None),
    ],
)  # fmt: skip
def test_a_text_is_a_gap_where_spark_casts_it_to_an_interval(text: str, span_us: int | None) -> None:
    assert span_of_text(text) == span_us


@pytest.mark.parametrize(
    ("among", "behind"),
    [
        ("window(ts, '1 minute')", lambda grouped: grouped.window("1 minute")),
        ("WINDOW(`ts`, '1 minute', '20 seconds', '0 second')", lambda grouped: grouped.window("1 minute", "20 seconds")),
        (
            "window(ts, INTERVAL 10 MINUTES, '5 minutes', '2 minutes')",
            lambda grouped: grouped.window("10 minutes", "5 minutes", start="2 min"),
        ),
        ("session_window(ts, '5 minutes')", lambda grouped: grouped.session("5 minutes")),
        ("session_window(ts, concat(length, ' days'))", lambda grouped: grouped.session("CONCAT(length, ' days')")),
    ],
)
def test_a_window_may_stand_among_the_keys(rows: ef.Stream, among: str, behind: Callable[[Any], Any]) -> None:
    one, other = (grouped.agg(n="count(*)") for grouped in (rows.group_by("src", among), behind(rows.group_by("src"))))
    assert one.box.params == other.box.params and one.columns == ["src", "window_start", "window_end", "n"]


def test_sessions_of_sessions(rows: ef.Stream) -> None:
    """A session counts at its last microsecond, as behind every window."""
    out = rows.group_by("src").session("1 s").agg(n="count(*)").group_by("src").session("1 minute").agg(bursts="count(*)")
    assert out.box.params["window"] == SessionWindow("_window_time", 60_000_000)


def test_duplicates_are_told_by_the_columns_given(rows: ef.Stream, timeless: ef.Stream) -> None:
    out = rows.drop_duplicates(["src", "dst"])
    assert out.columns == rows.columns and out.event_time == "ts"
    assert out.box.params == {"keys": ("src", "dst"), "within": False, "order": "arrival", "tie_break": None}
    assert timeless.drop_duplicates().box.params["order"] is None, "equal rows are all the same"
    assert rows.drop_duplicates("src", within_watermark=True).late().columns == rows.columns
    assert rows.drop_duplicates(["src", "ts"]).late().columns == rows.columns
    assert rows.drop_duplicates("src", order="event_time").late().columns == rows.columns
    with pytest.raises(QueryError, match="judges no row late"):
        rows.drop_duplicates("src").late()


def test_duplicates_are_looked_for_where_their_key_is(rows: ef.Stream) -> None:
    """Rows that are partitioned by the key already stay where they are, and what counts them stays with them."""
    rows.drop_duplicates("src").group_by("src").agg(n="count(*)").to(ef.sinks.discard())
    planned = layout(rows.flow.network, sites=2)
    assert [segment.kind for segment in planned.segments] == ["ingress", "inner"]
    assert [step.kind for step in planned.segments[1].steps] == ["dedup", "aggregate", "discard"]
    assert planned.segments[1].sensitive, "which row came first decides"


def test_top_puts_the_window_and_the_rank_behind_the_keys(rows: ef.Stream) -> None:
    out = rows.group_by("src").window("1 minute").top(3, order_by=["length desc", "dst"])
    assert out.columns == ["src", "window_start", "window_end", "rank", "ts", "dst", "proto", "length", "rate"]
    assert out.event_time == "window_end"
    assert out.box.params["by"] == (("length", True), ("dst", False))
    assert out.late().columns == rows.columns


def test_top_has_a_rank_of_its_own(rows: ef.Stream) -> None:
    ranked = rows.with_columns(rank="1")
    with pytest.raises(QueryError, match="two columns called 'rank'; top adds window_start, window_end and rank"):
        ranked.group_by("src").window("1 s").top(1, order_by="length")


def test_the_top_of_windows_has_the_outer_window_only(rows: ef.Stream) -> None:
    counted = rows.group_by("src").window("1 minute").agg(n="count(*)")
    out = counted.group_by().window("1 minute").top(3, order_by="n desc", name="busiest")
    assert out.columns == ["window_start", "window_end", "rank", "src", "n"]
    assert [box.name for box in rows.flow.network][-3:] == ["busiest.in", "busiest", "busiest.out"]
    assert out.event_time == "window_end"
    assert out.late().columns == ["src", "n"]
    assert out.name("top").box.name == "top.out"


def test_resampled_values_are_of_their_time_as_long_as_gaps_are_bounded(rows: ef.Stream) -> None:
    out = rows.group_by("src").resample("1 s", "length", "rate")
    assert [(f.name, str(f.type)) for f in out.schema] == [
        ("src", "string"),
        ("ts", "timestamp[us]"),
        ("length", "double"),
        ("rate", "double"),
    ]
    assert out.event_time is None
    bounded = rows.group_by("src").resample("1 s", "dst", how="previous", max_gap="1 minute")
    assert bounded.event_time == "ts"
    assert bounded.type.watermark_delay_us == 70_000_000
    assert str(bounded.schema.field("dst").type) == "string"
    assert out.late().columns == rows.columns


def test_a_window_behind_resampled_values_waits_for_them(rows: ef.Stream) -> None:
    """It is in a segment of its own, whose watermark is as far behind as the values may be."""
    bounded = rows.group_by("src").resample("1 s", "length", max_gap="1 minute")
    bounded.group_by("src").window("1 minute").agg(mean="avg(length)").to(ef.sinks.discard())
    planned = layout(rows.flow.network, sites=2)
    assert [arc.lag_us for arc in planned.arcs] == [0, 60_000_000]


def test_sorted_rows_keep_their_time_and_nearly_sorted_ones_do_not(rows: ef.Stream, timeless: ef.Stream) -> None:
    assert rows.sort().event_time == rows.key_by("src").sort().event_time == "ts"
    assert rows.sort().late().columns == rows.columns
    assert rows.bsort("length", 10).event_time is None
    assert rows.key_by("src", "dst").bsort("length", 10).box.params["keys"] == ("src", "dst")
    assert timeless.bsort("rate", 5).columns == timeless.columns


def test_elements_take_the_place_of_their_list(rows: ef.Stream) -> None:
    lists = rows.group_by("src").window("1 minute").agg(sizes="collect_list(length)", n="count(*)")
    out = lists.explode("sizes", into="size", position="at")
    assert out.columns == ["src", "window_start", "window_end", "at", "size", "n"]
    assert out.event_time == "window_end"
    assert lists.explode("sizes").columns == lists.columns
    assert lists.explode("sizes").schema.field("sizes").type == "int32"


def test_a_flat_map_says_what_it_puts_out(rows: ef.Stream) -> None:
    out = rows.flat_map(two_ends, "ts timestamp, host string")
    assert out.columns == ["ts", "host"] and out.event_time == "ts"
    rows.flat_map(two_ends, "host string").to(ef.sinks.discard())
    assert rows.flow.stream("flat_map_2").event_time is None
    out.where("host <> ''").to(ef.sinks.discard())
    assert layout(rows.flow.network, sites=1).segments[0].user_code


def test_every_output_of_a_case_is_a_stream(rows: ef.Stream) -> None:
    tcp, udp, rest = rows.case("proto = 6", "proto = 17", name="by_protocol")
    assert tcp.columns == udp.columns == rest.columns == rows.columns
    assert {stream.event_time for stream in (tcp, udp, rest)} == {"ts"}
    assert "by_protocol.1" in repr(udp) and "by_protocol.2" in repr(rest)
    rest.name("protocols")
    assert udp.box.name == "protocols"
    tcp.group_by("src").window("1 minute").agg(n="count(*)").to(ef.sinks.discard(), name="a")
    udp.where("length > 9").to(ef.sinks.memory("b"), name="b")
    planned = layout(rows.flow.network, sites=2)
    by_kind = {step.kind: step for step in planned.segments[0].steps}
    assert by_kind["filter"].source.port == 1
    assert "output 1" in layout_text(planned) and "late" not in layout_text(planned)
    assert "late:" not in rows.flow.to_svg() and 'stroke-dasharray="4 3"' not in rows.flow.to_svg()
    assert "protocols.1" in network_text(rows.flow.network)


def test_branches_of_a_case_may_meet_again(rows: ef.Stream) -> None:
    small, rest = rows.case("length < 100")
    small.union(rest).group_by("src").agg(n="count(*)").to(ef.sinks.discard())
    assert len(layout(rows.flow.network, sites=1).arcs) == 2


@pytest.mark.parametrize(("shape", "segments"), [("explode", 2), ("case", 2), ("flat_map", 3)])
def test_rows_with_their_key_stay_where_they_are(rows: ef.Stream, shape: str, segments: int) -> None:
    """What is by the same key behind them is in the same segment. A function may give its rows any key."""
    lists = rows.group_by("src").agg(all="collect_list(dst)", order="arrival")
    shaped = {
        "explode": lambda: lists.explode("all"),
        "case": lambda: lists.case("src = 'a'")[1],
        "flat_map": lambda: lists.flat_map(two_ends, "src string"),
    }[shape]()
    shaped.group_by("src").agg(n="count(*)").to(ef.sinks.discard())
    assert len(layout(rows.flow.network, sites=1).segments) == segments


def two_ends(batch: pa.RecordBatch) -> object:
    """A row for each end of a packet."""
    made, index = [], []
    for at, row in enumerate(batch.to_pylist()):
        made += [{"ts": row["ts"], "host": row["src"]}, {"ts": row["ts"], "host": row["dst"]}]
        index += [at, at]
    return made, index


REFUSED: list[tuple[str, Draw, type[QueryError], str]] = [
    ("no gap", lambda s: s.group_by("src").session("0 s"), QueryError, "longer than zero"),
    ("no span", lambda s: s.group_by("src").session("soon"), QueryError, "box 'aggregate'.*soon"),
    ("two windows", lambda s: s.group_by("window(ts, '1 s')", "window(ts, '2 s')"), QueryError, "two windows in one group_by"),
    ("window and window", lambda s: s.group_by("window(ts, '1 s')").window("1 s"), QueryError, "have a window among their keys"),
    ("window and session", lambda s: s.group_by("window(ts, '1 s')").session("1 s"), QueryError, "have a window among their keys"),
    ("window of nothing", lambda s: s.group_by("window()"), QueryError, "write window.time, size"),
    ("window without size", lambda s: s.group_by("window(ts)"), QueryError, "write window.time, size"),
    ("window of no time", lambda s: s.group_by("window(src, '1 s')"), QueryError, "the watermark is on 'ts'"),
    ("window of no span", lambda s: s.group_by("window(ts, 'soon')"), QueryError, "box 'aggregate'.*soon"),
    ("no gap and no end", lambda s: s.group_by("src").session(), QueryError, "has a gap, such as .*or a column with each row's end"),
    ("gap and end", lambda s: s.group_by("src").session("1 s", ends="ts"), QueryError, "has a gap, such as"),
    ("misspelt gap", lambda s: s.group_by("src").session("10 secnds"), QueryError, "'10 secnds' is not a span of time"),
    ("gap of no time", lambda s: s.group_by("src").session("length + 1"), TypeMismatch, "a text such as '5 minutes' or an interval, but"),
    ("gap of no column", lambda s: s.group_by("src").session("concat(nope, ' days')"), UnknownColumn, "no column 'nope'"),
    ("end that is no time", lambda s: s.group_by("src").session(ends="length").agg(n="count(*)"), TypeMismatch, "give a timestamp"),
    ("other column", lambda s: s.group_by("src").session("1 s", column="rate"), QueryError, "the watermark is on 'ts'"),
    (
        "session by arrival",
        lambda s: s.group_by("src").session("1 s").agg(x="first(length)", order="arrival"),
        QueryError,
        "in order of event time; leave out order='arrival'",
    ),
    ("no such key", lambda s: s.drop_duplicates(["src", "dts"]), UnknownColumn, "box 'drop_duplicates'.*'dts'.*did you mean 'ts'"),
    ("no key", lambda s: s.drop_duplicates([]), QueryError, "has no key; name at least one column"),
    ("key twice", lambda s: s.drop_duplicates(["src", "src"]), QueryError, "two columns called 'src'"),
    ("within what", lambda s: s.drop_duplicates("src", within_watermark="1 s"), QueryError, "'1 s'; it must be True or False"),
    ("order", lambda s: s.drop_duplicates("src", order="time"), QueryError, "'event_time' or 'arrival'"),
    ("top of what", lambda s: s.group_by("src").window("1 s").top(0, order_by="length"), QueryError, "top is 0; .* at least 1"),
    ("no order", lambda s: s.group_by("src").window("1 s").top(1, order_by=[]), QueryError, "top of what order"),
    ("order of what", lambda s: s.group_by("src").window("1 s").top(1, order_by="size"), UnknownColumn, "no column 'size'"),
    ("expression", lambda s: s.group_by("src").window("1 s").top(1, order_by="length + 1"), QueryError, "compute it with .with_columns"),
    ("no step", lambda s: s.group_by("src").resample("0 s", "length"), QueryError, "at least 1"),
    ("no column", lambda s: s.group_by("src").resample("1 s"), QueryError, "resamples no column"),
    ("no number", lambda s: s.group_by("src").resample("1 s", "dst"), TypeMismatch, "'dst' is string and has no values in between"),
    ("how", lambda s: s.group_by("src").resample("1 s", "length", how="cubic"), QueryError, "'linear' or 'previous'"),
    ("no gap", lambda s: s.group_by("src").resample("1 s", "length", max_gap="0 s"), QueryError, "max_gap in microseconds is 0"),
    ("time resampled", lambda s: s.group_by("src").resample("1 s", "ts", how="previous"), QueryError, "two columns called 'ts'"),
    ("resample what", lambda s: s.group_by("src").resample("1 s", "size"), UnknownColumn, "no column 'size'"),
    ("buffer", lambda s: s.bsort("length", 0), QueryError, "the buffer of bsort is 0; .* at least 1 and at most 65,536"),
    ("large buffer", lambda s: s.bsort("length", 10**6), QueryError, "at most 65,536"),
    ("sort what", lambda s: s.bsort("size", 5), UnknownColumn, "box 'bsort'.*no column 'size'"),
    ("unlike values", lambda s: s.unpivot("src", ["dst", "length"]), TypeMismatch, "box 'unpivot'.*'dst' is string and 'length' is .*cast"),
    ("no values", lambda s: s.unpivot("src", []), QueryError, "makes rows of no column; name at least one"),
    ("no such value", lambda s: s.unpivot("src", ["dest"]), UnknownColumn, "no column 'dest'.*did you mean 'dst'"),
    ("a name that is taken", lambda s: s.unpivot("src", ["dst"], "src"), QueryError, "two columns called 'src'.*give variable="),
    ("no list", lambda s: s.explode("dst"), TypeMismatch, "'dst' is string, not a list"),
    ("no such list", lambda s: s.explode("tags"), UnknownColumn, "box 'explode'.*no column 'tags'"),
    ("no function", lambda s: s.flat_map("dst", "a string"), QueryError, "takes a function of a batch, not 'dst'"),
    ("no output", lambda s: s.flat_map(two_ends, ""), QueryError, "does not say what it puts out"),
    ("no type", lambda s: s.flat_map(two_ends, "a strong"), QueryError, "box 'flat_map'.*unknown type 'strong'"),
    ("no condition", lambda s: s.case(), QueryError, "has no condition"),
    ("no boolean", lambda s: s.case("proto = 6", "length"), TypeMismatch, "'length' is int32, not boolean"),
    ("unknown in case", lambda s: s.case("size > 1"), UnknownColumn, "box 'case'.*size"),
    ("unknown column", lambda s: s.group_by("src").session("1 s").agg(x="sum(nope)"), UnknownColumn, "no column 'nope'"),
    ("text summed", lambda s: s.group_by("src").session("1 s").agg(x="sum(dst)"), TypeMismatch, "sum needs a number"),
]


@pytest.mark.parametrize(("draw", "kind", "says"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_is_refused_says_what_to_do(rows: ef.Stream, draw: Draw, kind: type[QueryError], says: str) -> None:
    before = len(rows.flow.network)
    check(draw, rows, kind, says)
    assert len(rows.flow.network) == before


TIMELESS: list[tuple[str, Draw, str]] = [
    ("duplicates", lambda s: s.drop_duplicates("src", within_watermark=True), "within_watermark needs event time; add .with_watermark"),
    ("duplicates in order", lambda s: s.drop_duplicates("src", order="event_time"), "order='event_time' needs a watermark"),
    ("top", lambda s: s.group_by("src").window("1 minute").top(1, order_by="length"), "needs event time.*with_watermark"),
    ("resample", lambda s: s.group_by("src").resample("1 s", "length"), "needs a watermark; add .with_watermark"),
    ("sort", lambda s: s.sort(), "needs a watermark; add .with_watermark"),
    ("sort by key", lambda s: s.key_by("src").sort(), "needs a watermark; add .with_watermark"),
    ("session", lambda s: s.group_by("src").session("1 minute"), "needs event time.*with_watermark"),
]


@pytest.mark.parametrize(("draw", "says"), [case[1:] for case in TIMELESS], ids=[case[0] for case in TIMELESS])
def test_what_needs_event_time_says_so(timeless: ef.Stream, draw: Draw, says: str) -> None:
    check(draw, timeless, QueryError, says)


DRAWN: list[tuple[str, Draw, str, str]] = [
    (
        "top",
        lambda s: s.group_by("src").window("1 h").top(3, order_by=["length desc", "dst"]),
        "by src, window 1 h of ts, first 3 by length descending, dst",
        "top [top]",
    ),
    (
        "resample",
        lambda s: s.group_by("src").resample("1 s", "length", "rate", max_gap="5 s"),
        "by src, every 1 s, linear: length, rate, gaps up to 5 s",
        "resample [resample]",
    ),
    ("bsort", lambda s: s.bsort("length", 7), "all rows, by length in a buffer of 7 rows", "bsort [bsort]"),
    ("sort", lambda s: s.key_by("src").sort(tie_break=["dst"]), "by src, in order of event time, ties by dst", "order [sort]"),
    (
        "explode",
        lambda s: s.group_by("src").agg(all="collect_list(dst)", order="arrival").explode("all", into="dst", outer=True),
        "all into dst, empty lists too",
        "explode [explode]",
    ),
    ("flat map", lambda s: s.flat_map(two_ends, "host string"), "two_ends()", "flat_map [flat_map]"),
    ("case", lambda s: s.case("proto = 6", "proto = 17")[1], "case       <- watermark  proto = 6, proto = 17", "case [case]"),
    (
        "sessions with gaps of their own",
        lambda s: s.group_by("src").session("concat(length, ' seconds')").agg(n="count(*)"),
        "sessions of ts with a gap of each row's own, until _session_end",
        "sessions of ts with a gap of each row's own, until _session_end",
    ),
    (
        "session",
        lambda s: s.group_by("src").session("90 s").agg(n="count(*)"),
        "sessions of ts with gaps up to 90 s",
        "aggregate [aggregate]",
    ),
    (
        "duplicates",
        lambda s: s.drop_duplicates(["src", "dst"], within_watermark=True),
        "by src, dst, within the watermark, in order of arrival",
        "dedup [drop_duplicates]",
    ),
]


@pytest.mark.parametrize(("draw", "box_says", "step_says"), [case[1:] for case in DRAWN], ids=[case[0] for case in DRAWN])
def test_a_drawn_box_survives_json_and_prints(draw: Callable[[ef.Stream], ef.Stream], box_says: str, step_says: str) -> None:
    flow = ef.Dataflow("f")
    draw(packets(flow)).to(ef.sinks.discard())
    loaded = ef.Dataflow.from_json(flow.to_json(), modules=__name__)
    assert loaded.to_json() == flow.to_json()
    assert box_says in network_text(loaded.network)
    planned = layout(loaded.network, sites=2)
    assert step_says in layout_text(planned)
    assert layout_text(planned) == layout_text(layout(flow.network, sites=2))
    assert "<svg" in flow.to_svg()
