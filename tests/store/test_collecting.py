"""Entries of a journal in real stores go when a snapshot stands for them, and no driver comes in where they were."""

from __future__ import annotations

import errno

import pytest

from evenflow.availability.entries import Ended, Entry, entry_name, to_bytes
from evenflow.availability.retained import RETAINED
from evenflow.availability.standing import Standing, standing
from evenflow.errors import JournalCorrupt, LocationError
from evenflow.store.journal import Outcome, append, begin, collect, read_journal, read_on
from evenflow.store.objects import Store
from evenflow.store.opening import open_store
from evenflow.swarm.mutations import COLLECTING, planted
from evenflow.world.spark.driver.appending import collected
from tests.availability.journals import BEGUN, checkpoints_of, lived, said
from tests.store.faulty import Around, Fails

ENTRIES = lived(2, 7, each=3)
MADE = checkpoints_of(ENTRIES)
SECOND = next(entry.number for entry in ENTRIES if entry.generation == 2)
"""Under this number the first driver would append next."""


def fill(store: Store, entries: list[Entry]) -> None:
    for entry in entries:
        store.create(entry_name(entry.number), to_bytes(entry))


def lived_at(store: Store) -> Store:
    """Both generations, with a collection after each completion, as a driver does it."""
    retained = []
    for entry in ENTRIES:
        assert append(store, entry).outcome is Outcome.OURS
        if entry.matter in MADE:
            retained = [*retained, entry.matter][-RETAINED:]
            if len(retained) == RETAINED:
                collect(store, retained[0])  # type: ignore[arg-type]
    return store


@pytest.fixture
def directory(tmp_path: object) -> Store:
    return open_store(f"{tmp_path}/location")


def test_a_journal_stays_as_small_as_what_is_retained(store: Store) -> None:
    lived_at(store)
    names = store.names("journal/")
    begins = [entry_name(entry.number) for entry in ENTRIES if entry.matter == BEGUN]
    numbers = [entry.number for entry in ENTRIES if entry.matter in MADE[-RETAINED - 1 : -RETAINED + 1]]
    assert names == sorted(
        [
            *begins,
            *[entry_name(number) for number in range(numbers[0] + 1, len(ENTRIES) + 1)],
            *[f"journal/{number:012d}.snapshot.json" for number in numbers],
        ]
    )
    found = read_journal(store)
    assert said(found) == said(standing(ENTRIES), found) and found.checkpoints == MADE[-RETAINED:]


def test_the_next_driver_goes_on_under_the_next_number(store: Store) -> None:
    lived_at(store)
    found = read_journal(store)
    begin(store, found, lambda known: BEGUN, "third")
    assert (found.last, found.generation) == (len(ENTRIES) + 1, 3)
    again = read_journal(store)
    assert said(again) == said(found) and again.begins[-1] == len(ENTRIES) + 1


# ------------------------------------------------ drivers that come back


def stale(store: Store) -> Outcome:
    """What the first driver is told, which has hung since the second one began, and has been told of nothing."""
    return append(store, Entry(SECOND, 1, "nonce-1", Ended(99))).outcome


def test_a_stale_driver_is_refused_though_all_that_the_next_one_wrote_then_is_gone(store: Store) -> None:
    lived_at(store)
    names = store.names("journal/")
    assert not {entry_name(SECOND - 1), entry_name(SECOND + 1)} & set(names), "entries around it are collected"
    assert stale(store) is Outcome.FOREIGN


def test_without_the_beginnings_it_would_be_let_in(directory: Store) -> None:
    """Goal: the test above can fail."""
    [bug] = [each for each in COLLECTING if each.name == "a stale driver appends where entries were collected"]
    with planted(bug):
        lived_at(directory)
    assert stale(directory) is Outcome.OURS


