"""`evenflow bench restore`: how long a query with a large state is without output when all of its executors are lost, or all of it is.

The state is filled in, the query keeps up with its rows, and a checkpoint is whole; then, at a drawn moment, kill -9 of all executors while
the driver lives (`in_place`), as often as asked; then of driver, JVM and executors (`cluster`). The first counts from the kill to the first
result that had not been there. The second counts from the start of the next driver, and beside it stands how long Spark itself took until
its executors were there. At the end the query takes in no more, and count and sum of each key are compared with the source. Structured
Streaming and Flink lose their executors in the same way, each alone on the machine.
"""

from __future__ import annotations

import dataclasses
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

from evenflow.availability.entries import Begun, Key
from evenflow.availability.standing import Standing
from evenflow.bench import flink, flink_restore, killing
from evenflow.bench.background import tail
from evenflow.bench.gaps import longest_gap
from evenflow.bench.measuring import machine
from evenflow.bench.restart import taken_of
from evenflow.bench.restoring import Driver, Status
from evenflow.bench.tally import Compared, Tally
from evenflow.coordinator.beginning import logs_of
from evenflow.errors import ClusterError, QueryError
from evenflow.store.journal import entries, read_journal
from evenflow.store.location import find_location
from evenflow.store.objects import Store

Say = Callable[[str], None]
System = Literal["evenflow", "flink", "spark"]
SYSTEMS: Final[tuple[System, ...]] = ("evenflow", "flink", "spark")
WITHIN_S: Final = 600.0
POLL_S: Final = 0.02
LOOK_S: Final = 0.25
LAG_S: Final = {"evenflow": 0.5, "spark": 20.0}
"""Whose results are of rows that came so long ago keeps up. A micro-batch of Structured Streaming with a state of 1 GB takes seconds."""


@dataclass(frozen=True, slots=True)
class Setting:
    """state_mb: of the keys' state, in millions of bytes. rate: rows/s. every_s: from one checkpoint to the next. kills: of the executors,
    and as many of everything. sites: executors. only: these systems."""

    state_mb: int = 1_024
    rate: int = 50_000
    every_s: float = 10.0
    kills: int = 3
    sites: int = 2
    seed: int = 1
    only: tuple[System, ...] = SYSTEMS


QUICK: Final = Setting(state_mb=20, rate=10_000, every_s=2.0, kills=1)


def systems(names: str | None) -> tuple[System, ...]:
    """Those that are named, in their order; all if none are. Raises QueryError for one that there is not."""
    if names is None:
        return SYSTEMS
    given = [name.strip() for name in names.split(",")]
    if unknown := [name for name in given if name not in SYSTEMS]:
        raise QueryError(f"there is no system {unknown[0]!r} to measure: --only takes some of {', '.join(SYSTEMS)}")
    return tuple(name for name in SYSTEMS if name in given)


@dataclass(slots=True)
class Lost:
    """What was measured. in_place_s: of each loss of the executors. cluster_s: of each restart of everything; spark_s, sites_s: until
    Spark, and what runs on it, was there, in the same restarts. begun_s: of each loss of the executors, until the next generation had its
    sites and its entry in the journal. again: answers that came twice where the driver lived. fill_s: until all keys were there."""

    in_place_s: list[float] = field(default_factory=list)
    cluster_s: list[float] = field(default_factory=list)
    spark_s: list[float] = field(default_factory=list)
    sites_s: list[float] = field(default_factory=list)
    begun_s: list[float] = field(default_factory=list)
    again: int = 0
    fill_s: float = 0.0
    state_bytes: int = 0


