"""A running dataflow goes on as another version of itself from one epoch on, everywhere, and its boxes keep their state (V2)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import evenflow as ef
from evenflow.coordinator.events import MovesRequested, ReplaceRequested
from evenflow.coordinator.versions import columns_of, version_of
from evenflow.plan.layout import Layout
from evenflow.policy.move import Move
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.cases import source
from evenflow.swarm.checkers import Checkers
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in
from tests.worlds.dataflows import Numbered

ROWS, KEYS = 3_000, 10
PARTS = [[(2 * at + p + 1, at % KEYS, at) for at in range(ROWS)] for p in range(2)]
SOURCE = source(PARTS, Random(4))


def network(version: int) -> ef.Dataflow:
    flow = ef.Dataflow("versions")
    rows = flow.source(SOURCE, name="in").select("k", "v", f"{version} as version").name("marked")
    rows.to(ef.sinks.memory("out"), name="out")
    rows.key_by("k").process(Numbered(version), order="arrival", name="numbered").to(ef.sinks.memory("counts"), name="counts")
    return flow


class Replaced:
    """A run of the first version, with two replicas of everything."""

    def __init__(self, replicas: int = 2, **options: Any) -> None:
        self.planned = layout(network(1).network, sites=4, partitions=8)
        given = FlowOptions(linger_ms=0.5, epoch_rows=40, heartbeat_ms=10.0, **options)
        self.world = SimWorld(self.planned, sites=4, replicas=replicas, seed=3, options=given, read_rows=50, patience_ms=20.0)
        Checkers(self.world)

    def replace(self, number: int) -> None:
        machine = self.world.coordinator
        self.world.driver.coordinate(ReplaceRequested(version_of(self.planned, machine.plan, of(number, self.planned), number - 1)))

    def wait(self, number: int) -> None:
        def there() -> bool:
            version = self.world.coordinator.plan.version
            return version is not None and version.number == number

        self.world.run_until(there, 5.0, f"version {number + 1}")

    def finish(self, versions: int) -> None:
        """Nothing is lost or repeated, epochs have one version each, in order, and counts go on."""
        self.world.run_until_quiet()
        out = self.world.output("out").to_pylist()
        assert sorted((row["k"], row["v"]) for row in out) == sorted((k, v) for part in PARTS for _, k, v in part)
        by_epoch = [set(batch.column("version").to_pylist()) for _, batch in self.world.released["out"] if batch.num_rows]
        assert all(len(found) == 1 for found in by_epoch)
        order = [found.pop() for found in by_epoch]
        assert order == sorted(order) and set(order) == set(range(1, versions + 1))
        counts = self.world.output("counts").to_pylist()
        assert sorted((row["k"], row["n"]) for row in counts) == [(k, n + 1) for k in range(KEYS) for n in range(2 * ROWS // KEYS)]
        latest = {row["n"]: row["version"] for row in counts if row["k"] == 0}
        assert [latest[n] for n in sorted(latest)] == sorted(latest.values()) and max(latest.values()) == versions


def of(number: int, running: Layout) -> Layout:
    return layout(network(number).network, sites=4, partitions=8, columns=columns_of(running))


@pytest.mark.parametrize("replicas", one_in(2, [2, 1]))
def test_a_version_takes_the_place_of_another_at_one_epoch(replicas: int) -> None:
    run = Replaced(replicas)
    for number in (1, 2):
        run.world.run_for(0.01)
        run.replace(number + 1)
        run.wait(number)
    assert next(event.text for _, event in run.world.happened if event.kind == "replaced").endswith("new boxes: marked, numbered")
    run.finish(3)


@pytest.mark.parametrize("victim", one_in(2, [0, 3]))
def test_whoever_dies_or_joins_meanwhile(victim: int) -> None:
    """Goal: the epoch decides which version runs, not who runs it. Method: a site dies before the plan, another joins after it."""
    run = Replaced()
    run.world.run_for(0.01)
    run.replace(2)
    run.world.kill(victim)
    run.wait(1)
    run.world.add_site()
    run.world.run_until(lambda: run.world.redundancy() == 2, 5.0, "redundancy")
    run.finish(2)


@pytest.mark.conformance
def test_what_moves_meanwhile_and_what_is_on_disk_goes_on_with_the_version() -> None:
    run = Replaced(state_memory_bytes=1, spill_gap_ms=0.0)
    run.world.run_for(0.01)
    segment = next(s.id for s in run.planned.segments if s.kind == "inner")
    machine = run.world.coordinator
    source_ = machine.membership.live(machine.plan, segment, 0)[0]
    target = next(site for site in machine.sites if site not in machine.membership.live(machine.plan, segment, 0))
    run.world.driver.coordinate(MovesRequested((Move(segment, (0,), source_, target, "to see"),)))
    run.replace(2)
    run.wait(1)
    run.finish(2)


def counted(version: int, running: Layout | None = None) -> Layout:
    """An aggregator whose second version counts in thousands: a class of the same name, as a file that is loaded again has it."""

    class Counted(ef.Aggregator):
        output, state = "bigint", "bigint"

        def zero(self) -> int:
            return 0

        def update(self, state: int, v: int) -> int:
            return state + (1 if version == 1 else 1000)

        def merge(self, one: int, other: int) -> int:
            return one + other

        def finish(self, state: int) -> int:
            return 10 * state + version

    flow = ef.Dataflow("counted")
    rows = flow.source(SOURCE, name="in")
    rows.group_by("k").agg(n=Counted()("v")).to(ef.sinks.memory("out"), name="out")
    return layout(flow.network, sites=4, partitions=8, columns=None if running is None else columns_of(running))


def test_the_code_of_an_aggregator_is_that_of_the_version_and_its_states_go_on() -> None:
    planned = counted(1)
    options = FlowOptions(linger_ms=0.5, epoch_rows=40, heartbeat_ms=10.0)
    world = SimWorld(planned, sites=4, replicas=2, seed=3, options=options, read_rows=50, patience_ms=20.0)
    Checkers(world)
    world.run_for(0.01)
    world.driver.coordinate(ReplaceRequested(version_of(planned, world.coordinator.plan, counted(2, planned), 1)))
    world.run_until_quiet()
    before, after = 0, dict[int, int]()
    for _, batch in world.released["out"]:
        versions = {row["n"] % 10 for row in batch.to_pylist()}
        assert len(versions) <= 1 and (not after or versions <= {2}), "an epoch has one version, and so have all later ones"
        for row in batch.to_pylist():
            if row["n"] % 10 == 1:
                before = max(before, row["n"] // 10)
            else:
                after[row["k"]] = row["n"] // 10
    assert 0 < before < 1000 and len(after) == KEYS
    for thousands, ones in (divmod(n, 1000) for n in after.values()):
        assert thousands + ones == 2 * ROWS // KEYS and thousands > 0 and ones > 0, "each row once, by the code of its epoch"
