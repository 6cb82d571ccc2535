"""Placements by name, asked with what was recorded: each is the function that it names, and each refuses what tells it nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evenflow.errors import PolicyError
from evenflow.experiments.harness.chains import chain_of, chains
from evenflow.plan.layout import Layout
from evenflow.policy.placing import PLACEMENTS, Recorded, place
from evenflow.policy.start import start
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SiteWindow
from tests.policy.profiles import profile, totals


def two_sites(found: Statistics, begin_us: int = 0, slow: int = 1) -> Statistics:
    """What one site did, done by two: each the whole, as two replicas do. slow: so much longer the second takes."""
    (window,) = found.sites
    again = tuple(replace(segment, busy_us=segment.busy_us * slow) for segment in window.segments)
    other = replace(window, site=1, segments=again, sources=())
    return Statistics.of(replace(each, begin_us=begin_us, end_us=begin_us + 1_000_000) for each in (window, other))


def bursts(planned: Layout) -> list[Statistics]:
    """Eight windows of one second; in each only one of the two inputs has rows."""
    found = []
    for at in range(8):
        whole = two_sites(profile(planned, {1: 11.0, 2: 9.0, 4: 10.0, 5: 10.0}), at * 1_000_000)
        sites = []
        for window in whole.sites:
            quiet = {s.id for s in planned.segments if chain_of(s) == at % 2}
            segments = [
                replace(s, rows=(0,) * len(s.rows), busy_us=0, arc_rows=tuple((a, 0) for a, _ in s.arc_rows)) if s.segment in quiet else s
                for s in window.segments
            ]
            sources = tuple(replace(s, offered=0, kept=0) if s.segment in quiet else s for s in window.sources)
            sites.append(replace(window, segments=tuple(segments), sources=sources))
        found.append(Statistics.of(sites))
    return found


def test_what_bursts_together_is_apart() -> None:
    """BO fig. 3: each site has one box of each chain. Largest load first sees means only, by which each chain is at a site of its own."""
    planned = chains()
    boxes = [s for s in planned.segments if s.kind != "ingress"]
    met = {}
    for name, known in (("largest", planned), ("largest", None), ("correlation", planned), ("correlation", None), ("resilient", planned)):
        found = place(name, bursts(planned), known)
        met[name, known is None] = [len({found.replicas[s.id, 0] for s in boxes if chain_of(s) == chain}) == 1 for chain in range(2)]
        assert (found.apart is None) == (known is None)
        if known is not None:
            assert found.feasible > 0.9 if name != "largest" else found.feasible < 0.55
    assert met == {
        ("largest", False): [True, True], ("largest", True): [True, True],
        ("correlation", False): [False, False], ("correlation", True): [False, False], ("resilient", False): [False, False],
    }  # fmt: skip


def test_start_is_the_place_that_a_plan_asks_for() -> None:
    planned = totals(4, 2)
    costs = {s.id: 10.0 * (1 + s.id) for s in planned.segments}
    whole = two_sites(profile(planned, costs))
    found, at = place("start", [whole], planned), start(planned, 2, whole)
    assert found.replicas == {(s.id, p): at(s, p, 2) for s in planned.segments for p in range(s.in_use or s.partitions)}


def test_a_slow_site_gets_less() -> None:
    planned = totals(0, 2)
    whole = two_sites(profile(planned, {s.id: 10.0 for s in planned.segments}), slow=3)
    recorded = Recorded.of([whole], planned)
    assert recorded.model.capacity[0] == pytest.approx(3 * recorded.model.capacity[1])
    found = place("largest", [whole])
    assert found.utilization[0] == pytest.approx(found.utilization[1], rel=0.3)
    counts = np.bincount(list(found.replicas.values()), minlength=2)
    assert counts[0] > 2 * counts[1]
    assert found.elsewhere == 0, "each of the two has a replica of everything"


def test_every_placement_places_all_once_and_always_the_same() -> None:
    planned = totals(3, 2)
    whole = two_sites(profile(planned, {s.id: 10.0 for s in planned.segments}))
    for name in PLACEMENTS:
        found = place(name, [whole], planned)
        assert set(found.replicas) == {(s.id, p) for s in planned.segments for p in range(s.in_use or s.partitions)}, name
        assert set(found.replicas.values()) <= {0, 1} and 0 < found.feasible <= 1, name
        assert place(name, [whole], planned).replicas == found.replicas, name


def test_what_tells_nothing_is_refused() -> None:
    planned = totals(2, 2)
    whole = two_sites(profile(planned, {s.id: 10.0 for s in planned.segments}))
    with pytest.raises(PolicyError, match="there is no placement 'fountain'; there are start"):
        place("fountain", [whole])
    for name in ("start", "resilient", "connected"):
        with pytest.raises(PolicyError, match=f"{name} asks what feeds what.*--dataflow"):
            place(name, [whole])
    with pytest.raises(PolicyError, match="not of this dataflow: their segment"):
        place("resilient", [whole], chains())
    with pytest.raises(PolicyError, match="nothing can be placed"):
        place("largest", [Statistics(0, 0, ())])
    with pytest.raises(PolicyError, match="nothing can be placed"):
        place("largest", [Statistics.of([SiteWindow(0, 0, 1, 0)])])
    silent = Statistics.of(replace(window, sources=()) for window in whole.sites)
    with pytest.raises(PolicyError, match="do not say what sources offered"):
        place("resilient", [silent], planned)
