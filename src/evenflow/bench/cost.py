"""`evenflow bench cost`: what Evenflow itself costs. CPU per epoch and per row, idle, memory, and the time to the first result.

CPU seconds are those of the sites' Python processes, from the operating system, so other load on the machine changes them little.
Variants that are compared run in turn in one engine, several rounds, and the median of each is taken.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evenflow.bench.measuring import MASTER, SITES, Flowed, flow_for, flow_steadily, machine, parent_of, pss_bytes

if TYPE_CHECKING:
    from evenflow.query.builder import Dataflow

Say = Callable[[str], None]


def two_stages(rate: int) -> Dataflow:
    """Count per key, then count per count: two exchanges."""
    import evenflow as ef

    flow = ef.Dataflow("two-stages")
    counts = flow.source(ef.sources.generator(rate=rate, keys=16_384)).group_by("key").agg(n="count(*)", combine=False)
    counts.group_by("n").agg(keys="count(*)", combine=False).to(ef.sinks.discard())
    return flow


def grouped(rows: int, keys: int) -> Dataflow:
    """Sum and average per key, nothing combined before the exchange, so that every row reaches the state."""
    import evenflow as ef

    flow = ef.Dataflow("grouped")
    totals = flow.source(ef.sources.generator(rows=rows, keys=keys)).group_by("key")
    totals.agg(n="count(*)", total="sum(value)", mean="avg(price)", combine=False).to(ef.sinks.discard())
    return flow


def run(*, quick: bool, say: Say) -> dict[str, Any]:
    """Measure all of it. quick: short runs, a smoke test only. Returns the object that --json prints."""
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    seconds, rounds, rows = (3.0, 1, 4_000_000) if quick else (10.0, 3, 20_000_000)
    spark = embedded_session(MASTER)
    try:
        result: dict[str, Any] = {"benchmark": "cost", "quick": quick}
        say("time from engine.start to the first result")
        result["first_result_s"] = round(first_result_s(spark), 2)
        say("CPU per epoch and site, idle CPU, memory")
        result.update(_epochs(spark, seconds))
        say("CPU per million rows: 64 and 1,024 partitions")
        result.update(_compare(spark, "partitions", {"64": {"partitions": 64}, "1024": {"partitions": 1024}}, rows, [16_384] * 2, rounds))
        say("CPU per million rows: 16,384 and 10 million keys")
        result.update(_compare(spark, "keys", {"16384": {}, "10000000": {}}, 2 * rows, [16_384, 10_000_000], max(1, rounds - 1)))
    finally:
        stop_session(spark)
    return {**result, "machine": machine(), "master": MASTER}


def first_result_s(spark: Any) -> float:
    """Seconds from making the engine to the first row at a sink in the driver, on a running session."""
    import evenflow as ef
    from evenflow.world.spark.driver.engine import Engine

    seen = threading.Event()
    flow = ef.Dataflow("first")
    counts = flow.source(ef.sources.generator(rate=10_000)).group_by("key").agg(n="count(*)")
    counts.to(ef.sinks.callback(lambda epoch, batch: seen.set()))
    began = time.monotonic()
    with Engine(spark, sites=SITES) as engine:
        run = engine.start(flow)
        while not seen.wait(0.01):
            run.await_termination(0.0)
        took = time.monotonic() - began
        run.stop()
    return took


def _epochs(spark: Any, seconds: float) -> dict[str, Any]:
    from evenflow.world.spark.driver.engine import Engine

    # An empty epoch every 5 ms: what an epoch costs before it has a single row.
    with Engine(spark, sites=SITES, heartbeat_ms=5.0) as engine:
        empty = flow_for(engine, two_stages(rate=1), warm_s=3.0, seconds=seconds)
    with Engine(spark, sites=SITES) as engine:
        idle = flow_for(engine, two_stages(rate=1), warm_s=3.0, seconds=seconds)
        busy = flow_for(engine, two_stages(rate=20_000), warm_s=3.0, seconds=seconds)
        pids = [site.pid for site in busy.final.sites]
        sites = [pss_bytes(pid) for pid in pids]
        with_executor = [pss + pss_bytes(parent_of(pid)) + pss_bytes(parent_of(parent_of(pid))) for pss, pid in zip(sites, pids)]
    return {
        "cpu_ms_per_epoch_and_site": round(empty.cpu_ms_per_epoch_and_site, 3),
        "empty_epochs_per_s": round(empty.epochs / empty.seconds, 1),
        "idle_cores": round(idle.cpu_s / idle.seconds, 4),
        "cpu_ms_per_epoch_and_site_at_20k_rows_per_s": round(busy.cpu_ms_per_epoch_and_site, 3),
        "site_pss_mb": round(max(sites) / 2**20),
        "site_and_executor_pss_mb": round(max(with_executor) / 2**20),
    }


def _compare(spark: Any, name: str, variants: dict[str, dict[str, Any]], rows: int, keys: list[int], rounds: int) -> dict[str, Any]:
    """CPU seconds per million rows of two variants, run in turn; the medians and their ratio."""
    from evenflow.world.spark.driver.engine import Engine

    costs: dict[str, list[float]] = {variant: [] for variant in variants}
    for _ in range(rounds + 1):
        for (variant, options), count in zip(variants.items(), keys, strict=True):
            with Engine(spark, sites=SITES, **options) as engine:
                flowed: Flowed = flow_steadily(engine, grouped(rows, count), skip=0.5)
            costs[variant].append(flowed.cpu_s_per_million_rows)
    medians = {variant: statistics.median(seen[1:]) for variant, seen in costs.items()}
    first, second = variants
    return {
        f"cpu_s_per_million_rows_{name}": {variant: round(value, 4) for variant, value in medians.items()},
        f"{name}_ratio": round(medians[second] / medians[first], 3),
    }
