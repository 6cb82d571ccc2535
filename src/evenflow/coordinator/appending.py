"""What the events of a run's journal do to it (availability.md, J2-J4): see `journal`, which keeps what they are about."""

from __future__ import annotations

from typing import Final

from evenflow.availability.entries import Completed, Drained, Ended, Stopped, timeless, to_bytes
from evenflow.availability.entries import Logged as Entered
from evenflow.coordinator.checkpoints import ask_journal, note_completed
from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import (
    Append,
    Appended,
    AppendRefused,
    AppendUnknown,
    EntryRead,
    Kind,
    OpenEnds,
    ReadEntry,
    ReadFailed,
    RunPause,
    SiteSaid,
    Waited,
)
from evenflow.coordinator.journal import Journal
from evenflow.errors import Fenced, JournalCorrupt
from evenflow.site.facts import Logged
from evenflow.site.view import NOBODY

TROUBLE_MS: Final = 100.0
"""A person is told of a store that fails when tries are this far apart."""
FENCED: Final = "another driver has begun generation {generation} at the checkpoint location; this one was generation {own} and ends"


def _journal(run: RunEffects) -> Journal:
    assert run.journal is not None, "an event of a journal came to a run that has none"
    return run.journal


def note_cuts(run: RunEffects, event: SiteSaid) -> None:
    assert isinstance(event.fact, Logged)
    _journal(run).note_cuts(event.fact.cuts)
    run.append_next()


def go_on(run: RunEffects, event: Appended) -> None:
    """An entry is in: ends may take what is durable by it, and the next one follows."""
    journal = _journal(run)
    before, entry = journal.durable, journal.appended()
    if journal.trouble:
        journal.trouble = False
        run.happened(Kind.JOURNAL_BACK, NOBODY, "the journal is appended to again")
    if isinstance(entry.matter, Ended | Stopped):
        run.end(None)
        return
    if isinstance(entry.matter, Drained):
        run.drain()
    if isinstance(entry.matter, Entered):
        run.act(*run.replacing.durable(entry.matter.contents))
    if isinstance(entry.matter, Completed):
        note_completed(run, entry.matter)
    if journal.durable > before and journal.precise:
        ask_journal(run)
        run.tell_durable(run.sites)
        run.act(OpenEnds(journal.durable))
    run.append_next()


def read_back(run: RunEffects, event: AppendRefused) -> None:
    """It may be this driver's own, from a try whose outcome was unknown."""
    _journal(run).refused = True
    run.act(ReadEntry(event.number))


def read_later(run: RunEffects, event: AppendUnknown) -> None:
    _wait(run, event.why)


def look_again(run: RunEffects, event: Waited) -> None:
    journal = _journal(run)
    assert journal.open is not None, "nothing else is asked of the store while an entry is open"
    run.act(ReadEntry(journal.open.number))


def append_again(run: RunEffects, event: EntryRead) -> None:
    """The same one: what was asked for before may still be done, and then either is as good. A store that refused it, and shows nothing
    there, may show it later; if it never does, it is asked like one that fails."""
    journal = _journal(run)
    assert journal.open is not None
    if journal.refused:
        journal.refused = False
        _wait(run, f"it is said to have entry {journal.open.number} already, and does not show it")
    else:
        run.act(Append(journal.open))


def believe(run: RunEffects, event: EntryRead) -> None:
    """What is there is this driver's own, so that is what it asked for."""
    open_ = _journal(run).open
    assert open_ is not None and event.entry is not None
    # By their bytes: in what was JSON pairs are lists, and keys are text. Times are written down by who appends, for people.
    assert to_bytes(timeless(event.entry)) == to_bytes(timeless(open_)), "two entries of one number, both own"
    go_on(run, Appended(event.number))


def give_way(run: RunEffects, event: EntryRead) -> None:
    assert event.entry is not None
    run.end(Fenced(FENCED.format(generation=event.entry.generation, own=_journal(run).generation)))


def read_again(run: RunEffects, event: ReadFailed) -> None:
    if isinstance(event.error, JournalCorrupt) and _journal(run).is_corrupt():
        run.end(event.error)
        return
    _wait(run, str(event.error))


def _wait(run: RunEffects, why: str) -> None:
    """Ask the store again after a while. If that gets long a person is told, once until it works again."""
    journal = _journal(run)
    pause_ms = journal.pause_ms()
    if not journal.trouble and pause_ms >= TROUBLE_MS:
        journal.trouble = True
        run.happened(Kind.JOURNAL_WAITS, NOBODY, f"the journal cannot be appended to, and nothing new is given out until it can: {why}")
    run.wake(pause_ms, RunPause.STORE)
