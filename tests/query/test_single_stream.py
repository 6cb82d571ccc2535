"""The operators on one stream as they are drawn: what they put out, what they refuse, and that JSON and text know them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

import evenflow as ef
from evenflow.errors import QueryError, TypeMismatch, UnknownColumn
from evenflow.query.aggregates import SessionWindow
from evenflow.query.planner import layout
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


REFUSED: list[tuple[str, Draw, type[QueryError], str]] = [
    ("no gap", lambda s: s.group_by("src").session("0 s"), QueryError, "longer than zero"),
    ("no span", lambda s: s.group_by("src").session("soon"), QueryError, "box 'aggregate'.*soon"),
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
    ("session", lambda s: s.group_by("src").session("1 minute"), "needs event time.*with_watermark"),
]


@pytest.mark.parametrize(("draw", "says"), [case[1:] for case in TIMELESS], ids=[case[0] for case in TIMELESS])
def test_what_needs_event_time_says_so(timeless: ef.Stream, draw: Draw, says: str) -> None:
    check(draw, timeless, QueryError, says)


DRAWN: list[tuple[str, Draw, str, str]] = [
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
    loaded = ef.Dataflow.from_json(flow.to_json())
    assert loaded.to_json() == flow.to_json()
    assert box_says in network_text(loaded.network)
    planned = layout(loaded.network, sites=2)
    assert step_says in layout_text(planned)
    assert layout_text(planned) == layout_text(layout(flow.network, sites=2))
    assert "<svg" in flow.to_svg()
