"""How long a move took and how long it may have stalled its partitions, from what the driver hears of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import evenflow as ef
from evenflow.coordinator.events import Happened, SiteReady, SiteSaid
from evenflow.plan.placement import first_membership, first_plan
from evenflow.policy.proposal import Parameters
from evenflow.query.planner import layout
from evenflow.site.facts import CopyLive
from evenflow.world.spark.driver import run_loop
from evenflow.world.spark.driver.run_loop import RunLoop


def test_a_move_is_timed_from_its_plan_to_its_end_and_its_stall_from_the_word_that_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(run_loop, "time", SimpleNamespace(monotonic=lambda: now_s))
    calls: Any = SimpleNamespace(
        clock=None, send=lambda site, message: None, call_soon=None, call_later=lambda delay_s, call: None, present=list, host_of=str
    )
    flow = ef.Dataflow("timed")
    flow.source(ef.sources.generator(rate=1.0)).group_by("key").agg(n="count(*)").to(ef.sinks.discard())
    planned = layout(flow.network, sites=2)
    plan = first_plan(planned, 2)
    run = RunLoop(1, "run-1", planned, plan, first_membership(planned, plan, (0, 1)), b"", calls, parameters=Parameters(th_imb=1.5))
    assert run.machine.rounds.parameters.th_imb == 1.5
    run.handle(SiteReady(0))
    run.handle(SiteReady(1))

    def told(kind: str, number: int) -> dict[str, Any]:
        details = {"number": number, "segment": "s", "partitions": [1, 2], "source": 0, "target": 1, "reason": "why", "bytes": 7}
        run.happenings.note(Happened(kind, 1, "text", details), now_s)
        return run.events()[-1]

    assert "seconds" not in told("move_begun", 1)
    told("move_begun", 2)
    now_s = 101.5
    run.handle(SiteSaid(1, CopyLive(1, 7)))
    run.handle(SiteSaid(1, CopyLive(99, 7)))
    now_s = 101.512
    done, dropped = told("move_done", 1), told("move_dropped", 2)
    assert (done["at_s"], done["seconds"], done["stall_ms"], done["reason"]) == (1.512, 1.512, 12.0, "why")
    assert (dropped["seconds"], dropped["stall_ms"]) == (1.512, 0.0)
    assert not run.happenings.moves_under_way, "nothing is kept of what is over"
