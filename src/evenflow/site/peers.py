"""A site's peers: whom it can talk with, who seems to be dead, which links are given up, and for whom the driver passes words on.

    what the site sees of a peer                    what it does                                            after
    its link has ended                              accuses it, tells its parts                             at once
    not a word on its link                          accuses it                                              MISSES beats
    not a word on its link                          gives the link up: it stands, but nothing comes through MUTE beats
    no link, though there was one                   asks the driver to pass a word on, again at every beat  APART beats
    the driver brings a word, and there is no link  talks with it by the driver, tells its parts            at once
    the driver brings a word of a talk that is over ignores it                                              at once
    never a link                                    accuses it: newcomers need a moment                     UNLINKED beats
    what it says cannot be read, again and again    reports it                                              GARBLED times

A broken link is not a dead site (protocol V4): an accusation is one voice, and the driver judges.
Silence is counted in beats, not in time: a site that was itself asleep accuses nobody of what it has
slept through.

The driver's way to a site may be cut for long, and what waits there comes when the cut is healed. By then
the two may have had a link, said much more on it, and lost it again. So every word by the driver says of
which talk it is, in numbers of both ends (`Talk`): a demand from before is not taken for a new one.

This file knows no clock and no socket. Its time is the beat. A world says how often that is, connects,
and carries out the actions in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

MISSES: Final = 4
"""Beats without a word from a peer after which it is accused."""
UNLINKED_BEATS: Final = 40
"""Beats after which a peer is accused with which there never was a link: newcomers need a moment."""
MUTE_BEATS: Final = 10
"""Beats without a word after which a link is given up: it may stand, but nothing comes through."""
APART_BEATS: Final = 6
"""Beats without a link after which the driver is asked to pass on what is said."""
GARBLED_MAX: Final = 3
"""Times that a peer may say what cannot be read, before that is reported."""


class Talk(NamedTuple):
    """Of which talk a word by the driver is. Each end numbers its talks with the other, from 1 on: one is over when a link has been lost
    since, or what came could not be read.

    speaker: how its speaker numbers it. hearer: how its hearer does, as far as the speaker has heard; 0: it has heard nothing yet.
    """

    speaker: int
    hearer: int


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class RosterChanged:
    """These sites are there, this one among them. A site that is not in it any more is fenced (V3)."""

    sites: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Connected:
    """There is a new link to the peer; it takes the place of an older one."""

    peer: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The link to the peer has ended. garbled: because of what the peer said on it."""

    peer: int
    garbled: bool = False


@dataclass(frozen=True, slots=True)
class BroughtByDriver:
    """The driver brings what the peer says for want of a link. talk: of which talk it is."""

    peer: int
    talk: Talk


@dataclass(frozen=True, slots=True)
class UnreadableByDriver:
    """What the driver has brought from the peer cannot be read."""

    peer: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """How many messages a link has carried since it is there. queued: something waits to be sent."""

    peer: int
    received: int
    sent: int
    queued: bool = False


@dataclass(frozen=True, slots=True)
class BeatDue:
    """A beat has passed. links: of every link that there is."""

    links: tuple[Traffic, ...]


PeerEvent = RosterChanged | Connected | Disconnected | BroughtByDriver | UnreadableByDriver | BeatDue

# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class TellUp:
    """Tell the parts that the peer can be talked with anew: what was under way is lost, and they ask for it again."""

    peer: int


@dataclass(frozen=True, slots=True)
class TellDown:
    """Tell the parts, and the driver, that there is no link to the peer any more."""

    peer: int


