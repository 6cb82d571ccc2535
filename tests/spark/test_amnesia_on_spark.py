"""Amnesia on real executors: kill -9 costs what the site had, the run goes on, and the loss is declared."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import AvailabilityError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
Named = Callable[[str], str]
ROWS = 24_000


def each_row(name: str, sink: Any, rate: int) -> ef.Dataflow:
    flow = ef.Dataflow(name)
    made = ef.sources.generator(rate=rate, keys=50, rows=ROWS, partitions=3, seed=7)
    flow.source(made, name="in").select("key", "value").to(sink, name="out", guarantee="gap")
    return flow


def test_what_a_lost_site_had_is_gone_and_the_run_goes_on(spark: Any, named: Named) -> None:
    """Goal: nothing comes twice, most comes, and what was lost is told. Method: kill -9 of a site that hosts a source, in the middle."""
    came: Counter[Any] = Counter()
    begun, middle = threading.Event(), threading.Event()

    def take(epoch: int, batch: pa.RecordBatch) -> None:
        came.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        begun.set()
        if sum(came.values()) > ROWS // 4:
            middle.set()

    with ef.Engine(spark, sites=3) as engine:
        whole = ef.sinks.memory(named("whole"))
        assert engine.start(each_row("whole", whole, 1_000_000)).await_termination(60)
        truth = Counter(zip(*(whole.rows().column(name).to_pylist() for name in ("key", "value")), strict=True))
        assert sum(truth.values()) == ROWS
        run = engine.start(each_row("amnesia", ef.sinks.callback(take), 6_000), availability="amnesia")
        assert begun.wait(60) and middle.wait(60)
        assert run.progress()["protected"] == 0
        plan = run._driven.machine.plan
        victim = next(site for (site,) in plan.placement[0] if site != plan.placement[-1][0][0])
        pid = next(site["pid"] for site in run.progress()["sites"] if site["site"] == victim)
        os.kill(pid, signal.SIGKILL)
        assert run.await_termination(120)
        lost = run.progress()["lost"]
        anew = [event for event in run.events() if event["kind"] == "begun_anew"]
    assert anew and {event["segment"] for event in anew} >= {"in"}, "its source begins anew elsewhere"
    assert not came - truth, "rows came twice"
    assert ROWS // 2 < sum(came.values()) <= ROWS
    assert lost["partitions"] >= 1 and lost["frames"] + lost["rows"] > 0


def test_what_amnesia_cannot_have_is_refused_at_once(spark: Any, tmp_path: Any) -> None:
    """Goal: a guarantee that cannot be given, a location, and a mode that there is not are errors before a site is asked for."""
    engine = ef.Engine(spark, sites=2)
    try:
        flow = ef.Dataflow("refused")
        flow.source(ef.sources.generator(rows=10), name="in").to(ef.sinks.memory("refused"), name="out", guarantee="precise")
        with pytest.raises(AvailabilityError, match="box 'in' .* gives gap at most: use availability 'upstream' there"):
            engine.start(flow, availability="amnesia")
        with pytest.raises(AvailabilityError, match="and a checkpoint location do not go together"):
            engine.start(each_row("located", ef.sinks.memory("located"), 10), None, str(tmp_path / "at"), availability="amnesia")
        assert not (tmp_path / "at" / "journal").exists(), "nothing is written for a run that cannot begin"
        with pytest.raises(AvailabilityError, match="did you mean 'amnesia'"):
            engine.start(flow, availability="amnezia")
    finally:
        engine.stop()
