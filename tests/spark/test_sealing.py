"""Somebody is on the way between two ends who know the secret, and does not know it.

Method: real sockets through a relay that records what is said and puts in what it likes. Goal: what it puts in is
refused with a typed error, closes that connection only, and nothing of it is read.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from evenflow.errors import MessageForged, StrangerRefused
from evenflow.world.spark.net import handshake
from evenflow.world.spark.net.channel import Channel
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import CONTROL, HEADER, MAGIC, RELEASE, SEAL_BYTES, SECTIONS, VERSION, Seals
from evenflow.world.spark.net.handshake import Hello, new_secret
from evenflow.world.spark.net.listener import Dialer, Listener, open_port
from evenflow.world.spark.net.reactor import READABLE, Reactor
from tests.spark.connections import KEYS, connected
from tests.world.polled import until

SECRET = new_secret()
SIZES = [0, 5, 40_000, 65_536, 65_537, 3_000_000]


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


class End:
    """One end of a connection that is served by an event loop."""

    def __init__(self, reactor: Reactor, connection: Connection) -> None:
        self.heard: list[tuple[int, bytes]] = []
        self.closed: list[str] = []
        self.channel = Channel(connection, reactor, self._take, lambda channel, why: self.closed.append(why))

    def _take(self, channel: Channel, kind: int, body: bytes | memoryview) -> None:
        self.heard.append((kind, bytes(body)))


class Server:
    """A listener with the secret. ends: whom it let in."""

    def __init__(self, reactor: Reactor) -> None:
        self.ends: list[End] = []
        self.listener = Listener(open_port("127.0.0.1"), reactor, SECRET, self._welcome)
        self.address = ("127.0.0.1", self.listener.port)
        self._reactor = reactor

    def _welcome(self, connection: Connection, hello: Hello) -> None:
        self.ends.append(End(self._reactor, connection))

    def close(self) -> None:
        self.listener.close()
        for end in self.ends:
            end.channel.close()


class Relay:
    """Passes on between who dials it and `target`, and keeps what was said. sides: the sockets to the dialler and to the target."""

    def __init__(self, reactor: Reactor, target: tuple[str, int]) -> None:
        self._reactor, self._target = reactor, target
        self._port = open_port("127.0.0.1")
        self.address: tuple[str, int] = self._port.getsockname()
        self.sides: list[socket.socket] = []
        self.said = [bytearray(), bytearray()]
        """By the dialler, by the target."""
        self.holding = False
        reactor.register(self._port.fileno(), READABLE, self._accept)

    def _accept(self, events: int) -> None:
        self.sides = [self._port.accept()[0], socket.create_connection(self._target)]
        for i, side in enumerate(self.sides):
            self._reactor.register(side.fileno(), READABLE, lambda events, i=i: self._pass_on(i))  # type: ignore[misc]

    def _pass_on(self, who: int) -> None:
        try:
            data = self.sides[who].recv(1 << 20)
        except ConnectionError:
            data = b""
        if not data:
            self._reactor.unregister(self.sides[who].fileno())
            self.sides[1 - who].close()
            return
        self.said[who] += data
        if not self.holding:
            self.sides[1 - who].sendall(data)

    def close(self) -> None:
        self._reactor.unregister(self._port.fileno())
        self._port.close()
        for side in self.sides:
            if side.fileno() >= 0:
                self._reactor.unregister(side.fileno())
            side.close()


@dataclass
class Scene:
    """A connection from `dialler` to `answerer` through `relay`, which has passed the handshake; `bystander` has one of its own."""

    reactor: Reactor
    relay: Relay
    dialler: End
    answerer: End
    bystander: tuple[End, End]

    def ends(self, victim: int) -> tuple[End, End]:
        """(who is attacked, whose words are imitated). victim: 0 the dialler, 1 the answerer."""
        return (self.dialler, self.answerer) if victim == 0 else (self.answerer, self.dialler)

    def inject(self, victim: int, data: bytes) -> None:
        self.relay.sides[victim].sendall(data)

    def recorded(self, speaker: int, say: Callable[[], None], *, pass_on: bool = True) -> bytes:
        """The bytes of what is said meanwhile."""
        before = len(self.relay.said[speaker])
        self.relay.holding = not pass_on
        say()
        until(self.reactor, lambda: len(self.relay.said[speaker]) > before)
        self.reactor.poll(0.02)
        self.relay.holding = False
        return bytes(self.relay.said[speaker][before:])


@pytest.fixture
def scene(reactor: Reactor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    server = Server(reactor)
    relay = Relay(reactor, server.address)
    bystander = connect(reactor, server.address)
    until(reactor, lambda: server.ends)
    # The network is the attacker's: who dials the server reaches the relay.
    dialled = connect(reactor, relay.address, meant=server.address)
    until(reactor, lambda: len(server.ends) == 2)
    made = Scene(reactor, relay, dialled, server.ends[1], (bystander, server.ends[0]))
    yield made
    dialled.channel.close()
    bystander.channel.close()
    relay.close()
    server.close()


def connect(reactor: Reactor, address: tuple[str, int], meant: tuple[str, int] | None = None) -> End:
    """Dial an address. meant: where the dialler believes that it leads."""
    done: list[Connection] = []
    failed: list[str] = []
    dialer = Dialer(address, reactor, SECRET, {"as": "test"}, done.append, failed.append)
    if meant is not None:
        dialer._end._port = meant[1]
    until(reactor, lambda: done or failed)
    if failed:
        raise StrangerRefused(failed[0])
    return End(reactor, done[0])


def forged(kind: int, body: bytes) -> bytes:
    """A message by somebody who has no key."""
    return HEADER.pack(MAGIC, VERSION, kind, len(body), os.urandom(SEAL_BYTES)) + body


def flipped(message: bytes, at: int) -> bytes:
    at %= len(message)
    return message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]


def test_a_relay_that_keeps_to_its_trade_is_not_in_the_way(scene: Scene) -> None:
    for size in SIZES:
        scene.dialler.channel.send(SECTIONS, [bytes(size)])
        scene.answerer.channel.send(CONTROL, [b"x" * size])
    until(scene.reactor, lambda: len(scene.dialler.heard) == len(scene.answerer.heard) == len(SIZES))
    assert scene.answerer.heard == [(SECTIONS, bytes(size)) for size in SIZES]


def test_a_connection_to_one_listener_is_not_brought_to_another(reactor: Reactor) -> None:
    """Both have the secret; the relay stands where one was dialled and passes everything on to the other one."""
    server = Server(reactor)
    relay = Relay(reactor, server.address)
    with pytest.raises(StrangerRefused):
        connect(reactor, relay.address)
    assert server.listener.refused == 1 and not server.ends
    relay.close()
    server.close()


Attack = Callable[[Scene, int], bytes]


def insertion(scene: Scene, victim: int) -> bytes:
    return forged(CONTROL, b"do as I say")


def insertion_of_much(scene: Scene, victim: int) -> bytes:
    return forged(SECTIONS, bytes(200_000))


def replay(scene: Scene, victim: int) -> bytes:
    """Of a message that has been taken."""
    attacked, imitated = scene.ends(victim)
    message = scene.recorded(1 - victim, lambda: imitated.channel.send(CONTROL, [b"once"]))
    until(scene.reactor, lambda: attacked.heard == [(CONTROL, b"once")])
    attacked.heard.clear()
    return message


def replay_of_all(scene: Scene, victim: int) -> bytes:
    """The whole conversation again, handshake included."""
    return bytes(scene.relay.said[1 - victim])


def reflection(scene: Scene, victim: int) -> bytes:
    """Of what the victim itself has just said."""
    attacked, _ = scene.ends(victim)
    return scene.recorded(victim, lambda: attacked.channel.send(CONTROL, [b"mine"]))


def from_elsewhere(scene: Scene, victim: int) -> bytes:
    """The first message of another connection of the same secret."""
    relay = Relay(scene.reactor, scene.relay._target)
    other = connect(scene.reactor, relay.address, meant=scene.relay._target)
    before = len(relay.said[0])
    other.channel.send(CONTROL, [b"to the other one"])
    until(scene.reactor, lambda: len(relay.said[0]) > before)
    other.channel.close()
    relay.close()
    return bytes(relay.said[0][before:])


def altered(at: int) -> Attack:
    def attack(scene: Scene, victim: int) -> bytes:
        _, imitated = scene.ends(victim)
        message = scene.recorded(1 - victim, lambda: imitated.channel.send(CONTROL, [b"pay 100"]), pass_on=False)
        return flipped(message, at)

    attack.__name__ = f"altered at {at}"
    return attack


def cut(scene: Scene, victim: int) -> bytes:
    """The end of a message is missing, and the next one follows."""
    _, imitated = scene.ends(victim)
    say = imitated.channel.send
    first = scene.recorded(1 - victim, lambda: say(CONTROL, [b"pay 100 to nobody"]), pass_on=False)
    return first[:-10] + scene.recorded(1 - victim, lambda: say(CONTROL, [b"and more than ten"]), pass_on=False)


def shortened(scene: Scene, victim: int) -> bytes:
    """Its header says so too."""
    _, imitated = scene.ends(victim)
    message = scene.recorded(1 - victim, lambda: imitated.channel.send(CONTROL, [b"pay 100 to nobody"]), pass_on=False)
    magic, version, kind, length, seal = HEADER.unpack_from(message)
    return HEADER.pack(magic, version, kind, length - 10, seal) + message[HEADER.size : -10]


def omission(scene: Scene, victim: int) -> bytes:
    """The first message does not come, the second one does."""
    _, imitated = scene.ends(victim)
    scene.recorded(1 - victim, lambda: imitated.channel.send(CONTROL, [b"never mind"]), pass_on=False)
    return scene.recorded(1 - victim, lambda: imitated.channel.send(CONTROL, [b"do it"]), pass_on=False)


def another_kind(scene: Scene, victim: int) -> bytes:
    _, imitated = scene.ends(victim)
    message = scene.recorded(1 - victim, lambda: imitated.channel.send(CONTROL, [b"words"]), pass_on=False)
    magic, version, _, length, seal = HEADER.unpack_from(message)
    return HEADER.pack(magic, version, RELEASE, length, seal) + message[HEADER.size :]


def no_message(scene: Scene, victim: int) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: engine\r\n\r\n"


ALTERED = [altered(at) for at in (0, 3, 4, 8, -1)]
"""In the magic, the kind, the length, the seal and the body."""
ATTACKS = [
    *(insertion, insertion_of_much, replay, replay_of_all, reflection, from_elsewhere, cut, shortened, omission, another_kind, no_message),
    *ALTERED,
]


@pytest.mark.parametrize("victim", [0, 1], ids=["dialler", "answerer"])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_what_is_put_in_is_refused_and_closes_that_connection_only(scene: Scene, attack: Attack, victim: int) -> None:
    attacked, _ = scene.ends(victim)
    scene.inject(victim, attack(scene, victim))
    until(scene.reactor, lambda: attacked.closed)
    assert attacked.heard == []
    assert not attacked.channel.garbled, "the other end has said nothing wrong"
    one, other = scene.bystander
    one.channel.send(CONTROL, [b"still"])
    other.channel.send(CONTROL, [b"here"])
    until(scene.reactor, lambda: one.heard and other.heard)
    assert one.heard == [(CONTROL, b"here")] and other.heard == [(CONTROL, b"still")]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("direction", ["forth", "back"])
def test_a_blocking_end_refuses_in_the_same_way(size: int, direction: str) -> None:
    one, other = connected() if direction == "forth" else reversed(connected())
    with one, other:
        message = b"".join(map(bytes, one.seals.seal(CONTROL, [b"x" * size])))
        other.settimeout(10)
        saying = threading.Thread(target=lambda: one.sock.sendall(message + message))
        saying.start()
        assert other.receive() == (CONTROL, b"x" * size)
        with pytest.raises(MessageForged, match="message 2, of kind 2"):
            other.receive()
        saying.join()


def test_no_two_connections_have_a_key_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes] = []
    monkeypatch.setattr(handshake, "Seals", lambda saying, hearing: made.append(saying) or made.append(hearing))
    for _ in range(3):
        accepting, connecting = handshake.Accepting(SECRET, 1), handshake.Connecting(SECRET, {"as": "x"}, 1)
        connecting.feed(accepting.out)
        hello = connecting.out
        while accepting.hello is None:
            accepting.feed(hello[: accepting.needs])
            hello = hello[-accepting.needs :] if accepting.needs else b""
        connecting.feed(accepting.out)
        for end in (accepting, connecting):
            end.connection(socket.socket())
    assert len(made) == 12 and len(set(made)) == 6
    assert made[0] == made[3] and made[1] == made[2], "what one end says with, the other one hears with"


def test_pieces_do_not_matter() -> None:
    """A message is sealed as one piece or piece by piece: the seal is the same."""
    for size in SIZES:
        data = os.urandom(size)
        whole = Seals(*KEYS).seal(SECTIONS, [data])
        cut_up = Seals(*KEYS).seal(SECTIONS, [data[:7], memoryview(data)[7:1000], data[1000:], b""])
        assert b"".join(map(bytes, whole)) == b"".join(map(bytes, cut_up))
