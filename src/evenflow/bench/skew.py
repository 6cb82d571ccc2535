"""`evenflow bench skew`: keys of drifting popularity and one slow executor, with and without balancing, beside Structured Streaming.

What a system sustains is measured in a closed loop: rows are read as fast as they are taken, and the ingress takes what the slowest
site lets it. The age of answers over time is measured at a rate between what Evenflow sustains with and without balancing: there one
of them falls behind and the other must not. An age counts from when a row was due, so rows that wait unread grow old as well.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenflow.bench.delivered import Audit, Delivered, Probe, audit, probed, ramp, rounded
from evenflow.bench.drifting import DriftingRows, Popularity
from evenflow.bench.measuring import MASTER, SITES, machine
from evenflow.bench.monitored import Output
from evenflow.bench.slowed import EMULATED, RowCost, RunningCounts
from evenflow.errors import ClusterError
from evenflow.world.spark.driver.options import EngineOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evenflow.query.builder import Dataflow
    from evenflow.world.spark.driver.engine import Engine

Say = Callable[[str], None]
FIRST_ANSWER_S: Final = 120.0
SLOW_SITE: Final = 1
"""With the default keys about a quarter of the rows belong there at first, however they drift: it has neither good luck nor bad."""
WARM_ROWS: Final = 10_000
RAMP: Final = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
"""Rates of the ramp, as parts of what the closed loop sustains."""
BALANCING: Final = "evenflow"
NO_BALANCING: Final = "none"
MOVED: Final = "move_done"
"""The kind of event that tells of a move when it is over."""
OF_A_MOVE: Final = ("segment", "partitions", "source", "target", "bytes", "stall_ms", "reason", "text")
BETWEEN: Final = "what static and balanced sustain"
NOT_BALANCED: Final = "what static sustains and what the executors could do: this engine cannot balance, so there is no `balanced`"


@dataclass(frozen=True, slots=True)
class Setting:
    """warm_s: what a run does in this time is not measured; balancing finds its first balance in it. seconds: measured. linger_ms,
    epoch_rows: of the engine; the second bounds an epoch's work, and so how much of it waits for the slowest site. ramped: also search
    what is sustained at set rates. rival_tunings: (shuffle partitions, rows of a micro-batch) that Structured Streaming is tried with."""

    popularity: Popularity = field(default_factory=Popularity)
    cost: RowCost = field(default_factory=RowCost)
    warm_s: float = 12.0
    seconds: float = 24.0
    probe_s: float = 9.0
    linger_ms: float = 20.0
    epoch_rows: int = 128
    ramped: bool = False
    rival_tunings: tuple[tuple[int, int], ...] = ((4, 8000), (16, 16000))


QUICK: Final = Setting(warm_s=2.0, seconds=4.0, probe_s=3.0, rival_tunings=((4, 2000),))


@dataclass(frozen=True, slots=True)
class Ran:
    """One run. seen: what came out, by seconds since its first answer. cold_s: how much of that is not measured. moves: `at_s` alike."""

    seen: Delivered
    cold_s: float
    end_s: float
    audit: Audit
    moves: tuple[dict[str, Any], ...]

    @property
    def measured(self) -> Delivered:
        return self.seen.between(self.cold_s, self.end_s)


def dataflow(setting: Setting, rate: int | None, answers: Output, rows: int | None = None) -> Dataflow:
    """Every row is answered. rate: rows/s, None: as fast as they are taken. rows: None: endless."""
    import evenflow as ef

    flow = ef.Dataflow("skew")
    source = flow.source(DriftingRows(setting.popularity, rate, rows), name="rows")
    source.key_by("key").process(RunningCounts(setting.cost)).name("counts").to(ef.sinks.callback(answers), name="answers")
    return flow


def can_balance() -> bool:
    """Whether this engine has a choice of balancing policies."""
    return any(option.name == "balance" for option in dataclasses.fields(EngineOptions))


@contextmanager
def started(spark: SparkSession, setting: Setting, *, balanced: bool) -> Iterator[tuple[Engine, Setting]]:
    """Sites that are warm, and the setting with the executor of site SLOW_SITE as the slow one."""
    with engine(spark, setting, balanced=balanced) as sites:
        run = sites.start(dataflow(replace(setting, cost=RowCost(0.0)), None, Output(), WARM_ROWS))
        if not run.await_termination(FIRST_ANSWER_S):
            raise ClusterError(f"{WARM_ROWS} rows that cost nothing took more than {FIRST_ANSWER_S:.0f} s")
        slow = sorted(run.numbers().sites, key=lambda site: site.site)[SLOW_SITE]
        yield sites, replace(setting, cost=replace(setting.cost, slow_executor=slow.executor))


def engine(spark: SparkSession, setting: Setting, *, balanced: bool) -> Engine:
    from evenflow.world.spark.driver.engine import Engine

    policy: dict[str, Any] = {"balance": BALANCING if balanced else NO_BALANCING} if can_balance() else {}
    return Engine(spark, sites=SITES, linger_ms=setting.linger_ms, epoch_rows=setting.epoch_rows, **policy)


def run_once(engine: Engine, setting: Setting, rate: int | None, *, warm_s: float, seconds: float) -> Ran:
    """Run the dataflow, from its first answer on for `warm_s` and then `seconds`, and stop it. Raises what the run raises, and
    ClusterError if there is no answer within FIRST_ANSWER_S."""
    answers = Output()
    began_s = time.monotonic()
    run = engine.start(dataflow(setting, rate, answers))
    try:
        while answers.last is None:
            run.await_termination(0.05)
            if time.monotonic() - began_s > FIRST_ANSWER_S:
                raise ClusterError(f"no answer within {FIRST_ANSWER_S:.0f} s")
        first_s = float(answers.moments[0])
        run.await_termination(max(0.0, first_s + warm_s + seconds - time.monotonic()))
        # Events count from the run's own beginning, which is just before `start` returns.
        moves = moves_of(run.events(), first_s - began_s)
    finally:
        run.stop()
    table, clocks = answers.rows()
    assert table is not None
    columns = {name: np.asarray(table[name]) for name in ("number", "key", "due_us", "rows")}
    checked = audit(columns["number"], columns["key"], columns["rows"], SITES)
    seen = Delivered((clocks - clocks[0]) / 1e6, (clocks - columns["due_us"]) / 1e3, np.ones(len(clocks)))
    return Ran(seen, warm_s, warm_s + seconds, checked, moves)


def moves_of(events: Sequence[Mapping[str, Any]], first_answer_s: float) -> tuple[dict[str, Any], ...]:
    """The moves that were carried out, of a run's events, by the time since its first answer. What an event does not tell is None."""
    moves = []
    for event in events:
        if event["kind"] == MOVED:
            told = {**event.get("details", {}), **event}
            moves.append({"at_s": round(event["at_s"] - first_answer_s, 3), **{name: told.get(name) for name in OF_A_MOVE}})
    return tuple(moves)


