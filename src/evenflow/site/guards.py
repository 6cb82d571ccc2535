"""Guards of the site's rules: when a row of the table is enabled. Each reads the part and the event, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenflow.site.events import Event, Heard, PlanCommitted, PlanProposed, WorkDone

if TYPE_CHECKING:
    from evenflow.site.part import Part


def is_running(part: Part, event: Event) -> bool:
    return not part.failed


def has_failed(part: Part, event: Event) -> bool:
    return part.failed


def in_time(part: Part, event: PlanProposed) -> bool:
    return not part.ingress.hosted or part.closed < event.plan.effective


def too_late(part: Part, event: PlanProposed) -> bool:
    return not in_time(part, event)


def plans_known(part: Part, event: Heard) -> bool:
    """Everything is of a plan that is known here, and nothing of this peer is being held (its order must be kept)."""
    newest, section = part.plans[-1].number, event.section
    if event.peer in part._held:
        return False
    for mark in section.marks:
        if mark.plan > newest:
            return False
    for bundle in section.bundles:
        if bundle.plan > newest:
            return False
    return True


def plan_unknown(part: Part, event: Heard) -> bool:
    return not plans_known(part, event)


def new_plan(part: Part, event: PlanCommitted) -> bool:
    return event.plan.number > part.plans[-1].number


def old_plan(part: Part, event: PlanCommitted) -> bool:
    return not new_plan(part, event)


def went_well(part: Part, event: WorkDone) -> bool:
    return not part.failed and event.outcome.error is None


def went_wrong(part: Part, event: WorkDone) -> bool:
    return not part.failed and event.outcome.error is not None
