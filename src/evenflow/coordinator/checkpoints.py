"""What events do to a run's checkpoints (availability.md, K1, K5, K6): see `checkpointing`, which keeps what they are about."""

from __future__ import annotations

from evenflow.availability.entries import Completed
from evenflow.coordinator.checkpointing import BUSY_MS
from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import CheckpointRequested, Denied, LastWithdrawn, RunPause, SiteSaid, Tell, Waited
from evenflow.errors import CheckpointCorrupt
from evenflow.site.bases import CheckpointCompleted
from evenflow.site.facts import CheckpointLate, CheckpointStored, CheckpointUnable, StateUnreadable


def is_calm(run: RunEffects) -> bool:
    """Nothing is under way that changes who has what, and no other checkpoint is."""
    return run.running and not run.draining and not run.under_way() and run.checkpointing.may_begin(run.seen)


def begin(run: RunEffects, event: Waited) -> None:
    """It is due, and can begin."""
    every_ms = run.checkpointing.every_ms
    assert every_ms is not None
    _begin(run)
    run.wake(every_ms, RunPause.CHECKPOINT)


def begin_later(run: RunEffects, event: Waited) -> None:
    every_ms = run.checkpointing.every_ms
    assert every_ms is not None
    run.wake(min(BUSY_MS, every_ms), RunPause.CHECKPOINT)


def ask(run: RunEffects, event: CheckpointRequested) -> None:
    """Somebody wants one now, or waits for the one that is under way."""
    found = run.checkpointing.open
    if run.journal is None:
        run.act(Denied(event.request, "the run has no checkpoint location: begin it with one"))
    elif event.last and not run.journal.precise:
        run.act(Denied(event.request, "with durability 'no-loss' outputs do not wait for it: make a savepoint or a checkpoint, then stop"))
    elif found is not None and not found.asked and found.last >= event.last:
        run.checkpointing.requests.append(event.request)
        if event.last:
            run.checkpointing.held_for.add(event.request)
    elif is_calm(run):
        _begin(run, event.request, last=event.last)
    else:
        why = "partitions are on their way between sites, another checkpoint is under way, or the run ends: ask again when that is over"
        run.act(Denied(event.request, why, busy=True))


def withdraw(run: RunEffects, event: LastWithdrawn) -> None:
    """Who wanted the last checkpoint does not stop the run: what was held behind it goes on."""
    if run.journal is not None:
        run.checkpointing.withdraw(event.request)
        run.append_next()


def _begin(run: RunEffects, request: int = 0, *, last: bool = False) -> None:
    for action in run.checkpointing.begin(run.seen, run.plan.effective, request, last=last):
        run.act(action)


def take(run: RunEffects, event: SiteSaid) -> None:
    assert isinstance(event.fact, CheckpointStored)
    run.checkpointing.take(event.site, event.fact)
    ask_journal(run)


def ask_journal(run: RunEffects) -> None:
    """Something has been stored, or is durable: the journal is to have the checkpoint if that was the last thing."""
    if run.checkpointing.ask_journal():
        run.append_next()


def note_completed(run: RunEffects, made: Completed) -> None:
    """It is in the journal: everybody is told."""
    for action in run.checkpointing.completed(made):
        run.act(action)
    for site in run.sites:
        run.act(Tell(site, CheckpointCompleted(made.number, made.epoch)))
    run.recover()  # What was lost while it was in the journal's hands begins again from it.


def order_later(run: RunEffects, event: SiteSaid) -> None:
    assert isinstance(event.fact, CheckpointLate)
    run.seen = max(run.seen, event.fact.done)
    for action in run.checkpointing.again(run.seen, run.plan.effective):
        run.act(action)
    run.append_next()  # If it was given up, what waited behind it goes on.


def drop_unable(run: RunEffects, event: SiteSaid) -> None:
    assert isinstance(event.fact, CheckpointUnable)
    _drop(run, f"site {event.site} cannot: {event.fact.why}")


def lose_patience(run: RunEffects, event: Waited) -> None:
    _drop(run, run.checkpointing.lose_patience())


def _drop(run: RunEffects, why: str) -> None:
    run.drop_checkpoint(why)


def end_unreadable(run: RunEffects, event: SiteSaid) -> None:
    """K9: not from this checkpoint. Whoever has begun the run may try an older one."""
    assert isinstance(event.fact, StateUnreadable)
    run.end(CheckpointCorrupt(event.fact.why))
