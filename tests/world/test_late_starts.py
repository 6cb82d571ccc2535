"""A start that fails late, or that meets the engine's end: nothing of it is left, and whoever waits for the run hears it. No Spark: the
engine's sites are sockets of the test.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.restarting import wait_until
from tests.spark.test_driver_loop import SECRET, Fake

import evenflow as ef
from evenflow.availability.entries import Entry, Logged
from evenflow.availability.standing import Standing
from evenflow.bench import bare
from evenflow.bench.bare import BareEngine
from evenflow.coordinator import effects
from evenflow.errors import ClusterError, EvenflowError, LocationError
from evenflow.query.planner import layout
from evenflow.store.journal import Outcome, append, read_journal
from evenflow.store.opening import open_store
from evenflow.world.spark.driver import beginnings, control_port, in_place
from evenflow.world.spark.driver import engine as engine_module
from evenflow.world.spark.driver.appending import Appender
from evenflow.world.spark.driver.control_client import ask, find
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.driver.in_place import Generations
from evenflow.world.spark.driver.run import Run
from evenflow.world.spark.driver.taking import begin, look
from evenflow.world.spark.net import control

pytestmark = [pytest.mark.timeout(30)]


class Site:
    """It hears everything, says nothing, and leaves when it is told to. Looks like a process."""

    def __init__(self, coordinator: DriverLoop, number: int, sites: int) -> None:
        self._told, self._lost = (coordinator, f"e{number}", number), threading.Event()
        self._thread = threading.Thread(target=self._live, args=(sites,), daemon=True)
        self._thread.start()

    def _live(self, sites: int) -> None:
        with contextlib.suppress(OSError, EvenflowError):  # The engine may be stopping.
            self._fake = Fake(*self._told, engine=self._told[0].engine)
            while (message := self._fake.hear()) is not None:
                if isinstance(message, control.Roster) and len(message.sites) == sites:
                    self._fake.say(control.Linked(message.number))
            self._fake.close()
        self._lost.set()

    def poll(self) -> int | None:
        return 0 if self._lost.is_set() else None

    def kill(self) -> None:
        self._lost.set()
        self._fake.connection.shut_down()


class Engine(BareEngine):
    """Two sites, which hear everything and say nothing."""

    _processes: list[Any]
    _stop = ef.Engine._stop

    def _start_sites(self, count: int) -> None:
        assert self._coordinator is not None
        for _ in range(count):
            self._processes.append(Site(self._coordinator, len(self._processes) + 1, self.sites))

    def kill_sites(self) -> None:
        for site in self._processes:
            site.kill()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(bare, "new_secret", lambda: SECRET)
    made = Engine(2, lease_s=1.0, partitions=4)
    yield made
    made.stop()


def flow(name: str = "late") -> ef.Dataflow:
    made = ef.Dataflow(name)
    made.source(ef.sources.generator(rate=10.0, partitions=2), name="made").to(ef.sinks.callback(lambda epoch, batch: None), name="rows")
    return made


@pytest.fixture(autouse=True)
def before() -> None:
    """Other files have runs that nobody ends."""
    BEFORE.clear()
    BEFORE.update(threading.enumerate())


BEFORE: set[threading.Thread] = set()


def left() -> list[str]:
    """Threads of runs of this test."""
    prefixes = ("evenflow-alive-", "evenflow-sink-", "evenflow-journal-", "evenflow-newcomers")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(prefixes) and thread not in BEFORE]


def fails(*given: Any) -> Any:
    raise LocationError("the store has not listed what Spark has noted")


def test_a_start_that_fails_late_leaves_nobody_who_says_that_he_lives(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the next start, here or elsewhere, goes on after a lease. Method: the last step but one raises; then it does not."""
    location = tmp_path / "location"
    with monkeypatch.context() as patched:
        patched.setattr(engine_module, "spooling", fails)
        with pytest.raises(LocationError, match="has not listed"):
            engine.start(flow(), checkpoint_location=str(location))
    wait_until(lambda: not left(), 10, "its threads have ended")
    assert engine.runs == ()
    run = engine.start(flow(), checkpoint_location=str(location))
    assert run.is_active
    run.stop()


