"""Refreshed tables of one run: read again by Spark, and brought into the run as a version of it, from one epoch on at every site.

One thread reads, so tables are read one after the other. What cannot be read, or cannot be used, is said and leaves the last content
where it is; the next reading may go better.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from evenflow.coordinator.events import Kind
from evenflow.errors import ClusterError, EvenflowError, OperationRefused, TableError
from evenflow.query.refreshed import refreshed_tables
from evenflow.query.tables import RefreshedTable, same_rows
from evenflow.statistics.progress import TableProgress
from evenflow.world.spark.cluster.job_groups import cancel_until_over, grouped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from evenflow.query.builder import Dataflow

WAIT_SLICE_S: Final = 0.2
log = logging.getLogger("evenflow")

Bring = Callable[[str, pa.Table], Mapping[str, Any]]
"""Bring the content of a table into the run. Returns `version` and `epoch`, when the plan is made."""


def read(table: RefreshedTable) -> pa.Table:
    """What the table has now. Raises TableError if that cannot be read or used.

    In the main thread KeyboardInterrupt and SystemExit come through: they may be a signal's. Elsewhere they are the function's, and errors
    as any other: a thread would end of them without a word.
    """
    try:
        return table.checked(table.given() if callable(table.given) else _anew(table.given))
    except TableError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
            raise
        raise TableError(f"table {table.name!r} cannot be read: {type(error).__name__}: {str(error)[:2000]}") from error


def read_first(tables: Sequence[RefreshedTable], spark: SparkSession | None) -> dict[str, pa.Table]:
    """What the tables of a dataflow have that is about to act, by name. Raises as `read`; what breaks it off cancels Spark's jobs."""
    if not tables or spark is None:
        return {table.name: read(table) for table in tables}
    with grouped(spark, f"Evenflow reads {', '.join(table.name for table in tables)}"):
        return {table.name: read(table) for table in tables}


def _anew(frame: DataFrame) -> DataFrame:
    """The DataFrame with what its files and tables have now: Spark lists files once per plan, and keeps what a query has planned."""
    if hasattr(frame, "_jdf"):
        frame._jdf.queryExecution().analyzed().refresh()
        return frame.select("*")
    return frame


class Word(Enum):
    """To the thread that reads, which looks again. CHANGED: tables may be due at other times than it waits for. OVER: the run has ended."""

    CHANGED = auto()
    OVER = auto()


@dataclass(slots=True)
class Held:
    """One table as the run has it. read_s: when that was read, due_s: when it is to be read again (None: on demand), both monotonic.

    version, epoch: since which it is so, 0 for the start. failures: readings that failed since the last good one; error: why the last did.
    unsure: what was read later was to be brought into the run, and nobody knows whether it was.
    """

    table: RefreshedTable
    content: pa.Table
    read_s: float
    due_s: float | None
    version: int = 0
    epoch: int = 0
    failures: int = 0
    error: str | None = None
    unsure: bool = False


def same_tables(flow: Dataflow, there: Mapping[str, pa.Table]) -> Sequence[RefreshedTable]:
    """The refreshed tables of a dataflow that is to take the place of one that has these. Raises OperationRefused if they are others."""
    tables = refreshed_tables(flow.network)
    if {table.name for table in tables} != set(there):
        raise OperationRefused(
            f"this is no version of what runs: it has other refreshed tables than {', '.join(there) or 'none'}. Start it as a "
            "dataflow of its own"
        )
    return tables


