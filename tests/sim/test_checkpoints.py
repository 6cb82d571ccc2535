"""Checkpoints in the simulator: whole ones, dropped ones, what is kept of them, and what is in them (availability.md, K1-K9)."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.availability.entries import Completed
from evenflow.availability.retained import RETAINED, place_of
from evenflow.coordinator.events import Denied, Done, Kind, LastWithdrawn
from evenflow.plan.layout import Layout
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.site.restoring import states_in
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import StoreModel
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.store import SimStore
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
SOURCE, TOTALS, OUT = 0, 1, 2


def given(seed: int, partitions: int, rows: int) -> list[list[pa.RecordBatch]]:
    random = np.random.default_rng(seed)
    made = []
    for _ in range(partitions):
        times = pa.array(np.cumsum(random.integers(1, 2_000, rows))).cast(pa.timestamp("us"))
        made.append([pa.record_batch([random.integers(0, 40, rows), random.integers(-5, 50, rows), times], schema=SCHEMA)])
    return made


def counting(seed: int = 0, partitions: int = 2, rows: int = 3000) -> Layout:
    flow = ef.Dataflow("counting")
    stream = flow.source(ef.sources.memory(given(seed, partitions, rows), partitions, schema=SCHEMA))
    stream.group_by("k").agg(n="count(*)", total="sum(v)").to(ef.sinks.memory("out"), name="out")
    return layout(flow.network, sites=2, partitions=8)


def a_store(seed: int = 0, model: StoreModel | None = None) -> SimStore:
    return SimStore(VirtualClock(), model or StoreModel(), Random(f"store {seed}"))


def world_with(store: SimStore, planned: Layout, seed: int = 0, checkpoint_s: float | None = 0.02, **more: Any) -> SimWorld:
    options = FlowOptions(linger_ms=0.5, epoch_rows=40, checkpoint_s=checkpoint_s, heartbeat_ms=20.0)
    return SimWorld(planned, seed=seed, options=options, store=store, read_rows=40, **{"sites": 3, "replicas": 2, **more})


def completed(world: SimWorld) -> list[dict[str, Any]]:
    return [dict(event.details) for _, event in world.happened if event.kind is Kind.CHECKPOINT_COMPLETED]


def entries(store: SimStore) -> list[Completed]:
    return [entry.matter for entry in store.entries() if isinstance(entry.matter, Completed)]


class Remembering(Observer):
    """By (segment, partition, epoch): the states that live replicas had at the end of the epoch, by step."""

    def __init__(self) -> None:
        self.states: dict[tuple[int, int, int], dict[int, bytes]] = {}

    def handled(self, site: Any, event: Any) -> None:
        for cohort in site.part.cohorts.values():
            if cohort.number or cohort.hosted.busy or not cohort.ready:
                continue
            epoch, segment = cohort.hosted.done, cohort.segment.id
            todo = tuple(p for p in cohort.partitions if (segment, p, epoch) not in self.states)
            for partition in todo:
                self.states[segment, partition, epoch] = {}
            for partition, step, snapshot in cohort.capture(todo):
                self.states[segment, partition, epoch][step] = snapshot.to_bytes()


def check_objects(store: SimStore, planned: Layout, made: Completed, live: Remembering) -> None:
    """What is in the store is what replicas had at the end of the checkpoint's epoch, of every partition, bit by bit."""
    found: dict[tuple[int, int], dict[int, bytes]] = {}
    for piece in made.pieces:
        for partition in piece.partitions:
            assert (piece.segment, partition) not in found, "two have written it"
            found[piece.segment, partition] = {}
        for partition, step, state in states_in(piece, made.epoch, piece.partitions, {}, store.objects.__getitem__):
            found[piece.segment, partition][step] = state
    expected = {(s.id, p): live.states[s.id, p, made.epoch] for s in planned.segments for p in range(s.partitions)}
    assert found == expected


def totals_of(world: SimWorld) -> dict[int, tuple[int, int]]:
    """The last row of every key."""
    return {row["k"]: (row["n"], row["total"]) for row in world.output("out").to_pylist()}