def test_a_driver_that_hung_before_it_began_is_told(store: Store) -> None:
    """Goal: nobody begins where an entry was collected, and who reads finds nothing of the attempt. Method: it has read the journal when
    that had an entry of the second generation."""
    fill(store, ENTRIES[: SECOND + 2])
    known = read_journal(store)
    store.delete(entry_name(1))  # Made again below.
    for entry in ENTRIES[1 : SECOND + 2]:
        store.delete(entry_name(entry.number))
    lived_at(store)
    with pytest.raises(LocationError, match=f"another driver runs at .*: its journal has gone on beyond entry {SECOND + 3}"):
        begin(store, known, lambda _: BEGUN, "late")
    found = read_journal(store)
    assert said(found) == said(standing(ENTRIES), found)
    begin(store, found, lambda _: BEGUN, "in time")
    again = read_journal(store)
    assert again.nonce == "in time" and again.last == len(ENTRIES) + 1


def test_a_request_of_the_first_driver_that_is_done_twice_changes_nothing(store: Store) -> None:
    lived_at(store)
    for entry in ENTRIES[SECOND - 4 : SECOND - 1]:
        assert append(store, entry).outcome is Outcome.OURS, "its number is free; what it says was in"
    found = read_journal(store)
    assert said(found) == said(standing(ENTRIES), found)


def test_a_stale_driver_that_still_collects_deletes_nothing_that_counts(store: Store) -> None:
    lived_at(store)
    before = store.names("journal/")
    for made in MADE:
        assert collect(store, made) == 0
        if made is MADE[-RETAINED]:
            break
    assert store.names("journal/") == before


# ------------------------------------------------ stores that fail


@pytest.mark.parametrize(("method", "calls"), [("delete", 1), ("delete", 4), ("create", 1), ("get", 2), ("names", 1)])
def test_what_a_store_refuses_goes_another_time(directory: Store, method: str, calls: int) -> None:
    fill(directory, ENTRIES)
    for made in MADE[:3]:
        collect(directory, made)
    faulty = Fails(directory, method, OSError(errno.EIO, "broken"), calls)
    assert collected(faulty, MADE[5]) == 0
    found = read_journal(directory)
    assert said(found) == said(standing(ENTRIES), found)
    collect(directory, MADE[6])
    collect(directory, MADE[7])
    found = read_journal(directory)
    assert said(found) == said(standing(ENTRIES), found)
    assert entry_name(5) not in directory.names("journal/")


def test_an_entry_that_cannot_be_used_stays_and_so_does_everything_else(directory: Store, caplog: pytest.LogCaptureFixture) -> None:
    fill(directory, ENTRIES)
    collect(directory, MADE[1])
    directory.put(entry_name(12), b"{}")
    assert collected(directory, MADE[5]) == 0
    assert "old entries of the journal stay" in caplog.text
    assert len(directory.names("journal/")) == len(ENTRIES) + 1


def test_a_journal_that_is_collected_while_it_is_read_is_read_anew(directory: Store) -> None:
    fill(directory, ENTRIES)
    collect(directory, MADE[1])

    class Meanwhile(Around):
        asked = 0

        def get(self, name: str, most: int = 1 << 30) -> bytes:
            self.asked += 1
            if self.asked == 3:
                collect(self.store, MADE[5])
                collect(self.store, MADE[8])
            return self.store.get(name, most)

    found = read_journal(Meanwhile(directory))
    assert said(found) == said(standing(ENTRIES), found)


def test_who_reads_on_is_not_told_of_an_end_that_is_none(directory: Store) -> None:
    """What it would append next is refused: see `begin`."""
    fill(directory, ENTRIES[:20])
    known = read_journal(directory)
    fill(directory, ENTRIES[20:])
    for made in (MADE[5], MADE[8], MADE[9]):
        collect(directory, made)
    assert read_on(directory, known).last == 20
    with pytest.raises(LocationError, match="another driver"):
        begin(directory, known, lambda _: BEGUN, "late")


def test_removed_snapshots_are_named(directory: Store) -> None:
    lived_at(directory)
    for name in directory.names("journal/"):
        if "snapshot" in name:
            directory.delete(name)
    with pytest.raises(JournalCorrupt, match="or the snapshot that stood for it"):
        read_journal(directory)


def test_a_standing_is_that_of_a_location_without_entries(directory: Store) -> None:
    assert collect(directory, MADE[0]) == 0 and read_journal(directory) == Standing()
