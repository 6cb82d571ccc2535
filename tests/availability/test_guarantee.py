"""What outputs can promise: every kind of box with every mode, what sinks can remember, and what is said where it is too little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.availability.choosing import check_alike, checked, given_to
from evenflow.availability.guarantee import CHEAPEST_FIRST, GIVES, Guarantee, OperatorClass, at_least, cheapest, guarantee_named
from evenflow.availability.mode import Mode
from evenflow.errors import AvailabilityError, QueryError
from evenflow.plan.layout import Layout
from evenflow.query.export import to_python
from evenflow.query.kinds import KINDS
from evenflow.query.kinds.kind import BoxKind
from evenflow.query.planner import layout

ROWS = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("v", pa.int64()), ("many", pa.list_(pa.int64()))])
R, C, D, A = OperatorClass


class Echo(ef.Processor):
    output = "k bigint"

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        return [key]


def ask(key: Any) -> Any:
    return None


def other(stream: Any) -> Any:
    return stream.flow.source(ef.sources.memory([], schema=ROWS), name="right").with_watermark("ts", "1 second")


BOXES: dict[str, tuple[str, OperatorClass, Callable[[Any], Any]]] = {
    "filter": ("filter", R, lambda s: s.where("v > 0")),
    "select": ("select", R, lambda s: s.select("k")),
    "case": ("case", R, lambda s: s.case("v > 0")[0]),
    "explode": ("explode", R, lambda s: s.explode("many")),
    "flat_map": ("flat_map", R, lambda s: s.flat_map(lambda batch: ([], []), "k bigint")),
    "unpivot": ("unpivot", R, lambda s: s.select("k", "v").unpivot("k", ["v"], "name", "value")),
    "table_join": ("table_join", R, lambda s: s.join(pa.table({"k": pa.array([1], pa.int64()), "n": ["a"]}), "k")),
    "repartition": ("repartition", R, lambda s: s.repartition(2)),
    "time windows": ("aggregate", C, lambda s: s.group_by("k").window("1 minute").agg(n="count(*)")),
    "sessions": ("aggregate", C, lambda s: s.group_by("k").session("1 minute").agg(n="count(*)")),
    "sort": ("sort", C, lambda s: s.sort()),
    "bounded inner join": ("join", C, lambda s: s.join(other(s), "k", within="1 minute", suffix="_r")),
    "totals": ("aggregate", D, lambda s: s.group_by("k").agg(n="count(*)")),
    "row windows": ("aggregate", D, lambda s: s.group_by("k").rows(3).agg(n="sum(v)")),
    "totals that change": ("aggregate", D, lambda s: s.group_by("k").agg(n="count(*)", mode="changelog")),
    "outer join": ("join", D, lambda s: s.join(other(s), "k", "left", within="1 minute", suffix="_r")),
    "unbounded join": ("join", D, lambda s: s.join(other(s), "k", unbounded=True, suffix="_r")),
    "dedup": ("dedup", D, lambda s: s.drop_duplicates(["k"])),
    "process": ("process", D, lambda s: s.key_by("k").process(Echo())),
    "lookup": ("lookup", A, lambda s: s.lookup(ask, "n bigint", on="k")),
    "lookup that never changes": ("lookup", R, lambda s: s.lookup(ask, "n bigint", on="k", deterministic=True)),
}


_kinds: dict[str, str] = {}
"""Of the boxes that were drawn last."""


def planned(draw: Callable[[Any], Any], sink: Any = None, **given: Any) -> tuple[Layout, str]:
    """The layout of a source, one box and a sink, and the box's name."""
    flow = ef.Dataflow("guarantees")
    drawn = draw(flow.source(ef.sources.memory([], schema=ROWS), name="in").with_watermark("ts", "1 second"))
    drawn.to(sink or ef.sinks.memory(), name="out", **given)
    _kinds[drawn.box.name] = drawn.box.kind
    return layout(flow.network, sites=2, partitions=4), drawn.box.name


def of_all(planned: Layout, mode: Mode) -> tuple[Mode, ...]:
    return (mode,) * len(planned.segments)


@pytest.mark.parametrize("name", BOXES)
def test_each_box_has_its_class(name: str) -> None:
    kind, expected, draw = BOXES[name]
    found, box = planned(draw)
    assert dict(pair for pairs in found.depends.values() for pair in pairs)[box] is expected
    assert _kinds[box] == kind


