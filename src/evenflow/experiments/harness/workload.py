"""The dataflows of the Flux thesis' experiments on a cluster (FT 3.4.4, 5.2.1, 5.2.2), with Evenflow's own operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenflow.bench.events import ScheduledEvents
from evenflow.query.builder import Dataflow
from evenflow.sources import Source

if TYPE_CHECKING:
    from evenflow.experiments.harness.slow import Slowness

SINK: Final = "out"
HISTORY: Final = 16
"""Rows of a group that `grouped` keeps: two columns are some 290 bytes, which is what a group has in the thesis (29.4 MB for 10^5)."""
INGRESS: Final = 12
"""Ingress partitions of `grouped`: as many on each of four sites as on each of three. The thesis' ingress has a machine of its own, too."""

SHOWN: Final = 16
"""One group in so many is put out where operators must be the bottleneck: the thesis' egress has a machine of its own, here it is a
partition on one of the sites.
"""


def monitor(*, keys: int, apps: int, rate: int | None = None, rows: int = 0, shown: int = 1) -> Dataflow:
    """The motivating example: sessions by (src, dst), then statistics by (app, src).

    keys: distinct (src, dst), uniform. apps: distinct (app, src). rate: rows/s of the whole input, `rows` in all, the same in every run;
    None: as fast as they are taken, without an end if `rows` is 0. The upstream operator keeps a start event until the end event comes and
    puts out one row for the two; the downstream one has a history of 2 rows that slides by one. shown: see SHOWN.
    """
    import evenflow as ef

    flow = ef.Dataflow("monitor")
    source: Source = ef.sources.generator(rows=rows or None, keys=keys) if rate is None else ScheduledEvents(rate, rows, keys)
    events = flow.source(source, name="events").with_watermark("ts", "0 seconds")
    sessions = events.group_by("key").rows(2, slide=2).agg(dur="max(value)").name("sessions")
    by_app = sessions.select(f"key % {apps} as app", "dur", "ts").group_by("app").rows(2, slide=1)
    statistics = by_app.agg(max_dur="max(dur)", avg_dur="avg(dur)").name("statistics")
    put_out = statistics if shown == 1 else statistics.where(f"app % {shown} = 0")
    put_out.to(ef.sinks.memory(SINK), name=SINK)
    return flow


def grouped(*, keys: int, shown: int = SHOWN, history: int = HISTORY, source: Source | None = None) -> Dataflow:
    """One partitioned group-by that takes rows as fast as it can: statistics over a group's last `history` rows, for every row.

    keys: distinct groups, uniform, unless another source is given, with the generator's columns. shown: see SHOWN.
    """
    import evenflow as ef

    flow = ef.Dataflow("grouped")
    given = source or ef.sources.generator(rate=None, keys=keys, partitions=INGRESS)
    events = flow.source(given, name="events").with_watermark("ts", "0 seconds")
    recent = events.group_by("key").rows(history, slide=1).agg(max_value="max(value)", avg_price="avg(price)").name("recent")
    put_out = recent if shown == 1 else recent.where(f"key % {shown} = 0")
    put_out.to(ef.sinks.memory(SINK), name=SINK)
    return flow


def filled(source: ScheduledEvents, *, shown: int = SHOWN) -> Dataflow:
    """Totals per key over a paced source, put out whenever they change: much state for little work."""
    import evenflow as ef

    flow = ef.Dataflow("filled")
    totals = flow.source(source, name="events").group_by("key")
    sums = totals.agg(n="count(*)", total="sum(value)", least="min(value)", most="max(value)", combine=False).name("totals")
    (sums if shown == 1 else sums.where(f"key % {shown} = 0")).to(ef.sinks.memory(SINK), name=SINK)
    return flow


def slow_totals(
    *, keys: int, row_us: float, shown: int = SHOWN, source: Source | None = None, slowness: Slowness | None = None, history: int = 0
) -> Dataflow:
    """Totals per key, for every row, by a box that takes `row_us` of a site's time for each row, whatever machine that is: it sleeps.

    keys: distinct keys, uniform, unless another source is given, with the generator's columns. slowness: which executors are slow.
    history: so many rows of each key are kept besides, and the totals are of the greatest values in them.
    """
    import evenflow as ef
    from evenflow.experiments.harness.slow import SlowTotals

    flow = ef.Dataflow("slow_totals")
    events = flow.source(source or ef.sources.generator(keys=keys, partitions=INGRESS), name="events")
    values = events.select("key", "value")
    if history:
        values = values.group_by("key").rows(history, slide=1).agg(value="max(value)").name("recent")
    totals = values.key_by("key").process(SlowTotals(row_us, slowness), verify=False).name("totals")
    (totals if shown == 1 else totals.where(f"key % {shown} = 0")).to(ef.sinks.memory(SINK), name=SINK)
    return flow
