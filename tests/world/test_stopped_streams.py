"""Spark's query of a streaming DataFrame without a checkpoint location, when it ends while its run lives: that is not the stream's end."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.world.test_watching import small_run

from evenflow.coordinator.events import StopRequested
from evenflow.errors import SourceError
from evenflow.world.spark.bridge.ingest import Ingest
from evenflow.world.spark.driver.run import Run
from evenflow.world.spark.net import control

NO_SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://elsewhere"))


class Query:
    """As Spark's own, and what makes it. It is over at once. failure: what it failed of; None: it was stopped."""

    isActive = False

    def __init__(self, failure: Exception | None) -> None:
        self.writeStream = self
        self.exception = lambda: failure

    def foreachBatch(self, call: Any) -> Query:
        return self

    def queryName(self, name: str) -> Query:
        return self

    def start(self) -> Query:
        return self


def served(failure: Exception | None, *, drain: bool = False) -> tuple[Run, list[control.Pushed]]:
    """A run, draining or not, whose query has ended, and what its sites have heard of the source."""
    driven, run = small_run()
    said: list[control.Pushed] = []
    driven.pushed = said.append  # type: ignore[method-assign]
    if drain:
        driven.handle(StopRequested(drain=True))
    ingest = Ingest.__new__(Ingest)
    ingest._spark, ingest._run, ingest._source, ingest._group = NO_SPARK, driven, "made", "evenflow-ingest"
    coordinator: Any = SimpleNamespace(call_soon=lambda call: call())
    frame: Any = Query(failure)
    ingest._coordinator, ingest._frame, ingest._streaming, ingest._newest, ingest.on_given = coordinator, frame, True, 0, []
    ingest._begun, ingest._ending = threading.Event(), threading.Event()
    ingest.begin()
    ingest._serve()
    return run, said


def test_a_query_that_somebody_stops_ends_the_run_and_not_the_stream() -> None:
    """What had come of its last batch would be taken for all there is, and windows that are not whole would close."""
    run, said = served(None)
    assert not said
    error = run.exception()
    assert isinstance(error, SourceError) and str(error).startswith("box 'made': somebody has stopped Spark's query of it")
    assert "checkpoint location" in str(error)


def test_a_query_that_fails_ends_the_run_with_what_it_failed_of() -> None:
    run, said = served(RuntimeError("no such column"))
    assert not said
    with pytest.raises(SourceError, match="box 'made': the Spark job that reads the source failed: no such column"):
        raise run.exception() or AssertionError


def test_a_run_that_drains_needs_its_query_no_more() -> None:
    run, said = served(None, drain=True)
    assert run.exception() is None and not said


def test_a_job_that_begins_when_its_run_has_just_ended_is_cancelled() -> None:
    """Spark cancels those jobs of a group that there are, and not those to come."""
    missed, begun, cancelled = threading.Event(), threading.Event(), threading.Event()
    ingest = Ingest.__new__(Ingest)
    ingest._begun, ingest._ending, ingest._group = threading.Event(), threading.Event(), "evenflow-ingest"
    context = SimpleNamespace(cancelJobGroup=lambda group: cancelled.set() if begun.is_set() else missed.set())
    ingest._spark = SimpleNamespace(sparkContext=context)  # type: ignore[assignment]

    def serve() -> None:
        ingest._begun.wait(20)
        missed.wait(20)
        begun.set()
        cancelled.wait(20)

    ingest._thread = threading.Thread(target=serve, daemon=True)
    ingest._thread.start()
    ingest.end()
    ingest.join(10)
    assert cancelled.is_set() and not ingest._thread.is_alive()