def test_every_kind_of_box_has_one() -> None:
    plain = {"source", "sink", "union", "key_by", "watermark"}
    others = {"top", "pattern", "resample", "bsort", "complete"}
    assert {kind for kind, _, _ in BOXES.values()} | plain | others == set(KINDS)
    for name in plain | others:  # Those that are not drawn above are what their state says.
        assert KINDS[name].stateful is (name in others) and KINDS[name].depends is BoxKind.depends


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", BOXES)
def test_each_box_gives_what_the_table_says(name: str, mode: Mode) -> None:
    _, of, draw = BOXES[name]
    for wanted in Guarantee:
        found, box = planned(draw, guarantee=str(wanted))
        given, modes = GIVES[of][mode], of_all(found, mode)
        located = mode is Mode.PASSIVE
        if given is None:
            with pytest.raises(AvailabilityError, match=rf"box '{box}' \({of}\) .* availability '{mode}' cannot bring back"):
                checked(found, modes, located=located)
        elif at_least(given, wanted):
            assert checked(found, modes, located=located) == modes and at_least(given_to(found, modes, "out"), wanted)
        else:
            with pytest.raises(AvailabilityError, match=f"sink 'out' is to be {wanted} through failures, and box 'in' .*gives gap at most"):
                checked(found, modes, located=located)


def of_select(stream: Any, **columns: str) -> Any:
    """With another column as the event time, as saved dataflows and the editor have it."""
    params = {"columns": (("k", "k"), *columns.items()), "event_time": next(iter(columns))}
    return stream._drawn("select", params, (stream,), "named", "")


AHEAD: dict[str, tuple[bool, Callable[[Any], Any]]] = {
    "a function": (True, lambda s: s.flat_map(lambda batch: ([], []), "ts timestamp").name("named")),
    "another column": (True, lambda s: of_select(s.with_columns(due="ts + interval '1' hour"), due="due")),
    "the same column under another name": (False, lambda s: of_select(s, at="ts")),
    "as it was": (False, lambda s: s.select("k", "ts").where("k > 0")),
    "a window of windows": (False, lambda s: s.group_by("k").window("1 minute").agg(n="count(*)")),
    "behind a window": (True, lambda s: AHEAD["a function"][1](s).group_by().window("1 minute").agg(n="count(*)")),
}


@pytest.mark.parametrize("name", AHEAD)
def test_event_times_that_may_be_later_than_all_that_sources_gave_are_not_for_upstream_backup(name: str) -> None:
    """Goal: a base follows from event times of sources, and must not where boxes make others. Method: what waits for event time behind
    boxes that make it, or only hand it on."""
    ahead, draw = AHEAD[name]
    found, box = planned(lambda stream: draw(stream).sort())
    upstream = of_all(found, Mode.UPSTREAM)
    for mode in (Mode.PAIRS, Mode.AMNESIA):
        assert checked(found, of_all(found, mode)) == of_all(found, mode)
    if not ahead:
        assert checked(found, upstream) == upstream
        return
    with pytest.raises(AvailabilityError, match="gets event times that box 'named' makes, .* use 'passive' or 'pairs' there"):
        checked(found, upstream)
    rest = tuple(Mode.PAIRS if found.ahead.keys() & {name for name, _ in found.depends[s.id]} else Mode.UPSTREAM for s in found.segments)
    assert box in found.ahead and checked(found, rest) == rest, "what does not wait for event time may have it"


def test_the_worst_box_upstream_decides() -> None:
    found, box = planned(BOXES["totals"][2], guarantee="precise")
    modes = tuple(Mode.AMNESIA if segment.name == box else Mode.PAIRS for segment in found.segments)
    said = rf"box '{box}' \(deterministic\) with availability 'amnesia' gives gap at most: use availability 'passive' there"
    with pytest.raises(AvailabilityError, match=said):
        checked(found, modes)
    assert given_to(found, modes, "out") is Guarantee.GAP


def test_another_branch_does_not_matter() -> None:
    flow = ef.Dataflow("two")
    stream = flow.source(ef.sources.memory([], schema=ROWS), name="in")
    stream.group_by("k").agg(n="count(*)").to(ef.sinks.memory(), name="exact", guarantee="precise")
    loose = stream.group_by("v").agg(n="count(*)")
    loose.to(ef.sinks.memory(), name="loose", guarantee="gap")
    found = layout(flow.network, sites=2, partitions=4)
    modes = tuple(Mode.AMNESIA if segment.name in (loose.box.name, "loose") else Mode.PAIRS for segment in found.segments)
    assert checked(found, modes) == modes
    assert given_to(found, modes, "exact") is Guarantee.PRECISE and given_to(found, modes, "loose") is Guarantee.GAP


