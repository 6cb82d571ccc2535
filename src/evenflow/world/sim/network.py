"""Simulated connections between sites: one per pair, each direction in order, lost as a whole; and packets that do not get through.

A lost connection takes what is under way with it, and each end hears of that at a time of its own, or only when the new one is there. A
**cut** direction loses packets, not connections: what is sent waits, as under TCP, and comes in order when the cut is healed, unless
an end has given the connection up meanwhile, because it has heard nothing for too long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from evenflow.exchange.parts import in_parts
from evenflow.exchange.section import Section
from evenflow.site.peers import Traffic
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import DetectionModel, LinkModel

Arrive = Callable[[], None]


@dataclass(slots=True)
class Wire:
    """One direction between two ends. cut: nothing gets through. slow_us: delay on top. arrives_us: of the last message. sent, heard:
    messages since the connection is there, words that only say that somebody lives among them. waiting: what a cut holds up."""

    cut: bool = False
    slow_us: int = 0
    arrives_us: int = 0
    sent: int = 0
    heard: int = 0
    waiting: list[tuple[int, Arrive]] = field(default_factory=list)


@dataclass(slots=True)
class Connection:
    """Between two sites. generation: raised when it is lost, and when there is a new one. there: the generation that came up last; what is
    said on it arrives as long as that is the newest. open: by end, whether that end believes that it can send. linked: it was up once.
    dialing: a try is under way."""

    generation: int = 0
    there: int = 0
    open: dict[int, bool] = field(default_factory=dict)
    linked: bool = False
    dialing: bool = False


@dataclass(frozen=True, slots=True)
class Ends:
    """What the network asks of the sites. answers: the process can take a connection. known: that site has it in its roster.

    up, down: a site learns of its link. section: one arrives (receiver, sender, section).
    """

    answers: Callable[[int], bool]
    known: Callable[[int, int], bool]
    up: Callable[[int, int], None]
    down: Callable[[int, int], None]
    section: Callable[[int, int, Section], None]


class Network:
    """messages: sections sent so far. most_bytes: of rows that one message takes, if more can be said in several; None: any."""

    def __init__(self, clock: VirtualClock, random: Random, link: LinkModel, detection: DetectionModel, ends: Ends) -> None:
        self._clock, self._random, self.link, self._detection, self._ends = clock, random, link, detection, ends
        self.wires: dict[tuple[int, int], Wire] = {}
        self.connections: dict[tuple[int, int], Connection] = {}
        self._of: dict[int, list[int]] = {}
        self.messages = 0
        self.most_bytes: int | None = None

    def between(self, a: int, b: int) -> Connection:
        return self.connections[(a, b) if a < b else (b, a)]

    def is_open(self, end: int, peer: int) -> bool:
        """Whether `end` has a link to its peer, as far as it knows."""
        return self.between(end, peer).open.get(end, False)

    def peers(self, site: int) -> list[int]:
        return self._of[site]

    def add(self, site: int, *, linked: bool) -> None:
        """A site comes. linked: with all its links, else they come up one by one."""
        self._of[site] = sorted(self._of)
        for peer in self._of[site]:
            self._of[peer].append(site)
            connection = self.connections[peer, site] = Connection()
            self.wires[peer, site], self.wires[site, peer] = Wire(), Wire()
            if linked:
                connection.open = {peer: True, site: True}
                connection.linked = True
            else:
                self._dial_later(site, peer, self._random.randint(*self._detection.link_us))

    # ------------------------------------------------------------ messages

    def send(self, sender: int, receiver: int, section: Section) -> None:
        """Dropped if the sender has no link: its part asks again for what matters."""
        if self.most_bytes is None:
            self._send(sender, receiver, section)
            return
        for part in in_parts(section, self.most_bytes):
            self._send(sender, receiver, part)

    def _send(self, sender: int, receiver: int, section: Section) -> None:
        self.messages += 1
        connection = self.between(sender, receiver)
        if not connection.open.get(sender, False):
            return
        generation = connection.there  # An end that has not heard of its loss yet speaks on it for nothing.

        wire = self.wires[sender, receiver]
        wire.sent += 1

        def arrive() -> None:
            if connection.generation == generation:
                wire.heard += 1
                self._ends.section(receiver, sender, section)

        self._carry(sender, receiver, arrive)

    def _carry(self, sender: int, receiver: int, arrive: Arrive) -> None:
        wire = self.wires[sender, receiver]
        delay_us = self.link.draw_delay(self._random) + wire.slow_us
        if wire.cut:
            wire.waiting.append((delay_us, arrive))
            return
        wire.arrives_us = max(self._clock.now_us + delay_us, wire.arrives_us + 1)
        self._clock.at(wire.arrives_us, arrive)

    def traffic(self, site: int) -> tuple[Traffic, ...]:
        """What the links of a site have carried since they are there."""
        found = []
        for peer in self._of[site]:
            if self.is_open(site, peer):
                out = self.wires[site, peer]
                found.append(Traffic(peer, self.wires[peer, site].heard, out.sent, bool(out.waiting)))
        return tuple(found)

    def say_alive(self, site: int, peer: int) -> None:
        """A word on a link that carries nothing else. A cut loses it: there will be another one."""
        wire, connection = self.wires[site, peer], self.between(site, peer)
        wire.sent += 1
        if wire.cut or not connection.open.get(peer):
            return
        if not wire.slow_us:
            wire.heard += 1
            return
        generation = connection.there

        def arrive() -> None:
            if connection.generation == generation:
                wire.heard += 1

        self._clock.after(wire.slow_us, arrive)

    # ------------------------------------------------------------ faults

    def cut(self, sender: int, receiver: int) -> None:
        """Nothing gets through in this direction."""
        self.wires[sender, receiver].cut = True

    def heal(self, sender: int, receiver: int) -> None:
        """What has waited comes now."""
        wire = self.wires[sender, receiver]
        if wire.cut:
            wire.cut = False
            waiting, wire.waiting = wire.waiting, []
            for delay_us, arrive in waiting:
                wire.arrives_us = max(self._clock.now_us + delay_us, wire.arrives_us + 1)
                self._clock.at(wire.arrives_us, arrive)

    def lose(self, a: int, b: int, *, after_us: int | None = None, by: int | None = None) -> None:
        """The connection is gone, with what is under way. by: the end that has given it up; else both see it end, or one only when it is
        back. after_us: when it comes back at the soonest."""
        connection = self.between(a, b)
        if not connection.open.get(a) and not connection.open.get(b):
            return
        connection.generation += 1
        unaware = self._random.choice((a, b)) if self._random.random() < 0.2 else None
        for end, peer in ((a, b), (b, a)):
            if by == end:
                self._close(end, peer)
            elif end != unaware and not self.wires[peer, end].cut:
                self._clock.after(self._random.randint(0, 500), lambda e=end, p=peer, g=connection.generation: self._see_end(e, p, g))  # type: ignore[misc]
        self._dial_later(a, b, after_us if after_us is not None else self.link.reconnect_us)

    def _see_end(self, end: int, peer: int, generation: int) -> None:
        connection = self.between(end, peer)
        if connection.generation == generation and connection.open.get(end):
            self._close(end, peer)

    def _close(self, end: int, peer: int) -> None:
        self.between(end, peer).open[end] = False
        self._ends.down(end, peer)

    def die(self, site: int, *, silently: bool) -> None:
        """The process is gone. What it has sent may still arrive; then its peers see the end of the link. silently: they do not."""
        for peer in self._of[site]:
            connection = self.between(site, peer)
            connection.open[site] = False
            if silently or not connection.open.get(peer):
                continue
            if self._random.random() < 0.5:
                connection.generation += 1
            generation = connection.generation

            def end(peer: int = peer, connection: Connection = connection, generation: int = generation) -> None:
                if connection.generation == generation and connection.open.get(peer):
                    connection.generation += 1
                    self._close(peer, site)

            wire = self.wires[site, peer]
            if wire.cut:
                wire.waiting.append((0, end))
            else:
                self._clock.at(max(self._clock.now_us + self._random.randint(*self._detection.link_us), wire.arrives_us + 1), end)

    def leave(self, end: int, peer: int) -> None:
        """The peer is not in this end's roster any more: the link is closed, for ever (V3)."""
        if self.is_open(end, peer):
            self.lose(end, peer, by=end)

    # ------------------------------------------------------------ links come up

    def _dial_later(self, a: int, b: int, after_us: int) -> None:
        connection = self.between(a, b)
        if not connection.dialing:
            connection.dialing = True
            self._clock.after(after_us, lambda: self._dial(a, b))

    def _dial(self, a: int, b: int) -> None:
        connection, ends = self.between(a, b), self._ends
        connection.dialing = False
        if not (ends.known(a, b) and ends.known(b, a)):
            return
        if self.wires[a, b].cut or self.wires[b, a].cut or not (ends.answers(a) and ends.answers(b)):
            self._dial_later(a, b, max(self.link.reconnect_us, 5_000))
            return
        connection.generation += 1
        connection.there, connection.linked = connection.generation, True
        for end, peer in ((a, b), (b, a)):
            connection.open[end] = False
            at_us = self._clock.now_us + self._random.randint(0, 500)
            # What the peer says over the new link comes after the news that there is one.
            wire = self.wires[peer, end]
            wire.waiting.clear()
            wire.arrives_us = max(wire.arrives_us, at_us)
            wire.sent = wire.heard = 0
            self._clock.at(at_us, lambda e=end, p=peer, g=connection.generation: self._open(e, p, g))  # type: ignore[misc]

    def _open(self, end: int, peer: int, generation: int) -> None:
        connection = self.between(end, peer)
        if connection.generation == generation and self._ends.known(end, peer):
            connection.open[end] = True
            self._ends.up(end, peer)


@dataclass(slots=True)
class Line:
    """A site's control connection: messages in order, each once, over one connection after the other; only time passes when it breaks.

    up, down: to the coordinator and from it.
    """

    up: Wire = field(default_factory=Wire)
    down: Wire = field(default_factory=Wire)

    def carry(self, clock: VirtualClock, wire: Wire, delay_us: int, arrive: Any) -> None:
        delay_us += wire.slow_us
        if wire.cut:
            wire.waiting.append((delay_us, arrive))
            return
        wire.arrives_us = max(clock.now_us + delay_us, wire.arrives_us + 1)
        clock.at(wire.arrives_us, arrive)

    def heal(self, clock: VirtualClock, wire: Wire) -> None:
        if wire.cut:
            wire.cut = False
            waiting, wire.waiting = wire.waiting, []
            for delay_us, arrive in waiting:
                wire.arrives_us = max(clock.now_us + delay_us, wire.arrives_us + 1)
                clock.at(wire.arrives_us, arrive)
