"""What a checkpoint wants from a site, from the order until the coordinator hears that it is stored (K1, K2, K4-K6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evenflow.availability.entries import Piece
from evenflow.site.bases import CheckpointCompleted
from evenflow.site.capturing import object_name, write
from evenflow.site.events import Checkpoint, SinkCommitted, StoreState, WriteFailed, Written
from evenflow.site.facts import CheckpointLate, CheckpointStored, CheckpointUnable
from evenflow.site.restoring import _expected, states_in
from evenflow.site.turns import Group, Turns
from evenflow.state.folding import Link
from tests.site.cluster import OUT, SOURCE, TOTALS, Cluster, totals

ALL = tuple(range(8))
WANTED = ((SOURCE, (0, 1)), (TOTALS, ALL), (OUT, (0,)))


class Shelf:
    """A store in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        assert name not in self.objects
        self.objects[name] = data


def alone() -> Cluster:
    """One site with everything; two epochs are over."""
    cluster = Cluster(totals(), sites=1, replicas=1)
    cluster.rows((1, 10), (2, 20))
    cluster.talk()
    cluster.rows((1, 1))
    cluster.talk()
    return cluster


def order(cluster: Cluster, ahead: int = 2, number: int = 1) -> Checkpoint:
    return Checkpoint(number, cluster.parts[0].processed + ahead, f"checkpoints/1/{number}", WANTED)


def carry_out(cluster: Cluster, shelf: Shelf) -> None:
    while cluster.stores:
        site, action = cluster.stores.pop(0)
        cluster.give(site, write(action, site, shelf.put))


def test_state_is_captured_at_the_end_of_the_epoch_and_no_later() -> None:
    cluster, shelf = alone(), Shelf()
    wanted = order(cluster)
    cluster.give(0, wanted)
    cluster.talk()  # Nobody waits: the ingress closes what is needed without rows, and then there are more rows.
    assert cluster.parts[0].processed == wanted.epoch
    cluster.rows((1, 1000))
    cluster.talk()
    assert cluster.parts[0].processed > wanted.epoch
    [(_, action)] = cluster.stores  # The others have no state.
    assert isinstance(action, StoreState)
    carry_out(cluster, shelf)
    [stored] = cluster.told(CheckpointStored)
    assert stored.number == 1
    assert [(piece.segment, piece.site, piece.partitions) for piece in stored.pieces] == [(s, 0, p) for s, p in WANTED]
    [made] = stored.pieces[TOTALS].objects
    assert made.name == object_name(wanted.folder, TOTALS, 0, 0)
    states = {p: state for p, _, state in states_in(stored.pieces[TOTALS], wanted.epoch, ALL, {}, shelf.objects.__getitem__)}
    other = Cluster(totals(), sites=1, replicas=1)
    other.rows((1, 10), (2, 20), (1, 1))
    other.talk()
    [cohort] = [c for c in other.parts[0].cohorts.values() if c.segment.id == TOTALS]
    assert states == {p: snapshot.to_bytes() for p, _, snapshot in cohort.capture(ALL)}
    assert stored.pieces[SOURCE].facts["logs"]["0"][:2] == [3, False]


def test_it_is_told_when_the_sink_has_stored_the_epoch_and_not_before() -> None:
    cluster, shelf = alone(), Shelf()
    cluster.rows((3, 3))
    cluster.talk(commit=False)
    wanted = Checkpoint(1, cluster.parts[0].processed, "c", WANTED)
    cluster.give(0, wanted)
    carry_out(cluster, shelf)
    assert cluster.told(CheckpointStored) == []
    cluster.give(0, SinkCommitted(OUT, wanted.epoch - 1))
    assert cluster.told(CheckpointStored) == []
    cluster.give(0, SinkCommitted(OUT, wanted.epoch))
    assert [fact.number for fact in cluster.told(CheckpointStored)] == [1]


def whole(cluster: Cluster, shelf: Shelf, number: int) -> tuple[CheckpointStored, dict[int, bytes]]:
    """A checkpoint as of now, which becomes whole, and the totals that are read out of it."""
    epoch = cluster.parts[0].processed
    cluster.give(0, Checkpoint(number, epoch, f"c/{number}", WANTED))
    carry_out(cluster, shelf)
    stored = cluster.told(CheckpointStored)[-1]
    cluster.give(0, CheckpointCompleted(number, 0))
    states = states_in(stored.pieces[TOTALS], epoch, ALL, {}, shelf.objects.__getitem__)
    return stored, {partition: state for partition, _, state in states}


