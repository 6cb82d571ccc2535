"""The thread that appends to the journal: what the store says becomes an answer, one for each thing that was asked for."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from tests.store.faulty import Around

from evenflow.availability.entries import Completed, Ended, Entry, Piece, entry_name
from evenflow.availability.retained import CHECKPOINTS, folder_of
from evenflow.coordinator.events import Append, Appended, AppendRefused, AppendUnknown, EntryRead, ReadEntry, ReadFailed, Sweep
from evenflow.errors import JournalCorrupt, LocationError
from evenflow.exchange.section import ROWS
from evenflow.store.directory import DirectoryStore
from evenflow.store.journal import MOST_ENTRY_BYTES
from evenflow.store.objects import Store
from evenflow.world.spark.driver.appending import Answer, Appender

ONE = Entry(1, 1, "mine", Ended(3))


class Asked:
    """An appender at a store, and what it answers."""

    def __init__(self, store: Any) -> None:
        self._answers: Queue[Answer] = Queue()
        self.appender = Appender("run", store, 4, self._answers.put)

    def __call__(self, action: Append | ReadEntry) -> Answer:
        self.appender.ask(action)
        return self._answers.get(timeout=10.0)


class Failing(DirectoryStore):
    """Does what it is asked, and then says that it failed."""

    def create(self, name: str, data: bytes) -> None:
        super().create(name, data)
        raise TimeoutError("no answer")

    def get(self, name: str, most: int = 1 << 30) -> bytes:
        raise ConnectionError("no route")


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(str(tmp_path))


def test_an_entry_is_appended_and_read_back(store: DirectoryStore) -> None:
    ask = Asked(store)
    assert ask(ReadEntry(1)) == EntryRead(1, None)
    assert ask(Append(ONE)) == Appended(1)
    found = ask(ReadEntry(1))
    assert isinstance(found, EntryRead) and found.entry == ONE and found.entry.matter == ONE.matter
    assert ask(Append(ONE)) == AppendRefused(1)
    told = ask.appender.progress(7)
    assert (told.location, told.generation, told.durable, told.appends) == (store.url, 4, 7, 1)
    assert told.bytes > 0 and told.append_ms is not None and told.append_ms > 0
    ask.appender.close()
    assert ask.appender.join(10.0)


def test_a_store_that_fails_leaves_it_open_what_has_become_of_an_entry(tmp_path: Path) -> None:
    ask = Asked(Failing(str(tmp_path)))
    assert ask(Append(ONE)) == AppendUnknown(1, "TimeoutError: no answer")
    assert (tmp_path / entry_name(1)).exists()
    failed = ask(ReadEntry(1))
    assert isinstance(failed, ReadFailed) and isinstance(failed.error, LocationError) and "no route" in str(failed.error)


def test_an_entry_that_is_none_is_told_as_such(tmp_path: Path, store: DirectoryStore) -> None:
    store.create(entry_name(1), b'{"number": 1}')
    failed = Asked(store)(ReadEntry(1))
    assert isinstance(failed, ReadFailed) and isinstance(failed.error, JournalCorrupt)


def test_while_an_append_waits_its_age_grows(store: DirectoryStore) -> None:
    began, go_on = threading.Event(), threading.Event()

    class Slow:
        url = "slow"

        def create(self, name: str, data: bytes) -> None:
            began.set()
            assert go_on.wait(10.0)

    appended: Queue[Answer] = Queue()
    appender = Appender("run", Slow(), 1, appended.put)  # type: ignore[arg-type]
    assert appender.progress(0).age_s == 0.0
    appender.ask(Append(ONE))
    assert began.wait(10.0)
    first = appender.progress(0).age_s
    while appender.progress(0).age_s <= first + 0.01:
        pass
    go_on.set()
    assert appended.get(timeout=10.0) == Appended(1)
    assert appender.progress(0).age_s == 0.0


def test_its_last_word_is_what_came_behind(store: DirectoryStore) -> None:
    """A driver that has lost its sites finds out whether it was replaced."""
    ask, heard = Asked(store), Queue[Answer]()
    store.create(entry_name(1), b"")
    ask.appender.close(1, heard.put)
    assert isinstance(heard.get(timeout=10.0), ReadFailed)
    assert ask.appender.join(10.0)


def test_an_entry_that_is_larger_than_any_is_not_read(store: DirectoryStore, tmp_path: Path) -> None:
    """Others may be able to write where the location is: what is read back must not fill the driver's memory."""
    store.create(entry_name(1), b"")
    os.truncate(tmp_path / entry_name(1), MOST_ENTRY_BYTES + 1)
    ask = Asked(store)
    answer = ask(ReadEntry(1))
    assert isinstance(answer, ReadFailed) and isinstance(answer.error, JournalCorrupt) and "more bytes than any entry" in str(answer.error)
    ask.appender.close()


# ------------------------------------------------ what goes


class Busy(Around):
    """A store whose listing of rows is waited for as long as a test wants. begun: somebody lists them; most: so many at the same time."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.begun, self.goes_on = threading.Semaphore(0), threading.Semaphore(0)
        self.lists, self.at_once, self.most = 0, 0, 0

    def names(self, prefix: str = "") -> list[str]:
        if prefix == ROWS:
            self.lists, self.at_once = self.lists + 1, self.at_once + 1
            self.most = max(self.most, self.at_once)
            self.begun.release()
            assert self.goes_on.acquire(timeout=10.0)
            self.at_once -= 1
        return super().names(prefix)


def test_one_sweep_at_a_time_and_the_last_one_takes_what_those_between_had_to_say(tmp_path: Path) -> None:
    """Goal: a store that is slow is not asked by more and more who sweep. Method: five checkpoints become whole while it lists. Each says
    once which rows have gone with it; only the last one's checkpoint is the oldest that is kept."""
    store = DirectoryStore(str(tmp_path))
    busy = Busy(store)
    rows = [f"{ROWS}000004/0000-00000000{number}.arrow" for number in range(8)]
    states = [f"{folder_of(4, number)}/000-00-0000.parquet" for number in range(8)]
    for name in (*rows, *states):
        store.put(name, b"data")
    appender = Appender("run", busy, 4, lambda answer: None)

    def sweep(number: int) -> None:
        kept = Completed(number, number, (Piece(0, 0, (0,), {}, ()),), generation=4)
        appender.sweep(Sweep((kept,), 4, frozenset(rows[number + 1 :]), frozenset([rows[number]])))

    sweep(1)
    assert busy.begun.acquire(timeout=10.0)
    for number in range(2, 7):
        sweep(number)
    busy.goes_on.release()
    assert busy.begun.acquire(timeout=10.0), "what came meanwhile is not lost"
    assert not busy.begun.acquire(blocking=False) and (busy.lists, busy.most) == (2, 1)
    busy.goes_on.release()
    sweeping = [thread for thread in threading.enumerate() if thread.name == "evenflow-journal-run-sweep"]
    for thread in sweeping:
        thread.join(10.0)
    assert store.names(ROWS) == [rows[0], rows[7]] and store.names(CHECKPOINTS) == states[6:]
    sweep(7)
    assert busy.begun.acquire(timeout=10.0), "and the next one goes on as ever"
    busy.goes_on.release()
    appender.close()
    assert appender.join(10.0)
