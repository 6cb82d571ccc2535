"""The first sites of an engine, and its end: what is there after they could not be placed, and after it has been stopped meanwhile. No
Spark: nobody places them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.world.test_failed_runs import Unclosed
from tests.world.test_watching import small_run

import evenflow as ef
from evenflow.errors import ClusterError, OperationRefused
from evenflow.world.spark.driver import engine as engine_module
from evenflow.world.spark.driver import in_place, scaling, sited
from evenflow.world.spark.driver import run as run_module
from evenflow.world.spark.driver.options import EngineOptions
from evenflow.world.spark.driver.outlet import Outlet
from evenflow.world.spark.net.reactor import Clock

pytestmark = [pytest.mark.timeout(30)]


class Context:
    """Of Spark."""

    master = "local"

    def getConf(self) -> dict[str, str]:
        return {}


class Placed:
    """A placement that does what the test says. made: all there were."""

    made: list[Placed]
    ensuring: Callable[[Placed], None]

    def __init__(self, spark: Any, coordinator: Any, *told: Any) -> None:
        self.coordinator, self.asked, self.given_up, self.stopped = coordinator, list[int | None](), threading.Event(), threading.Event()
        self.made.append(self)

    def ensure(self, sites: int | None = None) -> None:
        self.asked.append(sites)
        type(self).ensuring(self)

    def give_up(self) -> None:
        self.given_up.set()

    def stop(self) -> None:
        self.stopped.set()


class Engine(ef.Engine):
    def __init__(self, **options: Any) -> None:
        self._prepared(SimpleNamespace(sparkContext=Context()), 2, 0, 1, "mirrored", EngineOptions(**options))  # type: ignore[arg-type]


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> type[Placed]:
    kind = type("Placement", (Placed,), {"made": [], "ensuring": lambda placed: None})
    monkeypatch.setattr(sited, "Placement", kind)
    monkeypatch.setattr(scaling, "executors", lambda context: [])
    return kind


def coordinators() -> int:
    return sum(thread.name == "evenflow-coordinator" for thread in threading.enumerate())


def test_autoscale_begins_though_the_first_sites_came_late(placed: type[Placed]) -> None:
    """Goal: sites that come at the second try follow the load, too. Method: executors are late by one start."""

    def late(self: Placed) -> None:
        if len(self.asked) == 1:
            raise ClusterError("2 sites need 2 executors, and after 60 s there is 1")

    placed.ensuring = late
    engine = Engine(autoscale=(1, 4))
    try:
        with pytest.raises(ClusterError, match="there is 1"):
            engine._ensure_sites()
        assert engine._autoscaler is None
        engine._ensure_sites()
        assert engine._autoscaler is not None and [made.asked for made in placed.made] == [[None, 2]]
    finally:
        engine.stop()


def test_no_coordinator_is_left_by_a_placement_that_cannot_be_made(placed: type[Placed], monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: the package cannot be shipped, since the disk is full; then it can."""
    before, engine = coordinators(), Engine()

    def full(self: Placed, *told: Any) -> None:
        raise OSError(28, "No space left on device")

    try:
        with monkeypatch.context() as patched:
            patched.setattr(placed, "__init__", full)
            with pytest.raises(OSError, match="No space left"):
                engine._ensure_sites()
        assert coordinators() == before
        engine._ensure_sites()
        assert coordinators() == before + 1
    finally:
        engine.stop()
    assert coordinators() == before


def starting(engine: Engine, said: list[str]) -> threading.Thread:
    """Asks for the sites, in a thread of its own. said: gets what it hears."""

    def begin() -> None:
        with pytest.raises(ClusterError) as raised:
            engine._ensure_sites()
        said.append(str(raised.value))

    begins = threading.Thread(target=begin)
    begins.start()
    return begins


