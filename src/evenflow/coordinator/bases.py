"""What states follow from, as a run's machine is told of it by sites (availability.md, B2): effects of its rules."""

from __future__ import annotations

from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import SiteSaid
from evenflow.site.bases import BaseMoved
from evenflow.site.facts import Depends


def note(run: RunEffects, event: SiteSaid) -> None:
    """When all have come further, everybody hears of it. Not while something begins again, or is about to: its base stays what it is."""
    assert isinstance(event.fact, Depends)
    moved = run.reviving.hear(event.site, event.fact, calm=not run.under_way() and not run.view.lacks())
    if moved:
        run.tell_all(BaseMoved(event.fact.segment, run.reviving.base_of(event.fact.segment)))
