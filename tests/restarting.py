"""A dataflow with a checkpoint location, as a process that tests kill: `python -m tests.restarting '{"location": ..., ...}'`.

It says `waits GENERATION` while it stands by, `running GENERATION` when it has begun, and `ended`, `over` (it had ended before) or the
error as its last line. Beside it are the `Driver` that starts and kills such processes, and what the two sinks must have at the end,
computed without Evenflow.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from threading import Event, Thread
from typing import Any, ClassVar

import evenflow as ef
from evenflow.bench.killing import gone, kill, resume, stop
from evenflow.bench.restart import taken_of
from evenflow.bench.restarting import is_free
from evenflow.sources.generator import GeneratorSource
from evenflow.store.journal import read_journal
from evenflow.store.opening import open_store
from evenflow.world.spark.cluster.processes import marked
from evenflow.world.spark.driver.run import Run
from evenflow.world.spark.driver.standing_by import StandbyProgress

MARK = "EVENFLOW_RESTART_TEST"
ROOT = Path(__file__).resolve().parents[1]
WINDOW_US = 100_000


@dataclass(frozen=True)
class Setting:
    """home: everything is below it. rows, rate: of the source. spark: with real executors. take_over, standby: see `Engine.start`.
    condition: of a box; with another one it is another dataflow. endless: rows come until `Driver.drain`. checkpoint_s: between two
    checkpoints of its state. durability: see `Engine.start`."""

    MODULE: ClassVar[str] = "tests.restarting"
    """That is run."""
    SLOTS: ClassVar[int] = 1
    """Of each executor: one is its site's."""
    home: str
    rows: int = 12_000
    rate: int = 2_000
    sites: int = 2
    replicas: int = 1
    lease_s: float = 5.0
    spark: bool = False
    take_over: bool = False
    standby: bool = False
    condition: str = "key >= 0"
    endless: bool = False
    checkpoint_s: float | None = None
    epoch_rows: int = 131_072
    durability: str | None = None

    @property
    def location(self) -> str:
        return str(Path(self.home) / "location")

    @property
    def database(self) -> str:
        return str(Path(self.home) / "rows.sqlite")

    @property
    def events(self) -> str:
        """File with what a driver that stood by had to say when that was over."""
        return str(Path(self.home) / "events.json")

    @property
    def folder(self) -> str:
        return str(Path(self.home) / "windows")

    def dataflow(self) -> ef.Dataflow:
        flow = ef.Dataflow("restarting")
        made = flow.source(
            ef.sources.generator(rate=self.rate, keys=16, rows=None if self.endless else self.rows, partitions=2), name="made"
        )
        rows = made.with_watermark("ts", "50 milliseconds").where(self.condition).name("kept")
        rows.select("key", "ts", "value").to(ef.sinks.table(self.database, "rows"), name="rows")
        counts = rows.group_by("key").window(f"{WINDOW_US // 1000} milliseconds").agg(n="count(*)", total="sum(value)")
        counts.to(ef.sinks.parquet(self.folder, commit_interval_ms=200), name="windows")
        return flow

    def beside(self) -> dict[str, Any]:
        """More arguments of `Engine.start`."""
        return {}

    def begun(self, run: Run) -> None:
        """What the driver does when it has begun a generation."""


# ---------------------------------------------------------------- the process


def main(setting: Setting) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell may have started the tests in the background.
    from evenflow.bench.bare import BareEngine

    options: dict[str, Any] = {
        "sites": setting.sites, "replicas": setting.replicas, "lease_s": setting.lease_s, "partitions": 16,
        "checkpoint_s": setting.checkpoint_s, "epoch_rows": setting.epoch_rows,
    }  # fmt: skip
    if not setting.spark:
        with BareEngine(**options) as engine:
            run_in(engine, setting)
        return
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    spark = embedded_session(f"local-cluster[{setting.sites},{setting.SLOTS},1024]", "evenflow-restarting", sites_only=True)
    try:
        with ef.Engine(spark, **options) as engine:
            run_in(engine, setting)
    finally:
        stop_session(spark)


