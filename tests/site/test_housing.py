"""What a copy takes, brings, and becomes at its target (C1-C4)."""

from __future__ import annotations

from random import Random
from threading import Event, Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.plan.membership import Leader
from evenflow.plan.plan import Copy
from evenflow.site.cohort import Cohort
from evenflow.site.events import StateArrived, TimerFired, TransferFailed, WorkDone
from evenflow.site.facts import CopyFailed, CopyLive, PartFinished
from evenflow.site.outcome import Outcome
from evenflow.state.transfer import open_capture
from tests.drawn import examples
from tests.site.cluster import OUT, SOURCE, TOTALS, Cluster, expected, totals

ALL = tuple(range(8))


def copying(*, spares: int = 1, partitions: tuple[int, ...] = ALL, piece_bytes: int = 2**18) -> tuple[Cluster, Copy, list[tuple[int, int]]]:
    """Two mirrored sites; site 1 has died, and its part of the totals is being copied from site 0 to site 2."""
    cluster = Cluster(totals(), 2, spares=spares, piece_bytes=piece_bytes)
    rows = [(k, 10 * k) for k in range(20)]
    cluster.rows(*rows)
    cluster.talk()
    cluster.kill(1)
    leaders = (tuple(Leader(0, 1) for _ in cluster.membership.leaders[SOURCE]), (), ())
    cluster.declare(sites=tuple(sorted(cluster.parts)), leaders=leaders)
    cluster.talk()
    copy = cluster.copy(TOTALS, partitions, 0, 2, replacing=1)
    cluster.talk()
    return cluster, copy, rows


def through(cluster: Cluster, rows: list[tuple[int, int]], epochs: int) -> None:
    """So many more epochs, of one row each."""
    for epoch in range(epochs):
        rows.append((epoch % 7, 1))
        cluster.rows(rows[-1])
        cluster.talk()


def live(cluster: Cluster) -> None:
    """What the coordinator says when a copy is level."""
    assert [fact.number for fact in cluster.told(CopyLive)] == [copy.number for copy in cluster.membership.joining]
    cluster.declare(joining=())
    cluster.talk()


def test_the_state_is_taken_at_the_end_of_the_epoch_before_the_plan_and_at_no_other() -> None:
    cluster, copy, rows = copying()
    before = cluster.plan.effective - 1
    [ship] = cluster.ships
    held = expected(rows)
    through(cluster, rows, 5)
    assert cluster.parts[0].processed > before and cluster.ships == [ship], "the source goes on"
    facts, states = open_capture(ship.capture.to_bytes())
    assert (ship.copy, facts["epoch"]) == (copy, before)
    at_capture = Cluster(totals(), 1, replicas=1)
    at_capture.parts[0].cohorts[TOTALS, 0].hosted.install(states)
    at_capture.rows(*[(k, 0) for k, _, _ in held])
    at_capture.talk()
    assert at_capture.output() == [(k, n + 1, total) for k, n, total in held], "what came later is not in it"


def test_the_state_is_not_taken_before_that_epoch_is_finished() -> None:
    cluster = Cluster(totals(), 2, spares=1)
    cluster.cut(0, 1, told=lambda site: False)  # So no record is held by both, and no epoch can be emitted.
    cluster.copy(TOTALS, ALL, 0, 2)
    cluster.rows((1, 1))
    cluster.talk()
    assert (cluster.parts[0].processed, cluster.ships) == (0, [])
    cluster.join(0, 1)
    cluster.talk()
    assert cluster.parts[0].processed >= cluster.plan.effective - 1 and len(cluster.ships) == 1


def test_a_copied_cohort_waits_for_its_state_and_nobody_waits_for_it() -> None:
    cluster, copy, rows = copying()
    through(cluster, rows, 5)
    target = cluster.parts[2].cohorts[TOTALS, copy.number]
    assert not target.ready and target.hosted.done == cluster.plan.effective - 1
    assert cluster.told(CopyLive) == []
    assert cluster.output() == expected(rows)
    assert min(inbox.through for inbox in target.inboxes.values()) == cluster.parts[0].closed, "its frames wait for it"


def test_when_the_state_is_there_it_runs_until_it_is_level_and_then_is_live() -> None:
    cluster, copy, rows = copying()
    through(cluster, rows, 5)
    cluster.arrive(cluster.ships.pop())
    cluster.talk()
    target = cluster.parts[2].cohorts[TOTALS, copy.number]
    assert target.hosted.done == cluster.parts[0].processed
    assert [live.number for live in cluster.told(CopyLive)] == [copy.number]
    assert cluster.told(CopyLive)[0].bytes > 0
    live(cluster)
    assert list(cluster.parts[2].cohorts) == [(TOTALS, 0)], "there was none: it becomes the site's own"
    through(cluster, rows, 3)
    assert [live.number for live in cluster.told(CopyLive)] == [copy.number]
    assert cluster.told(CopyLive)[0].bytes > 0, "said once"


