"""Lookups on real executors: kill -9 of who asks, and what was answered counts once."""

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
from evenflow.errors import QueryError
from tests.services.numbers import numbers

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
Named = Callable[[str], str]
ROWS = 6_000


@pytest.mark.conformance
def test_the_site_that_asks_is_killed(spark: Any, named: Named, tmp_path: Any) -> None:
    """Goal: each row has one answer of one call, at all replicas and in all that follows. Method: a service that answers with a number
    of its own each time; kill -9 of the site that leads the box, in the middle of rows."""
    rows: list[tuple[int, int, int]] = []
    middle = threading.Event()

    def take(epoch: int, batch: pa.RecordBatch) -> None:
        rows.extend(zip(*(batch.column(name).to_pylist() for name in ("key", "value", "number")), strict=True))
        if len(rows) > ROWS // 4:
            middle.set()

    totals = ef.sinks.memory(named("totals"))
    with numbers() as service, ef.Engine(spark, sites=4, replicas=2) as engine:
        url = service.url

        def fetch(key: int, value: int) -> int:
            from urllib.request import urlopen

            with urlopen(f"{url}/{key}/{value}", timeout=5) as answer:
                return int(answer.read())

        flow = ef.Dataflow(named("asked"))
        source = ef.sources.generator(rate=1_500, keys=50, rows=ROWS, partitions=2, seed=7)
        found = flow.source(source, name="in").lookup(fetch, "number bigint", on=["key", "value"], timeout="2 seconds", name="ask")
        found.select("key", "value", "number").to(ef.sinks.callback(take), name="out")
        found.group_by("key").agg(n="count(*)", total="sum(number)").to(totals, name="totals")
        run = engine.start(flow)
        box = next(segment.id for segment in run._driven.machine.layout.segments if segment.effects is not None)
        assert middle.wait(60)
        leader = run._driven.machine.membership.leaders[box][0].site
        os.kill(next(site["pid"] for site in run.progress()["sites"] if site["site"] == leader), signal.SIGKILL)
        assert run.await_termination(120)
        with pytest.raises(QueryError, match="a restart at its location would ask again"):
            engine.start(flow, None, str(tmp_path / "at"))
    assert len(rows) == ROWS
    answers = dict(service.given)
    assert all(answers[number] == (key, value) for key, value, number in rows), "an answer to another key"
    sums: dict[int, Counter[str]] = {}
    for key, _, number in rows:
        sums.setdefault(key, Counter()).update(n=1, total=number)
    newest = {row["key"]: (row["n"], row["total"]) for row in totals.rows().to_pylist()}
    assert newest == {key: (each["n"], each["total"]) for key, each in sums.items()}
    assert len(answers) >= len({number for *_, number in rows})
