"""Start, plan changes, deaths, copies and the end of a run, as decisions without a world."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.events import (
    CoordinatorAction,
    EndRun,
    EpochSeen,
    Happened,
    PlanChangeRequested,
    RunBroken,
    RunPause,
    SiteLost,
    SiteReady,
    SiteSaid,
    StopRequested,
    Tell,
    Waited,
    Wake,
)
from evenflow.coordinator.machine import RunMachine
from evenflow.coordinator.pace import AHEAD
from evenflow.errors import BoxFailed, NondeterministicBox, PartitionsLost, SinkError
from evenflow.plan.layout import Layout, Segment
from evenflow.plan.membership import Leader, Membership
from evenflow.plan.placement import first_membership, first_plan
from evenflow.plan.plan import Plan
from evenflow.site.events import DrainRequested, MembershipChanged, PlanAborted, PlanCommitted, PlanProposed, Started
from evenflow.site.facts import CopyFailed, CopyLive, Digests, PartFailed, PartFinished, PlanMissing, Promised, Refused

SCHEMA = pa.schema([("k", pa.int64())])
NO_ROWS = pa.RecordBatch.from_pylist([], schema=SCHEMA)
LAYOUT = Layout(
    "t",
    (
        Segment(0, "in", "ingress", 2, (), (), (), False, "src", None, SCHEMA),
        Segment(1, "mid", "inner", 8, (), (), (), False, None, None, SCHEMA),
        Segment(2, "out", "egress", 1, (), (), (), False, None, "sink", SCHEMA),
    ),
    (),
    {"src": ef.sources.memory([[NO_ROWS], [NO_ROWS]])},
    {"sink": ef.sinks.memory("sink")},
)
PLAN = first_plan(LAYOUT, 2)
"""Without replicas."""


def started(plan: Plan, sites: int, patience_ms: float = 1000.0, settle_ms: float = 0.0) -> RunMachine:
    machine = RunMachine(LAYOUT, plan, first_membership(LAYOUT, plan, range(sites)), patience_ms, settle_ms)
    for site in range(sites):
        machine.handle(SiteReady(site))
    return machine


def running() -> RunMachine:
    return started(PLAN, 2)


def pairs(sites: int = 4, spares: int = 0) -> RunMachine:
    """A run with two replicas: sites 0 and 2 mirror each other, and so do 1 and 3."""
    return started(first_plan(LAYOUT, sites, 2), sites + spares)


def messages(actions: list[CoordinatorAction], kind: type, site: int | None = None) -> list[Any]:
    """The messages of a kind, to that site or each of them once."""
    said = [a.message for a in actions if isinstance(a, Tell) and isinstance(a.message, kind) and site in (None, a.site)]
    return [message for i, message in enumerate(said) if message not in said[:i]]


def kinds(actions: list[CoordinatorAction]) -> list[str]:
    return [action.kind for action in actions if isinstance(action, Happened)]


def end(actions: list[CoordinatorAction]) -> EndRun | None:
    return next((action for action in actions if isinstance(action, EndRun)), None)


def promise(machine: RunMachine) -> list[CoordinatorAction]:
    """Everybody promises the proposed plan."""
    assert machine.proposed is not None
    number, actions = machine.proposed.number, []
    for site in machine.sites:
        actions += machine.handle(SiteSaid(site, Promised(number)))
    return actions


def test_epochs_open_only_when_every_site_is_ready() -> None:
    machine = RunMachine(LAYOUT, PLAN, first_membership(LAYOUT, PLAN, range(2)))
    assert machine.handle(SiteReady(1)) == []
    assert machine.handle(SiteReady(0)) == [Tell(0, Started()), Tell(1, Started())]


def test_who_leaves_nothing_out_goes_on_without_the_keeps_of_a_run_that_did() -> None:
    """Method: a restart without `shedding` of a run whose last plan kept half; a death aborts the plan that says so."""
    plan = first_plan(LAYOUT, 2, 2).with_settings(keeps=((0.5,),))
    machine = RunMachine(LAYOUT, plan, first_membership(LAYOUT, plan, range(2)), 1000.0, 0.0)
    machine.handle(SiteReady(0))
    [proposed] = messages(machine.handle(SiteReady(1)), PlanProposed)
    assert proposed.plan.settings.keeps == ()
    actions = machine.handle(SiteLost(1, "gone"))
    [again] = messages([*actions, *machine.handle(Waited(RunPause.NEW_SITE))], PlanProposed)
    assert again.plan.settings.keeps == ()
    promise(machine)
    assert machine.plan.settings.keeps == ()


def test_a_plan_that_a_death_has_aborted_is_proposed_again_though_nothing_can_be_copied() -> None:
    """V1: what was asked for comes. Method: of two sites one is left, so that no plan for copies takes it along."""
    machine = started(first_plan(LAYOUT, 2, 2), 2)
    assert messages(machine.handle(PlanChangeRequested()), PlanProposed)
    assert messages(machine.handle(SiteLost(1, "gone")), PlanAborted)
    assert messages(machine.handle(Waited(RunPause.NEW_SITE)), PlanProposed)
    assert messages(promise(machine), PlanCommitted)


def test_a_plan_is_proposed_beyond_what_was_seen_and_committed_when_all_promised() -> None:
    machine = running()
    machine.handle(EpochSeen(17))
    proposed = machine.handle(PlanChangeRequested())
    plan = Plan(1, 17 + AHEAD, PLAN.placement)
    assert proposed == [Tell(0, PlanProposed(plan)), Tell(1, PlanProposed(plan))]
    assert machine.handle(SiteSaid(0, Promised(1))) == []
    assert machine.handle(SiteSaid(0, Promised(1))) == []
    assert machine.handle(SiteSaid(1, Promised(1))) == [Tell(0, PlanCommitted(plan)), Tell(1, PlanCommitted(plan))]


def test_a_refusal_aborts_and_proposes_later() -> None:
    machine = running()
    machine.handle(PlanChangeRequested())
    told = machine.handle(SiteSaid(1, Refused(1, closed=90)))
    assert told[:2] == [Tell(0, PlanAborted(1)), Tell(1, PlanAborted(1))]
    later = told[2].message  # type: ignore[union-attr]
    assert isinstance(later, PlanProposed) and later.plan.number == 2 and later.plan.effective > 90
    assert machine.handle(SiteSaid(0, Promised(1))) == []
    machine.handle(SiteSaid(0, Promised(2)))
    assert machine.handle(SiteSaid(1, Promised(2)))[0] == Tell(0, PlanCommitted(later.plan))


def test_a_proposal_catches_up_with_epochs_that_close_faster_than_it_travels() -> None:
    """A site that closes 60 epochs while a proposal is under way is overtaken after a few refusals, not never."""
    machine, closed, refusals = running(), 60, 0
    plan = machine.handle(PlanChangeRequested())[0].message.plan  # type: ignore[union-attr]
    while plan.effective <= closed and refusals < 8:
        refusals += 1
        plan = machine.handle(SiteSaid(0, Refused(plan.number, closed)))[-1].message.plan  # type: ignore[union-attr]
        closed += 60
    assert refusals == 4 and plan.effective == closed - 60 + AHEAD * 2**4
    for site in (0, 1):
        told = machine.handle(SiteSaid(site, Promised(plan.number)))
    assert told == [Tell(0, PlanCommitted(plan)), Tell(1, PlanCommitted(plan))]
    machine.handle(EpochSeen(plan.effective + 100))
    next_plan = machine.handle(PlanChangeRequested())[0].message.plan  # type: ignore[union-attr]
    assert next_plan.effective == machine.seen + AHEAD, "the next one need not hurry so"


def test_no_plan_acts_from_an_earlier_epoch_than_the_one_before() -> None:
    machine = running()
    machine.handle(PlanChangeRequested())
    later = messages(machine.handle(SiteSaid(1, Refused(1, closed=90))), PlanProposed)[0].plan
    promise(machine)
    [proposal] = messages(machine.handle(PlanChangeRequested()), PlanProposed)
    assert later.effective > 90 + AHEAD and proposal.plan.effective >= later.effective


def test_one_plan_at_a_time() -> None:
    machine = running()
    machine.handle(PlanChangeRequested())
    assert machine.handle(PlanChangeRequested()) == []
    machine.handle(SiteSaid(0, Promised(1)))
    told = machine.handle(SiteSaid(1, Promised(1)))
    assert [type(t.message) for t in told] == [PlanCommitted] * 2 + [PlanProposed] * 2  # type: ignore[union-attr]


def test_a_site_that_misses_a_plan_gets_it() -> None:
    machine = running()
    assert machine.handle(SiteSaid(1, PlanMissing(0))) == [Tell(1, PlanCommitted(PLAN))]


def test_the_run_ends_when_all_parts_have_finished() -> None:
    machine = running()
    assert machine.handle(SiteSaid(1, PartFinished(9))) == []
    assert machine.handle(SiteSaid(0, PartFinished(9))) == [EndRun(None)]
    assert machine.handle(SiteLost(0, "gone")) == []
    assert machine.handle(SiteSaid(0, CopyLive(1))) == []


@pytest.mark.parametrize(
    ("event", "error", "text"),
    [
        (SiteLost(1, "executor 3 was killed"), PartitionsLost, "site 1 is lost: executor 3 was killed.*without replicas"),
        (RunBroken(SinkError("disk full")), SinkError, "disk full"),
        (SiteSaid(0, PartFailed("parse", 7, "ValueError: no", "raised an exception", "BoxFailed")), BoxFailed, "'parse'.*epoch 7"),
    ],
)
def test_what_breaks_a_run(event: object, error: type[Exception], text: str) -> None:
    ended = end(running().handle(event))  # type: ignore[arg-type]
    assert ended is not None
    with pytest.raises(error, match=text):
        raise ended.error  # type: ignore[misc]


def test_a_drain_lets_the_sites_finish_and_a_stop_does_not() -> None:
    machine = running()
    assert machine.handle(StopRequested(drain=True)) == [Tell(0, DrainRequested()), Tell(1, DrainRequested())]
    assert machine.handle(StopRequested(drain=False)) == [EndRun(None)]


# ---------------------------------------------------------------- deaths


def test_a_death_is_masked_and_successors_lead() -> None:
    machine = pairs()
    led = [leader.site for leader in machine.membership.leaders[0]]
    actions = machine.handle(SiteLost(led[0], "it was killed"))
    assert end(actions) is None
    [changed] = messages(actions, MembershipChanged)
    after = changed.membership
    assert (after.number, after.sites) == (1, tuple(s for s in range(4) if s != led[0]))
    assert {a.site for a in actions if isinstance(a, Tell)} == set(after.sites), "nobody talks to the dead"
    twin = {0: 2, 2: 0, 1: 3, 3: 1}[led[0]]
    assert after.leaders[0] == (Leader(twin, 1), Leader(led[1], 0)), "a new leader has a new term, the others keep theirs"
    assert kinds(actions) == ["site_lost", "take_over", "recovery_waits"]
    assert machine.redundancy() == 1


def test_the_last_replica_ends_the_run_with_what_is_gone() -> None:
    machine = pairs()
    machine.handle(EpochSeen(123))
    machine.handle(SiteLost(0, "it was killed"))
    ended = end(machine.handle(SiteLost(2, "its host burns")))
    assert ended is not None and isinstance(ended.error, PartitionsLost)
    lost = ended.error
    assert (lost.site, lost.epoch, lost.replicas) == (2, 123, 2)
    assert lost.partitions["mid"] == tuple(p for p, sites in enumerate(machine.plan.placement[1]) if sites == (0, 2))
    assert "site 2 is lost: its host burns. It had the last of 2 replicas of these partitions: in: 0; mid: 0-3" in str(lost)
    assert "up to epoch 123 is gone" in str(lost)
    assert machine.over and machine.handle(SiteLost(1, "too")) == []


def test_two_deaths_in_different_pairs_are_survived() -> None:
    machine = pairs()
    assert end(machine.handle(SiteLost(0, "a"))) is None
    assert end(machine.handle(SiteLost(3, "b"))) is None
    assert machine.sites == (1, 2)
    assert {leader.site for leader in machine.membership.leaders[0]} == {1, 2}


def test_a_death_before_the_start_ends_the_run() -> None:
    plan = first_plan(LAYOUT, 4, 2)
    machine = RunMachine(LAYOUT, plan, first_membership(LAYOUT, plan, range(4)))
    machine.handle(SiteReady(0))
    ended = end(machine.handle(SiteLost(1, "no memory")))
    assert ended is not None and "site 1 is lost: no memory, before the run began" in str(ended.error)


def test_a_stranger_may_die_and_speak_without_effect() -> None:
    machine = pairs()
    assert machine.handle(SiteLost(9, "who?")) == []
    machine.handle(SiteLost(0, "dead"))
    assert machine.handle(SiteSaid(0, PartFailed("b", 1, "t", "r", "BoxFailed"))) == [], "V3: it is fenced"
    assert not machine.over


def test_a_death_during_a_proposal_aborts_it_and_what_a_user_wants_is_proposed_again() -> None:
    machine = pairs(spares=1)
    first = messages(machine.handle(PlanChangeRequested()), PlanProposed)[0].plan
    machine.handle(SiteSaid(1, Promised(first.number)))
    actions = machine.handle(SiteLost(0, "dead"))
    assert messages(actions, PlanAborted) == [PlanAborted(first.number)]
    [recovery] = messages(actions, PlanProposed)
    assert recovery.plan.number > first.number and recovery.plan.copies
    assert machine.handle(SiteSaid(1, Promised(first.number))) == [], "a promise of the old one is stale"
    seen = []
    while machine.proposed is not None:
        seen.append(machine.proposed)
        promise(machine)
        for copy in machine.membership.joining:
            machine.handle(SiteSaid(copy.target, CopyLive(copy.number)))
    assert any(not plan.copies for plan in seen), "the request was not forgotten"
    assert machine.redundancy() == 2


def test_the_finished_need_not_wait_for_the_dead() -> None:
    machine = pairs()
    for site in (1, 2, 3):
        assert end(machine.handle(SiteSaid(site, PartFinished(9)))) is None
    assert end(machine.handle(SiteLost(0, "dead"))) == EndRun(None)


def test_nobody_waits_for_spares_which_have_nothing_to_finish() -> None:
    machine = pairs(spares=1)
    for site in (0, 1, 2):
        assert end(machine.handle(SiteSaid(site, PartFinished(9)))) is None
    assert end(machine.handle(SiteSaid(3, PartFinished(9)))) == EndRun(None)


# ---------------------------------------------------------------- copies


def test_what_was_lost_is_copied_to_a_spare_sources_first_and_becomes_live() -> None:
    machine = pairs(spares=1)
    machine.handle(EpochSeen(50))
    [proposal] = messages(machine.handle(SiteLost(0, "dead")), PlanProposed)
    plan = proposal.plan
    assert plan.effective == 50 + AHEAD
    assert [(c.segment, c.source, c.target) for c in plan.copies] == [(0, 2, 4), (1, 2, 4)]
    for copy in plan.copies:
        assert all(plan.placement[copy.segment][p] == (4, 2) for p in copy.partitions)

    actions = promise(machine)
    order = [type(a.message) for a in actions if isinstance(a, Tell) and a.site == 1]
    assert order == [MembershipChanged, PlanCommitted], "who does not count is known before where things are"
    assert machine.membership.joining == plan.copies
    assert machine.redundancy() == 1, "a target does not count before it is live"
    assert kinds(actions) == ["copy_begun", "copy_begun"]

    actions = machine.handle(SiteSaid(4, CopyLive(plan.copies[0].number)))
    assert messages(actions, PlanProposed) == [], "the next pieces wait for both"
    assert machine.membership.joining == plan.copies[1:]
    actions = machine.handle(SiteSaid(4, CopyLive(plan.copies[1].number)))
    assert messages(actions, PlanProposed)[0].plan.copies


def finish_recovery(machine: RunMachine) -> list[str]:
    """Let all copies succeed. Returns what happened."""
    happened = []
    for _ in range(100):
        if machine.proposed is not None:
            happened += kinds(promise(machine))
        for copy in machine.membership.joining:
            happened += kinds(machine.handle(SiteSaid(copy.target, CopyLive(copy.number))))
    assert machine.proposed is None and not machine.membership.joining
    return happened


def test_nothing_is_copied_before_the_dust_of_every_death_has_settled() -> None:
    plan = first_plan(LAYOUT, 4, 2)
    machine = started(plan, 5, settle_ms=100.0)
    assert Wake(100.0, RunPause.DUST) in machine.handle(SiteLost(0, "dead"))
    assert Wake(100.0, RunPause.DUST) in machine.handle(SiteLost(3, "dead too"))
    assert messages(machine.handle(Waited(RunPause.DUST)), PlanProposed) == []
    [recovery] = messages(machine.handle(Waited(RunPause.DUST)), PlanProposed)
    assert recovery.plan.copies


def test_recovery_ends_with_full_redundancy_and_says_so_once() -> None:
    machine = pairs(spares=1)
    machine.handle(SiteLost(0, "dead"))
    assert finish_recovery(machine).count("redundancy") == 1
    assert machine.redundancy() == 2
    assert machine.plan.placement[1] == tuple((4, 2) if p < 4 else (1, 3) for p in range(8))
    assert end(machine.handle(SiteLost(2, "dead too"))) is None, "the copies count"


def test_a_copy_whose_target_dies_is_forgotten_and_its_source_goes_on() -> None:
    machine = pairs(spares=2)
    machine.handle(SiteLost(0, "dead"))
    promise(machine)
    copies = machine.membership.joining
    actions = machine.handle(SiteLost(4, "dead too"))
    assert end(actions) is None
    assert machine.membership.joining == () and set(machine.membership.dropped) == {copy.number for copy in copies}
    [proposal] = messages(actions, PlanProposed)
    assert {copy.target for copy in proposal.plan.copies} == {5}
    assert not {copy.number for copy in proposal.plan.copies} & {copy.number for copy in copies}
    finish_recovery(machine)
    assert machine.redundancy() == 2


def test_a_copy_whose_source_dies_last_ends_the_run_since_its_target_does_not_count() -> None:
    machine = pairs(spares=1)
    machine.handle(SiteLost(0, "dead"))
    promise(machine)
    ended = end(machine.handle(SiteLost(2, "dead too")))
    assert ended is not None and isinstance(ended.error, PartitionsLost)


def test_a_copy_whose_source_dies_begins_again_from_another_replica() -> None:
    machine = started(first_plan(LAYOUT, 3, 3), 4)
    machine.handle(SiteLost(0, "dead"))
    promise(machine)
    [source] = {copy.source for copy in machine.membership.joining}
    [proposal] = messages(machine.handle(SiteLost(source, "dead too")), PlanProposed)
    assert {copy.source for copy in proposal.plan.copies} == {3 - source}
    finish_recovery(machine)
    assert machine.redundancy() == 2, "one spare can take one rank of each partition"


def test_a_copy_that_fails_is_dropped_and_begun_again() -> None:
    machine = pairs(spares=1)
    machine.handle(SiteLost(0, "dead"))
    promise(machine)
    first, second = machine.membership.joining
    actions = machine.handle(SiteSaid(4, CopyFailed(first.number, "cut off")))
    assert "copy_dropped" in kinds(actions) and machine.membership.dropped == (first.number,)
    assert machine.redundancy() == 1
    actions = machine.handle(SiteSaid(4, CopyLive(second.number)))
    [proposal] = messages(actions, PlanProposed)
    assert any(copy.segment == first.segment and copy.partitions == first.partitions for copy in proposal.plan.copies)
    assert machine.handle(SiteSaid(4, CopyLive(first.number))) == [], "what was dropped cannot become live"
    promise(machine)
    assert machine.membership.dropped == (first.number,), "the copies of the plan before may still be met"
    finish_recovery(machine)
    assert machine.membership.dropped == ()
    assert machine.redundancy() == 2


def test_a_plan_that_a_user_wants_waits_for_the_copies() -> None:
    machine = pairs(spares=1)
    machine.handle(SiteLost(0, "dead"))
    promise(machine)
    assert machine.handle(PlanChangeRequested()) == []
    for copy in machine.membership.joining:
        actions = machine.handle(SiteSaid(4, CopyLive(copy.number)))
    [proposal] = messages(actions, PlanProposed)
    assert proposal.plan.copies == ()


def test_without_a_spare_the_lost_wait_for_a_newcomer_and_then_for_nobody() -> None:
    machine = pairs()
    actions = machine.handle(SiteLost(0, "dead"))
    assert [a for a in actions if isinstance(a, Wake)] == [Wake(1000.0, RunPause.NEW_SITE)]
    assert machine.proposed is None
    [proposal] = messages(machine.handle(Waited()), PlanProposed)
    assert all(copy.source == 2 and copy.target in (1, 3) for copy in proposal.plan.copies)
    finish_recovery(machine)
    assert machine.redundancy() == 2
    for row in machine.plan.placement:
        assert all(len(set(sites)) == 2 and 0 not in sites for sites in row)


def test_a_newcomer_learns_everything_in_the_order_it_can_use_and_gets_the_lost_replicas() -> None:
    machine = pairs()
    machine.handle(SiteLost(0, "dead"))
    actions = machine.handle(SiteReady(7))
    told = [type(a.message) for a in actions if isinstance(a, Tell) and a.site == 7]
    assert told == [PlanCommitted, MembershipChanged, Started, PlanProposed]
    assert machine.sites == (1, 2, 3, 7)
    assert "site_joined" in kinds(actions)
    assert {copy.target for copy in messages(actions, PlanProposed)[0].plan.copies} == {7}
    assert machine.handle(SiteReady(7)) == []


def test_who_is_ready_before_the_run_has_begun_joins_it_when_it_does() -> None:
    """A site that came after the run was planned may have built its part before the last of the first ones has."""
    machine = RunMachine(LAYOUT, PLAN, first_membership(LAYOUT, PLAN, range(2)))
    for site in (0, 2, 3):
        assert machine.handle(SiteReady(site)) == []
    machine.handle(SiteLost(3, "it went at once"))
    actions = machine.handle(SiteReady(1))
    assert machine.sites == (0, 1, 2) and kinds(actions) == ["site_joined"]
    said = [action.message for action in actions if isinstance(action, Tell) and action.site == 2]
    assert [type(message) for message in said] == [PlanCommitted, MembershipChanged, Started]


def test_a_newcomer_must_promise_the_plan_that_is_proposed() -> None:
    machine = pairs(spares=1)
    machine.handle(PlanChangeRequested())
    number = machine.proposed.number  # type: ignore[union-attr]
    assert messages(machine.handle(SiteReady(7)), PlanProposed, site=7)
    for site in (0, 1, 2, 3, 4):
        assert machine.handle(SiteSaid(site, Promised(number))) == []
    assert messages(machine.handle(SiteSaid(7, Promised(number))), PlanCommitted)


def test_a_newcomer_drains_with_the_others() -> None:
    machine = pairs()
    machine.handle(StopRequested(drain=True))
    assert messages(machine.handle(SiteReady(7)), DrainRequested, site=7)


# ---------------------------------------------------------------- replicas that disagree


def digests(epoch: int, **values: int) -> Digests:
    """Of partitions p0, p1 and so on of segment 1."""
    partitions = tuple(int(name[1:]) for name in values)
    return Digests(1, epoch, partitions, np.array(list(values.values()), np.uint64).tobytes())


def test_replicas_that_agree_go_on_and_others_stop_the_run() -> None:
    machine = pairs()
    machine.handle(SiteSaid(0, digests(64, p0=5, p1=6)))
    assert machine.handle(SiteSaid(2, digests(64, p0=5, p1=6))) == []
    machine.handle(SiteSaid(0, digests(128, p0=5, p1=6)))
    ended = end(machine.handle(SiteSaid(2, digests(128, p0=5, p1=7))))
    assert ended is not None and isinstance(ended.error, NondeterministicBox)
    text = str(ended.error)
    assert "partition 1 of segment 'mid' put out different rows at sites 0 and 2" in text
    assert "between 65 and 128" in text


def test_first_membership_of_a_run_counts_its_spares() -> None:
    machine = pairs(spares=2)
    assert machine.membership == Membership(0, (0, 1, 2, 3, 4, 5), (), (), machine.membership.leaders)
    assert machine.view.active() == (0, 1, 2, 3)
