"""Reading refreshed tables beside a run, without Spark: when, what comes of it, and what a version costs on the wire."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.restarting import wait_until

import evenflow as ef
from evenflow.coordinator.versions import with_table
from evenflow.errors import ClusterError, OperationRefused, TableError
from evenflow.plan.placement import first_plan
from evenflow.plan.plan import Plan
from evenflow.query.planner import layout
from evenflow.query.refreshed import refreshed_tables
from evenflow.query.tables import with_tables
from evenflow.site.events import PlanAborted, PlanCommitted, PlanProposed
from evenflow.world.spark.driver.refreshing import Refresher, read
from evenflow.world.spark.net.told_versions import Telling, Told

FIRST = pa.table({"k": [1, 2], "name": ["one", "two"]})


class Asked(SimpleQueue[Any]):
    """waits: the thread has made up its mind how long it waits for what is asked."""

    def __init__(self) -> None:
        self.waits = threading.Event()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self.waits.set()
        return super().get(block, timeout)


class Alone:
    """As a lock. wanted: the thread that reads has found it held by the test."""

    def __init__(self) -> None:
        self._lock, self.wanted = threading.Lock(), threading.Event()
        self.locked = self._lock.locked

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            if threading.current_thread() is not threading.main_thread():
                self.wanted.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Reading:
    """A refresher of a table that has what `rows` says, returns or raises. brought: what came into the run; events: what was said."""

    def __init__(self, every: str | None, *, stale: bool) -> None:
        self.rows: Any = FIRST
        self.reads = 0
        self.brought: list[pa.Table] = []
        self.events: list[tuple[str, str, Mapping[str, Any]]] = []
        self.said = threading.Event()
        self.bring_error: BaseException | None = None
        self.alone, self.asked = Alone(), Asked()
        flow = ef.Dataflow("f")
        table = flow.table(self.given, "names", key="k", refresh=every)
        self.refresher = Refresher((table,), {"names": read(table)}, self._bring, self.alone, self._record, stale=stale)  # type: ignore[arg-type]
        self.refresher._asked = self.asked
        self.refresher.begin()

    def given(self) -> Any:
        self.reads += 1
        if isinstance(self.rows, BaseException):
            raise self.rows
        return self.rows() if callable(self.rows) else self.rows

    def _bring(self, name: str, content: pa.Table) -> Mapping[str, Any]:
        assert self.alone.locked()
        if self.bring_error is not None:
            raise self.bring_error
        self.brought.append(content)
        self.said.set()
        return {"version": len(self.brought), "epoch": 10 * len(self.brought)}

    def _record(self, kind: str, text: str, **details: Any) -> None:
        self.events.append((kind, text, details))
        self.said.set()


@pytest.fixture
def reading() -> Iterator[Callable[..., Reading]]:
    made: list[Reading] = []

    def make(every: str | None = None, *, stale: bool = False) -> Reading:
        made.append(Reading(every, stale=stale))
        return made[-1]

    yield make
    for each in made:
        each.refresher.end()
        each.refresher._thread.join(5.0)
        assert not each.refresher._thread.is_alive()


def test_a_table_is_read_on_demand(reading: Callable[..., Reading]) -> None:
    run = reading()
    assert run.refresher.refresh(None, 5.0) == {"table": "names", "changed": False, "rows": 2, "version": 0, "epoch": 0}
    run.rows = pa.concat_tables([FIRST, pa.table({"k": [0], "name": ["none"]})])
    found = run.refresher.refresh("names", 5.0)
    assert found == {"table": "names", "changed": True, "rows": 3, "version": 1, "epoch": 10}
    assert run.brought[0].column("k").to_pylist() == [0, 1, 2] and run.refresher.contents["names"] is run.brought[0]
    assert not run.refresher.refresh(None, 5.0)["changed"] and len(run.brought) == 1
    assert not run.events


def test_a_table_is_read_at_its_interval(reading: Callable[..., Reading]) -> None:
    run = reading("1 millisecond")
    run.rows = FIRST.slice(1)
    assert run.said.wait(5.0) and run.brought[0].num_rows == 1


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (RuntimeError("no such file"), "cannot be read: RuntimeError: no such file"),
        (SystemExit(3), "cannot be read: SystemExit: 3"),
        (KeyboardInterrupt("enough"), "cannot be read: KeyboardInterrupt: enough"),
        (FIRST.rename_columns(["k", "label"]), "has other columns"),
        (pa.concat_tables([FIRST, FIRST]), "has 2 rows with the key k = 1"),
    ],
)
def test_what_cannot_be_used_leaves_what_was_there(reading: Callable[..., Reading], rows: Any, why: str) -> None:
    run = reading()
    run.rows = rows
    with pytest.raises(TableError, match=f"table 'names' {why}"):
        run.refresher.refresh(None, 5.0)
    ((kind, text, details),) = run.events
    assert kind == "refresh_failed" and why in text and "goes on with the rows that it has" in text and details == {"table": "names"}
    (told,) = run.refresher.describe()
    assert told.rows == 2 and told.failures == 1 and why in (told.error or "")
    run.rows = FIRST.slice(1)
    assert run.refresher.refresh(None, 5.0)["rows"] == 1
    assert run.refresher.describe()[0].failures == 0


def test_a_failure_at_the_interval_is_said_and_the_next_reading_comes(reading: Callable[..., Reading]) -> None:
    run = reading("1 millisecond")
    run.rows = RuntimeError("gone")
    assert run.said.wait(5.0) and run.events[0][0] == "refresh_failed"
    run.said.clear()
    run.rows = FIRST.slice(1)
    while not run.brought:
        assert run.said.wait(5.0)
        run.said.clear()


def test_a_version_that_could_not_begin_is_tried_again(reading: Callable[..., Reading]) -> None:
    run = reading()
    run.rows, run.bring_error = FIRST.slice(1), ClusterError("no plan came")
    with pytest.raises(ClusterError, match="no plan came"):
        run.refresher.refresh(None, 5.0)
    run.bring_error = None
    assert run.refresher.refresh(None, 5.0)["changed"]


def test_a_version_of_which_nobody_knows_whether_it_runs_is_not_left_there(reading: Callable[..., Reading]) -> None:
    """Goal: the run has what the table has. Method: a version is brought, and its answer is lost with the generation; then the table has
    what it had before."""
    run = reading()
    run.rows, run.bring_error = FIRST.slice(1), ClusterError("the run ended before it was known to have begun")
    with pytest.raises(ClusterError, match="ended before"):
        run.refresher.refresh(None, 5.0)
    run.rows, run.bring_error = FIRST, None
    assert run.refresher.refresh(None, 5.0) == {"table": "names", "changed": True, "rows": 2, "version": 1, "epoch": 10}
    assert not run.refresher.refresh(None, 5.0)["changed"]


def test_what_was_read_long_ago_is_read_at_once(reading: Callable[..., Reading]) -> None:
    """Of a run that goes on at a location: a table with an interval is due, one that is read on demand is not."""
    never, hour = reading(stale=True), reading("1 hour", stale=True)
    wait_until(lambda: hour.reads > never.reads, 5, "the table is read")
    assert never.reads == 2, "by whoever drew the dataflow, and before its start"
    due_s = hour.refresher._held["names"].due_s
    assert due_s is not None and due_s - time.monotonic() > 3_000


def test_who_asks_hears_whatever_it_was_and_the_next_reading_comes(reading: Callable[..., Reading]) -> None:
    run = reading()
    run.rows, run.bring_error = FIRST.slice(1), SystemExit("of code that is packed")
    with pytest.raises(SystemExit, match="of code that is packed"):
        run.refresher.refresh(None, 5.0)
    run.bring_error = None
    assert run.refresher.refresh(None, 5.0)["changed"]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_what_a_signal_raises_is_no_fault_of_the_table(raised: type[BaseException]) -> None:
    """In the main thread it may be the signal's, and at the start a table is read there."""
    rows = iter([FIRST])

    def given() -> pa.Table:
        for found in rows:
            return found
        raise raised

    table = ef.Dataflow("f").table(given, "names", key="k")
    with pytest.raises(raised):
        read(table)


