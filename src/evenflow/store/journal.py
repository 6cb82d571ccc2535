"""The journal of a location: its entries are read into a `Standing`, and the next one is made (J1, J4).

Entry after entry is read until there is none, not only what a listing shows: a listing may be late, and a driver that everybody
believes dead may still write. An entry that is missing before one that is there is lost for good, so nothing behind it is believed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Final

from evenflow.availability.entries import Begun, Entry, entry_name, from_bytes, to_bytes
from evenflow.availability.standing import Standing, standing
from evenflow.errors import JournalCorrupt, LocationError, Overtaken
from evenflow.store.objects import Store, TooLarge
from evenflow.store.opening import explain

JOURNAL: Final = "journal/"
ENTRY: Final = re.compile(r"journal/(\d{12})\.json", re.ASCII)
MOST_ENTRY_BYTES: Final = 1 << 26
"""An entry of a thousand sites with a hundred objects each has some 15 MB."""
AT_ONCE: Final = 16
"""So many entries are asked for at the same time: a store far away takes 30 ms for each."""


class Outcome(Enum):
    """How an append has ended."""

    OURS = "ours"
    """The entry is in the journal, whole and durable: this time, or it was already."""
    FOREIGN = "foreign"
    """Another entry has its number: another driver has taken the location over."""
    UNKNOWN = "unknown"
    """The store has not said. The entry may be there, or may appear yet: only the same entry may be tried again under this number."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What has become of an append. error: the last one of the store, None if it had none."""

    outcome: Outcome
    error: OSError | None = None


def read_journal(store: Store, unreadable: Iterable[tuple[int, int]] = ()) -> Standing:
    """What the journal's entries add up to. unreadable: checkpoints to pass over, see `Standing`.

    Raises JournalCorrupt for one that is missing or altered, LocationError if it cannot be read.

    Objects in the journal's folder that have no entry's name are ignored.
    """
    return standing(entries(store), unreadable)


def entries(store: Store) -> Iterator[Entry]:
    """All entries, by their numbers, from the oldest one that is there. Raises as `read_journal` does."""
    try:
        yield from _entries(store)
    except OSError as error:
        raise LocationError(explain("read the journal", store.url, error)) from error


def read_on(store: Store, known: Standing) -> Standing:
    """The same standing, with the entries that have come since it was read. A driver that lives appends so often that to read everything
    again would always be too late. Raises as `read_journal`."""
    try:
        for entry in entries_after(store, known.last):
            known.add(entry)
    except OSError as error:
        raise LocationError(explain("read the journal", store.url, error)) from error
    return known


def entries_after(store: Store, last: int) -> Iterator[Entry]:
    """The entries behind that number. Where there are many, several are asked for at the same time: who reads one after the other from a
    store that is far away never comes to the end of what a live driver appends. Raises JournalCorrupt and OSError."""
    entry = read_entry(store, last + 1)
    if entry is None:
        return
    yield entry
    with ThreadPoolExecutor(AT_ONCE) as readers:
        last, ahead = last + 1, 1
        while True:
            for entry in readers.map(lambda number: read_entry(store, number), range(last + 1, last + 1 + ahead)):
                if entry is None:
                    return
                yield entry
            last, ahead = last + ahead, min(2 * ahead, AT_ONCE)


def has_entries(store: Store) -> bool:
    """Somebody has begun here. Raises LocationError if the store does not say."""
    try:
        return any(ENTRY.fullmatch(name) for name in store.names(JOURNAL))
    except OSError as error:
        raise LocationError(explain("list the journal", store.url, error)) from error


def append(store: Store, entry: Entry, tries: int = 3, again: Callable[[int], None] = lambda tried: None) -> Appended:
    """Make the entry the next one of the journal, if its number is free.

    tries: how often the store is asked. again: is called before each try but the first, with the number of those before, and may wait.
    """
    name, data = entry_name(entry.number), to_bytes(entry)
    error: OSError | None = None
    for tried in range(tries):
        if tried:
            again(tried)
        try:
            try:
                store.create(name, data)
                return Appended(Outcome.OURS, error)
            except FileExistsError:
                # A try whose answer was lost may have made it. The nonce in the bytes is of this driver alone.
                found = store.get(name, MOST_ENTRY_BYTES)
                return Appended(Outcome.OURS if found == data else Outcome.FOREIGN, error)
        except TooLarge as large:
            return Appended(Outcome.FOREIGN, large)
        except OSError as failure:
            error = failure
    return Appended(Outcome.UNKNOWN, error)


def begin(
    store: Store,
    known: Standing,
    begun: Callable[[Standing], Begun],
    nonce: str,
    tries: int = 1,
    again: Callable[[int], None] = lambda tried: None,
) -> None:
    """A driver takes the location over (J4): its generation is the one after the newest.

    known: where the location stands; at the end with what came meanwhile and with this driver's entry. begun: what that says, given where
    the location stands. nonce: of this driver alone. tries: so often, where the driver that is replaced still appends. again: as in
    `append`. Raises Overtaken if another driver has begun meanwhile, LocationError if the store does not take the entry; JournalCorrupt.
    """
    for left in range(tries - 1, -1, -1):
        entry = Entry(known.last + 1, known.generation + 1, nonce, begun(known))
        done = append(store, entry, again=again)
        match done.outcome:
            case Outcome.OURS:
                known.add(entry)
                return
            case Outcome.UNKNOWN:
                raise LocationError(explain("begin the journal", store.url, done.error or OSError("the store does not answer")))
            case Outcome.FOREIGN:
                generation = known.generation
                read_on(store, known)
                if not left or known.generation != generation or known.ended is not None:
                    raise Overtaken(f"another driver has begun at {store.url} at this very moment: only one of them can go on")


def read_entry(store: Store, number: int) -> Entry | None:
    """The entry of that number; None if there is none now. Raises JournalCorrupt for one that cannot be used, and OSError."""
    try:
        return _entry(store, number)
    except FileNotFoundError:
        return None


def _entries(store: Store) -> Iterator[Entry]:
    """All entries, by their numbers, from the oldest one that is there."""
    listed = _listed(store)
    number = listed[0] if listed else 1
    whole = next((index for index, found in enumerate(listed) if found != number + index), len(listed))
    with ThreadPoolExecutor(AT_ONCE) as readers:
        for start in range(0, whole, AT_ONCE):
            yield from readers.map(lambda of: _entry(store, of), listed[start : min(start + AT_ONCE, whole)])
    number += whole
    while (entry := read_entry(store, number)) is not None:
        yield entry
        number += 1
    if listed and listed[-1] > number:
        raise JournalCorrupt(
            f"{store.url}: entry {number} of the journal is missing, and entry {listed[-1]} is there; somebody has removed it. What came "
            "before it is whole: give the entry back, or remove those behind it and lose what they say"
        )


def _listed(store: Store) -> Sequence[int]:
    """Numbers of the entries that the store lists, ascending. Raises JournalCorrupt for one that no driver can have written."""
    found = []
    for name, size in store.sizes(JOURNAL).items():
        if match := ENTRY.fullmatch(name):
            if size > MOST_ENTRY_BYTES:
                raise JournalCorrupt(f"{store.url}: {name} has {size} bytes; no entry has so many")
            found.append(int(match[1]))
    return found


def _entry(store: Store, number: int) -> Entry:
    try:
        return from_bytes(store.get(entry_name(number), MOST_ENTRY_BYTES), number)
    except TooLarge as error:
        raise JournalCorrupt(f"{store.url}: entry {number} of the journal has more bytes than any entry") from error
