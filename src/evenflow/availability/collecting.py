"""How entries of a journal go that nobody needs any more (availability.md, K8; decision 62).

    1  read the newest snapshot; if nobody here knows what the entries up to that of the oldest retained checkpoint add up to, fold on to it
    2  make a snapshot of that, beside the journal
    3  delete the entries up to the snapshot of step 1, oldest first, but for those with which a generation has begun
    4  delete the snapshots before the one of step 1

So there are always two snapshots that somebody has read or made whole, and all entries after the older one. Broken off anywhere, nothing is
missing, and what is left goes the next time. A snapshot follows from entries that never change, so whoever makes it makes the same one:
a driver that was replaced may do so, too, and deletes only what no longer counts.

An entry with which a generation has begun stays for ever: its number is the one that the driver before would append under next, and
nothing else would keep that one out. They are as many as there were starts. Requests go as in `reading`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evenflow.availability.entries import Completed, Entry, Snapshot, entry_name, snapshot_name, to_bytes
from evenflow.availability.reading import AT_ONCE, Asking, Listed, Look, Make, Remove, beginning, some
from evenflow.availability.standing import Standing


def collecting(oldest: Completed, at_once: int = AT_ONCE, made: Entry | None = None) -> Asking[int]:
    """Collect what came before the oldest checkpoint that is retained; returns how many entries were deleted. at_once: so many at a time.
    made: the snapshot of that checkpoint's entry, if who collects has appended everything up to it; else entries are read.

    Raises JournalCorrupt if an entry that is needed for it cannot be used: then nothing is deleted.
    """
    listed = Listed.of((yield Look()))
    known, _ = yield from beginning(listed)
    if known is not None and _matter(known).completed.epoch >= oldest.epoch:
        return 0
    own = None if made is None else _dated(made, oldest)
    snapshot = own if own is not None else (yield from _read(known, oldest, listed, at_once))
    if snapshot is None:
        return 0
    yield Make(snapshot_name(snapshot.number), to_bytes(snapshot))
    if known is None:
        return 0
    gone = unneeded(listed, known)
    names = [*map(entry_name, gone), *[snapshot_name(number) for number in listed.snapshots if number < known.number]]
    for start in range(0, len(names), at_once):
        yield Remove(tuple(names[start : start + at_once]))
    return len(gone)


def _dated(snapshot: Entry, oldest: Completed) -> Entry | None:
    """With the times at which the checkpoint began and ended, which only its entry has. None if it is of another checkpoint: an older one
    may not go yet, since somebody copies it."""
    matter = _matter(snapshot)
    return replace(snapshot, matter=replace(matter, completed=oldest)) if matter.completed.place == oldest.place else None


def _read(known: Entry | None, oldest: Completed, listed: Listed, at_once: int) -> Asking[Entry | None]:
    """The snapshot of that checkpoint's entry. None if the entries up to it are not all there: then another driver has collected them."""
    standing = Standing()
    if known is not None:
        standing.add(known)
    wanted = listed.from_on(standing.last + 1)
    for start in range(0, len(wanted), at_once):
        for entry in (yield from some(wanted[start : start + at_once])):
            if entry is None:
                return None
            standing.add(entry)
            if _is_of(entry, oldest):
                return standing.snapshot()
    return None


def _is_of(entry: Entry, made: Completed) -> bool:
    matter = entry.matter
    return isinstance(matter, Completed) and matter.place == made.place


def unneeded(listed: Listed, known: Entry) -> Sequence[int]:
    """Numbers of the entries that can go, ascending, if this snapshot and a newer one are there."""
    kept = set(_matter(known).begins)
    return [number for number in listed.entries if number <= known.number and number not in kept]


def _matter(snapshot: Entry) -> Snapshot:
    assert isinstance(snapshot.matter, Snapshot)
    return snapshot.matter
