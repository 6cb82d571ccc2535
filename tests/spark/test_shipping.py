"""State between sites, over real sockets: it arrives whole, or both ends hear that it did not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evenflow.state.transfer import CHUNK as CHUNK_HEAD
from evenflow.state.transfer import chunks
from evenflow.world.spark.executor.guests import Guests, Receiver
from evenflow.world.spark.executor.shipping import CHUNK, TRANSFER_BYTES_MAX, Pace, Shipper, Transfer
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import CONTROL
from evenflow.world.spark.net.handshake import Hello, dial
from evenflow.world.spark.net.listener import Listener, open_port
from evenflow.world.spark.net.reactor import Reactor
from tests.world.polled import until

SECRET = b"s" * 32
FAST = 1e12
RUN = 7


class Kept:
    def __init__(self, state: bytes) -> None:
        self.state = state

    def to_bytes(self, rest: Callable[[], None]) -> bytes:
        return self.state


class Unreadable:
    def to_bytes(self, rest: Callable[[], None]) -> bytes:
        raise KeyError("a page is missing")


class Target:
    """What a site is to its guests."""

    def __init__(self, reactor: Reactor) -> None:
        self.reactor, self.parts = reactor, {RUN: object()}
        self.arrived: list[tuple[int, int, bytes]] = []
        self.failed: list[tuple[int, int, str]] = []
        self.guests = Guests(self)  # type: ignore[arg-type]
        self.listener = Listener(open_port("127.0.0.1"), reactor, SECRET, self._welcome)
        self.address = ("127.0.0.1", self.listener.port)

    def state_arrived(self, run: int, copy: int, state: bytes) -> None:
        self.arrived.append((run, copy, state))

    def state_failed(self, run: int, copy: int, why: str) -> None:
        self.failed.append((run, copy, why))

    def _welcome(self, sock: Connection, hello: Hello) -> None:
        try:
            self.guests.accept(sock, hello)
        except (KeyError, ValueError):
            sock.close()

    @property
    def filled(self) -> int:
        return sum(guest._assembly.filled for guest in self.guests._guests.values() if isinstance(guest, Receiver))

    def close(self) -> None:
        self.guests.close()
        self.listener.close()


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


@pytest.fixture
def target(reactor: Reactor) -> Iterator[Target]:
    made = Target(reactor)
    yield made
    made.close()


class Source:
    def __init__(self, reactor: Reactor, rate: float = FAST) -> None:
        self.failed: list[tuple[int, int, str]] = []
        self.shipper = Shipper(reactor, SECRET, lambda *what: self.failed.append(what), rate)

    def transfer(self, run: int = RUN, copy: int = 1) -> Transfer:
        return self.shipper._under_way[run, copy]


@pytest.fixture
def source(reactor: Reactor) -> Iterator[Source]:
    made = Source(reactor)
    yield made
    made.shipper.close()


def slow(reactor: Reactor) -> Source:
    """A source that takes many seconds for a few chunks."""
    return Source(reactor, rate=8 << 20)


# ---------------------------------------------------------------- it arrives


@pytest.mark.parametrize("size", [1, 100, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_001])
def test_state_of_any_size_arrives(reactor: Reactor, target: Target, source: Source, size: int) -> None:
    state = os.urandom(size)
    source.shipper.ship(RUN, 3, Kept(state), target.address)
    until(reactor, lambda: target.arrived and not source.shipper.under_way)
    assert target.arrived == [(RUN, 3, state)]
    until(reactor, lambda: not target.guests._guests)
    assert target.failed == source.failed == []


def test_several_transfers_at_a_time(reactor: Reactor, target: Target, source: Source) -> None:
    states = {copy: os.urandom(3_000_000 + copy) for copy in range(4)}
    for copy, state in states.items():
        source.shipper.ship(RUN, copy, Kept(state), target.address)
    until(reactor, lambda: not source.shipper.under_way)
    assert {copy: state for _, copy, state in target.arrived} == states


def test_the_rate_is_shared_by_all_transfers_of_a_site() -> None:
    now = 100.0
    pace = Pace(1000.0, lambda: now)
    assert pace.reserve(500) == 0.0
    assert pace.reserve(500) == pytest.approx(0.5)
    assert pace.reserve(1) == pytest.approx(1.0)
    now = 105.0
    assert pace.reserve(500) == 0.0, "what was not used is not saved up"
    assert pace.reserve(500) == pytest.approx(0.5)


def test_sending_keeps_to_the_rate(reactor: Reactor, target: Target) -> None:
    paced = Source(reactor, rate=20e6)
    started = time.monotonic()
    paced.shipper.ship(RUN, 1, Kept(bytes(5 << 20)), target.address)
    until(reactor, lambda: target.arrived)
    assert time.monotonic() - started >= 4 * (1 << 20) / 20e6
    paced.shipper.close()


# ---------------------------------------------------------------- the source fails


SCRIPT = """
import sys, time
from evenflow.world.spark.net.reactor import Reactor
from evenflow.world.spark.executor.shipping import Shipper
class Kept:
    def to_bytes(self, rest): return bytes(8 << 20)
