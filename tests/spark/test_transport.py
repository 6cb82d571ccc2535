"""Connections: friends get in, strangers get nothing and break nothing, links heal."""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from evenflow.errors import ProtocolError, StrangerRefused, UnreadableMessage
from evenflow.site.peers import APART_BEATS, MUTE_BEATS, Talk
from evenflow.world.spark.executor import links as linking
from evenflow.world.spark.executor.links import Links
from evenflow.world.spark.executor.site import Site
from evenflow.world.spark.net import control, framing
from evenflow.world.spark.net import listener as listening
from evenflow.world.spark.net.channel import GARBLED_MAX, Channel, Line
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.control import Roster
from evenflow.world.spark.net.framing import CONTROL, HEADER, MAGIC, MESSAGE_BYTES_MAX, SECTIONS, VERSION
from evenflow.world.spark.net.handshake import Accepting, Connecting, dial
from evenflow.world.spark.net.listener import Dialer, Listener, open_port
from evenflow.world.spark.net.reactor import Reactor
from tests.spark.connections import connected
from tests.world.polled import until

SECRET = b"s" * 32
PORT = 7077


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


class Guests:
    """A listener and whom it let in."""

    def __init__(self, reactor: Reactor) -> None:
        self.known: list[tuple[Connection, dict[str, object]]] = []
        self.listener = Listener(open_port("127.0.0.1"), reactor, SECRET, lambda sock, hello: self.known.append((sock, hello)))
        self.address = ("127.0.0.1", self.listener.port)


@pytest.fixture
def guests(reactor: Reactor) -> Iterator[Guests]:
    made = Guests(reactor)
    yield made
    made.listener.close()
    for sock, _ in made.known:
        sock.close()


def connect(reactor: Reactor, address: tuple[str, int], secret: bytes) -> tuple[list[Connection], list[str]]:
    done: list[Connection] = []
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


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", os.urandom(70), b"EFH2" + os.urandom(200), b"\0" * 4000],
    ids=["HTTP", "noise", "magic and noise", "zeros"],
)
def test_garbage_is_refused_and_friends_still_get_in(reactor: Reactor, guests: Guests, garbage: bytes) -> None:
    with socket.create_connection(guests.address) as stranger:
        stranger.sendall(garbage)
        until(reactor, lambda: guests.listener.refused == 1)
    done, _ = connect(reactor, guests.address, SECRET)
    assert done
    done[0].close()


def test_an_overlong_hello_is_refused(reactor: Reactor, guests: Guests) -> None:
    with socket.create_connection(guests.address) as stranger:
        stranger.sendall(b"EFH2" + bytes(64) + struct.pack("<H", 60_000))
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
    friend, impostor = Connecting(SECRET, {}, PORT), Accepting(b"x" * 32, PORT)
    friend.feed(impostor.out)
    with pytest.raises(StrangerRefused):
        friend.feed(b"m" * 32)


def test_a_proof_cannot_be_replayed() -> None:
    first, second = Accepting(SECRET, PORT), Accepting(SECRET, PORT)
    friend = Connecting(SECRET, {"site": 1}, PORT)
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
        self.there, accepted = connected()
        self.raw = self.there.sock
        self.heard: list[tuple[int, bytes]] = []
        self.closed: list[str] = []
        self.channel = Channel(
            accepted, reactor, lambda c, kind, body: self.heard.append((kind, bytes(body))), lambda c, why: self.closed.append(why)
        )

    def other(self, reactor: Reactor) -> Channel:
        return Channel(self.there, reactor, lambda c, kind, body: None, lambda c, why: None)


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
    message = b"".join(pair.there.seals.seal(CONTROL, [b"hello"]))
    for i in range(len(message)):
        pair.raw.sendall(message[i : i + 1])
        reactor.poll(0.05)
    assert pair.heard == [(CONTROL, b"hello")]
    pair.raw.close()
    until(reactor, lambda: pair.closed)