def sustained(spark: SparkSession, setting: Setting, say: Say, *, balanced: bool) -> tuple[float, dict[str, Any]]:
    """Rows per second of Evenflow in a closed loop, and what is reported of it."""
    name = "balanced" if balanced else "static"
    with started(spark, setting, balanced=balanced) as (sites, setting):
        say(f"{name}: rows as fast as they are taken")
        ran = run_once(sites, setting, None, warm_s=setting.warm_s, seconds=setting.seconds)
        rows_per_s = _known(ran.measured.rows_per_s, name)
        report: dict[str, Any] = {
            "rows_per_s": round(rows_per_s, 1),
            "rows_per_s_over_time": [[p["at_s"], p["rows_per_s"]] for p in ran.seen.over_time(ran.end_s)],
            "throughput_moves": list(ran.moves),
            "checked": ran.audit.to_json(),
        }
        if setting.ramped:

            def measure(rate: int) -> Probe:
                say(f"{name}: {rate:,} rows/s")
                warm_s = setting.warm_s / 2
                seen = run_once(sites, setting, rate, warm_s=warm_s, seconds=setting.probe_s).seen
                return probed(rate, seen, warm_s, warm_s + setting.probe_s)

            report |= ramped(rows_per_s, measure)
    say(f"{name}: {rows_per_s:,.0f} rows/s")
    return rows_per_s, report


def ramped(rows_per_s: float, measure: Callable[[int], Probe]) -> dict[str, Any]:
    """What is sustained at set rates, searched around what the closed loop gave."""
    found, probes = ramp([round(part * rows_per_s) for part in RAMP], measure)
    each = [dataclasses.asdict(probe) | {"falls_behind": probe.falls_behind} for probe in probes]
    return {"ramp_rows_per_s": found, "ramp": each}


def at_rate(spark: SparkSession, setting: Setting, rate: int, say: Say, *, balanced: bool) -> dict[str, Any]:
    """Ages of Evenflow's answers at a set rate, over time."""
    say(f"{'balanced' if balanced else 'static'}: {rate:,} rows/s")
    with started(spark, setting, balanced=balanced) as (sites, setting):
        ran = run_once(sites, setting, rate, warm_s=setting.warm_s, seconds=setting.seconds)
    return {**ages(ran.seen, ran.cold_s, ran.end_s), "checked_at_rate": ran.audit.to_json(), "moves": list(ran.moves)}


def ages(seen: Delivered, first_s: float, last_s: float) -> dict[str, Any]:
    """p50_ms and p99_ms between two moments, and p99_ms over time from the beginning on."""
    measured = seen.between(first_s, last_s)
    return {
        "p50_ms": rounded(measured.age_percentile_ms(50)),
        "p99_ms": rounded(measured.age_percentile_ms(99)),
        "p99_ms_over_time": [[piece["at_s"], piece["p99_ms"]] for piece in seen.over_time(last_s)],
    }