def test_a_sink_that_remembers_nothing_is_given_epochs_twice() -> None:
    sink = ef.sinks.callback(print)
    found, _ = planned(BOXES["filter"][2], sink, guarantee="precise")
    with pytest.raises(AvailabilityError, match="callback cannot remember an epoch, so it may be given one twice: no mode helps"):
        checked(found, ())
    found, _ = planned(BOXES["filter"][2], sink, guarantee="no-loss")
    assert checked(found, ()) == () and given_to(found, (), "out") is Guarantee.NO_LOSS


def test_a_backup_needs_a_second_site() -> None:
    found, _ = planned(BOXES["filter"][2])
    with pytest.raises(AvailabilityError, match="availability 'passive' needs two sites at least, and there is 1"):
        checked(found, of_all(found, Mode.PASSIVE), sites=1)
    assert checked(found, of_all(found, Mode.PASSIVE), sites=2)


@pytest.mark.parametrize("given", ["exactly-once", "", 3, "PRECISE"])
def test_an_unknown_guarantee_is_refused_where_it_is_given(given: Any) -> None:
    with pytest.raises(QueryError, match="box 'out': guarantee is .*; it must be one of 'precise', 'no-loss', 'gap'"):
        planned(BOXES["filter"][2], guarantee=given)


def test_a_misspelt_guarantee_is_guessed() -> None:
    with pytest.raises(AvailabilityError, match="did you mean 'no-loss'"):
        guarantee_named("no_loss", "box 'out'")


def test_the_cheapest_that_would_do() -> None:
    assert [cheapest(of, Guarantee.PRECISE) for of in OperatorClass] == [Mode.UPSTREAM, Mode.UPSTREAM, Mode.PASSIVE, Mode.PAIRS]
    assert {cheapest(of, Guarantee.GAP) for of in OperatorClass} == {Mode.AMNESIA}
    assert set(CHEAPEST_FIRST) == set(Mode)


def test_it_is_asked_for_in_all_that_draws() -> None:
    flow = ef.Dataflow("saved")
    flow.source(ef.sources.memory([], schema=ROWS), name="in").to(ef.sinks.discard(), guarantee="gap", availability="amnesia", name="out")
    again = ef.Dataflow.from_json(flow.to_json())
    assert again.network == flow.network and "gap through failures" in flow.to_text()
    assert "guarantee='gap', availability='amnesia', name='out'" in to_python(flow.network).replace('"', "'")


def test_regions_of_a_group_make_the_same() -> None:
    check_alike((), "world")
    with pytest.raises(AvailabilityError, match="group 'world': its regions make the same results"):
        check_alike((Mode.PAIRS, Mode.AMNESIA), "world")


def test_amnesia_is_refused_where_its_loss_would_be_no_loss_or_too_much() -> None:
    """Goal: what cannot be declared is refused: a location, replicas behind it, sinks that keep epochs at sites."""
    found, _ = planned(BOXES["filter"][2])
    amnesia = of_all(found, Mode.AMNESIA)
    assert checked(found, amnesia, replicas=2) == amnesia
    with pytest.raises(AvailabilityError, match="'amnesia' and a checkpoint location do not go together"):
        checked(found, amnesia, located=True)
    with pytest.raises(AvailabilityError, match="'passive' and 'amnesia' do not go together"):
        checked(found, (Mode.AMNESIA, *(Mode.PASSIVE,) * (len(found.segments) - 1)))
    mixed = (Mode.AMNESIA, *(Mode.PAIRS,) * (len(found.segments) - 1))
    assert checked(found, mixed) == mixed, "one replica loses what it loses"
    with pytest.raises(AvailabilityError, match="'in' has availability 'amnesia', and 'out' behind it has 2 replicas"):
        checked(found, mixed, replicas=2)
    written, _ = planned(BOXES["filter"][2], ef.sinks.parquet("/tmp/nowhere"))
    with pytest.raises(AvailabilityError, match="sink 'out' keeps epochs at sites until they are stored"):
        checked(written, of_all(written, Mode.AMNESIA))
