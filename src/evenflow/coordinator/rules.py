"""The coordinator's rules: what each event does to a run, one row per event and guard, named as in the protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from evenflow.coordinator import appending, balancing, bases, checkpoints, copies, guards, images, losing, members, plans
from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import (
    Appended,
    AppendRefused,
    AppendUnknown,
    AvailabilityRequested,
    CheckpointRequested,
    Collected,
    CoordinatorEvent,
    DrainSite,
    EntryRead,
    EpochSeen,
    LastWithdrawn,
    MovesRequested,
    NewcomersSeen,
    Pin,
    PlanChangeRequested,
    ReadFailed,
    RebalanceRequested,
    RepartitionRequested,
    ReplaceRequested,
    RunBroken,
    SiteLost,
    SiteReady,
    SiteSaid,
    SparesChanged,
    StopRequested,
    Waited,
)
from evenflow.coordinator.failure import break_run, compare, fail, lose_disk, note_slow, note_trouble
from evenflow.coordinator.rounds import change_spares, pin
from evenflow.coordinator.shed import note_calm, note_shed, note_thinned
from evenflow.exchange.rules import Rule, RuleTable, always, otherwise
from evenflow.site.facts import (
    ArcThinned,
    CheckpointLate,
    CheckpointStored,
    CheckpointUnable,
    CopyFailed,
    CopyLive,
    Depends,
    Digests,
    DiskLost,
    DiskTrouble,
    Fact,
    Imaged,
    Lacking,
    Logged,
    NoRoom,
    PartFailed,
    PartFinished,
    Pasted,
    PlanMissing,
    Promised,
    Refused,
    RowsShed,
    SourcesStand,
    StateUnreadable,
    TookOver,
    Unread,
    UserCodeSlow,
    Voided,
)
from evenflow.site.given import SourceLeft


def said(
    id: str, fact: type[Fact], guard: Callable[[RunEffects, SiteSaid], bool], effect: Callable[[RunEffects, SiteSaid], None], why: str
) -> Rule[RunEffects]:
    """A row about one kind of what sites say."""
    return Rule(id, SiteSaid, guard, effect, why, of=fact)


def _kind(event: CoordinatorEvent) -> type:
    """Rows for what a site says are found by the fact's class."""
    return type(event.fact) if type(event) is SiteSaid else type(event)


