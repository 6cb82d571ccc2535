"""What sites have read as empty, as a run's machine is told of it (availability.md, B4): effects of its rules."""

from __future__ import annotations

from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import SiteSaid
from evenflow.site.facts import SourcesStand, Unread, Voided


def note(run: RunEffects, event: SiteSaid) -> None:
    assert isinstance(event.fact, Voided)
    run.losses.take(event.site, event.fact)


def hear(run: RunEffects, event: SiteSaid) -> None:
    assert isinstance(event.fact, SourcesStand)
    run.losses.hear(event.fact.heard)
    run.seen = max(run.seen, *[begins.epoch for begins in event.fact.heard])  # The sink may have it, and nobody who lives.


def count(run: RunEffects, event: SiteSaid) -> None:
    assert isinstance(event.fact, Unread)
    run.losses.rows += event.fact.rows
