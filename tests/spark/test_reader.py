"""Spark's reader and the replicas of an egress (protocol O1, O2): every epoch once, whoever dies, is behind, or does not answer.

Two sites with what a reader meets there, real sockets, and a coordinator that says where they are; no Spark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from evenflow.errors import SourceError
from evenflow.stream.schema import parse_type
from evenflow.world.spark.bridge import stream_source
from evenflow.world.spark.bridge.stream_source import Place, commit, newest, present_replicas, rows, spark_type, tell_where
from evenflow.world.spark.executor import guests
from evenflow.world.spark.executor.guests import Guests
from evenflow.world.spark.executor.held import HeldEpoch, HeldEpochs
from evenflow.world.spark.net.handshake import dial, new_secret
from evenflow.world.spark.net.listener import Listener, open_port
from evenflow.world.spark.net.reactor import Clock, Reactor

SCHEMA = pa.schema([("v", pa.int64())])
SECRET = new_secret()
RUN, SINK = 7, "out"


class Server:
    """A port with an event loop of its own."""

    def __init__(self, welcome: Callable[[Any, Any], None]) -> None:
        self.reactor = Reactor()
        self.listener = Listener(open_port("127.0.0.1"), self.reactor, SECRET, welcome)
        self.address = ("127.0.0.1", self.listener.port)
        self._closing = threading.Event()
        self.closers: list[Callable[[], None]] = [self.listener.close]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._closing.is_set():
            self.reactor.poll(0.5)
        for close in self.closers:
            close()
        self.reactor.close()

    def kill(self) -> None:
        """Every connection breaks, and nobody listens any more."""
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self.reactor.wake()
            self._thread.join(5)


class EgressSite:
    """What a reader meets at a site. committed: epochs that the part has been told of."""

    def __init__(self, since: int = 0) -> None:
        self.held = HeldEpochs(SCHEMA, since)
        self.told: list[int] = []
        part = SimpleNamespace(held_for=self._held_for, committed_by_spark=self._committed, taken_by_spark=self._take)
        self.parts = {RUN: part}
        self.clock = Clock()
        self.server = Server(lambda sock, hello: self.guests.accept(sock, hello))
        self.reactor, self.address = self.server.reactor, self.server.address
        self.guests = Guests(self)  # type: ignore[arg-type]
        self.server.closers.append(self.guests.close)

    def _committed(self, sink: str, through: int, now_us: int) -> None:
        self.told.extend(held.epoch for held in self.held.commit(through))

    def _held_for(self, sink: str) -> HeldEpochs | None:
        return self.held if sink == SINK else None

    def _take(self, sink: str, taken: int, stored: int, now_us: int) -> None:
        self.held.take(taken)
        self._committed(sink, stored, now_us)

    def hold(self, *numbers: int, last: bool = False) -> None:
        for number in numbers:
            self.held.begin(number if self.held.since else 1)
            made = HeldEpoch(number, batch(number), 0, last and number == numbers[-1])
            self.told.extend(held.epoch for held in self.held.hold(made))


def batch(epoch: int) -> pa.RecordBatch:
    """Epoch 3 has no rows; epoch 2 has more than fit into one message in these tests."""
    count = {2: 10, 3: 0}.get(epoch, 2)
    return pa.record_batch([pa.array([epoch * 100 + i for i in range(count)], pa.int64())], schema=SCHEMA)


def values(*epochs: int) -> list[int]:
    return [value for epoch in epochs for value in batch(epoch).column(0).to_pylist()]


class Scene:
    """Sites, and a coordinator that knows which of them are there."""

    def __init__(self, *sites: EgressSite) -> None:
        self.sites = dict(enumerate(sites))
        self.known = {i: SimpleNamespace(address=site.address) for i, site in self.sites.items()}
        self.run: Any = SimpleNamespace(
            over=threading.Event(),
            layout=SimpleNamespace(segments=[SimpleNamespace(id=0, sink=None), SimpleNamespace(id=1, sink=SINK)]),
            machine=SimpleNamespace(plan=SimpleNamespace(hosts=lambda segment: list(self.sites) if segment == 1 else [])),
        )
        self.coordinator = Server(lambda sock, hello: tell_where(sock, hello, {RUN: self.run}, self.known))  # type: ignore[arg-type]
        self.place = Place(RUN, SINK, self.coordinator.address, SECRET)
        self.addresses = [site.address for site in sites]

    def kill(self, index: int) -> None:
        self.sites[index].server.kill()
        del self.known[index]

    def read(self, after: int, through: int, known: Any = None) -> list[int]:
        batches = rows(self.place, SCHEMA.serialize().to_pybytes(), self.addresses if known is None else known, after, through)
        return [value for got in batches for value in got.column(0).to_pylist()]

    def close(self) -> None:
        for server in [self.coordinator, *(site.server for site in self.sites.values())]:
            server.kill()


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(guests, "FETCH_ROWS_MAX", 4)
    monkeypatch.setattr(stream_source, "DIAL_S", 0.3)
    monkeypatch.setattr(stream_source, "ANSWER_S", 0.3)
    monkeypatch.setattr(stream_source, "SILENCE_S", 0.3)
    monkeypatch.setattr(stream_source, "COMMIT_S", 1.0)
    scene = Scene(EgressSite(), EgressSite())
    yield scene
    scene.close()


def test_any_replica_gives_the_same_rows(pair: Scene) -> None:
    for site in pair.sites.values():
        site.hold(1, 2, 3, 5)
    for known in (pair.addresses, pair.addresses[::-1]):
        assert pair.read(0, 5, known) == values(1, 2, 5)
        assert pair.read(1, 3, known) == values(2)
    assert pair.read(0, 5, []) == values(1, 2, 5), "a task that knows nobody asks the coordinator"


@pytest.mark.parametrize("messages", range(1, 9))
def test_a_site_that_dies_in_the_middle_is_replaced_without_a_row_twice(
    pair: Scene, messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies after so many messages: within an epoch, between two, before the last word."""
    dying = pair.sites[0]
    sent = 0
    real = guests.Channel.send

    def send(channel: Any, kind: int, pieces: Any) -> None:
        nonlocal sent
        if threading.current_thread() is dying.server._thread:
            sent += 1
            if sent == messages + 1:
                pair.known.pop(0, None)
                dying.server.kill()
                channel.close()
        real(channel, kind, pieces)

    monkeypatch.setattr(guests.Channel, "send", send)
    for site in pair.sites.values():
        site.hold(1, 2, 3, 4)
    assert pair.read(0, 4) == values(1, 2, 4)
    assert sent > messages


