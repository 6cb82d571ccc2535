"""How a journal is read that others write and collect meanwhile (availability.md, J1, K8): what is asked of the store, and in which order.

    journal/000000000001.json             an entry with which a generation has begun: it never goes
    journal/000000004711.snapshot.json    what all entries up to 4711 add up to
    journal/000000004712.json             entries without gaps, up to the newest

A reader begins with the newest snapshot that can be used, or with the first entry, and goes on to the end, not to the end of a listing:
that may be late, and a driver that everybody believes dead may still write. What lies at or below the snapshot is not looked at: it is on
its way out, or has come back by a request that was done twice. If something is wrong with what was read, and a newer snapshot is there by
now, then the journal was collected meanwhile, and the reader begins anew. Otherwise it is wrong.

Who reads is a generator of requests, which is sent the answers. It knows no store, so the simulator's and a real one are asked the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from evenflow.availability.entries import JOURNAL, Entry, entry_name, from_bytes, is_newer, snapshot_from, snapshot_name
from evenflow.errors import JournalCorrupt

OBJECT: Final = re.compile(rf"{JOURNAL}(\d{{12}})(\.snapshot)?\.json", re.ASCII)
AT_ONCE: Final = 16
"""So many objects are asked for at the same time: a store far away takes 30 ms for each."""
AGAIN_MAX: Final = 8
"""A reader begins anew so often: each time a driver has completed a checkpoint meanwhile."""


# ---------------------------------------------------------------- what is asked of a store


@dataclass(frozen=True, slots=True)
class Look:
    """Names of all objects in the journal's folder. The answer: a sequence of them. One that is larger than any entry raises there."""


@dataclass(frozen=True, slots=True)
class Get:
    """Their bytes. The answer: for each its bytes, None if it is not there, or what is wrong with it."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Make:
    """Create an object if there is none of that name; either is fine. The answer: None."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete them. What is gone already is fine. The answer: None."""

    names: tuple[str, ...]


Request = Look | Get | Make | Remove
T = TypeVar("T")
Asking = Generator[Request, Any, T]


# ---------------------------------------------------------------- what there is


@dataclass(frozen=True, slots=True)
class Listed:
    """Numbers of the entries and of the snapshots that a listing shows, ascending."""

    entries: tuple[int, ...]
    snapshots: tuple[int, ...]

    @staticmethod
    def of(names: Sequence[str]) -> Listed:
        found = [match for name in names if (match := OBJECT.fullmatch(name))]
        numbers: Mapping[bool, list[int]] = {is_snapshot: [] for is_snapshot in (False, True)}
        for match in found:
            numbers[match[2] is not None].append(int(match[1]))
        return Listed(tuple(sorted(numbers[False])), tuple(sorted(numbers[True])))

    @property
    def newest(self) -> int:
        """Number of the newest snapshot, 0 if there is none."""
        return self.snapshots[-1] if self.snapshots else 0

    def from_on(self, number: int) -> Sequence[int]:
        """This number and those that follow without a gap; none if it is not there itself."""
        behind = [found for found in self.entries if found >= number]
        return behind[: next((index for index, found in enumerate(behind) if found != number + index), len(behind))]

    @property
    def last(self) -> int:
        """The journal goes at least as far as the entry of this number, 0 if there is none."""
        return max(0, self.newest, *self.entries[-1:])

    def is_outrun(self, number: int) -> bool:
        """Who has made the entry of this number just now has made it where another one was: it was collected, or there are later ones."""
        return self.newest >= number or self.last > number


class Fold(Protocol):
    """What entries are added up in."""

    def add(self, entry: Entry) -> None:
        """The next one. Raises JournalCorrupt if it contradicts those before."""


F = TypeVar("F", bound=Fold)


@dataclass(frozen=True, slots=True)
class Read(Generic[F]):
    """fold: everything. passed_over: what is to be said of snapshots that could not be used."""

    fold: F
    passed_over: tuple[str, ...]


# ---------------------------------------------------------------- reading


