"""A site's links to its peers: one connection for each pair of sites, whatever the number of dataflows.

The site with the higher index connects, and connects again with growing patience when the link breaks; the other one accepts. A broken
link is not a dead site (V4): what was under way on it is lost, and the parts ask for it again when they hear that the link is up. What
is said while there is no link is dropped for the same reason: the part keeps it until it is acknowledged (A1).

While there is no link to a peer that lives, the driver passes on what is said, once the peer has answered that way: a cut between two sites
stops neither of them, nor anybody else. The driver touches data for nothing but that.

A site that is not in the roster any more is fenced (V3): its link is closed, and no other one is accepted. Indices are given in order and
never twice, so an unknown one below the highest that was ever seen is a dead site's, and one above it a newcomer's.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from evenflow.errors import ProtocolError
from evenflow.world.spark.channel import GARBLED_MAX, Channel
from evenflow.world.spark.control import Roster
from evenflow.world.spark.handshake import Hello
from evenflow.world.spark.listener import Dialer
from evenflow.world.spark.reactor import Reactor
from evenflow.world.spark.wire import CONTROL, Piece

RETRY_FIRST_S: Final = 0.02
RETRY_LAST_S: Final = 1.0
MISSES: Final = 4
"""Beats without a word from a peer after which it is accused."""
UNLINKED_BEATS: Final = 40
"""Beats after which a peer is accused with which there never was a link: newcomers need a moment."""
MUTE_BEATS: Final = 10
"""Beats without a word after which a link is given up: it may stand, but nothing comes through."""
APART_BEATS: Final = 6
"""Beats without a link after which the driver is asked to pass on what is said."""

log = logging.getLogger("evenflow")


@dataclass(slots=True)
class Peer:
    """A peer in the roster. linked: there was a link to it once. silent, unlinked: beats without a word, without a link from the start.

    sent, received: the channel's counts at the last beat. garbled: links that were closed because of what it said. relayed: the driver
    passes on what is said, for want of a link.
    """

    incarnation: str
    channel: Channel | None = None
    dialer: Dialer | None = None
    linked: bool = False
    sent: int = 0
    received: int = 0
    silent: int = 0
    unlinked: int = 0
    garbled: int = 0
    relayed: bool = False


def nothing(peer: int) -> None:
    """Nobody wants to know."""


def nowhere(peer: int, kind: int, body: bytes) -> None:
    """There is nobody who passes anything on."""


class Links:
    """on_message(peer, kind, body). on_up(peer): there is a new link; on_down(peer): there is none any more.

    on_garbled(peer, reason): what the peer says cannot be read, again and again. relay(peer, kind, body): ask the driver to pass it on.
    """

    def __init__(
        self,
        site: int,
        incarnation: str,
        reactor: Reactor,
        secret: bytes,
        on_message: Callable[[int, int, bytes | memoryview], None],
        on_up: Callable[[int], None],
        on_down: Callable[[int], None] = nothing,
        on_garbled: Callable[[int, str], None] | None = None,
        relay: Callable[[int, int, bytes], None] = nowhere,
    ) -> None:
        self.site, self.incarnation = site, incarnation
        self._reactor, self._secret = reactor, secret
        self._on_message, self._on_up, self._on_down, self._on_garbled = on_message, on_up, on_down, on_garbled
        self._relay = relay
        self._peers: dict[int, Peer] = {}
        self._early: dict[int, tuple[socket.socket, str]] = {}
        self._newest = -1
        self.roster = Roster(0, {})
        self.closed = False

    @property
    def complete(self) -> bool:
        """Every peer of the roster is connected."""
        return all(peer.channel is not None for peer in self._peers.values())

    def silent_beats(self, peer: int) -> int:
        """How many beats have gone by without a word from the peer."""
        return self._peers[peer].silent

    def set_roster(self, roster: Roster) -> None:
        """Connect to the peers of a new roster; drop links to sites that are not in it any more."""
        self.roster = roster
        self._newest = max((self._newest, *roster.sites))
        for index in [index for index in self._peers if index not in roster.sites]:
            peer = self._peers.pop(index)
            if peer.dialer is not None:
                peer.dialer.abandon()
            if peer.channel is not None:
                peer.channel.close()
                self._on_down(index)
        for index, (_, _, incarnation) in roster.sites.items():
            if index != self.site and index not in self._peers:
                self._peers[index] = Peer(incarnation)
                if index < self.site:
                    self._dial(index, RETRY_FIRST_S)
        early, self._early = self._early, {}
        for index, (sock, incarnation) in early.items():
            self.accept(sock, {"site": index, "incarnation": incarnation})

    def accept(self, sock: socket.socket, hello: Hello) -> None:
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
        elif known.relayed:
            self._relay(peer, kind, b"".join(bytes(piece) for piece in pieces))

    def hear_relayed(self, index: int, kind: int, body: bytes) -> None:
        """The driver brings what a peer says for want of a link. What comes late, when there is one, has been asked for again."""
        peer = self._peers.get(index)
        if peer is None or peer.channel is not None:
            return
        if not peer.relayed:
            log.info("site %d: the driver passes on what is said between it and site %d", self.site, index)
            peer.relayed = True
            self._relay(index, CONTROL, b"")
            self._on_up(index)
        try:
            self._heard(index, kind, body)
        except ProtocolError as error:
            log.warning("site %d: what site %d says by the driver cannot be read: %s", self.site, index, error)
            peer.relayed, peer.unlinked = False, 0  # All is said again when they have found each other anew.
            self._note_garbled(index, peer, str(error))

    def beat(self) -> None:
        """Say a word on every link that has carried none since the last beat, and note who has said none.

        Silence is counted in beats, not in time: a site that was itself asleep accuses nobody of what it has slept through.
        """
        for index, peer in list(self._peers.items()):
            channel = peer.channel
            if channel is None:
                peer.unlinked += 1
                if peer.linked and not peer.relayed and peer.unlinked >= APART_BEATS:
                    self._relay(index, CONTROL, b"")  # If it lives it answers in the same way.
                continue
            peer.silent = peer.silent + 1 if channel.received == peer.received else 0
            peer.received = channel.received
            if peer.silent >= MUTE_BEATS:
                channel.close()
                self._lost(index, peer, channel, "nothing came through")
                continue
            if channel.sent == peer.sent and not channel.queued_bytes:
                channel.send(CONTROL, [])
            peer.sent = channel.sent

    @property
    def accused(self) -> tuple[int, ...]:
        """Peers with which there is no link any more, or that have been silent for too long."""
        return tuple(
            index
            for index, peer in self._peers.items()
            if (peer.silent >= MISSES if peer.channel is not None else peer.linked or peer.unlinked > UNLINKED_BEATS)
        )

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
            channel = known.channel
            channel.close()
            self._lost(peer, known, channel, "it was cut")

    def _adopt(self, index: int, peer: Peer, sock: socket.socket) -> None:
        if peer.channel is not None:
            peer.channel.close()
        peer.channel = Channel(
            sock,
            self._reactor,
            lambda channel, kind, body: self._heard(index, kind, body),
            lambda channel, reason: self._lost(index, peer, channel, reason),
        )
        peer.linked, peer.relayed = True, False
        peer.sent = peer.received = peer.silent = peer.unlinked = 0
        self._on_up(index)

    def _heard(self, index: int, kind: int, body: bytes | memoryview) -> None:
        if kind != CONTROL:  # A word that only says that the peer lives has been counted by the channel.
            self._on_message(index, kind, body)

    def _lost(self, index: int, peer: Peer, channel: Channel, reason: str) -> None:
        if peer.channel is not channel or self.closed:
            return
        log.info("site %d: the link to site %d is lost: %s", self.site, index, reason)
        peer.channel = None
        peer.unlinked = 0
        wait_s = 0.0
        if channel.garbled:
            wait_s = RETRY_LAST_S  # What it says next will hardly be better.
            self._note_garbled(index, peer, reason)
        if index < self.site:
            self._reactor.call_later(wait_s, lambda: self._dial(index, RETRY_FIRST_S))
        self._on_down(index)

    def _note_garbled(self, index: int, peer: Peer, reason: str) -> None:
        peer.garbled += 1
        if peer.garbled >= GARBLED_MAX and self._on_garbled is not None:
            peer.garbled = 0
            self._on_garbled(index, reason)

    def _dial(self, index: int, patience_s: float) -> None:
        """Connect now; after a failure wait `patience_s` and try again with twice the patience."""
        peer = self._peers.get(index)
        if self.closed or peer is None or peer.channel is not None or peer.dialer is not None:
            return

        def done(sock: socket.socket) -> None:
            peer.dialer = None
            self._adopt(index, peer, sock)

        def failed(reason: str) -> None:
            peer.dialer = None
            self._reactor.call_later(patience_s, lambda: self._dial(index, min(RETRY_LAST_S, 2 * patience_s)))

        hello: Hello = {"as": "peer", "site": self.site, "incarnation": self.incarnation}
        host, port, _ = self.roster.sites[index]
        peer.dialer = Dialer((host, port), self._reactor, self._secret, hello, done, failed)