def test_a_replica_that_is_behind_is_waited_for(pair: Scene) -> None:
    pair.sites[0].hold(1, 2)
    pair.sites[1].hold(1)
    facts, known = newest(pair.place, pair.addresses)
    assert facts is not None and facts["newest"] == 2
    pair.kill(0)
    later = threading.Timer(0.2, lambda: pair.sites[1].reactor.call_soon(lambda: pair.sites[1].hold(2)))
    later.start()
    assert pair.read(0, 2, known) == values(1, 2)


def test_a_replica_that_joined_late_is_not_asked_for_what_it_never_had() -> None:
    scene = Scene(EgressSite(since=2), EgressSite())
    scene.sites[0].hold(4)
    scene.sites[1].hold(1, 2, 4)
    assert scene.read(0, 4) == values(1, 2, 4)
    assert scene.read(2, 4) == values(4)
    scene.close()


def test_a_site_that_has_been_stopped_holds_nobody_up_for_long(pair: Scene) -> None:
    """It takes connections, as the kernel does for a stopped process, and says nothing."""
    pair.sites[1].hold(1, 2)
    silent = open_port("127.0.0.1")
    address = ("127.0.0.1", silent.getsockname()[1])
    pair.known[0] = SimpleNamespace(address=address)
    facts, known = newest(pair.place, [address, *pair.addresses])
    assert facts is not None and facts["newest"] == 2
    assert known[0] == pair.addresses[1]
    assert pair.read(0, 2, [address, pair.addresses[1]]) == values(1, 2)
    silent.close()


