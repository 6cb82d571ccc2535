"""What the swarm does to stores and sources of journalled runs: that it happens, and that a bug there is seen."""

from __future__ import annotations

from random import Random

import pytest

from evenflow.coordinator.events import Kind
from evenflow.errors import SourceError
from evenflow.site.options import FlowOptions
from evenflow.swarm.draw import draw
from evenflow.swarm.forgetting import Forgetting
from evenflow.swarm.full_stores import STEPS, FullStores
from evenflow.swarm.generations import losses
from evenflow.swarm.mutations import planted
from evenflow.swarm.run import run_seed
from evenflow.swarm.seldom_mutations import SELDOM
from evenflow.swarm.store_mutations import STORES
from evenflow.world.sim.forgetting import Kept
from evenflow.world.sim.store import has_room
from tests.sim.test_restart import Stage

OPTIONS = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=5.0, checkpoint_s=0.01)


def full_for(seconds: float) -> Stage:
    """No entry can be appended for so long, and then the checkers look."""
    stage = Stage("running", options=OPTIONS, rows=1_200)
    watch = FullStores(stage.world, Random(0), 0)
    stage.cluster.store.full = STEPS["an entry"]
    stage.world.run_for(seconds)
    watch.end()
    assert stage.cluster.store.full is has_room and stage.cluster.store.refused
    return stage


def test_a_person_hears_of_a_store_that_is_full_for_long() -> None:
    stage = full_for(0.5)
    assert Kind.JOURNAL_WAITS in {said.kind for _, said in stage.world.happened}
    stage.finish()


@pytest.mark.parametrize("name", ["nobody hears of a full store", "a full store is asked without a pause"])
def test_silence_and_a_loop_are_seen(name: str) -> None:
    mutation = next(mutation for mutation in (*STORES, *SELDOM) if mutation.name == name)
    with planted(mutation), pytest.raises(AssertionError, match="nobody was told|a full store is asked"):
        full_for(0.5)


def forgotten(kept: int) -> tuple[Stage, Forgetting, tuple[int, int]]:
    """All is lost, and one partition of the source has lost so many of the rows that are replayed, from the first one of these on."""
    stage = Stage("running", options=OPTIONS, rows=1_200)
    store = stage.cluster.store
    stage.world.run_until(
        lambda: len(store.standing().checkpoints) > 1 and store.standing().durable > store.standing().base + 3, 10.0, "it"
    )
    stage.cluster.lose_all()
    beginning = stage.cluster.restart().coordinator.beginning
    key = max(beginning.logs, key=lambda each: beginning.through(each) - int(beginning.logs[each][0]))
    stage.cluster.lasting.kept[key] = Kept(first=int(beginning.logs[key][0]) + kept)
    return stage, Forgetting(stage.cluster, Random(0)), key


def test_rows_that_a_checkpoint_covers_may_go() -> None:
    stage, forgetting, _ = forgotten(0)
    stage.finish()
    assert not forgetting.ends(stage.world.error)


def test_rows_that_are_gone_are_named_each_time_until_they_are_given_back() -> None:
    stage, forgetting, key = forgotten(1)
    for _ in range(2):
        with pytest.raises(SourceError, match=rf"partition {key[1]} goes on from position \d+"):
            stage.world.run_until_quiet(20.0)
        assert forgetting.ends(stage.world.error)
        stage.cluster.lose_all()
        stage.cluster.restart()
    stage.cluster.lasting.kept.clear()
    stage.finish()


@pytest.mark.conformance
def test_batches_at_the_location_are_among_what_the_swarm_draws() -> None:
    """Goal: a run that reads what Spark has written may be lost like any other. Method: a seed of those that draw it."""
    drawn = draw(9_512_421)
    assert drawn.name == "spooled" and losses(drawn) == 1
    assert run_seed(9_512_421).failure is None
