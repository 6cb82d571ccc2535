"""A run with durability "no-loss" journals checkpoints only: after a loss what came behind the newest one is given out again, and nothing
is missing (J3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from evenflow.availability.durability import Durability
from evenflow.availability.entries import Begun, Completed, Ended, Logged
from evenflow.coordinator.events import Denied, RepartitionRequested
from evenflow.errors import PartitionsLost
from evenflow.site.options import FlowOptions
from evenflow.swarm.durability_mutations import DURABILITY
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.swarm.mutations import CHECKPOINTS, Mutation, planted
from evenflow.world.sim.model import SinkModel, StoreModel
from tests.drawn import one_in
from tests.sim.test_restart import Stage

NO_LOSS = StoreModel(durability=Durability.NO_LOSS)
OPTIONS: dict[str, Any] = {"linger_ms": 0.5, "epoch_rows": 20, "heartbeat_ms": 10.0}


def stage(case: str = "windows", *, checkpoint_s: float | None = 0.01, **given: Any) -> Stage:
    return Stage(case, store=NO_LOSS, options=FlowOptions(checkpoint_s=checkpoint_s, **OPTIONS), **given)


def loses_all(found: Stage) -> None:
    found.cluster.lose_all()
    found.cluster.restart()


def loses_the_driver(found: Stage) -> None:
    found.cluster.kill_driver()
    found.cluster.restart(dark_us=2_000)


def loses_all_sites(found: Stage) -> None:
    world = found.world
    for site in world.sites:
        world.kill(site.index)
    world.run_until(lambda: world.ended, 10.0, "the loss to be seen")
    assert isinstance(world.error, PartitionsLost)
    found.cluster.go_on_in_place()


def matters(found: Stage) -> Counter[type]:
    return Counter(type(entry.matter) for entry in found.cluster.store.entries())


CASES = ("running", "boxes", "joins")
LOSSES = (loses_all, loses_the_driver, loses_all_sites)


@pytest.mark.parametrize(
    ("case", "lose"), one_in(3, [(case, LOSSES[(at + by) % 3]) for at, case in enumerate(CASES) for by in range(3)], spread=True)
)
def test_what_came_behind_the_checkpoint_comes_again_and_nothing_is_missing(case: str, lose: Callable[[Stage], None]) -> None:
    """Goal: outputs up to the checkpoint are there once, and all of the rest is. Method: losses at drawn moments. What a generation had
    given out behind the checkpoint is put aside; the rest must be the right answer, to the row."""
    random, repeated = Random(f"{case} {lose.__name__}"), 0
    for seed in range(2):
        found = stage(case, replicas=2, seed=seed)
        for _ in range(2):
            found.world.run_for(random.uniform(0.02, 0.06))
            lose(found)
            base, checkpoints = found.world.coordinator.beginning.epoch, found.cluster.store.standing().checkpoints
            assert base == (checkpoints[-1].epoch if checkpoints else 0) == found.world.coordinator.beginning.durable
        repeated += sum(len(epochs) for epochs in found.cluster.lasting.again.values())
        assert not +found.cluster.lasting.dropped, "nobody takes an epoch for one that it has"
        found.finish()
        assert found.cluster.over
    assert repeated, "something was given out behind a checkpoint, and comes again"


@pytest.mark.conformance
def test_nothing_is_appended_for_an_epoch() -> None:
    """Goal: a store is asked for checkpoints only. Method: entries are counted, of a run with hundreds of epochs with rows; one that is
    precise has many more."""
    found = stage("running", rows=1_000)
    found.finish()
    count = matters(found)
    assert found.world.driver.newest(len(found.planned.segments) - 1) > 20
    assert count[Logged] == 0 and count[Begun] == 1 and count[Ended] == 1
    assert count[Completed] == len([1 for _, said in found.world.happened if said.kind == "checkpoint_completed"]) > 2
    precise = Stage("running", rows=1_000, store=StoreModel(), options=FlowOptions(checkpoint_s=0.01, **OPTIONS))
    precise.finish()
    assert matters(precise)[Logged] > 5 * count.total()


def test_an_output_waits_for_no_store() -> None:
    """Goal: a store that does not answer costs no latency. Method: it takes half a second for a request; rows are out before that."""
    found = Stage("running", store=StoreModel((500_000, 500_000), durability=Durability.NO_LOSS), options=FlowOptions(**OPTIONS))
    found.world.run_for(0.1)
    assert sum(rows.num_rows for epochs in found.world.released.values() for _, rows in epochs)
    found.finish()


def test_without_a_checkpoint_everything_comes_again() -> None:
    found = stage("running", checkpoint_s=None)
    found.world.run_for(0.05)
    loses_all(found)
    assert found.world.coordinator.beginning.epoch == 0
    assert any(found.cluster.lasting.again.values()) and not any(found.world.released.values())
    found.finish()


def test_a_checkpoint_that_cannot_be_read_is_passed_over() -> None:
    """What an older one has behind it comes again, the epochs between the two included."""
    found = stage("running", rows=1_000)
    found.world.run_until(lambda: len(found.world.coordinator.checkpointing.retained) > 1, 10.0, "two checkpoints")
    found.cluster.lose_all()
    older, newest = found.cluster.store.standing().checkpoints[-2:]
    for each in newest.objects:
        if each.name not in {other.name for other in older.objects}:
            found.cluster.store.objects.pop(each.name)
    found.cluster.restart()
    found.world.run_until(lambda: found.world.ended, 10.0, "the objects to be missed")
    found.cluster.try_older()
    assert found.world.coordinator.beginning.epoch == older.epoch
    found.finish()


def checkpointed(found: Stage, behind: int) -> None:
    kept = found.world.coordinator.checkpointing
    found.world.run_until(lambda: bool(kept.retained) and kept.retained[-1].epoch > behind, 10.0, f"a checkpoint behind epoch {behind}")


@pytest.mark.parametrize("older", [True, False])
@pytest.mark.conformance
def test_plans_are_those_of_the_checkpoint(older: bool) -> None:
    """Goal: state is read under the plan that left it, and key groups are where it says. Method: partitions are divided behind one
    checkpoint and before the next; all is lost, and in one case the next one cannot be read. Then once more, from where that has led."""
    found = stage("running", rows=2_000, max_partitions=40, sites=3)
    keyed = tuple(segment.id for segment in found.planned.segments if segment.is_keyed(found.planned))
    for partitions in (40, 5):
        checkpointed(found, found.cluster.store.standing().base)
        then = found.cluster.store.standing().checkpoints[-1]
        found.world.driver.coordinate(RepartitionRequested(keyed, partitions))
        effective = found.world.coordinator.plan.effective
        plans = lambda before=effective: found.world.coordinator.plan.effective > before  # noqa: E731
        found.world.run_until(plans, 10.0, "the plan")
        checkpointed(found, found.world.coordinator.plan.effective)
        found.cluster.lose_all()
        store = found.cluster.store
        for made in [made for made in store.standing().checkpoints if older and made.epoch > then.epoch]:
            store.unreadable.add(made.place)
        found.cluster.restart()
        beginning = found.world.coordinator.beginning
        assert (beginning.epoch == then.epoch) == older and len(beginning.plans) == 1
        store.unreadable.clear()
        assert store.standing().base == beginning.epoch, "what was passed over is nobody's any more"
    checkpointed(found, found.world.coordinator.beginning.epoch)
    loses_all(found)
    found.finish()


def test_a_last_checkpoint_is_refused() -> None:
    """Outputs do not wait for it, so what it has would not be what they have."""
    found = stage()
    found.world.run_for(0.02)
    request = found.world.checkpoint(last=True)
    found.world.run_for(0.01)
    answer = found.world.answers[request]
    assert isinstance(answer, Denied) and "no-loss" in answer.why and not answer.busy


def judged(seed: int) -> str | None:
    """What is wrong with a run that loses everything twice."""
    try:
        found = stage("running", replicas=2, seed=seed, sink=SinkModel((2_000, 20_000)))
        for _ in range(2):
            found.world.run_for(Random(seed).uniform(0.05, 0.1))
            found.cluster.lose_all()
            found.cluster.restart(sites=3)
        journal = JournalCheckers(found.world)
        found.finish()
        return journal.judge(None, stopped=False)
    except Exception as error:
        return str(error) or type(error).__name__


WHOLE_TOO_SOON = [bug for bug in CHECKPOINTS if bug.name.startswith("whole ")]


def test_nothing_is_found_where_there_is_no_bug() -> None:
    assert [judged(seed) for seed in range(3)] == 3 * [None]


@pytest.mark.parametrize("bug", one_in(2, [*DURABILITY, *WHOLE_TOO_SOON]), ids=lambda bug: bug.name)
def test_planted_bugs_are_found(bug: Mutation) -> None:
    with planted(bug):
        assert any(judged(seed) is not None for seed in range(6)), bug.name
