"""Passive standby and upstream backup in one run with a location: what begins again together finds what it needs (B1, B2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.events import Kind
from evenflow.errors import EvenflowError
from evenflow.query.planner import layout
from evenflow.swarm.cases import rows_of
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.mutations import Mutation, planted
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.world import SimWorld
from tests.sim.test_upstream import QUICK, bases, count, whole

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("ts", pa.timestamp("us"))])
EVERY = [(at // 2 % 37, at // 2, at // 2 * 100) for at in range(5_000)]
"""Rows, each twice, once in each of two partitions."""


def firsts(stream: Any) -> Any:
    """The first of each value, then counts of windows that reach back further than a checkpoint."""
    once = stream.drop_duplicates(["value"]).availability("passive")
    return once.group_by("key").window("60 milliseconds").agg(n="count(*)", total="sum(value)").availability("upstream")


def chain(stream: Any) -> Any:
    """Short windows before long ones."""
    short = stream.group_by("key").window("2 milliseconds").agg(n="count(*)").availability("upstream")
    return short.group_by("n").window("60 milliseconds").agg(many="count(*)").availability("upstream")


SHAPES = {"firsts": firsts, "chain": chain}


def cluster(shape: str, *, seed: int = 1, sites: int = 3, **given: Any) -> SimCluster:
    flow = ef.Dataflow("mixed")
    parts = [[pa.record_batch([list(column) for column in zip(*EVERY[p::2], strict=True)], schema=SCHEMA)] for p in range(2)]
    stream = flow.source(ef.sources.memory(parts), name="in").with_watermark("ts", "1 millisecond")
    SHAPES[shape](stream).to(ef.sinks.memory("out"), name="out", guarantee="precise")
    planned = layout(flow.network, sites=sites, partitions=6)
    given = {"availability": "passive", "replicas": 2, "read_rows": 10, "read_every_us": (500, 1_500), "patience_ms": 10_000.0, **given}
    options = replace(QUICK, checkpoint_s=0.02)
    return SimCluster(planned, seed=seed, prepare=Checkers, sites=sites, options=options, **given)


def own_bases(run: SimWorld) -> list[int]:
    return [base for base, _ in run.coordinator.reviving._bases.values()]


def has_both(run: SimWorld) -> bool:
    """Some site has partitions alone of two segments of which one feeds the other, and a base of its own behind the first epoch that is
    older than the newest checkpoint."""
    checkpointed = run.coordinator.reviving.base
    return bool(own_bases(run)) and 0 < min(own_bases(run)) < checkpointed - 10


def lonely(run: SimWorld) -> int:
    """The site that has most partitions alone."""
    view, found = run.coordinator.view, dict.fromkeys(run.coordinator.sites, 0)
    for segment in run.layout.segments:
        for block in view.blocks(segment.id):
            if len(live := view.live(block)) == 1:
                found[live[0]] += len(block.partitions)
    return max(found, key=lambda site: found[site])


@pytest.mark.parametrize(("seed", "shape"), [(seed, shape) for seed in (1, 2, 3) for shape in SHAPES])
@pytest.mark.conformance
def test_what_feeds_one_another_begins_again_together(seed: int, shape: str) -> None:
    """Goal: who begins again in the middle of a window is fed by who begins again with the checkpoint. Method: kill a site that has both
    alone, when the newest checkpoint is younger than the windows that are open."""
    made = cluster(shape, seed=seed)
    run = made.world
    run.run_until(lambda: has_both(run), 10.0, "a base before a checkpoint")
    run.kill(lonely(run))
    run.run_until(lambda: whole(run) and count(run, Kind.COPY_LIVE) > 1, 3.0, "all to live again")
    assert min(bases(run)) >= run.coordinator.reviving.base
    run.run_until_quiet(20.0)
    plain = cluster(shape, seed=seed, availability="pairs").world
    plain.run_until_quiet(20.0)
    assert len(made.worlds) == 1 and sorted(rows_of(run.output("out"))) == sorted(rows_of(plain.output("out")))


def test_bases_of_their_own_show() -> None:
    bug = Mutation(
        "a base of its own goes before a checkpoint",
        "coordinator.reviving:Reviving.base_of",
        "max(self._bases[segment][0], self.base)",
        "self._bases[segment][0]",
    )
    with planted(bug), pytest.raises((AssertionError, EvenflowError, TimeoutError, KeyError)):
        test_what_feeds_one_another_begins_again_together("firsts", 1)