def test_an_engine_that_is_stopped_while_it_opens_has_no_sites(placed: type[Placed], monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: nobody holds task slots for an engine that is over. Method: it is stopped, in another thread, while kernels are being compiled,
    which takes longer than the end waits."""
    monkeypatch.setattr(engine_module, "STARTS_S", 0.05)
    before, engine, opens, goes, said = coordinators(), Engine(), threading.Event(), threading.Event(), list[str]()

    def prepare(call: Callable[[], None]) -> None:
        opens.set()
        assert goes.wait(20)

    monkeypatch.setattr(sited, "prepare", prepare)

    begins = starting(engine, said)
    assert opens.wait(20)
    engine.stop()
    goes.set()
    begins.join(20)
    assert said == ["the engine has been stopped"] and coordinators() == before
    assert [made.stopped.is_set() for made in placed.made] == [True] and placed.made[0].asked == []


def test_who_waits_for_sites_hears_of_the_end(placed: type[Placed]) -> None:
    """Goal: a start ends with the engine, and not when its time is over. Method: sites never come."""
    waits = threading.Event()

    def ensuring(self: Placed) -> None:
        waits.set()
        assert self.given_up.wait(20)
        raise ClusterError("the engine has been stopped")

    placed.ensuring = ensuring
    before, engine, said = coordinators(), Engine(), list[str]()

    begins = starting(engine, said)
    assert waits.wait(20)
    engine.stop()
    begins.join(20)
    assert said == ["the engine has been stopped"] and coordinators() == before and placed.made[0].stopped.is_set()


def test_nobody_who_looks_or_drains_waits_for_a_site_that_is_missing(placed: type[Placed]) -> None:
    """Goal: what people do about a missing site they can do while it is missing, and runs that need the engine's lock for the loss have
    it. Method: sites were placed once; of two none is there any more, and whoever would wait for them fails."""
    engine = Engine()
    try:
        engine._ensure_sites()

        def never(self: Placed) -> None:
            raise AssertionError("it waits")

        placed.ensuring = never
        assert engine.describe()["sites"] == []
        with pytest.raises(OperationRefused, match="there is no site 1"):
            engine.drain(1)
        with pytest.raises(OperationRefused, match="no site 1|there is no"):
            engine.profile(1)
        with pytest.raises(AssertionError, match="it waits"):
            engine._ensure_sites()
    finally:
        engine.stop()


# ---------------------------------------------------------------- the end


def test_whatever_a_step_of_the_end_raises_the_sites_are_let_go(placed: type[Placed]) -> None:
    before, engine = coordinators(), Engine()
    engine._ensure_sites()

    def read_only() -> None:
        raise OSError(30, "Read-only file system")

    engine._control = SimpleNamespace(close=read_only, settle=lambda: None)  # type: ignore[assignment]
    with pytest.raises(OSError, match="Read-only"):
        engine.stop()
    assert placed.made[0].stopped.is_set() and coordinators() == before


def test_nobody_listens_for_sites_whatever_spark_answers_at_the_end(placed: type[Placed], monkeypatch: pytest.MonkeyPatch) -> None:
    before, engine = coordinators(), Engine()
    engine._ensure_sites()

    def unable(self: Placed) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(placed, "stop", unable)
    with pytest.raises(RuntimeError, match="new thread"):
        engine.stop()
    assert coordinators() == before


@pytest.mark.parametrize("signal", [KeyboardInterrupt(), SystemExit(143)])
def test_a_signal_in_the_end_leaves_no_site(placed: type[Placed], monkeypatch: pytest.MonkeyPatch, signal: BaseException) -> None:
    """A program that ends by SIGTERM has a handler that raises SystemExit, as the command line has."""
    stop, raised = Placed.stop, list[BaseException]()

    def stops(self: Placed) -> None:
        if not raised:
            raised.append(signal)
            raise signal
        stop(self)

    monkeypatch.setattr(placed, "stop", stops)
    before, engine = coordinators(), Engine()
    engine._ensure_sites()
    with pytest.raises(type(signal)):
        engine.stop()
    assert placed.made[0].stopped.is_set() and coordinators() == before


def test_sinks_of_several_runs_that_hang_are_waited_for_together(placed: type[Placed], monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of an engine is bounded, however many runs it has."""
    monkeypatch.setattr(in_place, "SINKS_S", 1.0)
    monkeypatch.setattr(run_module, "SINKS_S", 1.0)
    engine, sinks = Engine(), [Unclosed() for _ in range(5)]
    for sink in sinks:
        driven, run = small_run()
        run._coordinator.call_soon = lambda call: call()  # type: ignore[method-assign]
        (segment,) = (each.id for each in driven.layout.segments if each.sink is not None)
        driven.outlets[segment].close()
        driven.outlets[segment] = Outlet("out", sink, "run-1", Clock(), lambda epoch: None, driven._broken)
        engine._runs.append(run)
    began_s = time.monotonic()
    engine.stop()
    took_s = time.monotonic() - began_s
    for sink, run in zip(sinks, engine.runs, strict=True):
        sink.closing.set()
        assert all(outlet.join(20) for outlet in run._driven.outlets.values())
    assert not any(run.is_active for run in engine.runs) and 0.9 < took_s < 3.0
