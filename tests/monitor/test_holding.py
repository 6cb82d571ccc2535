"""Who holds a run back, what waits, and how far event time is: as the sites' reports and readings say it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

import evenflow as ef
from evenflow.exchange.credit import Credit
from evenflow.exchange.section import Ack
from evenflow.stream.ids import SiteId
from evenflow.world.sim.watching import SimWatch
from tests.monitor.simulated import counts, world_of


def test_who_keeps_an_epoch_from_closing_is_who_has_granted_or_processed_least() -> None:
    credit = Credit(SiteId(0), 4)
    credit.set_sites([SiteId(0), SiteId(1), SiteId(2)], [SiteId(1), SiteId(2)])
    credit.advance(6, 6, room=True)
    credit.hear(SiteId(1), Ack((), 6, 6, 10, 0))
    credit.hear(SiteId(2), Ack((), 5, 5, 8, 0))
    assert (credit.granted, credit.processed) == (8, 5)
    assert credit.slowest(9, pipeline=100) == [2], "site 2 has granted epoch 8 only"
    assert credit.slowest(8, pipeline=2) == [2], "7 are closed, and site 2 has processed 5"
    assert credit.slowest(8, pipeline=3) == [] == credit.slowest(7, pipeline=3), "there is room, and few are under way"


def test_the_ingress_waits_for_the_slow_site() -> None:
    """Goal: the slow site is named, not those that wait. Method: one site takes 3,000 times as long; nobody dies of it."""
    flow = counts()
    world = world_of(flow, replicas=1, spares=0)
    watch = SimWatch(world, flow.network)
    world.run_for(0.5)
    assert sum(watch.look()[1].runs[0].sites.waited_us) < 100_000, "nobody holds it back yet"
    led = world.coordinator.membership.leaders[0][0].site
    slow = next(site.index for site in world.sites if site.index != led)
    world.slow_down(slow, 3_000)
    for _ in range(12):
        world.run_for(0.25)
        _, reading = watch.look()
    waited, now = reading.runs[0].sites.waited_us, reading.runs[0]
    assert waited[slow] > 1_000_000 and waited[slow] == max(waited) and sum(waited) < 1.5 * waited[slow]
    assert max(epochs for epochs in now.streams.waiting_epochs if epochs is not None) > 0


def test_watermarks_are_those_of_the_sources() -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    times = pa.array([begun + timedelta(seconds=i) for i in range(2_000)], pa.timestamp("us", "UTC"))
    rows = pa.record_batch({"ts": times, "key": pa.array([i % 7 for i in range(2_000)], pa.int64())})
    flow = ef.Dataflow("timed")
    timed = flow.source(ef.sources.memory([rows] * 20), name="events").with_watermark("ts", "10 seconds")
    timed.group_by("key").window("1 minute").agg(n="count(*)").to(ef.sinks.memory("out"), name="out")
    flow.source(ef.sources.memory([rows]), name="plain").to(ef.sinks.memory("other"), name="other")
    world = world_of(flow)
    watch = SimWatch(world, flow.network)
    assert watch.look()[1].runs[0].sources.watermark_us == (None, None), "there is none before the first row"
    world.run_for(0.4)
    now = watch.look()[1].runs[0]
    assert min(now.sources.rows_in) > 0 and now.sources.rows_in[1] <= 2_000 and sum(now.sources.rows_in) == now.rows_in
    (watermark, none), done = now.sources.watermark_us, watch.look()[1].runs[0].epoch
    assert none is None and done > 0 and watermark is not None
    first_us = int(begun.timestamp() * 1e6)
    assert first_us - 10_000_000 <= watermark <= first_us + 1_989_000_000
