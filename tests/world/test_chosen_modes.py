"""Another mode while a run goes on, as its driver asks for it: what a run cannot have is refused then as it is at the start (M1, M2)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

import evenflow as ef
from evenflow.coordinator.events import CoordinatorEvent, Done
from evenflow.errors import ClusterError, OperationRefused
from evenflow.query.planner import layout
from evenflow.world.sim.world import SimWorld
from evenflow.world.spark.driver.modes import ChosenModes

T = TypeVar("T")


class Chosen(ChosenModes):
    """A run's part that is asked, with a simulated run behind it. asked: what the machine was given, by the request's number. meanwhile:
    what others do while the next one waits for its answer; patient: it waits for as long as it takes."""

    meanwhile: list[Callable[[], Any]]
    patient = True

    def __init__(self, world: SimWorld, group: str | None = None) -> None:
        self.world, self.asked, self.meanwhile = world, list[CoordinatorEvent](), []
        region = None if group is None else SimpleNamespace(group=SimpleNamespace(name=group))
        driven = SimpleNamespace(region=region, machine=world.coordinator, request=self._request, handle=world.driver.coordinate)
        self.__dict__ |= {"_driven": driven, "_coordinator": SimpleNamespace(replicas=2, ask=self._ask)}

    def _ask(self, call: Callable[[], T]) -> T:
        return call()

    def _check_running(self) -> None:
        assert self.world.coordinator.running

    def _request(self, make: Callable[[int], CoordinatorEvent]) -> int:
        event = make(len(self.asked) + 1)
        self.asked.append(event)
        self.world.driver.coordinate(event)
        return len(self.asked)

    def _await_answer(self, request: int, deadline_s: float) -> Done | None:
        while self.meanwhile:
            self.meanwhile.pop()()
        if not self.patient:
            return None
        self.world.run_until(lambda: request in self.world.answers, 5.0, "an answer")
        return cast(Done, self.world.answers[request])


def running() -> SimWorld:
    flow = ef.Dataflow("modes")
    source: Any = ef.sources.generator(2_000, 50, rows=4_000, partitions=2).begun(1_000_000)
    flow.source(source, name="in", cut="content", width_ms=5).group_by("key").agg(n="count(*)").name("sums").to(
        ef.sinks.memory("out"), name="out"
    )
    world = SimWorld(layout(flow.network, sites=3, partitions=4), sites=3, replicas=2)
    world.run_for(0.05)
    return world


def test_a_region_of_a_group_does_not_change_to_amnesia() -> None:
    """Goal: what regions make stays alike. Method: the mode that is refused where a region starts, and one that is not."""
    run = Chosen(running(), "traffic")
    with pytest.raises(OperationRefused, match="group 'traffic': its regions make the same results"):
        run.set_availability("*", "amnesia")
    assert not run.asked
    assert set(run.set_availability("*", "passive")["modes"].values()) == {"passive"}


def test_a_run_of_its_own_does() -> None:
    run = Chosen(running())
    assert set(run.set_availability("*", "amnesia")["modes"].values()) == {"amnesia"}


def modes_of(run: Chosen) -> dict[str, str]:
    plan = run.world.coordinator.plan
    return {segment.name: str(plan.mode(segment.id)) for segment in run.world.layout.segments}


def test_of_two_who_ask_at_the_same_time_each_has_what_he_wants() -> None:
    """Goal: nobody undoes what he has not asked for. Method: one asks while another one's change is proposed. The second took the plan for
    what there is to be changed, so the first one's change was made and undone, and he waited in vain."""
    run, second = Chosen(running()), list[dict[str, Any]]()
    run.meanwhile.append(lambda: second.append(run.set_availability("out", "passive")))
    assert run.set_availability("sums", "passive")["modes"] == {"sums": "passive"}
    assert second == [{"epoch": run.world.coordinator.plan.effective, "modes": {"out": "passive"}}]
    assert modes_of(run) == {"in": "pairs", "sums": "passive", "out": "passive"}


def test_who_has_waited_long_enough_takes_back_what_he_has_asked_for_and_no_more() -> None:
    """Goal: what others want meanwhile stays wanted. Method: one gives up whose change is proposed, when another one has asked."""
    run = Chosen(running())

    def other() -> None:
        run.patient = True
        run.meanwhile.append(lambda: setattr(run, "patient", False))
        with pytest.raises(ClusterError, match="did not get availability 'passive' within 300 s, and stays as it is"):
            run.set_availability("sums", "passive")
        run.patient = True

    run.meanwhile.append(other)
    assert run.set_availability("out", "passive")["modes"]["out"] == "passive"
    run.world.run_until(lambda: not run.world.coordinator.modes.wanted, 5.0, "all that is wanted")
    assert modes_of(run) == {"in": "pairs", "sums": "pairs", "out": "passive"}
