"""`evenflow bench throughput`: rows per second beside Structured Streaming, on the same cluster, over the same Parquet files.

Both read whole 80-byte rows (the same predicate touches every column), both combine before the exchange where the aggregate allows it,
both are warmed up, and each workload runs on both sides one right after the other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from evenflow.bench.measuring import SITES, Flowed, flow_steadily, machine
from evenflow.bench.rows import link_copies, write_rows
from evenflow.bench.spark_rival import WHOLE_ROW, best_grouped_aggregation, row_window_average

if TYPE_CHECKING:
    from evenflow.query.builder import Dataflow

Say = Callable[[str], None]
ROOMY: Final = "local-cluster[4,2,3072]"
EPOCH_ROWS: Final = 1 << 18
FILES: Final = 16
HISTORY: Final = 100
SLIDE: Final = 10


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the result. copies: how often the files are read by Evenflow."""

    name: str
    keys: int
    distribution: Literal["uniform", "zipf"]
    query: Literal["grouped", "row_windows", "exchange", "views"]


WORKLOADS: Final = (
    Workload("grouped, 16,384 keys, uniform", 16_384, "uniform", "grouped"),
    Workload("grouped, 16,384 keys, Zipf 1.2", 16_384, "zipf", "grouped"),
    Workload("grouped, 1 M keys, uniform", 1_000_000, "uniform", "grouped"),
    Workload("grouped, 1 M keys, Zipf 1.2", 1_000_000, "zipf", "grouped"),
    Workload("row windows, 16,384 keys, uniform", 16_384, "uniform", "row_windows"),
    Workload("exchange of whole rows, 16,384 keys", 16_384, "uniform", "exchange"),
    Workload("three views of one another, 1 M keys, uniform", 1_000_000, "uniform", "views"),
)


def dataflow(workload: Workload, path: Path) -> Dataflow:
    """Evenflow's side of a workload over the Parquet files in `path`, read as fast as they are taken."""
    import evenflow as ef

    flow = ef.Dataflow(workload.query)
    rows = flow.source(ef.sources.replay(str(path), speed=None)).where(WHOLE_ROW.replace("TIMESTAMP_NTZ", "TIMESTAMP"))
    if workload.query == "grouped":
        out = rows.group_by("key").agg(n="count(*)", total="sum(value)", mean="avg(price)")
    elif workload.query == "row_windows":
        out = rows.group_by("key").rows(HISTORY, slide=SLIDE).agg(mean="avg(price)")
    elif workload.query == "views":
        # Whoever adds to a key moves it from one bucket to another, and these from one size to another: all but the first take back.
        totals = rows.group_by("key").agg(total="sum(value)", mode="changelog").with_columns(bucket="total % 65536")
        buckets = totals.group_by("bucket").agg(n="count(*)", total="sum(total)", mode="changelog")
        out = buckets.group_by("n").agg(buckets="count(*)", most="sum(total)", mode="changelog")
    else:
        # Every column is wanted behind the exchange and nothing is combined before it.
        whole = (f"max({name}) as {name}" for name in ("ts", "value", "price", "p0", "p1", "p2", "p3", "p4", "p5"))
        out = rows.group_by("key").agg(*whole, combine=False)
    out.to(ef.sinks.discard())
    return flow


def run(*, quick: bool, say: Say) -> dict[str, Any]:
    """Measure every workload on both systems. quick: few rows, a smoke test only. Returns the object that --json prints."""
    rows, copies = (1 << 20, 4) if quick else (1 << 23, 6)
    chosen = WORKLOADS[:1] + WORKLOADS[4:5] if quick else WORKLOADS
    results = []
    with tempfile.TemporaryDirectory(prefix="evenflow-bench-") as scratch:
        for workload in chosen:
            path = Path(scratch) / f"{workload.keys}-{workload.distribution}"
            if not path.exists():
                say(f"writing {rows:,} rows: {path.name}")
                write_rows(path, rows, workload.keys, workload.distribution, FILES)
        for workload in chosen:
            path = Path(scratch) / f"{workload.keys}-{workload.distribution}"
            results.append(_measure(workload, sorted(path.iterdir()), Path(scratch), copies, quick, say))
    return {"benchmark": "throughput", "row_bytes": 80, "quick": quick, "workloads": results, "machine": machine(), "master": ROOMY}


def _measure(workload: Workload, files: list[Path], scratch: Path, copies: int, quick: bool, say: Say) -> dict[str, Any]:
    say(f"{workload.name}: Evenflow")
    path = scratch / f"copies-{workload.keys}-{workload.distribution}"
    if not path.exists():
        link_copies(files, path, copies)
    ours = _evenflow(workload, path, say)
    measured: dict[str, Any] = {
        "name": workload.name,
        "evenflow_rows_per_s": round(ours.rows_per_s),
        "spark_rows_per_s": None,
        "ratio": None,
        "evenflow_cpu_s_per_million_rows": round(ours.cpu_s_per_million_rows, 4),
        "evenflow_epochs_per_s": round(ours.epochs / ours.seconds, 1),
    }
    if workload.query in ("exchange", "views"):  # Structured Streaming has none of these: no query of one aggregate over another.
        return measured
    say(f"{workload.name}: Structured Streaming")
    theirs, settings = _spark(workload, files, quick)
    measured.update(spark_rows_per_s=round(theirs), ratio=round(ours.rows_per_s / theirs, 3), spark_best=settings)
    say(f"{workload.name}: {ours.rows_per_s:,.0f} and {theirs:,.0f} rows/s")
    return measured


def _evenflow(workload: Workload, path: Path, say: Say) -> Flowed:
    from evenflow.world.spark.cluster.session import embedded_session, stop_session
    from evenflow.world.spark.driver.engine import Engine

    spark = embedded_session(ROOMY)
    try:
        with Engine(spark, sites=SITES, epoch_rows=EPOCH_ROWS) as engine:
            flow_steadily(engine, dataflow(workload, path))
            return flow_steadily(engine, dataflow(workload, path))
    finally:
        stop_session(spark)


def _spark(workload: Workload, files: list[Path], quick: bool) -> tuple[float, dict[str, Any]]:
    """Rows per second of the best setting, and that setting."""
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    # All of the executor's memory for the heap: the rival keeps its state there, and a million keys need it.
    spark = embedded_session(ROOMY, conf={"spark.executor.memory": "2560m"})
    try:
        if workload.query == "row_windows":
            best = row_window_average(spark, files[: 1 if quick else 2], files_per_batch=1, history=HISTORY, slide=SLIDE)
        elif quick:
            best = best_grouped_aggregation(
                spark, files, files_per_batch=(8,), shuffle_partitions=(4,), state_stores=("hdfs",), batches=2
            ).best
        else:
            # Larger batches and the default state store were best in every wider sweep; a batch here is a half and the whole of the files.
            many = workload.keys >= 1_000_000
            best = best_grouped_aggregation(
                spark,
                files,
                files_per_batch=(16,) if many else (8, 16),
                shuffle_partitions=(4,),
                state_stores=("hdfs",),
                batches=2 if many else 3,
            ).best
    finally:
        stop_session(spark)
    settings = {"batch_rows": best.batch_rows, "shuffle_partitions": best.shuffle_partitions, "state_store": best.state_store}
    return best.rows_per_s, settings
