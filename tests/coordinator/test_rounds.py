"""Rounds of balancing in the coordinator's machine: when a policy is asked, what becomes of its moves, and what comes first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evenflow.coordinator import moving
from evenflow.coordinator.events import (
    Collect,
    Collected,
    CoordinatorAction,
    EpochSeen,
    Happened,
    MovesRequested,
    Pin,
    RebalanceRequested,
    RepartitionRequested,
    SiteLost,
    SiteReady,
    SiteSaid,
    Tell,
)
from evenflow.coordinator.machine import RunMachine
from evenflow.coordinator.pace import AHEAD
from evenflow.plan.layout import Arc, Dealt, Keyed, Layout, Port, Segment
from evenflow.plan.placement import first_membership, first_plan
from evenflow.plan.plan import Plan
from evenflow.policy.catalogue import described
from evenflow.policy.move import Move
from evenflow.policy.proposal import Memory, Parameters
from evenflow.site.events import PlanProposed, Started
from evenflow.site.facts import CopyLive, Promised, TookOver
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import BoxWindow, Latency, SegmentWindow, SiteWindow
from tests.coordinator.test_machine import LAYOUT, SCHEMA

SECOND = 1_000_000
MID = 1


KEYS = 2
DEALT = Layout(
    "t",
    (
        Segment(0, "in", "ingress", 2, (), (0,), (), False, "src", None, SCHEMA),
        Segment(MID, "mid", "inner", 4, (0,), (1,), (), False, None, None, SCHEMA),
        Segment(KEYS, "keys", "inner", 4, (1,), (), (), False, None, None, SCHEMA, in_use=2),
    ),
    (Arc(0, 0, MID, Port(-1), SCHEMA, Dealt()), Arc(1, MID, KEYS, Port(-1), SCHEMA, Keyed(("k",)))),
    LAYOUT.sources,
    {},
)
"""Rows of the middle segment are dealt out to one partition at each of four sites."""
UNEVEN = {0: 0.9, 1: 0.3, 2: 0.3, 3: 0.3}


def machine_of(
    sites: int = 4, replicas: int = 1, policy: str = "utilization", layout: Layout = LAYOUT, **given: Any
) -> tuple[RunMachine, list[CoordinatorAction]]:
    plan = first_plan(layout, sites, replicas)
    machine = RunMachine(layout, plan, first_membership(layout, plan, range(sites)), settle_ms=0, policy=policy, **given)
    actions = [action for site in range(sites) for action in machine.handle(SiteReady(site))]
    return machine, actions


def statistics(machine: RunMachine, busy: dict[int, float], begin_us: int = 0, end_us: int = SECOND) -> Statistics:
    """Each site was busy for so much of the time; every partition of the middle segment had a hundred rows."""
    windows = []
    for site, share in busy.items():
        mine = tuple(p for p in range(machine.layout.segments[MID].partitions) if site in machine.membership.live(machine.plan, MID, p))
        used = int(share * (end_us - begin_us))
        boxes = (BoxWindow("box", 100 * len(mine), 0, used),)
        segment = SegmentWindow(MID, "mid", mine, (100,) * len(mine), (1000,) * len(mine), used, boxes)
        windows.append(SiteWindow(site, begin_us, end_us, used, None, 0, 0, (segment,), Latency()))
    return Statistics.of(windows)


def collected(machine: RunMachine, busy: dict[int, float], begin_us: int = 0, end_us: int = SECOND) -> list[CoordinatorAction]:
    return machine.handle(Collected(statistics(machine, busy, begin_us, end_us), begin_us, end_us))


def proposed(actions: list[CoordinatorAction]) -> Plan | None:
    plans = [action.message.plan for action in actions if isinstance(action, Tell) and isinstance(action.message, PlanProposed)]
    return plans[0] if plans else None


def carried_out(machine: RunMachine, plan: Plan) -> list[CoordinatorAction]:
    """Everybody promises, every copy becomes live and its target answers. Returns the last actions."""
    actions: list[CoordinatorAction] = []
    for site in machine.sites:
        actions = machine.handle(SiteSaid(site, Promised(plan.number)))
    for copy in plan.copies:
        machine.handle(SiteSaid(copy.target, CopyLive(copy.number, 4096)))
    for copy in plan.copies:
        actions = machine.handle(SiteSaid(copy.target, TookOver(copy.number)))
    return actions


def collects(actions: list[CoordinatorAction]) -> list[int]:
    return [action.for_us for action in actions if isinstance(action, Collect)]


def test_a_run_with_a_policy_collects_from_its_start_and_one_without_never() -> None:
    _, actions = machine_of()
    assert collects(actions) == [Parameters().delta_min_us]
    _, actions = machine_of(policy="none")
    assert collects(actions) == []


def test_a_round_moves_from_the_busiest_to_the_idlest_and_the_next_begins_when_the_moves_are_over() -> None:
    machine, _ = machine_of()
    before = machine.plan.placement[MID]
    actions = collected(machine, {0: 0.9, 1: 0.4, 2: 0.4, 3: 0.1})
    assert [action.kind for action in actions if isinstance(action, Happened)] == ["round"]
    plan = proposed(actions)
    assert plan is not None and collects(actions) == []
    [copy] = plan.copies
    assert (copy.source, copy.target, copy.replaces) == (0, 3, 0)
    assert all(plan.placement[MID][p] == (*before[p], 3) for p in copy.partitions), "the target has a rank of its own until it is live"
    last = carried_out(machine, plan)
    assert len(collects(last)) == 1
    for p in copy.partitions:
        assert machine.membership.live(machine.plan, MID, p) == (3,)
    following = collected(machine, {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5}, begin_us=3 * SECOND, end_us=4 * SECOND)
    assert proposed(following) is None
    assert len(collects(following)) == 1


def test_how_long_the_moves_took_decides_how_long_is_collected() -> None:
    machine, _ = machine_of()
    plan = proposed(collected(machine, {0: 0.9, 1: 0.4, 2: 0.4, 3: 0.1}))
    assert plan is not None
    carried_out(machine, plan)
    uneven = {0: 0.9, 1: 0.4, 2: 0.4, 3: 0.1}
    again = collected(machine, uneven, begin_us=3 * SECOND, end_us=4 * SECOND)
    assert proposed(again) is None and collects(again) == [2 * SECOND], "it was shorter than the moves (FL 5.3)"
    again = collected(machine, dict.fromkeys(range(4), 0.5), begin_us=4 * SECOND, end_us=6 * SECOND)
    assert collects(again) == [SECOND], "halved after a round without a move (FL 5.3)"


def test_how_long_moves_took_that_a_death_disturbed_is_not_known() -> None:
    machine, _ = machine_of(replicas=2)
    plan = proposed(collected(machine, {0: 0.9, 1: 0.4, 2: 0.4, 3: 0.1}))
    assert plan is not None
    carried_out(machine, plan)
    machine.handle(SiteLost(1, "dead"))
    assert collects(collected(machine, {0: 0.9, 2: 0.1, 3: 0.1}, begin_us=9 * SECOND, end_us=10 * SECOND)) == [Parameters().delta_min_us]
    assert not machine.rounds.moving


def test_what_was_collected_while_a_replica_was_missing_is_thrown_away() -> None:
    machine, _ = machine_of(replicas=2)
    machine.handle(SiteLost(1, "dead"))
    actions = collected(machine, {0: 0.9, 2: 0.1, 3: 0.1})
    assert proposed(actions) is None and len(collects(actions)) == 1


def test_what_a_person_wants_comes_before_a_round_and_the_round_after_it() -> None:
    machine, _ = machine_of()
    wanted = next(p for p in range(LAYOUT.segments[MID].partitions) if machine.plan.placement[MID][p] == (1,))
    plan = proposed(machine.handle(MovesRequested((Move(MID, (wanted,), 1, 2, "because"),))))
    assert plan is not None
    actions = collected(machine, {0: 0.9, 1: 0.1, 2: 0.1, 3: 0.1})
    assert proposed(actions) is None and len(collects(actions)) == 1
    assert collects(carried_out(machine, plan)) == [], "one collection at a time"


def test_moves_of_other_sites_do_not_wait_for_those_of_one_that_has_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan takes long where a site is overloaded: what begins with it is bounded by site, not for all sites together."""
    monkeypatch.setattr(moving, "AT_ONCE", 1)
    machine, _ = machine_of()
    at_site = {s: [p for p in range(LAYOUT.segments[MID].partitions) if machine.plan.placement[MID][p] == (s,)] for s in range(4)}
    wanted = [Move(MID, (p,), 0, 1, "because") for p in at_site[0]] + [Move(MID, (at_site[2][0],), 2, 3, "because")]
    plan = proposed(machine.handle(MovesRequested(tuple(wanted))))
    assert plan is not None and [copy.source for copy in plan.copies] == [0, 2]
    following = proposed(carried_out(machine, plan))
    assert following is not None and [copy.partitions for copy in following.copies] == [(at_site[0][1],)]