def test_a_sink_that_cannot_be_made_ends_what_was_begun_for_it(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenflow.world.spark.driver.run_loop.opened", fails)
    with pytest.raises(LocationError, match="has not listed"):
        engine.start(flow(), checkpoint_location=str(tmp_path / "location"))
    wait_until(lambda: not left(), 10, "its threads have ended")


def test_the_end_of_the_engine_is_the_end_of_its_runs(engine: Engine) -> None:
    """Goal: whoever waits for a run hears it, though nobody has told the run to stop, or it came too late for that."""
    run = engine.start(flow())
    assert engine._coordinator is not None
    coordinator, late = engine._coordinator, engine._loop
    coordinator.close()
    with pytest.raises(ClusterError, match="has been stopped"):
        run.await_termination(10)
    assert [event["kind"] for event in run.events()][-1] == "failed"
    driven = run._driven
    again = late("run-2", driven.layout, driven.machine.plan, driven.machine.membership, b"", driven.beginning, None)
    waits = Generations(again, None, coordinator.add_run)
    coordinator.add_run(again)
    assert waits.wait(10) and "has been stopped" in str(again.failure)
    wait_until(lambda: not left(), 10, "its threads have ended")


@pytest.mark.parametrize("patience_s", [0.05, 20.0], ids=["its store hangs", "it ends soon"])
def test_a_start_that_meets_the_end_of_the_engine_has_failed(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience_s: float
) -> None:
    """Goal: no run that nobody ends. Method: the engine is stopped while another thread writes the run's first entry."""
    monkeypatch.setattr(engine_module, "STARTS_S", patience_s)
    written, goes, said = threading.Event(), threading.Event(), list[str]()

    def slow(found: Any, tries: int) -> Any:
        taken = begin(found, tries)
        written.set()
        assert goes.wait(20)
        return taken

    monkeypatch.setattr(beginnings, "begin", slow)

    def start() -> None:
        with pytest.raises(ClusterError) as raised:
            engine.start(flow(), checkpoint_location=str(tmp_path / "location"))
        said.append(str(raised.value))

    starts, stops = threading.Thread(target=start), threading.Thread(target=engine.stop)
    starts.start()
    assert written.wait(20)
    stops.start()
    if patience_s < 1.0:
        stops.join(20)
    else:
        wait_until(lambda: engine._stopped, 10, "it is stopped")
    goes.set()
    for thread in (starts, stops):
        thread.join(20)
        assert not thread.is_alive()
    assert said == ["the engine has been stopped"] and engine.runs == ()
    wait_until(lambda: not left(), 10, "its threads have ended")


@pytest.mark.parametrize("answers_s", [20.0, 0.1], ids=["it comes", "it hangs"])
def test_the_end_of_the_engine_waits_for_answers(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers_s: float) -> None:
    """Goal: who has asked for something hears what has become of it, though the program ends. Method: the answer is there when everything
    else has ended, or never."""
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    monkeypatch.setattr(control_port, "ANSWERS_S", answers_s)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(appName="test"))
    engine.spark = session
    engine.open_control()
    port, end_sites, begun, ends, goes, said = engine._control, engine._end_sites, *(threading.Event() for _ in range(3)), list[Any]()
    assert port is not None

    def late(*given: Any) -> dict[str, Any]:
        begun.set()
        assert goes.wait(20)
        return {"sites have ended": ends.wait(0.5 if answers_s > 1.0 else 20.0)}

    def closed() -> None:
        goes.set()
        close()

    def end() -> None:
        ends.set()
        end_sites()

    close = port.close
    monkeypatch.setattr(port, "close", closed)
    monkeypatch.setattr(engine, "_end_sites", end)
    port.allow("late", late)
    asks = threading.Thread(target=lambda: said.append(ask(find(), "late")), daemon=True)
    asks.start()
    assert begun.wait(20)
    engine.stop()
    asks.join(20)
    assert said == [{"sites have ended": answers_s < 1.0}]