def test_a_copy_that_is_live_can_go_on_alone() -> None:
    """The whole dataflow is copied segment by segment; then its source dies."""
    cluster, _, rows = copying()
    cluster.arrive(cluster.ships.pop())
    cluster.talk()
    live(cluster)
    for number, segment, partitions in ((2, SOURCE, (0, 1)), (3, OUT, (0,))):
        cluster.facts.clear()
        cluster.copy(segment, partitions, 0, 2, number=number, replacing=1)
        cluster.talk()
        through(cluster, rows, 2)
        cluster.arrive(cluster.ships.pop())
        cluster.talk()
        live(cluster)
        through(cluster, rows, 2)
    cluster.kill(0)
    leaders = (tuple(Leader(2, cluster.membership.number + 1) for _ in cluster.membership.leaders[SOURCE]), (), ())
    cluster.opened.clear()
    cluster.declare(sites=(2,), leaders=leaders)
    taken = {action.partition: action.rows for _, action in cluster.opened}
    assert taken == {0: len(rows), 1: 0}, "the source is read on from where the log ends"
    through(cluster, rows, 3)
    cluster.end()
    cluster.talk()
    assert cluster.output() == expected(rows)
    assert len(cluster.told(PartFinished)) >= 1


def test_a_copied_cohort_is_absorbed_where_both_have_finished_the_same_epoch() -> None:
    """0018. The target has partitions 4-7 already, and gets 0-3."""
    cluster, first, rows = copying(partitions=(4, 5, 6, 7))
    cluster.arrive(cluster.ships.pop())
    cluster.talk()
    live(cluster)
    cluster.facts.clear()
    second = cluster.copy(TOTALS, (0, 1, 2, 3), 0, 2, number=2, replacing=1)
    cluster.talk()
    through(cluster, rows, 4)
    assert sorted(cluster.parts[2].cohorts) == [(TOTALS, 0), (TOTALS, second.number)]
    cluster.arrive(cluster.ships.pop())
    cluster.talk()
    assert cluster.parts[2].cohorts[TOTALS, 0].hosted.partitions == (4, 5, 6, 7), "not before the coordinator says so"
    live(cluster)
    [whole] = cluster.parts[2].cohorts.values()
    assert whole.hosted.partitions == ALL and whole.number == 0
    through(cluster, rows, 3)
    mine, theirs = whole, cluster.parts[0].cohorts[TOTALS, 0]
    assert mine.hosted.done == theirs.hosted.done
    assert mine.digests.tolist() == theirs.digests.tolist(), "it puts out what the source does"
    assert mine.digests.any()
    assert first.number != second.number


def two_cohorts() -> tuple[Cluster, list[tuple[int, int]], Cohort, Cohort]:
    """(cluster, its rows, partitions 4-7 that live at site 2, 0-3 that are being copied there and have come as far)."""
    cluster, _, rows = copying(partitions=(4, 5, 6, 7))
    cluster.arrive(cluster.ships.pop())
    cluster.talk()
    live(cluster)
    cluster.facts.clear()
    cluster.copy(TOTALS, (0, 1, 2, 3), 0, 2, number=2, replacing=1)
    cluster.talk()
    cluster.arrive(cluster.ships.pop())
    cluster.talk()
    cohorts = cluster.parts[2].cohorts
    return cluster, rows, cohorts[TOTALS, 0], cohorts[TOTALS, 2]


def pause_in_the_middle(cluster: Cluster, rows: list[tuple[int, int]]) -> None:
    """Four epochs enter; what site 2 makes of them only ends when `finish` says so."""
    cluster.parts[2].acknowledging.hear = lambda peer, ack: False  # type: ignore[method-assign]
    cluster.paused = {(2, TOTALS)}
    through(cluster, rows, 4)