def test_sites_are_told_how_long_to_wait_for_moves_before_they_write_to_disk() -> None:
    for policy, wanted in (("evenflow", described("evenflow").parameters.relief_us), ("memory", 0), ("none", 0)):
        _, actions = machine_of(policy=policy)
        assert {action.message for action in actions if isinstance(action, Tell)} >= {Started(wanted)}, policy


def test_pinned_partitions_stay() -> None:
    machine, _ = machine_of()
    mine = frozenset((MID, p) for p in range(LAYOUT.segments[MID].partitions) if machine.plan.placement[MID][p] == (0,))
    machine.handle(Pin(mine))
    assert proposed(collected(machine, {0: 0.9, 1: 0.1, 2: 0.1, 3: 0.1})) is None
    machine.handle(Pin(mine, pinned=False))
    assert proposed(collected(machine, {0: 0.9, 1: 0.1, 2: 0.1, 3: 0.1})) is not None


def test_what_is_pinned_while_the_moves_of_a_round_wait_stays_and_what_a_person_wants_moves() -> None:
    machine, _ = machine_of()
    at_site = {site: [p for p, sites in enumerate(machine.plan.placement[MID]) if sites == (site,)] for site in machine.sites}
    plan = proposed(machine.handle(MovesRequested((Move(MID, (at_site[1][0],), 1, 2, "because", asked=True),))))
    assert plan is not None
    machine.handle(RebalanceRequested(statistics(machine, {0: 0.9, 1: 0.1, 2: 0.1, 3: 0.1})))
    assert len(machine.moving.wanted) == 1 and not machine.moving.wanted[0].asked
    machine.handle(Pin(frozenset((MID, p) for p in at_site[0])))
    machine.handle(MovesRequested((Move(MID, (at_site[0][0],), 0, 3, "a person wants it", asked=True),)))
    actions = carried_out(machine, plan)
    refused = [action.text for action in actions if isinstance(action, Happened) and action.kind == "move_refused"]
    assert len(refused) == 1 and refused[0].endswith("has been pinned meanwhile")
    following = proposed(actions)
    assert following is not None and [copy.partitions for copy in following.copies] == [(at_site[0][0],)]


