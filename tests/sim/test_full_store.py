"""The disk of a location is full at one step, whichever that is: nothing torn is believed, the run waits or does without, and goes on when
there is room again, also if all was lost meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

import pytest

from evenflow.coordinator.events import Kind
from evenflow.site.options import FlowOptions
from evenflow.swarm.full_stores import STEPS
from evenflow.world.sim.store import SimStore, has_room
from tests.drawn import one_in
from tests.sim import test_keeping as keeping
from tests.sim.test_restart import Stage

OPTIONS = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=5.0, checkpoint_s=0.008)


STATE = [step for step in STEPS if step != "an object with rows"]


@contextmanager
def full(store: SimStore, step: str) -> Iterator[list[tuple[str, int]]]:
    """Nothing of that kind can be created: who asks is told so after a while. Gives what was refused, and when."""
    store.full = STEPS[step]
    yield store.refused
    store.full = has_room


@pytest.mark.parametrize("case", one_in(4, product(["nothing else", "all is lost"], STATE)), ids=", ".join)
def test_a_full_disk_costs_time_and_no_row(case: tuple[str, str]) -> None:
    lost, step = case[0] == "all is lost", case[1]
    stage = Stage("running", options=OPTIONS, rows=1_200, replicas=1 if lost else 2)
    store, world = stage.cluster.store, stage.world
    world.run_until(lambda: len(store.standing().checkpoints) >= 2, 10.0, "checkpoints")
    with full(store, step) as refused:
        world.run_until(lambda: len(refused) > 3, 10.0, "a full disk")
        world.run_for(0.15)
        there = store.standing()
        world.run_for(0.05)
        if step not in ("a snapshot of the journal", "an object of state"):
            assert store.standing().last == there.last and Kind.JOURNAL_WAITS in {happened.kind for _, happened in world.happened}
        if step == "an object of state":
            assert len(store.standing().checkpoints) == len(there.checkpoints) and world.coordinator.checkpointing.failures
            assert store.standing().durable > there.durable, "the journal has room"
        if step == "a snapshot of the journal":
            assert store.standing().collected == there.collected and store.standing().durable > there.durable
        if lost:
            stage.cluster.lose_all()
    if lost:
        stage.cluster.restart()
    stage.world.run_until(lambda: store.standing().checkpoints[-1].place > there.checkpoints[-1].place, 10.0, "another checkpoint")
    stage.finish()


@pytest.mark.parametrize("lost", [False, True], ids=["nothing else", "all is lost"])
def test_rows_that_nobody_gives_again_are_not_taken_while_there_is_no_room_for_them(lost: bool) -> None:
    stage = keeping.Stage()
    stage.world.run_for(0.02)
    store = stage.cluster.store
    with full(store, "an object with rows") as refused:
        stage.world.run_for(0.1)
        waiting = len(stage.left)
        stage.world.run_for(0.2)
        assert len(refused) > 3 and len(stage.left) == waiting > keeping.GIVEN // 2, "what waits is bounded"
        durable = stage.lose() if lost else 0
    stage.finish()
    rows = sorted(stage.put_out())
    assert rows[:durable] == list(range(durable))
    assert lost or rows == list(range(keeping.GIVEN))
