"""The price of an epoch in the tree that runs this file: what `evenflow bench cost --against` asks of either tree.

    .venv/bin/python -P -W ignore tools/price.py 1 2 4 8

Prints a JSON object. It has to work with the modules of former trees, too: it knows both places where those have been that it needs, and
takes nothing else from the package but names that were there from the start.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from evenflow.bench import latency, measuring

MASTER: Final = "local-cluster[8,2,1024]"
"""An executor for each site of the largest run."""
WARM_S: Final = 3.0
SECONDS: Final = 5.0
ROWS_A_SITE: Final = 1_000
"""Rows a second of the grouped aggregation, for each site: five in an epoch of 5 ms, so that what is paid is the epoch."""
PACKETS: Final = 5_000
"""A second, of the demo's network as pairs."""
LINGER_MS: Final = 5.0


def places() -> tuple[Any, Any]:
    """The module of embedded sessions and that of the engine."""
    try:
        from evenflow.world.spark.cluster import session
        from evenflow.world.spark.driver import engine
    except ImportError:  # Trees in which the rooms of world.spark were not made yet.
        from evenflow.world.spark import engine, session  # type: ignore[no-redef,attr-defined]
    return session, engine


def grouped(rate: int | None) -> Any:
    """Count, sum and average per key, nothing combined before the exchange."""
    import evenflow as ef

    flow = ef.Dataflow("grouped")
    totals = flow.source(ef.sources.generator(rate=rate, keys=16_384)).group_by("key")
    totals.agg(n="count(*)", total="sum(value)", mean="avg(price)", combine=False).to(ef.sinks.discard())
    return flow


def aggregated(arrivals: latency.Arrivals) -> Any:
    """The query of `bench latency`, whose result rows say when they have come."""
    import evenflow as ef

    flow = ef.Dataflow("latency")
    rows = flow.source(ef.sources.generator(rate=latency.RATE, keys=latency.KEYS)).group_by("key")
    rows.agg(n="count(*)", total="sum(value)", mean="avg(price)", newest="max(ts)").to(ef.sinks.callback(arrivals))
    return flow


def delays(engine: Any, spark: Any, replicas: int) -> dict[str, float]:
    """p50_ms and p99_ms from source to sink at 50,000 rows/s, with the options that a user gets who gives none."""
    arrivals = latency.Arrivals()
    with engine.Engine(spark, sites=measuring.SITES, replicas=replicas) as running:
        run = running.start(aggregated(arrivals))
        try:
            run.await_termination(2 * WARM_S)
            arrivals.counting = True
            run.await_termination(2 * SECONDS)
            arrivals.counting = False
        finally:
            run.stop()
    found = arrivals.percentiles_ms()
    return {name: found[name] for name in ("p50_ms", "p99_ms")}


def pairs() -> Any:
    """The demo's network."""
    from evenflow.cli.demo import session_monitor

    return session_monitor(PACKETS, None, None, lambda epoch, batch: None)  # type: ignore[arg-type]


def priced(sites: list[int]) -> dict[str, Any]:
    """Every figure, on one cluster. sites: how many the grouped aggregation has, one run for each."""
    session, engine = places()
    spark = session.embedded_session(MASTER)
    found: dict[str, Any] = {"cpu_ms_per_epoch_and_site": {}, "epochs_per_s": {}}
    try:
        for count in sites:
            with engine.Engine(spark, sites=count, linger_ms=LINGER_MS) as running:
                flowed = measuring.flow_for(running, grouped(ROWS_A_SITE * count), warm_s=WARM_S, seconds=SECONDS)
                found["cpu_ms_per_epoch_and_site"][str(count)] = flowed.cpu_ms_per_epoch_and_site
                found["epochs_per_s"][str(count)] = flowed.epochs / flowed.seconds
        with engine.Engine(spark, sites=measuring.SITES, replicas=2, linger_ms=LINGER_MS) as running:
            flowed = measuring.flow_for(running, pairs(), warm_s=WARM_S, seconds=SECONDS)
            pids = [site["pid"] if isinstance(site, dict) else site.pid for site in sites_of(flowed.final)]
            found["pairs_cpu_ms_per_epoch_and_site"] = flowed.cpu_ms_per_epoch_and_site
            found["site_pss_mb"] = max(measuring.pss_bytes(pid) for pid in pids) / 2**20
        with engine.Engine(spark, sites=measuring.SITES) as running:
            idle = measuring.flow_for(running, grouped(1), warm_s=WARM_S, seconds=SECONDS)
            found["idle_cores"] = idle.cpu_s / idle.seconds
        found |= delays(engine, spark, 1)
        found |= {f"pairs_{name}": value for name, value in delays(engine, spark, 2).items()}
    finally:
        session.stop_session(spark)
    return found


def sites_of(progress: Any) -> Any:
    return progress["sites"] if isinstance(progress, dict) else progress.sites


if __name__ == "__main__":
    print(json.dumps(priced([int(each) for each in sys.argv[1:]])))