def run_in(engine: ef.Engine, setting: Setting) -> None:
    seen: list[int] = []

    def watch(progress: StandbyProgress) -> None:
        if progress.generation not in seen:
            seen.append(progress.generation)
            print(f"waits {progress.generation}", flush=True)

    try:
        run = engine.start(
            setting.dataflow(), checkpoint_location=setting.location, take_over=setting.take_over, standby=setting.standby, watch=watch,
            durability=setting.durability, **setting.beside(),
        )  # fmt: skip
        if setting.standby:
            Path(setting.events).write_text(json.dumps(run.events()))
        if not run.is_active:
            print("over", flush=True)
            return
        journal = run.numbers().journal
        assert journal is not None
        print(f"running {journal.generation}", flush=True)
        setting.begun(run)
        drained = Event()
        Thread(target=lambda: (sys.stdin.read(), drained.set()), daemon=True).start()
        while not run.await_termination(0.1):
            if drained.is_set():
                run.stop(drain=True)
        print("ended", flush=True)
    except ef.errors.EvenflowError as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)


# ---------------------------------------------------------------- who starts and kills it


class Driver:
    """One generation: the process and all that it has started."""

    def __init__(self, setting: Setting) -> None:
        self._mark = uuid.uuid4().hex
        self._log = open(Path(setting.home) / f"{self._mark}.err", "w+b")  # noqa: SIM115
        environment = os.environ | {MARK: self._mark, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", setting.MODULE, json.dumps(asdict(setting))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment, cwd=ROOT, start_new_session=True, text=True,
        )  # fmt: skip

    def line(self) -> str:
        """The next thing that it says; its last words on the other channel if it says nothing more."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        return said or f"nothing more: {Path(self._log.name).read_text()[-2000:]}"

    def last(self) -> str:
        """What it says last."""
        said = self.line()
        while said.startswith(("running", "waits")):
            said = self.line()
        return said

    def drain(self) -> str:
        """It is to take in no more rows. Returns what it says last."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.last()

    def kill(self) -> None:
        """kill -9 of the driver, its JVM, the executors and the sites, all at once."""
        victims = marked(MARK, self._mark)
        kill(victims)
        assert gone(victims)
        self._close()

    def stop(self, setting: Setting) -> None:
        """SIGSTOP: the driver's own process alone hangs, between two transactions: in one it would keep the database's lock."""
        while True:
            stop([self._process.pid])
            if is_free(setting.database):
                return
            self.go_on()

    def go_on(self) -> None:
        resume([self._process.pid])

    def interrupt(self) -> int:
        """Ctrl-C. Returns the exit code, when nothing of it is left."""
        os.kill(self._process.pid, signal.SIGINT)
        code = self._process.wait(60.0)
        wait_until(lambda: not marked(MARK, self._mark), 10, "its sites are gone")
        return code

    def end(self) -> None:
        """Whatever is left."""
        for process in marked(MARK, self._mark):
            with suppress(ProcessLookupError):  # It may end by itself in between.
                os.kill(process, signal.SIGKILL)
        self._close()

    def _close(self) -> None:
        self._process.wait(30.0)
        for channel in (self._process.stdin, self._process.stdout):
            if channel is not None:
                channel.close()
        self._log.close()


def wait_until(reached: Callable[[], bool], within_s: float, what: str) -> None:
    deadline, pause = time.monotonic() + within_s, Event()
    while not reached():
        assert time.monotonic() < deadline, f"waited {within_s} s until {what}"
        pause.wait(0.02)


