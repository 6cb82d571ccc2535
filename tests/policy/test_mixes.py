"""What rounds weigh beside the present: what sites would do at other rates, and partitions that change places for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evenflow.experiments.harness.chains import chains, cut, whole
from evenflow.plan.placement import Place, first_plan
from evenflow.policy.catalogue import described
from evenflow.policy.forecast import forecast
from evenflow.policy.hosting import Hosting
from evenflow.policy.load import measure
from evenflow.policy.mixes import ENOUGH
from evenflow.policy.own import evenflow
from evenflow.policy.proposal import Memory, Parameters, Proposal
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SegmentWindow, SiteWindow, SourceWindow
from tests.policy.windows import where

OWN = described("evenflow").parameters
COST_US = 400.0
WINDOW_US = 1_000_000
LAYOUT = chains()


def hosting(place: Place, **changed: object) -> Hosting:
    plan = first_plan(LAYOUT, 2, place=place)
    replicas = {(segment.id, 0): tuple(map(int, plan.placement[segment.id][0])) for segment in LAYOUT.segments}
    pinned = frozenset((segment.id, 0) for segment in LAYOUT.segments if segment.kind == "ingress")
    return replace(Hosting(replicas, {0: 1.0, 1: 1.0}, pinned, layout=LAYOUT), **changed)  # type: ignore[arg-type]


def window(at: int, rates: tuple[int, int], hosted: Hosting, state: int = 1000, free: int | None = None) -> Statistics:
    """A second in which sources offer so many rows; each box costs COST_US per row, and the inputs nothing."""
    sites = []
    for site in (0, 1):
        segments, sources = [], []
        for segment in LAYOUT.segments:
            rows = rates[segment.id // 3]
            if site in hosted.replicas[segment.id, 0]:
                busy_us = 0 if segment.kind == "ingress" else round(rows * COST_US)
                out = tuple((arc, rows) for arc in segment.outputs)
                segments.append(SegmentWindow(segment.id, segment.name, (0,), (rows,), (state,), busy_us, (), (), out))
                if segment.kind == "ingress":
                    sources.append(SourceWindow(str(segment.source), segment.id, 0, rows, rows))
        busy_us = sum(segment.busy_us for segment in segments)
        begin_us = at * WINDOW_US
        sites.append(SiteWindow(site, begin_us, begin_us + WINDOW_US, busy_us, free, 0, 0, tuple(segments), sources=tuple(sources)))
    return Statistics.of(sites)


def rounds(
    place: Place,
    turns: tuple[tuple[int, int], ...],
    count: int,
    state: int = 1000,
    parameters: Parameters = OWN,
    free: int | None = None,
    **changed: object,
) -> list[Proposal]:
    """What the policy proposes in windows of these rates, in turn, while nothing is carried out."""
    hosted, memory, found = hosting(place, **changed), Memory(), list[Proposal]()
    for at in range(count):
        found.append(evenflow(window(at, turns[at % len(turns)], hosted, state, free), hosted, parameters, memory))
        memory = found[-1].memory
        if found[-1].moves:
            break
    return found


IN_TURN = ((500, 1000), (1000, 500))


def test_what_bursts_together_is_parted_though_nothing_is_out_of_balance_for_long() -> None:
    """BO fig. 3: no move helps, since a site has one box too many in every other window. The last boxes of the chains change places, and
    not the first ones, which would send rows there and back."""
    found = rounds(whole, IN_TURN, 4 * ENOUGH)
    assert ENOUGH <= len(found) < 2 * ENOUGH
    assert sorted(where(found[-1])) == [((0,), 0, 1), ((0,), 1, 0)]
    assert sorted((move.segment, move.source) for move in found[-1].moves) == [(2, 0), (5, 1)]
    assert "change places" in found[-1].text


def test_chains_that_are_cut_stay() -> None:
    assert all(not proposal.moves for proposal in rounds(cut, IN_TURN, 4 * ENOUGH))


def test_even_rates_part_the_chains_for_the_mixes_that_may_come() -> None:
    """Sites are even, and nothing has ever burst: ROD's reason."""
    assert rounds(whole, ((700, 700),), 4 * ENOUGH)[-1].moves


@pytest.mark.parametrize(
    "changed",
    [
        {"layout": None},
        {"pinned": frozenset((segment, 0) for segment in (0, 1, 2, 3))},
        {"capacity": {0: 1.0}},
    ],
)
def test_nothing_changes_places_that_may_not(changed: dict[str, object]) -> None:
    assert all(not proposal.moves for proposal in rounds(whole, ((700, 700),), 3 * ENOUGH, **changed))


def test_a_swap_has_to_pay_for_both_copies() -> None:
    """At the speed that copies are taken to have, 4 GB take longer than is gained in a minute; without that bound they go."""
    assert all(not proposal.moves for proposal in rounds(whole, ((700, 700),), 3 * ENOUGH, state=4_000_000_000))
    patient = replace(OWN, payback_us=OWN.payback_us * 100)
    assert rounds(whole, ((700, 700),), 3 * ENOUGH, 4_000_000_000, patient)[-1].moves


def test_a_swap_needs_memory_for_both_before_either_is_gone() -> None:
    """Both copies are taken at once, so a site has for a while what comes beside what goes."""
    assert rounds(whole, ((700, 700),), 3 * ENOUGH, 1_000_000, free=1_000_000)[-1].moves
    assert all(not proposal.moves for proposal in rounds(whole, ((700, 700),), 3 * ENOUGH, 1_000_000, free=999_999))


def test_idle_sites_are_left_alone() -> None:
    assert all(not proposal.moves for proposal in rounds(whole, ((7, 7),), 3 * ENOUGH))


def test_what_is_remembered_is_a_value() -> None:
    """Equal input, equal memory, though it holds arrays."""
    one, other = rounds(whole, IN_TURN, ENOUGH - 1)[-1].memory, rounds(whole, IN_TURN, ENOUGH - 1)[-1].memory
    assert one == other and one.offered is not other.offered
    assert one != rounds(whole, IN_TURN, ENOUGH - 2)[-1].memory


def test_all_scenarios_have_the_mean_of_the_present() -> None:
    """So that a gain at other rates is as much as one now; and what two chains on one site do in their burst is twice the mean."""
    hosted = hosting(whole)
    last = rounds(whole, ((700, 700),), 2 * ENOUGH)[-1].memory
    sites = forecast(measure(window(0, (700, 700), hosted), hosted), window(0, (700, 700), hosted), hosted, last.known, {})
    mixed = last.offered.mixed(sites, hosted, last.known, {})
    assert mixed is not None and mixed.weights.sum() == pytest.approx(1)
    mean = (mixed.loads[0] + mixed.loads[1]) / 2
    assert mean == pytest.approx(np.full(mean.size, 0.56), rel=1e-6)
    assert max(mixed.loads[0].max(), mixed.loads[1].max()) <= 2 * 0.56 + 1e-9
    assert np.ptp(mixed.loads[0]) > 0.56
