"""What each event does to a run, at its coordinator: start, membership, plan changes, recovery, the end.

It never touches data. Membership (V1) is decided here alone and acts on receipt. A plan change (V2) is proposed at an epoch beyond every
ingress; every site promises; then it is committed, or, when a site names a later epoch, aborted and proposed again there. There is one
plan at a time, and none while copies of the last are under way. This file knows no clock, socket or Spark,
and not when an effect is due: that is what `rules` say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evenflow.coordinator.comparison import Comparison
from evenflow.coordinator.deaths import Deaths
from evenflow.coordinator.events import (
    Collect,
    Collected,
    CoordinatorAction,
    CoordinatorEvent,
    Done,
    DrainSite,
    EndRun,
    EpochSeen,
    Happened,
    Kind,
    Message,
    MovesRequested,
    Pause,
    PlanChangeRequested,
    RebalanceRequested,
    RepartitionRequested,
    ReplaceRequested,
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
from evenflow.coordinator.failure import error_of
from evenflow.coordinator.leaders import Leaders
from evenflow.coordinator.moving import Moving
from evenflow.coordinator.pace import AHEAD, Pace
from evenflow.coordinator.recovery import PATIENCE_MS, SETTLE_MS, Recovery
from evenflow.coordinator.repartitioning import Repartitioning
from evenflow.coordinator.replacing import Replacing
from evenflow.coordinator.retries import PAUSE_MS
from evenflow.coordinator.rounds import NOTHING, Rounds
from evenflow.errors import ClusterError, DriverAway, EvenflowError, PartitionsLost
from evenflow.exchange.rules import Story
from evenflow.plan.layout import Layout, Ranges
from evenflow.plan.membership import Membership
from evenflow.plan.plan import Copy, Placement, Plan
from evenflow.policy.move import Move
from evenflow.policy.proposal import Parameters
from evenflow.site.events import DrainRequested, MembershipChanged, PlanAborted, PlanCommitted, PlanProposed, Started
from evenflow.site.facts import Digests, PartFailed, PartFinished, Refused
from evenflow.site.view import NOBODY, View
from evenflow.stream.ids import PlanNumber, Term


class RunEffects:
    """See the module. plan, membership: the newest. proposed: a plan that not all have promised yet, or None. seen: newest epoch
    heard of. over: the run has ended.

    patience_ms: how long lost replicas wait for a new site before they are copied onto the remaining sites. settle_ms: how long
    nothing is copied after a death, so that those who take over have their cores for themselves. pause_ms: between two sites after a copy
    has failed there. policy: by which load is balanced, with its parameters (None: its own); spares: so many idle sites are left alone
    by it.
    """

    def __init__(
        self,
        layout: Layout,
        plan: Plan,
        membership: Membership,
        patience_ms: float = PATIENCE_MS,
        settle_ms: float = SETTLE_MS,
        policy: str = NOTHING,
        parameters: Parameters | None = None,
        spares: int = 0,
        pause_ms: float = PAUSE_MS,
    ) -> None:
        self.layout = layout
        self.view = View(layout, plan, membership, NOBODY)
        self.over = self.started = self.draining = False
        self.seen = 0
        self.story = Story()
        self.deaths = Deaths(layout, self.view)
        self.recovery = Recovery(layout, self.view, patience_ms, pause_ms)
        self.repartitioning, self.replacing, self.leaders = Repartitioning(layout, self.view), Replacing(self.view), Leaders(self.view)
        self.rounds = Rounds(layout, self.view, self.recovery, policy, parameters, spares)
        self.moving = Moving(layout, self.view, self.recovery, self.rounds.pinned)
        self._ready: set[int] = set()
        self._finished: set[int] = set()
        self._more_since: dict[int, int] = {}
        self.proposed: Plan | None = None
        self._promised: set[int] = set()
        self._settle_ms = settle_ms
        self._settling = 0
        self._collecting = False
        self._pace, self._ahead = Pace(), AHEAD
        self._numbers = plan.number
        self._wanted: list[PlanChangeRequested] = []
        self._comparison = Comparison(layout)
        self._actions: list[CoordinatorAction] = []

    def __repr__(self) -> str:
        return f"coordinator (plan {self.plan.number}, membership {self.membership.number}, {len(self._ready)} sites ready)"

    @property
    def plan(self) -> Plan:
        return self.view.plan

    @property
    def membership(self) -> Membership:
        return self.view.membership

    @property
    def sites(self) -> tuple[int, ...]:
        """Sites that take part, ascending."""
        return self.view.membership.sites

    @property
    def running(self) -> bool:
        return self.started and not self.over

    def redundancy(self) -> int:
        """The least number of live replicas of any partition."""
        return min(len(self.view.live(block)) for segment in self.layout.segments for block in self.view.blocks(segment.id))

    # -- sites come and go

    def note_ready(self, event: SiteReady) -> None:
        self.recovery.hosts[event.site] = event.host
        self._ready.add(event.site)
        if self._ready >= set(self.sites):
            self.started = True
            self._tell_all(Started(self.rounds.relief_us))
            self._collect()
            for site in sorted(self._ready.difference(self.sites)):
                self.welcome(SiteReady(site, self.recovery.hosts[site]))

    def welcome(self, event: SiteReady) -> None:
        """A newcomer: it learns what it has missed, and everybody learns of it."""
        self.recovery.hosts[event.site] = event.host
        self._ready.add(event.site)
        self._actions.append(Tell(event.site, PlanCommitted(self.plan)))
        self.change_membership(sites=tuple(sorted((*self.sites, event.site))))
        self._actions.append(Tell(event.site, Started(self.rounds.relief_us)))
        if self.draining:
            self._actions.append(Tell(event.site, DrainRequested()))
        if self.proposed is not None:
            self._actions.append(Tell(event.site, PlanProposed(self.proposed)))
        self.happened(Kind.SITE_JOINED, event.site, f"site {event.site} has joined")
        self._recover()

    def forget_stranger(self, event: SiteLost) -> None:
        """If it was ready before the run began, it does not join when it does."""
        self._ready.discard(event.site)

    def lose_site(self, event: SiteLost) -> None:
        """V1: drop the dead, name successors, forget its copies. Consumers have asked other replicas already (A3)."""
        kind, verb = (Kind.SITE_LEFT, "has left") if event.planned else (Kind.SITE_LOST, "is lost")
        why, crashed = self.deaths.words(event), self.deaths.note(event)
        self.happened(kind, event.site, f"site {event.site} {verb}: {why}")
        before = self.membership
        sites = tuple(site for site in before.sites if site != event.site)
        gone = [copy for copy in before.joining if event.site in (copy.source, copy.target)]
        for copy in (*gone, *self.moving.forget(event.site)):
            if copy.moves:
                self.give_up_move(copy, f"site {event.site} is lost")
        joining = tuple(copy for copy in before.joining if copy not in gone)
        dropped = (*before.dropped, *(copy.number for copy in gone))
        self._abort()
        if crashed is not None:
            self._end(crashed)
            return
        if not sites:
            everything = {segment.name: tuple(range(segment.partitions)) for segment in self.layout.segments}
            self._end(self._lost(event, why, everything, 1))
            return
        self.recovery.retries.keep(sites)
        after = Membership(Term(before.number + 1), sites, joining, dropped, before.leaders, before.retired)
        self.view.change(after)
        lost = self.recovery.lost()
        if lost:
            self._end(self._lost(event, why, lost, max(map(len, self.plan.placement[0]))))
            return
        self._announce(replace(after, leaders=self.leaders.successors(after)))
        if not event.planned:
            self.happened(Kind.TAKE_OVER, event.site, f"the replicas of site {event.site}'s partitions go on without it")
        self._ready.discard(event.site)
        self._end_if_finished()
        if self._settle_ms and not self.over:
            self._settling += 1
            self.wake(self._settle_ms, RunPause.DUST)
        self._recover()

    def _lost(self, event: SiteLost, why: str, partitions: Mapping[str, tuple[int, ...]], replicas: int) -> EvenflowError:
        """Partitions are gone; if the driver was away for too long, all the sites have ended of that."""
        if (absence := event.absence) is not None:
            return DriverAway(absence.away_s, absence.lease_s, self.seen)
        return PartitionsLost(event.site, why, partitions, self.seen, replicas)

    def lose_before_start(self, event: SiteLost) -> None:
        self._end(ClusterError(f"site {event.site} is lost: {event.why}, before the run began. Start it again."))

    # -- plans

    def note_epoch(self, event: EpochSeen) -> None:
        self.seen = max(self.seen, event.epoch)

    def want_plan(self, event: PlanChangeRequested) -> None:
        self._wanted.append(event)

    def propose(self, event: PlanChangeRequested) -> None:
        self._propose_beyond(event.placement or self.recovery.cleared(), ())

    def _propose_beyond(self, placement: Placement, copies: tuple[Copy, ...], ranges: tuple[Ranges, ...] | None = None) -> None:
        assert not self.under_way(), "a plan is proposed while another one, or its copies, are under way"
        self._ahead = self._pace.ahead
        ranges = self.plan.ranges if ranges is None else ranges
        carried = ranges, self.rounds.weights, self.replacing.version
        self._propose(Plan(self._next_number(), self.seen + self._ahead, placement, copies, *carried))

    def _next_number(self) -> PlanNumber:
        self._numbers = PlanNumber(self._numbers + 1)
        return self._numbers

    def note_promise(self, event: SiteSaid) -> None:
        assert self.proposed is not None
        self._promised.add(event.site)
        if not self._promised >= set(self.sites):
            return
        before, plan, self.proposed = self.plan, self.proposed, None
        if plan.copies or self.membership.dropped or self.membership.retired:
            # First who does not count, then where things are: at no moment may a site count a replica that has no state.
            known = {copy.number for copy in (*before.copies, *plan.copies)}
            dropped = tuple(number for number in self.membership.dropped if number in known)
            retired = tuple(number for number in self.membership.retired if number in known)
            self.change_membership(joining=plan.copies, dropped=dropped, retired=retired)
        self.view.adopt(plan, plan.effective - 1)
        self._tell_all(PlanCommitted(plan))
        for details in self.repartitioning.committed(before):
            text = "{segment} has {partitions} partitions from epoch {epoch} on; before, it had {before}".format(**details)
            self.happened(Kind.REPARTITIONED, NOBODY, text, details)
        self._actions += self.repartitioning.answers()
        self._actions += self.replacing.committed(before)
        for copy in plan.copies:
            name, count = self.layout.segments[copy.segment].name, len(copy.partitions)
            if copy.moves:
                text = f"{count} partitions of {name} move from site {copy.replaces} to site {copy.target}: {self.moving.reason(copy)}"
                self.happened(Kind.MOVE_BEGUN, copy.target, text, self.moving.described(copy))
            else:
                text = f"{count} partitions of {name} are copied from site {copy.source} to site {copy.target}"
                self.happened(Kind.COPY_BEGUN, copy.target, text)
        self.go_on()

    def propose_later(self, event: SiteSaid) -> None:
        assert self.proposed is not None and isinstance(event.fact, Refused)
        self.seen = max(self.seen, event.fact.closed)
        refused = self.proposed
        self._ahead *= 2
        self._tell_all(PlanAborted(refused.number))
        self._propose(replace(refused, number=self._next_number(), effective=self.seen + self._ahead))

    def send_plan(self, event: SiteSaid) -> None:
        self._actions.append(Tell(event.site, PlanCommitted(self.plan)))

    def _abort(self) -> None:
        """V1: a membership change aborts a pending plan. What a user asked for is proposed again."""
        if self.proposed is not None:
            self._tell_all(PlanAborted(self.proposed.number))
            self.moving.again(self.proposed.copies)
            if not self.proposed.copies and self.proposed.ranges == self.plan.ranges:
                self._wanted.insert(0, PlanChangeRequested())
            self.proposed = None

    def go_on(self) -> None:
        """What has waited for the last plan and its copies."""
        if not self.under_way() and not self.over and self._wanted:
            self.propose(self._wanted.pop(0))
        self._recover()

    def under_way(self) -> bool:
        """A plan is proposed, or copies of the last one are not over."""
        return self.proposed is not None or bool(self.membership.joining or self.moving.unconfirmed)

    # -- copies

    def _recover(self) -> None:
        """C6: copy what has too few replicas, a bounded number of pieces at a time."""
        if not self.running or self._settling or self.under_way():
            return
        step = self.recovery.next_step()
        if step.wait_ms is not None:
            self.wake(step.wait_ms, RunPause.NEW_SITE)
        if step.copies:
            self._propose_beyond(step.placement, step.copies)
            return
        if step.waits:
            self.happened(Kind.RECOVERY_WAITS, NOBODY, step.waits)
        if step.complete:
            self.happened(Kind.REDUNDANCY, NOBODY, f"every partition has {self.redundancy()} live replicas again")
        if not self.recovery.waiting:
            self._move()

    def _move(self) -> None:
        """Begin what is wanted. Lost replicas come first."""
        if not self.moving.wanted:
            emptied, moves = self.moving.still_to_empty()
            for site in emptied:
                self.happened(Kind.SITE_EMPTIED, site, f"site {site} has nothing any more")
            self.moving.want(moves or self._moves_together())
        begun = self.moving.begin()
        for text in begun.refused:
            self.happened(Kind.MOVE_REFUSED, NOBODY, text)
        if begun.copies:
            self._propose_beyond(begun.placement, begun.copies)
        elif self.repartitioning.wanted:
            self._repartition(begun.placement)
        elif self.replacing.wanted:
            self._propose_beyond(begun.placement, ())
        elif self.rounds.moving and not self._collecting:
            self._collect()  # The round's moves are over.

    # -- partitions

    def want_partitions(self, event: RepartitionRequested) -> None:
        self.repartitioning.want(event.segments, event.partitions, event.request)
        self._recover()

    def want_version(self, event: ReplaceRequested) -> None:
        self.replacing.want(event.version, event.request)
        self._recover()

    def _moves_together(self) -> tuple[Move, ...]:
        return () if self.recovery.missing else self.moving.homeward() or self.repartitioning.moves()

    def _repartition(self, placement: Placement) -> None:
        """Nothing moves that is wanted: those between whom key groups are to change hands are at the same sites now, or cannot be."""
        if self.recovery.missing:
            return  # It is looked again when nothing is.
        ranges = self.repartitioning.ranges()
        if ranges is not None:
            self._propose_beyond(placement, (), ranges)
            return
        self.happened(Kind.REPARTITION_REFUSED, NOBODY, self.repartitioning.give_up())
        self._actions += self.repartitioning.answers()
        self._recover()

    # -- rounds

    def _collect(self) -> None:
        if self.rounds.active:
            self._collecting = True
            self._actions.append(Collect(self.rounds.collect_us))

    def balance(self, event: Collected) -> None:
        """A round: what the policy proposes is done; if that is nothing, or something else comes first, the next one begins at once."""
        self._collecting = False
        self._pace = self._pace.then(event.ended_us, self.seen)
        if self._is_calm():
            proposal = self.rounds.decide(event)
            if proposal is not None and self.rounds.moving:
                self.happened(Kind.ROUND, NOBODY, proposal.text, {"moves": len(proposal.moves)})
                self.moving.want(proposal.moves)
                self._recover() if proposal.moves else self.propose(PlanChangeRequested())
                return
        else:
            self.rounds.disturbed()
        self._collect()

    def _is_calm(self) -> bool:
        """Nothing is missing, wanted or under way."""
        busy = self.under_way() or self.moving.wanted or self.repartitioning.wanted or self.moving.leaving & set(self.view.active())
        return not (busy or self._settling or self.recovery.missing or self.draining)

    def rebalance(self, event: RebalanceRequested) -> None:
        moves = self.rounds.once(event.statistics)
        self.happened(Kind.ROUND, NOBODY, f"balancing was asked for: {len(moves)} moves", {"moves": len(moves)})
        if event.request:
            self._actions.append(Done(event.request, {"moves": len(moves)}))
        self.moving.want(moves)
        self._recover()

    def want_moves(self, event: MovesRequested) -> None:
        self.moving.want(event.moves)
        self._recover()

    def drain_site(self, event: DrainSite) -> None:
        (self.moving.stay if event.stays else self.moving.leave)(event.site)
        self._recover()

    def waited(self, event: Waited) -> None:
        if event.pause is RunPause.DUST:
            self._settling -= 1
        else:
            self.recovery.waited(event.pause)
        self._recover()

    def more_to_finish(self, site: int) -> None:
        """It has got replicas: that it had finished before says nothing any more."""
        self._finished.discard(site)
        self._more_since[site] = self.membership.number

    def give_up_move(self, move: Copy, why: str) -> None:
        text = f"a move to site {move.target} was given up: {why}"
        self.happened(Kind.MOVE_DROPPED, move.target, text, self.moving.over(move))

    def compare(self, event: SiteSaid) -> None:
        assert isinstance(event.fact, Digests)
        error = self._comparison.take(event.site, event.fact)
        if error is not None:
            self._end(error)

    # -- the end

    def note_finished(self, event: SiteSaid) -> None:
        assert isinstance(event.fact, PartFinished)
        if event.fact.membership < self._more_since.get(event.site, 0):
            return  # It has got more to finish since, and says so again.
        self._finished.add(event.site)
        self._end_if_finished()

    def _end_if_finished(self) -> None:
        if not self.over and self._finished >= set(self.view.active()):
            self._end(None)

    def fail(self, event: SiteSaid) -> None:
        assert isinstance(event.fact, PartFailed)
        self._end(error_of(event.fact))

    def break_run(self, event: RunBroken) -> None:
        self._end(event.error)

    def stop(self, event: StopRequested) -> None:
        if event.drain and self.running:
            self.draining = True
            self._tell_all(DrainRequested())
        else:
            self._end(None)

    def ignore(self, event: CoordinatorEvent) -> None:
        """The rule's row says why."""

    # -- helpers

    def _propose(self, plan: Plan) -> None:
        # What has been seen may be old news: a plan never acts from an earlier epoch than the one before it.
        plan = replace(plan, effective=max(plan.effective, self.plan.effective, self.repartitioning.done_after))
        self.proposed, self._promised = plan, set()
        self._tell_all(PlanProposed(plan))

    def change_membership(self, **changes: Any) -> None:
        """The next membership, which differs in these fields."""
        self._announce(replace(self.membership, number=Term(self.membership.number + 1), **changes))

    def _announce(self, membership: Membership) -> None:
        assert membership.number >= self.membership.number and {copy.target for copy in membership.joining} <= set(membership.sites)
        self.view.change(membership)
        self._tell_all(MembershipChanged(membership))

    def _tell_all(self, message: Message) -> None:
        self._actions.extend(Tell(site, message) for site in self.sites)

    def wake(self, after_ms: float, pause: Pause) -> None:
        self._actions.append(Wake(after_ms, pause))

    def happened(self, kind: Kind, site: int, text: str, details: Mapping[str, Any] | None = None) -> None:
        """For whoever watches: see `Happened`."""
        self._actions.append(Happened(kind, site, text, details or {}))

    def _end(self, error: EvenflowError | None) -> None:
        assert not self.over, f"the run is over, and ends again with {error}"
        self.over = True
        self._actions.append(EndRun(error))
