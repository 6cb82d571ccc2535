"""The coordinator's machine for one run of a dataflow: start, plan changes, the end.

It never touches data. A plan change (V2) is proposed at an epoch beyond every ingress; every site promises; then it is committed, or,
when a site names a later epoch, aborted and proposed again there. This file knows no clock, socket or Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from evenflow.errors import BoxFailed, ClusterError, EvenflowError, NondeterministicBox
from evenflow.exchange.rules import Rule, RuleTable, Story, always
from evenflow.query.plan import Plan
from evenflow.site.events import (
    DrainRequested,
    Fact,
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

AHEAD: Final = 4
"""k of V2: a plan is proposed this many epochs beyond the newest one that the coordinator has heard of; twice as many after a refusal,
since epochs close faster than proposals travel then, and so on until it is in time."""

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class SiteReady:
    """A site has built its part of the dataflow and is connected to its peers."""

    site: int


@dataclass(frozen=True, slots=True)
class SiteSaid:
    """A fact that a site's part told."""

    site: int
    fact: Fact


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """A site reported that it closed `epoch`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class SiteLost:
    """A site is gone. why: what the user should know about it."""

    site: int
    why: str


@dataclass(frozen=True, slots=True)
class PlanChangeRequested:
    """Somebody wants a new plan. placement: None leaves it as it is."""

    placement: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The user wants the run to end. drain: finish what has been taken in first."""

    drain: bool


@dataclass(frozen=True, slots=True)
class RunBroken:
    """Something outside the sites failed for good: a driver-side sink, an ingest job."""

    error: EvenflowError


CoordinatorEvent = SiteReady | SiteSaid | EpochSeen | SiteLost | PlanChangeRequested | StopRequested | RunBroken

# ---------------------------------------------------------------- actions

Message = Started | PlanProposed | PlanCommitted | PlanAborted | DrainRequested


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a message to a site's part."""

    site: int
    message: Message


@dataclass(frozen=True, slots=True)
class EndRun:
    """Tell every site to forget the run. error: None if it ended as it should."""

    error: EvenflowError | None


CoordinatorAction = Tell | EndRun


class RunMachine:
    """See the module. state of the run: waiting for sites, running, over."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sites = range(plan.sites)
        self.over = False
        self.seen = 0
        self.story = Story()
        self._ready: set[int] = set()
        self._finished: set[int] = set()
        self._proposed: Plan | None = None
        self._promised: set[int] = set()
        self._ahead = AHEAD
        self._wanted: list[PlanChangeRequested] = []
        self._actions: list[CoordinatorAction] = []

    def __repr__(self) -> str:
        return f"coordinator (plan {self.plan.number}, {len(self._ready)}/{self.plan.sites} sites ready)"

    @property
    def running(self) -> bool:
        return len(self._ready) == self.plan.sites and not self.over

    def handle(self, event: CoordinatorEvent) -> list[CoordinatorAction]:
        """Take one event. Returns actions in the order in which they must be carried out."""
        RULES.apply(self, event, self.story)
        actions, self._actions = self._actions, []
        return actions

    # -- effects

    def note_ready(self, event: SiteReady) -> None:
        self._ready.add(event.site)
        if len(self._ready) == self.plan.sites:
            self._tell_all(Started())

    def note_epoch(self, event: EpochSeen) -> None:
        self.seen = max(self.seen, event.epoch)

    def want_plan(self, event: PlanChangeRequested) -> None:
        self._wanted.append(event)

    def propose(self, event: PlanChangeRequested) -> None:
        placement = event.placement or self.plan.placement
        self._ahead = AHEAD
        self._propose(Plan(self.plan.number + 1, self.seen + AHEAD, self.plan.sites, placement))

    def note_promise(self, event: SiteSaid) -> None:
        assert self._proposed is not None
        self._promised.add(event.site)
        if len(self._promised) < self.plan.sites:
            return
        self.plan, self._proposed = self._proposed, None
        self._tell_all(PlanCommitted(self.plan))
        if self._wanted:
            self.propose(self._wanted.pop(0))

    def propose_later(self, event: SiteSaid) -> None:
        assert self._proposed is not None and isinstance(event.fact, Refused)
        self.seen = max(self.seen, event.fact.closed)
        refused = self._proposed
        self._ahead *= 2
        self._tell_all(PlanAborted(refused.number))
        self._propose(replace(refused, number=refused.number + 1, effective=self.seen + self._ahead))

    def send_plan(self, event: SiteSaid) -> None:
        self._actions.append(Tell(event.site, PlanCommitted(self.plan)))

    def note_finished(self, event: SiteSaid) -> None:
        self._finished.add(event.site)
        if len(self._finished) == self.plan.sites:
            self._end(None)

    def fail(self, event: SiteSaid) -> None:
        assert isinstance(event.fact, PartFailed)
        self._end(error_of(event.fact))

    def lose_site(self, event: SiteLost) -> None:
        self._end(ClusterError(f"site {event.site} is lost: {event.why}. A run without replicas cannot go on; start it again."))

    def break_run(self, event: RunBroken) -> None:
        self._end(event.error)

    def stop(self, event: StopRequested) -> None:
        if event.drain and self.running:
            self._tell_all(DrainRequested())
        else:
            self._end(None)

    def ignore(self, event: CoordinatorEvent) -> None:
        """The rule's row says why."""

    # -- helpers

    def _propose(self, plan: Plan) -> None:
        self._proposed, self._promised = plan, set()
        self._tell_all(PlanProposed(plan))

    def _tell_all(self, message: Message) -> None:
        self._actions.extend(Tell(site, message) for site in self.sites)

    def _end(self, error: EvenflowError | None) -> None:
        self.over = True
        self._actions.append(EndRun(error))


