"""`evenflow bench cost --tls`: what TLS adds to the CPU of sites, per epoch.

Engines with and without it by turns, on the same executors: epochs without rows, and a steady stream of rows. `cpu_ratio` is the greater of
the two ratios of medians.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final

from evenflow.bench.cost import Say, two_stages
from evenflow.bench.measuring import MASTER, SITES, flow_for, machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOADS: Final[dict[str, tuple[int, float]]] = {"empty": (1, 5.0), "rows": (20_000, 1000.0)}
"""Rows per second, and the engine's heartbeat in ms."""


def run(*, quick: bool, say: Say) -> dict[str, Any]:
    """Returns the object that --json prints. quick: one short round, a smoke test only."""
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    seconds, rounds = (2.0, 1) if quick else (4.0, 3)
    spark = embedded_session(MASTER)
    try:
        costs: dict[str, dict[bool, list[float]]] = {load: {False: [], True: []} for load in LOADS}
        for number in range(rounds):
            for load in LOADS:
                for tls in (False, True) if number % 2 == 0 else (True, False):
                    say(f"round {number + 1} of {rounds}: {load}, {'with' if tls else 'without'} TLS")
                    costs[load][tls].append(_cost(spark, load, tls, seconds))
    finally:
        stop_session(spark)
    medians = {load: {tls: statistics.median(found) for tls, found in of.items()} for load, of in costs.items()}
    ratios = {load: of[True] / of[False] for load, of in medians.items()}
    return {
        "benchmark": "cost-tls",
        "quick": quick,
        "cpu_ratio": round(max(ratios.values()), 3),
        "cpu_ratio_by_load": {load: round(ratio, 3) for load, ratio in ratios.items()},
        "cpu_ms_per_epoch_and_site": {load: {"plain": round(of[False], 4), "tls": round(of[True], 4)} for load, of in medians.items()},
        "machine": machine(),
        "master": MASTER,
    }


def _cost(spark: SparkSession, load: str, tls: bool, seconds: float) -> float:
    """CPU in ms per epoch and site."""
    from evenflow.world.spark.driver.engine import Engine

    rate, heartbeat_ms = LOADS[load]
    with Engine(spark, sites=SITES, heartbeat_ms=heartbeat_ms, tls=tls) as engine:
        return flow_for(engine, two_stages(rate=rate), warm_s=1.5, seconds=seconds).cpu_ms_per_epoch_and_site
