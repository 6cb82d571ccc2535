"""A backfill, then what is live: every row once, the second behind the first, and no row late because the other one is live already."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.sources.pushed import SparkSource
from evenflow.sources.then import SECOND
from evenflow.swarm.cases import SCHEMA, Parts, batches, differ, make_rows, rows_of
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.swarm.pushed_cases import cut
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in

OPTIONS = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, checkpoint_s=0.003)
LIVE_US = 10_000_000
"""How much later in event time the live part is: without order between the two, the whole backfill would be late."""
GIVEN: dict[str, Any] = {"read_rows": 10, "read_every_us": (500, 2_000), "patience_ms": 50.0, "options": OPTIONS}


def drawn(seed: int, first: int, second: int) -> tuple[Random, Parts, Parts]:
    random = Random(seed)
    live = [[(ts + LIVE_US, k, v) for ts, k, v in part] for part in make_rows(random, second, 200, 6)]
    return random, make_rows(random, first, 200, 6), live


def windows_of(stream: ef.Stream) -> None:
    made = stream.with_watermark("ts", "0 seconds").group_by("k").window("300 microseconds").agg(n="count(*)", total="sum(v)")
    made.select("k", "n", "total").to(ef.sinks.memory("windows"), name="windows")


def complaint(world: SimWorld, first: Parts, second: Parts) -> str | None:
    sums: dict[tuple[int, int], list[int]] = {}
    for ts, k, v in [row for part in (*first, *second) for row in part]:
        sums.setdefault((k, ts // 300), []).append(v)
    return differ(rows_of(world.output("windows")), [(k, len(vs), sum(vs)) for (k, _), vs in sums.items()])


def memory(parts: Parts, random: Random) -> Any:
    return ef.sources.memory([batches(part, random) for part in parts])


def places(world: SimWorld, segment: int = 0) -> dict[int, int]:
    """Where the partitions of a source are, as far as anybody knows."""
    found: dict[int, int] = {}
    for site in world.sites:
        for (number, partition), log in site.part.leading.logs.items() if site.alive else ():
            if number == segment:
                found[partition] = max(found.get(partition, 0), log.taken)
    return found


def somewhere(world: SimWorld, second: bool) -> bool:
    """Some rows of the first, or of the second, are in epochs, of a partition that both have."""
    return places(world).get(0, 0) > (SECOND + 10 if second else 10)


# ---------------------------------------------------------------- inside the sites


@pytest.mark.parametrize(
    ("lost", "seed", "parts"),
    one_in(3, [("leader", 1, (2, 2)), ("leader later", 3, (2, 2)), ("driver", 3, (3, 1)), ("everything", 4, (2, 3))], spread=True),
)
def test_a_chain_goes_on_where_it_was(lost: str, seed: int, parts: tuple[int, int]) -> None:
    """Goal: windows of the union, each once. Method: something is lost while the first is read, and again while the second is."""
    random, first, second = drawn(seed, *parts)
    flow = ef.Dataflow("backfill")
    windows_of(flow.source(memory(first, random), name="rows").then(memory(second, random)))
    checkers: list[Checkers] = []

    def prepare(world: SimWorld) -> None:
        checkers.append(Checkers(world, checkers[-1] if checkers else None))
        JournalCheckers(world)

    planned = layout(flow.network, sites=4, partitions=16)
    cluster = SimCluster(planned, seed=seed, prepare=prepare, sites=4, replicas=2 if "leader" in lost else 1, **GIVEN)
    for in_second in {"leader": (False,), "leader later": (True,)}.get(lost, (False, True)):
        cluster.world.run_until(lambda: somewhere(cluster.world, in_second), 20.0, "rows")  # noqa: B023
        if "leader" in lost:
            machine = cluster.world.coordinator
            cluster.world.kill(machine.membership.leaders[0][0].site)
            cluster.world.run_until(lambda: any(event.kind == "take_over" for _, event in cluster.world.happened), 10.0, "the take-over")
            continue
        if in_second:
            cluster.world.run_until(lambda: bool(cluster.store.standing().checkpoints), 20.0, "a checkpoint")
        assert not cluster.world.ended
        cluster.lose_all() if lost == "everything" else cluster.kill_driver()
        cluster.restart()
    cluster.world.run_until_quiet(20.0)
    assert "leader" in lost or cluster.world.coordinator.beginning.epoch > 0, "the last generation begins with a checkpoint"
    assert complaint(cluster.world, first, second) is None


# ---------------------------------------------------------------- behind what Spark pushes


def tasks_of(parts: Parts, random: Random) -> list[list[list[pa.RecordBatch]]]:
    """One batch of Spark; event time has no order within it."""
    for part in parts:
        random.shuffle(part)
    return [[cut(part, random) for part in parts]]


@pytest.mark.parametrize(("seed", "replicas", "second_pushed"), [(0, 1, False), (1, 2, False), (2, 1, True), (3, 2, True)])
def test_what_comes_after_a_batch_waits_for_all_of_it(seed: int, replicas: int, second_pushed: bool) -> None:
    """Goal: no row of the second is in an epoch before all of the first are, and no row is late. Method: the batch has no order, and with
    replicas a site that leads is lost while the batch comes."""
    random, first, second = drawn(seed, 3, 2)
    flow = ef.Dataflow("backfill")
    batch = SparkSource(SCHEMA, False, tasks_of(first, random))
    live = SparkSource(SCHEMA, True, [[cut(part, random) for part in second]]) if second_pushed else memory(second, random)
    windows_of(flow.source(batch, name="batch").then(flow.source(live, name="live")))
    planned = layout(flow.network, sites=3, partitions=8)
    world = SimWorld(planned, sites=3, replicas=replicas, seed=seed, **GIVEN)
    Checkers(world)
    numbers = {segment.source: segment.id for segment in planned.segments if segment.source}
    world.run_until(lambda: sum(places(world, numbers["batch"]).values()) > 0, 20.0, "rows of the batch")
    if replicas > 1:
        world.kill(world.coordinator.membership.leaders[numbers["batch"]][0].site)
    world.run_until(lambda: sum(places(world, numbers["live"]).values()) > 0, 20.0, "rows of the second")
    assert sum(places(world, numbers["batch"]).values()) == sum(map(len, first))
    world.run_until_quiet(20.0)
    assert complaint(world, first, second) is None
