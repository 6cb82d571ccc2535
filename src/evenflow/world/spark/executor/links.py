"""A site's links to its peers: one connection for each pair of sites, whatever the number of dataflows.

The site with the higher index connects, and connects again with growing patience when the link breaks; the other one accepts. A broken
link is not a dead site (V4): what was under way on it is lost, and the parts ask for it again when they hear that the link is up. What
is said while there is no link is dropped for the same reason: the part keeps it until it is acknowledged (A1).

While there is no link to a peer that lives, the driver passes on what is said, once the peer has answered that way: a cut between two sites
stops neither of them, nor anybody else. The driver touches data for nothing but that. When that is, whom the site accuses, and which links
it gives up, `site.peers` decides; here are the sockets.

A site that is not in the roster any more is fenced (V3): its link is closed, and no other one is accepted. Indices are given in order and
never twice, so an unknown one below the highest that was ever seen is a dead site's, and one above it a newcomer's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never

from evenflow.errors import ProtocolError
from evenflow.site.peers import (
    AskDriver,
    BeatDue,
    BroughtByDriver,
    CloseLink,
    Connected,
    Disconnected,
    PeerEvent,
    Peers,
    ReportGarbled,
    RosterChanged,
    SayAlive,
    Talk,
    TellDown,
    TellLinked,
    TellUp,
    Traffic,
    UnreadableByDriver,
)
from evenflow.world.spark.net.channel import Channel
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.control import Roster
from evenflow.world.spark.net.framing import CONTROL, Piece
from evenflow.world.spark.net.handshake import Hello
from evenflow.world.spark.net.listener import Dialer
from evenflow.world.spark.net.reactor import Reactor
from evenflow.world.spark.net.trust import Trusted

RETRY_FIRST_S: Final = 0.02
RETRY_LAST_S: Final = 1.0

log = logging.getLogger("evenflow")


@dataclass(slots=True)
class Peer:
    """What a peer in the roster is reached by. What is known of it otherwise, `site.peers` knows."""

    incarnation: str
    channel: Channel | None = None
    dialer: Dialer | None = None


def nothing(peer: int) -> None:
    """Nobody wants to know."""


def nowhere(peer: int, talk: Talk, kind: int, body: bytes) -> None:
    """There is nobody who passes anything on."""


def unheard() -> None:
    """Nobody asks whether all are linked."""


class Links:
    """on_message(peer, kind, body). on_up(peer): there is a new link; on_down(peer): there is none any more.

    on_garbled(peer, reason): what the peer says cannot be read, again and again. relay(peer, talk, kind, body): ask the driver to pass it
    on. on_linked(): every peer of the roster is linked. peers: decides whom the site accuses, which links are given up, and what goes by
    the driver.
    """

    def __init__(
        self,
        site: int,
        incarnation: str,
        reactor: Reactor,
        secret: Trusted,
        on_message: Callable[[int, int, bytes | memoryview], None],
        on_up: Callable[[int], None],
        on_down: Callable[[int], None] = nothing,
        on_garbled: Callable[[int, str], None] | None = None,
        relay: Callable[[int, Talk, int, bytes], None] = nowhere,
        on_linked: Callable[[], None] = unheard,
    ) -> None:
        self.site, self.incarnation = site, incarnation
        self._reactor, self._secret = reactor, secret
        self._on_message, self._on_up, self._on_down, self._on_garbled = on_message, on_up, on_down, on_garbled
        self._relay, self._on_linked = relay, on_linked
        self.peers = Peers(site)
        self._garbled_by: dict[int, str] = {}
        self._peers: dict[int, Peer] = {}
        self._early: dict[int, tuple[Connection, str]] = {}
        self._newest = -1
        self.roster = Roster(0, {})
        self.closed = False

    @property
    def complete(self) -> bool:
        """Every peer of the roster is connected."""
        return self.peers.complete

    @property
    def accused(self) -> tuple[int, ...]:
        """Peers with which there is no link any more, or that have been silent for too long."""
        return self.peers.accused

    def set_roster(self, roster: Roster) -> None:
        """Connect to the peers of a new roster; drop links to sites that are not in it any more."""
        self.roster = roster
        self._newest = max((self._newest, *roster.sites))
        self._handle(RosterChanged(tuple(roster.sites)))
        for index in [index for index in self._peers if index not in roster.sites]:
            gone = self._peers.pop(index)
            if gone.dialer is not None:
                gone.dialer.abandon()
        for index, (_, _, incarnation) in roster.sites.items():
            if index != self.site and index not in self._peers:
                self._peers[index] = Peer(incarnation)
                if index < self.site:
                    self._dial(index, RETRY_FIRST_S)
        early, self._early = self._early, {}
        for index, (sock, incarnation) in early.items():
            self.accept(sock, {"site": index, "incarnation": incarnation})

    def accept(self, sock: Connection, hello: Hello) -> None:
        """Take a peer's connection. That of a newcomer waits for the roster which names it; that of a fenced site is closed."""
        index, incarnation = int(hello["site"]), str(hello["incarnation"])
        peer = self._peers.get(index)
        if peer is not None and peer.incarnation == incarnation:
            self._adopt(index, peer, sock)
        elif index <= self._newest:
            sock.close()
        else:
            waiting = self._early.pop(index, None)
            if waiting is not None:
                waiting[0].close()
            self._early[index] = (sock, incarnation)

    def send(self, peer: int, kind: int, pieces: list[Piece]) -> None:
        known = self._peers.get(peer)
        if known is None:
            return
        if known.channel is not None:
            known.channel.send(kind, pieces)
        elif self.peers.relayed(peer):
            self._relay(peer, self.peers.talk(peer), kind, b"".join(bytes(piece) for piece in pieces))

    def hear_relayed(self, index: int, talk: Talk, kind: int, body: bytes) -> None:
        """The driver brings what a peer says for want of a link. What comes late, when there is one or has been one since, has been asked
        for again."""
        before = self.peers.relayed(index)
        self._handle(BroughtByDriver(index, talk))
        if self.peers.relayed(index) and not before:
            log.info("site %d: the driver passes on what is said between it and site %d", self.site, index)
        if not self.peers.hears(index, talk):
            return
        try:
            self._heard(index, None, kind, body)
        except ProtocolError as error:
            log.warning("site %d: what site %d says by the driver cannot be read: %s", self.site, index, error)
            self._garbled_by[index] = str(error)
            self._handle(UnreadableByDriver(index))

    def beat(self) -> None:
        """A beat has passed: what each link has carried since decides what is said on it, and who is silent."""
        links = [(index, peer.channel) for index, peer in self._peers.items() if peer.channel is not None]
        self._handle(BeatDue(tuple([Traffic(i, link.received, link.sent, link.queued_bytes > 0) for i, link in links])))

    def close(self) -> None:
        self.closed = True
        for peer in self._peers.values():
            if peer.dialer is not None:
                peer.dialer.abandon()
            if peer.channel is not None:
                peer.channel.close()
                peer.channel = None
        for sock, _ in self._early.values():
            sock.close()

    def cut(self, peer: int) -> None:
        """Break the link as a fault would; it heals by itself. For tests."""
        known = self._peers.get(peer)
        if known is not None and known.channel is not None:
            known.channel.close()
            self._lost(peer, known, known.channel, "it was cut")

    def _handle(self, event: PeerEvent) -> None:
        """Carry out what follows."""
        for action in self.peers.handle(event):
            match action:
                case TellUp(index):
                    self._on_up(index)
                case TellDown(index):
                    self._on_down(index)
                case TellLinked():
                    self._on_linked()
                case SayAlive(index):
                    channel = self._peers[index].channel
                    if channel is not None:
                        channel.send(CONTROL, [])
                case CloseLink(index, why):
                    self._close(index, why)
                case AskDriver(index):
                    self._relay(index, self.peers.talk(index), CONTROL, b"")
                case ReportGarbled(index):
                    if self._on_garbled is not None:
                        self._on_garbled(index, self._garbled_by.get(index, ""))
                case _:
                    assert_never(action)

    def _adopt(self, index: int, peer: Peer, sock: Connection) -> None:
        if peer.channel is not None:
            peer.channel.close()
        peer.channel = Channel(
            sock,
            self._reactor,
            partial(self._heard, index),
            lambda channel, reason: self._lost(index, peer, channel, reason),
        )
        self._handle(Connected(index))

    def _heard(self, index: int, channel: Channel | None, kind: int, body: bytes | memoryview) -> None:
        """channel: None if the driver has brought it."""
        if kind != CONTROL:  # A word that only says that the peer lives has been counted by the channel.
            self._on_message(index, kind, body)

    def _lost(self, index: int, peer: Peer, channel: Channel, reason: str) -> None:
        if peer.channel is not channel or self.closed:
            return
        log.info("site %d: the link to site %d is lost: %s", self.site, index, reason)
        peer.channel = None
        if channel.garbled:
            self._garbled_by[index] = reason
        self._dial_later(index, RETRY_LAST_S if channel.garbled else 0.0)  # What it says next will hardly be better.
        self._handle(Disconnected(index, channel.garbled))

    def _close(self, index: int, why: str) -> None:
        """A link is given up."""
        peer = self._peers[index]
        if peer.channel is not None:
            log.info("site %d: the link to site %d is closed: %s", self.site, index, why)
            peer.channel.close()
            peer.channel = None
            self._dial_later(index, 0.0)

    def _dial_later(self, index: int, wait_s: float) -> None:
        if index < self.site:
            self._reactor.call_later(wait_s, lambda: self._dial(index, RETRY_FIRST_S))

    def _dial(self, index: int, patience_s: float) -> None:
        """Connect now; after a failure wait `patience_s` and try again with twice the patience."""
        peer = self._peers.get(index)
        if self.closed or peer is None or peer.channel is not None or peer.dialer is not None:
            return

        def done(sock: Connection) -> None:
            peer.dialer = None
            self._adopt(index, peer, sock)

        def failed(reason: str) -> None:
            peer.dialer = None
            log.debug("site %d: no link to site %d yet: %s", self.site, index, reason)
            self._reactor.call_later(patience_s, lambda: self._dial(index, min(RETRY_LAST_S, 2 * patience_s)))

        hello: Hello = {"as": "peer", "site": self.site, "incarnation": self.incarnation}
        host, port, _ = self.roster.sites[index]
        peer.dialer = Dialer((host, port), self._reactor, self._secret, hello, done, failed)