def rival(setting: Setting, rate: int, say: Say) -> dict[str, Any]:
    """Structured Streaming on a cluster of its own of the same kind: the best of its settings in a closed loop, then that at the rate."""
    from evenflow.bench.spark_skew import TASK_CPUS, Tuning, streaming_counts
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    def measure(rate: int | None, tuning: Tuning, warm_s: float, seconds: float) -> Delivered:
        return streaming_counts(
            spark, setting.popularity, setting.cost, rate=rate, tuning=tuning, partitions=SITES, warm_s=warm_s, seconds=seconds
        )

    # A key's rows go where its state is; to wait for that executor is of no use to a batch whose other tasks have long been done.
    spark = embedded_session(MASTER, conf={"spark.task.cpus": str(TASK_CPUS), "spark.locality.wait": "0s"})
    try:
        tried = []
        for tuning in (Tuning(*each) for each in setting.rival_tunings):
            say(f"Structured Streaming: rows as fast as they are taken, {tuning.shuffle_partitions} partitions")
            seen = measure(None, tuning, setting.warm_s, setting.seconds)
            tried.append((_known(seen.between(setting.warm_s, np.inf).rows_per_s, "Structured Streaming"), tuning, seen))
        rows_per_s, tuning, seen = max(tried, key=lambda each: each[0])
        say(f"Structured Streaming: {rows_per_s:,.0f} rows/s; now {rate:,} rows/s")
        aged = measure(rate, tuning, setting.warm_s, setting.seconds)
        report: dict[str, Any] = {
            "rows_per_s": round(rows_per_s, 1),
            "rows_per_s_over_time": [[piece["at_s"], piece["rows_per_s"]] for piece in seen.over_time(seen.at_s[-1])],
            "settings": dataclasses.asdict(tuning),
            "tried": [{**dataclasses.asdict(each), "rows_per_s": round(found, 1)} for found, each, _ in tried],
            **ages(aged, setting.warm_s, np.nextafter(aged.at_s[-1], np.inf)),
        }
        if setting.ramped:

            def probe(rate: int) -> Probe:
                say(f"Structured Streaming: {rate:,} rows/s")
                warm_s = setting.warm_s / 2
                return probed(rate, measure(rate, tuning, warm_s, setting.probe_s), warm_s, warm_s + setting.probe_s)

            report |= ramped(rows_per_s, probe)
        return report
    finally:
        stop_session(spark)


def beside(setting: Setting, rate: int, say: Say) -> dict[str, Any]:
    """The rival's part of the result. Whatever happens to it, what was measured before is not thrown away: `spark_failed` says why."""
    try:
        return {"spark": rival(setting, rate, say)}
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
        say(f"Structured Streaming: {failed}")
        return {"spark": None, "spark_failed": failed}


def rate_between(static: float, balanced: float | None, capacity: float) -> int:
    """Halfway between what Evenflow sustains without and with balancing, or what the executors could do if it cannot balance. rows/s."""
    return round((static + (capacity if balanced is None else balanced)) / 2)


def run(*, setting: Setting, quick: bool, say: Say) -> dict[str, Any]:
    """Measure all systems, each on sites or a cluster of its own. Returns the object that --json prints."""
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    say(EMULATED)
    if not can_balance():
        say(NOT_BALANCED)
    balanced_rows, balanced = None, None
    spark = embedded_session(MASTER)
    try:
        static_rows, static = sustained(spark, setting, say, balanced=False)
        if can_balance():
            balanced_rows, balanced = sustained(spark, setting, say, balanced=True)
        capacity = setting.cost.capacity(SITES)
        rate = rate_between(static_rows, balanced_rows, capacity)
        static |= at_rate(spark, setting, rate, say, balanced=False)
        if balanced is not None:
            balanced |= at_rate(spark, setting, rate, say, balanced=True)
    finally:
        stop_session(spark)
    ratios = compared(static, balanced)
    if balanced is not None:
        say(f"balanced to static: throughput_ratio {ratios['throughput_ratio']}, p99_ratio {ratios['p99_ratio']}")
    return {
        "benchmark": "skew",
        "quick": quick,
        "emulated": EMULATED,
        "capacity_rows_per_s": round(capacity),
        "rate": rate,
        "rate_is_between": BETWEEN if balanced is not None else NOT_BALANCED,
        **ratios,
        "systems": ["static", "balanced", "spark"],
        "static": static,
        "balanced": balanced,
        **beside(setting, rate, say),
        "moves": balanced["moves"] if balanced is not None else [],
        "setting": dataclasses.asdict(setting),
        "hottest_key_share": round(setting.popularity.share(0), 4),
        "machine": machine(),
        "master": MASTER,
    }


def compared(static: Mapping[str, Any], balanced: Mapping[str, Any] | None) -> dict[str, float | None]:
    """throughput_ratio: how many times as much balancing sustains. p99_ratio: its age as a part of the one without. None without it."""
    if balanced is None or balanced["p99_ms"] is None or not static["p99_ms"]:
        return {"throughput_ratio": None, "p99_ratio": None}
    return {
        "throughput_ratio": round(balanced["rows_per_s"] / static["rows_per_s"], 3),
        "p99_ratio": round(balanced["p99_ms"] / static["p99_ms"], 4),
    }


def _known(rows_per_s: float | None, name: str) -> float:
    if rows_per_s is None:
        raise ClusterError(f"{name}: too little came out to know a rate: measure for longer")
    return rows_per_s