def test_an_oversize_message_closes_the_channel_before_memory_is_taken(reactor: Reactor) -> None:
    pair = Pair(reactor)
    pair.raw.sendall(HEADER.pack(MAGIC, VERSION, CONTROL, MESSAGE_BYTES_MAX + 1, bytes(16)))
    until(reactor, lambda: pair.closed)
    assert "larger" in pair.closed[0]
    pair.raw.close()


def test_the_end_in_the_middle_of_a_message_is_noticed(reactor: Reactor) -> None:
    pair = Pair(reactor)
    pair.raw.sendall(HEADER.pack(MAGIC, VERSION, SECTIONS, 100_000, bytes(16)) + b"x" * 70_000)
    reactor.poll(0.05)
    pair.raw.close()
    until(reactor, lambda: pair.closed)
    assert pair.heard == []


@pytest.mark.parametrize("queued", [False, True])
def test_the_last_words_of_who_takes_nothing_any_more_are_heard(reactor: Reactor, queued: bool) -> None:
    """A site says what user code it runs, and dies of it. The driver may send to it before it has read that."""
    pair = Pair(reactor)
    words = [(CONTROL, b"in user code"), (SECTIONS, os.urandom(20_000)), (CONTROL, b"on epoch 9")]
    pair.channel.send(CONTROL, [b"not read by who dies"])
    while queued and not pair.channel.queued_bytes:
        pair.channel.send(SECTIONS, [bytes(1_000_000)])
    for kind, body in words:
        pair.raw.sendall(b"".join(pair.there.seals.seal(kind, [body])))
    pair.raw.close()
    pair.channel.send(CONTROL, [b"too late"])
    pair.channel.send(CONTROL, [b"much too late"])
    until(reactor, lambda: pair.closed)
    assert pair.heard == words
    assert len(pair.closed) == 1 and pair.channel.closed and not pair.channel.queued_bytes


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space left on device"), BlockingIOError(), ConnectionResetError(), KeyError()])
@pytest.mark.parametrize("size", [5, 100_000])
def test_what_a_handler_raises_is_not_the_sockets(reactor: Reactor, error: Exception, size: int) -> None:
    """Whoever polls hears of it, and of what it was; the connection is as good as before, and nobody dials anew to say it all again."""
    pair = Pair(reactor)
    take, pair.channel._on_message = pair.channel._on_message, raising(error)
    sender = pair.other(reactor)
    sender.send(CONTROL, [bytes(size)])
    with pytest.raises(type(error)):
        until(reactor, lambda: False)
    assert not pair.closed and not pair.channel.closed and not pair.channel.garbled
    pair.channel._on_message = take
    sender.send(SECTIONS, [b"and so on"])
    until(reactor, lambda: pair.heard)
    assert pair.heard == [(SECTIONS, b"and so on")], "who raises over a message gets it once"
    sender.close()
    until(reactor, lambda: pair.closed)
    assert pair.closed == ["the other end has closed the connection"]


def raising(error: Exception) -> Callable[..., None]:
    def handle(*given: object) -> None:
        raise error

    return handle


# ---------------------------------------------------------------- lines


class Ends:
    """A line between two ends; `connect` gives it another connection, as a site that dials again does."""

    def __init__(self, reactor: Reactor, keeps: bool = True) -> None:
        self.reactor = reactor
        self.heard: dict[str, list[bytes]] = {"left": [], "right": []}
        self.left = Line(lambda kind, body: self.heard["left"].append(bytes(body)), keeps)
        self.right = Line(lambda kind, body: self.heard["right"].append(bytes(body)), keeps)
        self.channels: list[Channel] = []

    def connect(self) -> None:
        one, other = connected()
        taken = self.left.taken, self.right.taken
        for line, connection, there in ((self.left, one, taken[1]), (self.right, other, taken[0])):
            channel = Channel(connection, self.reactor, line.take, lambda channel, why, line=line: line.lost(channel))  # type: ignore[misc]
            self.channels.append(channel)
            line.resume(channel, there)

    def cut(self) -> None:
        for channel in self.channels:
            channel.close()
        self.left.lost(self.channels[-2])
        self.right.lost(self.channels[-1])