def test_two_cohorts_meet_at_an_epoch_that_both_have_finished_and_lose_nothing_that_waits_or_is_kept() -> None:
    cluster, rows, main, copied = two_cohorts()
    part, level = cluster.parts[2], main.hosted.done
    assert copied.hosted.done == level

    pause_in_the_middle(cluster, rows)  # Both begin the first of these epochs; the pipeline lets in two.
    cluster.finish(cohort=0)
    cluster.finish(cohort=0)
    live(cluster)
    assert (main.hosted.done, main.hosted.busy) == (level + 2, False), "the one ahead waits"
    assert all(inbox.through == level + 3 for cohort in (main, copied) for inbox in cohort.inboxes.values())
    cluster.finish(cohort=2)
    assert (TOTALS, 2) in part.cohorts and copied.hosted.done == level + 1, "not at different epochs"
    cluster.finish(cohort=2)
    assert list(part.cohorts) == [(TOTALS, 0)]
    assert main.hosted.partitions == ALL and main.hosted.done == level + 2
    for retained in main.retained.values():
        kept = [epoch for epoch in retained.since(0) if epoch.epoch > level]
        assert [epoch.epoch for epoch in kept] == [level + 1, level + 2]
        assert all(sorted(p for pieces in epoch.pieces for p in pieces.partitions) == list(ALL) for epoch in kept)
    cluster.paused.clear()
    cluster.finish(cohort=0)
    assert main.hosted.done == level + 3
    cluster.talk()
    assert main.hosted.done == cluster.parts[0].processed
    assert main.digests.tolist() == cluster.parts[0].cohorts[TOTALS, 0].digests.tolist(), "the frames that waited have counted"


def test_the_state_of_partitions_that_have_still_to_join_is_taken_when_they_have() -> None:
    """The coordinator has declared them live here, so a copy may be taken from here; they are in a cohort of their own yet."""
    cluster, rows, main, copied = two_cohorts()
    cluster.paused = {(2, TOTALS)}
    through(cluster, rows, 1)
    cluster.finish(cohort=0)
    copy = cluster.copy(TOTALS, ALL, 2, 0, number=3, ahead=1)
    last = cluster.plan.effective - 1
    assert (main.hosted.done, copied.hosted.done, cluster.ships) == (last, last - 1, [])
    cluster.finish(cohort=2)
    facts, states = open_capture(cluster.ships[0].capture.to_bytes())
    assert (cluster.ships[0].copy, facts["epoch"], main.hosted.partitions) == (copy, last, ALL)
    assert {partition for partition, _ in states} >= {0, 1, 2, 3}
    assert facts["digests"] == main.digests.tolist()


def test_what_is_processed_of_partitions_that_have_left_is_not_taken_for_that_of_those_that_have_come() -> None:
    """Found by the swarm, seed 1041: both are the site's only live cohort of the segment, one after the other."""
    cluster, rows, main, copied = two_cohorts()
    part, level = cluster.parts[2], main.hosted.done

    pause_in_the_middle(cluster, rows)
    assert main.hosted.busy and copied.hosted.busy
    part.departing.move_out(Copy(9, TOTALS, main.partitions, 2, 0, 2))
    cluster.finish(cohort=2)
    cluster.finish(cohort=2)
    live(cluster)
    assert part.cohorts == {(TOTALS, 0): copied} and copied.hosted.done == level + 2 and copied.hosted.busy

    stale, own = cluster.works
    assert stale[1].hosted is main.hosted and own[1].hosted is copied.hosted and stale[1].cohort == own[1].cohort == 0
    cluster.finish(cohort=0)
    assert copied.hosted.done == level + 2 and copied.hosted.busy, "that was nobody's"
    cluster.finish(cohort=0)
    assert copied.hosted.done == level + 3


def test_a_copy_is_not_level_before_all_consumers_have_what_its_source_had() -> None:
    """0014: retained frames are not shipped; so nobody may need the epochs before the plan when the target begins to count."""
    cluster, copy, rows = copying()
    part = cluster.parts[2]
    ack = part.acknowledging.heard[0]
    cluster.arrive(cluster.ships.pop())
    start = cluster.plan.effective - 1
    assert all(received >= start for received in ack.received)

    cluster, copy, rows = copying()
    part = cluster.parts[2]
    behind = tuple(0 for _ in cluster.layout.arcs)
    part.acknowledging.heard = {peer: ack._replace(received=behind) for peer, ack in part.acknowledging.heard.items()}
    cluster.give(2, StateArrived(copy.number, cluster.ships[0].capture.to_bytes()))
    assert part.cohorts[TOTALS, copy.number].ready and cluster.told(CopyLive) == []
    through(cluster, rows, 1)
    assert [live.number for live in cluster.told(CopyLive)] == [copy.number]
    assert cluster.told(CopyLive)[0].bytes > 0, "the next acknowledgement says more"


def test_a_dropped_copy_leaves_nothing_behind() -> None:
    cluster, copy, rows = copying()
    through(cluster, rows, 2)
    ship = cluster.ships.pop()
    cluster.declare(joining=(), dropped=(copy.number,))
    cluster.talk()
    part = cluster.parts[2]
    assert part.cohorts == {} and part.buffered_bytes == 0
    assert part.site not in cluster.parts[0].feeding.fed()
    cluster.arrive(ship)
    through(cluster, rows, 2)
    assert part.cohorts == {} and cluster.told(CopyLive) == [], "what comes late is nobody's"
    assert cluster.output() == expected(rows)