def expected(seed: int, partitions: int = 2, rows: int = 3000) -> dict[int, tuple[int, int]]:
    found: dict[int, list[int]] = {}
    for (batch,) in given(seed, partitions, rows):
        for row in batch.to_pylist():
            found.setdefault(row["k"], []).append(row["v"])
    return {k: (len(vs), sum(vs)) for k, vs in found.items()}


@pytest.mark.parametrize("seed", one_in(3, range(4)))
def test_checkpoints_become_whole_and_are_what_replicas_had(seed: int) -> None:
    store, live, planned = a_store(seed), Remembering(), counting(seed)
    world = world_with(store, planned, seed, observers=[live], replicas=1 + seed % 2)
    world.sources_may_end = False
    world.run_for(0.4)
    made = entries(store)
    assert len(made) >= 4
    assert [each.epoch for each in made] == sorted({each.epoch for each in made})
    assert {place_of(name)[:1] for name in store.objects if place_of(name)} == {(1,)}
    for each in made[-RETAINED:]:
        check_objects(store, planned, each, live)
    assert [each["number"] for each in completed(world)] == [each.number for each in made]
    world.sources_may_end = True
    world.run_until_quiet()
    assert totals_of(world) == expected(seed)


def test_no_more_is_kept_than_the_retained_ones_name() -> None:
    """Goal: garbage is bounded. Method: many checkpoints, some of which are dropped when all is written but one site."""
    store, planned = a_store(7), counting(7, rows=8000)
    world = world_with(store, planned, 7)
    world.sources_may_end = False
    for _ in range(12):
        world.run_for(0.05)
        made = entries(store)
        named = {stored.name for each in made[-RETAINED:] for stored in each.objects}
        assert named <= store.objects.keys(), "what is retained is there"
    assert len(made) > 2 * RETAINED
    oldest = (made[-RETAINED].generation, made[-RETAINED].number)
    assert all(place >= oldest or name in named for name in store.objects if (place := place_of(name)) is not None)
    assert any(place_of(name) < oldest for name in named), "a base that others were added to is older than what is retained"


def test_a_dead_writer_costs_the_checkpoint_and_the_next_one_goes_on_without_it() -> None:
    store, live, planned = a_store(3), Remembering(), counting(3)
    world = world_with(store, planned, 3, None, observers=[live])
    world.sources_may_end = False
    world.run_for(0.05)
    world.checkpoint()
    store.slow = 50.0
    world.run_for(0.05)
    found = world.coordinator.checkpointing.open
    assert found is not None
    request = 1_000_001
    world.kill(min(found.owing))
    world.run_until(lambda: request in world.answers, 5, "an answer")
    assert isinstance(world.answers[request], Denied)
    assert world.fired("V1", "lose_site")
    assert entries(store) == []
    store.slow = 1.0
    world.run_until(lambda: not world.coordinator.under_way(), 60, "copies to arrive")
    again = world.checkpoint()
    world.run_until(lambda: again in world.answers, 5, "another answer")
    answer = world.answers[again]
    assert isinstance(answer, Done)
    [made] = entries(store)
    assert answer.details["epoch"] == made.epoch
    check_objects(store, planned, made, live)


def test_a_store_that_takes_nothing_costs_checkpoints_and_no_more() -> None:
    store, planned = a_store(4), counting(4)
    world = world_with(store, planned, 4, 0.03)
    world.sources_may_end = False
    world.run_for(0.1)
    before = len(entries(store))
    store.model = StoreModel(lost=0.9)
    world.run_for(0.3)
    assert world.coordinator.checkpointing.failures or world.fired("K6", "drop_unable")
    store.model = StoreModel()
    world.run_for(0.3)
    assert len(entries(store)) > before
    assert world.coordinator.checkpointing.failures == 0
    world.sources_may_end = True
    world.run_until_quiet()
    assert totals_of(world) == expected(4)


def test_an_order_that_comes_too_late_is_given_anew_further_ahead() -> None:
    """Method: what is said to one site is on its way until that is beyond the epoch."""
    store, planned = a_store(5), counting(5, rows=20_000)
    world = world_with(store, planned, 5)
    world.sources_may_end = False
    world.run_for(0.2)
    world.cut_control(1, up=False)
    world.run_for(0.1)
    world.heal_control(1)
    world.run_for(0.5)
    assert world.fired("K6", "order_later")
    last = entries(store)[-1]
    world.run_for(0.2)
    assert entries(store)[-1].epoch > last.epoch


