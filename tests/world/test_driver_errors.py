"""An error that the driver itself meets over a run ends that run, with what it was, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.events import CoordinatorEvent, RunBroken, SiteLost, SiteReady
from evenflow.errors import EvenflowError, OperationRefused, ProtocolError, QueryError
from evenflow.plan.placement import first_membership, first_plan
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.spark.driver import program
from evenflow.world.spark.driver.program import pack
from evenflow.world.spark.driver.run_loop import RunLoop
from evenflow.world.spark.net import control


class Sites:
    """What a run asks of the coordinator. there: who is. refuse: raises over some messages. later: what is to be done, when somebody calls
    it."""

    def __init__(self) -> None:
        self.clock: Any = SimpleNamespace(now_us=lambda: 1)
        self.there = [0, 1]
        self.said: list[tuple[int, Any]] = []
        self.later: list[Callable[[], None]] = []
        self.refuse: Callable[[Any], None] = lambda message: None

    def send(self, site: int, message: Any) -> None:
        self.refuse(message)
        self.said.append((site, message))

    def call_soon(self, call: Callable[[], None]) -> None:
        self.later.append(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.later.append(call)

    def present(self) -> list[int]:
        return self.there

    def host_of(self, site: int) -> str:
        return "here"

    def ended(self) -> list[int]:
        return [site for site, message in self.said if isinstance(message, control.EndPart)]


def begun(sites: Sites) -> RunLoop:
    flow = ef.Dataflow("erring")
    flow.source(ef.sources.generator(rate=1.0)).group_by("key").agg(n="count(*)").to(ef.sinks.discard())
    planned = layout(flow.network, sites=2)
    plan = first_plan(planned, 2)
    return RunLoop(1, "run-1", planned, plan, first_membership(planned, plan, (0, 1)), b"", sites)


def over(sites: Sites, run: RunLoop) -> EvenflowError:
    """Why it has ended, once the sites have said that they have."""
    assert not run.over.is_set() and sites.ended() == [0, 1]
    for site in sites.present():
        run.hear(site, control.PartEnded(1))
    assert run.over.is_set() and run.error is not None
    return run.error


def failing(machine: Any, *kinds: type) -> Callable[[CoordinatorEvent], Any]:
    """The machine's `handle`, with a bug that some kinds of events show."""
    handle = machine.handle

    def fails(event: CoordinatorEvent) -> Any:
        if isinstance(event, kinds):
            raise KeyError("a bug")
        return handle(event)

    return fails


@pytest.mark.parametrize("deep", [False, True])
def test_a_bug_of_the_machine_ends_the_run(deep: bool) -> None:
    """deep: the machine cannot be told either that its run is broken."""
    sites = Sites()
    run = begun(sites)
    run.handle(SiteReady(0))
    run.machine.handle = failing(run.machine, SiteReady, *([RunBroken] if deep else []))  # type: ignore[method-assign]
    run.handle(SiteReady(1))
    assert "KeyError: 'a bug'" in str(over(sites, run)) and run.machine.over != deep


def test_a_message_that_cannot_be_said_ends_the_run() -> None:
    sites = Sites()
    run = begun(sites)

    def refuse(message: Any) -> None:
        if isinstance(message, control.StartPart):
            raise ProtocolError("a message of 2000000000 bytes is larger")

    sites.refuse = refuse
    run.begin(0)
    assert isinstance(error := over(sites, run), ProtocolError) and "2000000000" in str(error)


def test_a_release_that_the_driver_cannot_take_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = Sites()
    run = begun(sites)
    monkeypatch.setattr("evenflow.world.spark.driver.run_loop.decode_release", lambda body: [][1])
    run.release(b"")
    assert "IndexError" in str(over(sites, run))


def test_an_error_over_one_run_is_not_one_of_others() -> None:
    """What the coordinator says to all of its runs, all of them hear."""
    sites, others = Sites(), Sites()
    run, other = begun(sites), begun(others)
    run.machine.handle = failing(run.machine, SiteLost)  # type: ignore[method-assign]
    for each in (run, other):
        each.lose(SiteLost(1, "its connection ended"))
    assert isinstance(run.error, EvenflowError) and "KeyError" in str(run.error)
    assert other.machine.over and "KeyError" not in str(other.error), "without replicas the loss ends it, as it should"


def test_an_error_behind_the_end_changes_nothing() -> None:
    sites = Sites()
    run = begun(sites)
    run.machine.handle = failing(run.machine, SiteReady, RunBroken)  # type: ignore[method-assign]
    for _ in range(2):
        run.handle(SiteReady(0))
    assert sites.ended() == [0, 1] and "a bug" in str(over(sites, run))


@pytest.mark.parametrize("built", [False, True])
def test_who_has_not_joined_yet_is_told_of_the_end(built: bool) -> None:
    """Goal: a newcomer forgets its part, and nobody waits for who has none. Method: the run ends while it builds its part, or when it has
    and the run has not begun; another site has just come, and one that had built its part has gone."""
    sites = Sites()
    run = begun(sites)
    sites.there = [0, 1, 2, 3, 4]
    for site in (0, 1, 2, 4):
        run.begin(site)
    if built:
        run.hear(2, control.PartReady(1))
    sites.there = [0, 1, 2, 3]
    run.handle(RunBroken(QueryError("a bug")))
    assert sites.ended() == [0, 1, 2]
    for site in (0, 1):
        run.hear(site, control.PartEnded(1))
    assert not run.over.is_set()
    run.hear(2, control.PartEnded(1))
    assert run.over.is_set()


def test_what_is_refused_is_the_callers_to_hear() -> None:
    sites = Sites()
    run = begun(sites)

    def refuses(event: CoordinatorEvent) -> Any:
        raise OperationRefused("not now")

    run.machine.handle = refuses  # type: ignore[method-assign]
    with pytest.raises(OperationRefused, match="not now"):
        run.handle(SiteReady(0))
    assert not sites.said


def test_a_program_that_no_message_takes_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = ef.Dataflow("wide")
    table = pa.table({"key": range(20_000), "name": [f"n{i}" for i in range(20_000)]})
    flow.source(ef.sources.generator(rate=1.0)).join(table, on="key").to(ef.sinks.discard())
    planned = layout(flow.network, sites=1)
    assert len(pack(planned, FlowOptions())) > 200_000
    monkeypatch.setattr(program, "PROGRAM_BYTES_MAX", 1 << 17)
    with pytest.raises(QueryError, match=r"dataflow 'wide' has .* MB with its code and the tables that are joined to it"):
        pack(planned, FlowOptions())
