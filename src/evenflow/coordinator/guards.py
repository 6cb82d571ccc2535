"""Guards of the coordinator's rules: when a row of the table is enabled. Each reads the machine and the event, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenflow.coordinator.events import CoordinatorEvent, PlanChangeRequested, SiteLost, SiteReady, SiteSaid
from evenflow.site.events import (
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

if TYPE_CHECKING:
    from evenflow.coordinator.machine import RunMachine


def not_over(machine: RunMachine, event: CoordinatorEvent) -> bool:
    return not machine.over


def is_over(machine: RunMachine, event: CoordinatorEvent) -> bool:
    return machine.over


def at_the_start(machine: RunMachine, event: SiteReady) -> bool:
    return not machine.over and not machine.started


def newcomer(machine: RunMachine, event: SiteReady) -> bool:
    return machine.running and event.site not in machine.sites


def known_site(machine: RunMachine, event: SiteReady) -> bool:
    return machine.running and event.site in machine.sites


def member_dies(machine: RunMachine, event: SiteLost) -> bool:
    return machine.running and event.site in machine.sites


def dies_before_start(machine: RunMachine, event: SiteLost) -> bool:
    return not machine.over and not machine.started and event.site in machine.sites


def stranger_dies(machine: RunMachine, event: SiteLost) -> bool:
    return not machine.over and event.site not in machine.sites


def can_propose(machine: RunMachine, event: PlanChangeRequested) -> bool:
    return machine.running and not machine.under_way()


def running(machine: RunMachine, event: CoordinatorEvent) -> bool:
    return machine.running


def not_running(machine: RunMachine, event: CoordinatorEvent) -> bool:
    return not machine.running


def must_wait(machine: RunMachine, event: PlanChangeRequested) -> bool:
    return not machine.over and not can_propose(machine, event)


def is_member(machine: RunMachine, event: SiteSaid) -> bool:
    return not machine.over and event.site in machine.sites


def says_stranger(machine: RunMachine, event: SiteSaid) -> bool:
    return not machine.over and event.site not in machine.sites


def answers(machine: RunMachine, event: SiteSaid) -> bool:
    fact = event.fact
    return isinstance(fact, Promised | Refused) and machine.proposed is not None and fact.number == machine.proposed.number


def promise_counts(machine: RunMachine, event: SiteSaid) -> bool:
    return is_member(machine, event) and isinstance(event.fact, Promised) and answers(machine, event)


def refusal_counts(machine: RunMachine, event: SiteSaid) -> bool:
    return is_member(machine, event) and isinstance(event.fact, Refused) and answers(machine, event)


def answer_is_stale(machine: RunMachine, event: SiteSaid) -> bool:
    return is_member(machine, event) and isinstance(event.fact, Promised | Refused) and not answers(machine, event)


def asks_plan(machine: RunMachine, event: SiteSaid) -> bool:
    return is_member(machine, event) and isinstance(event.fact, PlanMissing)


def under_way(machine: RunMachine, event: SiteSaid) -> bool:
    fact = event.fact
    return isinstance(fact, CopyLive | CopyFailed) and any(copy.number == fact.number for copy in machine.membership.joining)


def is_live(machine: RunMachine, event: SiteSaid) -> bool:
    return is_member(machine, event) and isinstance(event.fact, CopyLive) and under_way(machine, event)


def copy_failed(machine: RunMachine, event: SiteSaid) -> bool:
    return is_member(machine, event) and isinstance(event.fact, CopyFailed) and under_way(machine, event)


def took_over(machine: RunMachine, event: SiteSaid) -> bool:
    return is_member(machine, event) and isinstance(event.fact, TookOver) and event.fact.number in machine.moving.unconfirmed


def copy_is_off(machine: RunMachine, event: SiteSaid) -> bool:
    if not is_member(machine, event) or not isinstance(event.fact, CopyLive | CopyFailed | TookOver):
        return False
    return not took_over(machine, event) and not under_way(machine, event)


def disk_trouble(machine: RunMachine, event: SiteSaid) -> bool:
    return is_member(machine, event) and isinstance(event.fact, DiskTrouble)


def user_code_slow(machine: RunMachine, event: SiteSaid) -> bool:
    return is_member(machine, event) and isinstance(event.fact, UserCodeSlow)


def digests(machine: RunMachine, event: SiteSaid) -> bool:
    return is_member(machine, event) and isinstance(event.fact, Digests)


def has_finished(machine: RunMachine, event: SiteSaid) -> bool:
    return is_member(machine, event) and isinstance(event.fact, PartFinished)


def has_failed(machine: RunMachine, event: SiteSaid) -> bool:
    return is_member(machine, event) and isinstance(event.fact, PartFailed)
