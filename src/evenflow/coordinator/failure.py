"""What ends a run as a failure: a box, replicas that disagree, something outside; and what a person should see of failing disks and slow
code."""

from __future__ import annotations

from collections.abc import Iterable

from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import Kind, RunBroken, SiteSaid, Tell
from evenflow.errors import BoxFailed, DiskError, EvenflowError, NondeterministicBox
from evenflow.site.bases import GiveUp
from evenflow.site.facts import Digests, DiskLost, DiskTrouble, PartFailed, UserCodeSlow


def fail(machine: RunEffects, event: SiteSaid) -> None:
    """Effect of rule E3: a box raised."""
    assert isinstance(event.fact, PartFailed)
    machine.end(error_of(event.fact))


def compare(machine: RunEffects, event: SiteSaid) -> None:
    """Effect of rule E3: replicas that disagree stop the run."""
    assert isinstance(event.fact, Digests)
    error = machine.comparison.take(event.site, event.fact)
    if error is not None:
        machine.end(error)


def break_run(machine: RunEffects, event: RunBroken) -> None:
    """Effect of rule O1."""
    machine.end(event.error)


def note_trouble(machine: RunEffects, event: SiteSaid) -> None:
    """Effect of rule M1."""
    assert isinstance(event.fact, DiskTrouble)
    text = f"state that should be on the disk of site {event.site} stays in memory: {event.fact.why}"
    machine.happened(Kind.DISK_TROUBLE, event.site, text)


def lose_disk(machine: RunEffects, event: SiteSaid) -> None:
    """Effect of rule M1: the site ends where all runs outlive it; else this one does."""
    lost = event.fact
    assert isinstance(lost, DiskLost)
    if machine.outlives(event.site) and not machine.needed_elsewhere(event.site):
        machine.act(Tell(event.site, GiveUp(f"its disk has lost state: {lost.why}")))
    else:
        machine.end(DiskError(f"box {lost.box!r}, epoch {lost.epoch}: {lost.why}"))


def note_slow(machine: RunEffects, event: SiteSaid) -> None:
    """Effect of rule V4: the site is not silent, so nobody takes its place; a person should know what it waits for."""
    slow = event.fact
    assert isinstance(slow, UserCodeSlow)
    details = {"box": slow.box, "epoch": slow.epoch, "seconds": round(slow.seconds, 3)}
    if slow.over:
        text = f"box {slow.box} at site {event.site} has returned from epoch {slow.epoch}, after {slow.seconds:.1f} s"
        machine.happened(Kind.USER_CODE_BACK, event.site, text, details)
        return
    lines = [line.strip() for line in slow.where.splitlines() if line.lstrip().startswith("File ")]
    at = f"; it is at {lines[-1]}" if lines else ""
    text = f"box {slow.box} at site {event.site} has not returned from epoch {slow.epoch} for {slow.seconds:.1f} s{at}"
    machine.happened(Kind.USER_CODE_SLOW, event.site, text, details | {"where": slow.where})


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
