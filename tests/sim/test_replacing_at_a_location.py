"""A run that was replaced by another version of itself, and is lost: what is replayed is done by the version of its epoch, and the newest
goes on (K11)."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from evenflow.availability.retained import program_named, version_name
from evenflow.coordinator.events import CheckpointRequested, CoordinatorAction, CoordinatorEvent, Done, ReplaceRequested
from evenflow.coordinator.versions import columns_of, version_of
from evenflow.errors import LocationError
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.swarm.state_checkers import StateCheckers
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.world import SimWorld
from tests.sim.test_replacing import KEYS, PARTS, ROWS, network

FEW = ROWS * 2 // 3


class Located(Observer):
    """A run of the first version, over several generations, with every checker."""

    def __init__(self, replicas: int = 1, **given: Any) -> None:
        self.planned = layout(network(1).network, sites=4, partitions=8)
        self.checkers: list[Checkers] = []
        self.answered: list[tuple[int, int]] = []
        options = FlowOptions(linger_ms=0.5, epoch_rows=40, heartbeat_ms=10.0)
        given = {"read_rows": 10, "read_every_us": (500, 2_000), "patience_ms": 50.0, **given}
        self.cluster = SimCluster(self.planned, seed=3, prepare=self._prepare, sites=4, replicas=replicas, options=options, **given)
        self.world.sources_may_end = False
        [ingress] = [s.id for s in self.planned.segments if s.kind == "ingress"]
        for partition in range(len(PARTS)):
            self.world.quotas[ingress, partition] = FEW

    def _prepare(self, world: SimWorld) -> None:
        self.checkers.append(Checkers(world, self.checkers[-1] if self.checkers else None))
        JournalCheckers(world)
        StateCheckers(world)
        world.observers = (*world.observers, self)

    @property
    def world(self) -> SimWorld:
        return self.cluster.world

    def replace(self, number: int) -> None:
        """The version is at the location before anybody hears of it, and who asks is answered when the journal has it."""
        machine, running = self.world.coordinator, self.world.layout
        assert machine.journal is not None
        wanted = layout(network(number).network, sites=4, partitions=8, columns=columns_of(running))
        version = version_of(running, machine.plan, wanted, machine.replacing.newest + 1)
        version = replace(version, program=program_named(machine.journal.generation, version.number, "", f"{number}"))
        self.cluster.store.programs[version_name(version.program)] = wanted
        self.world.driver.coordinate(ReplaceRequested(version, 7))

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        for action in actions:
            if isinstance(action, Done):
                self.answered.append((action.details["version"], self.cluster.store.standing().contents[-1].version))

    @property
    def planned_from(self) -> int:
        """The first epoch of the newest version in the journal; 0 without one."""
        contents = self.cluster.store.standing().contents
        return next((c.effective for c in contents if c.version == contents[-1].version), 0) if contents[-1].version else 0

    @property
    def durable(self) -> int:
        return self.cluster.store.standing().durable

    def acts(self, number: int) -> None:
        """The version is the journal's newest, and some epochs of it are durable."""

        def there() -> bool:
            contents = self.cluster.store.standing().contents
            return contents[-1].version == number and self.durable > contents[-1].effective + 3

        self.world.run_until(there, 5.0, f"version {number} acts")

    def checkpoint(self) -> int:
        base = self.cluster.store.standing().base
        machine = self.world.coordinator
        through = machine.beginning.durable
        self.world.run_until(lambda: self.durable > through, 5.0, "something new")  # What is replayed makes no checkpoints.
        self.world.driver.soon(lambda: self.world.driver.coordinate(CheckpointRequested()))
        self.world.run_until(lambda: self.cluster.store.standing().base > base, 5.0, "a checkpoint")
        return self.cluster.store.standing().base

    def lose_all(self) -> SimWorld:
        self.cluster.lose_all()
        return self.cluster.restart()

    def finish(self, versions: int) -> None:
        """Nothing is lost, repeated or counted anew, epochs have one version each, in order."""
        self.world.quotas.clear()
        self.world.sources_may_end = True
        self.world.run_until_quiet(20.0)
        out = self.world.output("out").to_pylist()
        assert sorted((row["k"], row["v"]) for row in out) == sorted((k, v) for part in PARTS for _, k, v in part)
        by_epoch = [set(batch.column("version").to_pylist()) for _, batch in self.world.released["out"] if batch.num_rows]
        assert all(len(found) == 1 for found in by_epoch)
        order = [found.pop() for found in by_epoch]
        assert order == sorted(order) and set(order) == set(range(1, versions + 1))
        counts = self.world.output("counts").to_pylist()
        assert sorted((row["k"], row["n"]) for row in counts) == [(k, n + 1) for k in range(KEYS) for n in range(2 * ROWS // KEYS)]


@pytest.mark.conformance
@pytest.mark.parametrize("replicas", [1, 2])
def test_everything_is_lost_after_the_version_acts(replicas: int) -> None:
    run = Located(replicas)
    run.world.run_for(0.02)
    run.replace(2)
    run.acts(1)
    assert run.answered == [(1, 1)], "who asked was answered when the journal had it"
    world = run.lose_all()
    assert [plan.version and plan.version.number for plan in world.coordinator.beginning.plans] == [None, 1]
    run.finish(2)


@pytest.mark.conformance
def test_everything_is_lost_between_the_entry_of_the_plan_and_its_effect() -> None:
    """Goal: what was promised comes, from the first epoch on that is new. Method: the plan's entry is in, and no epoch of it is durable."""
    run = Located()
    run.world.run_for(0.02)
    run.replace(2)
    run.world.run_until(lambda: run.planned_from > run.durable + 1, 5.0, "the entry, before it acts")
    durable = run.durable
    for _ in range(2):  # Who begins after that finds the same.
        world = run.lose_all()
        assert world.coordinator.beginning.plans[-1].effective == durable + 1
        assert world.coordinator.plan.version is not None
    run.finish(2)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(8))
def test_everything_is_lost_at_any_moment(seed: int) -> None:
    """Goal: what was promised comes; what was not is as if nobody had asked. Method: the moment is drawn, and so is the next one."""
    random = Random(seed)
    run = Located(1 + seed % 2)
    run.world.run_for(0.02)
    run.replace(2)
    for _ in range(2):
        run.world.run_for(random.random() * 0.03)
        run.lose_all()
        newest = run.cluster.store.standing().contents[-1].version
        assert newest or not run.answered
    run.finish(1 + newest)


@pytest.mark.conformance
def test_a_checkpoint_before_and_one_after_and_two_versions() -> None:
    """Goal: state goes on over versions, and the next checkpoint has it. Method: lose everything behind each."""
    run = Located(2)
    run.world.run_for(0.01)
    run.checkpoint()
    run.replace(2)
    run.acts(1)
    world = run.lose_all()
    assert [plan.version and plan.version.number for plan in world.coordinator.beginning.plans] == [None, 1]
    run.world.run_for(0.01)
    run.checkpoint()
    world = run.lose_all()
    assert [plan.version and plan.version.number for plan in world.coordinator.beginning.plans] == [1], "what came before it is not needed"
    run.world.run_for(0.005)
    run.replace(3)
    run.acts(2)
    run.checkpoint()
    run.lose_all()
    run.finish(3)


@pytest.mark.conformance
def test_an_older_checkpoint_is_gone_on_from() -> None:
    """Goal: what an older checkpoint that is kept needs is there. Method: those behind two versions cannot be read (K9)."""
    run = Located(2)
    run.world.run_for(0.01)
    run.checkpoint()
    for number in (2, 3):
        run.replace(number)
        run.acts(number - 1)
        run.checkpoint()
    for made in run.cluster.store.standing().checkpoints[1:]:
        run.cluster.store.unreadable.add(made.place)
    world = run.lose_all()
    assert [plan.version and plan.version.number for plan in world.coordinator.beginning.plans] == [None, 1, 2]
    run.finish(3)


def test_a_version_whose_program_is_gone_is_refused() -> None:
    run = Located()
    run.world.run_for(0.02)
    run.replace(2)
    run.acts(1)
    run.cluster.lose_all()
    run.cluster.store.programs.clear()
    with pytest.raises(LocationError, match=r"boxes of the dataflow were replaced at epoch \d+, and what came after cannot be replayed"):
        run.cluster.restart()
