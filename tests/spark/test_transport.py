"""Connections: friends get in, strangers get nothing and break nothing, links heal."""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from evenflow.errors import StrangerRefused
from evenflow.world.spark import listener as listening
from evenflow.world.spark.channel import Channel
from evenflow.world.spark.control import Roster
from evenflow.world.spark.handshake import Accepting, Connecting, dial
from evenflow.world.spark.links import Links
from evenflow.world.spark.listener import Dialer, Listener, open_port
from evenflow.world.spark.reactor import Reactor
from evenflow.world.spark.wire import CONTROL, HEADER, MESSAGE_BYTES_MAX, SECTIONS

SECRET = b"s" * 32


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


def until(reactor: Reactor, condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        reactor.poll(0.05)


class Guests:
    """A listener and whom it let in."""

    def __init__(self, reactor: Reactor) -> None:
        self.known: list[tuple[socket.socket, dict[str, object]]] = []
        self.listener = Listener(open_port("127.0.0.1"), reactor, SECRET, lambda sock, hello: self.known.append((sock, hello)))
        self.address = ("127.0.0.1", self.listener.port)


@pytest.fixture
def guests(reactor: Reactor) -> Iterator[Guests]:
    made = Guests(reactor)
    yield made
    made.listener.close()
    for sock, _ in made.known:
        sock.close()


def connect(reactor: Reactor, address: tuple[str, int], secret: bytes) -> tuple[list[socket.socket], list[str]]:
    done: list[socket.socket] = []
    failed: list[str] = []
    Dialer(address, reactor, secret, {"as": "test"}, done.append, failed.append)
    until(reactor, lambda: done or failed)
    return done, failed


def test_who_knows_the_secret_gets_in(reactor: Reactor, guests: Guests) -> None:
    done, failed = connect(reactor, guests.address, SECRET)
    until(reactor, lambda: guests.known)
    assert not failed
    assert guests.known[0][1] == {"as": "test"}
    done[0].close()


def test_a_wrong_secret_is_refused_and_counted(reactor: Reactor, guests: Guests, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "evenflow"):
        for _ in range(3):
            done, failed = connect(reactor, guests.address, b"x" * 32)
            assert failed and not done
    assert guests.listener.refused == 3
    assert len(caplog.records) == 1
    assert not guests.known


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", os.urandom(70), b"EFH1" + os.urandom(200), b"\0" * 4000])
def test_garbage_is_refused_and_friends_still_get_in(reactor: Reactor, guests: Guests, garbage: bytes) -> None:
    with socket.create_connection(guests.address) as stranger:
        stranger.sendall(garbage)
        until(reactor, lambda: guests.listener.refused == 1)
    done, _ = connect(reactor, guests.address, SECRET)
    assert done
    done[0].close()


def test_an_overlong_hello_is_refused(reactor: Reactor, guests: Guests) -> None:
    with socket.create_connection(guests.address) as stranger:
        stranger.sendall(b"EFH1" + bytes(64) + struct.pack("<H", 60_000))
        until(reactor, lambda: guests.listener.refused == 1)


def test_who_says_nothing_is_closed_in_time(reactor: Reactor, guests: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_TIMEOUT_S", 0.2)
    with socket.create_connection(guests.address) as silent:
        until(reactor, lambda: guests.listener.refused == 1)
        silent.settimeout(5)
        while silent.recv(4096):
            pass


def test_too_many_strangers_make_room_for_newer_ones(reactor: Reactor, guests: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "WAITING_MAX", 3)
    strangers = [socket.create_connection(guests.address) for _ in range(5)]
    until(reactor, lambda: guests.listener.refused == 2)
    done, _ = connect(reactor, guests.address, SECRET)
    assert done
    for sock in [*strangers, *done]:
        sock.close()


def test_an_end_that_does_not_know_the_secret_cannot_pose_as_a_listener() -> None:
    friend, impostor = Connecting(SECRET, {}), Accepting(b"x" * 32)
    friend.feed(impostor.out)
    with pytest.raises(StrangerRefused):
        friend.feed(b"m" * 32)


def test_a_proof_cannot_be_replayed() -> None:
    first, second = Accepting(SECRET), Accepting(SECRET)
    friend = Connecting(SECRET, {"site": 1})
    friend.feed(first.out)
    recorded = friend.out
    second.feed(recorded[: second.needs])
    with pytest.raises(StrangerRefused):
        second.feed(recorded[-second.needs :])


def test_a_blocking_dial_gives_up_on_a_listener_that_says_nothing() -> None:
    with open_port("127.0.0.1") as silent, pytest.raises(OSError):
        dial(silent.getsockname(), SECRET, {}, timeout_s=0.2)


# ---------------------------------------------------------------- channels


class Pair:
    def __init__(self, reactor: Reactor) -> None:
        with open_port("127.0.0.1") as port:
            self.raw = socket.create_connection(port.getsockname())
            accepted, _ = port.accept()
        self.heard: list[tuple[int, bytes]] = []
        self.closed: list[str] = []
        self.channel = Channel(
            accepted, reactor, lambda c, kind, body: self.heard.append((kind, bytes(body))), lambda c, why: self.closed.append(why)
        )

    def other(self, reactor: Reactor) -> Channel:
        return Channel(self.raw, reactor, lambda c, kind, body: None, lambda c, why: None)


@pytest.mark.parametrize("size", [0, 1, 7, 65_535, 65_536, 65_537, 5_000_000])
def test_messages_of_any_size_arrive_in_order(reactor: Reactor, size: int) -> None:
    pair = Pair(reactor)
    sender = pair.other(reactor)
    big = os.urandom(size)
    for i in range(3):
        sender.send(CONTROL, [b"%d" % i])
        sender.send(SECTIONS, [big[: size // 2], memoryview(big)[size // 2 :]])
    until(reactor, lambda: len(pair.heard) == 6)
    assert pair.heard == [x for i in range(3) for x in ((CONTROL, b"%d" % i), (SECTIONS, big))]
    assert sender.queued_bytes == 0
    sender.close()
    until(reactor, lambda: pair.closed)


def test_a_message_in_crumbs_is_put_together(reactor: Reactor) -> None:
    pair = Pair(reactor)
    message = HEADER.pack(b"EF", 1, CONTROL, 5) + b"hello"
    for i in range(len(message)):
        pair.raw.sendall(message[i : i + 1])
        reactor.poll(0.05)
    assert pair.heard == [(CONTROL, b"hello")]
    pair.raw.close()
    until(reactor, lambda: pair.closed)


def test_an_oversize_message_closes_the_channel_before_memory_is_taken(reactor: Reactor) -> None:
    pair = Pair(reactor)
    pair.raw.sendall(HEADER.pack(b"EF", 1, CONTROL, MESSAGE_BYTES_MAX + 1))
    until(reactor, lambda: pair.closed)
    assert "larger" in pair.closed[0]
    pair.raw.close()


def test_the_end_in_the_middle_of_a_message_is_noticed(reactor: Reactor) -> None:
    pair = Pair(reactor)
    pair.raw.sendall(HEADER.pack(b"EF", 1, SECTIONS, 100_000) + b"x" * 70_000)
    reactor.poll(0.05)
    pair.raw.close()
    until(reactor, lambda: pair.closed)
    assert pair.heard == []


# ---------------------------------------------------------------- links


def test_a_broken_link_heals_and_says_so(reactor: Reactor) -> None:
    ups: list[tuple[int, int]] = []
    heard: list[bytes] = []
    listeners, links = [], []
    for site in range(2):
        link = Links(
            site,
            f"life-{site}",
            reactor,
            SECRET,
            lambda peer, kind, body: heard.append(bytes(body)),
            lambda peer, s=site: ups.append((s, peer)),
        )
        links.append(link)
        listeners.append(Listener(open_port("127.0.0.1"), reactor, SECRET, link.accept))
    roster = Roster(tuple(("127.0.0.1", made.port) for made in listeners), ("life-0", "life-1"))
    links[1].set_roster(roster)
    until(reactor, lambda: (1, 0) in ups)
    assert (0, 1) not in ups, "a site that has no roster yet must not trust anybody"
    links[0].set_roster(roster)
    until(reactor, lambda: len(ups) == 2)
    links[0].cut(1)
    until(reactor, lambda: len(ups) == 4)
    links[0].send(1, CONTROL, [b"still here"])
    until(reactor, lambda: heard)
    assert heard == [b"still here"]
    for made in [*links, *listeners]:
        made.close()


def test_a_site_of_an_older_life_is_not_listened_to(reactor: Reactor) -> None:
    ups: list[int] = []
    link = Links(0, "life-0", reactor, SECRET, lambda *_: None, ups.append)
    made = Listener(open_port("127.0.0.1"), reactor, SECRET, link.accept)
    address = ("127.0.0.1", made.port)
    link.set_roster(Roster((address, address), ("life-0", "life-new")))
    done: list[socket.socket] = []
    Dialer(address, reactor, SECRET, {"as": "peer", "site": 1, "incarnation": "life-old"}, done.append, lambda why: None)
    until(reactor, lambda: done)
    reactor.poll(0.05)
    assert ups == []
    done[0].close()
    link.close()
    made.close()
