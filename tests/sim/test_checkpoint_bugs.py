"""What a checkpoint has is what replicas had, with partitions that are divided and checkpoints that are dropped; and planted bugs show."""

from __future__ import annotations

from random import Random

import pytest

import evenflow as ef
from evenflow.coordinator.events import Kind, RepartitionRequested
from evenflow.errors import EvenflowError
from evenflow.operator.holding import Holding
from evenflow.plan.layout import Layout
from evenflow.query.planner import layout
from evenflow.swarm.mutations import CHECKPOINTS, HELD, Mutation, planted
from evenflow.swarm.seldom_mutations import SELDOM
from evenflow.swarm.state_checkers import StateCheckers
from evenflow.swarm.store_mutations import STORES
from evenflow.world.sim.model import StoreModel
from tests.coordinator import test_journal as journal
from tests.drawn import but, one_in
from tests.operator import test_checkpoint_deltas as deltas
from tests.operator import test_checkpoint_objects as objects
from tests.sim import test_restoring as restoring
from tests.sim import test_swarm_stores as stores
from tests.sim.test_checkpoints import SCHEMA, a_store, completed, given, world_with
from tests.sim.test_restoring import restored, staged
from tests.site import test_capturing as capturing

TOTALS = 1


def coming_and_going(seed: int) -> Layout:
    """Rows of which each key is forgotten after a while."""
    flow = ef.Dataflow("coming")
    stream = flow.source(ef.sources.memory(given(seed, 2, 6000), 2, schema=SCHEMA)).with_watermark("ts", "10 milliseconds")
    stream.group_by("k").window("20 milliseconds").agg(n="count(*)", most="max(v)").to(ef.sinks.memory("out"), name="out")
    return layout(flow.network, sites=2, partitions=8, max_partitions=16)


def play(seed: int) -> StateCheckers:
    """Checkpoints all the time; some are dropped, since the store takes nothing for a while, and key groups change hands."""
    store, random = a_store(seed), Random(f"play {seed}")
    world = world_with(store, coming_and_going(seed), seed, 0.01, replicas=1 + seed % 2)
    checkers = StateCheckers(world)
    world.sources_may_end = False
    for number in range(10):
        world.run_for(0.04)
        store.model = StoreModel(lost=0.8) if random.random() < 0.3 else StoreModel()
        if random.random() < 0.4:
            partitions = random.choice([4, 8, 16])
            event = RepartitionRequested((TOTALS,), partitions, 1000 + number)
            world.driver.soon(lambda event=event: world.driver.coordinate(event))
    kinds = [event.kind for _, event in world.happened]
    assert Kind.CHECKPOINT_DROPPED in kinds
    return checkers


@pytest.mark.parametrize("seed", one_in(2, range(2)))
def test_what_is_whole_is_what_replicas_had(seed: int) -> None:
    assert play(seed).compared > 30


def restart() -> None:
    """Event time is where it was at the checkpoint."""
    stage = staged("windows")
    stage.cluster.restart()
    stage.world.run_until(lambda: restored(stage), 10.0, "the state")
    base, seen = stage.world.coordinator.beginning.epoch, 0
    for site in stage.world.sites:
        watermarks = {piece.segment: piece.facts["watermark"] for piece in site.part.beginning.pieces}
        for cohort in site.part.cohorts.values():
            if cohort.hosted.done == base and cohort.segment.kind != "ingress":
                assert cohort.hosted.watermark == watermarks[cohort.segment.id]
                seen += 1
    assert seen


def plays() -> None:
    for seed in range(6):
        play(seed)


def laws(held: bool = False) -> None:
    """held: of rows in no table."""
    for case in deltas.CASES:
        if held and not isinstance(case.factory(), Holding):
            continue
        deltas.test_what_has_changed_adds_up_to_the_live_state(case)


def held_up(seed: int = 0) -> int:
    """Sinks take nothing most of the time, and checkpoints are wanted all the time. Returns how many became whole."""
    world = world_with(a_store(seed), coming_and_going(seed), seed, 0.005)
    StateCheckers(world)
    world.sources_may_end = False
    for _ in range(12):
        world.block_sinks(0.03)
        world.run_for(0.04)
    return len(completed(world))


@pytest.mark.conformance
def test_a_checkpoint_waits_for_sinks() -> None:
    """Goal: nobody makes again what a sink lacks, so nothing before a checkpoint is lacking (K5)."""
    assert held_up() > 3


LONG = {
    "changes are since a checkpoint that was dropped", "what was removed stays", "a base goes that others need",
    "a foreign lineage goes on",
}  # fmt: skip
"""Many seeds have to be played for them."""
SCENARIOS = {
    "restored rows are taken for where they were": lambda: restoring.go_on_three_times(),
    "restored rows were laid again": laws,
    "whole before a sink has its epoch": held_up,
    "what is stored late counts for the next one": journal.test_what_is_stored_of_a_checkpoint_that_was_dropped_counts_for_no_other,
    "what has not joined is captured empty": capturing.test_who_has_not_all_that_is_wanted_says_so,
    "what was altered is believed": lambda: objects.test_what_was_altered_is_not_believed("running"),
    "nobody hears of a full store": lambda: stores.full_for(0.5),
    "what is missing is empty": lambda: restoring.test_a_checkpoint_that_cannot_be_read_is_passed_over(lost=True),
    "a restart forgets event time": restart,
} | dict.fromkeys([mutation.name for mutation in HELD], lambda: laws(held=True))


def test_a_restart_knows_event_time() -> None:
    restart()


@pytest.mark.conformance
@pytest.mark.parametrize("mutation", but(LONG, [*CHECKPOINTS, *SELDOM, *HELD, STORES[-1]]), ids=lambda mutation: mutation.name)
def test_planted_bugs_are_found(mutation: Mutation) -> None:
    scenario = SCENARIOS.get(mutation.name, plays)
    with planted(mutation), pytest.raises((AssertionError, EvenflowError, pytest.fail.Exception)):
        scenario()
