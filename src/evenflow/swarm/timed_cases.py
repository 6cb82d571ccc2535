"""Small dataflows of processors with timers, with the answers of plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any, Final

import numpy as np

import evenflow as ef
from evenflow.swarm.cases import Case, Complaint, Tables, counts_of, differ, every_row, make_rows, rows_of, source, too_much
from evenflow.swarm.shaped_cases import by_key, drawn, stamp

GAP: Final = 150


class Visits(ef.Processor):
    """Sessions of a key; and a reminder while one goes on, which comes once."""

    output = "k bigint, what string, at timestamp, n bigint, total bigint"

    def open(self, store: Any) -> None:
        store.timeout("over", timedelta(microseconds=GAP))
        store.timer("long")
        store.value("n", "bigint", default=0)
        store.value("total", "bigint", default=0)

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> None:
        if state.n == 0:
            state.long = rows["ts"][0].as_py() + timedelta(microseconds=2 * GAP)
        state.n += rows.num_rows
        state.total += sum(rows["v"].to_pylist())

    def expired(self, key: tuple[Any, ...], timer: ef.Timer, state: Any) -> Any:
        if timer.name == "long":
            return [(key[0], "long", timer.time, None, None)]
        made = [(key[0], "over", timer.time, state.n, state.total)]
        state.n = state.total = state.long = None
        return made


class VisitArrays(ef.BatchProcessor):
    """The same for all keys at once."""

    output = Visits.output

    def open(self, store: Any) -> None:
        Visits.open(self, store)  # type: ignore[arg-type]

    def process(self, rows: Any, groups: ef.Groups, state: Any) -> None:  # type: ignore[override]
        times = rows["ts"].to_numpy(zero_copy_only=False)[groups.starts]
        state.long.put(times + np.timedelta64(2 * GAP, "us"), state.n.get() == 0)
        state.n.put(state.n.get() + groups.counts)
        state.total.put(state.total.get() + np.add.reduceat(rows["v"].to_numpy(), groups.starts))

    def expired(self, timers: ef.Timers, state: Any) -> Any:  # type: ignore[override]
        made: dict[str, Any] = {"k": timers.keys["k"], "what": [timers.name] * len(timers), "at": timers.times}
        if timers.name == "long":
            return {**made, "n": [None] * len(timers), "total": [None] * len(timers)}, np.arange(len(timers))
        made |= {"n": state.n.get(), "total": state.total.get()}
        for name in ("n", "total", "long"):
            getattr(state, name).clear()
        return made, np.arange(len(timers))


def timeouts(random: Random, rows: int) -> Case:
    """Visits by event time: what timers give does not depend on epochs. In a window behind them, which goes by their time."""
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    flow, stream = drawn("timeouts", parts, random, random.choice(["0 seconds", "1 second"]))
    visits = stream.key_by("k").process(random.choice([Visits(), VisitArrays()])).name("visits")
    visits.to(ef.sinks.memory("out"), name="out")
    answer: list[tuple[Any, ...]] = []
    for k, mine in by_key(parts).items():
        cuts = [0, *(at + 1 for at, (one, other) in enumerate(pairwise(mine)) if other[0] - one[0] > GAP), len(mine)]
        for start, stop in pairwise(cuts):
            # Of one time, what was declared first comes first.
            first, over = mine[start][0], mine[stop - 1][0] + GAP
            if first + 2 * GAP < over:
                answer.append((k, "long", stamp(first + 2 * GAP), None, None))
            answer.append((k, "over", stamp(over), stop - start, sum(v for _, _, v in mine[start:stop])))
    return Case(flow, {"in": counts_of(parts)}, **every_row(answer))


class Silences(ef.Processor):
    """How many rows of a key came between two silences, by the stamps of epochs."""

    output = "k bigint, n bigint, at timestamp, now timestamp"

    def __init__(self, after: timedelta) -> None:
        self.after = after

    def open(self, store: Any) -> None:
        store.timeout("silent", self.after, time="processing")
        store.value("n", "bigint", default=0)

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> None:
        state.n += rows.num_rows

    def expired(self, key: tuple[Any, ...], timer: ef.Timer, state: Any) -> Any:
        n, state.n = state.n, None
        return [(key[0], n, timer.time, state.now)]


def silences(random: Random, rows: int) -> Case:
    """Silences by processing time, on rows as they arrive: when they are is the run's to say, but every row comes in one of them, once."""
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    flow = ef.Dataflow("silences")
    after = timedelta(milliseconds=random.choice([1, 10, 100, 5_000]))
    stream = flow.source(source(parts, random), name="in")
    stream.key_by("k").process(Silences(after)).name("silences").to(ef.sinks.memory("out"), name="out")
    inputs = Counter(k for part in parts for _, k, _ in part)

    def found(tables: Tables) -> Counter[int]:
        seen: Counter[int] = Counter()
        for k, n, _, _ in rows_of(tables["out"]):
            seen[k] += n
        return seen

    def judge_part(tables: Tables) -> Complaint:
        wrong = [row for row in rows_of(tables["out"]) if row[1] < 1]
        return f"silences without rows before them: {wrong[:3]}" if wrong else too_much(found(tables).elements(), inputs.elements())

    def judge(tables: Tables) -> Complaint:
        return judge_part(tables) or differ(found(tables).elements(), inputs.elements())

    return Case(flow, {"in": counts_of(parts)}, judge, judge_part)


TIMED: Final[Mapping[str, Callable[[Random, int], Case]]] = {"silences": silences, "timeouts": timeouts}
