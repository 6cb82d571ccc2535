"""A site's links to its peers: one connection for each pair of sites, whatever the number of dataflows.

The site with the higher index connects, and connects again with growing patience when the link breaks; the other one accepts. A broken
link is not a dead site (V4): what was under way on it is lost, and the parts ask for it again when they hear that the link is up. What
is said while there is no link is dropped for the same reason: the part keeps it until it is acknowledged (A1).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Final

from evenflow.world.spark.channel import Channel
from evenflow.world.spark.control import Roster
from evenflow.world.spark.handshake import Hello
from evenflow.world.spark.listener import Dialer
from evenflow.world.spark.reactor import Reactor
from evenflow.world.spark.wire import Piece

RETRY_FIRST_S: Final = 0.02
RETRY_LAST_S: Final = 1.0

log = logging.getLogger("evenflow")


class Links:
    """on_message(peer, kind, body); on_up(peer) whenever the link to a peer is new."""

    def __init__(
        self,
        site: int,
        incarnation: str,
        reactor: Reactor,
        secret: bytes,
        on_message: Callable[[int, int, bytes | memoryview], None],
        on_up: Callable[[int], None],
    ) -> None:
        self.site, self.incarnation = site, incarnation
        self._reactor, self._secret = reactor, secret
        self._on_message, self._on_up = on_message, on_up
        self._channels: dict[int, Channel] = {}
        self._speakers: dict[int, str] = {}
        self._dialers: dict[int, Dialer] = {}
        self._early: dict[int, tuple[socket.socket, str]] = {}
        self.roster = Roster((), ())
        self.closed = False

    @property
    def complete(self) -> bool:
        """Every peer of the roster is connected."""
        return len(self._channels) == len(self.roster.addresses) - 1

    def set_roster(self, roster: Roster) -> None:
        """Connect to the peers of a new roster; drop links to sites that are not in it any more."""
        self.roster = roster
        for peer in list(self._channels):
            if self._speakers[peer] != self._expected(peer):
                self._channels.pop(peer).close()
        for dialer in self._dialers.values():
            dialer.abandon()
        self._dialers.clear()
        for peer in range(self.site):
            if peer not in self._channels:
                self._dial(peer, RETRY_FIRST_S)
        early, self._early = self._early, {}
        for peer, (sock, incarnation) in early.items():
            self.accept(sock, {"site": peer, "incarnation": incarnation})

    def accept(self, sock: socket.socket, hello: Hello) -> None:
        """Take a peer's connection. One that the roster does not know (yet) waits for the next roster."""
        peer, incarnation = int(hello["site"]), str(hello["incarnation"])
        if incarnation != self._expected(peer):
            waiting = self._early.pop(peer, None)
            if waiting is not None:
                waiting[0].close()
            self._early[peer] = (sock, incarnation)
            return
        self._adopt(peer, incarnation, sock)

    def send(self, peer: int, kind: int, pieces: list[Piece]) -> None:
        channel = self._channels.get(peer)
        if channel is not None:
            channel.send(kind, pieces)

    def close(self) -> None:
        self.closed = True
        for dialer in self._dialers.values():
            dialer.abandon()
        for channel in self._channels.values():
            channel.close()
        for sock, _ in self._early.values():
            sock.close()
        self._channels.clear()

    def cut(self, peer: int) -> None:
        """Break the link as a fault would; it heals by itself. For tests."""
        channel = self._channels.get(peer)
        if channel is not None:
            channel.close()
            self._lost(peer, channel, "it was cut")

    def _expected(self, peer: int) -> str | None:
        return self.roster.incarnations[peer] if 0 <= peer < len(self.roster.incarnations) else None

    def _adopt(self, peer: int, incarnation: str, sock: socket.socket) -> None:
        old = self._channels.pop(peer, None)
        if old is not None:
            old.close()
        self._channels[peer] = Channel(
            sock,
            self._reactor,
            lambda channel, kind, body: self._on_message(peer, kind, body),
            lambda channel, reason: self._lost(peer, channel, reason),
        )
        self._speakers[peer] = incarnation
        self._on_up(peer)

    def _lost(self, peer: int, channel: Channel, reason: str) -> None:
        if self._channels.get(peer) is channel:
            log.info("site %d: the link to site %d is lost: %s", self.site, peer, reason)
            del self._channels[peer]
            if peer < self.site and not self.closed and peer not in self._dialers:
                self._dial(peer, RETRY_FIRST_S)

    def _dial(self, peer: int, patience_s: float) -> None:
        """Connect now; after a failure wait `patience_s` and try again with twice the patience."""
        expected = self._expected(peer)
        if self.closed or expected is None or peer in self._channels:
            return

        def done(sock: socket.socket) -> None:
            self._dialers.pop(peer, None)
            self._adopt(peer, expected, sock)

        def failed(reason: str) -> None:
            self._dialers.pop(peer, None)
            self._reactor.call_later(patience_s, again)

        def again() -> None:
            if self._expected(peer) == expected and peer not in self._dialers:
                self._dial(peer, min(RETRY_LAST_S, 2 * patience_s))

        hello: Hello = {"as": "peer", "site": self.site, "incarnation": self.incarnation}
        self._dialers[peer] = Dialer(self.roster.addresses[peer], self._reactor, self._secret, hello, done, failed)
