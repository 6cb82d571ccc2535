"""A part of a dataflow ends at a site while user code of it runs: the site goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.plan.placement import first_membership, first_plan
from evenflow.query.planner import layout
from evenflow.site.events import Started
from evenflow.site.facts import PartFailed
from evenflow.site.options import FlowOptions
from evenflow.world.spark.executor.part_runner import PartRunner
from evenflow.world.spark.net.control import StartPart
from evenflow.world.spark.net.reactor import Clock, Reactor

PATIENT, URGENT = ef.qos(latency=[("5 s", 1), ("60 s", 0)]), ef.qos(latency=[("20 ms", 1), ("5 s", 0)], weight=5)
BOXES = 3


class Gate:
    """Where all boxes wait. entered: the numbers of those that have come."""

    def __init__(self) -> None:
        self.entered = set[int]()
        self.came, self.may_go_on = threading.Event(), threading.Event()

    def __deepcopy__(self, memo: Any) -> Gate:
        return self

    def pass_through(self, number: int) -> None:
        self.entered.add(number)
        self.came.set()
        assert self.may_go_on.wait(20)


class Waits(ef.Processor):
    output = "k bigint"

    def __init__(self, number: int, gate: Gate) -> None:
        self.number, self.gate = number, gate

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        self.gate.pass_through(self.number)
        return [key]


class Around:
    """What a site would do for its part. user_code: what it was told last; busy: parts that are."""

    def __init__(self) -> None:
        self.user_code: tuple[Any, ...] = ()
        self.now_busy = set[int | None]()
        self.errors: list[Exception] = []

    def tell(self, run: int, fact: Any) -> None: ...
    def release(self, run: int, release: Any) -> None: ...
    def ship(self, run: int, ship: Any) -> None: ...
    def give_up(self, why: str) -> None: ...

    def busy(self, run: int | None, what: str | None) -> None:
        (self.now_busy.discard if what is None else self.now_busy.add)(run)

    def in_user_code(self, run: int, works: tuple[tuple[int, int], ...]) -> None:
        self.user_code = works

    def broke(self, run: int, error: Exception) -> None:
        self.errors.append(error)


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


def begun(reactor: Reactor, gate: Gate, around: Around, *, urgent: bool) -> PartRunner:
    """A part of which one box is in the user's code, and the others wait for its thread."""
    flow = ef.Dataflow("ended")
    rows = pa.table({"k": [1]})
    for number in range(BOXES):
        stream = flow.source(ef.sources.memory(rows), name=f"in {number}")
        waits = stream.key_by("k").process(Waits(number, gate)).name(f"waits {number}")
        waits.to(ef.sinks.memory(f"out {number}"), name=f"out {number}", qos=(URGENT if number else PATIENT) if urgent else None)
    planned = layout(flow.network, sites=1, partitions=1)
    assert bool(planned.worths) == urgent
    plan = first_plan(planned, 1, 1)
    start = StartPart(7, "run", b"", plan, first_membership(planned, plan, range(1)))
    clock = Clock()
    part = PartRunner(start, planned, FlowOptions(linger_ms=1.0), 0, reactor, clock, around)
    part.deliver(Started(), clock.now_us())
    while len(part._beside) + len(part._waiting) < BOXES or not gate.came.is_set():
        reactor.poll(0.01)
        part.advance(clock.now_us())
        part.flush(clock.now_us())
        assert not around.errors
    return part


@pytest.mark.parametrize("urgent", [True, False])
def test_no_work_begins_when_the_part_has_ended(reactor: Reactor, urgent: bool) -> None:
    """Goal: a run that is stopped takes neither its site along, nor the thread's time. Method: one of three boxes with user code runs when
    the part ends, the others wait, in the thread's queue or, where outputs differ in urgency, for being the most urgent."""
    gate, around = Gate(), Around()
    part = begun(reactor, gate, around, urgent=urgent)
    assert around.now_busy == {7} and len(around.user_code) == (1 if urgent else BOXES)
    user = part.close()
    assert user is not None
    gate.may_go_on.set()
    assert user.over(20)
    reactor.poll(0.0)
    assert len(gate.entered) == 1
    assert not around.now_busy and not around.user_code and not around.errors


def test_no_work_begins_when_the_part_has_failed(reactor: Reactor) -> None:
    gate, around = Gate(), Around()
    part = begun(reactor, gate, around, urgent=True)
    part.fail(RuntimeError("elsewhere"))
    gate.may_go_on.set()
    while around.now_busy:
        reactor.poll(5.0)
    assert len(gate.entered) == 1 and not around.user_code
    user = part.close()
    assert user is not None and user.over(20)


class Raises(ef.Processor):
    output = "k bigint"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [ValueError(3), SystemExit(3), KeyboardInterrupt(3)])
def test_whatever_user_code_raises_is_said_and_its_thread_goes_on(reactor: Reactor, error: BaseException) -> None:
    """KeyboardInterrupt, too, which some libraries raise for a child that was interrupted: nobody else says it in that thread."""
    flow, around, clock = ef.Dataflow("raises"), Around(), Clock()
    stream = flow.source(ef.sources.memory(pa.table({"k": [1]})), name="in").key_by("k").process(Raises(error)).name("fails")
    stream.to(ef.sinks.memory("out"), name="out")
    planned = layout(flow.network, sites=1, partitions=1)
    plan, said = first_plan(planned, 1, 1), list[PartFailed]()
    around.tell = lambda run, fact: said.append(fact) if isinstance(fact, PartFailed) else None  # type: ignore[method-assign]
    start = StartPart(7, "run", b"", plan, first_membership(planned, plan, range(1)))
    part = PartRunner(start, planned, FlowOptions(linger_ms=1.0), 0, reactor, clock, around)
    part.deliver(Started(), clock.now_us())
    late_s = time.monotonic() + 20
    while not said:
        assert time.monotonic() < late_s, "nobody heard of it"
        reactor.poll(0.01)
        part.advance(clock.now_us())
        part.flush(clock.now_us())
    assert said[0].box == "fails" and f"{type(error).__name__}: 3" in said[0].user_traceback
    user = part.close()
    assert user is not None and user.over(20)
