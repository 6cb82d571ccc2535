"""What becomes of copies, as a run's machine is told of it (protocol C3, C4): effects of its rules."""

from __future__ import annotations

from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import Kind, SiteSaid, Tell
from evenflow.site.facts import CopyFailed, CopyLive, Lacking, TookOver
from evenflow.site.given import SourceLeft
from evenflow.stream.ids import SiteId


def note_live(machine: RunEffects, event: SiteSaid) -> None:
    """Effect of rule C3: what has come counts from now on. The target of a move must answer before what it replaces goes."""
    assert isinstance(event.fact, CopyLive)
    number, joining = event.fact.number, machine.membership.joining
    copy = next(copy for copy in joining if copy.number == number)
    if copy.revives:
        machine.reviving.failed = 0
    else:
        machine.recovery.retries.succeeded(copy.source, copy.target)
    machine.change_membership(joining=tuple(c for c in joining if c.number != number))
    if copy.moves:
        machine.moving.begun[number].bytes = event.fact.bytes
        machine.moving.unconfirmed[number] = copy
    else:
        name, count = machine.layout.segments[copy.segment].name, len(copy.partitions)
        machine.happened(Kind.COPY_LIVE, event.site, f"{count} partitions of {name} are live at site {event.site}")
    machine.more_to_finish(event.site)
    machine.go_on()


def retire(machine: RunEffects, event: SiteSaid) -> None:
    """Effect of rule C3: the target of a move has heard that it counts, and has answered: the replica that it replaces goes as if it had
    died."""
    assert isinstance(event.fact, TookOver)
    moving = machine.moving
    copy = moving.unconfirmed.pop(event.fact.number)
    name, count, size = machine.layout.segments[copy.segment].name, len(copy.partitions), moving.begun[copy.number].bytes
    retired = (*machine.membership.retired, copy.number)
    machine.change_membership(retired=retired, leaders=machine.leaders.after_move(copy))
    text = f"{count} partitions of {name} have moved from site {copy.replaces} to site {copy.target}: {size:,} bytes"
    machine.happened(Kind.MOVE_DONE, event.site, text, moving.over(copy))
    machine.go_on()


def pass_on(machine: RunEffects, event: SiteSaid) -> None:
    """Effect of rule C3: who leads a partition of a source now hears how far who led it before it moved had read it. It cannot have moved
    on without having heard: the plan for that needs the former leader's promise, which comes behind this."""
    assert isinstance(event.fact, SourceLeft)
    leader = machine.membership.leaders[event.fact.segment][event.fact.partition].site
    if leader in machine.sites:
        machine.act(Tell(leader, event.fact))


def drop_copy(machine: RunEffects, event: SiteSaid) -> None:
    """Effect of rule C4: the copy is forgotten. Its two sites have a pause; what is missing still is copied between others meanwhile. Where
    nobody has what it was to bring, those that begin again with it may wait for its frames: they are forgotten too, and all begin again."""
    assert isinstance(event.fact, CopyFailed)
    _drop(machine, event.site, event.fact)


def judge_lacking(machine: RunEffects, event: SiteSaid) -> None:
    """Effect of rule B3: what has begun again, and lives, waits for what was sent to it before; and who had sent that has died, too. If no
    image has it, nobody ever will: a run that waited for it would wait for ever."""
    assert isinstance(event.fact, Lacking)
    said = event.fact
    if machine.backing.leaves(said):
        copy = next(copy for copy in machine.membership.joining if copy.number == said.number)
        waits, name = (machine.layout.segments[number].name for number in (said.segment, copy.segment))
        why = f"{waits} at site {event.site} has what {name} made up to epoch {said.through} only, and nobody has what came then"
        _drop(machine, copy.target, CopyFailed(said.number, why))


def _drop(machine: RunEffects, site: SiteId, failed: CopyFailed) -> None:
    """Forget a copy that cannot be finished. site: of which that is said."""
    number, why, before = failed.number, failed.why, machine.membership
    copy = next(copy for copy in before.joining if copy.number == number)
    given_up = [other.number for other in before.joining if other.number == number or (copy.revives and other.revives)]
    joining = tuple(other for other in before.joining if other.number not in given_up)
    machine.change_membership(joining=joining, dropped=(*before.dropped, *given_up))
    if copy.revives:
        machine.reviving.failed += 1
        machine.happened(Kind.COPY_DROPPED, site, f"site {site} cannot begin again from the end of epoch {copy.base}: {why}")
        machine.go_on()
        return
    if copy.moves:
        machine.give_up_move(copy, why)
    else:
        text = f"a copy from site {copy.source} to site {site} was given up: {why}"
        machine.happened(Kind.COPY_DROPPED, site, text)
    for after_ms, pause in machine.recovery.retries.failed(copy.source, copy.target, why):
        machine.wake(after_ms, pause)
    machine.go_on()
