"""Where replicas lie at the start (T3): never two of a partition on one site, spread evenly, and who leads."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.query.networks import session_monitor

from evenflow.errors import QueryError
from evenflow.plan.layout import Layout, Segment
from evenflow.plan.placement import Scheme, first_membership, first_plan, on_hosts
from evenflow.plan.plan import Copy, Plan
from evenflow.query.planner import layout

SCHEMA = pa.schema([("k", pa.int64())])


def layout_of(ingress: int, inner: int) -> Layout:
    segments = (
        Segment(0, "in", "ingress", ingress, (), (), (), False, "src", None, SCHEMA),
        Segment(1, "mid", "inner", inner, (), (), (), False, None, None, SCHEMA),
        Segment(2, "out", "egress", 1, (), (), (), False, None, "sink", SCHEMA),
    )
    return Layout("t", segments, (), {"src": None}, {"sink": None})


def firsts(plan: Plan, segment: int) -> tuple[int, ...]:
    return tuple(replicas[0] for replicas in plan.placement[segment])


def test_ingress_is_dealt_round_and_neighbours_in_key_space_stay_together() -> None:
    result = layout(session_monitor().network, sites=4, partitions=10)
    plan = first_plan(result, 4)
    assert (plan.number, plan.effective, plan.sites, plan.copies) == (0, 1, (0, 1, 2, 3), ())
    assert firsts(plan, 0) == (0, 1, 2)
    assert firsts(plan, 1) == (0, 0, 0, 1, 1, 2, 2, 2, 3, 3)
    for segment, row in zip(result.segments, plan.placement, strict=True):
        assert len(row) == segment.partitions and all(len(replicas) == 1 for replicas in row)


def test_mirrored_puts_each_rank_on_its_own_copy_of_the_columns() -> None:
    plan = first_plan(layout_of(3, 4), 6, 2)
    assert plan.placement[0] == ((0, 3), (1, 4), (2, 5))
    assert plan.placement[1] == ((0, 3), (0, 3), (1, 4), (2, 5))


def test_who_says_where_first_replicas_lie_has_the_others_follow() -> None:
    flow = layout_of(3, 4)
    mirrored = first_plan(flow, 4, 2, place=lambda segment, partition, columns: columns - 1)
    assert {replicas for row in mirrored.placement for replicas in row} == {(1, 3)}
    chained = first_plan(flow, 4, 2, "chained", place=lambda segment, partition, columns: columns - 1)
    assert {replicas for row in chained.placement for replicas in row} == {(3, 0)}


def test_chained_puts_the_next_rank_on_the_next_site() -> None:
    plan = first_plan(layout_of(4, 4), 4, 2, "chained")
    assert plan.placement[0] == ((0, 1), (1, 2), (2, 3), (3, 0))


def test_what_cannot_be_mirrored_is_chained() -> None:
    assert first_plan(layout_of(3, 6), 3, 2) == first_plan(layout_of(3, 6), 3, 2, "chained")


def fatal_pairs(plan: Plan, sites: int) -> int:
    """Pairs of sites whose deaths together lose a partition."""
    return sum(any(set(replicas) <= set(pair) for row in plan.placement for replicas in row) for pair in combinations(range(sites), 2))


@pytest.mark.parametrize(("scheme", "pairs"), [("mirrored", 4), ("chained", 8)])
def test_mirroring_halves_the_fatal_pairs(scheme: Scheme, pairs: int) -> None:
    """T3: N/2 of them instead of N."""
    assert fatal_pairs(first_plan(layout_of(8, 64), 8, 2, scheme), 8) == pairs


@pytest.mark.parametrize("scheme", ["mirrored", "chained"])
@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 12), st.integers(1, 40))
def test_no_site_has_two_replicas_of_a_partition_and_none_has_much_more_than_another(
    scheme: Scheme, sites: int, replicas: int, ingress: int, inner: int
) -> None:
    planned = layout_of(ingress, inner)
    if replicas > sites:
        with pytest.raises(QueryError, match=f"{replicas} replicas need as many sites, and there are {sites}"):
            first_plan(planned, sites, replicas, scheme)
        return
    plan = first_plan(planned, sites, replicas, scheme)
    for segment in planned.segments:
        row = plan.placement[segment.id]
        assert len(row) == segment.partitions
        assert all(len(set(sites_of)) == len(sites_of) == replicas and set(sites_of) <= set(range(sites)) for sites_of in row)
    if inner > 1:
        load = Counter(site for sites_of in plan.placement[1] for site in sites_of)
        assert max(load.values()) - min(load[site] for site in range(sites)) <= replicas
    assert plan.hosts(0) == tuple(sorted({site for sites_of in plan.placement[0] for site in sites_of}))


@given(st.integers(2, 8), st.integers(2, 3), st.integers(1, 20))
def test_leaders_are_replicas_and_spread_over_the_ranks(sites: int, replicas: int, ingress: int) -> None:
    if replicas > sites:
        return
    planned = layout_of(ingress, 4)
    plan = first_plan(planned, sites, replicas)
    leaders = first_membership(planned, plan, range(sites + 1)).leaders
    assert leaders[1:] == ((), ())
    by_block: dict[tuple[int, ...], Counter[int]] = {}
    for replicas_of, leader in zip(plan.placement[0], leaders[0], strict=True):
        assert leader.site in replicas_of and leader.since == 0
        by_block.setdefault(replicas_of, Counter())[leader.site] += 1
    for replicas_of, counts in by_block.items():
        assert max(counts.values()) - min(counts[site] for site in replicas_of) <= 1


def test_a_replica_counts_if_its_site_lives_and_its_copy_is_neither_under_way_nor_given_up() -> None:
    planned = layout_of(1, 2)
    copy = Copy(7, 1, (1,), 0, 2)
    plan = Plan(1, 5, (((0, 1),), ((0, 1), (0, 2)), ((0, 1),)), (copy,))
    first = first_membership(planned, plan, range(3))

    def live(partition: int, **changes: object) -> tuple[int, ...]:
        from dataclasses import replace

        return replace(first, **changes).live(plan, 1, partition)  # type: ignore[arg-type]

    assert live(1) == (0, 2)
    assert live(1, sites=(1, 2)) == (2,)
    assert live(1, joining=(copy,)) == (0,)
    assert live(1, dropped=(7,)) == (0,)
    assert live(1, dropped=(6,)) == (0, 2)
    assert live(0, joining=(copy,)) == (0, 1)


@pytest.mark.parametrize("scheme", ["mirrored", "chained"])
@pytest.mark.parametrize("hosts", ["aabb", "abab", "abcd", "aabbcc", "ababcd", "aaabbb", "aabbc"])
def test_replicas_are_on_different_hosts_where_there_are_enough(hosts: str, scheme: Scheme) -> None:
    sites = tuple(range(10, 10 + len(hosts)))
    order = on_hosts(sites, dict(zip(sites, hosts, strict=True)), 2, scheme)
    assert sorted(order) == list(sites)
    plan = first_plan(layout_of(6, 64), len(sites), 2, scheme)
    for row in plan.placement:
        for replicas in row:
            first, second = (hosts[order[site] - 10] for site in replicas)
            assert first != second, f"{order}: {replicas}"


def test_where_hosts_are_too_few_or_unknown_the_order_stays() -> None:
    assert on_hosts((3, 5, 7, 9), dict.fromkeys((3, 5, 7, 9), "one"), 2) == (3, 5, 7, 9)
    assert on_hosts((3, 5), {}, 2) == (3, 5)