@dataclass(frozen=True, slots=True)
class TellLinked:
    """Tell the driver that every peer of the roster is linked."""


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Close the link to the peer. why: for the log."""

    peer: int
    why: str


@dataclass(frozen=True, slots=True)
class SayAlive:
    """Say a word on the link: it has carried none since the last beat."""

    peer: int


@dataclass(frozen=True, slots=True)
class AskDriver:
    """Let the driver bring the peer a word, of the talk that there is then. If the peer lives it answers in the same way."""

    peer: int


@dataclass(frozen=True, slots=True)
class ReportGarbled:
    """What the peer says cannot be read, again and again."""

    peer: int


PeerAction = TellUp | TellDown | TellLinked | CloseLink | SayAlive | AskDriver | ReportGarbled

# ---------------------------------------------------------------- the machine


@dataclass(slots=True)
class Peer:
    """A peer in the roster.

    linked: there is a link. known: there was one once.
    silent, unlinked: beats without a word on the link, and without a link.
    received, sent: what the link had carried at the last beat.
    garbled: how often what it said could not be read. relayed: the driver passes on what is said.
    talk: the number of the talk by the driver that is under way, or comes next. its_talk: the peer's own, the highest that was heard of.
    """

    linked: bool = False
    known: bool = False
    silent: int = 0
    unlinked: int = 0
    received: int = 0
    sent: int = 0
    garbled: int = 0
    relayed: bool = False
    talk: int = 1
    its_talk: int = 0


class Peers:
    """See the module. site: whose peers they are."""

    def __init__(self, site: int) -> None:
        self.site = site
        self._peers: dict[int, Peer] = {}

    def __repr__(self) -> str:
        return f"peers {list(self._peers)} of site {self.site}, accused {self.accused}"

    def __contains__(self, peer: int) -> bool:
        return peer in self._peers

    @property
    def complete(self) -> bool:
        """Every peer of the roster is linked."""
        return all(peer.linked for peer in self._peers.values())

    @property
    def accused(self) -> tuple[int, ...]:
        """Peers with which there is no link any more, or that have been silent for too long."""
        return tuple(
            index
            for index, peer in self._peers.items()
            if (peer.silent >= MISSES if peer.linked else peer.known or peer.unlinked > UNLINKED_BEATS)
        )

    def silent_beats(self, peer: int) -> int:
        """How many beats have gone by without a word from the peer."""
        return self._peers[peer].silent

    def linked(self, peer: int) -> bool:
        """There is a link to the peer, and it is in the roster."""
        known = self._peers.get(peer)
        return known is not None and known.linked

    def relayed(self, peer: int) -> bool:
        """What is said to the peer goes by the driver."""
        known = self._peers.get(peer)
        return known is not None and known.relayed

    def talk(self, peer: int) -> Talk:
        """Of which talk it is what is said to the peer by the driver."""
        known = self._peers.get(peer, Peer())
        return Talk(known.talk, known.its_talk)

    def hears(self, peer: int, talk: Talk) -> bool:
        """What the driver has brought with this number is of the talk that is under way, and to be handled."""
        known = self._peers.get(peer)
        return known is not None and known.relayed and not known.linked and talk == (known.its_talk, known.talk)

    def handle(self, event: PeerEvent) -> list[PeerAction]:
        """Take one event. Returns what follows from it.

        What is said of a peer that is not in the roster is ignored: it is fenced (V3).
        """
        match event:
            case BeatDue(links):
                return self._beat(links)
            case RosterChanged(sites):
                return self._meet(sites)
            case Connected(index):
                return self._connect(index)
            case Disconnected(index, garbled):
                return self._disconnect(index, garbled)
            case BroughtByDriver(index, talk):
                return self._hear_driver(index, talk)
            case UnreadableByDriver(index):
                return self._distrust(index)
            case _:
                assert_never(event)

    def _meet(self, sites: tuple[int, ...]) -> list[PeerAction]:
        actions: list[PeerAction] = []
        for index in [index for index in self._peers if index not in sites]:
            if self._peers.pop(index).linked:
                actions += [CloseLink(index, "it is in the roster no more"), TellDown(index)]
        for index in sites:
            if index != self.site and index not in self._peers:
                self._peers[index] = Peer()
        return [*actions, TellLinked()] if self.complete else actions

    def _connect(self, index: int) -> list[PeerAction]:
        peer = self._peers.get(index)
        if peer is None:
            return []
        peer.linked, peer.known, peer.relayed = True, True, False
        peer.received = peer.sent = peer.silent = peer.unlinked = 0
        return [TellUp(index), TellLinked()] if self.complete else [TellUp(index)]

    def _disconnect(self, index: int, garbled: bool) -> list[PeerAction]:
        peer = self._peers.get(index)
        if peer is None or not peer.linked:
            return []
        self._part(peer)
        return [*(self._count_garbled(index, peer) if garbled else ()), TellDown(index)]

    @staticmethod
    def _part(peer: Peer) -> None:
        """There is no link any more, or no talk: what was said before is lost, and what comes of it later is of a talk that is over."""
        peer.linked, peer.relayed, peer.unlinked = False, False, 0
        peer.talk += 1

    def _hear_driver(self, index: int, talk: Talk) -> list[PeerAction]:
        """What comes late, when there is a link or has been one, has been asked for again.

        A talk begins when the peer has begun one, which loses what was said in the one before, or answers that of this site.
        """
        peer = self._peers.get(index)
        if peer is None or peer.linked or talk.speaker < peer.its_talk:
            return []
        anew, peer.its_talk = talk.speaker > peer.its_talk, talk.speaker
        if not anew and (peer.relayed or talk.hearer != peer.talk):
            return []
        peer.relayed = True
        return [AskDriver(index), TellUp(index)]

    def _distrust(self, index: int) -> list[PeerAction]:
        """All is said again when they have found each other anew."""
        peer = self._peers.get(index)
        if peer is None or not peer.relayed:
            return []
        self._part(peer)
        return self._count_garbled(index, peer)

    def _count_garbled(self, index: int, peer: Peer) -> list[PeerAction]:
        peer.garbled += 1
        if peer.garbled < GARBLED_MAX:
            return []
        peer.garbled = 0
        return [ReportGarbled(index)]

    def _beat(self, links: tuple[Traffic, ...]) -> list[PeerAction]:
        """Say a word on every link that has carried none since the last beat, and note who has said none."""
        actions: list[PeerAction] = []
        for index, peer in self._peers.items():
            if not peer.linked:
                peer.unlinked += 1
                if peer.known and not peer.relayed and peer.unlinked >= APART_BEATS:
                    actions.append(AskDriver(index))
        for traffic in links:
            index, known = traffic.peer, self._peers.get(traffic.peer)
            if known is None or not known.linked:
                continue
            known.silent = known.silent + 1 if traffic.received == known.received else 0
            known.received = traffic.received
            if known.silent >= MUTE_BEATS:
                self._part(known)
                actions += [CloseLink(index, "nothing came through"), TellDown(index)]
                continue
            if traffic.sent == known.sent and not traffic.queued:
                actions.append(SayAlive(index))
            known.sent = traffic.sent
        return actions
