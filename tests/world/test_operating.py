"""Sites leave and come at a person's wish: the errors, and what is undone when it does not work out. No Spark, no threads but the
test's.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.sim.test_scenarios import Stage

from evenflow.coordinator.detector import REPLICATED, SiteEnded
from evenflow.coordinator.events import DrainSite, SparesChanged
from evenflow.coordinator.fleet import BeginPart, Fleet, FleetEvent, Hello, LetGo, Linked, Newcomer, TakeIn, TellRun
from evenflow.errors import ClusterError, OperationRefused
from evenflow.world.spark.cluster.located import Executor
from evenflow.world.spark.cluster.placement import find_room
from evenflow.world.spark.driver import operations
from evenflow.world.spark.driver.operations import Operations

NEWEST = 10**6
"""A roster that has everybody."""


class Driven:
    """A run of the simulator as the coordinator of Spark has it."""

    def __init__(self, stage: Stage, number: int) -> None:
        self.stage, self.machine, self.run_id, self.over = stage, stage.machine, f"run-{number}", threading.Event()
        self.joined: list[int] = []

    def handle(self, event: Any) -> None:
        self.stage.world.driver.coordinate(event)


class Handle:
    """What the user has of a run."""

    def __init__(self, driven: Driven) -> None:
        self.id, self._driven = driven.run_id, driven

    def events_since(self, seen: int = 0) -> tuple[list[dict[str, Any]], int]:
        happened = self._driven.stage.world.happened
        extra = {"seconds": 0.5, "stall_ms": 4.0}
        told = [{"kind": e.kind, "at_s": 0.0, **e.details} | (extra if e.kind == "move_done" else {}) for _, e in happened[seen:]]
        return told, len(happened)


class Coordinator:
    """Of the engine: the sites that there are, and time that passes in the simulator whenever somebody waits."""

    def __init__(self, drivens: list[Driven], sites: int) -> None:
        self.engine, self.fleet = "e", Fleet(sites, REPLICATED)
        self.runs: dict[int, Driven] = {}
        self.sites: dict[int, Any] = {}
        for site in range(sites):
            self.come(f"x{site}")
        for number, driven in enumerate(drivens):
            self.add(number, driven)
        self.before_wait: Callable[[], None] = lambda: None
        self.changed: Any = self

    def add(self, number: int, driven: Driven) -> None:
        self.runs[number] = driven
        self.fleet.runs[number] = (driven.run_id, driven.machine)

    def come(self, executor: str) -> None:
        """A site comes there, and reaches its peers."""
        index = max(self.sites, default=-1) + 1
        self.observe(Hello(Newcomer(index + 1, executor, executor, executor), 0))
        self.observe(Linked(index, NEWEST))

    def observe(self, event: FleetEvent) -> None:
        for action in self.fleet.handle(event):
            if isinstance(action, TakeIn):
                executor = self.fleet.sites[action.site].newcomer.executor
                hello = {"job": action.site + 1}
                self.sites[action.site] = SimpleNamespace(index=action.site, linked=True, executor=executor, hello=hello)
            elif isinstance(action, LetGo):
                del self.sites[action.site]
            elif isinstance(action, TellRun):
                self.runs[action.run].handle(action.event)
            elif isinstance(action, BeginPart):
                self.runs[action.run].joined.append(action.site)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def wait(self, timeout_s: float) -> None:
        self.before_wait()
        for run in self.runs.values():
            run.stage.world.run_for(0.002)

    def ask(self, call: Callable[[], Any]) -> Any:
        return call()

    def call_soon(self, call: Callable[[], None]) -> None:
        call()

    def go(self, site: int) -> None:
        self.observe(SiteEnded(site, 0, "it went"))


class Engine(SimpleNamespace):
    """What operations know of an engine."""

    @property
    def sites_now(self) -> tuple[int, ...]:
        return tuple(self._once_there().sites)


class Made:
    """An engine around runs of the simulator."""

    def __init__(self, *stages: Stage, sites: int = 4, spares: int = 0, replicas: int = 2) -> None:
        drivens = [Driven(stage, number) for number, stage in enumerate(stages)]
        self.coordinator = Coordinator(drivens, sites + spares)
        self.engine: Any = Engine(
            sites=sites, spares=spares, replicas=replicas, runs=[Handle(driven) for driven in drivens], _lock=threading.RLock(),
            _once_there=lambda: self.coordinator, _placement=SimpleNamespace(await_ends=lambda jobs: self.awaited.update(jobs)),
        )  # fmt: skip
        self.awaited: set[int] = set()
        self.operations = Operations(self.engine)

    @property
    def size(self) -> tuple[int, int, int]:
        return self.engine.sites, self.engine.spares, self.coordinator.fleet.wanted


def running(replicas: int = 2, spares: int = 0) -> Stage:
    stage = Stage(sites=4, replicas=replicas, spares=spares)
    stage.world.run_for(0.02)
    return stage


def test_a_drained_site_leaves_and_one_less_is_wanted() -> None:
    stage, beside = running(), running()
    made, said = Made(stage, beside), []
    (left,) = made.operations.drain((1,), 60.0, said.append)
    assert (left.site, left.executor, left.lost) == (1, "x1", False)
    assert left.moves > 0 and left.partitions >= left.moves and left.bytes > 0 and left.stall_ms == 4.0
    assert made.size == (3, 0, 3) and 1 not in made.coordinator.sites and made.coordinator.fleet.shunned == {"x1"}
    assert made.awaited == {2}, "its task is waited for"
    assert said and said[0].startswith("site 1 still hosts ")
    for each in (stage, beside):
        assert 1 not in each.machine.sites
        assert "take_over" not in {event.kind for _, event in each.world.happened}
        each.world.kill(1)
        each.finish()


def test_a_spare_takes_the_place_of_a_drained_site() -> None:
    stage = running(spares=1)
    made = Made(stage, spares=1)
    made.operations.drain((0,), 60.0)
    assert made.size == (4, 0, 4) and stage.machine.rounds.spares == 0
    stage.world.kill(0)
    stage.finish()


@pytest.mark.parametrize(
    ("sites", "why"),
    [((7,), "there is no site 7; there are 0, 1, 2, 3"), ((0, 1, 2), r"1 would be left, and 2 replicas .*add_sites\(1\)")],
)
def test_a_site_that_cannot_go_is_refused_and_nothing_changes(sites: tuple[int, ...], why: str) -> None:
    made = Made(running())
    with pytest.raises(OperationRefused, match=why):
        made.operations.drain(sites, 60.0)
    assert made.size == (4, 0, 4) and not made.coordinator.fleet.leaving


def test_what_cannot_move_is_named_with_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = running()
    made = Made(stage)
    layout = stage.world.layout
    monkeypatch.setattr(type(layout.sinks[layout.segments[-1].sink]), "where", "spark", raising=False)
    site = stage.machine.view.live(stage.machine.view.blocks(layout.segments[-1].id)[0])[0]
    with pytest.raises(OperationRefused, match=f"site {site} cannot leave, since not .* can move. run-0: sink .* is read by Spark"):
        made.operations.drain((site,), 60.0)
    assert made.size == (4, 0, 4) and not stage.machine.moving.leaving
    holders = {s for block in stage.machine.view.blocks(layout.segments[-1].id) for s in stage.machine.view.live(block)}
    free = made.operations.least(4 - len(holders))
    assert set(free) == {0, 1, 2, 3} - holders
    with pytest.raises(OperationRefused, match=f"4 sites cannot leave, only {len(free)} of 4 can: site .* is read by Spark"):
        made.operations.least(4)


@pytest.mark.parametrize("error", [ClusterError("the engine does not answer"), KeyboardInterrupt()], ids=["late", "Ctrl-C"])
@pytest.mark.parametrize("at", [0, 1], ids=["the drain", "the number of spares"])
def test_a_drain_that_is_broken_off_at_its_beginning_is_undone(monkeypatch: pytest.MonkeyPatch, error: BaseException, at: int) -> None:
    """Goal: no site is left that leaves for ever. Method: the coordinator does what it is asked, and the answer comes too late."""
    made, asked = Made(running(spares=1), spares=1), list[None]()

    def ask(call: Callable[[], Any]) -> Any:
        asked.append(None)
        answer = call()
        if len(asked) == at + 1:
            raise error
        return answer

    monkeypatch.setattr(made.coordinator, "ask", ask)
    with pytest.raises(type(error)):
        made.operations.drain((1,), 60.0)
    assert made.size == (4, 1, 5) and not made.coordinator.fleet.leaving
    assert made.coordinator.runs[0].machine.rounds.spares == 1


def test_the_idlest_go_first() -> None:
    made = Made(running(spares=1), spares=1)
    assert made.operations.least(1) == (4,)
    load: Counter[int] = made.coordinator.runs[0].machine.view.load()
    assert made.operations.least(2) == (4, min(range(4), key=lambda site: (load[site], -site)))


def test_who_is_needed_after_all_stays() -> None:
    """Of two that leave one has gone when it turns out that both are needed: the other one stays, and may host again."""
    stage = running()
    made, stays = Made(stage), threading.Event()

    def say(told: str) -> None:
        if "site 1" not in told or "site 2" not in told:
            stays.set()

    with pytest.raises(OperationRefused, match=r"site [12] still hosts .*, and it is needed"):
        made.operations.drain((1, 2), 60.0, say, stays)
    assert made.size == (3, 0, 3) and not made.coordinator.fleet.leaving and not stage.machine.moving.leaving
    stage.finish()


def test_a_drain_that_takes_too_long_is_called_off() -> None:
    stage = running()
    made = Made(stage)
    with pytest.raises(ClusterError, match="site 2 still hosts .* replicas when the time was over"):
        made.operations.drain((2,), 0.0)
    assert made.size == (4, 0, 4) and not made.coordinator.fleet.leaving and not stage.machine.moving.leaving
    assert 2 in stage.machine.sites
    made.operations.drain((2,), 60.0)
    assert made.size == (3, 0, 3)


def test_a_run_that_does_not_know_a_site_learns_of_it_when_it_stays() -> None:
    """A dataflow that was started during the drain knows nothing of the site that was to leave."""
    stage, young = running(), running(spares=0)
    made = Made(stage, young, sites=5)
    stage.world.add_site()
    stage.wait(lambda: 4 in stage.machine.sites, "the newcomer")
    stage.world.driver.coordinate(DrainSite(0))
    stage.wait(lambda: stage.machine.moving.still_to_empty()[1] == [] and 4 in stage.machine.view.active(), "load at the newcomer")
    with pytest.raises(ClusterError):
        made.operations.drain((4,), 0.0)
    assert made.coordinator.runs[1].joined == [4] and made.coordinator.runs[0].joined == []


def test_a_site_that_dies_while_it_is_drained_is_told_and_not_replaced() -> None:
    stage = running()
    made = Made(stage)

    def die() -> None:
        if 3 in made.coordinator.sites:
            stage.world.kill(3)
            made.coordinator.go(3)

    made.coordinator.before_wait = die
    (left,) = made.operations.drain((3,), 60.0)
    assert left.lost and made.size == (3, 0, 3)


def test_one_operation_at_a_time() -> None:
    made = Made(running())
    refused: list[str] = []

    def again() -> None:
        with pytest.raises(OperationRefused) as raised:
            made.operations.drain((0,), 60.0)
        refused.append(str(raised.value))

    made.coordinator.before_wait = again
    made.operations.drain((2,), 60.0)
    assert refused and set(refused) == {"the engine is draining site 2: wait until that is over"}


def test_a_run_that_starts_meanwhile_hears_of_the_drain() -> None:
    """Goal: nobody keeps anything at a site that leaves. Method: a run that was still starting when it was asked has begun since."""
    stage = running()
    made = Made(stage)
    late = Driven(running(), 9)

    def add() -> None:
        made.coordinator.add(9, late)

    made.coordinator.before_wait = add
    made.operations.drain((1,), 60.0)
    assert 1 not in late.machine.sites and 1 not in late.machine.view.active()


def test_spares_are_told_to_every_run() -> None:
    made = Made(running(spares=2), spares=2)
    made.coordinator.runs[0].handle(SparesChanged(2))
    made.operations.drain((5,), 60.0)
    assert made.size == (4, 1, 5) and made.coordinator.runs[0].machine.rounds.spares == 1


@pytest.mark.parametrize("count", [0, -1, True, 1.5])
def test_numbers_of_sites_that_make_no_sense(count: Any) -> None:
    made = Made(running())
    for ask in (made.operations.least, lambda n: made.operations.add(n, 1.0)):
        with pytest.raises(OperationRefused, match="a whole number from 1 on"):
            ask(count)


# ---------------------------------------------------------------- more sites


def adding(monkeypatch: pytest.MonkeyPatch, made: Made, executors: int, comes: int) -> None:
    """So many executors are there, and so many sites come in time."""
    coordinator = made.coordinator

    def ensure(wanted: int, timeout_s: float) -> None:
        assert coordinator.fleet.wanted == wanted
        free = [f"x{i}" for i in range(executors)]
        for _ in range(comes):
            taken = {site.executor for site in coordinator.sites.values()} | coordinator.fleet.shunned
            coordinator.come(next(each for each in free if each not in taken))
            for run in coordinator.runs.values():
                run.stage.world.add_site()
        if len(coordinator.sites) < wanted:
            raise ClusterError("too late")

    monkeypatch.setattr(operations, "executors", lambda context: [Executor(f"x{i}", "h") for i in range(executors)])
    monkeypatch.setattr(operations, "check_session", lambda spark, sites: None)
    monkeypatch.setattr(operations, "find_room", lambda context, wanted, ask: None)
    made.engine.spark = SimpleNamespace(sparkContext=None)
    made.engine._placement.ensure = ensure


def test_sites_that_are_added_count_and_have_been_taken_in_by_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = running()
    made = Made(stage)
    adding(monkeypatch, made, executors=6, comes=2)
    assert made.operations.add(2, 5.0) == (4, 5)
    assert made.size == (6, 0, 6) and {4, 5} <= set(stage.machine.sites)


def test_the_executor_of_a_drained_site_is_used_again_only_if_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(running())
    adding(monkeypatch, made, executors=5, comes=1)
    made.coordinator.fleet.shunned = {"x4"}
    made.operations.add(1, 5.0)
    assert made.coordinator.fleet.shunned == set()
    adding(monkeypatch, made, executors=7, comes=1)
    made.coordinator.fleet.shunned = {"x5"}
    assert made.operations.add(1, 5.0) == (5,)
    assert made.coordinator.fleet.shunned == {"x5"} and made.coordinator.sites[5].executor == "x6"


def test_sites_that_do_not_come_are_wanted_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(running())
    adding(monkeypatch, made, executors=9, comes=1)
    with pytest.raises(ClusterError, match="too late"):
        made.operations.add(3, 5.0)
    assert made.size == (5, 0, 5), "the one that has come stays"


def test_executors_that_are_not_there_are_told_or_asked_for() -> None:
    asked: list[int] = []
    conf: dict[str, str] = {}
    scheduler = SimpleNamespace(requestTotalExecutors=lambda count, *where: asked.append(count) or conf.get("gives") != "no")
    jvm = SimpleNamespace(PythonUtils=SimpleNamespace(toScalaMap=dict))
    context: Any = SimpleNamespace(master="yarn", getConf=lambda: conf, _jsc=SimpleNamespace(sc=lambda: scheduler), _jvm=jvm)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evenflow.world.spark.cluster.placement.executors", lambda context: [Executor(str(i), "h") for i in range(4)])
        find_room(context, 4)
        with pytest.raises(ClusterError, match=r"6 sites need 6 executors, and there are 4: .*spark\.dynamicAllocation\.enabled"):
            find_room(context, 6)
        assert asked == []
        conf["spark.dynamicAllocation.enabled"] = "true"
        find_room(context, 6)
        assert asked == [6]
        conf["spark.dynamicAllocation.maxExecutors"] = "5"
        with pytest.raises(ClusterError, match=r"maxExecutors=5 allows no more"):
            find_room(context, 6)
        conf |= {"spark.dynamicAllocation.maxExecutors": "2147483647", "gives": "no"}
        with pytest.raises(ClusterError, match="'yarn' does not take requests for more"):
            find_room(context, 6)
