"""`evenflow bench scaling`: sites that come and go with the load, on executors, while rows keep coming.

First what the fewest and the most sites do in a closed loop. Then a step: three times the load, and back. What cannot be done until the
sites have come is left out (`shedding="reflex"`). Then a sine of thirty percent, in which nothing is to change. Executors that are not
needed are there all the time: what it takes a cluster manager to start one is not measured, what it takes a site is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from evenflow.bench.delivered import Delivered
from evenflow.bench.events import ScheduledEvents, VaryingEvents
from evenflow.bench.measuring import machine
from evenflow.bench.monitored import Output
from evenflow.bench.slept import CAN, costly, delivered, lateness, of_report
from evenflow.bench.slowed import RowCost
from evenflow.errors import ClusterError
from evenflow.policy.scaling import Times
from evenflow.processor import BatchProcessor, Groups
from evenflow.statistics.statistics import Statistics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evenflow.world.spark.driver.run import Run

PATIENCE_MS: Final = 1000.0
"""L*: an answer is worth all for so long."""
BASE: Final = 0.45
"""How busy rows keep the fewest sites at first. What a site's loop takes comes on top (a fifth of it where six share two cores), and both
must be below what calls for another one."""
PEAK: Final = 0.48
"""The same of the sine's peak at one site more: with one fewer that is over what lets one go, whatever the loop takes."""
CALM_S: Final = 5.0
"""Once no answer has been late for so long, a step is over; what is late afterwards is told apart."""
EPOCH_S: Final = 0.33
"""What an epoch of the closed loop brings is work for so long, as when rows are left out."""
LEAD_S: Final = 2.0
LOOK_S: Final = 0.2
SWING: Final = 0.3


@dataclass(frozen=True, slots=True)
class Setting:
    """least, most: sites. calm_s, high_s, back_s: of the step: before it, of three times the load, and behind it. sine_s: of the sine, of
    which a period is a fifth. closed_s: of a closed loop."""

    least: int = 2
    most: int = 6
    calm_s: float = 60.0
    high_s: float = 120.0
    back_s: float = 1000.0
    sine_s: float = 600.0
    closed_s: float = 12.0
    times: Times = field(default_factory=Times)

    @property
    def base(self) -> int:
        """Rows per second."""
        return int(BASE * self.least * CAN)


QUICK: Final = Setting(
    most=4, calm_s=6.0, high_s=18.0, back_s=24.0, sine_s=15.0, closed_s=4.0, times=Times(past_s=10.0, calm_s=6.0, start_s=5.0)
)


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
        can = {sites: closed(spark, setting, sites, say) for sites in (setting.least, setting.most)}
        step = stepped(spark, setting, can, say)
        calm = sine(spark, setting, say)
    finally:
        stop_session(spark)
    return {
        "benchmark": "scaling", "quick": quick, **of_report(**step), "can_rows_per_s": {str(n): round(rows) for n, rows in can.items()},
        "sine": of_report(**calm),
        "setting": asdict(setting) | {"row_us": 1e6 / CAN, "base": setting.base, "patience_ms": PATIENCE_MS}, "machine": machine(),
        "master": master,
    }  # fmt: skip


@dataclass(slots=True)
class Watched:
    """due: what was to come. begin_us: when its first row was due, by the wall clock; seconds count from then on. sites, hosts: at each
    look, when, and how many there were, and how many had something to do. lead_s: from the run's begin to that moment. calm: what sites did
    in the last seconds before `calm_s`."""

    run: Run
    answers: Output
    due: VaryingEvents
    begin_us: int
    sites: list[tuple[float, int]] = field(default_factory=list)
    hosts: list[tuple[float, int]] = field(default_factory=list)
    lead_s: float = 0.0
    calm: Statistics = field(default_factory=lambda: Statistics.of(()))

    @property
    def changes(self) -> list[dict[str, Any]]:
        """Of the number of sites that is wanted, at_s from the first row on."""
        return [event | {"at_s": round(event["at_s"] - self.lead_s, 3)} for event in self.run.events() if event["kind"] == "scaling"]

    @property
    def stalls_ms(self) -> list[float]:
        return [float(move["stall_ms"]) for move in self.run.moves() if move.get("state") == "done" and move.get("stall_ms") is not None]

    @property
    def dropped(self) -> int:
        """Rows that were left out, as the run tells."""
        return sum(each.dropped for each in self.run.numbers().outputs)

    def offered(self, first_s: float = 0.0, last_s: float = math.inf) -> int:
        """Rows that were due from first_s to before last_s."""
        until, since = (self.due.due(self.begin_us + int(at * 1e6) - 1) if at < math.inf else self.due.rows for at in (last_s, first_s))
        return until - since