def test_a_commit_reaches_all_replicas_and_one_that_is_behind_forgets_at_once_what_comes(pair: Scene) -> None:
    first, second = pair.sites[0], pair.sites[1]
    first.hold(1, 2, 3)
    second.hold(1)
    assert sorted(commit(pair.place, pair.addresses, 2)) == sorted(pair.addresses)
    assert (first.told, second.told) == ([1, 2], [1])
    second.hold(2, 3)
    assert second.told == [1, 2]
    for site in pair.sites.values():
        site.hold(4)
    commit(pair.place, pair.addresses, 4)
    assert (first.told, second.told) == ([1, 2, 4], [1, 2, 4]), "epoch 3 has no rows, so it is not kept"
    commit(pair.place, pair.addresses, 4)
    assert first.told == [1, 2, 4]


def test_every_replica_hears_what_has_been_planned_as_soon_as_it_can(pair: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second site cannot be reached at first. Who has heard is not asked again in vain."""
    reachable, asked = [pair.addresses[0]], []
    real = stream_source.question

    def question(place: Place, address: Any, request: Any) -> Any:
        asked.append(address)
        return real(place, address, request) if address in reachable else None

    monkeypatch.setattr(stream_source, "question", question)
    for site in pair.sites.values():
        site.hold(1, 2)
    told: dict[Any, int] = {}
    newest(pair.place, pair.addresses, 2, told)
    assert [site.held.taken for site in pair.sites.values()] == [2, 0]
    reachable.append(pair.addresses[1])
    newest(pair.place, pair.addresses, 2, told)
    assert [site.held.taken for site in pair.sites.values()] == [2, 2]
    asked.clear()
    newest(pair.place, pair.addresses, 2, told)
    assert asked == [pair.addresses[0]]


def test_what_has_been_planned_is_kept_and_holds_no_room() -> None:
    held = HeldEpochs(SCHEMA)
    held.begin(1)
    for number in (1, 2, 3, 4, 5):
        held.hold(HeldEpoch(number, batch(number), 0, False))
    assert (held.taken_through, held.stored_through) == (0, 0)
    held.take(2)
    assert (held.taken_through, held.stored_through) == (3, 0), "epoch 3 has no rows"
    assert held.has(0, 5)
    held.take(5)
    assert (held.taken_through, held.stored_through) == (5, 0)
    held.hold(HeldEpoch(6, batch(3), 0, False))
    assert (held.taken_through, held.stored_through) == (6, 0)
    assert [gone.epoch for gone in held.commit(4)] == [1, 2, 4]
    assert (held.taken_through, held.stored_through) == (6, 4)
    held.commit(5)
    assert held.stored_through == 6


def test_a_copy_that_is_being_made_hears_what_it_need_not_wait_for(pair: Scene) -> None:
    """It has had no epoch yet, and is level when all before its first one has been stored: epochs without rows as well."""
    for number in (1, 2, 3):
        pair.sites[0].hold(number)
    assert not pair.sites[1].held.begun
    commit(pair.place, pair.addresses, 2)
    newest(pair.place, pair.addresses, 2, {})
    copied = pair.sites[1].held
    assert (copied.committed, copied.stored_through, copied.taken_through) == (3, 3, 3)
    pair.sites[1].hold(4)
    assert copied.begun


def test_what_is_offered_makes_spark_commit_what_it_has() -> None:
    """Rows are offered; behind the last ones an epoch without rows, and at the end the end; and nothing when all has been committed."""
    held = HeldEpochs(SCHEMA)
    held.begin(1)
    assert held.offer(0) is None
    held.hold(HeldEpoch(1, batch(1), 0, False))
    assert held.offer(0) == {"epoch": 1}
    held.take(1)
    assert held.offer(1) is None
    assert held.offer(0) == {"epoch": 1}, "another query, which begins at what has been committed, reads it again"
    held.hold(HeldEpoch(2, batch(3), 0, False))
    assert held.offer(1) == {"epoch": 2}
    held.commit(1)
    assert held.offer(2) is None
    held.hold(HeldEpoch(3, batch(3), 0, False))
    assert held.offer(2) is None, "nothing waits to be committed"
    held.hold(HeldEpoch(4, batch(1), 0, True))
    assert held.offer(2) == {"epoch": 4}
    assert held.offer(4) == {"epoch": 4, "end": True}
    held.commit(4)
    assert held.offer(4) is None


def test_a_replica_that_the_reader_did_not_know_hears_commits_too(pair: Scene) -> None:
    for site in pair.sites.values():
        site.hold(1)
    assert commit(pair.place, pair.addresses[:1], 1) == pair.addresses
    assert pair.sites[1].told == [1]


def test_only_the_last_commit_is_said_until_everybody_has_heard_it(pair: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second site is there, says the coordinator, but cannot be reached for a while."""
    asked: list[Any] = []
    real = stream_source.question

    def question(place: Place, address: Any, request: Any) -> Any:
        asked.append(address)
        return None if address == pair.addresses[1] and asked.count(address) % 3 else real(place, address, request)

    monkeypatch.setattr(stream_source, "question", question)
    for site in pair.sites.values():
        site.hold(1, 2, last=True)
    commit(pair.place, pair.addresses, 1)
    assert (pair.sites[0].told, pair.sites[1].told) == ([1], [])
    asked.clear()
    commit(pair.place, pair.addresses, 2)
    assert (pair.sites[0].told, pair.sites[1].told) == ([1, 2], [1, 2])
    assert asked.count(pair.addresses[0]) == 1


def test_a_run_that_is_over_has_nothing_new_and_says_so_to_who_wants_rows(pair: Scene) -> None:
    pair.sites[0].parts.clear()
    pair.sites[1].parts.clear()
    pair.run.over.set()
    assert newest(pair.place, pair.addresses) == (None, [])
    assert commit(pair.place, pair.addresses, 4) == []
    with pytest.raises(SourceError, match="epochs 3 to 4 of sink 'out' are gone: the run is over"):
        pair.read(2, 4)


def test_an_engine_that_was_stopped_is_not_waited_for(pair: Scene) -> None:
    pair.close()
    began_s = time.monotonic()
    assert newest(pair.place, pair.addresses) == (None, pair.addresses)
    with pytest.raises(SourceError, match="are gone"):
        pair.read(0, 4)
    assert time.monotonic() - began_s < 10


def test_without_a_coordinator_the_known_replicas_do(pair: Scene) -> None:
    pair.sites[1].hold(1, 2)
    pair.coordinator.kill()
    pair.sites[0].server.kill()
    facts, known = newest(pair.place, pair.addresses)
    assert facts is not None and known == pair.addresses[::-1]
    assert pair.read(0, 2) == values(1, 2)
    commit(pair.place, pair.addresses, 2)
    assert pair.sites[1].told == [1, 2]


def test_what_another_query_has_committed_is_an_error_at_once(pair: Scene) -> None:
    for site in pair.sites.values():
        site.hold(1, 2, 4)
    commit(pair.place, pair.addresses, 2)
    with pytest.raises(SourceError, match="epochs 1 to 4 of sink 'out' are gone: another query has committed them"):
        pair.read(0, 4)


def test_the_coordinator_tells_where_the_replicas_are(pair: Scene) -> None:
    assert present_replicas(pair.run, SINK, pair.known) == pair.addresses  # type: ignore[arg-type]
    with dial(pair.coordinator.address, SECRET, {"as": "where", "run": RUN + 1, "sink": SINK}) as connection:
        assert connection.hear() == {"replicas": []}
    pair.kill(0)
    assert stream_source.where(pair.place) == pair.addresses[1:]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("timestamp", "timestamp_ntz"),
        ("array<timestamp>", "array<timestamp_ntz>"),
        ("map<timestamp, timestamp_ltz>", "map<timestamp_ntz, timestamp_ltz>"),
        ("struct<timestamp: bigint, at: timestamp>", "struct<timestamp: bigint, at: timestamp_ntz>"),
        (
            "array<struct<`a timestamp: of`: struct<timestamp: timestamp>>>",
            "array<struct<`a timestamp: of`: struct<timestamp: timestamp_ntz>>>",
        ),
    ],
)
def test_fields_keep_their_names_whatever_types_are_called(ours: str, theirs: str) -> None:
    assert spark_type(parse_type(ours)) == theirs