class Running:
    """A driver's process and its tally."""

    def __init__(self, driver: Driver, tally: Tally) -> None:
        self.driver, self.tally, self.began_s = driver, tally, time.monotonic()
        self._log = Path(driver.home) / "log"
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                driver.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True, text=True
            )

    def status(self) -> dict[str, Any]:
        """What it has said of itself; {} before it has."""
        said = Status.read(self.driver.home)
        return said if said.get("pid") == self.process.pid else {}

    def until(self, there: Callable[[], bool], what: str, every_s: float = LOOK_S) -> None:
        """Raises ClusterError if the process ends before, or if it takes too long."""
        deadline_s = time.monotonic() + WITHIN_S
        while not there():
            if self.process.poll() is not None:
                said = self.process.stdout.read().strip() if self.process.stdout else ""
                raise ClusterError(f"a driver ended before its time: {said or tail(self._log)}")
            if time.monotonic() > deadline_s:
                raise ClusterError(f"{self.driver.kind}: {what} did not happen within {WITHIN_S:.0f} s: use a smaller state or rate")
            time.sleep(every_s)

    def executors(self) -> list[int]:
        """Their JVMs."""
        return [process for process in killing.below(self.process.pid, killing.parents()) if killing.is_executor(process)]

    def lose_executors(self) -> float:
        """kill -9 of all of them and their Python processes. Returns when."""
        found, parent_of = self.executors(), killing.parents()
        return killing.kill([*found, *(process for executor in found for process in killing.below(executor, parent_of))])

    def kill(self) -> None:
        """kill -9 of it and of everything below it. May be called again."""
        victims = [self.process.pid, *killing.below(self.process.pid, killing.parents())]
        killing.kill(victims)
        self._reap()
        if not killing.gone(victims, 30.0):
            raise ClusterError("a process of a killed cluster is still there")

    def finish(self) -> None:
        """Take in no more, and finish. Raises ClusterError if it ends otherwise."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        said = self.process.stdout.read().split("\n")
        self._reap()
        if "ended" not in said:
            raise ClusterError(f"the last driver did not end as it should: {said[-1] or tail(self._log)}")

    def _reap(self) -> None:
        self.process.wait(60.0)
        for channel in (self.process.stdin, self.process.stdout):
            if channel is not None and not channel.closed:
                channel.close()


# ---------------------------------------------------------------- losses


def strike(driver: Driver, setting: Setting, say: Say) -> Lost:
    """Fill the state in; lose the executors `kills` times, then everything as often; then finish."""
    random, lost, tally = Random(setting.seed), Lost(), driver.tally()
    name = {"evenflow": "Evenflow", "spark": "Structured Streaming"}[driver.kind]
    say(f"{name}: {driver.keys:,} keys are filled in")
    running = Running(driver, tally)
    try:
        _await_calm(running, running.began_s)
        lost.fill_s = time.monotonic() - running.began_s
        for number in range(setting.kills):
            lost.in_place_s.append(_lose_executors(running, random, setting, lost))
            say(f"{name}, loss {number + 1} of all executors: results {lost.in_place_s[-1]:.1f} s later")
        lost.again = tally.again
        lost.state_bytes = running.status().get("state_bytes", 0)
        for number in range(setting.kills):
            time.sleep(random.uniform(0.0, setting.every_s))
            running.kill()
            running = Running(driver, tally)
            _note_restart(running, lost)
            say(
                f"{name}, loss {number + 1} of everything: results {lost.cluster_s[-1]:.1f} s after the start of the next driver, "
                f"Spark's own start took {lost.spark_s[-1]:.1f} s"
            )
            if number + 1 < setting.kills:
                _await_calm(running, time.monotonic())
        if driver.kind == "evenflow":
            running.finish()
        else:
            running.kill()
    except BaseException:
        running.kill()
        raise
    return lost


def _lose_executors(running: Running, random: Random, setting: Setting, lost: Lost) -> float:
    """Seconds from the kill to the first result after it. Returns when the query keeps up again, and has a whole checkpoint."""
    time.sleep(random.uniform(0.0, setting.every_s))
    at_s = running.lose_executors()
    running.until(lambda: len(running.executors()) == setting.sites, "the start of other executors", POLL_S)
    started_s = time.monotonic()
    running.until(lambda: running.tally.since(started_s) is not None, "a result")
    _await_calm(running, at_s)
    if "begun_s" in (status := running.status()):
        lost.begun_s.append(status["begun_s"] - at_s)
    # What had reached the driver still comes out, so it is the end of the longest time without output that counts.
    gap = longest_gap(running.tally.moments(), at_s, time.monotonic())
    return gap.begin_s + gap.seconds - at_s


def _note_restart(running: Running, lost: Lost) -> None:
    running.until(lambda: running.tally.since(running.began_s) is not None, "a result", POLL_S)
    first_s, status = running.tally.since(running.began_s), running.status()
    assert first_s is not None
    lost.cluster_s.append(first_s - running.began_s)
    lost.spark_s.append(status["spark_s"] - running.began_s)
    if "sites_s" in status:
        lost.sites_s.append(status["sites_s"] - running.began_s)


def _await_calm(running: Running, since_s: float) -> None:
    """Until results keep up with the rows, and a checkpoint is whole that was begun since then and since this moment."""
    running.until(lambda: _keeps_up(running), "keeping up with the rows")
    kept_up_s = time.monotonic()
    running.until(lambda: _is_whole(running, max(since_s, kept_up_s)), "a whole checkpoint")


def _keeps_up(running: Running) -> bool:
    driver, now_us = running.driver, time.time_ns() // 1000
    done = running.tally.rows if driver.kind == "evenflow" else int(running.status().get("rows", 0))
    return driver.source().due(now_us) - done <= LAG_S[driver.kind] * driver.rate


def _is_whole(running: Running, since_s: float) -> bool:
    if running.driver.kind == "evenflow":
        status = running.status()
        # The first one behind the fill has all of the state and takes long: what came meanwhile would be made again, and is not what is
        # lost by those that follow it.
        return status.get("whole_s") is not None and status["whole_s"] - status["took_s"] > since_s
    # A snapshot of each partition: without one all of the changes since the first batch would be read.
    folders = [path for path in (Path(running.driver.location) / "state" / "0").glob("*") if path.name.isdigit()]
    return bool(folders) and all(any(folder.rglob("*.zip")) for folder in folders)


# ---------------------------------------------------------------- what a location says


@dataclass(frozen=True, slots=True)
class Restored:
    """What a generation began with: bytes of the checkpoint's objects, and rows behind it that were made again."""

    bytes: int
    rows: int


