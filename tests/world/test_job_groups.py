"""Spark's jobs that a start waits for are cancelled when it is broken off, and the user's thread keeps its properties. No Spark: a context
that knows of groups and properties what Spark's does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import TableError
from evenflow.sources.pushed import SparkSource
from evenflow.world.spark.bridge import spooling
from evenflow.world.spark.cluster import job_groups
from evenflow.world.spark.cluster.interrupts import heeded
from evenflow.world.spark.driver import engine as engine_module
from evenflow.world.spark.driver.options import EngineOptions

GROUP, POOL = "spark.jobGroup.id", "spark.scheduler.pool"
SCHEMA = pa.schema([("k", pa.int64())])
CTRL_C = KeyboardInterrupt("somebody has pressed it")


class Properties(dict[str, str]):
    clone = dict[str, str].copy


class Context:
    """Of Spark, for one thread. cancelled: groups that were, with all that they begin later, and whether in that thread. over: one was.
    gone: the JVM is."""

    def __init__(self) -> None:
        self.properties: Any = Properties({GROUP: "the user's", POOL: "the user's"})
        self.cancelled, self.jobs, self.gone = list[tuple[str, bool]](), list[str](), False
        self.over = threading.Event()
        self._jsc = SimpleNamespace(sc=lambda: self)

    def getLocalProperties(self) -> Any:
        return self.properties

    def setLocalProperties(self, properties: Any) -> None:
        self._ask()
        self.properties = properties

    def setJobGroup(self, group: str, description: str, interruptOnCancel: bool = False) -> None:
        self._ask()
        self.properties[GROUP] = group

    def cancelJobGroupAndFutureJobs(self, group: str) -> None:
        self._ask()
        self.cancelled.append((group, threading.current_thread() is threading.main_thread()))
        self.over.set()

    def _ask(self) -> None:
        if self.gone:
            raise ConnectionRefusedError("the JVM has gone")

    def run(self, ends: BaseException | None) -> list[Any]:
        """A job of this thread. Of Ctrl-C it does not end before it is cancelled, as PySpark has it of one whose rows are being read."""
        assert self.properties[POOL] == "the user's"
        self.jobs.append(self.properties[GROUP])
        if ends is CTRL_C:
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                assert self.over.wait(5.0), "nobody has cancelled it"
                raise RuntimeError("the job was cancelled")
        if ends is not None:
            raise ends
        return []


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Context:
    for module in (engine_module, spooling):
        monkeypatch.setattr(module, "check_slots", lambda *told: None)
    monkeypatch.setattr(spooling, "ship", lambda context: "")
    monkeypatch.setattr(spooling, "on_executor", lambda *told: iter)
    return Context()


def start(context: Context, place: Path, ends: BaseException | None) -> None:
    """A start of a dataflow whose table is read by a job that ends so."""
    flow, there = ef.Dataflow("joined"), iter([pa.table({"k": [1]})])
    table = flow.table(lambda: next(there, None) or context.run(ends), "names", key="k")
    flow.source(ef.sources.memory(pa.table({"k": [1]}))).join(table, "k").to(ef.sinks.discard())
    engine = ef.Engine.__new__(ef.Engine)
    engine._prepared(SimpleNamespace(sparkContext=context), 2, 0, 1, "mirrored", EngineOptions())  # type: ignore[arg-type]
    engine.start(flow)


def write(context: Context, place: Path, ends: BaseException | None) -> None:
    """Rows of a DataFrame are written before a run begins, by a job that ends so."""
    frame = SimpleNamespace(mapInArrow=lambda task, result: frame, collect=lambda: context.run(ends))
    flow = ef.Dataflow("written")
    flow.source(SparkSource(SCHEMA, False, frame), name="a history").to(ef.sinks.memory("out"))
    heeded()(spooling.spooled)(flow.network, str(place), SimpleNamespace(sparkContext=context), 2)  # type: ignore[arg-type]


Step = Callable[[Context, Path, BaseException | None], None]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("step", [start, write])
def test_who_breaks_off_a_start_leaves_no_job_of_it(context: Context, tmp_path: Path, step: Step, raised: type[BaseException]) -> None:
    """The thread that asks may not have its connection to the JVM any more, so another one says it."""
    before = dict(context.properties)
    with pytest.raises(raised):
        step(context, tmp_path, raised())
    assert context.cancelled == [(context.jobs[0], False)] and context.jobs != ["the user's"]
    assert context.properties == before


@pytest.mark.parametrize("step", [start, write])
def test_a_job_is_cancelled_before_anybody_hears_what_a_signal_has_raised(context: Context, tmp_path: Path, step: Step) -> None:
    """Who reads its rows waits for its end before anything else."""
    with pytest.raises(KeyboardInterrupt) as caught:
        step(context, tmp_path, CTRL_C)
    assert "the job was cancelled" in str(caught.value.__cause__)
    assert context.cancelled == [(context.jobs[0], False)] and context.properties[GROUP] == "the user's"


def test_a_job_that_fails_leaves_the_users_properties(context: Context, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="of Spark's own"):
        start(context, tmp_path, RuntimeError("of Spark's own"))
    assert context.properties[GROUP] == "the user's" and context.jobs != ["the user's"]


def test_a_job_that_ends_well_is_not_cancelled(context: Context, tmp_path: Path) -> None:
    write(context, tmp_path, None)
    assert context.jobs != ["the user's"] and not context.cancelled and context.properties[GROUP] == "the user's"


def test_no_two_have_one_group(context: Context, tmp_path: Path) -> None:
    """A group that was cancelled begins nothing any more."""
    for place in ("one", "other"):
        write(context, tmp_path / place, None)
    assert len({*context.jobs, "the user's"}) == 3


def test_a_jvm_that_has_gone_does_not_hide_why(context: Context) -> None:
    def goes() -> None:
        with job_groups.grouped(SimpleNamespace(sparkContext=context), "a step"):  # type: ignore[arg-type]
            context.gone = True
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        goes()
