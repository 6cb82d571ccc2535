"""`evenflow bench checkpoint`: what checkpoints of a large state cost while rows keep coming, by turns with the same run without them.

The state is filled in once, and one checkpoint is taken that nobody measures: it has all of it. Then the same run goes on by turns
without checkpoints and with one every so many seconds, so that both have the same state, processes and load. Between the two one more is
taken of which only the bytes are measured: it has what has changed in all of the turn without, and those that count what has changed
since the one before.
The journal is there all the time. A result row's age is its arrival at the sink in the driver minus the time at which its newest row was
due; gaps are those between two moments of output. CPU is that of the sites' Python processes; changed rows are the distinct keys that came
out between two checkpoints.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from evenflow.availability.retained import folder_of
from evenflow.bench.events import ScheduledEvents
from evenflow.bench.gaps import longest_gap, percentile_ms, usual_gaps, within
from evenflow.bench.measuring import MASTER, SITES, cpu_of, machine
from evenflow.bench.moves import YOUNG_S
from evenflow.errors import ClusterError
from evenflow.stream.arrays import Floats, Int64s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenflow.query.builder import Dataflow
    from evenflow.world.spark.driver.run import Run

Say = Callable[[str], None]
ROW_BYTES: Final = 64
"""Of one key's state in memory: its identity, a count, a sum, and the newest time."""
FILL_ROWS_PER_S: Final = 50_000
"""A machine that fills the state in more slowly is too slow for the rate."""
DONE_WITHIN_S: Final = 120.0
SETTLE_S: Final = 2.0
"""Between two turns: what one has begun is not the other's."""


