"""One run at its coordinator, and what it does of itself: it proposes one plan at a time, recovers what is lost, moves, and ends.

Membership (V1) is decided here alone and acts on receipt. A plan change (V2) is proposed at an epoch beyond every ingress. There is one
plan at a time, and none while copies of the last are under way.

What single events do stands beside this, in `members`, `plans`, `copies`, `balancing`, `checkpoints`, `appending` and `failure`: functions
of a run and an event, which call what is here. This file never touches data. It knows no clock, socket or Spark, and not when an effect is
due: that is what `rules` say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from evenflow.availability.mode import BASED, MODES, Mode, Modes
from evenflow.coordinator.backing import Backing
from evenflow.coordinator.checkpointing import Checkpointing
from evenflow.coordinator.comparison import Comparison
from evenflow.coordinator.deaths import Deaths
from evenflow.coordinator.events import (
    Append,
    Collect,
    CoordinatorAction,
    CoordinatorEvent,
    EndRun,
    Happened,
    Kind,
    Message,
    Pause,
    PlanChangeRequested,
    RunPause,
    SiteSaid,
    StopRequested,
    Tell,
    Waited,
    Wake,
)
from evenflow.coordinator.hosting import redundancy_of
from evenflow.coordinator.journal import Journal
from evenflow.coordinator.leaders import Leaders
from evenflow.coordinator.ledger import Ledger, Spell
from evenflow.coordinator.losses import Losses
from evenflow.coordinator.modes import ModesWanted
from evenflow.coordinator.moving import Moving
from evenflow.coordinator.newcomers import Arrivals
from evenflow.coordinator.pace import AHEAD, Pace
from evenflow.coordinator.recovery import PATIENCE_MS, SETTLE_MS, Recovery
from evenflow.coordinator.repartitioning import Repartitioning
from evenflow.coordinator.replacing import Replacing
from evenflow.coordinator.retries import PAUSE_MS
from evenflow.coordinator.reviving import Reviving
from evenflow.coordinator.rounds import NOTHING, Rounds
from evenflow.errors import EvenflowError
from evenflow.exchange.rules import Story
from evenflow.plan.layout import Layout, Ranges
from evenflow.plan.membership import Membership
from evenflow.plan.plan import Copy, Placement, Plan, Settings
from evenflow.policy.move import Move
from evenflow.policy.proposal import Parameters
from evenflow.policy.shedding.live import Way
from evenflow.site.content import grid_of
from evenflow.site.events import DrainRequested, Durable, MembershipChanged, PlanAborted, PlanProposed
from evenflow.site.facts import PartFinished
from evenflow.site.replaying import FROM_NOTHING, Beginning
from evenflow.site.view import NOBODY, View
from evenflow.stream.ids import PlanNumber, SiteId, Term

STOP_MS: Final = 2_000.0
"""A run that is stopped ends by then, whether or not its journal could say so."""


class RunEffects:
    """See the module. plan, membership: the newest. seen: newest epoch heard of. over: the run has ended.

    needed_elsewhere: whether another run would be lost with a site. ready: sites whose part is built. proposed: a plan that not all have
    promised yet, or None; promised: who has. wanted: plan changes that wait for the one before. ahead: a plan is proposed so many epochs
    beyond `seen`; pace: how fast epochs close. settling: deaths whose dust has not settled. collecting: a round's statistics are on their
    way.

    patience_ms: how long lost replicas wait for a new site before they are copied onto the remaining sites. settle_ms: how long
    nothing is copied after a death, so that those who take over have their cores for themselves. pause_ms: between two sites after a copy
    has failed there. policy: by which load is balanced, with its parameters (None: its own); spares: so many idle sites are left alone
    by it. beginning: where the run goes on; `plan` is the last of its plans. journal: None if the run has none. checkpoint_ms:
    from one checkpoint to the next, None: only when asked. shedding: how it is planned what is left out of arcs; None: nothing is.
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
        beginning: Beginning = FROM_NOTHING,
        journal: Journal | None = None,
        checkpoint_ms: float | None = None,
        shedding: Way | None = None,
    ) -> None:
        self.layout, self.beginning, self.journal = layout, beginning, journal
        self.view = View(layout, plan, membership, NOBODY, beginning.before(plan))
        self.over = self.started = self.exhausted = False
        self.draining = journal is not None and journal.drained
        self.by_content = grid_of(layout) is not None
        self.seen = beginning.epoch
        self.story = Story()
        self.deaths = Deaths(layout, self.view)
        self.recovery = Recovery(layout, self.view, patience_ms, pause_ms)
        self.repartitioning, self.replacing, self.leaders = Repartitioning(layout, self.view), Replacing(self.view), Leaders(self.view)
        self.arrivals = Arrivals(self.view)
        self.rounds = Rounds(layout, self.view, self.recovery, policy, parameters, spares, shedding)
        self.checkpointing = Checkpointing(layout, self.view, journal, checkpoint_ms)
        self.backing = Backing(layout, self.view, self.recovery, located=journal is not None)
        self.reviving = Reviving(layout, self.view, self.recovery, self.checkpointing, self.backing, beginning)
        self.moving = Moving(layout, self.view, self.recovery, self.rounds.pinned)
        self.needed_elsewhere: Callable[[SiteId], bool] = lambda site: False
        self.ready: set[SiteId] = set()
        self._finished: set[SiteId] = set()
        self._more_since: dict[int, int] = {}
        self.proposed: Plan | None = None
        self.promised: set[SiteId] = set()
        self.settle_ms = settle_ms
        self.settling = 0
        self.collecting = False
        self.pace, self.ahead = Pace(), AHEAD
        self._numbers = plan.number
        self.wanted: list[PlanChangeRequested] = []
        self.comparison, self.ledger = Comparison(layout), Ledger(beginning.left_out)
        self.losses = Losses(layout)
        self.modes = ModesWanted(layout, self.view)
        self._actions: list[CoordinatorAction] = []

    def __repr__(self) -> str:
        return f"coordinator (plan {self.plan.number}, membership {self.membership.number}, {len(self.ready)} sites ready)"

    @property
    def plan(self) -> Plan:
        return self.view.plan

    @property
    def membership(self) -> Membership:
        return self.view.membership

    @property
    def sites(self) -> tuple[SiteId, ...]:
        """Sites that take part, ascending."""
        return self.view.membership.sites

    @property
    def running(self) -> bool:
        return self.started and not self.over

    def redundancy(self) -> int:
        """The least number of live replicas of any partition that has several, or of any if none has."""
        return redundancy_of(self.view)

    def protected(self) -> int:
        """Deaths that nothing would be lost of now, whichever sites they are of."""
        return self.view.protected(based=self.reviving.based())

    def vital(self, site: SiteId, silent: Collection[int] = ()) -> bool:
        """Whether something would be lost with this site, if the silent ones were gone too. What begins again from a base is not, as long
        as none of the others may be dead."""
        others = set(self.sites) - {site}
        based = bool(others) and others.isdisjoint(silent) and self.reviving.based(site)
        return self.view.vital(site, silent, spared=BASED if based else ())

    def outlives(self, site: SiteId) -> bool:
        """Whether the run goes on without this site: others have what it has, or it begins there again, or anew."""
        anew = [mode for mode in Mode if MODES[mode].base == "void"]
        return len(self.sites) > 1 and not self.view.vital(site, spared=[*anew, *(BASED if self.reviving.based(site) else ())])

    # -- plans

    def propose(self, event: PlanChangeRequested) -> None:
        self._propose_beyond(event.placement or self.recovery.cleared(), ())

    def _propose_beyond(
        self, placement: Placement, copies: tuple[Copy, ...], ranges: tuple[Ranges, ...] | None = None, modes: Modes | None = None
    ) -> None:
        """modes: other ones than before, which the placement is for."""
        ranges = self.plan.ranges if ranges is None else ranges
        settings = Settings(
            ranges, self.rounds.weights, self.replacing.version, self.rounds.keeps, self.arrivals.newcomers,
            self.plan.modes if modes is None else modes, self.plan.settings.ends,
        )  # fmt: skip
        self._propose_with(placement, copies, settings)

    def _propose_with(self, placement: Placement, copies: tuple[Copy, ...], settings: Settings) -> None:
        assert not self.under_way(), "a plan is proposed while another one, or its copies, are under way"
        self.ahead = self.pace.ahead
        self.propose_plan(Plan(self.next_number(), self.seen + self.ahead, placement, copies, settings))

    def _with_end(self, plan: Plan) -> Plan:
        """Where replicas read for themselves, a drained run ends where a plan says: in its first epoch, which nobody closes before he knows
        of it."""
        wanted = self.draining and self.by_content and not self.plan.settings.ends
        return plan.with_settings(ends=plan.effective) if wanted else plan

    def drain_sources(self) -> None:
        """No more rows are wanted of any source."""
        self.tell_all(DrainRequested())
        if self.by_content and not self.plan.settings.ends:
            self.wanted.append(PlanChangeRequested())
            if not self.under_way():
                self.propose(self.wanted.pop(0))

    def next_number(self) -> PlanNumber:
        self._numbers = PlanNumber(self._numbers + 1)
        return self._numbers

    def abort(self) -> None:
        """V1: a membership change aborts a pending plan. What a user asked for is proposed again."""
        if self.proposed is not None:
            self.tell_all(PlanAborted(self.proposed.number))
            self.moving.again(self.proposed.copies)
            if not self.proposed.copies and self.proposed.ranges == self.plan.ranges:
                self.wanted.insert(0, PlanChangeRequested())
            self.proposed = None

    def go_on(self) -> None:
        """What has waited for the last plan and its copies."""
        if not self.under_way() and not self.over and self.wanted and not self.view.lacks():
            self.propose(self.wanted.pop(0))
        self.recover()

    def under_way(self) -> bool:
        """A plan is proposed, or copies of the last one are not over."""
        return self.proposed is not None or bool(self.membership.joining or self.moving.unconfirmed)

    # -- what is missing, then what is wanted

    def recover(self) -> None:
        """C6: copy what has too few replicas, a bounded number of pieces at a time."""
        if not self.running or self.under_way():
            return
        if self.view.lacks() and not self.recovery.can_void():
            self._revive()
            return
        if (anew := self.recovery.anew()) is not None:
            self._propose_beyond(anew.placement, anew.copies)
            return
        if self.settling:
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

    def _revive(self) -> None:
        """B1: what nobody has any more begins again from its base, at once."""
        if not self.checkpointing.settled:
            return  # It is looked again when the journal has it: frames before it may be gone by then.
        if self.backing.active and not self.backing.known:
            return  # It is looked again when backups have said how far their images are (P4).
        if self.reviving.can():
            step = self.reviving.step()  # Bases are of the version, ranges and modes that there are: what else is wanted waits.
            self._propose_with(step.placement, step.copies, self.plan.settings)
        else:
            assert self.reviving.last is not None, "nothing is lost without a death"
            event, why = self.reviving.last
            self.end(self.deaths.lost(event, why, self.recovery.lost(), max(map(len, self.plan.placement[0])), self.seen))

    def _move(self) -> None:
        """Begin what is wanted. Lost replicas come first; then a plan that a death has aborted: perhaps nothing is to be copied."""
        if self.wanted:
            self.propose(self.wanted.pop(0))
            return
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
        elif self.replacing.wanted or self.arrivals.wanted or self.modes.wanted:
            self._propose_beyond(self.modes.placed(begun.placement), (), modes=self.modes.modes)
        elif self.rounds.moving and not self.collecting:
            self.collect()  # The round's moves are over.

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
        self.act(*self.repartitioning.answers())
        self.recover()

    def collect(self) -> None:
        if self.rounds.active:
            self.collecting = True
            self.act(Collect(self.rounds.collect_us))

    def waited(self, event: Waited) -> None:
        if event.pause is RunPause.DUST:
            self.settling -= 1
        else:
            self.recovery.waited(event.pause)
        self.recover()

    def more_to_finish(self, site: SiteId) -> None:
        """It has got replicas: that it had finished before says nothing any more."""
        self._finished.discard(site)
        self._more_since[site] = self.membership.number

    def give_up_move(self, move: Copy, why: str) -> None:
        text = f"a move to site {move.target} was given up: {why}"
        self.happened(Kind.MOVE_DROPPED, move.target, text, self.moving.over(move))

    # -- the end

    def note_finished(self, event: SiteSaid) -> None:
        assert isinstance(event.fact, PartFinished)
        if event.fact.membership < self._more_since.get(event.site, 0):
            return  # It has got more to finish since, and says so again.
        self._finished.add(event.site)
        self.end_if_finished()

    def end_if_finished(self) -> None:
        if self.over or not self._finished >= set(self.view.active()) or self.view.lacks():
            return
        self.exhausted = not self.draining  # All that the sources have is through, and not only what had been taken in.
        if self.journal is None:
            self.end(None)
        elif not self.journal.closing:
            self.journal.close()
            self.append_next()

    def stop(self, event: StopRequested) -> None:
        journal = self.journal
        drains = event.drain and (self.running or self.beginning.durable > 0)
        if event.willed and not drains and journal is not None and not (journal.leaving or journal.closing):
            journal.leaving = True  # Who stands by is to know that nobody has died.
            self.append_next()
            self.wake(STOP_MS, RunPause.STOP)
            return
        if not drains:
            self.end(None)
        elif journal is None or not journal.precise:  # What is cut anew is read anew, too, and by whoever goes on to its end.
            self.drain()
        elif not (journal.drains or journal.drained or journal.closing):
            journal.drains = True  # Who goes on is to know why some sources have ended.
            self.append_next()

    def drain(self) -> None:
        self.draining = True
        if self.running:  # Else something was taken in before, and is to come out: sites are told when all are ready.
            self.drain_sources()

    def stop_at_once(self, event: Waited) -> None:
        self.end(None)

    def ignore(self, event: CoordinatorEvent) -> None:
        """The rule's row says why."""

    # -- the journal

    def tell_durable(self, sites: Sequence[SiteId]) -> None:
        if self.journal is not None and self.journal.precise:
            self.act(*(Tell(site, Durable(self.journal.durable)) for site in sites))

    def append_next(self) -> None:
        """Append what has come, unless something is being appended."""
        assert self.journal is not None
        if (entry := self.journal.next()) is not None:
            self.act(Append(entry))

    def drop_checkpoint(self, why: str) -> None:
        """The one that is under way, if there is one. What waited behind it in the journal goes on."""
        actions = self.checkpointing.drop(why)
        self.act(*actions)
        if actions:
            self.append_next()

    # -- helpers

    def act(self, *actions: CoordinatorAction) -> None:
        self._actions += actions

    def propose_plan(self, plan: Plan) -> None:
        # What has been seen may be old news: a plan never acts from an earlier epoch than the one before it.
        least = max(self.repartitioning.done_after, self.beginning.first_of(self._with_end(plan), self.plan))
        plan = self._with_end(replace(plan, effective=max(plan.effective, least)))
        self.proposed, self.promised = plan, set()
        self.drop_checkpoint("a plan is proposed")
        self.tell_all(PlanProposed(plan))

    def change_membership(self, **changes: Any) -> None:
        """The next membership, which differs in these fields."""
        self.announce(replace(self.membership, number=Term(self.membership.number + 1), **changes))

    def announce(self, membership: Membership) -> None:
        assert membership.number >= self.membership.number and {copy.target for copy in membership.joining} <= set(membership.sites)
        self.view.change(membership)
        self.tell_all(MembershipChanged(membership))
        if self.started:
            self.act(*self.backing.settle())

    def tell_all(self, message: Message) -> None:
        self.act(*(Tell(site, message) for site in self.sites))

    def wake(self, after_ms: float, pause: Pause) -> None:
        self.act(Wake(after_ms, pause))

    def happened(self, kind: Kind, site: int, text: str, details: Mapping[str, Any] | None = None) -> None:
        """For whoever watches: see `Happened`."""
        self.act(Happened(kind, site, text, details or {}))

    def tell_spells(self, spells: Mapping[int, Spell]) -> None:
        """Rows of sources are left out no more. spells: by ingress segment."""
        for segment, spell in spells.items():
            source, seconds = self.layout.segments[segment].source or "", round((spell.ended_us - spell.begun_us) / 1e6, 3)
            text = f"{'the run is over' if self.over else 'nothing more is left out'}: {spell.dropped:,} rows of source {source!r} were"
            text += f", in epochs {spell.first} to {spell.last}, {seconds:.1f} s"
            details = {"source": source, "epoch": spell.first, "through": spell.last, "rows": spell.dropped, "seconds": seconds}
            self.happened(Kind.SHEDDING_ENDED, NOBODY, text, details)

    def end(self, error: EvenflowError | None) -> None:
        assert not self.over, f"the run is over, and ends again with {error}"
        self.over = True
        self.tell_spells(self.ledger.ended_all())
        self.act(EndRun(error))
