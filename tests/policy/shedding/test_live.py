"""What a run's own windows say of what to leave out, where sources differ in how much they bring."""

from __future__ import annotations

import pytest

import evenflow as ef
from evenflow.plan.layout import Layout
from evenflow.policy.shedding.live import FlowPlanner, Way
from evenflow.query.planner import layout
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SegmentWindow, SiteWindow, SourceWindow

WINDOW_US = 500_000


@pytest.fixture(scope="module")
def planned() -> Layout:
    return of_sources("loud", "quiet")


def of_sources(*names: str) -> Layout:
    """Each with an output of its own; between, rows are dealt out, and a plan may leave some out."""
    flow = ef.Dataflow("some")
    for name in names:
        rows = flow.source(ef.sources.generator(1000, 10, rows=10, partitions=1), name=name).select("key", "value")
        sink = ef.sinks.memory(f"of {name}")
        rows.repartition().select("key").to(sink, name=f"of {name}", qos=ef.qos(latency=[("250 ms", 1), ("1 s", 0)]))
    return layout(flow.network, sites=1)


def seen(planned: Layout, rows: dict[str, int], row_us: int, at: int = 0, *, taken: float = 1.0, read_us: int = 1) -> Statistics:
    """A window of one site. rows: offered, by source. row_us: what one costs where it is dealt to; read_us: where it comes in. taken: the
    share that was read."""
    segments, sources, came = [], [], dict[int, int]()
    for segment in planned.segments:
        if segment.kind == "ingress":
            name = str(segment.source)
            came[segment.id] = int(rows[name] * taken)
            sources.append(SourceWindow(name, segment.id, 0, rows[name], came[segment.id], behind=rows[name] - came[segment.id]))
        else:
            came[segment.id] = sum(came[planned.arcs[arc].producer] for arc in segment.inputs)
        dealt_out = any(planned.segments[planned.arcs[arc].producer].kind == "ingress" for arc in segment.inputs)
        took_us = came[segment.id] * (row_us if dealt_out else read_us if segment.kind == "ingress" else 1)
        put = tuple((arc, came[segment.id]) for arc in segment.outputs)
        if came[segment.id]:
            segments.append(SegmentWindow(segment.id, segment.name, (0,), (came[segment.id],), (0,), took_us, (), arc_rows=put))
    begin_us, busy_us = at * WINDOW_US, sum(each.busy_us for each in segments)
    return Statistics.of([SiteWindow(0, begin_us, begin_us + WINDOW_US, busy_us, segments=tuple(segments), sources=tuple(sources))])


@pytest.mark.parametrize("quiet", [0, 5, 40])
@pytest.mark.parametrize("way", ["lp", "fit"])
def test_a_source_that_brings_next_to_nothing_stops_no_plan(planned: Layout, way: Way, quiet: int) -> None:
    """Goal: what is too little to be measured is too little to matter. A plan was made by nobody as long as one source was quiet, and the
    reflex left out of all outputs alike. Method: twice what can be done of the loud one."""
    planner, decided = FlowPlanner(planned, way), None
    for at in range(3):
        decided = planner.decide(seen(planned, {"loud": 1000, "quiet": quiet}, 1000, at, taken=0.45), {}, ()) or decided
    assert decided is not None
    names = [planned.segments[arc.producer].name for arc in planned.arcs]
    [loud, still] = [decided.keeps[names.index(name)] for name in ("loud", "quiet")]
    assert 0.35 < loud[0] < 0.55 and still in ((), (1.0,))


@pytest.mark.parametrize("way", ["lp", "fit"])
def test_a_source_of_which_nothing_was_taken_yet_is_waited_for(planned: Layout, way: Way) -> None:
    """What it offers may cost anything."""
    planner = FlowPlanner(planned, way)
    told = seen(planned, {"loud": 1000, "quiet": 0}, 1000, taken=0.45)
    [site] = told.sites
    offered = tuple(SourceWindow(each.source, each.segment, 0, 1000, each.kept) for each in site.sources)
    told = Statistics.of([SiteWindow(0, 0, WINDOW_US, WINDOW_US, segments=site.segments, sources=offered)])
    assert planner.decide(told, {}, ()) is None


@pytest.mark.parametrize("way", ["lp", "fit"])
def test_nothing_is_left_out_while_all_can_be_done(planned: Layout, way: Way) -> None:
    planner = FlowPlanner(planned, way)
    assert [planner.decide(seen(planned, {"loud": 1000, "quiet": 5}, 300, at), {}, ()) for at in range(3)] == [None] * 3


@pytest.mark.parametrize("count", [3, 4, 5])
def test_where_a_table_would_be_too_large_the_program_says_what_is_kept(count: int) -> None:
    """Goal: `fit` leaves rows out of as many sources as there are. Of four it did not, by a table of 21^4 points that cannot be made: no
    round planned anything, and the reflex left out of all outputs alike."""
    names = [f"s{number}" for number in range(count)]
    planned = of_sources(*names)
    told = [seen(planned, dict.fromkeys(names, 1000 // count), 1000, at, taken=0.45) for at in range(3)]
    plans = {way: FlowPlanner(planned, way) for way in ("lp", "fit")}
    found = {way: [planner.decide(each, {}, ()) for each in told][-1] for way, planner in plans.items()}
    enter = [arc.id for arc in planned.arcs if planned.segments[arc.producer].kind == "ingress"]
    kept = {way: sum(sum(decided.keeps[arc] or (1.0,)) for arc in enter) for way, decided in found.items() if decided}
    assert kept.keys() == {"lp", "fit"} and kept["fit"] == pytest.approx(kept["lp"], abs=0.1)


@pytest.mark.parametrize("read_us", [50, 150])
@pytest.mark.parametrize("row_us", [450, 900])
def test_a_table_counts_what_rows_cost_where_they_come_in(row_us: int, read_us: int) -> None:
    """Goal: a site has for the rest what the reading of its sources leaves. A table gave all of it to the rest: where rows cost much where
    they come in it left out too few, or none, and the site had too much with the plan as without one."""
    planned, keeps = of_sources("only"), {}
    for way in ("lp", "fit"):
        planner = FlowPlanner(planned, way)
        for at in range(3):
            decided = planner.decide(seen(planned, {"only": 1000}, row_us, at, taken=0.4, read_us=read_us), {}, ())
            keeps[way] = decided.keeps[0] if decided else ()
    assert keeps["fit"] == pytest.approx(keeps["lp"], abs=0.01)
    left = 0.95 - read_us * 1000 / WINDOW_US
    assert (keeps["fit"][0] if keeps["fit"] else 1.0) == pytest.approx(min(1.0, left / (row_us * 1000 / WINDOW_US)), abs=0.01)
