"""Where first replicas lie: stones do not meet, sand stays in blocks, and a profile says what is dear."""

from __future__ import annotations

from collections import Counter

import pytest

from evenflow.experiments.harness.chains import chain_of, chains
from evenflow.plan.placement import first_plan, home
from evenflow.policy.start import start
from evenflow.statistics.statistics import Statistics
from tests.policy.profiles import profile, totals


@pytest.mark.parametrize(("count", "sites"), [(4, 4), (3, 4), (6, 3), (8, 4)])
def test_what_has_one_partition_does_not_meet(count: int, sites: int) -> None:
    """By the hash of their names some of them meet, while other sites have none."""
    planned = totals(count, sites)
    place = start(planned, sites)
    stones = [segment for segment in planned.segments if segment.kind != "ingress" and segment.partitions == 1]
    assert len(stones) >= count
    lie = Counter(place(segment, 0, sites) for segment in stones)
    assert max(lie.values()) - min(lie[column] for column in range(sites)) <= 1
    if (count, sites) == (4, 4):
        assert max(Counter(home(segment, 0, sites) for segment in stones).values()) > 1


def test_sand_and_inputs_are_at_home() -> None:
    planned = totals(3, 4)
    place = start(planned, 4)
    for segment in planned.segments:
        if segment.partitions > 1:
            assert [place(segment, p, 4) for p in range(segment.partitions)] == [home(segment, p, 4) for p in range(segment.partitions)]


def test_a_dear_box_has_a_site_for_itself() -> None:
    """One box costs as much as the three others and all keys together."""
    planned = totals(4, 2)
    stones = [segment for segment in planned.segments if segment.kind != "ingress" and segment.partitions == 1]
    cost = {segment.id: 10.0 for segment in stones} | {stones[0].id: 30.0}
    place = start(planned, 2, profile(planned, cost))
    dear = place(stones[0], 0, 2)
    assert [place(segment, 0, 2) == dear for segment in stones[1:]] == [False] * 3


def test_a_hot_partition_leaves_its_block() -> None:
    planned = totals(0, 2)
    (keyed,) = [segment for segment in planned.segments if segment.is_keyed(planned)]
    used = keyed.in_use or keyed.partitions
    place = start(planned, 2, profile(planned, {keyed.id: 20.0}, hot=0.4))
    lie = [place(keyed, p, 2) for p in range(used)]
    assert lie[:-1] == [home(keyed, p, 2) for p in range(used - 1)]
    mixed = start(planned, 2, profile(planned, {keyed.id: 20.0}))
    assert [mixed(keyed, p, 2) for p in range(used)] == [home(keyed, p, 2) for p in range(used)]
    assert lie[-1] == home(keyed, used - 1, 2), "the others of its block are fewer than it: no place is better"


def test_chains_are_cut_from_the_start() -> None:
    """BO fig. 3: boxes cost the same, and whichever input bursts, each site has one box of its chain. Without a profile the two inputs,
    which are at one site, may cost as much, so the other site has three of the boxes."""
    planned = chains()
    boxes = [segment for segment in planned.segments if segment.kind != "ingress"]
    place = start(planned, 2, profile(planned, {segment.id: 10.0 for segment in boxes}))
    assert sum(start(planned, 2)(segment, 0, 2) for segment in boxes) == 3
    for chain in range(2):
        assert len({place(segment, 0, 2) for segment in boxes if chain_of(segment) == chain}) == 2


def test_a_plan_of_it_is_a_plan() -> None:
    """Also for another number of columns than it was made for, and twice the same."""
    planned = totals(3, 4)
    plans = [first_plan(planned, 4, 2, place=start(planned, 2)) for _ in range(2)]
    assert plans[0] == plans[1]
    assert all(len(set(replicas)) == 2 for row in plans[0].placement for replicas in row)
    assert first_plan(planned, 4, place=start(planned, 2)) == first_plan(planned, 4)
    empty = start(planned, 4, Statistics(0, 0, ()))
    assert first_plan(planned, 4, place=empty) == first_plan(planned, 4, place=start(planned, 4))
