"""`evenflow bench restart`: kill the driver with its whole cluster, or let another one take its place, at one location, many times.

Stale drivers are of two kinds, by turns: one hangs (SIGSTOP) past its lease and comes back when the next one has put out rows, the other
one lives and is replaced by one that was told to take over. Both must end with `Fenced`.

A restart after a kill counts whole: from then to the first row that was not in the table before, so Spark's own start is in it, and so is
what is made again. At the end the query takes in no more and finishes, and the table is compared with the source row by row. Structured
Streaming is killed the same way; its restart counts from the kill to the first batch that is written after it.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np

from evenflow.availability.entries import Key
from evenflow.availability.standing import Standing
from evenflow.bench import killing
from evenflow.bench.measuring import machine
from evenflow.bench.restarting import SOURCE_PARTITIONS, Generation, is_free, new_home
from evenflow.coordinator.beginning import logs_of
from evenflow.errors import ClusterError
from evenflow.sources.generator import GeneratorSource
from evenflow.store.journal import read_journal
from evenflow.store.location import find_location

Say = Callable[[str], None]
WITHIN_S: Final = 300.0
POLL_S: Final = 0.02
STALE: Final = ("hang", "replace")
"""What happens to a stale driver: it is stopped for a while, or lives while another one is told to take over."""


@dataclass(frozen=True, slots=True)
class Setting:
    """kills: of driver and cluster. stale_drivers: so many drivers are replaced instead, while they hang or live. on_spark: so many of
    all these generations run on a Spark cluster, the first ones, the others on bare site processes; None: all. spark_kills: of Structured
    Streaming; 0 leaves it out. calm_s: least and most time between the first new row of a generation and its end, drawn; bare_calm_s: of
    one on bare processes."""

    kills: int = 20
    stale_drivers: int = 4
    rate: int = 1_000
    on_spark: int | None = None
    spark_kills: int = 3
    seed: int = 1
    calm_s: tuple[float, float] = (1.0, 4.0)
    bare_calm_s: tuple[float, float] = (0.5, 3.0)

    def manners(self, random: Random) -> list[str]:
        """How each generation but the last ends, drawn."""
        stale = [STALE[number % len(STALE)] for number in range(self.stale_drivers)]
        manners = [*stale, *["kill"] * self.kills]
        random.shuffle(manners)
        return manners

    def is_bare(self, generation: int) -> bool:
        """generation: from 0."""
        return self.on_spark is not None and generation >= self.on_spark


class Running:
    """One generation's processes."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        with open(Path(generation.home) / "log", "ab") as log:
            self._process = subprocess.Popen(
                generation.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True, text=True
            )

    @property
    def process(self) -> int:
        """The driver's."""
        return self._process.pid

    def said(self) -> str:
        """Its next line; "" if it has ended without one."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> float:
        """kill -9 of it and of everything below it. Returns when, monotonic seconds."""
        victims = [self._process.pid, *killing.below(self._process.pid, killing.parents())]
        at_s = killing.kill(victims)
        if not killing.gone(victims, 30.0):
            raise ClusterError("a process of a killed cluster is still there")
        self._reap()
        return at_s

    def hang(self) -> float:
        """Stop the driver alone, between two transactions: its executors live. Returns when."""
        while True:
            at_s = killing.stop([self._process.pid])
            if is_free(self.generation.database):
                return at_s
            killing.resume([self._process.pid])

    def come_back(self) -> str:
        """Let it go on. Returns what it says last."""
        killing.resume([self._process.pid])
        last = ""
        while line := self.said():
            last = line
        self._reap()
        return last

    def finish(self) -> str:
        """Take in no more, and finish. Returns what it says last."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        last = ""
        while line := self.said():
            last = line
        self._reap()
        return last

    def _reap(self) -> None:
        self._process.wait(60.0)
        for channel in (self._process.stdin, self._process.stdout):
            if channel is not None and not channel.closed:
                channel.close()


@dataclass(slots=True)
class Struck:
    """What was measured. restarts_s, bare_s: of each restart after a kill, in order, on a cluster and on bare processes. fenced: stale
    drivers that said that they were replaced."""

    restarts_s: list[float] = field(default_factory=list)
    bare_s: list[float] = field(default_factory=list)
    kills: int = 0
    stale: int = 0
    fenced: int = 0


def strike(generation: Generation, setting: Setting, say: Say) -> Struck:
    """Run generation after generation; of the last one the end is awaited. One of Structured Streaming can only be killed."""
    random, struck = Random(setting.seed), Struck()
    rival = generation.kind == "spark"
    manners = ["kill"] * setting.spark_kills if rival else setting.manners(random)
    running, at_s, stale = Running(replace(generation, bare=not rival and setting.is_bare(0))), None, list[Running]()
    try:
        for number, manner in enumerate([*manners, "end"], 1):
            first_s = _first_row_s(running)
            bare = running.generation.bare
            if at_s is not None and not stale:
                (struck.bare_s if bare else struck.restarts_s).append(first_s - at_s)
                say(f"generation {number}: new rows {first_s - at_s:.1f} s after the kill")
            while stale:
                last = stale.pop().come_back()
                struck.fenced += last.startswith("Fenced")
                say(f"generation {number}: the stale driver has come back: {last[:100]}")
            time.sleep(random.uniform(*(setting.bare_calm_s if bare else setting.calm_s)))
            if manner == "end":
                break
            at_s = _end(running, manner, struck, stale)
            bare = not rival and setting.is_bare(number)
            running = Running(replace(generation, bare=bare, take_over=manner == "replace"))
        if rival:
            running.kill()
        elif (last := running.finish()) != "ended":
            raise ClusterError(f"the last generation did not end as it should: {last}")
    except BaseException:
        for each in [running, *stale]:
            each.kill()
        raise
    return struck