def test_nothing_after_the_last_checkpoint_is_given_out() -> None:
    """Goal: who goes on from it goes on exactly where the sinks stand. Method: sources go on, and later cuts have come to the driver."""
    store, planned = a_store(8), counting(8, rows=20_000)
    world = world_with(store, planned, 8, None)
    world.sources_may_end = False
    world.run_for(0.1)
    asked = world.checkpoint(last=True)
    world.run_until(lambda: asked in world.answers, 5, "an answer")
    answer = world.answers[asked]
    assert isinstance(answer, Done)
    epoch = answer.details["epoch"]
    world.run_for(0.2)
    journal = world.coordinator.journal
    assert journal is not None and journal.durable == store.standing().durable == epoch < journal.told
    assert world.released["out"] and max(at for at, _ in world.released["out"]) <= epoch
    assert not store.standing().cuts[SOURCE, 0], "the next driver makes nothing again"


def test_a_last_checkpoint_that_is_dropped_holds_nothing_up() -> None:
    store, planned = a_store(9), counting(9)
    world = world_with(store, planned, 9, None)
    world.sources_may_end = False
    world.run_for(0.05)
    asked = world.checkpoint(last=True)
    store.slow = 50.0
    world.run_for(0.03)
    found = world.coordinator.checkpointing.open
    assert found is not None and found.last
    world.kill(min(found.owing))
    world.run_until(lambda: asked in world.answers, 5, "an answer")
    assert isinstance(world.answers[asked], Denied)
    store.slow = 1.0
    world.sources_may_end = True
    world.run_until_quiet()
    assert totals_of(world) == expected(9)


def test_nothing_after_the_last_checkpoint_is_given_out_though_another_one_is_due_and_a_site_dies() -> None:
    """Goal: until the run is stopped nothing is given out behind the savepoint. Method: the run is not stopped at once, checkpoints are due
    every 20 ms, and a site is killed: then the next one would be dropped."""
    store, planned = a_store(8), counting(8, rows=20_000)
    world = world_with(store, planned, 8)
    world.sources_may_end = False
    world.run_for(0.1)
    answer: Done | Denied = Denied(0, "nobody was asked")
    while not isinstance(answer, Done):
        world.run_for(0.001)
        asked = world.checkpoint(last=True)
        world.run_until(lambda: asked in world.answers, 5, "an answer")  # noqa: B023
        answer = world.answers[asked]
    store.slow = 50.0
    world.run_for(0.5)
    world.kill(0)
    world.run_for(0.5)
    assert store.standing().durable == answer.details["epoch"], "the dead are dropped, and the cuts still wait"
    assert max(at for at, _ in world.released["out"]) <= answer.details["epoch"]


def withdraw(world: SimWorld, request: int) -> None:
    """Who has asked for the last checkpoint does not stop the run."""
    world.driver.soon(lambda: world.driver.coordinate(LastWithdrawn(request)))


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_last_checkpoint_holds_goes_on_when_nobody_stops_the_run_after_all(whole: bool) -> None:
    """Goal: a suspend that is broken off leaves a run that gives out everything. Method: withdrawn when it is whole, or while it is under
    way; of two who want it, the first one is no reason to go on."""
    store, planned = a_store(9), counting(9)
    world = world_with(store, planned, 9, None)
    world.sources_may_end = False
    world.run_for(0.05)
    store.slow = 1.0 if whole else 20.0
    asked, other = world.checkpoint(last=True), world.checkpoint(last=True)
    world.run_for(0.01)
    withdraw(world, asked)
    journal = world.coordinator.journal
    assert journal is not None
    if whole:
        world.run_until(lambda: other in world.answers, 5, "an answer")
        assert isinstance(world.answers[other], Done)
        world.run_for(0.2)
    assert journal.until is not None, "the other one still wants it"
    withdraw(world, other)
    store.slow = 1.0
    world.sources_may_end = True
    world.run_until_quiet()
    assert totals_of(world) == expected(9)
    assert world.fired("K1", "withdraw")
    again = [made.epoch for made in entries(store)]
    assert len(again) == 1 and store.standing().durable > again[0]
