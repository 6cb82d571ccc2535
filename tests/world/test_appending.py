"""The thread that appends to the journal: what the store says becomes an answer, one for each thing that was asked for."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from evenflow.availability.entries import Ended, Entry, entry_name
from evenflow.coordinator.events import Append, Appended, AppendRefused, AppendUnknown, EntryRead, ReadEntry, ReadFailed
from evenflow.errors import JournalCorrupt, LocationError
from evenflow.store.directory import DirectoryStore
from evenflow.store.journal import MOST_ENTRY_BYTES
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
