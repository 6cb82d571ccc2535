"""Guards of the coordinator's rules: when a row of the table is enabled. Each reads the run and the event, and changes nothing."""

from __future__ import annotations

from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import CoordinatorEvent, PlanChangeRequested, SiteLost, SiteReady, SiteSaid
from evenflow.site.facts import (
    CopyFailed,
    CopyLive,
    Digests,
    DiskTrouble,
    PartFailed,
    PartFinished,
    PlanMissing,
    Promised,
    Refused,
    TookOver,
    UserCodeSlow,
)


def not_over(run: RunEffects, event: CoordinatorEvent) -> bool:
    return not run.over


def is_over(run: RunEffects, event: CoordinatorEvent) -> bool:
    return run.over


def at_the_start(run: RunEffects, event: SiteReady) -> bool:
    return not run.over and not run.started


def newcomer(run: RunEffects, event: SiteReady) -> bool:
    return run.running and event.site not in run.sites


def known_site(run: RunEffects, event: SiteReady) -> bool:
    return run.running and event.site in run.sites


def member_dies(run: RunEffects, event: SiteLost) -> bool:
    return run.running and event.site in run.sites


def dies_before_start(run: RunEffects, event: SiteLost) -> bool:
    return not run.over and not run.started and event.site in run.sites


def stranger_dies(run: RunEffects, event: SiteLost) -> bool:
    return not run.over and event.site not in run.sites


def can_propose(run: RunEffects, event: PlanChangeRequested) -> bool:
    return run.running and not run.under_way()


def running(run: RunEffects, event: CoordinatorEvent) -> bool:
    return run.running


def not_running(run: RunEffects, event: CoordinatorEvent) -> bool:
    return not run.running


def must_wait(run: RunEffects, event: PlanChangeRequested) -> bool:
    return not run.over and not can_propose(run, event)


def is_member(run: RunEffects, event: SiteSaid) -> bool:
    return not run.over and event.site in run.sites


def says_stranger(run: RunEffects, event: SiteSaid) -> bool:
    return not run.over and event.site not in run.sites


def answers(run: RunEffects, event: SiteSaid) -> bool:
    fact = event.fact
    return isinstance(fact, Promised | Refused) and run.proposed is not None and fact.number == run.proposed.number


def promise_counts(run: RunEffects, event: SiteSaid) -> bool:
    return is_member(run, event) and isinstance(event.fact, Promised) and answers(run, event)


def refusal_counts(run: RunEffects, event: SiteSaid) -> bool:
    return is_member(run, event) and isinstance(event.fact, Refused) and answers(run, event)


def answer_is_stale(run: RunEffects, event: SiteSaid) -> bool:
    return is_member(run, event) and isinstance(event.fact, Promised | Refused) and not answers(run, event)


def asks_plan(run: RunEffects, event: SiteSaid) -> bool:
    return is_member(run, event) and isinstance(event.fact, PlanMissing)


def under_way(run: RunEffects, event: SiteSaid) -> bool:
    fact = event.fact
    return isinstance(fact, CopyLive | CopyFailed) and any(copy.number == fact.number for copy in run.membership.joining)


def is_live(run: RunEffects, event: SiteSaid) -> bool:
    return is_member(run, event) and isinstance(event.fact, CopyLive) and under_way(run, event)


def copy_failed(run: RunEffects, event: SiteSaid) -> bool:
    return is_member(run, event) and isinstance(event.fact, CopyFailed) and under_way(run, event)


def took_over(run: RunEffects, event: SiteSaid) -> bool:
    return is_member(run, event) and isinstance(event.fact, TookOver) and event.fact.number in run.moving.unconfirmed


def copy_is_off(run: RunEffects, event: SiteSaid) -> bool:
    if not is_member(run, event) or not isinstance(event.fact, CopyLive | CopyFailed | TookOver):
        return False
    return not took_over(run, event) and not under_way(run, event)


def disk_trouble(run: RunEffects, event: SiteSaid) -> bool:
    return is_member(run, event) and isinstance(event.fact, DiskTrouble)


def user_code_slow(run: RunEffects, event: SiteSaid) -> bool:
    return is_member(run, event) and isinstance(event.fact, UserCodeSlow)


def digests(run: RunEffects, event: SiteSaid) -> bool:
    return is_member(run, event) and isinstance(event.fact, Digests)


def has_finished(run: RunEffects, event: SiteSaid) -> bool:
    return is_member(run, event) and isinstance(event.fact, PartFinished)


def has_failed(run: RunEffects, event: SiteSaid) -> bool:
    return is_member(run, event) and isinstance(event.fact, PartFailed)
