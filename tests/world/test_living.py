"""A driver says that it lives where its journal does not."""

from __future__ import annotations

import errno
from pathlib import Path
from threading import Event

from tests.restarting import wait_until
from tests.store.faulty import Around

from evenflow.availability.alive import EVERY, Alive, alive_name, from_bytes
from evenflow.availability.entries import Entry, Stopped, entry_name, to_bytes
from evenflow.errors import Fenced
from evenflow.store.directory import DirectoryStore
from evenflow.world.spark.driver.living import Living


def said(store: DirectoryStore) -> Alive | None:
    try:
        return from_bytes(store.get(alive_name(3)))
    except FileNotFoundError:
        return None


def test_it_says_so_at_first_and_when_nothing_has_been_appended_since(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path))
    living = Living("run-1", store, 3, "nonce", 8.0, now_s=lambda: 77.0)
    assert living.every_s == EVERY * 8.0
    for appends, count in ((0, 1), (5, 1), (9, 1), (9, 2), (9, 3), (10, 3)):
        living.beat(appends)
        wait_until(lambda count=count: (found := said(store)) is not None and found.count == count, 10, f"{count} have been said")  # type: ignore[misc]
    living.close()
    assert living.join(10.0)
    assert said(store) == Alive(3, "nonce", 3, 8.0, 77.0)


def test_a_store_that_hangs_or_fails_holds_nobody_up(tmp_path: Path) -> None:
    """The coordinator's thread goes on, and what could not be said is said with the next word."""
    hangs, goes_on = Event(), Event()

    class Slow(Around):
        times = 0

        def put(self, name: str, data: bytes) -> None:
            self.times += 1
            if self.times == 1:
                hangs.set()
                goes_on.wait(10.0)
                raise TimeoutError(errno.ETIMEDOUT, "no answer")
            super().put(name, data)

    store = DirectoryStore(str(tmp_path))
    living = Living("run-1", Slow(store), 3, "nonce", 8.0)
    living.beat(0)
    assert hangs.wait(10.0)
    for _ in range(3):
        living.beat(0)
    assert said(store) is None
    goes_on.set()
    wait_until(lambda: (found := said(store)) is not None and found.count == 4, 10, "the newest is said")
    living.close()
    assert living.join(10.0)


def test_it_looks_whether_another_driver_has_begun_where_entries_are_seldom(tmp_path: Path) -> None:
    """What is this driver's own says nothing, nor what cannot be used."""
    store, told = DirectoryStore(str(tmp_path)), list[Fenced]()
    living = Living("run-1", store, 3, "nonce", 8.0, replaced=told.append)

    def entry(number: int, generation: int, nonce: str) -> None:
        store.create(entry_name(number), to_bytes(Entry(number, generation, nonce, Stopped(7))))

    entry(5, 3, "nonce")
    store.put(entry_name(6), b"torn")
    entry(7, 4, "another")
    for count, last in ((1, 3), (2, 4), (3, 5), (4, 6)):
        assert not told
        living.beat(0, last)
        wait_until(lambda count=count: (found := said(store)) is not None and found.count == count, 10, "it is said")  # type: ignore[misc]
    wait_until(lambda: bool(told), 10, "the other one is seen")
    assert "another driver has begun generation 4 at the checkpoint location; this one was generation 3 and ends" in str(told[0])
    living.close()
    assert living.join(10.0)
