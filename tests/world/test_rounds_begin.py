"""When the rounds of a run on executors begin: what sites do for the first time is no load."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import evenflow as ef
from evenflow.coordinator.events import SiteReady
from evenflow.plan.placement import first_membership, first_plan
from evenflow.query.planner import layout
from evenflow.statistics.window import SiteWindow
from evenflow.statistics.wire import flat_of
from evenflow.world.spark.driver import collecting, run_loop
from evenflow.world.spark.driver.collecting import WARM_S
from evenflow.world.spark.driver.run_loop import RunLoop


def report(site: int, rows: int, end_us: int) -> Any:
    part = SimpleNamespace(rows_in=rows, rows_out=0, closed=0, latencies={}, window=flat_of(SiteWindow(site, 0, end_us, 0)))
    return SimpleNamespace(parts={1: part}, at_us=end_us, cpu_s=0.0)


def test_rounds_begin_a_while_after_the_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    later: list[tuple[float, Callable[[], None]]] = []
    for module in (run_loop, collecting):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s))
    calls: Any = SimpleNamespace(
        clock=SimpleNamespace(now_us=lambda: round(now_s * 1e6)),
        send=lambda site, message: None,
        call_later=lambda delay_s, call: later.append((delay_s, call)),
        present=list,
    )
    flow = ef.Dataflow("begun")
    flow.source(ef.sources.generator(rate=1.0)).group_by("key").agg(n="count(*)").to(ef.sinks.discard())
    planned = layout(flow.network, sites=2)
    plan = first_plan(planned, 2)
    run = RunLoop(1, "run-1", planned, plan, first_membership(planned, plan, (0, 1)), b"", calls, policy="evenflow")

    def wait() -> float:
        """Whatever was to be done later is done. Returns how long it is to take until the next."""
        [(_, call)] = later
        later.clear()
        call()
        return later[0][0]

    run.handle(SiteReady(0))
    run.handle(SiteReady(1))
    collecting_s = run.machine.rounds.collect_us / 1e6
    run.note(0, report(0, 0, 1))
    assert wait() < collecting_s, "no rows yet"
    now_s += 60.0
    run.note(1, report(1, 5, 2))
    assert wait() < collecting_s, "a site has just begun"
    now_s += WARM_S + 0.01
    run.note(1, report(1, 9, 3))
    assert wait() == collecting_s
