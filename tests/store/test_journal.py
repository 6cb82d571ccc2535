"""The journal of a location: read to its end, never beyond what is whole, and appended to by one driver alone."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from evenflow.availability.content import Content
from evenflow.availability.entries import Begun, Cut, Ended, Entry, Logged, entry_name, to_bytes
from evenflow.availability.standing import Standing
from evenflow.errors import JournalCorrupt, LocationError
from evenflow.store import journal as module
from evenflow.store.directory import DirectoryStore
from evenflow.store.journal import Appended, Outcome, Unsure, append, begin, read_entry, read_journal
from evenflow.store.objects import MOST_BYTES, Store
from tests.store.faulty import Around, Fails

BEGUN = Begun("run", "flow", "00", {"sites": 2}, ((0, 0),), Content(1))


def entries(count: int, nonce: str = "mine", generation: int = 1) -> list[Entry]:
    """Of one generation: that it has begun, and then an epoch in each."""
    logged = [Logged({(0, 0): (Cut(epoch, epoch * 10, epoch * 10, 5, False, False),)}) for epoch in range(1, count)]
    return [Entry(number, generation, nonce, matter) for number, matter in enumerate([BEGUN, *logged], 1)]


def fill(store: Store, count: int) -> None:
    for entry in entries(count):
        assert append(store, entry) == Appended(Outcome.OURS)


def test_a_location_without_a_journal_stands_at_its_beginning(store: Store) -> None:
    found = read_journal(store)
    assert (found.last, found.begun, found.durable) == (0, None, 0)


def test_what_was_appended_is_read_again(store: Store) -> None:
    fill(store, 20)
    found = read_journal(store)
    assert (found.last, found.generation, found.nonce, found.durable, found.begun) == (20, 1, "mine", 19, BEGUN)


@pytest.mark.parametrize("count", [1, module.AT_ONCE, module.AT_ONCE + 1, 3 * module.AT_ONCE])
def test_entries_come_in_order_however_many_are_asked_for_at_once(tmp_path: Any, count: int) -> None:
    store = DirectoryStore(str(tmp_path))
    fill(store, count)
    assert read_journal(store).last == count


def test_many_entries_are_asked_for_at_once_where_each_takes_long_and_few_where_each_is_there(tmp_path: Any) -> None:
    """Goal: a restart waits neither for one answer after the other of a store that is far away, nor for threads of which each has next to
    nothing to do. Method: which threads ask; all of many at once do, where each answer comes late."""
    asked = set[int]()

    class Near(DirectoryStore):
        def get(self, name: str, most: int = MOST_BYTES) -> bytes:
            asked.add(threading.get_ident())
            time.sleep(0.002)
            return super().get(name, most)

    near = Near(str(tmp_path))
    fill(near, 3 * module.AT_ONCE)
    assert read_journal(near).last == 3 * module.AT_ONCE
    assert len(asked) <= module.NEAR_AT_ONCE + 1, "and who has asked for all of it"
    asked.clear()
    assert read_journal(Around(near)).last == 3 * module.AT_ONCE
    assert len(asked) > module.NEAR_AT_ONCE + 1


def test_a_journal_begins_with_its_first_entry_or_a_snapshot(tmp_path: Any) -> None:
    """What was deleted by hand was not collected: nobody knows what it said."""
    store = DirectoryStore(str(tmp_path))
    fill(store, 5)
    later = Entry(6, 2, "other", BEGUN)
    assert append(store, later).outcome is Outcome.OURS
    for entry in entries(5):
        store.delete(entry_name(entry.number))
    with pytest.raises(JournalCorrupt, match="entry 1 of the journal is missing, and entry 6 is there"):
        read_journal(store)


def test_what_is_no_entry_by_its_name_is_ignored(store: Store) -> None:
    fill(store, 2)
    for name in (
        "journal/readme",
        "journal/1.json",
        "journal/000000000003.json.bak",
        "journal/x/000000000003.json",
        "journal/0000000000003.json",
    ):
        store.create(name, b"\x80\x04 not mine")
    assert read_journal(store).last == 2


@pytest.mark.parametrize("gone", [2, 3, 7, 15])
def test_an_entry_that_is_missing_before_another_is_named_and_nothing_behind_it_believed(store: Store, gone: int) -> None:
    fill(store, 20)
    store.delete(entry_name(gone))
    with pytest.raises(JournalCorrupt, match=f"entry {gone} of the journal is missing, and entry 20 is there"):
        read_journal(store)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-10],
        lambda data: b"",
        lambda data: data.replace(b"mine", b"nine"),
        lambda data: b"\x80\x04\x95",
        lambda data: json.dumps({**json.loads(data), "number": 4}).encode(),
    ],
)
def test_an_altered_entry_is_refused(store: Store, spoil: Callable[[bytes], bytes]) -> None:
    fill(store, 5)
    store.put(entry_name(3), spoil(store.get(entry_name(3))))
    with pytest.raises(JournalCorrupt, match="entry 3"):
        read_journal(store)


def test_an_entry_in_the_place_of_another_is_refused(store: Store) -> None:
    fill(store, 5)
    store.put(entry_name(3), store.get(entry_name(4)))
    with pytest.raises(JournalCorrupt, match="entry 3 of the journal cannot be used: it says that it is entry 4"):
        read_journal(store)


def test_an_entry_of_more_bytes_than_any_is_not_read(tmp_path: Any) -> None:
    store = DirectoryStore(str(tmp_path))
    fill(store, 3)
    os.truncate(tmp_path / entry_name(2), 1 << 40)  # A hole: no disk is as large.
    with pytest.raises(JournalCorrupt, match=r"000000000002.json has more bytes than any entry"):
        read_journal(store)


def test_a_number_far_away_costs_nothing(store: Store) -> None:
    fill(store, 3)
    store.create("journal/999999999999.json", b"{}")
    with pytest.raises(JournalCorrupt, match="entry 4 of the journal is missing"):
        read_journal(store)


def test_a_listing_that_is_made_while_entries_come_may_have_a_later_one_without_an_earlier(store: Store) -> None:
    """A folder is not listed at one moment: what comes meanwhile is seen or not, whatever the order in which it came."""

    class Growing(Around):
        def __init__(self) -> None:
            super().__init__(store)
            self.looks = 0

        def names(self, prefix: str = "") -> list[str]:
            self.looks += 1
            if self.looks == 2:
                for entry in entries(6)[3:]:
                    store.create(entry_name(entry.number), to_bytes(entry))
                return [name for name in store.names(prefix) if name != entry_name(4)]
            return store.names(prefix)

    fill(store, 3)
    assert read_journal(Growing()).last == 6


def test_what_a_late_listing_does_not_show_is_read_all_the_same(store: Store) -> None:
    class ListsLate(Around):
        shown = 0

        def sizes(self, prefix: str = "") -> dict[str, int]:
            return dict(list(self.store.sizes(prefix).items())[: self.shown])

    fill(store, 6)
    late = ListsLate(store)
    for late.shown in (0, 1, 3):
        assert read_journal(late).last == 6


def test_a_store_that_cannot_be_read_is_said_to(store: Store) -> None:
    fill(store, 3)
    with pytest.raises(LocationError, match="cannot read the journal"):
        read_journal(Fails(store, "get", TimeoutError(errno.ETIMEDOUT, "slow"), 99))


# ------------------------------------------------ appending


def test_a_number_that_is_taken_is_another_drivers(store: Store) -> None:
    fill(store, 3)
    assert append(store, Entry(3, 2, "other", Ended(1))).outcome is Outcome.FOREIGN
    assert read_journal(store).nonce == "mine"


def test_an_append_that_was_done_before_is_ones_own(store: Store) -> None:
    fill(store, 3)
    assert append(store, entries(3)[-1]).outcome is Outcome.OURS


def test_an_append_whose_answer_was_lost_is_read_back(store: Store) -> None:
    lost = ConnectionResetError(errno.ECONNRESET, "lost")
    faulty = Fails(store, "create", lost, 1, done=True)
    waited: list[int] = []
    assert append(faulty, entries(1)[0], again=waited.append) == Appended(Outcome.OURS, lost)
    assert (faulty.calls, waited, read_journal(store).last) == (2, [1], 1)


def test_an_append_whose_answer_was_lost_may_have_been_anothers(store: Store) -> None:
    fill(store, 1)
    faulty = Fails(store, "create", ConnectionResetError(errno.ECONNRESET, "lost"), 1)
    assert append(faulty, Entry(1, 1, "other", BEGUN)).outcome is Outcome.FOREIGN


def test_a_store_that_does_not_answer_leaves_the_append_unknown(store: Store) -> None:
    slow = TimeoutError(errno.ETIMEDOUT, "slow")
    for method, done in (("create", False), ("create", True)):
        faulty = Fails(store, method, slow, 3, done=done)
        entry = entries(1)[0]
        assert append(faulty, entry, tries=3) == Appended(Outcome.UNKNOWN, slow)
        assert append(faulty, entry).outcome is Outcome.OURS, "the same entry may be tried again"
        store.delete(entry_name(1))


def test_a_refusal_that_cannot_be_read_back_leaves_the_append_unknown(store: Store) -> None:
    fill(store, 1)
    slow = TimeoutError(errno.ETIMEDOUT, "slow")
    assert append(Fails(store, "get", slow, 3), entries(1)[0]) == Appended(Outcome.UNKNOWN, slow)


def test_a_foreign_entry_of_more_bytes_than_any_is_foreign(tmp_path: Any) -> None:
    store = DirectoryStore(str(tmp_path))
    store.create(entry_name(1), b"x")
    os.truncate(tmp_path / entry_name(1), 1 << 40)
    assert append(store, entries(1)[0]).outcome is Outcome.FOREIGN


def test_of_two_drivers_that_append_each_number_is_one_drivers(store: Store) -> None:
    """Each goes on while its entries are its own, as a stale driver and its successor do."""
    begin = threading.Barrier(2)
    told: dict[str, list[int]] = {"left": [], "right": []}

    def drive(nonce: str) -> None:
        begin.wait()
        for entry in entries(30, nonce):
            if append(store, entry).outcome is not Outcome.OURS:
                return
            told[nonce].append(entry.number)

    drivers = [threading.Thread(target=drive, args=(nonce,)) for nonce in told]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert sorted(told["left"] + told["right"]) == list(range(1, 31)) and [] in told.values()
    assert [store.get(entry_name(e.number)) for e in entries(30, read_journal(store).nonce)] == [
        to_bytes(e) for e in entries(30, read_journal(store).nonce)
    ]


def begun(store: Store, nonce: str) -> Standing:
    """A driver begins; where the location stands then."""
    standing = read_journal(store)
    begin(store, standing, lambda known: BEGUN, nonce)
    return standing


def test_a_driver_that_begins_finds_where_the_location_stands(store: Store) -> None:
    assert begun(store, "first").generation == 1
    assert append(store, Entry(2, 1, "first", Logged({(0, 0): (Cut(1, 10, 10, 5, False, False),)}))).outcome is Outcome.OURS
    found = begun(store, "second")
    assert (found.last, found.generation, found.nonce, found.durable) == (3, 2, "second", 1)
    assert append(store, Entry(3, 1, "first", Ended(1))).outcome is Outcome.FOREIGN, "the first one finds that it has been replaced"
    assert read_journal(store) == found and read_entry(store, 3) == Entry(3, 2, "second", BEGUN) and read_entry(store, 4) is None


def test_of_two_drivers_that_begin_at_the_same_moment_one_is_told(store: Store) -> None:
    class Outrun(Around):
        def create(self, name: str, data: bytes) -> None:
            begun(store, "other")
            store.create(name, data)

    with pytest.raises(LocationError, match="another driver has begun"):
        begun(Outrun(store), "mine")
    assert read_journal(store).nonce == "other"


def test_a_driver_that_cannot_write_does_not_begin(store: Store) -> None:
    with pytest.raises(LocationError, match=r"cannot begin the journal.*nobody answers in time"):
        begun(Fails(store, "create", TimeoutError(errno.ETIMEDOUT, "slow"), 99), "mine")
    assert read_journal(store).last == 0


def test_who_has_begun_asks_again_whether_anybody_else_has(store: Store) -> None:
    """The entry is in: to give up then would leave it there, and nobody who goes on."""
    asked: list[int] = []

    class Hiccup(Around):
        left = 2

        def names(self, prefix: str = "") -> list[str]:
            if self.left and entry_name(1) in super().names(prefix):
                self.left -= 1
                raise TimeoutError(errno.ETIMEDOUT, "slow")
            return super().names(prefix)

    standing = read_journal(store)
    begin(Hiccup(store), standing, lambda known: BEGUN, "mine", again=asked.append)
    assert (standing.generation, standing.nonce, asked) == (1, "mine", [1, 2])


@pytest.mark.parametrize("method", ["create", "names"])
def test_who_may_have_begun_is_told_with_which_entry(tmp_path: Any, method: str) -> None:
    """So that it does not take that one for another driver's."""
    store = DirectoryStore(str(tmp_path))
    standing = begun(store, "first")
    with pytest.raises(Unsure, match="nobody answers in time") as unsure:
        begin(Fails(store, method, TimeoutError(errno.ETIMEDOUT, "slow"), 99, done=True), standing, lambda known: BEGUN, "mine")
    assert isinstance(unsure.value.__cause__, OSError), "who stands by waits on"
    found = read_journal(store)
    assert unsure.value.own == (found.generation, found.nonce) == (2, "mine")


def test_a_bound_holds_for_what_is_read_too(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry may grow between the listing and the look at it."""
    store = DirectoryStore(str(tmp_path))
    fill(store, 3)
    monkeypatch.setattr(module, "MOST_ENTRY_BYTES", 200)

    class Small(Around):
        def sizes(self, prefix: str = "") -> dict[str, int]:
            return dict.fromkeys(self.store.sizes(prefix), 1)

        def get(self, name: str, most: int = MOST_BYTES) -> bytes:
            assert most == 200
            return self.store.get(name, most)

    with pytest.raises(JournalCorrupt, match="more bytes than any entry"):
        read_journal(Small(store))
