"""Rows that nobody gives again are in the store before an epoch has them, and are read from there by who goes on (availability.md, J5)."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import EvenflowError, SourceError
from evenflow.exchange.section import ROWS
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.swarm.mutations import KEEPING, Mutation, planted
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in
from tests.sim.once import Once

GIVEN = 600


class Stage:
    """Rows that come once, their totals, and every checker. left: the rows that nobody has been given."""

    def __init__(self, *, replicas: int = 1, seed: int = 1, rows: int = GIVEN, checkpoint_s: float | None = None, **given: Any) -> None:
        self.left = deque(range(rows))
        flow = ef.Dataflow("keeping")
        rows = flow.source(Once(self.left), name="in").where("id >= 0")
        rows.select("id", "k").to(ef.sinks.memory("rows"), name="rows")
        rows.group_by("k").agg(n="count(*)", total="sum(id)").to(ef.sinks.memory("totals"), name="totals")
        options = FlowOptions(linger_ms=0.5, epoch_rows=8, heartbeat_ms=10.0, checkpoint_s=checkpoint_s)
        given = {"read_rows": 5, "read_every_us": (500, 2_000), "patience_ms": 50.0, **given}
        self._checkers: Checkers | None = None
        planned = layout(flow.network, sites=3, partitions=8)
        self.cluster = SimCluster(planned, seed=seed, prepare=self._prepare, sites=3, replicas=replicas, options=options, **given)

    def _prepare(self, world: SimWorld) -> None:
        self._checkers = Checkers(world, self._checkers)
        JournalCheckers(world)

    @property
    def world(self) -> SimWorld:
        return self.cluster.world

    def objects(self) -> list[str]:
        return [name for name in self.cluster.store.objects if name.startswith(ROWS)]

    def put_out(self) -> list[int]:
        return [int(number) for number in self.world.output("rows").column("id").to_pylist()]

    def durable_rows(self) -> int:
        """Rows of the source in the epochs that are durable."""
        standing = self.cluster.store.standing()
        [cuts] = standing.cuts.values()
        return max([cut.taken for cut in cuts if cut.epoch <= standing.durable], default=0)

    def lose(self) -> int:
        """Everything is gone; another driver goes on. Returns how many rows were durable."""
        durable = self.durable_rows()
        self.cluster.lose_all()
        self.cluster.restart()
        return durable

    def finish(self) -> None:
        """The run ends, every row was put out once, and totals are of these rows."""
        self.world.run_until_quiet(20.0)
        rows = self.put_out()
        assert len(set(rows)) == len(rows), "a row is there twice"
        counts = Counter(number % 7 for number in rows)
        newest = {row["k"]: (row["n"], row["total"]) for row in self.world.output("totals").to_pylist()}
        assert newest == {k: (n, sum(number for number in rows if number % 7 == k)) for k, n in counts.items()}


@pytest.mark.parametrize("replicas", one_in(2, [2, 1]))
def test_the_cluster_is_lost_twice(replicas: int) -> None:
    """Goal: what was put out is made again, from rows that only the store has. Method: everything is gone at once, twice."""
    stage = Stage(replicas=replicas)
    assert stage.world.run_for(0.05) is None and len(stage.left) < GIVEN
    first = stage.lose()
    assert first > 20
    stage.world.run_for(0.05)
    stage.lose()
    stage.finish()
    rows = stage.put_out()
    assert sorted(rows)[:first] == list(range(first)), "every durable row is there"
    assert len(rows) > GIVEN - 100, "only what was on its way is lost"


def test_all_sites_are_lost_and_the_same_driver_goes_on() -> None:
    """Goal: what the former generation's sites have stored and no cut names is nobody's, and the next one stores under its own number."""
    stage = Stage()
    former = stage.world
    former.run_for(0.05)
    victim, *_ = former.coordinator.plan.placement[0][0]
    former.kill(victim)
    former.run_until(lambda: former.ended, 5.0, "the run to be lost")
    assert any(site.alive for site in former.sites)
    durable = stage.durable_rows()
    assert durable > 20
    stage.cluster.go_on_in_place()
    stage.finish()
    assert sorted(stage.put_out())[:durable] == list(range(durable))
    assert {name.split("/")[1] for name in stage.objects()} == {"000001", "000002"}


def test_nothing_is_lost_if_nobody_dies() -> None:
    stage = Stage()
    stage.finish()
    assert sorted(stage.put_out()) == list(range(GIVEN))
    assert stage.objects()


@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.conformance) for seed in (1, 2)]])
def test_a_leader_dies_and_then_everything(seed: int) -> None:
    """Goal: rows of the dead leader and of its successor are read again, each where it belongs: positions of their objects overlap."""
    stage = Stage(replicas=2, seed=seed)
    stage.world.run_for(0.03)
    stage.world.kill(stage.world.coordinator.membership.leaders[0][0].site)
    stage.world.run_for(0.1)
    durable = stage.lose()
    assert durable > 20
    stage.finish()
    assert len(stage.put_out()) >= durable


def test_objects_that_no_checkpoint_needs_are_deleted_and_no_others() -> None:
    """Goal: garbage is bounded, and a restart has what it needs. Method: many checkpoints, and losses between them."""
    stage = Stage(checkpoint_s=0.004, rows=3 * GIVEN)
    seen = set[str]()
    for _ in range(2):
        for _ in range(6):
            stage.world.run_for(0.02)
            seen |= set(stage.objects())
        standing = stage.cluster.store.standing()
        assert standing.collected and len(standing.checkpoints) >= 3
        needed = {stored.name for cuts in standing.cuts.values() for cut in cuts for stored in cut.objects}
        assert needed <= set(stage.objects()), "what a restart needs is there"
        stage.lose()
    assert len(stage.objects()) < len(seen) // 2, "what it does not need goes"
    stage.finish()


@pytest.mark.parametrize("damage", ["missing", "altered", "torn"])
def test_an_object_that_is_not_what_was_written_is_named(damage: str) -> None:
    stage = Stage()
    stage.world.run_for(0.05)
    stage.cluster.lose_all()
    objects, name = stage.cluster.store.objects, sorted(stage.objects())[1]
    data = objects.pop(name)
    if damage != "missing":
        objects[name] = data[:-1] if damage == "torn" else data[:40] + bytes([data[40] ^ 1]) + data[41:]
    stage.cluster.restart()
    with pytest.raises(SourceError, match=f"object '{name}', with .* rows of partition 0 .*Nobody else has these rows"):
        stage.world.run_until_quiet(20.0)


def test_a_store_that_is_away_holds_the_source_back() -> None:
    """Goal: no row without a place in the store, and none lost. Method: it refuses everything for a while."""
    stage = Stage()
    stage.world.run_for(0.02)
    store = stage.cluster.store
    store.refuses = True
    stage.world.run_for(0.1)
    waiting = len(stage.left)
    stage.world.run_for(0.2)
    assert len(stage.left) == waiting > GIVEN // 2, "what waits is bounded"
    store.refuses = False
    stage.finish()
    assert sorted(stage.put_out()) == list(range(GIVEN))


def scenarios() -> None:
    """Those that planted bugs spoil."""
    test_the_cluster_is_lost_twice(2)
    test_a_leader_dies_and_then_everything(1)
    test_objects_that_no_checkpoint_needs_are_deleted_and_no_others()


@pytest.mark.conformance
@pytest.mark.parametrize("mutation", KEEPING, ids=lambda mutation: mutation.name)
def test_planted_bugs_are_found(mutation: Mutation) -> None:
    with planted(mutation), pytest.raises((AssertionError, EvenflowError)):
        scenarios()
