"""A dataflow of several regions reads what another one, of other regions, has made: epochs are the upstream ones, whoever dies (W6)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.sources.cut import CutSource
from evenflow.sources.group import GroupSource
from evenflow.swarm.cases import SCHEMA, batches, make_rows
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.cut_cases import TimedSource
from evenflow.swarm.mutation import Mutation
from evenflow.swarm.mutations import planted
from evenflow.swarm.region_checkers import RegionCheckers
from evenflow.swarm.shed_cases import BEGIN_US
from evenflow.world.grouping import InGroup
from evenflow.world.sim.regions import Given, SimRegion, SimRegions
from evenflow.world.sim.subscriber import SimSubscriber, SimUpstream
from evenflow.world.sim.world import SimWorld

pytestmark = pytest.mark.swarm
WIDTH_US = 20_000
ROWS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
OPTIONS = FlowOptions(linger_ms=0.5, heartbeat_ms=20.0, ack_ms=1.0)


def regions(name: str, flow: ef.Dataflow, sites: list[tuple[int, int]], seed: int, of: SimRegions | None = None) -> SimRegions:
    network = flow.network
    given = [
        Given(f"{name}{at}", count, replicas, (at - 1) * 7_000_000, {
            "seed": seed + at, "read_rows": [7, 50, 400][at], "read_every_us": (500, 3_000), "options": OPTIONS,
        })
        for at, (count, replicas) in enumerate(sites)
    ]  # fmt: skip
    clock = None if of is None else of.clock
    made = SimRegions(lambda shape: layout(network, sites=shape, partitions=4), InGroup(name, BEGIN_US, 2), given, seed=seed, clock=clock)
    RegionCheckers(made)
    made.prepare.append(watched)
    return made


def watched(region: SimRegion, world: SimWorld) -> None:
    Checkers(world)


def upstream(seed: int) -> tuple[SimRegions, list[tuple[int, int, int]]]:
    """Two regions that give rows, and a sink that hardly ever has any. And what they have read: (ts, k, v)."""
    random = Random(seed)
    parts = [[(400 * ts, k, v) for ts, k, v in part] for part in make_rows(random, 2, 90, 9)]  # Some thirty epochs.
    flow = ef.Dataflow("upstream")
    made = TimedSource(SCHEMA, tuple(tuple(batches(part, random)) for part in parts))
    rows = flow.source(CutSource(made, "time", WIDTH_US, begin_us=BEGIN_US), name="in").repartition()
    rows.where("v >= -50").select("k", "v").to(ef.sinks.stream(4001), name="out")
    rows.where("v > 1000").select("k", "v").to(ef.sinks.stream(4002), name="rare")
    return regions("up", flow, [(1, 1), (3, 2)], seed), [row for part in parts for row in part]


def downstream(of: SimRegions, seed: int, sink: str = "out") -> SimRegions:
    """Two regions that read them: rows as they are, and running totals."""
    flow = ef.Dataflow("downstream")
    source = GroupSource(("127.0.0.1:1", "127.0.0.1:2"), "up", sink, ROWS)
    rows = flow.source(CutSource(source, "time", WIDTH_US, begin_us=BEGIN_US), name="in")
    rows.select("k", "v").to(ef.sinks.memory("rows"), name="rows")
    rows.group_by("k").agg(n="count(*)", s="sum(v)").to(ef.sinks.memory("totals"), name="totals")
    made = regions("down", flow, [(2, 2), (1, 1)], seed + 100, of)
    random = Random(seed)

    def reach(region: SimRegion, world: SimWorld) -> None:
        world.way = lambda source, begin: SimUpstream(of, source, begin, [random.choice([500, 9_000, 40_000]) for _ in of.regions])

    made.prepare.append(reach)
    return made


def chained(seed: int) -> None:
    """Whatever happens, readers behind both have every row once, in the epoch that it had upstream."""
    above, read = upstream(seed)
    below = downstream(above, seed)
    for region in above.regions + below.regions:
        region.begin()
    direct = SimSubscriber(above, "out", [500, 2_000])
    readers = {sink: SimSubscriber(below, sink, [500, 9_000]) for sink in ("rows", "totals")}
    random = Random(seed)
    for strike in range(4):
        above.run_for(random.uniform(0.002, 0.05))
        if strike % 2:  # A region, its driver or a site of those that read; a driver or a region of those that are read.
            below.regions[0].world.kill(random.randrange(2))
        else:
            lost = random.choice([*above.regions, below.regions[1]])
            random.choice([lost.lose, lost.lose_driver])()
            above.run_for(random.uniform(0.01, 0.1))
            if not lost.world.ended:
                lost.lose()
            lost.begin()
    everybody = [direct, *readers.values()]
    assert above.run_until(lambda: all(each.over or each.error for each in everybody), 60.0), "somebody waits for ever"
    assert [str(each.error) for each in everybody if each.error is not None] == []

    def by_epoch(of: SimSubscriber) -> Counter[tuple[int, int, int]]:
        return Counter((link.epoch, row["k"], row["v"]) for link, rows in of.got for row in rows.to_pylist())

    assert by_epoch(readers["rows"]) == by_epoch(direct)
    wanted = [(k, v) for _, k, v in read if v >= -50]
    assert Counter((k, v) for _, k, v in by_epoch(direct).elements()) == Counter(wanted)
    totals = {row["k"]: (row["n"], row["s"]) for _, rows in readers["totals"].got for row in rows.to_pylist()}
    assert totals == {k: (sum(a == k for a, _ in wanted), sum(v for a, v in wanted if a == k)) for k, _ in wanted}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_regions_that_read_regions_have_each_row_once_in_its_epoch(seed: int) -> None:
    chained(seed)


def test_epochs_without_rows_are_told_so_that_nobody_downstream_waits_for_rows() -> None:
    """Goal: a sink that hardly ever has rows holds nothing back. Method: a source downstream of one that has none; long before the end its
    epochs go on."""
    above, _ = upstream(4)
    below = downstream(above, 4, "rare")
    for region in above.regions + below.regions:
        region.begin()
    sources, ingress = [SimSubscriber(above, "rare", [500, 500], marks=True)], below.regions[1].world
    assert above.run_until(lambda: ingress.sites[0].part.ingress.closed >= 3, 5.0)
    assert not any(outlet.ended for region in above.regions for outlet in region.outlets.values())
    reader = SimSubscriber(below, "rows", [500, 500])
    assert above.run_until(lambda: reader.over and sources[0].over, 20.0) and not reader.got


BUGS = (
    Mutation(
        "an epoch is whole before its last rows are given",
        "sources.group:GroupReader.read",
        "if self._rest is None:\n        self._through",
        "if True:\n        self._through",
    ),
    Mutation("what has passed counts before what was shown", "availability.subscribing:Subscription.passed", "= (last,", "= (0,"),
    Mutation("a reader that goes on begins an epoch later", "sources.group:GroupReader._begin", "ROW_BITS) - 1", "ROW_BITS)"),
)
"""That rows are in one order, and go on behind a place, `tests/world/test_group_source.py` holds."""


@pytest.mark.conformance
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bugs_are_found(bug: Mutation) -> None:
    found = []
    with planted(bug):
        for seed in (1, 2, 3):
            try:
                chained(seed)
            except Exception as error:
                found.append(error)
                break
    assert found, "nobody has noticed"
