"""`evenflow bench overload`: more comes than the sites can do, on executors; what is delivered, how old it is, and what it is worth.

Two sources of half the load each, every row of which takes half a millisecond, go to an output of weight 1 and one of weight 0.2. By plan,
with the reflex alone, without, and under Structured Streaming, which has no such thing: there rows wait.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenflow.bench.delivered import Delivered
from evenflow.bench.events import VaryingEvents
from evenflow.bench.measuring import MASTER, SITES, machine
from evenflow.bench.monitored import Output
from evenflow.bench.slept import CAN, ROW_US, costly, delivered, late_s, of_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_MS: Final = 250.0
WORTHLESS_MS: Final = 1000.0
WEIGHTS: Final = (1.0, 0.2)
LOSS: Final = ((0.0, 0.0), (0.25, 0.5), (1.0, 1.0))
"""What a share delivered is worth if nobody says otherwise."""
LEAD_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Setting:
    """loads: by what the sites can do. sheddings: of the engine. seconds: of each, of which the first warm_s do not count. recover: from
    the first load to the second at once, with the first of sheddings. rival: loads at which Structured Streaming is measured, for rival_s
    each after rival_warm_s in which its batches become as long as they stay."""

    loads: tuple[float, ...] = (0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0)
    sheddings: tuple[str, ...] = ("fit", "lp", "reflex", "off")
    seconds: float = 30.0
    warm_s: float = 3.0
    recover: tuple[float, float] = (0.5, 3.0)
    rival: tuple[float, ...] = (0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0)
    rival_s: float = 30.0
    rival_warm_s: float = 12.0


QUICK: Final = Setting(loads=(0.5, 3.0), sheddings=("fit", "off"), seconds=5.0, warm_s=1.0, rival=(0.5,), rival_s=8.0, rival_warm_s=6.0)


def run(*, setting: Setting, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure. Returns the object that --json prints."""
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    spark = embedded_session(MASTER)
    try:
        rival = beside(spark, setting, say)
        loads = [
            of_report(
                **at_load(spark, load, shedding, setting, say),
                **{f"spark_{name}": rival.get(load, {}).get(name) for name in ("p99_ms", "behind_s")},
            )
            for load in setting.loads for shedding in setting.sheddings
        ]  # fmt: skip
        back = recovered(spark, setting, say)
    finally:
        stop_session(spark)
    told = asdict(setting) | {"row_us": ROW_US, "sites": SITES, "weights": WEIGHTS, "patience_ms": PATIENCE_MS}
    return {
        "benchmark": "overload", "quick": quick, "loads": loads, "recover_s": round(back, 3), "setting": told, "machine": machine(),
        "master": MASTER,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ran:
    """outs: of each output. offered: rows that each source had due. dropped: as the run tells. cpu_s: of the sites' Python processes."""

    outs: tuple[Delivered, ...]
    offered: int
    dropped: int
    cpu_s: float


def flooded(spark: SparkSession, shedding: str, steps: Sequence[tuple[float, float]], seconds: float) -> Ran:
    """One run of two sources at these loads: (second, share of what the sites can do from then on)."""
    import evenflow as ef
    from evenflow.bench.measuring import cpu_of

    answers = tuple(Output() for _ in WEIGHTS)
    with ef.Engine(spark, sites=SITES, shedding=shedding, linger_ms=5.0) as engine:
        begin_us = time.time_ns() // 1000 + int(LEAD_S * 1e6)
        rates = tuple((int(at * 1e6), int(load * SITES * CAN / len(WEIGHTS))) for at, load in steps)
        flow, rows = ef.Dataflow("overload"), 0
        for number, (weight, output) in enumerate(zip(WEIGHTS, answers, strict=True)):
            endless = VaryingEvents(1, 1 << 50, 1000, count=SITES, seed=number, begin_us=begin_us, steps=rates)
            rows = endless.due(begin_us + int(seconds * 1e6))
            source = VaryingEvents(1, rows, 1000, count=SITES, seed=number, begin_us=begin_us, steps=rates)
            worth = ef.qos(latency=[(f"{PATIENCE_MS:.0f} ms", 1), (f"{WORTHLESS_MS:.0f} ms", 0)], weight=weight)
            costly(flow, source, f"in {number}").to(ef.sinks.callback(output), name=f"out {number}", qos=worth)
        run = engine.start(flow)
        try:
            run.await_termination(LEAD_S + seconds + PATIENCE_MS / 1000)
            cpu_s = cpu_of(run.numbers())  # As long as the processes are there.
            dropped = sum(each["dropped"] for each in run.progress()["outputs"])
        finally:
            run.stop()
    return Ran(tuple(delivered(output, begin_us) for output in answers), rows, dropped, cpu_s)


def at_load(spark: SparkSession, load: float, shedding: str, setting: Setting, say: Callable[[str], None]) -> dict[str, Any]:
    """delivered: rows that came out while it lasted, of those that were offered. fits: what the sites can do, alike. value_share: of what
    is delivered by what the best choice of rows would be worth, both by weights, losses and ages."""
    say(f"{load:g} times what {SITES} sites can do, shedding {shedding!r}")
    ran = flooded(spark, shedding, [(0, load)], setting.seconds)
    outs = [out.between(setting.warm_s, setting.seconds) for out in ran.outs]
    offered = load * SITES * CAN / len(WEIGHTS) * (setting.seconds - setting.warm_s)
    ages = np.concatenate([out.age_ms for out in outs])
    shares = [len(out.age_ms) / offered for out in outs]
    worth = [weight * loss(share) * usefulness(out) for weight, share, out in zip(WEIGHTS, shares, outs, strict=True)]
    return {
        "load": load, "shedding": shedding, "p99_ms": float(np.percentile(ages, 99)) if len(ages) else math.nan,
        "delivered": len(ages) / offered / len(WEIGHTS), "fits": min(1.0, 1 / load), "value_share": sum(worth) / best(load),
        "shares": [round(share, 4) for share in shares], "dropped": ran.dropped, "cpu_s": ran.cpu_s,
    }  # fmt: skip


def usefulness(out: Delivered) -> float:
    """Mean over its rows of what their age leaves of their worth."""
    return float(np.interp(out.age_ms, [PATIENCE_MS, WORTHLESS_MS], [1.0, 0.0]).mean()) if len(out.age_ms) else 0.0


def loss(share: float) -> float:
    return float(np.interp(share, [at for at, _ in LOSS], [worth for _, worth in LOSS]))


def best(load: float) -> float:
    """What the best choice of rows is worth: pieces of the curves, those first that are worth most for a row (a knapsack of fractions)."""
    room, pieces = min(1.0, 1 / load) * len(WEIGHTS), list[tuple[float, float]]()
    for weight in WEIGHTS:
        pieces += [(weight * (after - before) / (to - at), to - at) for (at, before), (to, after) in pairwise(LOSS)]
    found = 0.0
    for slope, width in sorted(pieces, reverse=True):
        taken = min(width, room)
        found, room = found + slope * taken, room - taken
    return found


def recovered(spark: SparkSession, setting: Setting, say: Callable[[str], None]) -> float:
    """Seconds after which all answers that come are in time again, when so much more comes at once."""
    low, high = setting.recover
    say(f"from {low:g} to {high:g} times what {SITES} sites can do at once")
    at_s = setting.seconds / 2
    ran = flooded(spark, setting.sheddings[0], [(0, low), (at_s, high)], setting.seconds)
    return late_s(together(ran.outs), at_s, setting.seconds, PATIENCE_MS, 0.1)


def together(outs: Sequence[Delivered]) -> Delivered:
    """What came out anywhere: of an output of which all is left out, by right, nothing can be late."""
    found = [np.concatenate([getattr(out, name) for out in outs]) for name in ("at_s", "age_ms", "weight")]
    order = np.argsort(found[0], kind="stable")
    return Delivered(*(each[order] for each in found))


def beside(spark: SparkSession, setting: Setting, say: Callable[[str], None]) -> dict[float, dict[str, float]]:
    """By load, what Structured Streaming does with the same rows. The first query of a session is not as the others, and counts nowhere."""
    from evenflow.bench.spark_overload import micro_batch_overload

    if setting.rival:
        say("Structured Streaming: a query that is thrown away")
        micro_batch_overload(spark, int(SITES * CAN / 2), SITES, warm_s=0.0, seconds=setting.rival_warm_s)
    found = {}
    for load in setting.rival:
        say(f"{load:g} times that under Structured Streaming")
        found[load] = micro_batch_overload(
            spark, int(load * SITES * CAN), SITES, warm_s=setting.rival_warm_s, seconds=setting.rival_s
        )  # fmt: skip
    return found


__all__ = ["QUICK", "Setting", "run"]