def test_a_job_that_begins_when_its_run_has_just_ended_is_cancelled(reading: Callable[..., Reading]) -> None:
    """Spark cancels those jobs of a group that there are, and not those to come: files may be listed when the run ends."""
    reads, missed, begun, cancelled = (threading.Event() for _ in range(4))
    run = reading()

    def rows() -> pa.Table:
        reads.set()
        assert missed.wait(5.0)
        begun.set()
        cancelled.wait(5.0)
        return FIRST

    context = SimpleNamespace(
        cancelJobGroup=lambda group: cancelled.set() if begun.is_set() else missed.set(), setJobGroup=lambda *told, **more: None
    )
    run.refresher._spark = SimpleNamespace(sparkContext=context)  # type: ignore[assignment]
    run.rows = rows
    run.refresher._asked.put(("names", Future()))
    assert reads.wait(5.0)
    run.refresher.end()
    run.refresher._thread.join(10.0)
    assert cancelled.is_set() and not run.refresher._thread.is_alive()


def test_tables_are_read_in_a_thread_that_whoever_starts_the_run_has_started() -> None:
    """Goal: a thread of PySpark's has the properties of the one that starts it, which the coordinator's does not have; nor does that wait
    for the JVM. Nothing is read before the run has begun, and one that never begins leaves no thread."""
    readings: list[int] = []

    def given() -> pa.Table:
        readings.append(1)
        return FIRST

    table = ef.Dataflow("f").table(given, "names", key="k", refresh="10 ms")
    readings.clear()
    refresher = Refresher((table,), {"names": FIRST}, lambda name, content: {}, threading.Lock(), lambda *told, **more: None)
    assert refresher._thread.is_alive()
    refresher._thread.join(0.1)
    refresher.end()
    refresher._thread.join(5.0)
    assert not refresher._thread.is_alive() and readings == []


