"""A driver that was replaced was not dead: it hung, and goes on when all is over, with the entry that it was about to append (J4).

By then its successors may have collected what they wrote first. Still an entry of another driver must be in its way; else it would append
behind a journal that went on without it, and nobody would tell it that it is Fenced.
"""

from __future__ import annotations

from evenflow.availability.entries import Entry, Logged, entry_name, from_bytes
from evenflow.coordinator.journal import Journal
from evenflow.world.sim.store import SimStore


class Stale:
    """store: of its journal, to which its generation was the newest to append."""

    def __init__(self, journal: Journal, store: SimStore) -> None:
        self._store, self._generation = store, store.generations
        self._next = journal.open or Entry(journal.last + 1, journal.generation, journal.nonce, Logged({}))

    def wakes(self) -> None:
        """Raises AssertionError if nobody is in its way. A driver whom nobody has replaced may append."""
        if self._store.generations == self._generation:
            return
        entry = self._next
        while self._is_in(entry):
            entry = Entry(entry.number + 1, entry.generation, entry.nonce, Logged({}))

    def _is_in(self, entry: Entry) -> bool:
        """Append it. True if it is there now, or was before and is nobody else's."""
        store, name = self._store, entry_name(entry.number)
        if (found := store.objects.get(name)) is not None:
            return from_bytes(found, entry.number).nonce == entry.nonce
        was = store.written.get(name)
        assert was is not None, f"a driver that was replaced appends {name} behind the end of the journal"
        assert from_bytes(was, entry.number).nonce == entry.nonce, (
            f"a driver that was replaced appends {name}: what stood there, of the one that has replaced it, was collected"
        )
        store.objects[name] = was
        return True
