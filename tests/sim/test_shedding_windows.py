"""Windows before which rows are left out: a result that comes is one that would have come, and which come follows from what is told."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.ledger import Ledger
from evenflow.exchange.shedding import ALL
from evenflow.operator.gate import kept_of
from evenflow.operator.units import unit_hashes
from evenflow.plan.layout import Windows
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.stream.epoch import Lost
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.shed_cases import read_whole
from evenflow.swarm.shed_windows import shed_windows
from evenflow.swarm.taken import taken_in
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.model import CostModel
from evenflow.world.sim.world import SimWorld

SITES = 3
CAN = 12_000
"""Rows per second that the sites can do."""
QOS = ef.qos(latency=[("100 ms", 1), ("1 s", 0)])
Result = tuple[int, int, int, int]
"""key, begin of the window, rows in it, sum of their values."""


class Windowed:
    """A source of `load` times what the sites can do, into windows of a key."""

    def __init__(
        self,
        load: float,
        seconds: float,
        *,
        size_ms: int = 100,
        slide_ms: int | None = None,
        partitions: int = SITES,
        keys: int = 40,
        journal: bool = False,
        **given: Any,
    ) -> None:
        rate = int(load * CAN)
        self.rows, self.size_us, self.slide_us = int(rate * seconds), size_ms * 1000, 1000 * (slide_ms or size_ms)
        self.source = self.read(ef.sources.generator(rate, keys, rows=self.rows, partitions=partitions, seed=5).begun(1_000_000))
        self.parts = [read_whole(self.source.open(p, partitions)) for p in range(partitions)]
        flow = ef.Dataflow("windowed")
        stream = flow.source(self.source, name="in").select("key", "value", "ts").with_watermark("ts", "0 seconds")
        self.windowed(stream.group_by("key")).agg(n="count(*)", total="sum(value)").to(ef.sinks.memory("out"), name="out", qos=QOS)
        self.planned = layout(flow.network, sites=SITES, partitions=12)
        cost = CostModel(row_us=SITES * 1e6 / CAN / given.get("replicas", 1), free=frozenset({"egress", "inner"}))
        options = FlowOptions(shedding="reflex", heartbeat_ms=50.0)
        settled = {"sites": SITES, "cost": cost, "options": options, "read_rows": 20_000, "read_every_us": (500, 1_500), "seed": 7} | given
        self.cluster = SimCluster(self.planned, **settled) if journal else None
        self.only = SimWorld(self.planned, **settled) if self.cluster is None else None
        Checkers(self.world)

    def read(self, source: Any) -> Any:
        return source

    def windowed(self, grouped: Any) -> Any:
        return grouped.window(f"{self.size_us} microseconds", f"{self.slide_us} microseconds")

    @property
    def world(self) -> Any:
        return self.cluster.world if self.cluster is not None else self.only

    @property
    def ledger(self) -> Ledger:
        found: Ledger = self.world.coordinator.ledger
        return found

    def run_for(self, seconds: float) -> None:
        self.world.run_for(seconds)

    def dies_in_the_middle(self) -> None:
        """A leader dies, and a newcomer takes its place with what is open; replicas whose answers differ would stop the run."""
        self.run_for(0.25)
        self.world.kill(0)
        self.world.add_site()
        self.finish()

    def is_lost_behind_a_checkpoint(self) -> None:
        """All dies after one, with something open. Goes on from it."""
        assert self.cluster is not None
        self.run_for(0.25)
        self.world.checkpoint()
        self.run_for(0.1)
        self.cluster.lose_all()
        self.cluster.restart()
        Checkers(self.world)
        self.finish()
        assert self.world.coordinator.beginning.durable > 0

    def finish(self) -> None:
        while not self.world.ended:
            self.world.run_for(0.1)
            assert self.world.now_us < 60_000_000
        if self.world.error is not None:
            raise self.world.error

    def came(self) -> set[Result]:
        found = self.world.output("out")
        starts = found.column("window_start").cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
        rows = list(
            zip(found.column("key").to_pylist(), starts, found.column("n").to_pylist(), found.column("total").to_pylist(), strict=True)
        )
        assert len(set(rows)) == len(rows)
        return set(rows)

    def whole(self) -> set[Result]:
        """All results, of all rows."""
        keys, times, values = (np.concatenate([_column(part, name) for part in self.parts]) for name in ("key", "ts", "value"))
        found: dict[tuple[int, int], list[int]] = {}
        for key, time, value in zip(keys.tolist(), times.tolist(), values.tolist(), strict=True):
            start = time // self.slide_us * self.slide_us
            while start > time - self.size_us:
                each = found.setdefault((key, start), [0, 0])
                each[0], each[1] = each[0] + 1, each[1] + value
                start -= self.slide_us
        return {(*at, *each) for at, each in found.items()}

    def hashes(self, results: Iterable[Result]) -> np.ndarray[Any, Any]:
        windows = self.planned.sheds["in"].whole
        assert isinstance(windows, Windows)
        key, starts = np.array([(each[0], each[1]) for each in results], np.int64).reshape(-1, 2).T
        kind = self.parts[0].schema.field("key").type
        batch = pa.RecordBatch.from_arrays([pa.array(key).cast(kind)], ["key"])
        return unit_hashes(windows, batch, ("key",), np.ascontiguousarray(starts))

    def judge(self) -> set[Result]:
        """What came: each is whole, and what did not come is of a unit that was left out of some epoch. Returns what did not."""
        came, whole = self.came(), self.whole()
        assert came <= whole, sorted(came - whole)[:3]
        missing = sorted(whole - came)
        least = min((min(said.keep) for said in self.ledger), default=ALL)
        assert (self.hashes(missing) >= least).all() if missing else True
        return set(missing)


def _column(part: pa.RecordBatch, name: str) -> np.ndarray[Any, Any]:
    column = part.column(name)
    return (column.cast(pa.timestamp("us")).view(pa.int64()) if name == "ts" else column).to_numpy().astype(np.int64)


@pytest.mark.parametrize("slide_ms", [None, 50])
def test_what_comes_is_the_oracles_to_the_row(slide_ms: int | None) -> None:
    """Goal: of windows the answers are those of batch of which no epoch left out the unit. Method: one partition, so the recorded drops say
    where event time was in each epoch."""
    run = Windowed(2.5, 0.8, partitions=1, slide_ms=slide_ms)
    run.finish()
    missing, times = run.judge(), _column(run.parts[0], "ts")
    lost = [Lost(int(times[: said.first].max(initial=-(2**62))), int(times[: said.taken].max()), min(said.keep)) for said in run.ledger]
    whole = sorted(run.whole())
    starts = np.array([each[1] for each in whole], np.int64)
    stays = run.hashes(whole) < kept_of(lost, starts, starts + run.size_us)
    expected = {each for each, stay in zip(whole, stays.tolist(), strict=True) if stay}
    assert run.came() == expected and len(missing) > 10 < len(expected)


def test_most_of_what_can_be_done_is_of_windows_that_come() -> None:
    run = Windowed(2.0, 1.5, size_ms=50)
    run.finish()
    missing, came = run.judge(), run.came()
    assert sum(each[2] for each in came) > 0.4 * CAN * 1.5 and missing


def test_without_overload_all_windows_come() -> None:
    run = Windowed(0.5, 0.5)
    run.finish()
    assert run.ledger.totals() == {} and run.came() == run.whole()


def test_windows_are_whole_whoever_dies() -> None:
    """Goal: gates know what was left out before they were there."""
    run = Windowed(2.0, 1.5, replicas=2, size_ms=400)
    run.dies_in_the_middle()
    assert run.judge() and run.came()


def test_windows_are_whole_after_a_restart() -> None:
    """Goal: what was left out before a checkpoint is known behind it."""
    run = Windowed(2.5, 0.8, journal=True, size_ms=400)
    run.is_lost_behind_a_checkpoint()
    assert run.judge()


def test_what_a_dead_leader_had_read_is_not_asked_of_a_run_that_was_drained() -> None:
    """Goal: the swarm's judge counts the rows that came in, and no others. Method: a leader closes an epoch that its follower never hears
    of, and dies; the run is drained before its successor has read anything."""
    case = shed_windows(Random(11))
    world = SimWorld(layout(case.flow.network, sites=4, partitions=12), sites=4, replicas=2, seed=1, options=FlowOptions(linger_ms=0.5))
    assert case.watch is not None
    case.watch(world)
    machine = world.coordinator
    leader, follower = machine.view.members(0, 0)
    world.cut((leader, follower))
    logs = [world.sites[site].part.leading.logs[0, 0] for site in (leader, follower)]
    others = [world.sites[machine.membership.leaders[0][partition].site].part.leading.logs[0, partition] for partition in (1, 2, 3)]
    world.run_until(lambda: logs[0].taken > 4 and all(log.taken > 4 for log in others), 1.0, "rows")
    world.stop(drain=True)
    world.kill(leader)
    world.run_until_quiet(20.0)
    assert logs[0].taken > logs[1].taken == taken_in(world, 0, 0), "its successor has had no time to read"
    assert case.judge_part({sink: world.output(sink) for sink in world.released}) is None