def test_a_line_loses_and_repeats_nothing_over_several_connections(reactor: Reactor) -> None:
    ends = Ends(reactor)
    said: dict[str, list[bytes]] = {"left": [], "right": []}
    for life in range(4):
        ends.connect()
        for i in range(50):
            message = b"%d.%d" % (life, i)
            ends.left.send(CONTROL, [message, b"x" * 10_000])
            said["right"].append(message + b"x" * 10_000)
            ends.right.send(CONTROL, [message])
            said["left"].append(message)
            if i % 20 == life:
                reactor.poll(0.01)
        ends.cut()
        ends.left.send(CONTROL, [b"between"])
        said["right"].append(b"between")
    ends.connect()
    until(reactor, lambda: ends.heard == said)
    ends.left.confirmed(ends.right.taken)
    ends.right.confirmed(ends.left.taken)
    assert not ends.left._kept and not ends.right._kept
    ends.cut()


def test_a_line_that_keeps_nothing_is_a_plain_connection(reactor: Reactor) -> None:
    ends = Ends(reactor, keeps=False)
    ends.connect()
    ends.left.send(CONTROL, [b"a"])
    until(reactor, lambda: ends.heard["right"] == [b"a"])
    assert not ends.left._kept
    ends.cut()


@pytest.mark.parametrize("connected", [True, False])
def test_a_message_that_is_too_large_is_not_said_and_the_line_goes_on(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch, connected: bool
) -> None:
    """Goal: it counts for nothing, or each confirmation after it would be off by one, and each new connection would fail over it."""
    monkeypatch.setattr(framing, "MESSAGE_BYTES_MAX", 10_000)
    ends = Ends(reactor)
    if connected:
        ends.connect()
    ends.left.send(CONTROL, [b"a"])
    with pytest.raises(ProtocolError, match="10001 bytes is larger"):
        ends.left.send(CONTROL, [b"x" * 10_000, b"x"])
    ends.left.send(CONTROL, [b"b"])
    if not connected:
        ends.connect()
    until(reactor, lambda: ends.heard["right"] == [b"a", b"b"])
    ends.left.confirmed(ends.right.taken)
    assert not ends.left._kept
    ends.cut()
    ends.left.send(CONTROL, [b"c"])
    ends.connect()
    until(reactor, lambda: ends.heard["right"] == [b"a", b"b", b"c"])
    ends.cut()


def test_a_message_that_cannot_be_read_is_not_counted_and_comes_again(reactor: Reactor) -> None:
    ends = Ends(reactor)
    heard: list[bytes] = []
    unreadable = 2

    def read(kind: int, body: bytes | memoryview) -> None:
        nonlocal unreadable
        if bytes(body) == b"b" and unreadable:
            unreadable -= 1
            raise UnreadableMessage("altered on its way")
        heard.append(bytes(body))

    ends.right = Line(read, keeps=True)
    for body in (b"a", b"b", b"c"):
        ends.left.send(CONTROL, [body])
    for times in (1, 2):
        ends.connect()
        until(reactor, lambda: not ends.right.connected)
        assert (ends.right.taken, ends.right.garbled, heard) == (1, times, [b"a"])
        ends.left.lost(ends.channels[-2])
    ends.connect()
    until(reactor, lambda: len(heard) == 3)
    assert (ends.right.taken, ends.right.garbled, heard) == (3, 0, [b"a", b"b", b"c"])
    ends.cut()


def test_an_error_over_a_message_that_was_read_does_not_bring_it_again(reactor: Reactor) -> None:
    ends = Ends(reactor)
    ends.connect()

    def fail(kind: int, body: bytes | memoryview) -> None:
        raise ProtocolError("no rule allows it")

    line = Line(fail, keeps=True)
    line.resume(ends.channels[-1], 0)
    with pytest.raises(ProtocolError):
        line.take(ends.channels[-1], CONTROL, b"a")
    assert line.taken == 1
    ends.cut()


# ---------------------------------------------------------------- links


