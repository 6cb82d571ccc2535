"""The same scenario in the simulator and on Spark: the same dataflow, disturbed in the same way, and the answer of plain Python.

A scenario says what happens in the middle of a run; a world knows how to make it happen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal, Protocol

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import BoxFailed
from evenflow.query.planner import layout
from evenflow.world.sim.world import SimWorld

SITES = 4
ROWS = 30_000
RATE = 10_000
KEYS = 50
Disturbance = Literal["nothing", "plan", "cut"]
Totals = dict[int, tuple[int, int]]


class World(Protocol):
    """Runs a dataflow whose sink is `out`, disturbed when some of its rows are in. Returns what the sink was given, in order."""

    def run(self, flow: ef.Dataflow, sink: Any, disturbance: Disturbance) -> pa.Table: ...


class Simulated:
    def run(self, flow: ef.Dataflow, sink: Any, disturbance: Disturbance) -> pa.Table:
        world = SimWorld(layout(flow.network, sites=SITES), sites=SITES, seed=7)
        world.run_for(ROWS / RATE / 4)
        assert not world.ended or disturbance == "nothing", "there is no middle left to disturb"
        if disturbance == "plan":
            world.change_plan()
        elif disturbance == "cut":
            for a in range(SITES):
                for b in range(a + 1, SITES):
                    world.drop_link(a, b)
        world.run_until_quiet()
        if disturbance == "plan":
            assert world.coordinator.plan.number >= 1
        elif disturbance == "cut":
            assert world.fired("A3") > 0, "a link that was cut comes back and asks for what is missing"
        return world.output("out")


class OnSpark:
    def __init__(self, engine: ef.Engine) -> None:
        self.engine = engine

    def run(self, flow: ef.Dataflow, sink: Any, disturbance: Disturbance) -> pa.Table:
        run = self.engine.start(flow)
        try:
            while disturbance != "nothing" and run.progress()["rows_in"] < ROWS / 8 and not run.await_termination(0.02):
                pass
            if disturbance != "nothing":
                assert run.is_active, "there is no middle left to disturb"
            if disturbance == "plan":
                run.change_plan()
            elif disturbance == "cut":
                self.cut_links()
                assert run.is_active, "the links were cut too late"
            assert run.await_termination(60)
        finally:
            run.stop()
        if disturbance == "plan":
            assert run.plan_number >= 1
        return sink.rows()

    def cut_links(self) -> None:
        """Every site breaks its links to all others, from inside: by a dataflow beside the one under test."""
        flow = ef.Dataflow("scissors")
        one_each = [pa.record_batch({"one": [1]}) for _ in range(SITES)]
        flow.source(ef.sources.memory(one_each, partitions=SITES)).where(cut_links_here).to(ef.sinks.discard())
        scissors = self.engine.start(flow)
        assert scissors.await_termination(60)
        assert scissors.progress()["rows_out"] == SITES, "a site has not cut its links"


def cut_links_here(batch: pa.RecordBatch) -> pa.Array:
    """Runs in a site: ask its event loop to break every link. Rows are kept if there were links to break."""
    cut = 0
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code.co_qualname == "Site.serve":
                site = frame.f_locals["self"]
                for peer in range(len(site.links.roster.addresses)):
                    site.reactor.call_soon(lambda links=site.links, peer=peer: links.cut(peer))
                    cut += 1
            frame = frame.f_back  # type: ignore[assignment]
    return pa.array([cut > 0] * batch.num_rows, pa.bool_())


@pytest.fixture(params=["simulator", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.timeout(180)])])
def world(request: pytest.FixtureRequest) -> World:
    return Simulated() if request.param == "simulator" else OnSpark(request.getfixturevalue("engine"))


def generated(rate: int | None = RATE) -> Any:
    """The same rows in every world and at every rate, but for their times."""
    return ef.sources.generator(rate=rate, rows=ROWS, keys=KEYS, partitions=SITES)


def counted(sink: Any) -> ef.Dataflow:
    flow = ef.Dataflow("counted")
    flow.source(generated(), name="rows").where("value % 3 = 0").group_by("key").agg(n="count(*)", total="sum(value)").to(sink, name="out")
    return flow


def final(table: pa.Table) -> Totals:
    """Running totals: the last row of each key. No total goes back on the way."""
    last: Totals = {}
    for key, n, total in zip(*(table.column(name).to_pylist() for name in ("key", "n", "total")), strict=True):
        assert n > last.get(key, (0, 0))[0]
        last[key] = (n, total)
    return last


@pytest.fixture(scope="module")
def answer() -> Totals:
    """The same query in plain Python."""
    totals: Totals = {}
    source = generated(rate=None)
    for partition in range(SITES):
        reader = source.open(partition, SITES)
        while not reader.ended:
            batch = reader.read(0, 10_000)
            for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True) if batch else ():
                if value % 3 == 0:
                    n, total = totals.get(key, (0, 0))
                    totals[key] = (n + 1, total + value)
    return totals


@pytest.mark.parametrize("disturbance", ["nothing", "plan", "cut"])
def test_a_keyed_count(world: World, answer: Totals, disturbance: Disturbance, named: Callable[[str], str]) -> None:
    sink = ef.sinks.memory(named("counted"))
    assert final(world.run(counted(sink), sink, disturbance)) == answer


class Fragile(ef.Processor):
    """Counts a key's rows, and breaks in the middle of the run, at the 300th of key 7."""

    output = "key bigint, n bigint"

    def open(self, store: Any) -> None:
        store.value("n", "bigint", default=0)

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        state.n += rows.num_rows
        if key == (7,) and state.n >= 300:
            raise RuntimeError("seven is too many")
        return [(key[0], state.n)]


def test_a_box_that_raises(world: World, named: Callable[[str], str]) -> None:
    sink = ef.sinks.memory(named("fragile"))
    flow = ef.Dataflow("fragile")
    flow.source(generated(), name="rows").key_by("key").process(Fragile()).name("glass").to(sink, name="out")
    with pytest.raises(BoxFailed, match="seven is too many") as raised:
        world.run(flow, sink, "nothing")
    assert raised.value.box == "glass" and raised.value.epoch > 1
    assert "in process" in raised.value.user_traceback
