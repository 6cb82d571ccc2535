"""Which lost replicas are copied next, from where and to where (C6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.coordinator.events import RunPause
from evenflow.coordinator.recovery import AT_ONCE, PIECES, Recovery, Step, hole
from evenflow.plan.membership import Membership
from evenflow.plan.placement import first_membership, first_plan
from evenflow.plan.plan import Plan
from evenflow.site.view import NOBODY, View
from tests.coordinator.test_machine import LAYOUT


class Plans:
    """Recovery, with copies that always succeed. sites: index of each live one."""

    def __init__(self, sites: int, replicas: int, alive: set[int], scheme: str = "mirrored", patience_ms: float = 0.0) -> None:
        self.plan = first_plan(LAYOUT, sites, replicas, scheme)  # type: ignore[arg-type]
        self.membership: Membership = first_membership(LAYOUT, self.plan, range(sites))
        self.view = View(LAYOUT, self.plan, self.membership, NOBODY)
        self.recovery = Recovery(LAYOUT, self.view, patience_ms)
        self.live_on(alive)

    def live_on(self, alive: set[int]) -> None:
        self.membership = replace(self.membership, number=self.membership.number + 1, sites=tuple(sorted(alive)))
        self.view.change(self.membership)

    def succeed(self, step: Step) -> None:
        number = self.view.plan.number + 1
        self.view.adopt(Plan(number, 1 + number, step.placement, step.copies), 0)

    def recover(self) -> None:
        """Until nothing is missing that can be copied."""
        while (step := self.recovery.next_step()).copies:
            self.succeed(step)

    def lost(self) -> int:
        return sum(len(b.sites) - len(self.view.live(b)) for s in LAYOUT.segments for b in self.view.blocks(s.id))


def test_nothing_lost_is_nothing_to_do() -> None:
    plans = Plans(4, 2, {0, 1, 2, 3})
    step = plans.recovery.next_step()
    assert (step.copies, step.wait_ms, step.complete) == ((), None, False)


def test_the_dead_leave_holes_and_a_spare_inherits_all_of_them_sources_first() -> None:
    plans = Plans(4, 2, {1, 2, 3, 9})
    assert all(sites in ((hole(0), 2), (1, 3)) for row in plans.recovery.cleared() for sites in row)
    segments = []
    while (step := plans.recovery.next_step()).copies:
        assert len(step.copies) <= AT_ONCE
        assert {(copy.source, copy.target) for copy in step.copies} == {(2, 9)}
        segments += [copy.segment for copy in step.copies]
        plans.succeed(step)
    assert segments == sorted(segments) and len(segments) > AT_ONCE
    assert step.complete and not plans.recovery.next_step().complete, "said once"
    assert plans.lost() == 0


def test_pieces_are_small_and_numbers_are_used_once() -> None:
    plans = Plans(2, 2, {0, 5})
    numbers, copied = [], []
    while (step := plans.recovery.next_step()).copies:
        for copy in step.copies:
            numbers.append(copy.number)
            copied += [(copy.segment, partition) for partition in copy.partitions]
            assert len(copy.partitions) <= max(1, LAYOUT.segments[copy.segment].partitions // PIECES)
        plans.succeed(step)
    assert len(set(numbers)) == len(numbers)
    assert sorted(copied) == [(s.id, p) for s in LAYOUT.segments for p in range(s.partitions)], "each once"


def test_two_dead_sites_have_two_heirs() -> None:
    plans = Plans(4, 2, {2, 3, 8, 9})
    heirs: dict[int, set[int]] = {}
    while (step := plans.recovery.next_step()).copies:
        for copy in step.copies:
            heirs.setdefault(copy.source, set()).add(copy.target)
        plans.succeed(step)
    assert heirs == {2: {8}, 3: {9}} and plans.lost() == 0


def test_without_a_spare_the_rest_take_a_share_each_at_once() -> None:
    plans = Plans(6, 2, {1, 2, 3, 4, 5})
    targets = set()
    while (step := plans.recovery.next_step()).copies:
        targets |= {copy.target for copy in step.copies}
        plans.succeed(step)
    assert plans.lost() == 0 and len(targets) > 1, "not all to one of them"


def test_who_would_rather_wait_for_a_new_site_waits_once() -> None:
    plans = Plans(6, 2, {1, 2, 3, 4, 5}, patience_ms=1000.0)
    step = plans.recovery.next_step()
    assert (step.copies, step.wait_ms) == ((), 1000.0) and "a new site may come" in step.waits
    again = plans.recovery.next_step()
    assert (again.wait_ms, again.waits) == (None, ""), "the alarm is set already, and it has been said"
    plans.recovery.waited(RunPause.NEW_SITE)
    assert plans.recovery.next_step().copies


def test_a_newcomer_ends_the_wait() -> None:
    plans = Plans(4, 2, {1, 2, 3}, patience_ms=1000.0)
    plans.recovery.next_step()
    plans.live_on({1, 2, 3, 7})
    assert {copy.target for copy in plans.recovery.next_step().copies} == {7}


def test_a_site_on_another_machine_is_the_better_heir() -> None:
    plans = Plans(2, 2, {0, 4, 5})
    plans.recovery.hosts = {0: "a", 4: "a", 5: "b"}
    assert {copy.target for copy in plans.recovery.next_step().copies} == {5}


def test_what_found_refuge_goes_home_when_a_site_comes() -> None:
    plans = Plans(5, 2, {1, 2, 3, 4})
    plans.recover()
    assert plans.recovery.refugees() == [], "nobody has come"
    plans.live_on({1, 2, 3, 4, 7})
    refugees = plans.recovery.refugees()
    assert {refugee.heir for refugee in refugees} == {7} and len({refugee.site for refugee in refugees}) > 1
    lost = [(s, p) for s, row in enumerate(first_plan(LAYOUT, 5, 2).placement) for p, sites in enumerate(row) if 0 in sites]
    assert [(refugee.segment, refugee.partition) for refugee in refugees] == lost, "what site 0 had"


def test_each_of_two_new_sites_takes_what_one_of_the_dead_had() -> None:
    """The second to die has taken in some of what the first had."""
    plans = Plans(5, 2, {1, 2, 3, 4})
    plans.recover()
    plans.live_on({2, 3, 4})
    plans.recover()
    plans.live_on({2, 3, 4, 7, 8})
    homes: dict[int, set[tuple[int, int]]] = {}
    for refugee in plans.recovery.refugees():
        homes.setdefault(refugee.heir, set()).add((refugee.segment, refugee.partition))
    placement = first_plan(LAYOUT, 5, 2).placement
    had = [{(s, p) for s, row in enumerate(placement) for p, sites in enumerate(row) if site in sites} for site in (0, 1)]
    for home in homes.values():
        assert any(home <= of for of in had), "one line each"
    assert len(homes) == 2


def test_who_has_refuge_where_it_is_no_more_is_no_refugee() -> None:
    plans = Plans(5, 2, {1, 2, 3, 4})
    plans.recover()
    plans.recovery.leaving.add(7)
    plans.live_on({1, 2, 3, 4, 7})
    assert plans.recovery.refugees() == [], "nothing goes to a site that is being emptied"
    plans.recovery.leaving.discard(7)
    gone = plans.recovery.refugees()[0]
    rows = [list(row) for row in plans.view.plan.placement]
    rows[gone.segment][gone.partition] = tuple(7 if site == gone.site else site for site in rows[gone.segment][gone.partition])
    plans.view.adopt(Plan(99, 99, tuple(map(tuple, rows))), 0)
    assert gone not in plans.recovery.refugees()


@pytest.mark.parametrize("spares", [{8}, set()])
def test_an_heir_that_is_being_emptied_gets_nothing_more(spares: set[int]) -> None:
    """The next spare takes its place, or the remaining sites. What it has it keeps until it has moved."""
    plans = Plans(4, 2, {1, 2, 3, 7} | spares)
    plans.succeed(plans.recovery.next_step())
    assert plans.view.load()[7], "it has begun to inherit"
    plans.recovery.leaving.add(7)
    targets = set()
    while (step := plans.recovery.next_step()).copies:
        targets |= {copy.target for copy in step.copies}
        plans.succeed(step)
    assert targets == spares or targets <= {1, 3} and not spares
    assert plans.view.load()[7] and plans.lost() == 0


def test_an_heir_that_stays_after_all_inherits_the_rest() -> None:
    plans = Plans(4, 2, {1, 2, 3, 7}, patience_ms=1000.0)
    plans.succeed(plans.recovery.next_step())
    plans.recovery.leaving.add(7)
    assert "a new site may come" in plans.recovery.next_step().waits
    plans.recovery.leaving.discard(7)
    assert {copy.target for copy in plans.recovery.next_step().copies} == {7}


def test_copies_that_fail_have_a_pause_and_the_others_take_what_is_missing() -> None:
    plans = Plans(4, 2, {1, 2, 3, 9})
    assert {(copy.source, copy.target) for copy in plans.recovery.next_step().copies} == {(2, 9)}
    [(after_ms, pause), _] = plans.recovery.retries.failed(2, 9, "the line is bad")
    others = plans.recovery.next_step().copies
    assert others and 9 not in {copy.target for copy in others}
    plans.recovery.waited(pause)
    assert {copy.target for copy in plans.recovery.next_step().copies} == {9} and after_ms > 0


def test_what_waits_is_said_with_the_reason_once() -> None:
    plans = Plans(2, 2, {0, 5})
    [(_, pause), _] = plans.recovery.retries.failed(0, 5, "the line is bad")
    step = plans.recovery.next_step()
    assert step.copies == () and step.waits == (
        "11 replicas are missing: copies from site 0 to site 5 have failed once (the line is bad) and have a pause"
    )
    assert plans.recovery.next_step().waits == ""
    plans.recovery.waited(pause)
    assert plans.recovery.next_step().copies
    alone = Plans(2, 2, {0}).recovery.next_step()
    assert alone.waits == "11 replicas are missing: every site that is there has a replica of them, or is leaving"


def test_no_number_of_failures_ends_recovery() -> None:
    plans = Plans(2, 2, {0, 5})
    for _ in range(200):
        assert plans.recovery.next_step().copies
        [(_, pause), _] = plans.recovery.retries.failed(0, 5, "again")
        assert plans.recovery.next_step().copies == ()
        plans.recovery.waited(pause)


@given(st.integers(2, 6), st.integers(2, 3), st.sampled_from(["mirrored", "chained"]), st.data())
def test_whoever_dies_no_step_puts_two_replicas_on_a_site_or_copies_from_the_dead(
    sites: int, replicas: int, scheme: str, data: st.DataObject
) -> None:
    if replicas > sites:
        return
    dead = data.draw(st.sets(st.integers(0, sites - 1), max_size=replicas - 1))
    spares = set(range(sites, sites + data.draw(st.integers(0, 3))))
    plans = Plans(sites, replicas, (set(range(sites)) - dead) | spares, scheme)
    for _ in range(100):
        step = plans.recovery.next_step()
        for copy in step.copies:
            live = {p: plans.membership.live(plans.view.plan, copy.segment, p) for p in copy.partitions}
            assert copy.target in plans.membership.sites
            assert all(copy.source in sites_of and copy.target not in sites_of for sites_of in live.values())
        for row in step.placement:
            for sites_of in row:
                there = [site for site in sites_of if site >= 0]
                assert len(set(there)) == len(there) and set(there) <= set(plans.membership.sites)
        if not step.copies:
            break
        plans.succeed(step)
    room = len(plans.membership.sites) >= replicas
    assert (plans.lost() == 0) == (room or not dead), "as many replicas as there are sites for"
