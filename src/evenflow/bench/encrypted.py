"""`evenflow bench cost --tls`: what TLS adds to the CPU of sites, per epoch.

Engines with and without it by turns, on the same executors: epochs without rows, and a steady stream of rows. `cpu_ratio` is the greater of
the two ratios of medians; `cpu_ratio_by_round` has what each round by itself says, from the least to the greatest: the spread.
"""

from __future__ import annotations

import statistics
from typing import Any, Final

from evenflow.bench.cost import Say, two_stages
from evenflow.bench.measuring import MASTER, SITES, flow_for, machine

LOADS: Final[dict[str, tuple[int, float]]] = {"empty": (1, 5.0), "rows": (20_000, 1000.0)}
"""Rows per second, and the engine's heartbeat in ms."""


def run(*, quick: bool, say: Say) -> dict[str, Any]:
    """Returns the object that --json prints. quick: one short round, a smoke test only."""
    from evenflow.world.spark.cluster.session import embedded_session, stop_session
    from evenflow.world.spark.driver.engine import Engine

    seconds, rounds = (2.0, 1) if quick else (4.0, 5)
    costs: dict[str, dict[bool, list[float]]] = {load: {False: [], True: []} for load in LOADS}
    spark = embedded_session(MASTER)
    try:
        for load, (rate, heartbeat_ms) in LOADS.items():
            # Both at once, a site of each on every executor: one does nothing while the other is measured.
            with Engine(spark, sites=SITES, heartbeat_ms=heartbeat_ms) as plain, Engine(
                spark, sites=SITES, heartbeat_ms=heartbeat_ms, tls=True
            ) as encrypted:  # fmt: skip
                for number in range(rounds):
                    for tls in (False, True) if number % 2 == 0 else (True, False):
                        engine = encrypted if tls else plain
                        found = flow_for(engine, two_stages(rate=rate), warm_s=1.5, seconds=seconds).cpu_ms_per_epoch_and_site
                        costs[load][tls].append(found)
                        say(f"round {number + 1} of {rounds}: {load}, {'with' if tls else 'without'} TLS: {found:.3f} ms")
    finally:
        stop_session(spark)
    by_round = {load: sorted(round(tls / plain, 3) for plain, tls in zip(of[False], of[True], strict=True)) for load, of in costs.items()}
    medians = {load: {tls: statistics.median(found) for tls, found in of.items()} for load, of in costs.items()}
    ratios = {load: of[True] / of[False] for load, of in medians.items()}
    return {
        "benchmark": "cost-tls",
        "quick": quick,
        "cpu_ratio": round(max(ratios.values()), 3),
        "cpu_ratio_by_load": {load: round(ratio, 3) for load, ratio in ratios.items()},
        "cpu_ratio_by_round": by_round,
        "cpu_ms_per_epoch_and_site": {load: {"plain": round(of[False], 4), "tls": round(of[True], 4)} for load, of in medians.items()},
        "machine": machine(),
        "master": MASTER,
    }