@dataclass(frozen=True, slots=True)
class Setting:
    """state_mb: of the keys' state, once, in millions of bytes. rate: rows/s. every_s: from one checkpoint to the next. turn_s: how long
    one turn takes. turns: pairs of them; with six, 24 checkpoints follow the first, after which each partition has a new base."""

    state_mb: int = 1_024
    rate: int = 50_000
    every_s: float = 10.0
    turn_s: float = 30.0
    turns: int = 6
    partitions: int = 64

    @property
    def keys(self) -> int:
        return max(self.partitions, self.state_mb * 1_000_000 // ROW_BYTES)


QUICK: Final = Setting(state_mb=50, rate=10_000, every_s=2.0, turn_s=6.0, turns=1)


class Answers:
    """The sink. Notes when something came, how old its rows were, and the keys of each epoch."""

    def __init__(self) -> None:
        self._moments: list[float] = []
        self._found: list[tuple[int, pa.Array, Int64s]] = []
        self.counting = False

    def __call__(self, epoch: int, batch: pa.RecordBatch) -> None:
        if self.counting and batch.num_rows:
            self._moments.append(time.monotonic())
            due = batch.column("newest").cast(pa.int64()).to_numpy()
            self._found.append((epoch, batch.column("key"), time.time_ns() // 1000 - due))

    def ages(self) -> tuple[Floats, Floats, Floats]:
        """(moments of output, the moment of each row, its age), all in seconds, in order."""
        moments = np.array(self._moments)
        ages = [age for _, _, age in self._found]
        rows = np.repeat(moments, [age.size for age in ages])
        return moments, rows, np.concatenate(ages) / 1e6 if ages else np.empty(0)

    def changed(self, after: int, through: int) -> int:
        """How many keys have changed in these epochs."""
        keys = [key.to_numpy() for epoch, key, _ in self._found if after < epoch <= through]
        return int(np.unique(np.concatenate(keys)).size) if keys else 0


@dataclass(frozen=True, slots=True)
class Taken:
    """A checkpoint. seconds: until it was whole. epoch: as of whose end it is. bytes: that it has brought to the store."""

    seconds: float
    epoch: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn. begin_s, end_s: monotonic. cpu_s: of the sites in that time. rows: taken in. taken: the checkpoints."""

    begin_s: float
    end_s: float
    cpu_s: float
    rows: int
    taken: Sequence[Taken]


def dataflow(source: ScheduledEvents, answers: Callable[[int, pa.RecordBatch], None]) -> Dataflow:
    import evenflow as ef

    flow = ef.Dataflow("bench_checkpoint")
    totals = flow.source(source, name="events").group_by("key").agg(n="count(*)", newest="max(ts)", combine=False).name("totals")
    totals.to(ef.sinks.callback(answers), name="answers")
    return flow


def run(*, setting: Setting, quick: bool, say: Say) -> dict[str, Any]:
    """Measure. Returns the object that --json prints. Raises ClusterError if the machine is too slow for the rate."""
    answers = Answers()
    with (
        tempfile.TemporaryDirectory(prefix="evenflow-bench-") as home,
        _running(setting, location_in(home), answers, say) as run,
    ):
        say("the first checkpoint, which has everything")
        location, answers.counting = location_in(home), True
        taken, without, during = [_taken(run, location)], list[Turn](), list[Turn]()
        for number in range(setting.turns):
            say(f"turn {number + 1} of {setting.turns}: without checkpoints, then one every {setting.every_s:g} s")
            without.append(_turn(run, location, setting.turn_s, None))
            taken.append(_taken(run, location))
            during.append(_turn(run, location, setting.turn_s, setting.every_s))
            taken += during[-1].taken
        answers.counting = False
        state_bytes = sum(site.state_bytes for site in run.numbers().sites)
        took_s = [each.seconds for turn in during for each in turn.taken]
    return {
        "benchmark": "checkpoint",
        "quick": quick,
        "state_mb": round(setting.keys * ROW_BYTES / 1e6),
        "sites_state_mb": round(state_bytes / 1e6),
        **judged(answers, without, during),
        **_bytes(answers, taken),
        "whole_s": round(taken[0].seconds, 2),
        "checkpoint_s_p50": round(float(np.median(took_s)), 2),
        "checkpoint_s_max": round(max(took_s), 2),
        "checkpoints": len(took_s),
        "setting": dataclasses.asdict(setting),
        "machine": machine(),
        "master": MASTER,
    }


def location_in(home: str) -> str:
    return str(Path(home) / "location")


@contextmanager
def _running(setting: Setting, location: str, answers: Answers, say: Say) -> Iterator[Run]:
    """The query with all its state. It takes no checkpoint of its own accord."""
    from evenflow.world.spark.cluster.session import embedded_session, stop_session
    from evenflow.world.spark.driver.engine import Engine

    spark = embedded_session(MASTER, "evenflow-bench-checkpoint")
    try:
        with Engine(spark, sites=SITES, partitions=setting.partitions, balance="none", checkpoint_s=None, place_timeout_s=300.0) as engine:
            begin_us = time.time_ns() // 1000
            source = ScheduledEvents(setting.rate, 2**50, setting.keys, count=SITES, begin_us=begin_us, at_once=setting.keys)
            run = engine.start(dataflow(source, answers), checkpoint_location=location)
            try:
                say(f"{setting.keys:,} keys are filled in")
                _fill(run, source)
                yield run
            finally:
                run.stop()
    finally:
        stop_session(spark)


def _fill(run: Run, source: ScheduledEvents) -> None:
    """Wait until every key is there and no rows are waiting. Raises ClusterError if that takes too long."""
    deadline_s = time.monotonic() + 60.0 + source.at_once / FILL_ROWS_PER_S
    while source.due(time.time_ns() // 1000) - run.numbers().rows_in > YOUNG_S * source.rate:
        if time.monotonic() > deadline_s:
            raise ClusterError(f"rows still wait: this machine is too slow for {source.rate:,} rows/s with {source.at_once:,} keys")
        run.await_termination(0.25)


def _taken(run: Run, location: str) -> Taken:
    """A checkpoint that is asked for now. Raises ClusterError if it does not become whole."""
    began_s = time.monotonic()
    made = run.checkpoint(DONE_WITHIN_S)
    seconds, folder = time.monotonic() - began_s, Path(location) / folder_of(made["generation"], made["number"])
    return Taken(seconds, made["epoch"], sum(file.stat().st_size for file in folder.iterdir()))


def _turn(run: Run, location: str, seconds: float, every_s: float | None) -> Turn:
    run.await_termination(SETTLE_S)
    before, begin_s, taken = run.numbers(), time.monotonic(), list[Taken]()
    cpu_s, due_s = cpu_of(before), begin_s
    while every_s is not None and due_s < begin_s + seconds:
        run.await_termination(max(0.0, due_s - time.monotonic()))
        taken.append(_taken(run, location))
        due_s += every_s
    run.await_termination(max(0.0, begin_s + seconds - time.monotonic()))
    after = run.numbers()
    return Turn(begin_s, time.monotonic(), cpu_of(after) - cpu_s, after.rows_in - before.rows_in, taken)


def judged(answers: Answers, without: Sequence[Turn], during: Sequence[Turn]) -> dict[str, Any]:
    """Ages and gaps of both kinds of turns, and what CPU a row took."""
    moments, rows, ages = answers.ages()
    calm, busy = [(turn.begin_s, turn.end_s) for turn in without], [(turn.begin_s, turn.end_s) for turn in during]
    p99_ms, p99_ms_without = (percentile_ms(within(rows, ages, spans), 99) for spans in (busy, calm))
    length_s = min(end_s - begin_s for begin_s, end_s in busy)
    usual = usual_gaps(moments, calm, length_s) or [longest_gap(moments, *span).seconds for span in calm]
    cpu, cpu_without = (sum(turn.cpu_s for turn in turns) / sum(turn.rows for turn in turns) for turns in (during, without))
    return {
        "rows_per_s": round(sum(turn.rows for turn in during) / sum(turn.end_s - turn.begin_s for turn in during)),
        "p50_ms": percentile_ms(within(rows, ages, busy), 50),
        "p50_ms_without": percentile_ms(within(rows, ages, calm), 50),
        "p99_ms": p99_ms,
        "p99_ms_without": p99_ms_without,
        "p99_ratio": round(p99_ms / p99_ms_without, 3) if p99_ms and p99_ms_without else None,
        "longest_gap_ms": round(1e3 * max(longest_gap(moments, *span).seconds for span in busy), 1),
        "longest_gap_ms_without": round(1e3 * max(usual), 1),
        "cpu_ratio": round(cpu / cpu_without, 3),
    }


def _bytes(answers: Answers, taken: Sequence[Taken]) -> dict[str, Any]:
    """What was written against what had changed since the checkpoint before, over all of them but the first: also those that the location
    has forgotten by now, since the first sixteen behind the first one have changes only, and the next eight new bases besides."""
    wrote = sum(each.bytes for each in taken[1:])
    changed = sum(answers.changed(before.epoch, after.epoch) for before, after in pairwise(taken))
    return {
        "whole_bytes": taken[0].bytes,
        "bytes_p50": int(np.median([each.bytes for each in taken[1:]])),
        "bytes_max": max(each.bytes for each in taken[1:]),
        "changed_rows": changed,
        "bytes_ratio": round(wrote / (changed * ROW_BYTES), 3) if changed else None,
    }
