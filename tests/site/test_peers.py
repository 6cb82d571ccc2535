"""Whom a site can talk with: every row of the table in `site.peers`, without a clock or a socket."""

from __future__ import annotations

import pytest

from evenflow.site.peers import (
    APART_BEATS,
    GARBLED_MAX,
    MISSES,
    MUTE_BEATS,
    UNLINKED_BEATS,
    AskDriver,
    BeatDue,
    BroughtByDriver,
    CloseLink,
    Connected,
    Disconnected,
    PeerAction,
    Peers,
    ReportGarbled,
    RosterChanged,
    SayAlive,
    TellDown,
    TellLinked,
    TellUp,
    Traffic,
    UnreadableByDriver,
)


class Stage:
    """Site 1 of a roster of three, linked to the others. said: what has come from each peer, to which everything is said in time."""

    def __init__(self, *linked: int) -> None:
        self.peers = Peers(1)
        self.received = {0: 0, 2: 0}
        self.sent = {0: 0, 2: 0}
        self.peers.handle(RosterChanged((0, 1, 2)))
        for peer in linked:
            self.peers.handle(Connected(peer))

    def beat(self, *heard: int, queued: bool = False) -> list[PeerAction]:
        """A beat, before which these peers have said something."""
        for peer in heard:
            self.received[peer] += 1
        linked = [peer for peer in (0, 2) if self.peers._peers[peer].linked]
        actions = self.peers.handle(BeatDue(tuple(Traffic(peer, self.received[peer], self.sent[peer], queued) for peer in linked)))
        for action in actions:
            if isinstance(action, SayAlive):
                self.sent[action.peer] += 1
        return actions


def test_a_site_is_linked_when_it_has_reached_every_peer() -> None:
    peers = Peers(1)
    assert peers.handle(RosterChanged((0, 1, 2))) == []
    assert peers.handle(Connected(2)) == [TellUp(2)]
    assert not peers.complete
    assert peers.handle(Connected(0)) == [TellUp(0), TellLinked()]
    assert peers.handle(RosterChanged((0, 1, 2))) == [TellLinked()], "the driver waits to hear it of its newest roster"
    assert peers.handle(RosterChanged((0, 1, 2, 3))) == []
    assert Peers(0).handle(RosterChanged((0,))) == [TellLinked()], "a site alone has no peers to reach"


def test_a_site_that_leaves_the_roster_is_fenced() -> None:
    stage = Stage(0, 2)
    why = "it is in the roster no more"
    assert stage.peers.handle(RosterChanged((1, 2))) == [CloseLink(0, why), TellDown(0), TellLinked()]
    for late in (Connected(0), Disconnected(0), BroughtByDriver(0), UnreadableByDriver(0), BeatDue((Traffic(0, 1, 1),))):
        assert stage.peers.handle(late) == []
    assert 0 not in stage.peers and stage.peers.accused == ()


def test_a_peer_is_accused_at_once_when_its_link_ends_and_no_more_when_it_is_back() -> None:
    stage = Stage(0, 2)
    assert stage.peers.accused == ()
    assert stage.peers.handle(Disconnected(0)) == [TellDown(0)]
    assert stage.peers.accused == (0,)
    assert stage.peers.handle(Disconnected(0)) == [], "it is told once"
    assert stage.peers.handle(Connected(0)) == [TellUp(0), TellLinked()]
    assert stage.peers.accused == ()


def test_a_silent_peer_is_accused_and_then_its_link_is_given_up() -> None:
    stage = Stage(0, 2)
    for beat in range(1, MUTE_BEATS + 1):
        actions = stage.beat(2)
        assert stage.peers.accused == ((0,) if beat >= MISSES else ())
        assert (CloseLink(0, "nothing came through") in actions) == (TellDown(0) in actions) == (beat == MUTE_BEATS)
    assert MUTE_BEATS > MISSES
    assert not stage.peers.complete


def test_one_word_is_enough() -> None:
    stage = Stage(0, 2)
    for _ in range(MISSES):
        stage.beat(2)
    assert stage.peers.accused == (0,)
    stage.beat(0, 2)
    assert stage.peers.accused == () and stage.peers.silent_beats(0) == 0


def test_who_was_asleep_accuses_nobody() -> None:
    """However long a beat was due: it is one beat."""
    stage = Stage(0, 2)
    for _ in range(MISSES - 1):
        stage.beat()
    assert stage.peers.accused == ()


def test_a_word_is_said_only_where_nothing_else_is() -> None:
    stage = Stage(0, 2)
    assert stage.beat(0, 2) == [SayAlive(0), SayAlive(2)]
    stage.sent[0] += 1
    # The word of the last beat counts for that one; one link has carried rows since.
    stage.beat(0, 2)
    stage.sent[0] += 1
    assert SayAlive(0) not in stage.beat(0, 2)
    assert stage.beat(0, 2, queued=True) == [], "what waits to be sent says more than a word behind it would"


def test_newcomers_have_a_while_to_link_up() -> None:
    stage = Stage(2)
    for _ in range(UNLINKED_BEATS):
        assert AskDriver(0) not in stage.beat(2), "the driver is for links that were there"
        assert stage.peers.accused == ()
    stage.beat(2)
    assert stage.peers.accused == (0,)


def test_the_driver_passes_words_on_while_there_is_no_link() -> None:
    stage = Stage(0, 2)
    stage.peers.handle(Disconnected(0))
    for beat in range(1, APART_BEATS + 3):
        assert (AskDriver(0) in stage.beat(2)) == (beat >= APART_BEATS), "a link that breaks mostly comes back"
    assert not stage.peers.relayed(0)
    assert stage.peers.handle(BroughtByDriver(0)) == [AskDriver(0), TellUp(0)]
    assert stage.peers.relayed(0) and stage.peers.accused == (0,)
    assert stage.peers.handle(BroughtByDriver(0)) == [], "the answer does not ask for an answer"
    assert AskDriver(0) not in stage.beat(2)
    assert stage.peers.handle(Connected(0)) == [TellUp(0), TellLinked()]
    assert not stage.peers.relayed(0)
    assert stage.peers.handle(BroughtByDriver(0)) == [] and not stage.peers.relayed(0), "what comes late has been asked for again"


@pytest.mark.parametrize("relayed", [False, True])
def test_nonsense_again_and_again_is_reported(relayed: bool) -> None:
    stage = Stage(0, 2)
    if relayed:
        stage.peers.handle(Disconnected(0))
    for times in range(1, 2 * GARBLED_MAX + 1):
        if relayed:
            stage.peers.handle(BroughtByDriver(0))
            actions = stage.peers.handle(UnreadableByDriver(0))
            assert not stage.peers.relayed(0), "all is said again when the driver has been asked anew"
        else:
            actions = stage.peers.handle(Disconnected(0, garbled=True))
            stage.peers.handle(Connected(0))
        assert (ReportGarbled(0) in actions) == (times % GARBLED_MAX == 0)
