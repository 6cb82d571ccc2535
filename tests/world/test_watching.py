"""An engine is watched: one look for all readers, the newest for who is slow, nothing if nobody looks, and little of the driver's time."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.monitor.simulated import counts
from tests.site.cluster import totals
from tests.world.test_progress_cost import REPORTS, SITES, big_run, reported

import evenflow as ef
from evenflow.availability.mode import Mode, Modes
from evenflow.coordinator.events import Happened, Kind
from evenflow.errors import EngineUnreachable, EvenflowError, OperationRefused, StatisticsError, in_a_line
from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene
from evenflow.monitor.watching import Watched
from evenflow.plan.layout import Layout
from evenflow.plan.placement import first_membership, first_plan
from evenflow.query.planner import layout
from evenflow.statistics.wire import HEADER, FlatWindow
from evenflow.world.spark.driver import control_port
from evenflow.world.spark.driver.control_client import Address, engines, watch
from evenflow.world.spark.driver.control_port import ControlPort
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.driver.in_place import Generations
from evenflow.world.spark.driver.known import Warnings
from evenflow.world.spark.driver.run import Run
from evenflow.world.spark.driver.run_loop import RunLoop
from evenflow.world.spark.driver.watching import EVERY_S, Watcher
from evenflow.world.spark.net import control
from evenflow.world.spark.net.handshake import new_secret


def known(site: int) -> Any:
    report = control.Report(0, 1.5, 1 << 28, 1 << 27, 0, {})
    return SimpleNamespace(index=site, executor=str(site), hello={"host": "h", "pid": 7}, report=report, reported_s=time.monotonic())


class Sites:
    """Those that a coordinator would know."""

    def __init__(self, count: int) -> None:
        self.there, self.leaving = [known(site) for site in range(count)], set[int]()
        self.warnings = Warnings()

    def known(self) -> Any:
        return list(self.there)

    def is_leaving(self, site: int) -> bool:
        return site in self.leaving


def loop(planned: Layout, replicas: int, modes: Modes = ()) -> RunLoop:
    plan = first_plan(planned, 2, replicas, modes=modes)
    calls: Any = SimpleNamespace(clock=None, send=lambda site, message: None, call_later=lambda delay_s, call: None, present=list)
    return RunLoop(1, "run-1", planned, plan, first_membership(planned, plan, range(2)), b"", calls)


def small_run() -> tuple[RunLoop, Run]:
    flow = counts()
    driven = loop(layout(flow.network, sites=2, partitions=4), 2)
    coordinator: Any = SimpleNamespace(describe_sites=list)
    return driven, Run(Generations(driven, None, start=lambda generation: None), coordinator, layout, flow.network)


def soon(watcher: Watcher) -> None:
    """The next reading is due, without waiting for it."""
    watcher._looked_s -= EVERY_S


def told(texts: list[bytes]) -> list[Scene | Reading]:
    objects = [json.loads(text) for text in texts]
    return [Scene.from_json(each) if each["kind"] == "scene" else Reading.from_json(each) for each in objects]


def test_all_readers_get_one_look_and_the_slow_one_all_events() -> None:
    driven, run = small_run()
    sites = Sites(2)
    watcher = Watcher(SimpleNamespace(runs=(run,)), sites, "e1", "app")
    scene, number, texts = watcher.news(0, 0)
    first, reading = told(texts)
    assert isinstance(first, Scene) and isinstance(reading, Reading) and (scene, number) == (first.number, reading.number) == (1, 1)
    assert [box.name for box in first.runs[0].boxes] == ["events", "kept", "counts", "out"]
    assert (reading.sites.memory_bytes, reading.sites.cpu_us) == ((1 << 27, 1 << 27), (1_500_000, 1_500_000))
    assert watcher.news(1, 1) == (1, 1, []), "half a second has not passed"
    soon(watcher)
    quick = watcher.news(1, 1)[2]
    assert watcher.news(1, 1)[2][0] is quick[0], "encoded once for all"
    driven.record(Kind.DISK_TROUBLE, "first")
    soon(watcher)
    assert [event.text for event in told(watcher.news(1, 2)[2])[0].runs[0].events] == ["first"]
    driven.happenings.note(Happened(Kind.DISK_TROUBLE, 1, "second", {}), time.monotonic())
    soon(watcher)
    (slow,) = told(watcher.news(1, 1)[2])
    assert isinstance(slow, Reading) and slow.number == 4 and [event.text for event in slow.runs[0].events] == ["first", "second"]


class Given:
    """A run as it is said to be. asked: how often. ends: it is over from the second time on that it is asked."""

    def __init__(
        self, driven: RunLoop, *, active: bool = True, ends: bool = False, failed: EvenflowError | None = None, name: str = "counts"
    ) -> None:
        self.driven, self.active, self.ends, self.asked = driven, active, ends, 0
        self.failed, self.dataflow, self.run_id = failed, name, driven.run_id
        self.planned = driven.layout if name == driven.layout.name else replace(driven.layout, name=name)

    @property
    def is_active(self) -> bool:
        self.asked += 1
        return self.active and not (self.ends and self.asked > 1)

    def exception(self) -> EvenflowError | None:
        return self.failed

    def watched(self) -> Watched:
        failure = None if self.failed is None else in_a_line(self.failed)
        told = self.driven.watched(counts().network)
        return replace(told, run=self.run_id, planned=self.planned, active=self.active, failure=failure)


def test_a_run_that_goes_on_where_one_of_its_id_ended_is_told_anew() -> None:
    driven, after = small_run()[0], small_run()[0]
    for text in ("first", "second", "third"):
        driven.record(Kind.DISK_TROUBLE, text)
    driven.numbers._growing.slots((0, partition, 7) for partition in range(500))  # Its arrays are larger than those of the next one.
    before, runs = Given(driven), list[Given]()
    runs.append(before)
    watcher = Watcher(SimpleNamespace(runs=runs), Sites(2), "e1", "app")
    assert len(told(watcher.news(0, 0)[2])[1].runs[0].events) == 3
    before.active = False
    soon(watcher)
    watcher.news(1, 1)
    runs.append(Given(after))
    after.record(Kind.DISK_TROUBLE, "anew")
    soon(watcher)
    scene, reading = told(watcher.news(2, 2)[2])
    assert isinstance(scene, Scene) and isinstance(reading, Reading)
    assert [(run.run, run.active) for run in scene.runs] == [("run-1", True)]
    assert [event.text for event in reading.runs[0].events] == ["anew"]
    soon(watcher)
    watcher.news(3, 3)


def test_a_run_is_asked_once_whether_it_goes_on() -> None:
    run = Given(small_run()[0], ends=True)
    over = [Given(small_run()[0], active=False) for _ in range(5)]
    watcher = Watcher(SimpleNamespace(runs=[run, *over]), Sites(2), "e1", "app")
    watcher.news(0, 0)
    assert [each.asked for each in (run, *over)] == [1] * 6


def test_what_is_refused_does_not_stay() -> None:
    driven = small_run()[0]
    words = np.zeros(HEADER + 7 + 3, np.int64)
    words[10:12], words[HEADER : HEADER + 4] = (1, 1), (99, 1, 0, 0)
    part = control.PartReport(1, 1, 0, 0, 0, 1, 1, 1, 0, 1, FlatWindow.from_bytes(words.tobytes()), {})
    with pytest.raises(StatisticsError, match="another layout"):
        driven.numbers.note(0, control.Report(0, 0.1, 1, 1, 0, {1: part}), part, 0.0)
    assert driven.numbers.count() == 0 and driven.watched(None).parts == {}


def test_sites_that_have_gone_are_shown_for_a_while() -> None:
    _, run = small_run()
    sites = Sites(3)
    watcher = Watcher(SimpleNamespace(runs=(run,)), sites, "e1", "app")
    watcher.news(0, 0)
    sites.leaving.add(2)
    soon(watcher)
    states = [site.state for site in told(watcher.news(0, 0)[2])[0].sites]
    assert states == ["live", "live", "leaving"]
    del sites.there[1:]
    soon(watcher)
    gone = told(watcher.news(0, 0)[2])[0]
    assert isinstance(gone, Scene)
    assert [site.state for site in gone.sites] == ["live", "dead", "left"] and gone.runs[0].roles == ("live", "gone", "gone")
    watcher._gone_s = dict.fromkeys(watcher._gone_s, -1000.0)
    soon(watcher)
    assert [site.site for site in told(watcher.news(0, 0)[2])[0].sites] == [0]


def held_up(look: Callable[[], Any], at: int, meanwhile: Callable[[], Any]) -> bool:
    """Look, and be held up at the `at`-th step of it, while something else happens. False if it has fewer steps."""
    steps = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        steps += 1
        if steps == at:
            meanwhile()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        look()
    finally:
        sys.settrace(before)
    return steps >= at


def test_who_is_held_up_while_he_looks_leaves_no_stale_number_to_the_coordinator() -> None:
    """Goal: the coordinator knows that a partition is lost, whoever looks. Method: a site dies at each step at which a look can be held
    up."""
    flow = ef.Dataflow("small")
    flow.source(ef.sources.memory([pa.record_batch({"k": [1]})])).to(ef.sinks.discard())
    driven = loop(layout(flow.network, sites=2), 1)
    machine, view = driven.machine, driven.machine.view
    whole = machine.membership
    died, at, found = replace(whole, number=1, sites=whole.sites[1:]), 1, True
    while found:
        view.change(whole)
        driven.numbers._hosts = None
        found = held_up(driven.numbers._stands, at, lambda: view.change(died))
        if not found:
            view.change(died)
        assert view.lacks() and view.redundancy() == 0, f"held up at step {at}"
        hosts = driven.numbers._stands()
        assert (hosts.membership, hosts.redundancy, hosts.active) == (died, 0, ())
        at += 1
    assert at > 50


@pytest.mark.parametrize("modes", [(), (Mode.PAIRS, Mode.PASSIVE, Mode.PAIRS)], ids=["pairs", "passive"])
def test_who_looks_fills_nothing_of_the_coordinators(modes: Modes) -> None:
    """While it counts anew, what it knew is cleared; what somebody else puts there then may be of the plan before."""
    planned = totals(partitions=4, sites=2)
    driven = loop(planned, 2, modes)
    view = driven.machine.view
    told = driven.watched(None), driven.progress([])
    driven.numbers._hosts = None
    view._blocks.clear()
    view._planned.clear()
    view._least = None
    assert (driven.watched(None).redundancy, driven.progress([]).protected) == (told[0].redundancy, told[1].protected)
    assert (view._blocks, view._planned, view._least) == ({}, {}, None)
    assert told[0].redundancy == driven.machine.redundancy()


def test_a_big_engine_is_watched_in_milliseconds() -> None:
    driven = big_run()
    reported(driven)
    run = Run(Generations(driven, None, start=lambda generation: None), SimpleNamespace(), layout)  # type: ignore[arg-type]
    watcher = Watcher(SimpleNamespace(runs=(run,)), Sites(SITES), "e1", "app")
    scene, number, texts = watcher.news(0, 0)
    spent_s = []
    for _ in range(10):
        soon(watcher)
        began_s = time.thread_time()
        scene, number, texts = watcher.news(scene, number)
        spent_s.append(time.thread_time() - began_s)
    assert min(spent_s) < 0.02 and len(texts) == 1 and len(texts[0]) < 60_000
    (reading,) = told(texts)
    assert isinstance(reading, Reading)
    planned, now = run.watched().planned, reading.runs[0]
    assert len(now.replicas.rows) == 2 * sum(segment.partitions for segment in planned.segments) > 2_000
    assert set(now.replicas.rows) == {100 * REPORTS} and set(now.replicas.state_bytes) == {4096}
    assert set(now.sites.measured_us) == {250_000 * REPORTS}


# ---------------------------------------------------------------- over the control port


@pytest.fixture
def watched_engine(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A control port as engines have one, and the coordinator behind it; no Spark."""
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    _, run = small_run()
    coordinator = DriverLoop("e1", 1, new_secret(), "127.0.0.1")  # type: ignore[arg-type]
    engine: Any = SimpleNamespace(spark=SimpleNamespace(sparkContext=SimpleNamespace(appName="app")), runs=(run,))
    port = ControlPort(engine, coordinator)
    yield port
    port.close()
    coordinator.close()


