"""What a person should see of rows that are left out. What was is in the `ledger`."""

from __future__ import annotations

from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import EpochSeen, Kind, SiteSaid
from evenflow.coordinator.plans import note_epoch
from evenflow.site.facts import ArcThinned, RowsShed


def note_shed(machine: RunEffects, event: SiteSaid) -> None:
    """Effect of rule D5."""
    said = event.fact
    assert isinstance(said, RowsShed)
    if machine.ledger.take(said):
        source = machine.layout.segments[said.segment].source or ""
        outputs = ", ".join(map(repr, machine.layout.sheds[source].outputs)) if source in machine.layout.sheds else ""
        text = f"source {source!r} is late: rows of it are left out, and {outputs} miss what would have come of them"
        machine.happened(Kind.SHEDDING, event.site, text, {"source": source, "epoch": said.epoch, "partition": said.partition})


def note_thinned(machine: RunEffects, event: SiteSaid) -> None:
    """Effect of rule D5. That the plan keeps less is said by the round that wants it."""
    assert isinstance(event.fact, ArcThinned)
    machine.ledger.arcs.take(event.fact)


def note_calm(machine: RunEffects, event: EpochSeen) -> None:
    """An epoch was closed: perhaps nothing has been left out of a source for long enough."""
    note_epoch(machine, event)
    machine.tell_spells(machine.ledger.ended(event.epoch))
