"""`evenflow bench tables`: kill executors, all executors, and the driver with everything, while rows go into three tables at once.

At the end each table is compared with the source row by row, and its commits with the journal: each epoch of the run in one commit at most,
and none that is not durable.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

from evenflow.bench import killing
from evenflow.bench.measuring import machine
from evenflow.bench.restart import POLL_S, WITHIN_S, Running, made_rows
from evenflow.bench.restarting import new_home
from evenflow.bench.tabling import TABLES, TableGeneration
from evenflow.errors import ClusterError
from evenflow.store.journal import read_journal
from evenflow.store.location import find_location

Say = Callable[[str], None]
Manner = Literal["executor", "executors", "everything", "stale"]
MANNERS: Final[tuple[Manner, ...]] = ("executor", "everything", "executors", "executor", "stale", "everything")
"""One executor, or all of them, under a driver that lives; all of it; a driver that hangs, and comes back when another one has begun."""


@dataclass(frozen=True, slots=True)
class Setting:
    """kills: of all manners together. on_spark: so many of the first generations run on a Spark cluster, the others on bare site processes.
    calm_s: least and most time from new rows in all tables to the next kill, drawn."""

    kills: int = 30
    rate: int = 1_000
    on_spark: int = 0
    commit_s: float = 1.0
    seed: int = 1
    calm_s: tuple[float, float] = (0.2, 1.5)

    def manners(self) -> list[Manner]:
        manners = [MANNERS[number % len(MANNERS)] for number in range(self.kills)]
        Random(self.seed).shuffle(manners)
        return manners


@dataclass(slots=True)
class Struck:
    """kills: by manner. fenced: stale drivers that said that they were replaced. running_s: time in which rows came."""

    kills: Counter[str] = field(default_factory=Counter)
    fenced: int = 0
    running_s: float = 0.0


def strike(generation: TableGeneration, setting: Setting, say: Say) -> Struck:
    """Kill after kill, and rows in all tables between two; then the end is awaited."""
    random, struck, begun, generations = Random(setting.seed), Struck(), time.monotonic(), 1
    running, stale = Running(replace(generation, bare=setting.on_spark < 1)), list[Running]()
    try:
        _begins(running)
        for number, manner in enumerate([*setting.manners(), "end"], 1):
            seconds = _new_rows_s(generation)
            say(f"{number}: new rows in all tables after {seconds:.1f} s; {manner}")
            while stale:
                last = stale.pop().come_back()
                struck.fenced += last.startswith("Fenced")
                say(f"the stale driver has come back: {last[:100]}")
            time.sleep(random.uniform(*setting.calm_s))
            if manner == "end":
                break
            struck.kills[manner] += 1
            if manner.startswith("executor"):
                _kill_executors(running, 1 if manner == "executor" else None)
                continue
            if manner == "stale":
                running.hang()
                stale.append(running)
            else:
                running.kill()
            generations += 1
            running = Running(replace(generation, bare=setting.on_spark < generations))
            _begins(running)
        if (last := running.finish()) != "ended":
            raise ClusterError(f"the last generation did not end as it should: {last}")
    except BaseException:
        for each in [running, *stale]:
            each.kill()
        raise
    struck.running_s = time.monotonic() - begun
    return struck


def _begins(running: Running) -> None:
    if (line := running.said()) != "running":
        raise ClusterError(f"a generation did not begin: {line or 'it ended without a word'}")


def _new_rows_s(generation: TableGeneration) -> float:
    """Wait for rows in each of the tables that are in none of them now."""
    before, begun = _counts(generation), time.monotonic()
    while not all(now > was for now, was in zip(_counts(generation), before)):
        if time.monotonic() > begun + WITHIN_S:
            raise ClusterError(f"no new row in one of the tables within {WITHIN_S:.0f} s")
        time.sleep(10 * POLL_S)
    return time.monotonic() - begun


def _counts(generation: TableGeneration) -> list[int]:
    return [sum(rows for _, _, rows in generation.commits(name)) for name in TABLES]


def _kill_executors(running: Running, count: int | None) -> None:
    """kill -9 of executors with all below them. count: None: all."""
    parent_of = killing.parents()
    executors = [process for process in killing.below(running.process, parent_of) if killing.is_executor(process)]
    victims = [each for executor in executors[:count] for each in (executor, *killing.below(executor, parent_of))]
    killing.kill(victims)
    if not victims or not killing.gone(victims, 30.0):
        raise ClusterError("an executor of a killed cluster is still there, or there was none")


def compare(generation: TableGeneration) -> dict[str, dict[str, int]]:
    """Each table against the source, and its commits against the journal."""
    expected = made_rows(generation)
    durable = read_journal(find_location(generation.location).store).durable
    found = {}
    for name in TABLES:
        table = generation.read(name)
        columns = [table.column("key"), table.column("ts").cast("int64"), table.column("value")]
        there = Counter(zip(*(column.to_pylist() for column in columns), strict=True))
        commits = list(generation.commits(name))
        once = {(run, epoch) for run, epoch, _ in commits}
        found[name] = {
            "rows_compared": expected.total(), "rows_lost": (expected - there).total(), "rows_repeated": (there - expected).total(),
            "commits": len(commits), "orphan_commits": len(commits) - len(once) + sum(epoch > durable for _, epoch in once),
            "files": generation.files(name),
        }  # fmt: skip
    return found


def run(*, setting: Setting, quick: bool, say: Say) -> dict[str, Any]:
    with new_home() as home:
        generation = TableGeneration(home, rate=setting.rate, commit_s=setting.commit_s)
        say(f"{setting.rate:,} rows/s, a commit every {setting.commit_s:g} s: {setting.kills} kills")
        struck = strike(generation, setting, say)
        say("comparing the tables row by row")
        compared = compare(generation)
        entries = len(list((Path(home) / "location" / "journal").iterdir()))
    tables = {
        name: {"kills": struck.kills.total(), **facts, "files_per_minute": round(facts["files"] / struck.running_s * 60, 1)}
        for name, facts in compared.items()
    }
    return {
        "benchmark": "tables", "quick": quick, "rate": setting.rate, "commit_s": setting.commit_s, "tables": tables,
        "kills_by_manner": dict(struck.kills), "stale_drivers_fenced": struck.fenced, "seconds": round(struck.running_s, 1),
        "journal_entries": entries, "machine": machine(),
    }  # fmt: skip