class Mesh:
    """Sites that link up. events: (site, "up" or "down", peer)."""

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self.events: list[tuple[int, str, int]] = []
        self.heard: list[tuple[int, int, bytes]] = []
        self.garbled: list[tuple[int, int]] = []
        self.links: dict[int, Links] = {}
        self.listeners: dict[int, Listener] = {}
        self.number = self.relayed = 0
        self.dead: set[int] = set()

    def add(self, *sites: int) -> None:
        for site in sites:
            link = Links(
                site,
                f"life-{site}",
                self.reactor,
                SECRET,
                lambda peer, kind, body, s=site: self.heard.append((s, peer, bytes(body))),  # type: ignore[misc]
                lambda peer, s=site: self.events.append((s, "up", peer)),  # type: ignore[misc]
                lambda peer, s=site: self.events.append((s, "down", peer)),  # type: ignore[misc]
                lambda peer, why, s=site: self.garbled.append((s, peer)),  # type: ignore[misc]
                lambda peer, talk, kind, body, s=site: self.pass_on(s, peer, talk, kind, body),  # type: ignore[misc]
            )
            self.links[site] = link
            self.listeners[site] = Listener(open_port("127.0.0.1"), self.reactor, SECRET, link.accept)

    def pass_on(self, sender: int, peer: int, talk: Talk, kind: int, body: bytes) -> None:
        """What the driver does with a word between two sites that have no link. The dead are not told anything."""
        self.relayed += 1
        if peer not in self.dead:
            self.reactor.call_soon(lambda: self.links[peer].hear_relayed(sender, talk, kind, body))

    def roster(self, *sites: int) -> Roster:
        self.number += 1
        return Roster(self.number, {s: ("127.0.0.1", self.listeners[s].port, f"life-{s}") for s in sites})

    def tell(self, roster: Roster, *sites: int) -> None:
        for site in sites or roster.sites:
            self.links[site].set_roster(roster)

    def until_complete(self, *sites: int) -> None:
        until(self.reactor, lambda: all(self.links[s].complete for s in sites or self.links))

    def close(self) -> None:
        for made in [*self.links.values(), *self.listeners.values()]:
            made.close()


@pytest.fixture
def mesh(reactor: Reactor) -> Iterator[Mesh]:
    made = Mesh(reactor)
    yield made
    made.close()


def test_a_broken_link_heals_and_says_so(reactor: Reactor, mesh: Mesh) -> None:
    mesh.add(0, 1)
    roster = mesh.roster(0, 1)
    mesh.tell(roster, 1)
    until(reactor, lambda: (1, "up", 0) in mesh.events)
    assert (0, "up", 1) not in mesh.events, "a site that has no roster yet must not trust anybody"
    mesh.tell(roster, 0)
    until(reactor, lambda: len(mesh.events) == 2)
    mesh.links[0].cut(1)
    assert mesh.events[2:] == [(0, "down", 1)], "nobody waits for anything to hear that a link is down"
    assert mesh.links[0].accused == (1,)
    until(reactor, lambda: len(mesh.events) == 6)
    assert mesh.events.count((0, "up", 1)) == mesh.events.count((1, "up", 0)) == 2
    assert mesh.events.count((1, "down", 0)) == 1
    mesh.links[0].send(1, SECTIONS, [b"still here"])
    until(reactor, lambda: mesh.heard)
    assert mesh.heard == [(1, 0, b"still here")]
    assert mesh.links[0].accused == ()


def test_newcomers_are_linked_and_the_dead_are_fenced(reactor: Reactor, mesh: Mesh) -> None:
    mesh.add(0, 1, 2)
    mesh.tell(mesh.roster(0, 1, 2))
    mesh.until_complete()
    mesh.tell(mesh.roster(0, 2), 0, 2)
    assert mesh.links[0].complete and mesh.links[2].complete
    assert (0, "down", 1) in mesh.events and (2, "down", 1) in mesh.events
    until(reactor, lambda: {(1, "down", 0), (1, "down", 2)} <= set(mesh.events))
    mesh.add(3)
    mesh.tell(mesh.roster(0, 2, 3))
    mesh.until_complete(0, 2, 3)
    ups = len([event for event in mesh.events if event[1:] == ("up", 1)])
    for _ in range(10):
        reactor.poll(0.02)
    assert not mesh.links[1].complete
    assert len([event for event in mesh.events if event[1:] == ("up", 1)]) == ups, "a dead site's connections are not accepted"
    assert mesh.links[0].accused == mesh.links[3].accused == ()


