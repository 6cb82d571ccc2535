"""What a site says of a failed box, as the error that the user sees; and of a failing disk, as what a person who watches sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from evenflow.errors import BoxFailed, EvenflowError, NondeterministicBox
from evenflow.site.events import DiskTrouble, PartFailed

if TYPE_CHECKING:
    from evenflow.coordinator.events import SiteSaid
    from evenflow.coordinator.machine import RunMachine


def note_trouble(machine: RunMachine, event: SiteSaid) -> None:
    """Effect of rule M1."""
    assert isinstance(event.fact, DiskTrouble)
    text = f"state that should be on the disk of site {event.site} stays in memory: {event.fact.why}"
    machine.happened("disk_trouble", event.site, text)


def error_of(fact: PartFailed) -> EvenflowError:
    """The error that a user sees for a failed box: of the class it was raised as, with the box, the epoch and the traceback."""
    if fact.kind == "NondeterministicBox":
        return NondeterministicBox(fact.box, fact.epoch, fact.user_traceback, fact.reason)
    known = {cls.__name__: cls for cls in _subclasses(EvenflowError)}
    cls = known.get(fact.kind, BoxFailed)
    if issubclass(cls, BoxFailed):
        return BoxFailed(fact.box, fact.epoch, fact.user_traceback, fact.reason)
    return cls(f"box {fact.box!r}, epoch {fact.epoch}: {fact.user_traceback}")


def _subclasses(cls: type[EvenflowError]) -> Iterable[type[EvenflowError]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)