def restored(store: Store) -> list[Restored]:
    """Of each generation but the first, as far as its entries were not collected behind later checkpoints."""
    found, standing = list[Restored](), Standing()
    for entry in entries(store):
        if isinstance(entry.matter, Begun) and standing.begun is not None:
            bytes_read = standing.checkpoints[-1].bytes if standing.checkpoints else 0
            found.append(Restored(bytes_read, sum(_behind(standing, key) for key in standing.cuts)))
        standing.add(entry)
    return found


def _behind(standing: Standing, key: Key) -> int:
    """Rows of an ingress partition in durable epochs behind the newest checkpoint."""
    base = int(logs_of(standing)[key][0]) if standing.checkpoints else 0
    cuts = [cut for cut in standing.cuts[key] if cut.epoch <= standing.durable]
    return int(cuts[-1].taken) - base if cuts else 0


def compare(driver: Driver, tally: Tally) -> Compared:
    """Counts and sums of all keys against the source, up to where it was read."""
    standing = read_journal(find_location(driver.location).store)
    return tally.compare(driver.source(), {key: taken_of(standing, key) for key in standing.cuts})


# ---------------------------------------------------------------- the whole


def run(*, setting: Setting, quick: bool, say: Say) -> dict[str, Any]:
    """Measure. Returns the object that --json prints. A rival that cannot be had is left out, and the reason is in the object."""
    found: dict[str, Any] = {"in_place_s": None, "cluster_s": None, "flink_s": None, "spark_s": None}
    if "evenflow" in setting.only:
        found |= _evenflow(setting, say)
    for name, rival in (("flink", _flink), ("spark", _spark)):
        if name in setting.only:
            try:
                found |= rival(setting, say)
            except ClusterError as error:
                found[f"{name}_failed"] = str(error)
                say(f"{name} is left out: {error}")
    return {
        "benchmark": "restore",
        "quick": quick,
        "state_mb": setting.state_mb,
        **found,
        "kills": setting.kills,
        "setting": dataclasses.asdict(setting),
        "machine": machine(),
    }