def error_of(fact: PartFailed) -> EvenflowError:
    """The error that a user sees for a failed box: of the class it was raised as, with the box, the epoch and the traceback."""
    if fact.kind == "NondeterministicBox":
        return NondeterministicBox(fact.box, fact.epoch, fact.user_traceback, fact.reason)
    known = {cls.__name__: cls for cls in _subclasses(EvenflowError)}
    cls = known.get(fact.kind, BoxFailed)
    if issubclass(cls, BoxFailed):
        return BoxFailed(fact.box, fact.epoch, fact.user_traceback, fact.reason)
    return cls(f"box {fact.box!r}, epoch {fact.epoch}: {fact.user_traceback}")


def _subclasses(cls: type[EvenflowError]) -> Iterable[type[EvenflowError]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


# ---------------------------------------------------------------- guards


def not_over(machine: RunMachine, event: CoordinatorEvent) -> bool:
    return not machine.over


def is_over(machine: RunMachine, event: CoordinatorEvent) -> bool:
    return machine.over


def can_propose(machine: RunMachine, event: PlanChangeRequested) -> bool:
    return machine.running and machine._proposed is None


def must_wait(machine: RunMachine, event: PlanChangeRequested) -> bool:
    return not machine.over and not can_propose(machine, event)


def promise_counts(machine: RunMachine, event: SiteSaid) -> bool:
    return (
        not machine.over
        and isinstance(event.fact, Promised)
        and machine._proposed is not None
        and event.fact.number == machine._proposed.number
    )


def refusal_counts(machine: RunMachine, event: SiteSaid) -> bool:
    return (
        not machine.over
        and isinstance(event.fact, Refused)
        and machine._proposed is not None
        and event.fact.number == machine._proposed.number
    )


def answer_is_stale(machine: RunMachine, event: SiteSaid) -> bool:
    answers = isinstance(event.fact, Promised | Refused)
    return not machine.over and answers and not promise_counts(machine, event) and not refusal_counts(machine, event)


def asks_plan(machine: RunMachine, event: SiteSaid) -> bool:
    return not machine.over and isinstance(event.fact, PlanMissing)


def has_finished(machine: RunMachine, event: SiteSaid) -> bool:
    return not machine.over and isinstance(event.fact, PartFinished)


def has_failed(machine: RunMachine, event: SiteSaid) -> bool:
    return not machine.over and isinstance(event.fact, PartFailed)


def _rules() -> Iterable[Rule[RunMachine]]:
    yield Rule("V1", SiteReady, not_over, RunMachine.note_ready, "epochs open when every site can reach its peers")
    yield Rule("V1", SiteReady, is_over, RunMachine.ignore, "the run has ended meanwhile")
    yield Rule("V2", EpochSeen, always, RunMachine.note_epoch, "a plan is proposed beyond every epoch seen")
    yield Rule("V2", PlanChangeRequested, can_propose, RunMachine.propose, "proposed at max seen + k")
    yield Rule("V2", PlanChangeRequested, must_wait, RunMachine.want_plan, "one plan at a time; the request waits")
    yield Rule("V2", PlanChangeRequested, is_over, RunMachine.ignore, "a run that is over needs no plan")
    yield Rule("V2", SiteSaid, promise_counts, RunMachine.note_promise, "commit when all have promised")
    yield Rule("V2", SiteSaid, refusal_counts, RunMachine.propose_later, "a site is beyond that epoch and names a later one")
    yield Rule("V2", SiteSaid, answer_is_stale, RunMachine.ignore, "an answer to a proposal that is off")
    yield Rule("V2", SiteSaid, asks_plan, RunMachine.send_plan, "a site met a frame of a plan that it does not have")
    yield Rule("E6", SiteSaid, has_finished, RunMachine.note_finished, "the run is over when every site's part is")
    yield Rule("E3", SiteSaid, has_failed, RunMachine.fail, "a failing box ends the run")
    yield Rule("V1", SiteSaid, is_over, RunMachine.ignore, "the run has ended meanwhile")
    yield Rule("V1", SiteLost, not_over, RunMachine.lose_site, "without replicas a lost site ends the run")
    yield Rule("V1", SiteLost, is_over, RunMachine.ignore, "the run has ended meanwhile")
    yield Rule("O1", RunBroken, not_over, RunMachine.break_run, "a sink or an ingest job failed for good")
    yield Rule("O1", RunBroken, is_over, RunMachine.ignore, "the run has ended meanwhile")
    yield Rule("E6", StopRequested, not_over, RunMachine.stop, "at once, or after what has been taken in")
    yield Rule("E6", StopRequested, is_over, RunMachine.ignore, "it has stopped already")


RULES: Final[RuleTable[RunMachine]] = RuleTable(_rules())
