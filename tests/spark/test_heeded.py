"""An interrupt that falls where Python cannot raise it is not forgotten."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import ClusterError
from evenflow.world.spark.cluster import interrupts
from evenflow.world.spark.cluster.interrupts import heed, heeded

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[Callable[[Any], None]]:
    """The test's own handlers of Ctrl-C, for as long as it runs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda handler: signal.signal(signal.SIGINT, handler) and None
    signal.signal(signal.SIGINT, before)


class Finalised:
    """Somebody presses Ctrl-C while it is being forgotten: Python ignores what is raised there."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass


def swallowed() -> None:
    Finalised()


def test_python_forgets_such_an_interrupt() -> None:
    swallowed()


def test_an_interrupt_that_nobody_could_hear_ends_the_step() -> None:
    done = []

    @heeded()
    def step() -> None:
        swallowed()
        done.append("the rest of the step")

    with pytest.raises(KeyboardInterrupt):
        step()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_waits_hears_it_at_once() -> None:
    @heeded()
    def waits() -> None:
        swallowed()
        while True:
            heed()

    with pytest.raises(KeyboardInterrupt):
        waits()


def test_an_inner_step_ends_the_outer_one() -> None:
    reached = []

    @heeded()
    def outer() -> None:
        heeded()(swallowed)()
        reached.append("the outer step")

    with pytest.raises(KeyboardInterrupt):
        outer()
    assert not reached


def test_what_went_wrong_after_it_is_its_consequence() -> None:
    @heeded()
    def step() -> None:
        swallowed()
        raise ClusterError("the sites have gone")

    with pytest.raises(KeyboardInterrupt) as caught:
        step()
    assert isinstance(caught.value.__cause__, ClusterError)


def test_an_interrupt_that_was_heard_is_raised_once() -> None:
    with heeded(), pytest.raises(KeyboardInterrupt), heeded():
        signal.raise_signal(signal.SIGINT)
    heed()


def interrupted(
    step: Callable[[], Any], *pressed_s: float, number: int = signal.SIGINT, raised: type[BaseException] = KeyboardInterrupt
) -> float:
    """Seconds that a step takes that somebody wants to end, so long after it asks the JVM something, and once more when that was heard: of
    two signals that come before Python sees to one it hears one. Nothing is pressed before or behind it: whoever runs the tests would
    hear it."""
    before: Any = signal.getsignal(number)
    heard, over, main = threading.Semaphore(0), threading.Event(), threading.get_ident()

    def handler(*given: Any) -> Any:
        heard.release()
        return before(*given)

    def press() -> None:
        while interrupts._asked_by(sys._current_frames()[main]) is None:
            if over.wait(0.001):
                return
        asked = time.monotonic()
        for after_s in pressed_s:
            if over.wait(max(0.0, asked + after_s - time.monotonic())):
                return
            os.kill(os.getpid(), number)
            heard.acquire(timeout=30)

    signal.signal(number, handler)
    began, presses = time.monotonic(), threading.Thread(target=press)
    try:
        presses.start()
        with pytest.raises(raised):
            heeded()(step)()
        took_s = time.monotonic() - began
    finally:
        with suppress(raised):
            over.set()
            presses.join()
        signal.signal(number, before)
    return took_s


@pytest.mark.spark
def test_who_has_heard_it_does_not_hear_it_again(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a program that goes on after KeyboardInterrupt is not interrupted by the same one. Method: what insists on it sees that nobody
    has heard it, and is so slow that the question is answered meanwhile."""
    monkeypatch.setattr(interrupts, "ANSWER_S", 0.1)
    jvm, kill, answered, said = spark.sparkContext._jvm, signal.pthread_kill, threading.Event(), threading.Event()

    def slow(ident: int, number: int) -> None:
        answered.wait(30)
        time.sleep(0.3)
        kill(ident, number)
        said.set()

    def step() -> None:
        jvm.java.lang.Thread.sleep(700)
        answered.set()

    monkeypatch.setattr(signal, "pthread_kill", slow)
    try:
        interrupted(step, 0.2)
        assert said.wait(30)
    except KeyboardInterrupt:
        pytest.fail("it was heard twice")