def reading(new: Callable[[], F]) -> Asking[Read[F]]:
    """Read all there is. new: an empty fold.

    Raises JournalCorrupt for an entry that is missing or altered, and for snapshots of which none can be used though they are needed.
    """
    for left in range(AGAIN_MAX, -1, -1):
        listed = Listed.of((yield Look()))
        fold = new()
        begins, passed = yield from beginning(listed)
        try:
            if begins is not None:
                fold.add(begins)
            yield from _to_the_end(fold, 1 if begins is None else begins.number + 1, listed)
            return Read(fold, passed)
        except JournalCorrupt as error:
            if Listed.of((yield Look())).newest > listed.newest and left:
                continue
            if passed:
                raise JournalCorrupt(f"{error}. {passed[0]}; give one of them back") from error
            raise
    raise AssertionError("unreachable: the last one returns or raises")


def beginning(listed: Listed) -> Asking[tuple[Entry | None, tuple[str, ...]]]:
    """The newest snapshot that can be used, None if there is none, and what is to be said of those that cannot. Raises JournalCorrupt for
    one of a newer format: who wrote it may have written more that this version does not know."""
    passed: list[str] = []
    for number in reversed(listed.snapshots):
        [data] = yield Get((snapshot_name(number),))
        if data is None:
            continue  # A newer one has taken its place, and who reads finds out.
        try:
            if isinstance(data, JournalCorrupt):
                raise data
            return snapshot_from(data, number), tuple(passed)
        except JournalCorrupt as error:
            if isinstance(data, bytes) and is_newer(data):
                raise
            passed.append(f"{snapshot_name(number)}, which stands for the entries before it, is passed over: {error}")
    return None, tuple(passed)


def _to_the_end(fold: Fold, number: int, listed: Listed) -> Asking[None]:
    while True:
        number = yield from _listed_from(fold, number, listed)
        while (entry := (yield from one(number))) is not None:
            fold.add(entry)
            number += 1
        listed = Listed.of((yield Look()))
        if listed.last < number:
            return
        # Entries may come while the folder is listed, and the listing may have a later one and not the one before it.
        if number not in listed.entries and (yield from one(number)) is None:
            raise JournalCorrupt(
                f"entry {number} of the journal is missing, and entry {listed.last} is there; somebody has "
                "removed it, or the snapshot that stood for it. What came before it is whole: give it back, or remove those behind it "
                "and lose what they say"
            )


def _listed_from(fold: Fold, number: int, listed: Listed) -> Asking[int]:
    """Add what the listing shows from there on, without gaps. Returns the number behind the last one."""
    wanted = listed.from_on(number)
    for start in range(0, len(wanted), AT_ONCE):
        for entry in (yield from some(wanted[start : start + AT_ONCE])):
            if entry is None:
                raise JournalCorrupt(f"entry {number} of the journal is missing: somebody has removed it while it was read. Give it back")
            fold.add(entry)
            number += 1
    return number


def reading_on(fold: Fold, last: int) -> Asking[None]:
    """Add the entries behind that number. Where there are many, several are asked for at the same time: who reads one after the other from
    a store that is far away never comes to the end of what a live driver appends. Raises JournalCorrupt."""
    known = last
    while True:
        ahead = min(max(1, known - last), AT_ONCE)  # As many as have come already.
        for entry in (yield from some(range(known + 1, known + 1 + ahead))):
            if entry is None:
                return
            fold.add(entry)
        known += ahead


def some(numbers: Sequence[int]) -> Asking[list[Entry | None]]:
    """The entries of these numbers; None for each that is not there. Raises JournalCorrupt for one that cannot be used."""
    found: Sequence[bytes | JournalCorrupt | None] = yield Get(tuple(map(entry_name, numbers)))
    return [_entry(number, data) for number, data in zip(numbers, found, strict=True)]


def one(number: int) -> Asking[Entry | None]:
    """The entry of that number."""
    [entry] = yield from some((number,))
    return entry


def _entry(number: int, data: bytes | JournalCorrupt | None) -> Entry | None:
    if isinstance(data, JournalCorrupt):
        raise data
    return None if data is None else from_bytes(data, number)
