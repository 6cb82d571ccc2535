"""What sites say of images, as a run's machine is told of it (availability.md, P1, P3, P4): effects of its rules."""

from __future__ import annotations

from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import Kind, SiteSaid
from evenflow.site.facts import Imaged, NoRoom, Pasted


def note_pasted(run: RunEffects, event: SiteSaid) -> None:
    """Effect of rule P3."""
    assert isinstance(event.fact, Pasted)
    run.act(*run.backing.pasted(event.site, event.fact))


def note_imaged(run: RunEffects, event: SiteSaid) -> None:
    """Effect of rule P4."""
    assert isinstance(event.fact, Imaged)
    run.backing.imaged(event.site, event.fact.images)
    run.recover()


def back_up_elsewhere(run: RunEffects, event: SiteSaid) -> None:
    """Effect of rule P1."""
    assert isinstance(event.fact, NoRoom)
    text, actions = run.backing.full(event.site, event.fact)
    run.act(*actions)
    if text:
        run.happened(Kind.NOT_BACKED_UP, event.site, text)