def test_beats_keep_idle_links_warm_and_find_the_silent(reactor: Reactor, mesh: Mesh) -> None:
    mesh.add(0, 1, 2)
    mesh.tell(mesh.roster(0, 1, 2))
    mesh.until_complete()
    for beat in range(8):
        mesh.links[0].beat()
        mesh.links[1].beat()
        for _ in range(4):
            reactor.poll(0.005)
        silent = beat if beat > 0 else 0
        assert mesh.links[0].peers.silent_beats(2) in (silent, silent + 1)
    assert mesh.links[0].accused == mesh.links[1].accused == (2,)
    assert mesh.heard == [], "a word that only says that somebody lives is nobody's message"
    mesh.links[2].beat()
    reactor.poll(0.05)
    mesh.links[0].beat()
    assert mesh.links[0].accused == ()


def test_the_driver_passes_on_what_is_said_across_a_lasting_cut(reactor: Reactor, mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut two of three sites off from each other: both hear of a link again, of another kind; when the cut heals, of a real one."""
    mesh.add(0, 1, 2)
    mesh.tell(mesh.roster(0, 1, 2))
    mesh.until_complete()
    dial = Links._dial
    monkeypatch.setattr(Links, "_dial", lambda links, peer, patience_s: None)
    mesh.links[1].cut(0)
    until(reactor, lambda: (0, "down", 1) in mesh.events)
    mesh.events.clear()
    mesh.links[0].send(1, SECTIONS, [b"lost"])
    for _ in range(APART_BEATS):
        assert mesh.relayed == 0, "a link that breaks mostly comes back"
        for site in range(3):
            mesh.links[site].beat()
    until(reactor, lambda: sorted(mesh.events) == [(0, "up", 1), (1, "up", 0)])
    mesh.links[0].send(1, SECTIONS, [b"round ", b"the corner"])
    until(reactor, lambda: mesh.heard)
    assert mesh.heard == [(1, 0, b"round the corner")]
    talk = mesh.links[1].peers.talk(0)
    monkeypatch.setattr(Links, "_dial", dial)
    mesh.links[1]._dial(0, 0.01)
    mesh.until_complete()
    before = mesh.relayed
    mesh.links[0].hear_relayed(1, talk, SECTIONS, b"late")
    mesh.links[0].send(1, SECTIONS, [b"straight"])
    until(reactor, lambda: len(mesh.heard) == 2)
    assert mesh.heard[1] == (1, 0, b"straight") and mesh.relayed == before
    monkeypatch.setattr(Links, "_dial", lambda links, peer, patience_s: None)
    mesh.links[1].cut(0)
    until(reactor, lambda: mesh.events[-2:] == [(1, "down", 0), (0, "down", 1)])
    mesh.links[0].hear_relayed(1, talk, SECTIONS, b"later still")
    assert len(mesh.heard) == 2 and mesh.events[-1] == (0, "down", 1), "it was said before there was a link again"


def test_nonsense_by_the_driver_is_the_peers(reactor: Reactor, mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(peer: int, kind: int, body: bytes | memoryview) -> None:
        raise UnreadableMessage("altered on its way")

    mesh.add(0, 1, 2)
    mesh.tell(mesh.roster(0, 1, 2))
    mesh.until_complete()
    monkeypatch.setattr(Links, "_dial", lambda links, peer, patience_s: None)
    mesh.links[1].cut(0)
    until(reactor, lambda: (0, "down", 1) in mesh.events)
    mesh.links[0]._on_message = read
    for times in range(GARBLED_MAX):
        assert mesh.garbled == [], times
        mesh.links[0].hear_relayed(1, Talk(1, times + 2), SECTIONS, b"nonsense")
        assert not mesh.links[0].peers.relayed(1), "all is said again when the driver has been asked anew"
    assert mesh.garbled == [(0, 1)]


def test_a_dead_peer_does_not_answer_by_the_driver_either(reactor: Reactor, mesh: Mesh) -> None:
    mesh.add(0, 1, 2)
    mesh.tell(mesh.roster(0, 1, 2))
    mesh.until_complete()
    mesh.dead.add(2)
    mesh.links[2].close()
    mesh.listeners[2].close()
    until(reactor, lambda: (0, "down", 2) in mesh.events)
    mesh.events.clear()
    for _ in range(3 * APART_BEATS):
        mesh.links[0].beat()
        mesh.links[1].beat()
        reactor.poll(0.01)
    assert mesh.relayed > 0 and [event for event in mesh.events if event[2] == 2 and event[1] == "up"] == []


def test_a_link_that_stands_and_lets_nothing_through_is_given_up(reactor: Reactor, mesh: Mesh) -> None:
    mesh.add(0, 1)
    mesh.tell(mesh.roster(0, 1))
    mesh.until_complete()
    mesh.events.clear()
    beats = 0
    while not mesh.events:
        mesh.links[0].beat()
        beats += 1
    assert mesh.events == [(0, "down", 1)] and beats in (MUTE_BEATS, MUTE_BEATS + 1)


def test_a_peer_that_talks_nonsense_again_and_again_is_reported(reactor: Reactor, mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "RETRY_LAST_S", 0.02)
    mesh.add(0, 1)
    mesh.tell(mesh.roster(0, 1))

    def read(peer: int, kind: int, body: bytes | memoryview) -> None:
        raise UnreadableMessage("of another version")

    mesh.links[0]._on_message = read
    for times in range(GARBLED_MAX):
        mesh.until_complete()
        assert len(mesh.garbled) == 0, times
        channel = mesh.links[1]._peers[0].channel
        assert channel is not None
        channel.send(SECTIONS, [b"nonsense"])
        until(reactor, lambda: not mesh.links[0].complete)
    assert mesh.garbled == [(0, 1)]
    mesh.until_complete()


def test_a_site_of_an_older_life_is_not_listened_to(reactor: Reactor) -> None:
    ups: list[int] = []
    link = Links(0, "life-0", reactor, SECRET, lambda *_: None, ups.append)
    made = Listener(open_port("127.0.0.1"), reactor, SECRET, link.accept)
    address = ("127.0.0.1", made.port)
    link.set_roster(Roster(1, {0: (*address, "life-0"), 1: (*address, "life-new")}))
    done: list[Connection] = []
    Dialer(address, reactor, SECRET, {"as": "peer", "site": 1, "incarnation": "life-old"}, done.append, lambda why: None)
    until(reactor, lambda: done)
    reactor.poll(0.05)
    assert ups == []
    done[0].close()
    link.close()
    made.close()


# ---------------------------------------------------------------- a site and its driver


@pytest.mark.parametrize(("before", "why"), [(GARBLED_MAX - 1, "cannot be read, again and again"), (0, "the driver is gone")])
def test_a_site_that_cannot_read_its_driver_dials_again_and_then_leaves(before: int, why: str) -> None:
    """What is altered on its way is said again over the next connection; here nobody listens for that one."""
    here, there = connected()
    nobody = open_port("127.0.0.1")
    address = nobody.getsockname()
    nobody.close()
    hello = {"as": "site", "incarnation": "a"}
    site = Site(control.You(0, 0, 0.05), hello, SECRET, address, here, open_port("127.0.0.1"), lease_s=10.0)
    site.driver.garbled = before
    there.send(CONTROL, [b"nonsense"])
    assert why in site.serve()
    assert (site.driver.taken, site.driver.garbled) == (0, before + 1)
    there.close()
