"""The simulated driver's hand on the store of its journal: what the run's machine asks of it, and the answers as events."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from evenflow.availability.entries import entry_name, from_bytes, to_bytes
from evenflow.availability.retained import garbage_rows
from evenflow.coordinator.events import (
    Append,
    Appended,
    AppendRefused,
    AppendUnknown,
    CoordinatorEvent,
    EntryRead,
    ReadEntry,
    ReadFailed,
    Sweep,
)
from evenflow.errors import JournalCorrupt, LocationError
from evenflow.world.sim.store import Created, SimStore


class SimJournal:
    """store: None if the run has no journal; then nothing is asked. say: gives the machine an event, when the driver does anything."""

    def __init__(self, store: SimStore | None, say: Callable[[CoordinatorEvent], None]) -> None:
        self._store, self._say = store, say

    def obey(self, action: Append | ReadEntry | Sweep) -> None:
        assert self._store is not None, f"there is no store, and the machine asks for {action}"
        match action:
            case Append(entry):
                self._store.create(entry_name(entry.number), to_bytes(entry), lambda created: self._created(entry.number, created))
            case ReadEntry(number):
                self._store.get(entry_name(number), lambda data: self._read(number, data))
            case Sweep(retained, generation, needed, gone):
                self._store.sweep(retained, garbage_rows(list(self._store.objects), generation, needed, gone))
            case _:
                assert_never(action)

    def _created(self, number: int, created: Created) -> None:
        match created:
            case "done":
                self._say(Appended(number))
            case "exists":
                self._say(AppendRefused(number))
            case "lost":
                self._say(AppendUnknown(number, "the store does not answer"))
            case _:
                assert_never(created)

    def _read(self, number: int, data: bytes | OSError | None) -> None:
        if isinstance(data, OSError):
            self._say(ReadFailed(number, LocationError(str(data))))
            return
        try:
            self._say(EntryRead(number, None if data is None else from_bytes(data, number)))
        except JournalCorrupt as error:
            self._say(ReadFailed(number, error))
