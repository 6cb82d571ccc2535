"""The memory policy and the hybrid (FL 6.2, 6.4)."""

from __future__ import annotations

from evenflow.policy.hosting import Hosting
from evenflow.policy.load import measure
from evenflow.policy.memory import excess, hybrid, memory
from evenflow.policy.proposal import Memory, Parameters, Policy, Proposal
from evenflow.statistics.window import SiteWindow
from tests.policy.windows import hosting, site, statistics, where

ROWS = {0: 10, 1: 10, 2: 10}


def decide(policy: Policy, sites: list[SiteWindow], **other: object) -> Proposal:
    seen = statistics(sites)
    return policy(seen, hosting(seen, **other), Parameters(), Memory())


def test_excess_is_what_is_left_and_negative_by_what_is_on_disk() -> None:
    seen = statistics([site(0, 0.5, ROWS, free=0, spilled=300), site(1, 0.5, {3: 1}, free=700)])
    assert [excess(each) for each in measure(seen, Hosting.of(seen))] == [-300, 700]


def test_the_largest_that_lowers_the_difference_goes_whatever_the_utilization() -> None:
    sites = [site(0, 0.1, ROWS, state={0: 900, 1: 400, 2: 100}, free=0, spilled=300), site(1, 0.99, {3: 1}, free=500)]
    assert where(decide(memory, sites)) == [((1,), 0, 1)]  # 900 would turn the difference of 800 round.


def test_what_is_in_memory_goes_before_what_is_on_disk() -> None:
    sites = [site(0, 0.5, ROWS, state={0: 900, 1: 400, 2: 100}, free=0, spilled=900), site(1, 0.5, {3: 1}, free=500)]
    assert where(decide(memory, sites)) == [((0,), 0, 1)]
    assert where(decide(memory, sites, on_disk=frozenset({(0, 1, 0)}))) == [((1,), 0, 1)]


def test_sites_are_paired_from_the_ends_and_only_those_below_the_mean_give() -> None:
    sites = [
        site(0, 0.5, {0: 1}, state=10, free=0, spilled=400),
        site(1, 0.5, {1: 1}, state=10, free=0, spilled=100),
        site(2, 0.5, {2: 1}, state=10, free=300),
        site(3, 0.5, {3: 1}, state=10, free=900),
    ]
    assert where(decide(memory, sites)) == [((0,), 0, 3), ((1,), 1, 2)]


def test_the_largest_is_found_wherever_it_stands() -> None:
    sites = [site(0, 0.5, ROWS, state={0: 100, 1: 700, 2: 400}, free=0, spilled=300), site(1, 0.5, {3: 1}, free=500)]
    assert where(decide(memory, sites)) == [((1,), 0, 1)]


def test_a_site_above_the_mean_gives_nothing() -> None:
    states = [site(n, 0.5, {n: 1}, state=10, free=free) for n, free in enumerate((0, 800, 900, 1000))]
    assert where(decide(memory, states)) == [((0,), 0, 3)]


def test_sites_without_a_budget_take_no_part() -> None:
    assert decide(memory, [site(0, 0.5, ROWS, state=10, free=0, spilled=300), site(1, 0.5, {3: 1})]).moves == ()
    assert decide(memory, [site(0, 0.5, ROWS, free=0, spilled=300), site(1, 0.5, {3: 1})]).moves == ()


def test_the_hybrid_is_about_memory_while_anybody_spills_and_else_about_time() -> None:
    """The site that spills is the idle one: the two policies want opposite moves."""
    busy, idle = {0: 50, 1: 30}, {2: 5, 3: 5}
    spilling = [site(0, 0.9, busy, free=5000), site(1, 0.1, idle, free=0, spilled=2000)]
    assert [(m.source, m.target) for m in decide(hybrid, spilling).moves] == [(1, 0)]
    resident = [site(0, 0.9, busy, free=5000), site(1, 0.1, idle, free=1000)]
    assert where(decide(hybrid, resident)) == [((0,), 0, 1)]


def test_the_hybrid_balances_load_only_where_there_is_room() -> None:
    sites = [site(0, 0.9, {0: 50, 1: 30}, state={0: 2000, 1: 900}, free=5000), site(1, 0.1, {2: 5}, free=1000)]
    assert where(decide(hybrid, sites)) == [((1,), 0, 1)]
    nowhere = [site(0, 0.9, {0: 50, 1: 30}, state=2000, free=5000), site(1, 0.1, {2: 5}, free=1000)]
    assert decide(hybrid, nowhere).moves == ()