@pytest.mark.parametrize("kind", ["altered", "cut off", "never"])
def test_a_state_that_does_not_arrive_whole_fails_the_copy_and_nothing_of_it_is_taken(kind: str) -> None:
    cluster, copy, _ = copying()
    state = cluster.ships[0].capture.to_bytes()
    if kind == "never":
        cluster.give(2, TransferFailed(copy.number, "the source is gone"))
    else:
        cluster.give(2, StateArrived(copy.number, state[:-9] if kind == "cut off" else state[:-9] + b"#" + state[-8:]))
    [failed] = cluster.told(CopyFailed)
    assert failed.number == copy.number and failed.why
    assert not cluster.parts[2].cohorts[TOTALS, copy.number].ready


def test_state_is_taken_in_piece_by_piece() -> None:
    """Goal: a copy does not hold its target up. Method: pieces of one byte; what else comes in between is heard, the state again, too."""
    cluster, copy, rows = copying(piece_bytes=1)
    [ship] = cluster.ships
    cluster.arrive(ship)
    part = cluster.parts[2]
    copied, pieces = part.cohorts[TOTALS, copy.number], 0
    while not copied.ready:
        assert copied.hosted.done == cluster.plan.effective - 1 and cluster.told(CopyLive) == []
        cluster.arrive(ship)
        cluster.give(2, TimerFired("install"))
        pieces += 1
    assert pieces > len(ALL)
    cluster.talk()
    live(cluster)
    through(cluster, rows, 2)
    assert part.cohorts[TOTALS, 0].digests.tolist() == cluster.parts[0].cohorts[TOTALS, 0].digests.tolist()


@pytest.mark.parametrize("busy", [False, True])
def test_a_copy_that_is_dropped_leaves_the_table_that_it_was_a_guest_in(busy: bool) -> None:
    """Goal: rows of a copy lie in the live cohort's table from the beginning, and leave it with the copy, late ones included.

    Method: a second copy is dropped when its state is there, and what it is processing ends afterwards; then it is made again."""
    cluster, _, rows = copying(partitions=(0, 1, 2, 3))
    cluster.arrive(cluster.ships.pop())
    cluster.talk()
    live(cluster)
    part, rest = cluster.parts[2], (4, 5, 6, 7)
    again = cluster.copy(TOTALS, rest, 0, 2, number=2, replacing=1)
    through(cluster, rows, 2)
    main, guest = part.cohorts[TOTALS, 0].hosted, part.cohorts[TOTALS, 2].hosted
    assert guest.shares_with(main) and guest.state_bytes() == 0
    before = main.partition_bytes(rest).sum()
    cluster.paused = {(2, TOTALS)} if busy else set()
    cluster.arrive(cluster.ships.pop())
    assert guest.busy == busy and before == 0 < main.partition_bytes(rest).sum()
    cluster.declare(joining=(), dropped=(again.number,))
    cluster.paused = set()
    if busy:
        assert main.partition_bytes(rest).sum() > 0
        cluster.finish(2)
    assert main.partition_bytes(rest).sum() == 0
    cluster.talk()
    cluster.copy(TOTALS, rest, 0, 2, number=3, replacing=1)
    through(cluster, rows, 2)
    cluster.arrive(cluster.ships.pop())
    cluster.talk()
    cluster.declare(joining=())
    through(cluster, rows, 3)
    assert part.cohorts[TOTALS, 0].partitions == ALL and part.cohorts[TOTALS, 0].hosted is main
    assert part.cohorts[TOTALS, 0].digests.tolist() == cluster.parts[0].cohorts[TOTALS, 0].digests.tolist()


def test_a_state_that_comes_twice_is_taken_once() -> None:
    cluster, _, rows = copying()
    [ship] = cluster.ships
    cluster.arrive(ship)
    cluster.talk()
    cluster.arrive(ship)
    live(cluster)
    cluster.arrive(ship)
    through(cluster, rows, 2)
    assert cluster.parts[2].cohorts[TOTALS, 0].digests.tolist() == cluster.parts[0].cohorts[TOTALS, 0].digests.tolist()


