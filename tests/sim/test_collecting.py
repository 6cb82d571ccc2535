"""Old entries of the journal go while a run is lost, hangs and goes on, and nobody notices (availability.md, K8)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from evenflow.availability.reading import Listed
from evenflow.coordinator.events import RepartitionRequested
from evenflow.errors import EvenflowError, Fenced
from evenflow.site.options import FlowOptions
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.swarm.mutations import COLLECTING, Mutation, planted
from evenflow.world.sim.store import SimStore
from tests.drawn import but, one_in
from tests.sim.test_checkpoints import a_store, counting, world_with
from tests.sim.test_keeping import test_objects_that_no_checkpoint_needs_are_deleted_and_no_others as rows_are_kept
from tests.sim.test_restart import Stage

OPTIONS = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=5.0, checkpoint_s=0.008)


def listed(store: SimStore) -> Listed:
    return Listed.of(tuple(store.objects))


@pytest.mark.conformance
def test_a_long_run_has_a_short_journal() -> None:
    """Goal: entries are bounded, and a driver that begins at any time finds what all of them would say."""
    store = a_store(7)
    world = world_with(store, counting(7, rows=20_000), 7)
    checkers = JournalCheckers(world)
    world.sources_may_end = False
    most = 0
    for _ in range(20):
        world.run_for(0.05)
        most = max(most, len(listed(store).entries))
    ever = len(store.entries())
    assert ever > 300 and most < ever / 3, (ever, most)
    assert 2 <= len(listed(store).snapshots) <= 3 and listed(store).entries[0] == 1, "where the first driver has begun"
    assert store.standing().collected > ever / 2
    assert checkers.collection.looks > 20


def staged(seed: int = 1, **given: object) -> Stage:
    stage = Stage("running", options=OPTIONS, rows=3_000, seed=seed, **given)
    stage.world.run_until(lambda: stage.cluster.store.standing().collected > 0, 10.0, "a snapshot")
    return stage


@pytest.mark.parametrize("seed", one_in(6, (2, 0, 1, 3, 4, 5)))
def test_drivers_die_while_they_collect(seed: int) -> None:
    """Goal: the outputs do not show it. Method: all is lost between two deletions, again and again; partitions are divided meanwhile."""
    stage, random = staged(seed), Random(f"die {seed}")
    for number in range(4):
        store, world = stage.cluster.store, stage.world
        first = listed(store).entries
        world.driver.soon(
            lambda world=world, n=number: world.driver.coordinate(RepartitionRequested((1,), 8 + 4 * (n % 2), 2_000 + n))  # type: ignore[misc]
        )
        world.run_until(lambda store=store, first=first: listed(store).entries[:2] != first[:2], 5.0, "entries to go")  # type: ignore[misc]
        for _ in range(random.randint(0, 12)):
            world.clock.step()
        stage.cluster.lose_all()
        stage.cluster.restart(sites=random.randint(1, 5))
        assert stage.world.coordinator.beginning.epoch > 0
    stage.finish()


@pytest.mark.conformance
def test_a_driver_that_hangs_comes_back_when_what_was_written_meanwhile_is_collected() -> None:
    """Goal: it is fenced, though entries before and behind the one that keeps it out are gone. Method: it stands still with words of its
    sites unread, another one goes on for many checkpoints, and then it reads them."""
    stage = staged()
    first, store = stage.world, stage.cluster.store
    first.driver.pause()
    number = first.coordinator.journal
    assert number is not None
    last = number.last
    first.lost = True
    stage.cluster.restart(sites=3)
    begun = store.standing().begins[-1]
    stage.world.run_until(lambda: begun < listed(store).snapshots[0], 10.0, "what it wrote first is collected")
    assert last + 1 <= begun and begun + 1 not in listed(store).entries
    first.lost = False
    first.driver.go_on()
    stage.world.run_until(lambda: first.ended, 5.0, "the first one to end")
    assert isinstance(first.error, Fenced), first.error
    stage.finish()


LONG = {"entries go that a retained checkpoint's replay needs", "a stale driver appends where entries were collected",
        "a snapshot forgets what plans say"}  # fmt: skip
"""Drivers have to die again and again for them."""
SCENARIOS: dict[str, Callable[[], None]] = {
    # Entries are read where a driver goes on behind another one's checkpoints only.
    "entries go that a retained checkpoint's replay needs": lambda: test_drivers_die_while_they_collect(0),
    "a stale driver appends where entries were collected": (
        test_a_driver_that_hangs_comes_back_when_what_was_written_meanwhile_is_collected
    ),
    "a snapshot forgets what plans say": lambda: test_drivers_die_while_they_collect(0),
    "a snapshot forgets rows": rows_are_kept,
}


@pytest.mark.conformance
@pytest.mark.parametrize("mutation", but(LONG, COLLECTING), ids=lambda mutation: mutation.name)
def test_planted_bugs_are_found(mutation: Mutation) -> None:
    scenario = SCENARIOS.get(mutation.name, test_a_long_run_has_a_short_journal)
    with planted(mutation), pytest.raises((AssertionError, EvenflowError, pytest.fail.Exception)):
        scenario()