def test_what_has_lost_its_state_on_disk_has_none_in_the_next_checkpoint() -> None:
    """Goal: rows that an earlier object has of a partition count no more. Method: it has gone to disk, with nothing left, when the next
    checkpoint names that object again for the sake of others; then it comes back, and has rows again."""
    cluster, shelf = Cluster(totals(), sites=1, replicas=1), Shelf()
    cluster.rows(*[(k, k) for k in range(2000)])  # So many that what changes is written, and no new base.
    cluster.talk()
    _, before = whole(cluster, shelf, 1)
    cluster.rows(*[(k, 1) for k in range(10)])
    cluster.talk()
    [cohort] = [c for c in cluster.parts[0].cohorts.values() if c.segment.id == TOTALS]
    gone = max(before)
    cohort.hosted.leave((gone,))
    cohort.turns = Turns([Group((gone,), None, 0)])
    stored, after = whole(cluster, shelf, 2)
    assert after.keys() == before.keys() - {gone}
    assert stored.pieces[TOTALS].objects[0].name.startswith("c/1/"), "nothing is needed of the first checkpoint"
    cohort.turns, cohort.hosted.partitions = None, ALL
    cluster.rows(*[(k, 1) for k in range(2000)])
    cluster.talk()
    _, last = whole(cluster, shelf, 3)
    assert last == {p: snapshot.to_bytes() for p, _, snapshot in cohort.capture(ALL)} and gone in last


@pytest.mark.parametrize("paused", [False, True])
def test_who_is_beyond_the_epoch_says_so(paused: bool) -> None:
    cluster = alone()
    epoch = cluster.parts[0].processed - 1
    if paused:
        cluster.paused.add((0, TOTALS))
        cluster.rows((3, 3))
        cluster.talk()
        epoch += 1  # The totals are in the midst of the next one.
    cluster.give(0, Checkpoint(1, epoch, "c", WANTED))
    assert cluster.told(CheckpointLate) == [CheckpointLate(1, epoch + 1)]
    assert cluster.stores == []


def test_who_has_not_all_that_is_wanted_says_so() -> None:
    cluster = Cluster(totals(), sites=2, replicas=1)
    cluster.give(0, Checkpoint(1, 3, "c", ((TOTALS, ALL),)))
    assert [(site, fact.number) for site, fact in cluster.facts if isinstance(fact, CheckpointUnable)] == [(0, 1)]


def test_a_store_that_takes_nothing_costs_the_checkpoint_and_no_more() -> None:
    cluster = alone()

    def refuse(name: str, data: bytes) -> None:
        raise OSError("no room")

    cluster.give(0, order(cluster))
    cluster.talk()
    [(_, action)] = cluster.stores
    failed = write(action, 0, refuse)
    assert isinstance(failed, WriteFailed)
    cluster.give(0, failed)
    [unable] = cluster.told(CheckpointUnable)
    assert "no room" in unable.why
    cluster.stores.clear()
    shelf = Shelf()
    cluster.give(0, order(cluster, number=2))
    cluster.talk()
    cluster.give(0, Written(1, TOTALS, ()))  # What was under way of the first one counts for nothing.
    assert cluster.told(CheckpointStored) == []
    carry_out(cluster, shelf)
    assert [fact.number for fact in cluster.told(CheckpointStored)] == [2]


def test_partitions_that_leave_before_the_epoch_ends_make_it_impossible() -> None:
    cluster = Cluster(totals(), sites=2, replicas=1, spares=1)
    hosted = [p for p, sites in enumerate(cluster.plan.placement[TOTALS]) if sites == (0,)]
    cluster.rows((1, 1), (2, 2), (3, 3))
    cluster.talk()
    cluster.give(0, Checkpoint(1, cluster.parts[0].processed + 50, "c", ((TOTALS, tuple(hosted)),)))
    part = cluster.parts[0]
    [cohort] = [c for c in part.cohorts.values() if c.segment.id == TOTALS]
    cohort.leave((hosted[0],), part.view)
    cluster.talk()
    for _ in range(60):
        cluster.rows((1, 1))
        cluster.talk()
    assert [fact.number for fact in cluster.told(CheckpointUnable)] == [1]


def test_facts_that_are_wrong_make_no_room_for_rows_that_are_not_there() -> None:
    piece = Piece(TOTALS, 0, (0, 1), {"rows": {"0": 10**15}}, ())
    nothing = np.zeros(0, np.int64)
    opened: Any = None
    chain = [Link("a", 1, -1, 3, opened, nothing, None), Link("b", 2, 1, 4, opened, nothing, None)]
    assert _expected(piece, 0, {0: chain, 1: chain[:1]}) == 10
    assert _expected(replace(piece, facts={"rows": {"0": 8}}), 0, {0: chain, 1: chain[:1]}) == 8