def test_a_person_may_ask_where_there_is_no_policy() -> None:
    machine, _ = machine_of(policy="none")
    actions = machine.handle(RebalanceRequested(statistics(machine, {0: 0.9, 1: 0.1, 2: 0.1, 3: 0.1})))
    plan = proposed(actions)
    assert plan is not None and collects(actions) == []
    assert collects(carried_out(machine, plan)) == []


def test_spares_are_left_alone_and_other_idle_sites_are_not() -> None:
    for spares, targets in ((1, {1, 2, 3, 4}), (0, {1, 2, 3, 4, 5})):
        plan = first_plan(LAYOUT, 4)
        machine = RunMachine(LAYOUT, plan, first_membership(LAYOUT, plan, range(6)), settle_ms=0, policy="utilization", spares=spares)
        for site in range(6):
            machine.handle(SiteReady(site))
        assert set(machine.rounds.hosting().capacity) == {0} | targets


def test_a_death_in_the_middle_of_a_round_ends_it_and_the_next_one_comes() -> None:
    machine, _ = machine_of(sites=5, replicas=2)
    plan = proposed(collected(machine, dict.fromkeys(range(5), 0.1) | {0: 0.9}))
    assert plan is not None
    [copy] = plan.copies
    for site in machine.sites:
        machine.handle(SiteSaid(site, Promised(plan.number)))
    machine.handle(SiteLost(copy.target, "dead"))
    assert machine.rounds.moving
    assert all(copy.target not in machine.membership.live(machine.plan, MID, p) for p in copy.partitions)
    assert all(len(machine.membership.live(machine.plan, MID, p)) >= 1 for p in range(LAYOUT.segments[MID].partitions))
    assert not replace(machine.membership).joining


