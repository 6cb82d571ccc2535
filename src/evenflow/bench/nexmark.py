"""`evenflow bench nexmark`: the 23 queries, rows per second beside Structured Streaming, and latency at a set rate.

Three figures per query. `rows_per_s`: both systems read the same Parquet files as fast as they can, into a sink that does nothing; the
beginning is not counted on either side, Evenflow's time ends with the last result. `p99_ms`: from an epoch's first row to a function in
the driver, at a set rate of events. `equal`: over fewer rows, whether what Evenflow puts out is what batch Spark SQL says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from evenflow import nexmark
from evenflow.bench.measuring import SITES, flow_to_end, machine
from evenflow.bench.nexmark_files import Events, events_for, newest_rows, same_rows
from evenflow.bench.spark_nexmark import Streamed, batch_answer, streamed
from evenflow.bench.throughput import ROOMY
from evenflow.errors import QueryError
from evenflow.nexmark import NexmarkQuery
from evenflow.sinks import Sink, callback, discard, memory
from evenflow.sources import NexmarkSource, Source, replay
from evenflow.sources.nexmark_events import GROUP, SHARES, STREAMS

if TYPE_CHECKING:
    from evenflow.query.builder import Dataflow
    from evenflow.world.spark.driver.engine import Engine

Say = Callable[[str], None]
KEEPS_UP: Final = 0.9
"""A query that takes in less than this part of what is due falls behind. Sites report their rows four times a second only."""
RIVAL: Final = {
    # All of the executor's memory for the heap, where the rival keeps its state.
    "spark.executor.memory": "2560m",
    # The files' times have no zone, and Spark has watermarks on times with a zone only.
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """rows: that a query reads, about. slices: of event time; a micro-batch is `slices_per_batch` of them. checked_events: over which
    answers are compared. rate: events per second where latency is measured, for `seconds` after `warm_s`. limit_s: for one run."""

    queries: tuple[str, ...] = nexmark.NAMES
    rows: int = 2_000_000
    slices: int = 12
    slices_per_batch: int = 3
    checked_events: int = 50_000
    epoch_rows: int = 1 << 15
    rate: int = 10_000
    warm_s: float = 3.0
    seconds: float = 10.0
    limit_s: float = 180.0

    @property
    def few(self) -> Events:
        """Those over which answers are compared."""
        return Events(self.checked_events, self.slices)

    def many(self, query: NexmarkQuery) -> Events:
        """Those over which rates are measured: of each query about as many rows."""
        return Events(events_for(self.rows, streams_of(query)), self.slices)


QUICK: Final = Setting(
    queries=("q0", "q8", "q20"), rows=200_000, slices=4, slices_per_batch=1, checked_events=10_000, warm_s=1.0, seconds=2.0
)


def setting_of(queries: str | None, *, quick: bool) -> Setting:
    """queries: names with commas, None: all, or those of a smoke test. Raises QueryError for a name that is none."""
    setting = QUICK if quick else Setting()
    if queries is None:
        return setting
    return replace(setting, queries=tuple(nexmark.query(name.strip()).name for name in queries.split(",")))


def streams_of(query: NexmarkQuery) -> tuple[str, ...]:
    """The streams of events that it reads."""
    return tuple(name for name in query.inputs if name in STREAMS)


def dataflow(query: NexmarkQuery, source: Callable[[str], Source], delay: str, sink: Sink) -> Dataflow:
    """The query on its streams. source: of a stream's name. delay: of the watermarks. Raises QueryError if it cannot run."""
    import evenflow as ef

    flow = ef.Dataflow(query.name)
    inputs: dict[str, Any] = {}
    for name in query.inputs:
        if name == nexmark.SIDE_INPUT:
            inputs[name] = flow.source(ef.sources.memory(nexmark.side_input()), name=name)
        else:
            inputs[name] = flow.source(source(name), name=name).with_watermark(nexmark.TIME_COLUMN, delay)
    ef.sql(query.sql, inputs).to(sink)
    return flow


def run(*, setting: Setting, quick: bool, say: Say) -> dict[str, Any]:
    """Measure the queries on both systems, each on a cluster of its own. Returns the object that --json prints."""
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    with tempfile.TemporaryDirectory(prefix="evenflow-nexmark-") as scratch:
        spark = embedded_session(ROOMY)
        try:
            ours = _evenflow(spark, setting, Path(scratch), say)
        finally:
            stop_session(spark)
        spark = embedded_session(ROOMY, conf=RIVAL)
        try:
            theirs = {name: _spark(spark, nexmark.query(name), setting, Path(scratch), ours[name].answer, say) for name in setting.queries}
        finally:
            stop_session(spark)
    queries = [row(name, ours[name], *theirs[name]) for name in setting.queries]
    return {
        "benchmark": "nexmark",
        "quick": quick,
        "rate": setting.rate,
        "checked_events": setting.checked_events,
        "queries": queries,
        "totals": totals(queries),
        "machine": machine(),
        "master": ROOMY,
    }


def row(name: str, ours: Ours, equal: bool | None, theirs: Streamed) -> dict[str, Any]:
    """One query of the result. Rates are rows of its input streams per second; what was not measured is None."""
    both = ours.rows_per_s is not None and theirs.rows_per_s is not None
    return {
        "name": name,
        "rows": ours.rows,
        "rows_per_s": _whole(ours.rows_per_s),
        "spark_rows_per_s": _whole(theirs.rows_per_s),
        "ratio": round(ours.rows_per_s / theirs.rows_per_s, 3) if both else None,  # type: ignore[operator]
        "p50_ms": ours.p50_ms,
        "p99_ms": ours.p99_ms,
        "equal": equal,
        "spark_mode": theirs.mode,
        "reason": ours.reason,
        "spark_reason": theirs.reason,
    }