def _evenflow(setting: Setting, say: Say) -> dict[str, Any]:
    with _home() as home:
        driver = _driver("evenflow", home, setting)
        lost = strike(driver, setting, say)
        say("comparing the count and the sum of each key")
        compared = compare(driver, driver.tally())
        store = find_location(driver.location).store
        generations, begun = restored(store), len(read_journal(store).begins) - 1
    if begun != 2 * setting.kills:
        raise ClusterError(f"{2 * setting.kills} losses made {begun} new generations: sites were lost that nobody killed")
    return {
        "in_place_s": _median(lost.in_place_s),
        "in_place_begun_s": _median(lost.begun_s),
        "cluster_s": _median(lost.cluster_s),
        "cluster_spark_s": _median(lost.spark_s),
        "cluster_without_spark_s": _median([whole - spark for whole, spark in zip(lost.cluster_s, lost.spark_s)]),
        "cluster_sites_s": _median(lost.sites_s),
        "sites_state_mb": round(lost.state_bytes / 1e6),
        "restored_mb": _median([each.bytes / 1e6 for each in generations]) if generations else None,
        "replayed_rows": round(statistics.median([each.rows for each in generations])) if generations else None,
        "rows_compared": compared.rows,
        "rows_lost": compared.lost,
        "rows_repeated": compared.repeated + lost.again,
        "keys_wrong": compared.wrong,
        "fill_s": round(lost.fill_s, 1),
        "in_place_s_each": _each(lost.in_place_s),
        "cluster_s_each": _each(lost.cluster_s),
        "cluster_spark_s_each": _each(lost.spark_s),
        "replayed_rows_each": [each.rows for each in generations],
        "master": driver.master,
    }


def _spark(setting: Setting, say: Say) -> dict[str, Any]:
    with _home() as home:
        driver = _driver("spark", home, setting)
        lost = strike(driver, setting, say)
    return {
        "spark_s": _median(lost.in_place_s),
        "spark_cluster_s": _median(lost.cluster_s),
        "spark_fill_s": round(lost.fill_s, 1),
        "spark_s_each": _each(lost.in_place_s),
        "spark_cluster_s_each": _each(lost.cluster_s),
        "spark_master": driver.master,
    }


def _flink(setting: Setting, say: Say) -> dict[str, Any]:
    jars = flink.jars(say)
    keys = _driver("evenflow", "", setting).keys
    with _home() as home:
        measured = flink_restore.measure(
            jars, Path(home), keys=keys, rate=setting.rate, every_s=setting.every_s, sites=setting.sites, kills=setting.kills,
            seed=setting.seed, say=say,
        )  # fmt: skip
    return {
        "flink_s": _median(measured.restores_s),
        "flink_state_mb": round(measured.state_bytes / 1e6),
        "flink_fill_s": round(measured.fill_s, 1),
        "flink_s_each": _each(measured.restores_s),
        "flink_version": flink.VERSION,
    }


def _driver(kind: Literal["evenflow", "spark"], home: str, setting: Setting) -> Driver:
    begin_us = time.time_ns() // 1000
    return Driver(home, kind, setting.state_mb, setting.rate, setting.every_s, setting.sites, begin_us)


@contextmanager
def _home() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="evenflow-restore-", ignore_cleanup_errors=True) as home:
        yield home


def _median(values: list[float]) -> float | None:
    return round(statistics.median(values), 2) if values else None


def _each(seconds: list[float]) -> list[float]:
    return [round(each, 2) for each in seconds]
