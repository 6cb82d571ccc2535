"""How many sites there are: more at once and in one step, fewer after a calm, and never to and fro."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import evenflow as ef
from evenflow.coordinator.scaling import Seen
from evenflow.errors import PolicyError
from evenflow.policy.hosting import Hosting
from evenflow.policy.scaling import Bounds, Lately, Need, Past, Standing, Times, decide, enough, fullest, growth, need
from evenflow.policy.spreading import spread
from evenflow.query.planner import layout
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SegmentWindow, SiteWindow, SourceWindow

BOUNDS = Bounds(2, 8)
TIMES = Times()


def needed(at_s: float, load: float) -> Need:
    """Of sand: it is the same for each number of sites."""
    fullest = tuple(load / sites for sites in range(BOUNDS.least, BOUNDS.most + 1))
    return Need(int(at_s * 1e6), load, fullest, fullest)


def scaled(
    load: Callable[[float], float], seconds: int, sites: int = 2, *, start_s: int = 15, busy: str = "", every: int = 1
) -> list[tuple[int, int]]:
    """(second, sites wanted) of each change, where sites come after start_s and leave at once. every: seconds between two looks."""
    past, found, there, coming = Past(), [(0, sites)], sites, 0
    for second in range(0, seconds, every):
        if coming and second >= coming:
            there, coming = found[-1][1], 0
        past, wanted = decide(past, needed(second, load(second)), Standing(there, changing=bool(coming), busy=busy), BOUNDS, TIMES)
        if wanted.sites != there and not coming:
            found.append((second, wanted.sites))
            if wanted.sites > there:
                coming = second + start_s
            else:
                there = wanted.sites
    return found[1:]


def test_a_step_is_taken_at_once_and_back_after_the_calm() -> None:
    """x3 and back: sites come within two looks, in one step, and go in one, when ten minutes have forgotten the load."""
    found = scaled(lambda s: 4.5 if 100 <= s < 200 else 1.5, 1200)
    assert [sites for _, sites in found] == [6, 3]
    assert found[0][0] == 101
    assert 200 + TIMES.calm_s <= found[1][0] <= 200 + TIMES.past_s + TIMES.calm_s + 10


@pytest.mark.parametrize("period_s", [60, 200, 600, 1200])
@pytest.mark.parametrize("mean", [1.6, 2.0, 3.1, 4.3])
def test_a_sine_changes_nothing_once_its_peak_is_known(mean: float, period_s: int) -> None:
    found = scaled(lambda s: mean * (1 + 0.3 * math.sin(2 * math.pi * s / period_s)), 4 * max(period_s, 600), 3, every=10)
    assert not [change for change in found if change[0] > max(period_s, 600)] or period_s > TIMES.past_s
    assert len(found) <= (1 + period_s // 600) * 3


def test_noise_brings_nobody_back() -> None:
    """A load that lies just where one site more or less would do, with a tenth of noise."""
    random = Random(7)
    for load in np.arange(1.5, 5.5, 0.5):
        found = scaled(lambda s, load=load: load * random.gauss(1, 0.03), 3600, 5, every=10)  # type: ignore[misc]
        assert len(found) <= 2, (load, found)


def test_a_rise_is_met_before_it_has_come() -> None:
    """Over five minutes from 1.4 to 5.6: when a site that was called has come, it is not too late."""
    short = 0

    def load(second: float) -> float:
        return 1.4 + 4.2 * min(1.0, max(0.0, (second - 60) / 300))

    changes = [(0, 2), *((second + TIMES.start_s, sites) for second, sites in scaled(load, 500))]
    for second in range(500):
        there = [sites for at, sites in changes if at <= second][-1]
        short += load(second) / there > 1.0
    assert short == 0


def test_nobody_leaves_while_something_comes_first() -> None:
    assert scaled(lambda s: 1.0, 600, 6, busy="something moves", every=5) == []
    assert scaled(lambda s: 1.0, 600, 6, every=5) != []


def test_while_sites_come_nothing_else_is_asked_for() -> None:
    past = Past()
    for second in range(10):
        past, wanted = decide(past, needed(second, 6.0), Standing(2, changing=True), BOUNDS, TIMES)
        assert wanted.sites == 2


def test_what_moves_is_looked_at_only_when_there_is_nothing_else() -> None:
    """What was read twice looks like load: it is passed over, but not for ever."""
    past, found = Past(), []
    for second in range(40):
        past, wanted = decide(past, needed(second, 6.0), Standing(2, moving=second > 0), BOUNDS, TIMES)
        found.append(wanted.sites)
    assert found[:10] == [2] * 10 and 8 in found


def test_more_than_the_most_is_said() -> None:
    past, found = Past(), []
    for second in range(3):
        past, wanted = decide(past, needed(second, 9.0), Standing(8), BOUNDS, TIMES)
        found.append((wanted.sites, wanted.most_busy is not None and wanted.most_busy > 1))
    assert found == [(8, True)] * 3


@pytest.mark.parametrize(("load", "seen", "wanted"), [(1.5, 30, 2), (6.0, 30, 8), (2.0, 30, 3), (6.0, 3, 2)])
def test_who_is_being_emptied_stays_if_all_are_needed(load: float, seen: int, wanted: int) -> None:
    """Goal: a load that rises while a site leaves is not waited out. Method: of three sites one leaves, pieces move all the while, and so
    many looks see the load; what they have seen is not remembered."""
    past, found = decide(Past(), needed(0, 1.5), Standing(3), BOUNDS, TIMES)[0], 2
    before = past
    for second in range(1, 31):
        busy = needed(second, load if second <= seen else 1.5)
        past, told = decide(past, busy, Standing(2, changing=True, moving=True, busy="something moves", leaving=1), BOUNDS, TIMES)
        found = max(found, told.sites)
        assert told.text.startswith("nobody leaves") == (told.sites > 2)
    assert found == wanted and (past.needs, past.asked) == (before.needs, before.asked)


def test_fewer_than_the_least_are_made_up() -> None:
    assert decide(Past(), needed(0, 0.1), Standing(1), BOUNDS, TIMES)[1].sites == 2


def test_a_step_has_no_trend() -> None:
    """Else what came at once would be taken for the beginning of much more."""
    for at in range(1, 30):
        assert growth([needed(s, 1.0 if s < at else 3.0) for s in range(31)], 15) == pytest.approx(1.0)
    assert growth([needed(s, 1.0 + 0.01 * s) for s in range(31)], 15) == pytest.approx(1 + 0.15 / 1.3, rel=0.01)


def test_stones_are_laid_out_and_sand_is_poured() -> None:
    assert fullest(np.array([0.5, 0.5, 0.5]), 2, 0.1) == pytest.approx(1.0)
    assert fullest(np.array([0.5, *[0.01] * 50]), 2, 0.1) == pytest.approx(0.5)
    assert fullest(np.array([0.5, *[0.01] * 150]), 2, 0.1) == pytest.approx(1.0)
    assert fullest(np.zeros(0), 3, 0.0) == 0.0
    random = np.random.default_rng(1)
    for _ in range(50):
        pieces = random.random(random.integers(1, 40)) ** 4
        busy = [fullest(pieces, sites, 0.0) for sites in range(1, 9)]
        assert all(each >= max(pieces.max(), pieces.sum() / sites) - 1e-9 for sites, each in enumerate(busy, 1))


def test_enough_is_the_least_number() -> None:
    assert enough((1.0, 0.7, 0.5, 0.4), Bounds(2, 5), 0.8) == 3 and enough((1.0, 0.9), Bounds(2, 3), 0.8) == 3


def laid_out(pieces: list[float], bounds: Bounds, overhead: float = 0.0) -> tuple[float, ...]:
    """need(n) of these pieces."""
    busy = np.array(pieces)
    return tuple(fullest(busy, sites, busy.sum() / bounds.most * 0.02) + overhead for sites in range(bounds.least, bounds.most + 1))


@pytest.mark.parametrize("hot", [0.75, 0.85, 0.95, 1.4])
def test_what_no_site_can_do_asks_for_none(hot: float) -> None:
    """Goal: a partition that is too much for any site brings no sites that would have nothing to do, and keeps none that are there.
    Method: one that is hot beside twenty that are next to nothing."""
    busy = laid_out([hot, *[0.02] * 20], BOUNDS)
    past, found, times = Past(), [], Times(past_s=20.0, calm_s=10.0)
    for second in range(30):
        past, wanted = decide(past, Need(second * 1_000_000, hot + 0.4, busy, busy), Standing(4 if second > 5 else 2), BOUNDS, times)
        found.append(wanted.sites)
    assert set(found[:6]) == {2} and found[-1] == 2


def test_of_those_that_do_no_better_the_fewest_are_enough() -> None:
    """As well as the most can: a hot piece counts for nothing, and what is too much by its sum gets all that there may be."""
    random = np.random.default_rng(5)
    for most in (8, 64):
        bounds = Bounds(2, most)
        for _ in range(5):
            pieces = [*random.random(random.integers(1, 4)) * 1.5, *random.random(100) * 0.04 * most * random.random()]
            for overhead in (0.0, 0.2):
                busy = laid_out(pieces, bounds, overhead)
                assert busy[enough(busy, bounds, 0.8) - bounds.least] <= max(0.8, 1.02 * busy[-1])
        for overhead in (0.0, 0.2):
            assert enough(laid_out([0.02] * (60 * most), bounds, overhead), bounds, 0.8) == most


def shown(site_us: int, segment_us: int, *, sites: int = 2, rows: int = 600) -> Lately:
    """A run whose source's segment took so much of a second of each site, which was so busy in all."""
    flow = ef.Dataflow("shown")
    flow.source(ef.sources.generator(1000, 10, rows=10, partitions=6 * sites), name="in").to(ef.sinks.discard(), name="out")
    windows = []
    for site in range(sites):
        mine = tuple(range(6 * site, 6 * site + 6))
        segment = SegmentWindow(0, "in", mine, (rows // 6,) * 6, (0,) * 6, segment_us, ())
        sources = tuple(SourceWindow("in", 0, partition, rows // 6, rows // 6) for partition in mine)
        windows.append(SiteWindow(site, 0, 1_000_000, site_us, segments=(segment,), sources=sources))
    statistics = Statistics.of(windows)
    hosting = Hosting.of(statistics)
    return Lately(statistics, statistics, Hosting(hosting.replicas, hosting.capacity, layout=layout(flow.network, sites=sites)))


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_what_each_run_of_an_engine_does_counts_once(runs: int) -> None:
    """Goal: runs that share their sites need what they need together. How busy a site is, each run says of the whole site: what another
    one does there was taken for work that no further site relieves, and two sites that were 62% busy asked for six. Method: runs of 20% of
    each of two sites, which do 2% beside them."""
    found = need([shown(20_000 + runs * 200_000, 200_000)] * runs, 0, BOUNDS, TIMES)
    assert found.fullest == pytest.approx([0.02 + 0.4 * runs / sites for sites in range(2, 9)], abs=0.03)
    assert found.load == pytest.approx(0.4 * runs) and found.overhead == pytest.approx(0.02)


def test_what_a_site_does_beside_rows_does_not_grow_with_them() -> None:
    """Goal: a rise asks for what it will need. Method: half of each site's time goes beside rows, whatever comes, and what comes rises to
    40% of one site, and would be 55% when a third one has come: then the busiest of two is 78% busy."""
    past = Past()
    for second in range(31):
        load = 0.1 + 0.01 * second
        busy = tuple(0.5 + load / sites for sites in range(2, 9))
        past, wanted = decide(past, Need(second * 1_000_000, load, busy, busy, 0.5), Standing(2), BOUNDS, TIMES)
        assert wanted.sites == 2


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("newcomers", [(3,), (3, 4, 5)])
def test_newcomers_get_their_part_of_every_segment(newcomers: tuple[int, ...], replicas: int) -> None:
    sites = (0, 1, 2, *newcomers)
    placed = {
        (segment, partition): tuple((partition + rank) % 3 for rank in range(replicas))
        for segment, count in ((0, 6), (1, 24), (2, 1), (3, 1), (4, 1), (5, 1)) for partition in range(count)
    }  # fmt: skip
    moves = spread(Hosting(placed, dict.fromkeys(sites, 1.0)), newcomers)
    after = {piece: list(at) for piece, at in placed.items()}
    for move in moves:
        for partition in move.partitions:
            row = after[move.segment, partition]
            row[row.index(move.source)] = move.target
    assert all(len(set(row)) == replicas for row in after.values())
    for segment, count in ((0, 6), (1, 24)):
        for site in newcomers:
            has = sum(site in row for (of, _), row in after.items() if of == segment)
            assert has >= count * replicas // len(sites), (segment, site, has)
    assert sum(len(move.partitions) for move in moves) == len({(m.segment, p) for m in moves for p in m.partitions})


def test_a_newcomer_gets_no_more_than_its_part_of_what_is_hot() -> None:
    placed = {(1, partition): (partition % 2,) for partition in range(8)}
    loads = {(1, partition): 8.0 if partition == 0 else 1.0 for partition in range(8)}
    moves = spread(Hosting(placed, {0: 1.0, 1: 1.0, 2: 1.0}), (2,), loads)
    assert {move.source for move in moves} == {0} and sum(len(move.partitions) for move in moves) == 3
    assert 0 not in moves[0].partitions


def test_what_is_pinned_stays() -> None:
    placed = {(1, partition): (0,) for partition in range(4)}
    hosting = Hosting(placed, {0: 1.0, 1: 1.0}, frozenset({(1, 0), (1, 1), (1, 2)}))
    assert [move.partitions for move in spread(hosting, (1,))] == [(3,)]
    assert spread(Hosting(placed, {0: 1.0}), (1,)) == ()


@pytest.mark.parametrize(
    "given",
    [
        {"fill": 0.0}, {"fill": 80}, {"rest": 1.5}, {"past_s": -1.0}, {"calm_s": float("nan")}, {"start_s": float("inf")},
        {"backlog_s": "30"}, {"calm_s": True}, {"looks": 0}, {"looks": 2.0}, {"looks": True},
    ],
)  # fmt: skip
def test_times_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    """Goal: who gives what makes no sense is told so at the start. With `looks=0` each look changed the number of sites, with `fill=80`
    none ever came, and with a text every look failed, for as long as the engine lived. A file's were refused already."""
    with pytest.raises(PolicyError, match=f"{next(iter(given))} is .*; it must be"):
        Times(**given)
    assert Times(fill=1, rest=1, calm_s=1, looks=1).fill == 1


@pytest.mark.parametrize("kept", [1.0, 0.0])
def test_what_is_left_out_for_long_is_needed_all_the_same(kept: float) -> None:
    """Goal: who waits for executors goes on wanting as many. Of an output of which a plan kept nothing nobody knew after half a minute what
    its rows had cost: fewer sites were enough, and when they were there and all came through again, those that could be done without left.
    Method: two outputs that cost as much, for a minute; then two in which one gets what is kept of it."""
    flow = ef.Dataflow("two")
    rows = flow.source(ef.sources.generator(1000, 10, rows=10, partitions=1), name="in").select("key")
    for name in ("dear", "cheap"):
        rows.repartition().select("key").to(ef.sinks.memory(name), name=name, qos=ef.qos(latency=[("1 s", 1), ("2 s", 0)]))
    planned, seen, found = layout(flow.network, sites=1), Seen(), []
    for second in range(180):
        came, segments = {0: 1000}, []
        for segment in planned.segments:
            for arc in segment.inputs:
                share = kept if second >= 60 and planned.segments[planned.arcs[arc].consumer].name == "repartition_2" else 1.0
                came[segment.id] = int(came[planned.arcs[arc].producer] * share)
            count, put = came[segment.id], tuple((arc, came[segment.id]) for arc in segment.outputs)
            busy_us = count * 600 if segment.name.startswith("repartition") else 0
            segments.append(SegmentWindow(segment.id, segment.name, (0,), (count,), (0,), busy_us, (), arc_rows=put))
        sources = (SourceWindow("in", 0, 0, 1000, 1000, behind=0),)
        begin_us, busy_us = second * 1_000_000, min(1_000_000, sum(each.busy_us for each in segments))
        window = SiteWindow(0, begin_us, begin_us + 1_000_000, busy_us, segments=tuple(segments), sources=sources)
        seen.add(Statistics.of([window]))
        hosted = Hosting.of(Statistics.of([window]))
        lately = seen.lately(Hosting(hosted.replicas, hosted.capacity, layout=planned))
        found.append(need([lately], begin_us, BOUNDS, TIMES).load)
    assert found == pytest.approx([1.2] * 180, rel=0.01)