def totals(queries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Over all queries. Rates are of all rows of the queries that both systems run, one query after the other."""
    both = [each for each in queries if each["ratio"] is not None]
    rows = sum(each["rows"] for each in both)
    ours_s, theirs_s = (sum(each["rows"] / each[rate] for each in both) for rate in ("rows_per_s", "spark_rows_per_s"))
    least = min(both, key=lambda each: each["ratio"], default={"ratio": None, "name": None})
    return {
        "ran": sum(each["rows_per_s"] is not None for each in queries),
        "equal": sum(each["equal"] is True for each in queries),
        "ran_on_both": len(both),
        "rows_per_s": round(rows / ours_s) if both else None,
        "spark_rows_per_s": round(rows / theirs_s) if both else None,
        "ratio": round(theirs_s / ours_s, 3) if both else None,
        "least_ratio": least["ratio"],
        "least_ratio_of": least["name"],
        "greatest_p99_ms": max((each["p99_ms"] for each in queries if each["p99_ms"] is not None), default=None),
    }


def _whole(rate: float | None) -> int | None:
    return None if rate is None else round(rate)


# ---------------------------------------------------------------- Evenflow


@dataclass(frozen=True, slots=True)
class Ours:
    """What Evenflow did with one query. answer: over few events; None, as the figures, if it cannot run it, and reason says why."""

    rows: int
    answer: pa.Table | None = None
    rows_per_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    reason: str | None = None


def _evenflow(spark: Any, setting: Setting, scratch: Path, say: Say) -> dict[str, Ours]:
    """Run every query three times: for its answer, which also warms it up, for its rate, and for its latency."""
    from evenflow.world.spark.driver.engine import Engine

    found = {}
    with Engine(spark, sites=SITES, epoch_rows=setting.epoch_rows) as engine:
        for name in setting.queries:
            query = nexmark.query(name)
            events = setting.many(query)
            try:
                answer = _answer(engine, query, setting, scratch)
            except QueryError as error:
                found[name] = Ours(events.rows(streams_of(query)), reason=str(error))
                say(f"{name}: {error}")
                continue
            flow = dataflow(query, _files(events, scratch), events.delay, discard())
            rate = flow_to_end(engine, flow, timeout_s=setting.limit_s).rows_per_s
            latency = _latency(engine, query, setting)
            found[name] = Ours(events.rows(streams_of(query)), answer, rate, *latency)
            say(f"{name}: Evenflow {rate:,.0f} rows/s, p99 {latency[1]} ms")
    return found


def _answer(engine: Engine, query: NexmarkQuery, setting: Setting, scratch: Path) -> pa.Table:
    """All rows that the query puts out; of states so far, the newest. Raises QueryError if Evenflow cannot run it."""
    out = memory()
    run = engine.start(dataflow(query, _files(setting.few, scratch), setting.few.delay, out))
    if not run.await_termination(setting.limit_s):
        run.stop()
        raise TimeoutError(f"{query.name} has not ended within {setting.limit_s} s: {run.progress()}")
    return newest_rows(out.rows(), query.newest)


def _files(events: Events, scratch: Path) -> Callable[[str], Source]:
    return lambda stream: replay(str(events.write(scratch, stream)), nexmark.TIME_COLUMN, None)


def _latency(engine: Engine, query: NexmarkQuery, setting: Setting) -> tuple[float | None, float | None]:
    """p50 and p99 from an epoch's first row to the sink, in the last `seconds`, milliseconds. None: it does not keep up with the rate."""
    run = engine.start(dataflow(query, lambda stream: NexmarkSource(stream, setting.rate), "0 seconds", callback(_nothing)))
    try:
        run.await_termination(setting.warm_s)
        before = run.numbers()
        run.await_termination(setting.seconds)
        after = run.numbers()
    finally:
        run.stop()
    due = setting.rate / GROUP * sum(SHARES[stream][1] for stream in streams_of(query)) * (after.seconds - before.seconds)
    kept_up = after.rows_in - before.rows_in >= KEEPS_UP * due
    return (after.p50_ms, after.p99_ms) if kept_up else (None, None)


def _nothing(epoch: int, batch: pa.RecordBatch) -> None:
    """A sink function to which only the way counts."""


# ---------------------------------------------------------------- Spark


def _spark(
    spark: Any, query: NexmarkQuery, setting: Setting, scratch: Path, answer: pa.Table | None, say: Say
) -> tuple[bool | None, Streamed]:
    """Whether the answer is batch Spark's, None without one, and what Structured Streaming did."""

    def folders(events: Events) -> dict[str, Path]:
        return {stream: events.write(scratch, stream) for stream in streams_of(query)}

    equal = None if answer is None else same_rows(answer, batch_answer(spark, query, folders(setting.few)))
    events = setting.many(query)
    theirs = streamed(
        spark,
        query,
        folders(events),
        delay=events.delay,
        rows=events.rows(streams_of(query)),
        slices_per_batch=setting.slices_per_batch,
        timeout_s=setting.limit_s,
    )
    say(f"{query.name}: equal {equal}, Structured Streaming {_whole(theirs.rows_per_s)} rows/s {theirs.reason or ''}")
    return equal, theirs
