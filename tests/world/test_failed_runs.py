"""A run that has failed is seen while its engine lives: an event, a line at ERROR, and whoever watches or asks is told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.world.test_watching import Given, Sites, address, small_run, soon, told, watched_engine

from evenflow.bench.bare import BareEngine
from evenflow.coordinator.events import RunBroken, StopRequested
from evenflow.errors import BoxFailed, ClusterError, SinkError, in_a_line
from evenflow.monitor.health import readiness
from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene
from evenflow.monitor.watching import FAILED_KEPT, OVER_KEPT, shown
from evenflow.sinks.sink import Writer
from evenflow.world.spark.driver import in_place
from evenflow.world.spark.driver.control_client import watch
from evenflow.world.spark.driver.control_port import ControlPort
from evenflow.world.spark.driver.operations import Operations
from evenflow.world.spark.driver.outlet import Outlet
from evenflow.world.spark.driver.run import Run
from evenflow.world.spark.driver.run_loop import RunLoop
from evenflow.world.spark.driver.watching import Watcher

__all__ = ["watched_engine"]  # The fixture.

BROKEN = BoxFailed("kept", 7, 'Traceback (most recent call last):\n  File "f.py", line 1\nValueError: not a number\n')
LINE = "box 'kept' raised an exception in epoch 7: ValueError: not a number"


def failed_events(run: Run) -> list[dict[str, Any]]:
    return [event for event in run.events() if event["kind"] == "failed"]


def broken() -> tuple[RunLoop, Run]:
    driven, run = small_run()
    driven.handle(RunBroken(BROKEN))
    return driven, run


def test_it_is_an_event_and_one_line_at_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "evenflow")
    _, run = broken()
    (event,) = failed_events(run)
    assert run.events()[-1] is event and event["site"] == -1
    assert (event["text"], event["error"], event["message"]) == (LINE, "BoxFailed", str(BROKEN))
    (line,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.getMessage() == f"run-1: failed: {LINE}"
    assert line.__dict__["evenflow"] == {"run": "run-1", "dataflow": "counts", "kind": "failed"}


@pytest.mark.parametrize("drain", [False, True])
def test_one_that_is_stopped_has_not_failed(caplog: pytest.LogCaptureFixture, drain: bool) -> None:
    driven, run = small_run()
    run._generations.stop(drain)
    if drain:
        driven.handle(StopRequested(False))
    assert not run.is_active and not failed_events(run) and run.watched().failure is None
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


class Unclosed(Writer):
    """A sink that takes everything, and cannot be closed. closing: until then its writer waits."""

    retries, backoff_ms, newest = 0, 0.0, 0

    def __init__(self) -> None:
        self.closing = threading.Event()

    def open(self, run_id: str) -> Unclosed:
        return self

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        return

    def close(self) -> None:
        assert self.closing.wait(20)
        raise OSError("no space left")


def test_a_sink_that_cannot_be_closed_is_a_failure_though_the_run_went_well() -> None:
    driven, run = small_run()
    sink, clock = Unclosed(), driven._calls.clock
    (segment,) = (each.id for each in driven.layout.segments if each.sink is not None)
    outlet = driven.outlets[segment] = Outlet("out", sink, "run-1", clock, lambda epoch: None, driven._broken)
    driven._calls.call_soon = lambda call: call()  # type: ignore[method-assign]
    run._generations.stop(False)
    assert not run.is_active and not failed_events(run)
    sink.closing.set()
    assert outlet.join(20)
    (event,) = failed_events(run)
    assert event["error"] == "SinkError" and "no space left" in event["text"]
    assert isinstance(run.exception(), SinkError) and run.watched().failure == event["text"]


class Late(Unclosed):
    """One that can be closed, later."""

    def close(self) -> None:
        assert self.closing.wait(20)


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Unclosed], tuple[RunLoop, Run]]]:
    """A run with the sink, for whose end a run that is stopped is not waited for long."""
    monkeypatch.setattr(in_place, "SINKS_S", 0.05)
    sinks: list[Unclosed] = []

    def made(sink: Unclosed) -> tuple[RunLoop, Run]:
        driven, run = small_run()
        (segment,) = (each.id for each in driven.layout.segments if each.sink is not None)
        driven.outlets[segment] = Outlet("out", sink, "run-1", driven._calls.clock, lambda epoch: None, driven._broken)
        driven._calls.call_soon = run._coordinator.call_soon = lambda call: call()  # type: ignore[method-assign]
        sinks.append(sink)
        return driven, run

    yield made
    for sink in sinks:
        sink.closing.set()


Closing = Callable[[Unclosed], tuple[RunLoop, Run]]


def test_the_end_of_a_run_is_awaited_until_its_sinks_are_closed(closing: Closing, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: nobody takes for success what fails later. Method: a sink that has more to do at its end than a stopped run waits for."""
    driven, run = closing(sink := Unclosed())
    driven._end(None)
    assert not run.is_active and not run.await_termination(0.2) and not run.await_termination(0)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "run-1" in line and "'out'" in line
    threading.Timer(0.2, sink.closing.set).start()
    with pytest.raises(SinkError, match="'out' cannot be closed: OSError: no space left"):
        run.await_termination()