reactor = Reactor()
shipper = Shipper(reactor, b"s" * 32, print, 1 << 20)
shipper.ship(7, 1, Kept(), ("127.0.0.1", int(sys.argv[1])))
while True:
    reactor.poll(1.0)
"""


def test_a_source_that_is_killed_in_the_middle(reactor: Reactor, target: Target) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(target.address[1])], env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
    try:
        until(reactor, lambda: target.filled, 60)
        os.kill(process.pid, signal.SIGKILL)
        until(reactor, lambda: target.failed)
    finally:
        process.kill()
        process.wait()
    ((run, copy, why),) = target.failed
    assert (run, copy) == (RUN, 1)
    assert "of 8388608 bytes" in why
    assert target.arrived == []
    assert not target.guests._guests


def test_a_state_that_cannot_be_read_is_reported(reactor: Reactor, target: Target, source: Source) -> None:
    source.shipper.ship(RUN, 1, Unreadable(), target.address)
    until(reactor, lambda: source.failed)
    assert source.failed[0][:2] == (RUN, 1)
    assert "a page is missing" in source.failed[0][2]


def announced(reactor: Reactor, target: Target, **hello: Any) -> Connection:
    """A connection of a hand-made source, whose handshake needs the loop to turn."""
    made: list[Connection] = []
    whole = {"as": "state", "run": RUN, "copy": 1, **hello}
    thread = threading.Thread(target=lambda: made.append(dial(target.address, SECRET, whole)))
    thread.start()
    until(reactor, lambda: made)
    thread.join()
    made[0].settimeout(10)
    return made[0]


Messages = list[tuple[int, list[bytes]]]


def message(*pieces: bytes, kind: int = CHUNK) -> Messages:
    return [(kind, list(pieces))]


GOOD = b"".join(next(chunks(b"s" * 1000)))
GARBAGE = {
    "noise": message(os.urandom(3000)),
    "another kind": message(b"{}", kind=CONTROL),
    "no head": message(b"x"),
    "nothing": message(),
    "a flipped bit": message(GOOD[:-1] + b"S"),
    "cut": message(GOOD[:-1]) + message(GOOD[-1:]),
    "twice": message(b"".join(next(chunks(b"s" * 100)))) * 2,
    "too much": message(CHUNK_HEAD.pack(0, 0, 0), bytes(2000)),
    "elsewhere": message(CHUNK_HEAD.pack(500, 0, 0), bytes(100)),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_fails_the_copy_and_nothing_else(reactor: Reactor, target: Target, source: Source, garbage: Messages) -> None:
    with announced(reactor, target, bytes=1000) as sock:
        for kind, pieces in garbage:
            sock.send(kind, pieces)
        until(reactor, lambda: target.failed)
    assert target.failed[0][:2] == (RUN, 1)
    assert not target.arrived
    source.shipper.ship(RUN, 2, Kept(b"fine"), target.address)
    until(reactor, lambda: target.arrived)
    assert target.arrived == [(RUN, 2, b"fine")]
    assert len(target.failed) == 1


def test_chunks_after_the_last_are_refused_but_the_state_is_there(reactor: Reactor, target: Target) -> None:
    with announced(reactor, target, bytes=1000) as sock:
        sock.send(CHUNK, [GOOD])
        until(reactor, lambda: target.arrived)
        sock.send(CHUNK, [GOOD])
        until(reactor, lambda: not target.guests._guests)
    assert len(target.arrived) == 1
    assert not target.failed


@pytest.mark.parametrize(
    "hello", [{"bytes": 0}, {"bytes": -5}, {"bytes": TRANSFER_BYTES_MAX + 1}, {"bytes": "many"}, {}, {"bytes": 9, "run": 8}]
)
def test_absurd_announcements_are_refused(reactor: Reactor, target: Target, hello: dict[str, Any]) -> None:
    with announced(reactor, target, **hello) as sock:
        assert sock.sock.recv(1) == b""
    assert not target.guests._guests
    assert not target.failed


# ---------------------------------------------------------------- the target fails


def test_nobody_listens(reactor: Reactor, source: Source) -> None:
    with open_port("127.0.0.1") as port:
        address = port.getsockname()
    source.shipper.ship(RUN, 1, Kept(b"x"), address)
    until(reactor, lambda: source.failed)
    assert "broke off" in source.failed[0][2]
    assert not source.shipper.under_way


def test_a_target_that_dies_in_the_middle(reactor: Reactor, target: Target) -> None:
    paced = slow(reactor)
    paced.shipper.ship(RUN, 1, Kept(bytes(48 << 20)), target.address)
    until(reactor, lambda: target.filled)
    transfer = paced.transfer()
    target.close()
    until(reactor, lambda: paced.failed)
    assert paced.failed[0][:2] == (RUN, 1)
    assert transfer.join(10)


def test_a_target_without_the_run(reactor: Reactor, target: Target, source: Source) -> None:
    target.parts.clear()
    source.shipper.ship(RUN, 1, Kept(bytes(48 << 20)), target.address)
    until(reactor, lambda: source.failed)
    assert not target.failed


# ---------------------------------------------------------------- nobody wants it any more


def test_a_copy_that_is_called_off_at_its_source(reactor: Reactor, target: Target) -> None:
    paced = slow(reactor)
    paced.shipper.ship(RUN, 1, Kept(bytes(48 << 20)), target.address)
    until(reactor, lambda: target.filled)
    transfer = paced.transfer()
    paced.shipper.forget(RUN, 1)
    assert transfer.join(10)
    until(reactor, lambda: target.failed)
    reactor.poll(0.05)
    assert paced.failed == []
    assert not paced.shipper.under_way
    paced.shipper.forget(RUN, 1)


def test_a_transfer_that_waits_for_its_target_can_be_called_off(reactor: Reactor) -> None:
    """The target takes everything and never answers: nothing moves but the calling off."""
    accepted: list[Connection] = []
    listener = Listener(open_port("127.0.0.1"), reactor, SECRET, lambda sock, hello: accepted.append(sock))
    source = Source(reactor)
    source.shipper.ship(RUN, 1, Kept(bytes(64 << 20)), ("127.0.0.1", listener.port))
    until(reactor, lambda: accepted)
    transfer = source.transfer()
    source.shipper.close()
    assert transfer.join(10)
    accepted[0].close()
    listener.close()


def test_a_run_that_ends_takes_its_transfers_with_it(reactor: Reactor, target: Target) -> None:
    target.parts[8] = object()
    paced = slow(reactor)
    for run in (RUN, 8):
        paced.shipper.ship(run, 1, Kept(bytes(48 << 20)), target.address)
    until(reactor, lambda: len(target.guests._guests) == 2)
    transfer = paced.transfer()
    target.guests.run_ended(RUN)
    paced.shipper.run_ended(RUN)
    assert transfer.join(10)
    assert paced.shipper.under_way == 1
    assert len(target.guests._guests) == 1
    target.guests.run_ended(8)
    assert not target.guests._guests
    until(reactor, lambda: paced.failed)
    assert [failed[0] for failed in paced.failed] == [8]
    assert target.failed == []


def test_a_hand_made_source_is_answered(reactor: Reactor, target: Target) -> None:
    """The form of the messages, so that a change of it is a choice."""
    with announced(reactor, target, bytes=1000) as sock:
        for chunk in chunks(b"s" * 1000, 400):
            sock.send(CHUNK, list(chunk))
        until(reactor, lambda: target.arrived)
        kind, body = sock.receive()
    assert (kind, bytes(body)) == (CONTROL, b'{"taken": true}')
