"""`evenflow bench scaling`: sites that come and go with the load, on executors, while rows keep coming.

First a step: three times the load, and back. What cannot be done until the sites have come is left out (`shedding="reflex"`). Then a sine
of thirty percent, in which nothing is to change. Executors that are not needed are there all the time: what it takes a cluster manager to
start one is not measured, what it takes a site is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from evenflow.bench.events import VaryingEvents
from evenflow.bench.measuring import machine
from evenflow.bench.monitored import Output
from evenflow.bench.slept import CAN, costly, delivered, late_s, of_report
from evenflow.bench.slowed import RowCost
from evenflow.policy.scaling import Times
from evenflow.processor import BatchProcessor, Groups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evenflow.world.spark.driver.run import Run

PATIENCE_MS: Final = 1000.0
"""L*: an answer is worth all for so long."""
BASE: Final = 0.6
"""How busy the fewest sites are at first."""
LEAD_S: Final = 2.0
LOOK_S: Final = 0.2
SWING: Final = 0.3


@dataclass(frozen=True, slots=True)
class Setting:
    """least, most: sites. calm_s, high_s, back_s: of the step: before it, of three times the load, and behind it. sine_s: of the sine, of
    which a period is a fifth."""

    least: int = 2
    most: int = 6
    calm_s: float = 60.0
    high_s: float = 120.0
    back_s: float = 1000.0
    sine_s: float = 600.0
    times: Times = field(default_factory=Times)

    @property
    def base(self) -> int:
        """Rows per second."""
        return int(BASE * self.least * CAN)


QUICK: Final = Setting(most=4, calm_s=6.0, high_s=18.0, back_s=24.0, sine_s=15.0, times=Times(past_s=10.0, calm_s=6.0, start_s=5.0))


class Costly(BatchProcessor):
    """Answers each row with its key and value, at a cost."""

    output: ClassVar[str] = "key bigint, value bigint"
    keeps_key: ClassVar[bool] = True

    def __init__(self, cost: RowCost) -> None:
        self.cost = cost

    def process(self, rows: pa.RecordBatch, groups: Groups, state: Any) -> Any:  # type: ignore[override]
        self.cost.spend(rows.num_rows)
        return {"key": rows["key"], "value": rows["value"]}, np.arange(rows.num_rows)


def run(*, setting: Setting, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure. Returns the object that --json prints."""
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    master = f"local-cluster[{setting.most},2,1024]"
    spark = embedded_session(master)
    try:
        step = stepped(spark, setting, say)
        calm = sine(spark, setting, say)
    finally:
        stop_session(spark)
    return {
        "benchmark": "scaling", "quick": quick, **of_report(**step), "sine": of_report(**calm),
        "setting": asdict(setting) | {"row_us": 1e6 / CAN, "base": setting.base, "patience_ms": PATIENCE_MS}, "machine": machine(),
        "master": master,
    }  # fmt: skip


@dataclass(slots=True)
class Watched:
    """sites: (second, how many), at each look. begin_us: when the first row was due."""

    run: Run
    answers: Output
    begin_us: int
    sites: list[tuple[float, int]]

    @property
    def changes(self) -> list[dict[str, Any]]:
        return [event for event in self.run.events() if event["kind"] == "scaling"]

    @property
    def stalls_ms(self) -> list[float]:
        return [float(move["stall_ms"]) for move in self.run.moves() if move.get("state") == "done" and move.get("stall_ms") is not None]


def watched(spark: SparkSession, setting: Setting, steps: list[tuple[float, int]], seconds: float, sites: int) -> Watched:
    """One run of so many seconds at these rates: (second, rows/s from then on)."""
    import evenflow as ef

    answers = Output()
    with ef.Engine(
        spark, sites=sites, autoscale=(setting.least, setting.most), autoscale_times=setting.times, shedding="reflex", linger_ms=20.0
    ) as engine:
        begin_us = time.time_ns() // 1000 + int(LEAD_S * 1e6)
        due = VaryingEvents(1, 1 << 50, 1000, count=2 * setting.most, begin_us=begin_us, steps=tuple((int(at * 1e6), r) for at, r in steps))
        source = VaryingEvents(**{**asdict(due), "rows": due.due(begin_us + int(seconds * 1e6)), "steps": due.steps})
        flow = ef.Dataflow("scaling")
        worth = ef.qos(latency=[(f"{PATIENCE_MS:.0f} ms", 1), (f"{3 * PATIENCE_MS:.0f} ms", 0)])
        costly(flow, source).to(ef.sinks.callback(answers), name="answers", qos=worth)
        found = Watched(engine.start(flow), answers, begin_us, [])
        while not found.run.await_termination(LOOK_S):
            found.sites.append((time.time_ns() / 1e9 - begin_us / 1e6, len(engine.sites_now)))
        return found


def stepped(spark: SparkSession, setting: Setting, say: Callable[[str], None]) -> dict[str, Any]:
    """Three times the load and back.

    changes: of the number of sites. late_s_max: from a step on, how long some answer was older than L*. dropped_share: of all rows; dropped
    by_excess: by those that the sites that were there could not do.
    """
    high_s, back_s, end_s = setting.calm_s, setting.calm_s + setting.high_s, setting.calm_s + setting.high_s + setting.back_s
    say(f"{setting.base:,} rows/s, from second {high_s:g} to {back_s:g} three times as many")
    seen = watched(spark, setting, [(0, setting.base), (high_s, 3 * setting.base), (back_s, setting.base)], end_s, setting.least)
    out = delivered(seen.answers, seen.begin_us)
    offered = int(setting.base * (setting.calm_s + 3 * setting.high_s + setting.back_s))
    dropped = offered - len(out.age_ms)
    excess = sum(
        max(0.0, 3 * setting.base - there * CAN) * (until - at)
        for (at, there), (until, _) in zip(seen.sites, seen.sites[1:], strict=False) if high_s <= at < back_s
    )  # fmt: skip
    late = [late_s(out, at, until, PATIENCE_MS) for at, until in ((high_s, back_s), (back_s, end_s - 1.0))]
    told = [{"at_s": event["at_s"], "wanted": event["wanted"], "text": event["text"]} for event in seen.changes]
    return {
        "changes": len(told), "stall_ms_max": max(seen.stalls_ms, default=0.0), "late_s_max": max(late), "dropped_share": dropped / offered,
        "dropped_by_excess": dropped / excess if excess else 0.0, "sites_most": max(there for _, there in seen.sites),
        "sites_last": seen.sites[-1][1], "p99_ms_before": out.between(1.0, high_s).age_percentile_ms(99), "told": told,
    }  # fmt: skip


def sine(spark: SparkSession, setting: Setting, say: Callable[[str], None]) -> dict[str, Any]:
    """Thirty percent up and down, five times; its peak fits the sites that there are at first."""
    say(f"a sine of {SWING:.0%} for {setting.sine_s:g} s")
    mean, period_s = setting.base * 1.5 / (1 + SWING), setting.sine_s / 5
    steps = [(at / 2, int(mean * (1 + SWING * math.sin(math.pi * at / period_s)))) for at in range(int(2 * setting.sine_s))]
    seen = watched(spark, setting, steps, setting.sine_s, setting.least + 1)
    out = delivered(seen.answers, seen.begin_us)
    return {"changes": len(seen.changes), "p99_ms": out.age_percentile_ms(99), "delivered": len(out.age_ms)}


__all__ = ["QUICK", "Costly", "Setting", "run"]
