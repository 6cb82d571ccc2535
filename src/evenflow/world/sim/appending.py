"""The simulated driver's hand on the store of its journal: what the run's machine asks of it, and the answers as events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, assert_never

from evenflow.availability.collecting import collecting
from evenflow.availability.entries import entry_name, from_bytes, to_bytes
from evenflow.availability.reading import Asking
from evenflow.availability.retained import garbage_programs, garbage_rows
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

AT_ONCE: Final = 3
"""Entries that who collects reads or deletes at a time: few, so that a driver often dies in between."""


class SimJournal:
    """store: None if the run has no journal; then nothing is asked. soon: does something when the driver does anything, never if it is
    dead. coordinate: gives the machine an event."""

    def __init__(
        self, store: SimStore | None, soon: Callable[[Callable[[], None]], None], coordinate: Callable[[CoordinatorEvent], None]
    ) -> None:
        self._store, self._soon, self._coordinate = store, soon, coordinate
        self._collecting = False

    def _say(self, event: CoordinatorEvent) -> None:
        self._soon(lambda: self._coordinate(event))

    def obey(self, action: Append | ReadEntry | Sweep) -> None:
        assert self._store is not None, f"there is no store, and the machine asks for {action}"
        match action:
            case Append(entry):
                self._store.create(entry_name(entry.number), to_bytes(entry), lambda created: self._created(entry.number, created))
            case ReadEntry(number):
                self._store.get(entry_name(number), lambda data: self._read(number, data))
            case Sweep(retained, generation, needed, gone, snapshot, programs):
                rows = garbage_rows(list(self._store.objects), generation, needed, gone)
                self._store.sweep(retained, rows, garbage_programs(list(self._store.programs), generation, *programs))
                if retained and not self._collecting:
                    self._collecting = True
                    self._go_on(self._store, collecting(retained[0], AT_ONCE, snapshot), None)
            case _:
                assert_never(action)

    def _go_on(self, store: SimStore, asking: Asking[int], answer: Any) -> None:
        """The next request of who collects. What fails is left for another time."""
        try:
            if isinstance(answer, OSError):
                asking.close()
            request = asking.send(None if isinstance(answer, OSError) else answer)
        except (StopIteration, JournalCorrupt):
            self._collecting = False
            return
        store.ask(request, lambda found: self._soon(lambda: self._go_on(store, asking, found)))

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