def test_where_rows_are_dealt_out_a_round_changes_weights_by_a_plan_that_copies_nothing() -> None:
    machine, _ = machine_of(layout=DEALT)
    before = machine.plan.placement
    actions = collected(machine, UNEVEN)
    [round_] = [action for action in actions if isinstance(action, Happened)]
    assert round_.kind == "round" and "rows of mid are dealt out anew" in round_.text and collects(actions) == []
    plan = proposed(actions)
    assert plan is not None and (plan.copies, plan.placement, plan.ranges) == ((), before, ())
    assert plan.weights[MID][0] < min(plan.weights[MID][1:]) and not plan.weights[KEYS]
    assert len(collects(carried_out(machine, plan))) == 1, "the next round begins when the plan is there"
    even = collected(machine, dict.fromkeys(range(4), 0.5), SECOND, 2 * SECOND)
    assert proposed(even) is None and len(collects(even)) == 1


def test_later_plans_keep_the_weights() -> None:
    machine, _ = machine_of(layout=DEALT)
    plan = proposed(collected(machine, UNEVEN))
    assert plan is not None
    carried_out(machine, plan)
    there = next(p for p in range(2) if machine.plan.placement[KEYS][p] != (3,))
    moved = proposed(machine.handle(MovesRequested((Move(KEYS, (there,), machine.plan.placement[KEYS][there][0], 3, "because"),))))
    assert moved is not None and moved.copies and moved.weights == plan.weights
    carried_out(machine, moved)
    split = proposed(machine.handle(RepartitionRequested((KEYS,), 3)))
    while split is not None and split.copies:
        carried_out(machine, split)
        split = machine.proposed
    assert split is not None and split.ranges and split.weights == plan.weights


def test_weights_that_a_death_has_put_off_come_with_the_next_plan() -> None:
    machine, _ = machine_of(layout=DEALT, replicas=2)
    plan = proposed(collected(machine, UNEVEN))
    assert plan is not None and plan.weights
    actions = machine.handle(SiteLost(1, "dead"))
    assert machine.plan.weights == ()
    again = proposed(actions)
    assert again is not None and again.copies and again.weights == plan.weights


def test_what_was_seen_under_other_weights_is_no_evidence() -> None:
    machine, _ = machine_of(layout=DEALT, policy="evenflow")
    plan = proposed(collected(machine, UNEVEN))
    assert plan is not None and plan.weights and machine.rounds.memory.evidence is None


@pytest.mark.parametrize(("noise", "changes"), [(0.0, True), (0.2, False)])
def test_weights_change_by_what_is_more_than_noise(noise: float, changes: bool) -> None:
    machine, _ = machine_of(layout=DEALT, policy="evenflow")
    machine.rounds.memory = Memory(noise=noise)
    assert (proposed(collected(machine, {0: 0.5, 1: 0.45, 2: 0.45, 3: 0.45})) is not None) is changes


def test_moves_away_from_a_site_whose_epochs_are_slow_begin_at_the_next_one() -> None:
    """Each epoch that a plan waits for more takes that site most of a second."""
    for closed, ahead in ((1, 1), (1000, AHEAD)):
        machine, _ = machine_of()
        machine.handle(EpochSeen(7))
        assert proposed(collected(machine, dict.fromkeys(range(4), 0.5))) is None
        machine.handle(EpochSeen(7 + closed))
        plan = proposed(collected(machine, {0: 0.9, 1: 0.1, 2: 0.1, 3: 0.1}, SECOND, 2 * SECOND))
        assert plan is not None and plan.effective == 7 + closed + ahead