def closed(spark: SparkSession, setting: Setting, sites: int, say: Callable[[str], None]) -> float:
    """Rows per second that so many sites do if all rows are there at once, in the middle half of the time."""
    import evenflow as ef

    say(f"{sites} sites, rows as fast as they are taken")
    rows, partitions, answers = int(sites * CAN * setting.closed_s), 2 * setting.most, Output()
    with ef.Engine(spark, sites=sites, linger_ms=20.0, epoch_rows=max(1, int(sites * CAN * EPOCH_S / partitions))) as engine:
        begin_us = time.time_ns() // 1000 + int(LEAD_S * 1e6)
        flow = ef.Dataflow("closed")
        source = ScheduledEvents(1, rows, 1000, count=partitions, begin_us=begin_us, at_once=rows)
        costly(flow, source).to(ef.sinks.callback(answers), name="answers")
        run = engine.start(flow)
        if not run.await_termination(LEAD_S + 10 * setting.closed_s):
            raise ClusterError(f"{sites} sites did not do {rows:,} rows in {10 * setting.closed_s:g} s")
    return middle(delivered(answers, begin_us))


def middle(out: Delivered) -> float:
    """Rows per second between the first and the last quarter of all rows. Raises ClusterError where nothing came between them."""
    count = len(out.at_s)
    rate = out.between(float(out.at_s[count // 4]), float(out.at_s[3 * count // 4])).rows_per_s if count else None
    if rate is None:
        raise ClusterError(f"{count} rows came in too few pieces for a rate")
    return rate


def watched(spark: SparkSession, setting: Setting, steps: list[tuple[float, int]], seconds: float, sites: int, calm_s: float) -> Watched:
    """One run of so many seconds at these rates: (second, rows/s from then on)."""
    import evenflow as ef

    answers = Output()
    with ef.Engine(
        spark, sites=sites, autoscale=(setting.least, setting.most), autoscale_times=setting.times, shedding="reflex", linger_ms=20.0
    ) as engine:
        begin_us = time.time_ns() // 1000 + int(LEAD_S * 1e6)
        due = VaryingEvents(1, 1 << 50, 1000, count=2 * setting.most, begin_us=begin_us, steps=tuple((int(at * 1e6), r) for at, r in steps))
        source = replace(due, rows=due.due(begin_us + int(seconds * 1e6)))
        flow = ef.Dataflow("scaling")
        worth = ef.qos(latency=[(f"{PATIENCE_MS:.0f} ms", 1), (f"{3 * PATIENCE_MS:.0f} ms", 0)])
        costly(flow, source).to(ef.sinks.callback(answers), name="answers", qos=worth)
        found = Watched(engine.start(flow), answers, source, begin_us)
        found.lead_s = begin_us / 1e6 - time.time_ns() / 1e9 + found.run.numbers().seconds
        while not found.run.await_termination(LOOK_S):
            at_s = time.time_ns() / 1e9 - begin_us / 1e6
            found.sites.append((at_s, len(engine.sites_now)))
            found.hosts.append((at_s, sum(site.partitions > 0 for site in found.run.numbers().sites)))
            if not found.calm.sites and at_s >= calm_s - 2 * LOOK_S:
                found.calm = found.run.statistics(min(10.0, calm_s / 2))
        return found


def stepped(spark: SparkSession, setting: Setting, can: Mapping[int, float], say: Callable[[str], None]) -> dict[str, Any]:
    """Three times the load and back. can: rows per second of so many sites, in a closed loop.

    changes: of the number of sites that is wanted, from the step on; changes_before: before it. overhead: of a site's time before it, what
    was work and for no row. late_s_max: from a step on, how long some answer was older than L*, until none was for CALM_S; late_s_after:
    behind that, of both. dropped_share: of all rows. dropped_by_excess: of those that were due while there were three times as many, by
    those of them that the sites that had something to do could not do.
    """
    high_s, back_s, end_s = setting.calm_s, setting.calm_s + setting.high_s, setting.calm_s + setting.high_s + setting.back_s
    say(f"{setting.base:,} rows/s, from second {high_s:g} to {back_s:g} three times as many")
    steps = [(0.0, setting.base), (high_s, 3 * setting.base), (back_s, setting.base)]
    seen = watched(spark, setting, steps, end_s, setting.least, setting.calm_s)
    out = delivered(seen.answers, seen.begin_us)
    late = [lateness(out, at, until, PATIENCE_MS, CALM_S) for at, until in ((high_s, back_s), (back_s, end_s - 1.0))]
    missed = seen.offered(high_s, back_s) - due_between(out, high_s, back_s)
    over = excess(seen.hosts, high_s, back_s, 3 * setting.base, can)
    told = [{"at_s": event["at_s"], "wanted": event["wanted"], "text": event["text"]} for event in seen.changes]
    before = sum(event["at_s"] < high_s for event in told)
    return {
        "changes": len(told) - before, "changes_before": before, "overhead": overhead(seen.calm),
        "stall_ms_max": max(seen.stalls_ms, default=0.0),
        "late_s_max": max(first for first, _ in late), "late_s_after": sum(after for _, after in late),
        "dropped_share": seen.dropped / seen.offered(), "dropped_by_excess": missed / over if over else math.nan,
        "dropped_high": missed, "excess_high": over, **compared(out, seen.offered(), seen.dropped),
        "sites_most": max(there for _, there in seen.sites), "sites_last": seen.sites[-1][1],
        "p99_ms_before": out.between(1.0, high_s).age_percentile_ms(99), "told": told,
    }  # fmt: skip


def due_between(out: Delivered, first_s: float, last_s: float) -> int:
    """Rows that came out, whenever that was, and were due from first_s to before last_s."""
    due_us = np.round(out.at_s * 1e6 - out.age_ms * 1e3)
    return int(((due_us >= first_s * 1e6) & (due_us < last_s * 1e6)).sum())


def compared(out: Delivered, offered: int, dropped: int) -> dict[str, int]:
    """Rows that neither came out nor were left out, and that came out again: each is due at a moment of its own."""
    distinct = len(np.unique(np.round(out.at_s * 1e6 - out.age_ms * 1e3)))
    return {"rows_lost": offered - dropped - distinct, "rows_repeated": len(out.at_s) - distinct}


def excess(hosts: Sequence[tuple[float, int]], first_s: float, last_s: float, rate: int, can: Mapping[int, float]) -> float:
    """Rows that came from first_s to last_s at this rate beyond what the sites could do. hosts: (second, how many from then on). can: rows
    per second of so many sites; of other numbers in proportion to what the nearest two can do."""
    known = sorted({0: 0.0, **can}.items())
    total = 0.0
    for number, (at_s, count) in enumerate(hosts):
        since = at_s if number else -math.inf
        until = hosts[number + 1][0] if number + 1 < len(hosts) else math.inf
        room = float(np.interp(count, [sites for sites, _ in known], [rows for _, rows in known]))
        total += max(0.0, rate - room) * max(0.0, min(until, last_s) - max(since, first_s))
    return total


def overhead(statistics: Statistics) -> float:
    """Mean over sites of the share of their time that was work and in no segment; nan where no site has told anything."""
    shares = [
        (site.busy_us - sum(segment.busy_us for segment in site.segments)) / (site.end_us - site.begin_us)
        for site in statistics.sites if site.end_us > site.begin_us
    ]  # fmt: skip
    return float(np.mean(shares)) if shares else math.nan


def sine(spark: SparkSession, setting: Setting, say: Callable[[str], None]) -> dict[str, Any]:
    """Thirty percent up and down, five times; its peak fits the sites that there are at first."""
    say(f"a sine of {SWING:.0%} for {setting.sine_s:g} s")
    sites, period_s = setting.least + 1, setting.sine_s / 5
    mean = PEAK * sites * CAN / (1 + SWING)
    steps = [(at / 2, int(mean * (1 + SWING * math.sin(math.pi * at / period_s)))) for at in range(int(2 * setting.sine_s))]
    seen = watched(spark, setting, steps, setting.sine_s, sites, setting.sine_s)
    out = delivered(seen.answers, seen.begin_us)
    return {
        "changes": len(seen.changes), "overhead": overhead(seen.calm), "p99_ms": out.age_percentile_ms(99), "delivered": len(out.age_ms),
        "dropped": seen.dropped, **compared(out, seen.offered(), seen.dropped), "told": [event["text"] for event in seen.changes],
    }  # fmt: skip


__all__ = ["QUICK", "Costly", "Setting", "run"]
