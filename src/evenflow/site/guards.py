"""Guards of the site's rules: when a row of the table is enabled. Each reads the part and the event, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evenflow.exchange.rules import otherwise
from evenflow.site.capturing import CheckpointOrders
from evenflow.site.events import (
    BatchDone,
    Checkpoint,
    Durable,
    Event,
    Heard,
    LinkDown,
    LinkUp,
    MembershipChanged,
    PlanCommitted,
    PlanProposed,
    RowsArrived,
    SourceEnded,
    TimerFired,
    WorkDone,
)
from evenflow.site.facts import CheckpointLate, CheckpointUnable
from evenflow.site.given import EpochsGiven
from evenflow.site.ground import Ground
from evenflow.site.kept_rows import RowsRead, RowsStored, RowsUnread
from evenflow.site.leading import newest_term

Guard = Callable[[Any, Any], bool]


def is_running(part: Ground, event: Event) -> bool:
    return not part.failed


def has_failed(part: Ground, event: Event) -> bool:
    return part.failed


def leads(part: Ground, event: RowsArrived | BatchDone | SourceEnded | EpochsGiven | RowsStored | RowsRead | RowsUnread) -> bool:
    return not part.failed and (event.segment, event.partition) in part.ingress.queues


def wants_rows(part: Ground, event: RowsArrived | BatchDone) -> bool:
    return leads(part, event) and not part.ingress.queues[event.segment, event.partition].ended


def wants_none(part: Ground, event: RowsArrived | BatchDone) -> bool:
    return leads(part, event) and part.ingress.queues[event.segment, event.partition].ended


def in_time(part: Ground, event: PlanProposed) -> bool:
    return part.epoch_known < event.plan.effective


def is_fenced(part: Ground, event: Heard) -> bool:
    return part.view.is_dead(event.peer)


def understood(part: Ground, event: Heard) -> bool:
    """It is of a plan, a term and a peer that are known here, and nothing of this peer is being held (its order must be kept)."""
    if event.peer in part.held or part.view.is_new(event.peer):
        return False
    newest, section = part.view.plan.number, event.section
    for mark in section.marks:
        if mark.plan > newest:
            return False
    for bundle in section.bundles:
        if bundle.plan > newest:
            return False
    said = section.records or section.held or section.settled
    return not said or newest_term(section) <= part.view.membership.number


def can_be_heard(part: Ground, event: Heard) -> bool:
    return not part.view.is_dead(event.peer) and understood(part, event)


def peer_lives(part: Ground, event: LinkUp | LinkDown) -> bool:
    return not part.view.is_dead(event.peer)


def is_journal_timer(part: Ground, event: TimerFired) -> bool:
    return event.name == "journal"


def is_capture_timer(part: Ground, event: TimerFired) -> bool:
    return event.name == "capture"


def newer_durable(part: Ground, event: Durable) -> bool:
    return event.epoch > part.durable


def newer_membership(part: Ground, event: MembershipChanged) -> bool:
    return event.membership.number > part.view.membership.number


def new_plan(part: Ground, event: PlanCommitted) -> bool:
    return event.plan.number > part.view.plan.number


def can_capture(part: CheckpointOrders, event: Checkpoint) -> bool:
    return not part.failed and part.capturing.obstacle(event) is None


def is_beyond(part: CheckpointOrders, event: Checkpoint) -> bool:
    return not part.failed and isinstance(part.capturing.obstacle(event), CheckpointLate)


def lacks_state(part: CheckpointOrders, event: Checkpoint) -> bool:
    return not part.failed and isinstance(part.capturing.obstacle(event), CheckpointUnable)


def went_well(part: Ground, event: WorkDone) -> bool:
    return not part.failed and event.outcome.error is None


def went_wrong(part: Ground, event: WorkDone) -> bool:
    return not part.failed and event.outcome.error is not None


# ------------------------------------------------------------ judges (see `exchange.rules`): events of every epoch, in one look


def of_heard(part: Ground, event: Heard) -> Guard:
    peer, view = event.peer, part.view
    if peer in view.membership.sites:
        if part.held and peer in part.held:
            return otherwise
    elif peer in view.known:
        return is_fenced
    return can_be_heard if understood(part, event) else otherwise


def of_work(part: Ground, event: WorkDone) -> Guard:
    if part.failed:
        return otherwise
    return went_well if event.outcome.error is None else went_wrong


def of_rows(part: Ground, event: RowsArrived) -> Guard:
    if part.failed:
        return has_failed
    queue = part.ingress.queues.get((event.segment, event.partition))
    if queue is None:
        return otherwise
    return wants_none if queue.ended else wants_rows


def of_timer(part: Ground, event: TimerFired) -> Guard:
    if event.name == "capture":
        return is_capture_timer
    return is_journal_timer if event.name == "journal" else otherwise