@pytest.mark.laws
@settings(max_examples=examples(10, 300), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_moments_of_a_copy_do_not_matter(seed: int) -> None:
    """State, frames and the coordinator's words come in any order between any rows; then only the copies are left."""
    random = Random(seed)
    cluster = Cluster(totals(partitions=4), 2, spares=1, shuffle=random, piece_bytes=random.choice([1, 2**18]))
    rows: list[tuple[int, int]] = []

    def go_on() -> None:
        for _ in range(random.randint(0, 4)):
            pairs = [(random.randrange(9), random.randrange(50)) for _ in range(random.randint(1, 4))]
            rows.extend(pairs)
            cluster.rows(*pairs, partition=random.randrange(2))
            for _ in range(random.randint(0, 12)):
                cluster.step()

    go_on()
    cluster.kill(1)
    leaders = tuple(leader if leader.site == 0 else Leader(0, 1) for leader in cluster.membership.leaders[SOURCE])
    cluster.declare(sites=(0, 2), leaders=(leaders, (), ()))
    number = 0
    for segment, pieces in ((SOURCE, [(0,), (1,)]), (TOTALS, [(0, 1), (2, 3)]), (OUT, [(0,)])):
        for piece in pieces:
            number += 1
            go_on()
            cluster.copy(segment, piece, 0, 2, number=number, replacing=1)
            go_on()
            while not cluster.ships:
                assert cluster.step() or cluster.store()
            go_on()
            cluster.arrive(cluster.ships.pop())
            go_on()
            for _ in range(1000):
                if number in [live.number for live in cluster.told(CopyLive)]:
                    break
                cluster.step() or cluster.store()
            else:
                raise AssertionError("it does not become level")
            cluster.declare(joining=())
            go_on()
    cluster.talk()
    cluster.kill(0)
    before = cluster.membership.leaders[SOURCE]
    cluster.declare(sites=(2,), leaders=(tuple(Leader(2, cluster.membership.number + 1) for _ in before), (), ()))
    go_on()
    cluster.end()
    cluster.talk()
    assert cluster.output() == expected(rows)


class Stopped:
    """A clock at which an epoch waits when it asks a second time: it has begun then, and has divided its state."""

    def __init__(self) -> None:
        self.reached, self.goes_on, self._asked = Event(), Event(), 0

    def __call__(self) -> int:
        self._asked += 1
        if self._asked == 2:
            self.reached.set()
            assert self.goes_on.wait(20)
        return self._asked


@pytest.mark.parametrize("begun", [False, True])
def test_a_copy_is_no_guest_where_state_is_being_divided(begun: bool) -> None:
    """Goal: a table has one user at a time. An epoch that divides state runs beside the loop, and copies are taken in on it.

    Method: the next plan, which may act an epoch later, brings a partition to a site that has not begun to divide, or that has divided its
    state in another thread and goes on with the epoch there."""
    cluster = Cluster(totals(), 2, replicas=1)
    rows = [(k, 10 * k) for k in range(40)]
    cluster.rows(*rows)
    cluster.talk()
    mine = cluster.parts[1].cohorts[TOTALS, 0].hosted
    ranges = cluster.plan.ranges_of(cluster.layout.segments[TOTALS])
    swapped = {4: 5, 5: 4}
    assert {4, 5} <= set(mine.partitions)
    cluster.divide(TOTALS, tuple((start, swapped.get(partition, partition)) for start, partition in ranges))
    cluster.paused = {(1, TOTALS)}
    through(cluster, rows, 1)
    [(_, work)] = cluster.works
    assert work.beside and work.tick.epoch == cluster.plan.effective
    clock, outcomes = Stopped(), list[Outcome]()
    clock.goes_on.set()
    user = Thread(target=lambda: outcomes.append(work.run(clock)))
    if begun:
        clock.goes_on.clear()
        user.start()
        assert clock.reached.wait(20)
    assert (mine.groups is work.groups) == begun and mine.done == cluster.plan.effective - 1
    copy = cluster.copy(TOTALS, (0,), 0, 1, ahead=1, moves=True)
    guest = cluster.parts[1].cohorts[TOTALS, copy.number].hosted
    assert guest.done == cluster.plan.effective - 1 >= work.tick.epoch and guest.groups is work.groups
    assert not guest.shares_with(mine)
    clock.goes_on.set()
    if not begun:
        user.start()
    user.join(20)
    cluster.works.clear()
    cluster.paused = set()
    cluster.give(1, WorkDone(outcomes.pop()))
    cluster.talk()
    cluster.arrive(cluster.ships.pop())
    through(cluster, rows, 2)
    assert [fact.number for fact in cluster.told(CopyLive)] == [copy.number]
    cluster.declare(joining=(), retired=(copy.number,))
    through(cluster, rows, 3)
    assert mine.partitions == (0, 4, 5, 6, 7) and cluster.output() == expected(rows)