def test_a_control_file_that_cannot_be_written_leaves_no_port_open(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    engine: Any = SimpleNamespace(spark=SimpleNamespace(sparkContext=SimpleNamespace(appName="app")), runs=())
    coordinator = DriverLoop("e1", 1, new_secret(), "127.0.0.1")  # type: ignore[arg-type]
    opened: list[int] = []
    listen = coordinator.listen
    coordinator.listen = lambda *given: opened.append(listen(*given)) or opened[-1]  # type: ignore[method-assign, func-returns-value]
    try:
        (tmp_path / "control").mkdir(0o700)
        (tmp_path / "control" / "e1.json").mkdir()
        with pytest.raises(EngineUnreachable, match="set EVENFLOW_CONTROL_DIR"):
            ControlPort(engine, coordinator)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", opened[0]), 5)
        (tmp_path / "control" / "e1.json").rmdir()
        ControlPort(engine, coordinator).close()
    finally:
        coordinator.close()


def address() -> Address:
    (found,) = engines()
    return found


def test_a_reader_hears_a_scene_and_readings_until_the_engine_ends(watched_engine: ControlPort) -> None:
    heard: list[Scene | Reading] = []
    three = threading.Event()

    def read() -> None:
        for each in watch(address()):
            heard.append(each)
            if len(heard) >= 3:
                three.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert three.wait(20)
    watched_engine.close()
    reader.join(20)
    assert not reader.is_alive()
    assert isinstance(heard[0], Scene) and all(isinstance(each, Reading) for each in heard[1:])
    assert [each.number for each in heard[1:3]] == [1, 2]


def test_nothing_is_made_if_nobody_looks(watched_engine: ControlPort, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, gone = watched_engine._watcher, threading.Event()
    told = watched_engine._watch

    def tell(connection: Any) -> None:
        told(connection)
        gone.set()

    monkeypatch.setattr(watched_engine, "_watch", tell)
    assert watcher._history.newest is None, "nobody has looked"
    stream = watch(address())
    next(stream)
    stream.close()
    assert gone.wait(20) and watched_engine._watchers == 0, "the stream ends when its reader has gone"
    made = watcher._history.newest
    soon(watcher)
    assert watcher._history.newest is made


def test_too_many_readers_are_refused(watched_engine: ControlPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_port, "WATCHERS_MAX", 1)
    stream = watch(address())
    next(stream)
    with pytest.raises(OperationRefused, match="watch this engine already"):
        next(watch(address()))
    stream.close()


def test_an_engine_that_has_ended_cannot_be_watched(watched_engine: ControlPort) -> None:
    there = address()
    other = Address(there.engine, there.name, there.pid, there.host, 1, there.secret)
    with pytest.raises(EngineUnreachable, match="does not answer"):
        next(watch(other))