@pytest.mark.spark
def test_a_question_to_the_jvm_is_answered_before_the_program_ends(spark: Any) -> None:
    """What is asked next has its answer; before, the connection was left between question and answer."""
    jvm = spark.sparkContext._jvm
    assert interrupted(lambda: jvm.java.lang.Thread.sleep(700), 0.2) >= 0.7
    assert [jvm.java.lang.Math.abs(-number) for number in range(5)] == [0, 1, 2, 3, 4]


@pytest.mark.spark
def test_a_question_that_takes_long_keeps_nobody_waiting(spark: Any) -> None:
    assert interrupted(lambda: spark.sparkContext._jvm.java.lang.Thread.sleep(8000), 0.1) < 6


@pytest.mark.spark
def test_who_presses_twice_does_not_wait(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "ANSWER_S", 60)
    assert interrupted(lambda: spark.sparkContext._jvm.java.lang.Thread.sleep(8000), 0.1, 0.3) < 6


@pytest.mark.spark
def test_who_cleans_up_behind_a_question_that_was_given_up_has_its_own_answers(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a program that leaves on SIGTERM can ask. The traceback holds the connection of the thread meanwhile: what was asked next
    waited for the answer to the question before, and took it for its own."""
    monkeypatch.setattr(interrupts, "ANSWER_S", 60)
    jvm, answers = spark.sparkContext._jvm, list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))

    def step() -> None:
        try:
            jvm.java.lang.Thread.sleep(8000)
        finally:
            answers.extend(jvm.java.lang.Math.abs(-number) for number in range(5))

    try:
        assert interrupted(step, 0.1, 0.3, number=signal.SIGTERM, raised=SystemExit) < 6
    finally:
        signal.signal(signal.SIGTERM, before)
    assert answers == [0, 1, 2, 3, 4]


def active(spark: Any) -> set[int]:
    """Spark's jobs that run."""
    return set(spark.sparkContext.statusTracker().getActiveJobsIds())


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.parametrize("what", ["table", "rows"])
def test_a_job_that_a_start_waits_for_ends_when_somebody_presses_ctrl_c(spark: Any, tmp_path: Path, what: str) -> None:
    """Goal: the job that reads a table, or writes a DataFrame's rows to the location, is not left to itself, and the thread has its own
    properties again. Method: its only task waits for a gate."""
    gate, context, before, heard = str(tmp_path / "gate"), spark.sparkContext, active(spark), threading.Event()

    def waits(batches: Any) -> Any:
        for batch in batches:
            while not os.path.exists(gate):
                threading.Event().wait(0.1)
            yield batch

    def press() -> None:
        while not active(spark) - before:
            if heard.wait(0.05):
                return
        os.kill(os.getpid(), signal.SIGINT)
        if not heard.wait(30):
            Path(gate).touch()

    frame, flow = spark.range(0, 2, 1, 1).mapInArrow(waits, "id bigint"), ef.Dataflow("never")
    if what == "table":
        flow.source(ef.sources.generator(10)).join(flow.table(frame, "ids"), condition="l.key = r.id").to(ef.sinks.discard())
    else:
        flow.from_spark(frame).to(ef.sinks.memory("out"))
    location = None if what == "table" else str(tmp_path / "location")
    context.setJobGroup("mine", "of the test")
    context.setLocalProperty("spark.scheduler.pool", "mine")
    pressed = threading.Thread(target=press)
    try:
        pressed.start()
        with pytest.raises(KeyboardInterrupt):
            ef.Engine(spark, sites=1).start(flow, checkpoint_location=location)
        assert not os.path.exists(gate), "the job ended by itself"
        for _ in range(100):  # Spark says a little later that a cancelled job is over.
            if active(spark) <= before:
                break
            threading.Event().wait(0.1)
        assert active(spark) <= before
        assert [context.getLocalProperty(f"spark.{name}") for name in ("jobGroup.id", "scheduler.pool")] == ["mine", "mine"]
    finally:
        heard.set()
        pressed.join()
        Path(gate).touch()
        context._jsc.clearJobGroup()
        context.setLocalProperty("spark.scheduler.pool", None)


def test_a_handler_that_does_not_raise_ends_nothing(handlers: Callable[[Any], None]) -> None:
    seen: list[int] = []
    handlers(lambda number, frame: seen.append(number))
    with heeded():
        signal.raise_signal(signal.SIGINT)
    assert seen == [signal.SIGINT]


def test_a_signal_that_is_ignored_stays_so(handlers: Callable[[Any], None]) -> None:
    handlers(signal.SIG_IGN)
    with heeded():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
