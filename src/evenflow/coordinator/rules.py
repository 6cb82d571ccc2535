"""The coordinator's rules: what each event does to a run, one row per event and guard, named as in the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from evenflow.coordinator import copies, guards
from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import (
    Collected,
    DrainSite,
    EpochSeen,
    MovesRequested,
    Pin,
    PlanChangeRequested,
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
from evenflow.coordinator.failure import note_slow, note_trouble
from evenflow.coordinator.rounds import change_spares, pin
from evenflow.exchange.rules import Rule, RuleTable, always


def _rules() -> Iterable[Rule[RunEffects]]:
    yield Rule("V1", SiteReady, guards.at_the_start, RunEffects.note_ready, "epochs open when every site can reach its peers")
    yield Rule("V1", SiteReady, guards.newcomer, RunEffects.welcome, "a site that comes later is a spare, and gets lost replicas")
    yield Rule("V1", SiteReady, guards.known_site, RunEffects.ignore, "it is there already")
    yield Rule("V1", SiteReady, guards.is_over, RunEffects.ignore, "the run has ended meanwhile")
    yield Rule("V2", EpochSeen, always, RunEffects.note_epoch, "a plan is proposed beyond every epoch seen")
    yield Rule("V2", PlanChangeRequested, guards.can_propose, RunEffects.propose, "proposed at max seen + k")
    yield Rule("V2", PlanChangeRequested, guards.must_wait, RunEffects.want_plan, "one plan at a time; the request waits")
    yield Rule("V2", PlanChangeRequested, guards.is_over, RunEffects.ignore, "a run that is over needs no plan")
    yield Rule("V2", SiteSaid, guards.promise_counts, RunEffects.note_promise, "commit when all have promised")
    yield Rule("V2", SiteSaid, guards.refusal_counts, RunEffects.propose_later, "a site is beyond that epoch and names a later one")
    yield Rule("V2", SiteSaid, guards.answer_is_stale, RunEffects.ignore, "an answer to a proposal that is off")
    yield Rule("V2", SiteSaid, guards.asks_plan, RunEffects.send_plan, "a site met a frame of a plan that it does not have")
    yield Rule("C3", SiteSaid, guards.is_live, copies.note_live, "copied partitions are level: they count as replicas from now on")
    yield Rule("C3", SiteSaid, guards.took_over, copies.retire, "the target of a move knows that it counts: who it replaces goes")
    yield Rule("C4", SiteSaid, guards.copy_failed, copies.drop_copy, "the copy is forgotten and begins again")
    yield Rule("C4", SiteSaid, guards.copy_is_off, RunEffects.ignore, "a copy that was dropped meanwhile")
    yield Rule("M1", SiteSaid, guards.disk_trouble, note_trouble, "state stays in memory beyond the budget: a person should know")
    yield Rule("V4", SiteSaid, guards.user_code_slow, note_slow, "user code that does not return is not silence: a person should know")
    yield Rule("E3", SiteSaid, guards.digests, RunEffects.compare, "replicas that disagree stop the run")
    yield Rule("E6", SiteSaid, guards.has_finished, RunEffects.note_finished, "the run is over when every live replica's part is")
    yield Rule("E3", SiteSaid, guards.has_failed, RunEffects.fail, "a failing box ends the run")
    yield Rule("V3", SiteSaid, guards.says_stranger, RunEffects.ignore, "a site that was declared dead, or that has not joined yet")
    yield Rule("V1", SiteSaid, guards.is_over, RunEffects.ignore, "the run has ended meanwhile")
    yield Rule(
        "V1",
        SiteLost,
        guards.member_dies,
        RunEffects.lose_site,
        "the dead are dropped; the run ends if a partition has no live replica",
    )
    yield Rule("V1", SiteLost, guards.dies_before_start, RunEffects.lose_before_start, "nothing has run yet")
    yield Rule("V1", SiteLost, guards.stranger_dies, RunEffects.forget_stranger, "it had no part in the run")
    yield Rule("V1", SiteLost, guards.is_over, RunEffects.ignore, "the run has ended meanwhile")
    yield Rule(
        "C6",
        Waited,
        guards.not_over,
        RunEffects.waited,
        "the dust of a death has settled, or two sites may try again",
    )
    yield Rule("C6", Waited, guards.is_over, RunEffects.ignore, "the run has ended meanwhile")
    yield Rule("C3", MovesRequested, guards.running, RunEffects.want_moves, "when nothing is missing and no copy is under way")
    yield Rule("C3", MovesRequested, guards.not_running, RunEffects.ignore, "there is nothing to move yet, or any more")
    yield Rule("C3", DrainSite, guards.running, RunEffects.drain_site, "everything moves away from the site, a few partitions at a time")
    yield Rule("C3", DrainSite, guards.not_running, RunEffects.ignore, "there is nothing to move yet, or any more")
    yield Rule("E1", RepartitionRequested, guards.running, RunEffects.want_partitions, "when nothing is missing and no copy is under way")
    yield Rule("E1", RepartitionRequested, guards.not_running, RunEffects.ignore, "there is nothing to divide yet, or any more")
    yield Rule("V2", ReplaceRequested, guards.running, RunEffects.want_version, "with the next plan, when no copy is under way")
    yield Rule("V2", ReplaceRequested, guards.not_running, RunEffects.ignore, "there is nothing to replace yet, or any more")
    yield Rule("C6", Collected, guards.running, RunEffects.balance, "a round: the policy proposes, unless recovery comes first")
    yield Rule("C6", Collected, guards.not_running, RunEffects.ignore, "the run has ended meanwhile")
    yield Rule("C6", RebalanceRequested, guards.running, RunEffects.rebalance, "one round, because somebody wants it")
    yield Rule("C6", RebalanceRequested, guards.not_running, RunEffects.ignore, "there is nothing to move yet, or any more")
    yield Rule("C6", Pin, always, pin, "no policy moves what is pinned")
    yield Rule("C6", SparesChanged, always, change_spares, "no policy gives anything to a spare")
    yield Rule("O1", RunBroken, guards.not_over, RunEffects.break_run, "a sink or an ingest job failed for good")
    yield Rule("O1", RunBroken, guards.is_over, RunEffects.ignore, "the run has ended meanwhile")
    yield Rule("E6", StopRequested, guards.not_over, RunEffects.stop, "at once, or after what has been taken in")
    yield Rule("E6", StopRequested, guards.is_over, RunEffects.ignore, "it has stopped already")


RULES: Final[RuleTable[RunEffects]] = RuleTable(_rules())