def test_a_store_that_hangs_holds_up_no_other_run(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: runs recover, and others are started, each as quickly as its own store lets it. Method: all sites are lost, and the entry with
    which one run goes on takes as long as the test wants."""
    runs = {name: engine.start(flow(name), checkpoint_location=str(tmp_path / name)) for name in ("held", "other")}
    held, goes, started = threading.Event(), threading.Event(), list[Any]()

    def slow(found: Any, tries: int) -> Any:
        if found.layout.name == "held":
            held.set()
            assert goes.wait(30)
        return begin(found, tries)

    def recovered(name: str) -> bool:
        return "recovered_in_place" in {event["kind"] for event in runs[name].events()}

    monkeypatch.setattr(beginnings, "begin", slow)
    engine.kill_sites()
    assert held.wait(10)
    starts = threading.Thread(target=lambda: started.append(engine.start(flow("third"), checkpoint_location=str(tmp_path / "third"))))
    starts.start()
    wait_until(lambda: recovered("other"), 10, "another run goes on")
    starts.join(10)
    assert [run.is_active for run in started] == [True] and not recovered("held")
    goes.set()
    wait_until(lambda: recovered("held"), 10, "it goes on, too")


def lose(engine: Engine, run: Run) -> None:
    """All of its sites."""
    engine.kill_sites()
    wait_until(lambda: "lost" in [event["kind"] for event in run.events()], 10, "it is lost")


def standing(location: Path) -> Standing:
    return read_journal(open_store(str(location)))


def again() -> list[str]:
    """Threads in which runs go on."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("evenflow-again-")]


@pytest.mark.parametrize("willed", [True, False])
def test_who_stops_a_run_between_two_generations_is_heard(engine: Engine, tmp_path: Path, willed: bool) -> None:
    """Goal: who stands by leaves it alone, and goes on behind a program that has failed. Method: no site comes any more, and what the
    generation before was appending is in without its knowledge."""
    run = engine.start(flow(), checkpoint_location=str(tmp_path))
    engine.forsake()
    lose(engine, run)
    before = standing(tmp_path)
    entry = Entry(before.last + 1, before.generation, before.nonce, Logged({}))
    assert append(open_store(str(tmp_path)), entry).outcome is Outcome.OURS
    run._stop(False, 20.0, willed=willed)
    assert not run.is_active and run.exception() is None and run.await_termination(10)
    wait_until(lambda: not again(), 10, "nobody goes on")
    assert standing(tmp_path).stopped == willed and standing(tmp_path).last == before.last + 1 + willed


def test_sites_that_are_lost_while_the_run_is_being_stopped_take_no_word_with_them(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a terminal reaches the executors, too. Method: what says that it is stopped is not appended before they are lost."""
    for where in (effects, in_place):  # However busy the machine is.
        monkeypatch.setattr(where, "STOP_MS", 60_000.0)
    run, held = engine.start(flow(), checkpoint_location=str(tmp_path)), threading.Event()
    monkeypatch.setattr(Appender, "ask", lambda appender, action: held.set())
    run._ask_to_stop(drain=False, willed=True)
    assert held.wait(10)
    engine.kill_sites()
    assert run.await_termination(10) and run.exception() is None and standing(tmp_path).stopped


def test_a_run_that_is_stopped_says_nothing_behind_another_driver(engine: Engine, tmp_path: Path) -> None:
    run, made = engine.start(flow(), checkpoint_location=str(tmp_path)), flow()
    engine.forsake()
    lose(engine, run)
    begin(look(str(tmp_path), made.name, lambda told: layout(made.network, **told), engine._planning()))  # type: ignore[arg-type]
    run.stop()
    assert not run.is_active
    wait_until(lambda: not again(), 10, "nobody goes on")
    assert (standing(tmp_path).generation, standing(tmp_path).stopped) == (2, False)


@pytest.mark.parametrize("by", ["the run", "the engine", "a person who insists"])
@pytest.mark.parametrize(("where", "hangs"), [(in_place, "look_ahead"), (in_place, "look_again"), (beginnings, "begin")])
def test_a_store_that_hangs_keeps_no_run_from_being_stopped(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, hangs: str, by: str
) -> None:
    """Goal: whoever stops it, or waits for it, is let go, and when the store answers, nobody goes on and the journal says why. Method: what
    the next generation asks for is done, and answered only when the run is over."""
    monkeypatch.setattr(in_place, "STOP_MS", 60_000.0 if by == "a person who insists" else 100.0)
    run = engine.start(flow(), checkpoint_location=str(tmp_path))
    held, goes, asked = threading.Event(), threading.Event(), getattr(where, hangs)

    def slow(*given: Any) -> Any:
        answer = asked(*given)
        held.set()
        assert goes.wait(20)
        return answer

    monkeypatch.setattr(where, hangs, slow)
    lose(engine, run)
    assert held.wait(20)
    stops = threading.Thread(target=engine.stop if by == "the engine" else run.stop, daemon=True)
    stops.start()
    if by == "a person who insists":
        wait_until(lambda: run._generations._stopping, 10, "he has asked once")
        run._ask_to_stop(drain=False, willed=True)
    try:
        assert run.await_termination(10) and run.exception() is None
    finally:
        goes.set()
    stops.join(20)
    wait_until(lambda: not again(), 20, "nobody goes on")
    assert standing(tmp_path).stopped and standing(tmp_path).generation == (2 if hangs == "begin" else 1)
    wait_until(lambda: not left(), 10, "its threads have ended")