def test_what_is_not_there_or_over_is_refused(reading: Callable[..., Reading]) -> None:
    run = reading()
    with pytest.raises(OperationRefused, match="there is no table 'shops': say which of names"):
        run.refresher.refresh("shops", 5.0)
    with run.alone, pytest.raises(ClusterError, match="was not read within 0.1 s"):
        run.refresher.refresh(None, 0.1)
    run.refresher.end()
    with pytest.raises(OperationRefused, match="the run has ended"):
        run.refresher.refresh(None, 5.0)


def test_a_version_of_the_run_brings_its_own_tables(reading: Callable[..., Reading]) -> None:
    """What reads a table from then on is the new dataflow's."""
    run = reading()
    other = ef.Dataflow("f").table(lambda: FIRST.slice(0, 0), "names", key="k", refresh=None)
    with run.alone:
        run.refresher.exchange((other,), {"names": read(other)}, 1, 5)
    assert run.refresher.refresh(None, 5.0) == {"table": "names", "changed": False, "rows": 0, "version": 1, "epoch": 5}


@pytest.mark.parametrize("before", [None, "1 hour"])
def test_a_version_that_has_its_table_read_more_often_is_heard_at_once(reading: Callable[..., Reading], before: str | None) -> None:
    """The thread waits as long as the interval of before says, for ever if there was none."""
    run = reading(before)
    other = ef.Dataflow("f").table(lambda: FIRST.slice(1), "names", key="k", refresh="1 millisecond")
    assert run.asked.waits.wait(5.0)
    with run.alone:
        run.refresher.exchange((other,), {"names": FIRST}, 1, 5)
    assert run.said.wait(5.0) and run.brought[0].num_rows == 1


@pytest.mark.parametrize("after", [None, "1 hour"])
def test_a_version_that_has_its_table_read_more_seldom_is_not_read_once_more(reading: Callable[..., Reading], after: str | None) -> None:
    """Its interval is over when the version is on its way, and the reading waits for it."""
    run, readings = reading("1 millisecond"), list[int]()
    other = ef.Dataflow("f").table(lambda: readings.append(1) or FIRST, "names", key="k", refresh=after)  # type: ignore[func-returns-value]
    with run.alone:
        assert run.alone.wanted.wait(5.0)
        readings.clear()
        run.refresher.exchange((other,), {"names": FIRST}, 1, 5)
    assert not run.refresher.refresh(None, 5.0)["changed"]
    assert len(readings) == 1, "what was asked for, and nothing before it"


# ---------------------------------------------------------------- on the wire


def planned() -> tuple[Plan, Plan]:
    """A plan with a version of a table of 100 KB, and the one before it."""
    flow = ef.Dataflow("f")
    big = pa.table({"k": range(10_000), "name": ["x" * 10] * 10_000})
    table = flow.table(lambda: big, "names", key="k")
    flow.source(ef.sources.memory([pa.record_batch({"k": [1]})])).join(table, "k").to(ef.sinks.discard())
    running = with_tables(layout(flow.network, sites=2), {"names": read(refreshed_tables(flow.network)[0])})
    plan = first_plan(running, 2)
    return plan, replace(plan, number=1).with_settings(version=with_table(running, plan, "names", read(table).slice(1), 1))


def test_a_site_is_told_once_what_a_version_does() -> None:
    before, plan = planned()
    telling, told = Telling(), Told(before)
    telling.began(0, before)
    sizes, events = [], (PlanProposed(plan), PlanAborted(1), PlanProposed(replace(plan, number=2)), PlanCommitted(replace(plan, number=2)))
    for event in events:
        sent = pickle.dumps(telling.thin(0, event))
        sizes.append(len(sent))
        heard = told.whole(pickle.loads(sent))
        assert heard == event
        if isinstance(event, PlanProposed | PlanCommitted):
            assert heard.plan.version.steps[0][0].params["table"].num_rows == 9_999  # type: ignore[union-attr]
    assert sizes[0] > 100_000 and max(sizes[1:]) < 5_000


def test_another_version_and_another_site_are_told_again() -> None:
    before, plan = planned()
    telling, told = Telling(), Told(before)
    for site in (0, 1):
        assert telling.thin(site, PlanCommitted(plan)).plan.version.steps  # type: ignore[union-attr]
    told.whole(PlanCommitted(plan))
    assert plan.version is not None
    other = replace(plan, number=2).with_settings(version=replace(plan.version, number=2))
    for event in (PlanProposed(other), PlanAborted(2), PlanProposed(plan)):
        heard = told.whole(telling.thin(0, event))
        assert heard == event and (isinstance(event, PlanAborted) or heard.plan.version.steps)  # type: ignore[union-attr]


def test_a_newcomer_begins_with_what_runs() -> None:
    _, plan = planned()
    telling, told = Telling(), Told(plan)
    telling.began(4, plan)
    thin = telling.thin(4, PlanCommitted(plan))
    assert not thin.plan.version.steps and told.whole(thin).plan.version.steps  # type: ignore[union-attr]
