"""Two outputs of different urgency on real executors: the order in which their epochs are taken changes no answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import evenflow as ef
from evenflow.bench.events import ScheduledEvents
from evenflow.bench.scaling import Costly
from evenflow.bench.slowed import RowCost

pytestmark = [pytest.mark.spark, pytest.mark.conformance, pytest.mark.timeout(120)]
RATE, ROWS, SITES = 400, 1200, 2


def test_all_answers_come_whatever_is_urgent(spark: Any, named: Callable[[str], str]) -> None:
    """Goal: nothing is lost, repeated or stuck where user code of several boxes waits for its thread, and for the loop.
    Method: two processors and two counts, asked for more than the sites can do; three worths, one of them protected."""
    worths = (ef.qos(latency=[("50 ms", 1), ("5 s", 0)], weight=3), ef.qos(latency=[("5 s", 1), ("60 s", 0)]), None)
    flow, sinks = ef.Dataflow(named("urgent")), []
    for number, qos in enumerate(worths):
        source = ScheduledEvents(RATE, ROWS, 40, count=SITES, seed=number, begin_us=time.time_ns() // 1000)
        costly = flow.source(source, name=f"in {number}").key_by("key").process(Costly(RowCost(2000.0, 1.0))).name(f"costly {number}")
        sinks.append(ef.sinks.memory(named(f"rows {number}")))
        costly.to(sinks[-1], name=f"rows {number}", qos=qos)
        counted = ef.sinks.memory(named(f"counts {number}"))
        costly.group_by("key").agg(n="count(*)").to(counted, name=f"counts {number}", qos=qos)
        sinks.append(counted)
    with ef.Engine(spark, sites=SITES) as engine:
        run = engine.start(flow)
        assert any(worth.protected for found in run._driven.layout.worths.values() for worth in found)
        assert run.await_termination(90)
    for rows, counted in zip(sinks[::2], sinks[1::2], strict=True):
        assert rows.rows().num_rows == ROWS
        newest: dict[int, int] = {}
        for row in counted.rows().to_pylist():
            newest[row["key"]] = max(row["n"], newest.get(row["key"], 0))
        assert sum(newest.values()) == ROWS