def test_a_sink_that_is_closed_late_and_well_is_success(closing: Closing) -> None:
    driven, run = closing(sink := Late())
    driven._end(None)
    threading.Timer(0.2, sink.closing.set).start()
    assert run.await_termination()


def test_a_run_that_is_stopped_waits_for_its_sinks_for_a_while(closing: Closing, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: a sink that hangs keeps no program from its end, and nobody is told that all is well."""
    driven, run = closing(sink := Late())
    run.stop()
    assert any("'out'" in record.getMessage() for record in caplog.records)
    with pytest.raises(SinkError, match="sink 'out' .* not been closed"):
        run.await_termination()
    sink.closing.set()
    assert all(outlet.join(20) for outlet in driven.outlets.values())
    assert run.await_termination(0)


def test_who_awaits_a_sink_that_hangs_is_let_go_when_the_run_is_stopped(closing: Closing) -> None:
    driven, run = closing(Late())
    driven._end(None)
    threading.Timer(0.2, run._generations.stop, (False,)).start()
    with pytest.raises(SinkError, match="sink 'out' .* not been closed"):
        run.await_termination()


def test_a_run_that_is_drained_waits_for_its_sinks_as_long_as_was_said(closing: Closing) -> None:
    driven, run = closing(sink := Late())
    driven._end(None)
    threading.Timer(0.3, sink.closing.set).start()
    run.stop(drain=True, timeout_s=20)
    assert sink.closing.is_set() and run.await_termination(0)


def test_an_engine_that_is_stopped_lets_sinks_finish_whose_run_has_ended(closing: Closing) -> None:
    """The program may end behind it, and their threads with it."""
    driven, run = closing(sink := Late())
    driven._end(None)
    threading.Timer(0.2, sink.closing.set).start()
    engine = BareEngine()
    engine._runs.append(run)
    engine.stop()
    assert sink.closing.is_set()


def test_the_scene_says_it_and_readyz_names_it() -> None:
    driven, run = small_run()
    watcher = Watcher(SimpleNamespace(runs=(run,)), Sites(2), "e1", "app")
    watcher.news(0, 0)
    driven.handle(RunBroken(BROKEN))
    soon(watcher)
    scene, reading = told(watcher.news(1, 1)[2])
    assert isinstance(scene, Scene) and scene.number == 2
    assert (scene.runs[0].active, scene.runs[0].failure) == (False, LINE)
    assert [event.kind for event in reading.runs[0].events] == ["failed"]  # type: ignore[union-attr]
    assert readiness(scene, reading, reading.at_us).reasons == (f"counts: run-1 has failed: {LINE}",)  # type: ignore[arg-type,union-attr]


def test_who_watches_hears_it_though_the_engine_ends_with_it(watched_engine: ControlPort, monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: the run fails and the program ends as it does, long before another reading is due."""
    (run,) = watched_engine._engine.runs
    monkeypatch.setattr(watched_engine._watcher, "due_s", lambda: 0.0 if watched_engine._watcher._history.newest is None else 30.0)
    stream = watch(address())
    scene, first = next(stream), next(stream)
    assert isinstance(scene, Scene) and scene.runs[0].active and isinstance(first, Reading)
    run._driven.handle(RunBroken(BROKEN))
    watched_engine.close()
    last_scene, last = stream
    assert isinstance(last_scene, Scene) and last_scene.runs[0].failure == LINE
    assert isinstance(last, Reading) and [event.text for event in last.runs[0].events] == [LINE]


def test_what_is_shown_of_runs_that_are_over() -> None:
    """The newest that are over, and each that has failed and was not begun again, however many have ended since."""
    ended = [(f"ended {n}", False, False) for n in range(OVER_KEPT + 2)]
    assert shown([("a", False, True), *ended]) == [0, *range(3, OVER_KEPT + 3)]
    assert shown([("a", False, True), ("a", True, False), *ended]) == [1, *range(4, OVER_KEPT + 4)]
    assert shown([("a", False, True), ("a", False, False), *ended]) == list(range(4, OVER_KEPT + 4))
    many = [(f"failed {n}", False, True) for n in range(100)]
    assert shown([*many, *ended]) == [*range(100 - FAILED_KEPT, 100), *range(102, 102 + OVER_KEPT)]


def test_a_failed_run_stays_in_the_scene_when_others_end() -> None:
    first = Given(broken()[0], active=False, failed=ClusterError("gone"), name="first")
    others = [Given(small_run()[0], active=False, name=f"other {n}") for n in range(OVER_KEPT + 1)]
    for place, given in enumerate((first, *others)):
        given.run_id = f"run-{place}"
    watcher = Watcher(SimpleNamespace(runs=[first, *others]), Sites(2), "e1", "app")
    scene, _ = told(watcher.news(0, 0)[2])
    assert isinstance(scene, Scene)
    assert [run.run for run in scene.runs] == ["run-0", *(f"run-{n}" for n in range(2, OVER_KEPT + 2))]


def test_sites_says_what_has_failed_and_what_is_over() -> None:
    _, failed = broken()
    _, live = small_run()
    _, over = small_run()
    over._generations.stop(False)
    coordinator: Any = SimpleNamespace(describe_sites=list, engine="e1")
    engine: Any = SimpleNamespace(
        runs=(failed, over, live), replicas=2, spares=0, _once_there=lambda: coordinator, _standbys=SimpleNamespace(progress=()),
        spark=SimpleNamespace(sparkContext=SimpleNamespace(master="local")),
    )  # fmt: skip
    found = Operations(engine).describe()["runs"]
    assert [(run["dataflow"], run["state"], run["error"]) for run in found] == [
        ("counts", "failed", LINE), ("counts", "over", None), ("counts", "live", None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (BROKEN, LINE),
        (ClusterError("two sites are gone"), "two sites are gone"),
        (ClusterError("  first: \n\n  last  \n"), "first: last"),
        (ClusterError(""), "ClusterError"),
        (ClusterError("x" * 2_000), "x" * 999 + "…"),
    ],
)
def test_an_error_in_a_line(error: Exception, line: str) -> None:
    assert in_a_line(error) == line


def test_who_stops_it_learns_whether_it_ended_as_it_was_to() -> None:
    """A run that was to be drained and is not in time ends without, which was told as if all of it were in the sinks."""
    for drain, ends_s, failed in ((False, 0.0, False), (True, 0.0, False), (True, 0.3, False), (False, 0.0, True)):
        driven, run = small_run()

        def soon_over(call: Callable[[], None], driven: RunLoop = driven, ends_s: float = ends_s, failed: bool = failed) -> None:
            end = RunBroken(BROKEN) if failed else StopRequested(drain=False)
            threading.Timer(ends_s, driven.handle, (end,)).start()

        run._coordinator.call_soon = soon_over  # type: ignore[method-assign]
        assert run.stop(drain, timeout_s=0.1 if ends_s else 5.0) is (ends_s == 0.0 and not failed), (drain, ends_s, failed)
