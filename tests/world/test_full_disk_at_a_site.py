"""Temporary files of a site find no room while Spark pushes rows: real sockets, and a file that the kernel says has none."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import IO, Any

import pyarrow as pa
import pytest

from evenflow.errors import SourceError
from evenflow.site.events import RowsArrived
from evenflow.site.staging import PushedFeed
from evenflow.world.spark.bridge import pushing
from evenflow.world.spark.bridge.pushing import Ingresses, Pushing, PushingOnce
from evenflow.world.spark.executor import guests
from evenflow.world.spark.executor.guests import Guests
from evenflow.world.spark.net import kept
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.handshake import Hello
from evenflow.world.spark.net.listener import Listener, open_port
from evenflow.world.spark.net.reactor import Reactor
from evenflow.world.spark.net.trust import trust_in

SECRET = b"s" * 32
SCHEMA = pa.schema([("v", pa.int64())])
RUN = 7
FEW, MANY = 10, 10_000
"""Rows that fit into the file's buffer, so that only its end finds no room, and rows that do not."""


class Site:
    """A site that hosts one ingress partition, and tells who leads it, in a thread of its own. full: temporary files have no room."""

    def __init__(self, *, replicated: bool) -> None:
        self.reactor = Reactor()
        self.feed = PushedFeed(0, 0, SCHEMA, "in", replicated=replicated)
        self.parts = {RUN: SimpleNamespace(pushed_feed=lambda source, to: self.feed)}
        self.guests = Guests(self)  # type: ignore[arg-type]
        self.listener = Listener(open_port("127.0.0.1"), self.reactor, SECRET, self._welcome)
        self.address = ("127.0.0.1", self.listener.port)
        self.values: list[int] = []
        self.error: BaseException | None = None
        self.full, self._closing = True, False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def ingresses(self) -> Ingresses:
        return Ingresses(RUN, "in", (self.address,), self.address, self.feed.replicated, trust_in(SECRET))

    def temporary(self, prefix: str) -> IO[bytes]:
        return open("/dev/full", "w+b") if self.full else tempfile.TemporaryFile(prefix=prefix)

    def _welcome(self, connection: Connection, hello: Hello) -> None:
        if hello["as"] == "leads":
            with connection:
                connection.tell(leads=self.address, over=False)
        else:
            self.guests.accept(connection, hello)

    def _serve(self) -> None:
        rows = 0
        try:
            while not self._closing:
                self.reactor.poll(0.01)
                for event in self.feed.poll(0, 100_000):
                    if isinstance(event, RowsArrived):
                        self.values += event.batch.column("v").to_pylist()
                        rows += event.batch.num_rows
                self.feed.settle(rows)
        except BaseException as error:
            self.error = error

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._thread.join(20)
        self.guests.close()
        self.listener.close()
        self.reactor.close()
        assert self.error is None, "a guest has ended the site"


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def make(*, replicated: bool) -> Site:
        sites.append(Site(replicated=replicated))
        monkeypatch.setattr(kept, "tempfile", SimpleNamespace(TemporaryFile=sites[-1].temporary))
        return sites[-1]

    monkeypatch.setattr(guests, "STAGED_BYTES_MAX", 0)
    yield make
    for site in sites:
        site.close()


def push(made: Any, rows: int) -> None:
    with made:
        for start in range(0, rows, 1000):
            made.add(pa.record_batch({"v": range(start, min(rows, start + 1000))}, SCHEMA).serialize())
        made.finish()


@pytest.mark.parametrize("rows", [FEW, MANY])
def test_an_attempt_that_finds_no_room_fails_and_the_next_one_is_taken(
    begin: Callable[..., Site], caplog: pytest.LogCaptureFixture, rows: int
) -> None:
    """Goal: no row is lost, the task says what it was, and the site lives. Method: Spark tries the task again when there is room."""
    site = begin(replicated=False)
    with pytest.raises(SourceError, match=r"'in'.*partition 0 of Spark's batch 0.*No space left on device"):
        push(PushingOnce(site.ingresses(), 0, 0, 0), rows)
    assert any("No space left on device" in record.getMessage() for record in caplog.records)
    site.full = False
    push(PushingOnce(site.ingresses(), 0, 0, 1), rows)
    site.close()
    assert site.values == list(range(rows)) and site.feed.dropped == 0


@pytest.mark.parametrize("rows", [FEW, MANY])
def test_with_replicas_the_task_waits_for_room(begin: Callable[..., Site], monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Goal: the same attempt is taken as soon as there is room. Method: there is when it has been refused twice."""
    refused = list[float]()

    def sleep(seconds: float) -> None:
        refused.append(seconds)
        site.full = len(refused) < 2

    monkeypatch.setattr(pushing, "time", SimpleNamespace(monotonic=pushing.time.monotonic, sleep=sleep))
    site = begin(replicated=True)
    push(Pushing(site.ingresses(), 0, 0, 0), rows)
    site.close()
    assert site.values == list(range(rows)) and site.feed.dropped == 0
    assert refused == [pushing.ROOM_S] * 2, "what it has to send again may be much"


def test_with_replicas_the_task_says_after_a_while_that_there_is_no_room(
    begin: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "PATIENCE_S", 0.0)
    site = begin(replicated=True)
    with pytest.raises(SourceError, match=r"no site has taken the rows of partition 0.*No space left on device"):
        push(Pushing(site.ingresses(), 0, 0, 0), FEW)
    site.close()
    assert not site.values


def test_what_a_killed_task_leaves_on_a_full_disk_is_forgotten(begin: Callable[..., Site]) -> None:
    site = begin(replicated=False)
    with PushingOnce(site.ingresses(), 0, 0, 0) as made:
        made.add(pa.record_batch({"v": range(FEW)}, SCHEMA).serialize())
    site.full = False
    push(PushingOnce(site.ingresses(), 0, 0, 1), FEW)
    site.close()
    assert site.values == list(range(FEW))
