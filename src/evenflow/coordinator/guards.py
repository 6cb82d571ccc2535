"""Guards of the coordinator's rules: when a row of the table is enabled. Each reads the run and the event, and changes nothing."""

from __future__ import annotations

from evenflow.coordinator.checkpoints import is_calm
from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import (
    Appended,
    AppendRefused,
    AppendUnknown,
    CheckpointPause,
    CoordinatorEvent,
    EntryRead,
    PlanChangeRequested,
    ReadFailed,
    RunBroken,
    RunPause,
    SiteLost,
    SiteReady,
    SiteSaid,
    Waited,
)
from evenflow.site.facts import (
    CheckpointLate,
    CheckpointStored,
    CheckpointUnable,
    CopyFailed,
    CopyLive,
    Lacking,
    Promised,
    Refused,
    TookOver,
)

Answer = Appended | AppendRefused | AppendUnknown | EntryRead | ReadFailed
"""Of a store."""


def not_over(run: RunEffects, event: CoordinatorEvent) -> bool:
    return not run.over


def is_over(run: RunEffects, event: CoordinatorEvent) -> bool:
    return run.over


def at_the_start(run: RunEffects, event: SiteReady) -> bool:
    return not run.over and not run.started


def newcomer(run: RunEffects, event: SiteReady) -> bool:
    return run.running and event.site not in run.sites


def is_closing(run: RunEffects) -> bool:
    return run.journal is not None and run.journal.closing


def matters(run: RunEffects, event: RunBroken) -> bool:
    return not run.over and not is_closing(run)


def member_dies(run: RunEffects, event: SiteLost) -> bool:
    return run.running and event.site in run.sites and not is_closing(run)


def dies_at_the_end(run: RunEffects, event: SiteLost) -> bool:
    return run.running and event.site in run.sites and is_closing(run)


def dies_before_start(run: RunEffects, event: SiteLost) -> bool:
    return not run.over and not run.started and event.site in run.sites


def stranger_dies(run: RunEffects, event: SiteLost) -> bool:
    return not run.over and event.site not in run.sites


def can_propose(run: RunEffects, event: PlanChangeRequested) -> bool:
    return run.running and not run.under_way() and not run.view.lacks()


def running(run: RunEffects, event: CoordinatorEvent) -> bool:
    return run.running


def is_member(run: RunEffects, event: SiteSaid) -> bool:
    return not run.over and event.site in run.sites


def says_stranger(run: RunEffects, event: SiteSaid) -> bool:
    return not run.over and event.site not in run.sites


def answers(run: RunEffects, event: SiteSaid) -> bool:
    """The promise or refusal is about the proposal that is on."""
    assert isinstance(event.fact, Promised | Refused)
    return is_member(run, event) and run.proposed is not None and event.fact.number == run.proposed.number


def under_way(run: RunEffects, event: SiteSaid) -> bool:
    """What is said is about a copy that is still wanted."""
    assert isinstance(event.fact, CopyLive | CopyFailed | Lacking)
    number = event.fact.number
    return is_member(run, event) and any(copy.number == number for copy in run.membership.joining)


def took_over(run: RunEffects, event: SiteSaid) -> bool:
    """The copy was a move, and what it replaces is still there."""
    assert isinstance(event.fact, TookOver)
    return is_member(run, event) and event.fact.number in run.moving.unconfirmed


def awaited(run: RunEffects, event: Answer) -> bool:
    return not run.over and run.journal is not None and run.journal.awaits(event.number)


def nothing_there(run: RunEffects, event: EntryRead) -> bool:
    return awaited(run, event) and event.entry is None


def own_there(run: RunEffects, event: EntryRead) -> bool:
    return awaited(run, event) and event.entry is not None and run.journal is not None and run.journal.is_own(event.entry)


def foreign_there(run: RunEffects, event: EntryRead) -> bool:
    return awaited(run, event) and event.entry is not None and not own_there(run, event)


def store_waits(run: RunEffects, event: Waited) -> bool:
    return not run.over and event.pause is RunPause.STORE


def waits(run: RunEffects, event: Waited) -> bool:
    pause = event.pause
    others = RunPause.STORE, RunPause.CHECKPOINT, RunPause.STOP
    return not run.over and pause not in others and not isinstance(pause, CheckpointPause)


def stop_waits(run: RunEffects, event: Waited) -> bool:
    return not run.over and event.pause is RunPause.STOP


def checkpoint_due(run: RunEffects, event: Waited) -> bool:
    return not run.over and event.pause is RunPause.CHECKPOINT and is_calm(run)


def checkpoint_must_wait(run: RunEffects, event: Waited) -> bool:
    return not run.over and event.pause is RunPause.CHECKPOINT and not is_calm(run)


def checkpoint_endless(run: RunEffects, event: Waited) -> bool:
    return not run.over and isinstance(event.pause, CheckpointPause) and run.checkpointing.concerns(event.pause.number)


def checkpoint_over(run: RunEffects, event: Waited) -> bool:
    return not run.over and isinstance(event.pause, CheckpointPause) and not run.checkpointing.concerns(event.pause.number)


def owes_checkpoint(run: RunEffects, event: SiteSaid) -> bool:
    fact = event.fact
    assert isinstance(fact, CheckpointStored | CheckpointLate | CheckpointUnable)
    return is_member(run, event) and run.checkpointing.owes(event.site, fact.number)