def _end(running: Running, manner: str, struck: Struck, stale: list[Running]) -> float:
    """A generation ends, or is to be replaced. Returns when."""
    if manner == "kill":
        struck.kills += 1
        return running.kill()
    struck.stale += 1
    stale.append(running)
    return running.hang() if manner == "hang" else time.monotonic()


def _first_row_s(running: Running) -> float:
    """When the first row came that was not there before it began."""
    before = running.generation.count()
    if (line := running.said()) != "running":
        raise ClusterError(f"a generation did not begin: {line or 'it ended without a word'}")
    deadline_s = time.monotonic() + WITHIN_S
    while running.generation.count() <= before:
        if time.monotonic() > deadline_s:
            raise ClusterError(f"no new row within {WITHIN_S:.0f} s of a restart")
        time.sleep(POLL_S)
    return time.monotonic()


def made_rows(generation: Generation) -> Counter[tuple[int, int, int]]:
    """(key, ts, value) of every row that was taken in, as the source makes it."""
    store = find_location(generation.location).store
    standing = read_journal(store)
    assert standing.begun is not None
    program = json.loads(store.get(f"programs/{standing.begun.digest}.json"))
    made = generation.dataflow().network.box("made").params["source"]
    assert isinstance(made, GeneratorSource)
    source = replace(made, begin_us=program["sources"]["made"]["begin_us"])
    expected: Counter[tuple[int, int, int]] = Counter()
    for key in standing.cuts:
        left, reader = taken_of(standing, key), source.open(key[1], SOURCE_PARTITIONS)
        while left:
            batch = reader.read(2**60, left)
            assert batch is not None
            columns = (batch.column("key"), batch.column("ts").cast("int64"), batch.column("value"))
            expected.update(zip(*(column.to_pylist() for column in columns)))
            left -= batch.num_rows
    return expected


def compare(generation: Generation) -> dict[str, int]:
    """The table against the source: each row that was taken in is there once, as it was made."""
    expected = made_rows(generation)
    with closing(sqlite3.connect(generation.database)) as connection:
        rows = connection.execute("SELECT key, ts, value FROM rows").fetchall()
    times = np.array([ts.replace(" ", "T") for _, ts, _ in rows], "datetime64[us]").astype(np.int64).tolist()
    found = Counter((key, at, value) for (key, _, value), at in zip(rows, times))
    repeated = sum(count - expected[row] for row, count in found.items() if 0 < expected[row] < count)
    return {
        "rows_compared": expected.total(), "rows_lost": (expected - found).total(), "rows_repeated": repeated,
        "rows_wrong": sum(count for row, count in found.items() if not expected[row]),
    }  # fmt: skip


def taken_of(standing: Standing, key: Key) -> int:
    """How many rows of an ingress partition are in durable epochs."""
    cuts = standing.cuts[key]
    return int(cuts[-1].taken if cuts else logs_of(standing)[key][0] if standing.checkpoints else 0)


def run(*, setting: Setting, quick: bool, say: Say) -> dict[str, Any]:
    """Evenflow first, then Structured Streaming, on clusters of the same kind."""
    with new_home() as home:
        generation = Generation(home, rate=setting.rate)
        say(f"Evenflow, {setting.rate:,} rows/s: {setting.kills} kills, {setting.stale_drivers} stale drivers")
        ours = strike(generation, setting, say)
        say("comparing the output row by row")
        compared = compare(generation)
        entries = len(list((Path(home) / "location" / "journal").iterdir()))
    theirs: list[float] = []
    if setting.spark_kills:
        with new_home() as home:
            say(f"Structured Streaming: {setting.spark_kills} kills")
            theirs = strike(Generation(home, "spark", rate=setting.rate), setting, say).restarts_s
    return {
        "benchmark": "restart",
        "quick": quick,
        "rate": setting.rate,
        "kills": ours.kills,
        "stale_drivers": ours.stale,
        "stale_drivers_fenced": ours.fenced,
        **compared,
        "journal_entries": entries,
        "restart_s_p50": _rounded(ours.restarts_s, statistics.median),
        "restart_s_max": _rounded(ours.restarts_s, max),
        "bare_restart_s_p50": _rounded(ours.bare_s, statistics.median),
        "bare_restart_s_max": _rounded(ours.bare_s, max),
        "spark_restart_s_p50": _rounded(theirs, statistics.median),
        "spark_restart_s_max": _rounded(theirs, max),
        "restart_s_each": [round(seconds, 2) for seconds in ours.restarts_s],
        "bare_restart_s_each": [round(seconds, 2) for seconds in ours.bare_s],
        "spark_restart_s_each": [round(seconds, 2) for seconds in theirs],
        "machine": machine(),
        "master": Generation("").master,
    }


def _rounded(seconds: list[float], of: Callable[[list[float]], float]) -> float | None:
    return round(of(seconds), 2) if seconds else None