def _rules() -> Iterable[Rule[RunEffects]]:
    yield Rule("V1", SiteReady, guards.at_the_start, members.note_ready, "epochs open when every site can reach its peers")
    yield Rule("V1", SiteReady, guards.newcomer, members.welcome, "a site that comes later is a spare, and gets lost replicas")
    yield Rule("V1", SiteReady, guards.is_over, RunEffects.ignore, "the run has ended meanwhile")
    yield Rule("V1", SiteReady, otherwise, RunEffects.ignore, "it is there already")
    yield Rule("V2", EpochSeen, always, note_calm, "a plan is proposed beyond every epoch seen; shedding is over after a calm")
    yield Rule("V2", PlanChangeRequested, guards.can_propose, RunEffects.propose, "proposed at max seen + k")
    yield Rule("V2", PlanChangeRequested, guards.is_over, RunEffects.ignore, "a run that is over needs no plan")
    yield Rule("V2", PlanChangeRequested, otherwise, plans.want_plan, "one plan at a time; the request waits")
    yield Rule("V3", SiteSaid, guards.says_stranger, RunEffects.ignore, "a site that was declared dead, or that has not joined yet")
    yield Rule("V1", SiteSaid, guards.is_over, RunEffects.ignore, "the run has ended meanwhile")
    yield said("V2", Promised, guards.answers, plans.note_promise, "commit when all have promised")
    yield said("V2", Promised, otherwise, RunEffects.ignore, "a promise for a proposal that is off")
    yield said("V2", Refused, guards.answers, plans.propose_later, "a site is beyond that epoch and names a later one")
    yield said("V2", Refused, otherwise, RunEffects.ignore, "a refusal of a proposal that is off")
    yield said("V2", PlanMissing, guards.is_member, plans.send_plan, "a site met a frame of a plan that it does not have")
    yield said("C3", CopyLive, guards.under_way, copies.note_live, "copied partitions are level: they count as replicas from now on")
    yield said("C4", CopyLive, otherwise, RunEffects.ignore, "a copy that was dropped meanwhile")
    yield said("C3", TookOver, guards.took_over, copies.retire, "the target of a move knows that it counts: who it replaces goes")
    yield said("C3", TookOver, otherwise, RunEffects.ignore, "a copy that replaces nobody, or no longer does")
    yield said("C3", SourceLeft, guards.is_member, copies.pass_on, "who leads a moved partition reads what its former leader had taken in")
    yield said("C4", CopyFailed, guards.under_way, copies.drop_copy, "the copy is forgotten and begins again")
    yield said("C4", CopyFailed, otherwise, RunEffects.ignore, "a copy that was dropped meanwhile")
    yield said("B3", Lacking, guards.under_way, copies.judge_lacking, "a run does not wait for what nobody has")
    yield said("B3", Lacking, otherwise, RunEffects.ignore, "a copy that was dropped meanwhile")
    yield said("M1", DiskTrouble, guards.is_member, note_trouble, "state stays in memory beyond the budget: a person should know")
    yield said("M1", DiskLost, guards.is_member, lose_disk, "the site ends if all runs outlive it, else this one does")
    yield said("V4", UserCodeSlow, guards.is_member, note_slow, "user code that does not return is not silence: a person should know")
    yield said("E3", Digests, guards.is_member, compare, "replicas that disagree stop the run")
    yield said("D5", RowsShed, guards.is_member, note_shed, "what was left out is told by every replica, and counts once")
    yield said("D5", ArcThinned, guards.is_member, note_thinned, "what the plan left out is told by every replica, and counts once")
    yield said("B2", Depends, guards.is_member, bases.note, "from where on its producers must keep what it follows from")
    yield said("B4", Voided, guards.is_member, losing.note, "what was read as empty is counted")
    yield said("B4", SourcesStand, guards.is_member, losing.hear, "a sink has what was read there: nobody reads it again")
    yield said("B4", Unread, guards.is_member, losing.count, "rows that nobody has received are counted")
    yield said("J2", Logged, guards.is_member, appending.note_cuts, "what all live members hold goes into the next entry")
    yield said("E6", PartFinished, guards.is_member, RunEffects.note_finished, "the run is over when every live replica's part is")
    yield said("K5", CheckpointStored, guards.owes_checkpoint, checkpoints.take, "whole when all have, and its epoch is durable")
    yield said("K6", CheckpointStored, otherwise, RunEffects.ignore, "one that was dropped: what was stored of it is garbage")
    yield said("K6", CheckpointLate, guards.owes_checkpoint, checkpoints.order_later, "ordered anew, further ahead")
    yield said("K6", CheckpointLate, otherwise, RunEffects.ignore, "one that was dropped already")
    yield said("K6", CheckpointUnable, guards.owes_checkpoint, checkpoints.drop_unable, "the run goes on without this one")
    yield said("K6", CheckpointUnable, otherwise, RunEffects.ignore, "one that was dropped already")
    yield said("P3", Pasted, guards.is_member, images.note_pasted, "frames that nobody asks for again may go, everywhere")
    yield said("P4", Imaged, guards.is_member, images.note_imaged, "what is lost begins again when all of its backups have said so")
    yield said("P1", NoRoom, guards.is_member, images.back_up_elsewhere, "another site is asked")
    yield said("K9", StateUnreadable, guards.is_member, checkpoints.end_unreadable, "whoever has begun the run may try an older checkpoint")
    yield said("E3", PartFailed, guards.is_member, fail, "a failing box ends the run")
    yield Rule(
        "V1",
        SiteLost,
        guards.member_dies,
        members.lose_site,
        "the dead are dropped; the run ends if a partition has no live replica",
    )
    yield Rule("J3", SiteLost, guards.dies_at_the_end, RunEffects.ignore, "sinks have everything; only the journal's last word is awaited")
    yield Rule("V1", SiteLost, guards.dies_before_start, members.lose_before_start, "nothing has run yet")
    yield Rule("V1", SiteLost, guards.stranger_dies, members.forget_stranger, "it had no part in the run")
    yield Rule("V1", SiteLost, otherwise, RunEffects.ignore, "the run has ended meanwhile")
    yield Rule("J4", Waited, guards.store_waits, appending.look_again, "what has become of the entry is read")
    yield Rule("K1", Waited, guards.checkpoint_due, checkpoints.begin, "every partition is assigned to one live replica")
    yield Rule("K1", Waited, guards.checkpoint_must_wait, checkpoints.begin_later, "one at a time; not while partitions are on their way")
    yield Rule("K6", Waited, guards.checkpoint_endless, checkpoints.lose_patience, "a store so slow would only fall behind further")
    yield Rule("K6", Waited, guards.checkpoint_over, RunEffects.ignore, "it is whole, or was dropped")
    yield Rule(
        "C6",
        Waited,
        guards.waits,
        RunEffects.waited,
        "the dust of a death has settled, or two sites may try again",
    )
    yield Rule("C6", Waited, otherwise, RunEffects.ignore, "the run has ended meanwhile")
    yield Rule("C3", MovesRequested, guards.running, balancing.want_moves, "when nothing is missing and no copy is under way")
    yield Rule("C3", MovesRequested, otherwise, RunEffects.ignore, "there is nothing to move yet, or any more")
    yield Rule("C3", DrainSite, guards.running, balancing.drain_site, "everything moves away from the site, a few partitions at a time")
    yield Rule("C3", DrainSite, otherwise, RunEffects.ignore, "there is nothing to move yet, or any more")
    yield Rule("E1", RepartitionRequested, guards.running, balancing.want_partitions, "when nothing is missing and no copy is under way")
    yield Rule("E1", RepartitionRequested, otherwise, RunEffects.ignore, "there is nothing to divide yet, or any more")
    yield Rule("V2", ReplaceRequested, guards.running, balancing.want_version, "with the next plan, when no copy is under way")
    yield Rule("V2", ReplaceRequested, otherwise, RunEffects.ignore, "there is nothing to replace yet, or any more")
    yield Rule("M2", AvailabilityRequested, guards.running, balancing.want_modes, "with the next plan, when no copy is under way")
    yield Rule("M2", AvailabilityRequested, otherwise, RunEffects.ignore, "there is nothing to protect yet, or any more")
    yield Rule("V2", NewcomersSeen, guards.running, balancing.want_newcomers, "with the next plan: the order is part of it")
    yield Rule("V2", NewcomersSeen, otherwise, RunEffects.ignore, "nobody reads yet, or any more; they are seen again")
    yield Rule("C6", Collected, guards.running, balancing.balance, "a round: the policy proposes, unless recovery comes first")
    yield Rule("C6", Collected, otherwise, RunEffects.ignore, "the run has ended meanwhile")
    yield Rule("C6", RebalanceRequested, guards.running, balancing.rebalance, "one round, because somebody wants it")
    yield Rule("C6", RebalanceRequested, otherwise, RunEffects.ignore, "there is nothing to move yet, or any more")
    yield Rule("C6", Pin, always, pin, "no policy moves what is pinned")
    yield Rule("C6", SparesChanged, always, change_spares, "no policy gives anything to a spare")
    yield Rule("K1", CheckpointRequested, guards.running, checkpoints.ask, "somebody wants one now")
    yield Rule("K1", CheckpointRequested, otherwise, RunEffects.ignore, "there is no state yet, or no run any more")
    yield Rule("K1", LastWithdrawn, guards.running, checkpoints.withdraw, "the run is not stopped after all: what was held goes on")
    yield Rule("K1", LastWithdrawn, otherwise, RunEffects.ignore, "there is no run any more")
    yield Rule("J3", Appended, guards.awaited, appending.go_on, "what is durable now goes to the ends; the next entry follows")
    yield Rule("J4", AppendRefused, guards.awaited, appending.read_back, "whose is it? An earlier try may have been done")
    yield Rule("J4", AppendUnknown, guards.awaited, appending.read_later, "it may be there, now or later: it is read, after a while")
    yield Rule("J4", EntryRead, guards.nothing_there, appending.append_again, "the same entry: either try may be done")
    yield Rule("J4", EntryRead, guards.own_there, appending.believe, "it is in")
    yield Rule("J4", EntryRead, guards.foreign_there, appending.give_way, "another driver has taken over: this run ends, `Fenced`")
    yield Rule("J4", ReadFailed, guards.awaited, appending.read_again, "it is read again, after a while")
    for answer in (Appended, AppendRefused, AppendUnknown, EntryRead, ReadFailed):
        yield Rule("J4", answer, guards.is_over, RunEffects.ignore, "the run has ended meanwhile")
    yield Rule("O1", RunBroken, guards.matters, break_run, "a sink or an ingest job failed for good")
    yield Rule(
        "O1",
        RunBroken,
        otherwise,
        RunEffects.ignore,
        "the run has ended meanwhile, or sinks have everything and its journal is being told so",
    )
    yield Rule("E6", StopRequested, guards.not_over, RunEffects.stop, "when the journal says so, or after what has been taken in")
    yield Rule("E6", Waited, guards.stop_waits, RunEffects.stop_at_once, "a store that does not answer keeps no run from being stopped")
    yield Rule("E6", StopRequested, otherwise, RunEffects.ignore, "it has stopped already")


RULES: Final[RuleTable[RunEffects]] = RuleTable(_rules(), _kind)