class Refresher:
    """`begin` when the run has started, `end` when it is over; both return at once. contents: what was read of the tables at the start;
    stale: long ago, so those with an interval are read at once. since: the version and the epoch with which the run begins.

    bring: see `Bring`. alone: held from reading until the run has it; who holds it may change the run's version. record(kind, text,
    **details): makes an event of the run.
    """

    def __init__(
        self,
        tables: Sequence[RefreshedTable],
        contents: Mapping[str, pa.Table],
        bring: Bring,
        alone: threading.Lock,
        record: Callable[..., None],
        spark: SparkSession | None = None,
        group: str = "",
        *,
        stale: bool = False,
        since: tuple[int, int] = (0, 0),
    ) -> None:
        self._bring, self._alone, self._record, self._spark, self._group = bring, alone, record, spark, group
        now_s = time.monotonic()
        due = [(table, _due_s(table, now_s, stale=stale)) for table in tables]
        self._held = {table.name: Held(table, contents[table.name], now_s, due_s, *since) for table, due_s in due}
        self._asked: SimpleQueue[tuple[str, Future[Mapping[str, Any]]] | Word] = SimpleQueue()
        self._begun, self._ending = threading.Event(), threading.Event()
        self._thread = self._made()
        self._thread.start()

    def _made(self) -> threading.Thread:
        """Made and started in the thread that starts the run, so that it inherits the user's session and job properties."""
        if self._spark is None:
            return threading.Thread(target=self._serve, name="evenflow-refresh", daemon=True)
        from pyspark import InheritableThread

        thread: threading.Thread = InheritableThread(target=self._serve, session=self._spark)
        thread.daemon = True
        return thread

    @property
    def contents(self) -> dict[str, pa.Table]:
        """What the run has of each table. From any thread."""
        return {name: held.content for name, held in self._held.items()}

    def begin(self) -> None:
        self._begun.set()

    def end(self) -> None:
        if not self._ending.is_set():
            self._ending.set()
            self._begun.set()
            self._asked.put(Word.OVER)
            if self._spark is not None:
                cancel_until_over(self._spark, self._group, self._thread)

    def read_first(self, tables: Sequence[RefreshedTable]) -> dict[str, pa.Table]:
        """What those of a version have that is to come. In the thread of whoever wants it; raises as `read`."""
        return read_first(tables, self._spark)

    def exchange(self, tables: Sequence[RefreshedTable], contents: Mapping[str, pa.Table], version: int, epoch: int) -> None:
        """The run goes on as a version of itself with these tables, of the same names, which are read at its intervals from now on. By who
        holds `alone`."""
        now_s = time.monotonic()
        for table in tables:
            self._held[table.name] = Held(table, contents[table.name], now_s, _due_s(table, now_s), version, epoch)
        self._asked.put(Word.CHANGED)

    def refresh(self, name: str | None, timeout_s: float) -> Mapping[str, Any]:
        """Read a table now. Returns what `Run.refresh` does, and raises as it does. From any thread but the reading one."""
        if name is None and len(self._held) == 1:
            name = next(iter(self._held))
        if name is None or name not in self._held:
            what = "no table is meant" if name is None else f"there is no table {name!r}"
            raise OperationRefused(f"{what}: say which of {', '.join(self._held)}")
        answer: Future[Mapping[str, Any]] = Future()
        self._asked.put((name, answer))
        deadline_s = time.monotonic() + timeout_s
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                return answer.result(WAIT_SLICE_S)
            if time.monotonic() >= deadline_s:
                raise ClusterError(f"table {name!r} was not read within {timeout_s:g} s; what comes of it, the run's events say")
        raise OperationRefused(f"table {name!r} is not read any more: the run has ended")

    def describe(self) -> tuple[TableProgress, ...]:
        """What progress says of the tables. From any thread."""
        now_s = time.monotonic()
        return tuple(
            TableProgress(
                table=name,
                rows=held.content.num_rows,
                bytes=held.content.nbytes,
                version=held.version,
                epoch=held.epoch,
                read_s=round(now_s - held.read_s, 3),
                failures=held.failures,
                error=held.error,
            )
            for name, held in self._held.items()
        )

    # ------------------------------------------------ the thread

    def _serve(self) -> None:
        self._begun.wait()
        if self._spark is not None and not self._ending.is_set():
            self._spark.sparkContext.setJobGroup(self._group, "Evenflow refreshes tables", interruptOnCancel=False)
        while not self._ending.is_set():
            if (asked := self._next()) is not None:
                self._answer(*asked)

    def _answer(self, name: str, answer: Future[Mapping[str, Any]] | None) -> None:
        try:
            with self._alone:
                if answer is None and not self._is_due(name):
                    return  # What it has waited for is a version that has the table read at other times.
                found = self._read(name)
        except BaseException as error:  # Code of the user's is called there, and this thread goes on.
            if answer is not None:
                answer.set_exception(error)
            elif not isinstance(error, EvenflowError):
                log.exception("table %r was not refreshed", name)
        else:
            if answer is not None:
                answer.set_result(found)

    def _is_due(self, name: str) -> bool:
        due_s = self._held[name].due_s
        return due_s is not None and due_s <= time.monotonic()

    def _next(self) -> tuple[str, Future[Mapping[str, Any]] | None] | None:
        """What to read next, when it is time. None: look again."""
        due = {name: held.due_s for name, held in self._held.items() if held.due_s is not None}
        first = min(due, key=due.__getitem__, default=None)
        try:
            asked = self._asked.get(timeout=None if first is None else max(0.0, due[first] - time.monotonic()))
        except Empty:
            return None if first is None else (first, None)
        return None if isinstance(asked, Word) else asked

    def _read(self, name: str) -> Mapping[str, Any]:
        held, begun_s = self._held[name], time.monotonic()
        held.due_s = _due_s(held.table, begun_s)
        try:
            content = read(held.table)
            changed = held.unsure or not same_rows(content, held.content)
            if changed:
                held.unsure = True
                brought = self._bring(name, content)
                held.content, held.version, held.epoch, held.unsure = content, brought["version"], brought["epoch"], False
        except EvenflowError as error:
            if not self._ending.is_set():
                held.failures, held.error = held.failures + 1, str(error)
                log.warning("%s; the run goes on with the rows that it has", error)
                self._record(Kind.REFRESH_FAILED, f"{error}; the run goes on with the rows that it has", table=name)
            raise
        held.read_s, held.failures, held.error = begun_s, 0, None
        return {"table": name, "changed": changed, "rows": held.content.num_rows, "version": held.version, "epoch": held.epoch}


def _due_s(table: RefreshedTable, now_s: float, *, stale: bool = False) -> float | None:
    return None if table.every_us is None else now_s + (0.0 if stale else table.every_us / 1e6)
