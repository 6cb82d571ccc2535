"""What a driver knows of the journal that it appends to is what whoever reads it would find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evenflow.availability.collecting import collecting
from evenflow.availability.entries import Completed, Cut, Entry, Logged, to_bytes
from evenflow.availability.following import Following
from evenflow.availability.retained import RETAINED
from evenflow.availability.standing import standing
from evenflow.exchange.section import RowsObject
from tests.availability.journals import BEGUN, A, B, Objects, checkpoints_of, cut, lived, said

ENTRIES = lived(1, 6, each=5)
MADE = checkpoints_of(ENTRIES)


def whole(made: Completed, entries: list[Entry] = ENTRIES) -> Entry:
    """The snapshot by who reads everything."""
    return standing(entries[: 1 + next(at for at, entry in enumerate(entries) if entry.matter == made)]).snapshot()


def followed(entries: list[Entry], *, ahead: int = 2, known: int = 1) -> Following:
    """known: so many entries were read. Each checkpoint has begun so many epochs before the one that it is of."""
    found = Following.of(standing(entries[:known]))
    for at, entry in enumerate(entries[known:], known):
        coming = next((made.epoch for made in checkpoints_of(entries[at:])), None)
        found.add(entry, coming if coming is not None and newest(entry) >= coming - ahead else None)
    return found


def newest(entry: Entry) -> int:
    """The last epoch that it has a cut of; 0 if it has none."""
    return max([of[-1].epoch for of in entry.matter.cuts.values()]) if isinstance(entry.matter, Logged) else 0


def test_its_snapshots_are_those_of_who_reads_everything() -> None:
    found = followed(ENTRIES)
    for made in MADE[-RETAINED:]:
        snapshot = found.snapshot(made)
        assert snapshot is not None and to_bytes(snapshot) == to_bytes(whole(made))
    assert found.snapshot(MADE[-RETAINED - 1]) is None, "as many are kept as checkpoints are"


def test_a_driver_that_goes_on_knows_of_its_own_checkpoints_only() -> None:
    entries = lived(2, 4, each=5)
    begun = next(entry.number for entry in entries if entry.generation == 2)
    known = standing(entries[:begun])
    before = said(standing(entries[:begun]))
    found = followed(entries, known=begun)
    assert said(known) == before
    for made in checkpoints_of(entries):
        snapshot = found.snapshot(made)
        assert snapshot is None if made.generation == 1 or made.number == 1 else to_bytes(snapshot) == to_bytes(whole(made, entries))  # type: ignore[arg-type]


def test_what_it_was_told_of_stays_as_it_is() -> None:
    known = standing(ENTRIES[:9])
    found = Following.of(known)
    for entry in ENTRIES[9:]:
        found.add(entry, None)
    assert known == standing(ENTRIES[:9])


def test_it_says_nothing_where_cuts_were_not_kept_that_the_snapshot_needs() -> None:
    """Whoever collects reads the journal then."""
    found = followed(ENTRIES, ahead=-9)
    assert all(found.snapshot(made) is None for made in MADE)


def test_it_keeps_no_more_the_longer_there_is_no_checkpoint() -> None:
    """Goal: a run of which nobody takes a checkpoint for days needs no memory for that."""
    found = Following.of(standing([Entry(1, 1, "nonce-1", BEGUN)]))
    for epoch in range(1, 301):
        found.add(Entry(1 + epoch, 1, "nonce-1", Logged({A: (cut(epoch),), B: (cut(epoch),)})), None)
        assert [len(cuts) for cuts in found._fold.cuts.values()] == [1, 1]
    assert found._fold.durable == 300


def test_rows_that_cuts_behind_a_checkpoint_name_are_in_its_snapshot() -> None:
    stored = RowsObject(1, 2, 3, 4, 5, "ab" * 16)  # type: ignore[arg-type]
    entries = [
        Entry(1, 1, "nonce-1", BEGUN),
        Entry(2, 1, "nonce-1", Logged({A: (cut(1)._replace(objects=(stored,)), cut(2)), B: (cut(1), cut(2))})),
        Entry(3, 1, "nonce-1", Logged({A: (cut(3)._replace(objects=(stored._replace(first=9),)),)})),
        Entry(4, 1, "nonce-1", Completed(1, 2, (), generation=1)),
    ]
    found = Following.of(standing(entries[:1]))
    for entry in entries[1:]:
        found.add(entry, 2)
    snapshot = found.snapshot(entries[-1].matter)  # type: ignore[arg-type]
    assert snapshot is not None and to_bytes(snapshot) == to_bytes(whole(entries[-1].matter, entries))  # type: ignore[arg-type]


def thinned(cut: Cut) -> Cut:
    return cut._replace(rows=100, keep=(500_000,), dropped=(cut.epoch,))


def shedding(generations: int) -> list[Entry]:
    """The same with rows left out, in epochs of which most are forgotten before the next checkpoint begins."""
    entries = []
    for entry in lived(generations, 4, each=5):
        if isinstance(entry.matter, Logged):
            cuts = {
                key: tuple(each._replace(rows=100, keep=(500_000,), dropped=(each.epoch,)) for each in of)
                for key, of in entry.matter.cuts.items()
            }
            entry = replace(entry, matter=replace(entry.matter, cuts=cuts))
        entries.append(entry)
    return entries


@pytest.mark.parametrize("generations", [1, 2])
def test_what_was_left_out_is_counted_though_its_cuts_are_forgotten(generations: int) -> None:
    """Goal: the same sums for who has appended and for who reads. Method: each checkpoint begins when most cuts before it are gone; the
    second generation has read what the first one left out."""
    entries = shedding(generations)
    begun = next(entry.number for entry in entries if entry.generation == generations)
    known = standing(entries[:begun])
    found, before = followed(entries, known=begun), dict(known.left_out)
    own = [made for made in checkpoints_of(entries) if found.snapshot(made) is not None]
    assert len(own) == RETAINED
    for made in own:
        snapshot = found.snapshot(made)
        assert snapshot is not None and to_bytes(snapshot) == to_bytes(whole(made, entries))
        assert all(sum(each.dropped) >= made.epoch for each in snapshot.matter.left_out.values())  # type: ignore[union-attr]
    assert known.left_out == before


# ------------------------------------------------ who collects by it


def test_nothing_is_read_but_the_snapshot_before_and_the_result_is_the_same() -> None:
    known, read = followed(ENTRIES), Objects(ENTRIES)
    knows = Objects(ENTRIES)
    asked: list[str] = []
    answer = knows.answer
    knows.answer = lambda request: (asked.append(type(request).__name__), answer(request))[1]  # type: ignore[assignment]
    for made in MADE[-RETAINED:]:
        dated = replace(made, began_s=5.0, ended_s=7.0)
        knows.done(collecting(dated, made=known.snapshot(made)))
        read.done(collecting(made))

    assert asked.count("Get") == 2, "the newest snapshot, each time"
    assert knows.entries == read.entries and knows.snapshots == read.snapshots
    found = knows.read().fold
    assert said(found)[:6] == said(standing(ENTRIES))[:6] and found.checkpoints[0].ended_s == 7.0


def test_where_an_older_checkpoint_may_not_go_yet_its_entries_are_read() -> None:
    """Somebody copies it, so it is the oldest that is kept, and the snapshot that is known is of the one after it."""
    known, knows, read = followed(ENTRIES), Objects(ENTRIES), Objects(ENTRIES)
    older, newer = MADE[-RETAINED - 1], MADE[-RETAINED]
    knows.done(collecting(older, made=known.snapshot(newer)))
    read.done(collecting(older))
    assert knows.snapshots == read.snapshots and knows.entries == read.entries
