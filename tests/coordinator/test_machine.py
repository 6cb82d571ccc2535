"""Start, plan changes and the end of a run, as decisions without a world."""

from __future__ import annotations

import pytest

from evenflow.coordinator.machine import (
    AHEAD,
    EndRun,
    EpochSeen,
    PlanChangeRequested,
    RunBroken,
    RunMachine,
    SiteLost,
    SiteReady,
    SiteSaid,
    StopRequested,
    Tell,
)
from evenflow.errors import BoxFailed, ClusterError, SinkError
from evenflow.query.plan import Plan
from evenflow.site.events import (
    DrainRequested,
    PartFailed,
    PartFinished,
    PlanAborted,
    PlanCommitted,
    PlanMissing,
    PlanProposed,
    Promised,
    Refused,
    Started,
)

PLAN = Plan(0, 1, 2, ((0, 1),))


def running() -> RunMachine:
    machine = RunMachine(PLAN)
    machine.handle(SiteReady(0))
    machine.handle(SiteReady(1))
    return machine


def test_epochs_open_only_when_every_site_is_ready() -> None:
    machine = RunMachine(PLAN)
    assert machine.handle(SiteReady(1)) == []
    assert machine.handle(SiteReady(0)) == [Tell(0, Started()), Tell(1, Started())]


def test_a_plan_is_proposed_beyond_what_was_seen_and_committed_when_all_promised() -> None:
    machine = running()
    machine.handle(EpochSeen(17))
    proposed = machine.handle(PlanChangeRequested())
    plan = Plan(1, 17 + AHEAD, 2, PLAN.placement)
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
    next_plan = machine.handle(PlanChangeRequested())[0].message.plan  # type: ignore[union-attr]
    assert next_plan.effective == machine.seen + AHEAD


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


@pytest.mark.parametrize(
    ("event", "error", "text"),
    [
        (SiteLost(1, "executor 3 was killed"), ClusterError, "site 1 is lost: executor 3 was killed"),
        (RunBroken(SinkError("disk full")), SinkError, "disk full"),
        (SiteSaid(0, PartFailed("parse", 7, "ValueError: no", "raised an exception", "BoxFailed")), BoxFailed, "'parse'.*epoch 7"),
    ],
)
def test_what_breaks_a_run(event: object, error: type[Exception], text: str) -> None:
    [end] = running().handle(event)  # type: ignore[arg-type]
    assert isinstance(end, EndRun)
    with pytest.raises(error, match=text):
        raise end.error  # type: ignore[misc]


def test_a_drain_lets_the_sites_finish_and_a_stop_does_not() -> None:
    machine = running()
    assert machine.handle(StopRequested(drain=True)) == [Tell(0, DrainRequested()), Tell(1, DrainRequested())]
    assert machine.handle(StopRequested(drain=False)) == [EndRun(None)]
