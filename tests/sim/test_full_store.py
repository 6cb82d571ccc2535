"""The disk of a location is full at one step, whichever that is: nothing torn is believed, the run waits or does without, and goes on when
there is room again, also if all was lost meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product

import pytest

from evenflow.availability.entries import JOURNAL, snapshot_name
from evenflow.availability.reading import Make, Request
from evenflow.coordinator.events import Kind
from evenflow.exchange.section import ROWS
from evenflow.site.options import FlowOptions
from evenflow.world.sim.store import Created, SimStore
from tests.drawn import one_in
from tests.sim import test_keeping as keeping
from tests.sim.test_restart import Stage

OPTIONS = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=5.0, checkpoint_s=0.008)
CHECKPOINTS, SNAPSHOT = "checkpoints/", snapshot_name(0)[-len(".snapshot.json") :]


@contextmanager
def full(store: SimStore, takes_none: Callable[[str, bytes], bool]) -> Iterator[list[str]]:
    """Nothing of that kind can be created: who asks is told so after a while. Gives the names that were refused."""
    create, do, refused = store.create, store.answer, list[str]()

    def refusing(name: str, data: bytes, answer: Callable[[Created], None]) -> None:
        if not takes_none(name, data):
            create(name, data, answer)
            return
        refused.append(name)
        store.clock.after(1_000, lambda: answer("lost"))

    def refusing_to_make(request: Request) -> object:
        if isinstance(request, Make) and takes_none(request.name, request.data):
            refused.append(request.name)
            return None
        return do(request)

    store.create, store.answer = refusing, refusing_to_make  # type: ignore[method-assign]
    yield refused
    store.create, store.answer = create, do  # type: ignore[method-assign]


def an_entry(name: str, data: bytes) -> bool:
    return name.startswith(JOURNAL) and not name.endswith(SNAPSHOT)


STEPS: dict[str, Callable[[str, bytes], bool]] = {
    "any": lambda name, data: True,
    "an entry": an_entry,
    "the entry of a whole checkpoint": lambda name, data: an_entry(name, data) and b'"completed"' in data,
    "a snapshot of the journal": lambda name, data: name.endswith(SNAPSHOT),
    "an object of state": lambda name, data: name.startswith(CHECKPOINTS),
}


@pytest.mark.parametrize("case", one_in(4, product(["nothing else", "all is lost"], STEPS)), ids=", ".join)
def test_a_full_disk_costs_time_and_no_row(case: tuple[str, str]) -> None:
    lost, step = case[0] == "all is lost", case[1]
    stage = Stage("running", options=OPTIONS, rows=1_200, replicas=1 if lost else 2)
    store, world = stage.cluster.store, stage.world
    world.run_until(lambda: len(store.standing().checkpoints) >= 2, 10.0, "checkpoints")
    with full(store, STEPS[step]) as refused:
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
    with full(store, lambda name, data: name.startswith(ROWS)) as refused:
        stage.world.run_for(0.1)
        waiting = len(stage.left)
        stage.world.run_for(0.2)
        assert len(refused) > 3 and len(stage.left) == waiting > keeping.GIVEN // 2, "what waits is bounded"
        durable = stage.lose() if lost else 0
    stage.finish()
    rows = sorted(stage.put_out())
    assert rows[:durable] == list(range(durable))
    assert lost or rows == list(range(keeping.GIVEN))
