"""User code that never returns, on real executors."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import BoxFailed
from tests.spark.test_deadly_rows import ROWS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


class Endless(ef.Processor):
    """Counts the rows of each key; over one of them it waits for ever."""

    output = "n bigint"

    def open(self, store: Any) -> None:
        store.value("n", "bigint", default=0)

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        state.n += rows.num_rows
        if key[0] == 2 and state.n > ROWS:
            threading.Event().wait()
        return [(state.n,)]


@pytest.mark.conformance
def test_user_code_that_never_returns_is_told_of_and_ends_the_run_at_its_time_limit(spark: Any) -> None:
    with ef.Engine(spark, sites=2, user_timeout_s=8.0) as engine:
        flow = ef.Dataflow("endless")
        flow.source(ef.sources.generator(rate=16_000, keys=4)).key_by("key").process(Endless()).name("waits").to(ef.sinks.memory("endless"))
        over = threading.Event()
        limit = threading.Timer(120, over.set)
        run = engine.start(flow)
        limit.start()
        seen: list[dict[str, Any]] = []
        while run.exception() is None:
            assert not over.wait(0.2), "the run should have ended"
            seen += run.progress()["slow"]
        failed = run.exception()
        assert isinstance(failed, BoxFailed), failed
        assert "box 'waits' has not returned for " in str(failed) and "(user_timeout_s is 8)" in str(failed)
        assert "threading.Event().wait()" in failed.user_traceback, "where it hangs"
        [told] = [event for event in run.events() if event["kind"] == "user_code_slow"]
        assert told["box"] == "waits" and told["epoch"] == failed.epoch and told["seconds"] >= 5.0
        assert "in process" in told["where"] and told["at_s"] > 5.0
        assert {(slow["site"], slow["box"], slow["epoch"]) for slow in seen} == {(told["site"], "waits", failed.epoch)}
        limit.cancel()