def hangs_and_comes_back(start: Start, setting: Setting, rows: int) -> None:
    """A driver hangs when so many rows are in the table; the next one runs to the end; the first one goes on, ends with Fenced, and has
    added nothing."""
    stale = start(setting)
    assert stale.line() == "running 1"
    wait_until(lambda: len(written(setting)) > rows, 120, f"{rows} rows are in the table")
    stale.stop(setting)
    assert len(written(setting)) < setting.rows, "it was over before it was stopped"
    driver = start(setting)
    assert driver.line() == "running 2"
    assert driver.last() == "ended"
    compare(setting)
    stale.go_on()
    assert stale.last().startswith("Fenced: another driver has begun generation 2")
    compare(setting)


# ---------------------------------------------------------------- what must be there


def written(setting: Setting) -> list[tuple[Any, ...]]:
    """Rows of the table; none before it is there."""
    if not Path(setting.database).exists():
        return []
    with closing(sqlite3.connect(setting.database, timeout=10)) as connection:
        try:
            return connection.execute("SELECT key, ts, value FROM rows").fetchall()
        except sqlite3.OperationalError:
            return []


def taken_in(setting: Setting) -> list[list[tuple[int, int, int]]]:
    """By partition, the (key, ts, value) that the run has taken in: of the source as the location has written it down."""
    [program] = (each for each in (Path(setting.location) / "programs").glob("*.json") if "tables" not in each.name)
    begin_us = json.loads(program.read_text())["sources"]["made"]["begin_us"]
    made = setting.dataflow().network.box("made").params["source"]
    assert isinstance(made, GeneratorSource)
    source = replace(made, begin_us=begin_us)
    standing = read_journal(open_store(setting.location))
    taken: list[list[tuple[int, int, int]]] = [[], []]
    for partition, rows in enumerate(taken):
        reader, left = source.open(partition, 2), taken_of(standing, (0, partition))
        while left:
            batch = reader.read(2**60, min(left, 100_000))
            assert batch is not None
            left -= batch.num_rows
            columns = [batch.column("key"), batch.column("ts").cast("int64"), batch.column("value")]
            rows += zip(*(column.to_pylist() for column in columns))
    return taken


def expected(setting: Setting) -> tuple[Counter[Any], Counter[Any]]:
    """(rows of the table, rows of the files), each with how often it is there."""
    rows: Counter[Any] = Counter()
    windows: dict[tuple[int, int], list[int]] = {}
    for key, ts, value in chain.from_iterable(taken_in(setting)):
        rows[key, ts, value] += 1
        found = windows.setdefault((key, ts - ts % WINDOW_US), [0, 0])
        found[0] += 1
        found[1] += value
    return rows, Counter((key, start, n, total) for (key, start), (n, total) in windows.items())


def compare(setting: Setting) -> None:
    """Every row is there once, and no other."""
    rows, windows = expected(setting)
    assert setting.endless or rows.total() == setting.rows
    there = Counter((key, micros(ts), value) for key, ts, value in written(setting))
    assert there == rows, f"lost {(rows - there).total()}, repeated or wrong {(there - rows).total()} of {rows.total()} rows"
    table = ef.sinks.parquet(setting.folder).read()
    columns = [table.column("key"), table.column("window_start").cast("int64"), table.column("n"), table.column("total")]
    found = Counter(zip(*(column.to_pylist() for column in columns)))
    assert found == windows, f"lost {(windows - found).total()}, repeated or wrong {(found - windows).total()} of {windows.total()} windows"


def micros(text: str) -> int:
    """A timestamp as SQLite has it, in microseconds since 1970."""
    import numpy as np

    return int(np.datetime64(text.replace(" ", "T"), "us").astype(np.int64))


Start = Callable[[Setting], Driver]


@contextmanager
def drivers() -> Iterator[Start]:
    """Starts drivers, and leaves none behind."""
    started: list[Driver] = []

    def begin(setting: Setting) -> Driver:
        started.append(Driver(setting))
        return started[-1]

    try:
        yield begin
    finally:
        for driver in started:
            driver.end()


if __name__ == "__main__":
    main(Setting(**json.loads(sys.argv[1])))
