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
    Talk,
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
    for late in (Connected(0), Disconnected(0), BroughtByDriver(0, Talk(1, 0)), UnreadableByDriver(0), BeatDue((Traffic(0, 1, 1),))):
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
    asks, answers = Talk(5, 0), Talk(5, 2)
    assert stage.peers.handle(BroughtByDriver(0, asks)) == [AskDriver(0), TellUp(0)] and stage.peers.talk(0) == (2, 5)
    assert stage.peers.relayed(0) and stage.peers.accused == (0,)
    assert stage.peers.handle(BroughtByDriver(0, answers)) == [], "the answer does not ask for an answer"
    assert stage.peers.hears(0, answers) and not stage.peers.hears(0, asks)
    assert AskDriver(0) not in stage.beat(2)
    assert stage.peers.handle(Connected(0)) == [TellUp(0), TellLinked()]
    assert not stage.peers.relayed(0)
    assert stage.peers.handle(BroughtByDriver(0, answers)) == [] and not stage.peers.relayed(0), "what comes late has been asked for again"
    assert not stage.peers.hears(0, answers)


def test_words_of_a_talk_that_is_over_are_not_heard() -> None:
    """They have waited on the driver's way to here, while there was a link, and another talk."""
    stage = Stage(2)
    stage.peers.handle(BroughtByDriver(0, Talk(1, 0)))
    assert stage.peers.hears(0, Talk(1, 1))
    stage.peers.handle(Connected(0))
    stage.peers.handle(Disconnected(0))
    assert stage.peers.handle(BroughtByDriver(0, Talk(1, 1))) == [] and not stage.peers.relayed(0)
    assert stage.peers.handle(BroughtByDriver(0, Talk(2, 1))) == [AskDriver(0), TellUp(0)], "it has begun anew, and is answered"
    assert not stage.peers.hears(0, Talk(2, 1)), "it has not heard yet that this site has begun anew too"
    assert stage.peers.handle(BroughtByDriver(0, Talk(2, 2))) == [] and stage.peers.hears(0, Talk(2, 2))
    assert stage.peers.handle(BroughtByDriver(0, Talk(3, 2))) == [AskDriver(0), TellUp(0)], "what was said in its last talk may be lost"
    assert stage.peers.handle(BroughtByDriver(0, Talk(2, 2))) == [] and not stage.peers.hears(0, Talk(2, 2))


def test_two_ends_find_each_other_whatever_they_remember() -> None:
    """Both hear a talk of their own in the end, and nobody answers answers. Method: each may have lost more links than the other, and
    have heard anything of it; what both say is carried in order."""
    for lost in ((0, 0), (3, 0), (0, 3), (2, 2)):
        for heard in ((0, 0), (1, 0), (0, 1), (1, 1), (lost[1], lost[0])):
            ends = [Peers(0), Peers(1)]
            for site, end in enumerate(ends):
                end.handle(RosterChanged((0, 1)))
                for _ in range(1 + lost[site]):
                    end.handle(Connected(1 - site))
                    end.handle(Disconnected(1 - site))
                end._peers[1 - site].its_talk = heard[site]
            lines: list[list[Talk]] = [[], []]
            for _ in range(4 * APART_BEATS):
                for site, end in enumerate(ends):
                    said = [action for action in end.handle(BeatDue(())) if isinstance(action, AskDriver)]
                    lines[1 - site] += [end.talk(1 - site)] * len(said)
                while any(lines):
                    to = 0 if lines[0] else 1
                    answer = [a for a in ends[to].handle(BroughtByDriver(1 - to, lines[to].pop(0))) if isinstance(a, AskDriver)]
                    lines[1 - to] += [ends[to].talk(1 - to)] * len(answer)
            for site in (0, 1):
                assert ends[site].relayed(1 - site) and ends[1 - site].hears(site, ends[site].talk(1 - site)), (lost, heard)


@pytest.mark.parametrize("relayed", [False, True])
def test_nonsense_again_and_again_is_reported(relayed: bool) -> None:
    stage = Stage(0, 2)
    if relayed:
        stage.peers.handle(Disconnected(0))
    for times in range(1, 2 * GARBLED_MAX + 1):
        if relayed:
            assert stage.peers.handle(BroughtByDriver(0, Talk(times, 1 + times))) == [AskDriver(0), TellUp(0)]
            actions = stage.peers.handle(UnreadableByDriver(0))
            assert not stage.peers.relayed(0), "all is said again when the driver has been asked anew"
            assert stage.peers.handle(BroughtByDriver(0, Talk(times, 1 + times))) == [], "of what came behind it, nothing is heard"
        else:
            actions = stage.peers.handle(Disconnected(0, garbled=True))
            stage.peers.handle(Connected(0))
        assert (ReportGarbled(0) in actions) == (times % GARBLED_MAX == 0)
