"""Statistics of a run on real executors add up to what was fed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import StatisticsError
from evenflow.statistics.statistics import Statistics

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
ROWS = 40_000


def double(batch: pa.RecordBatch) -> pa.Array:
    return pa.array(batch.column("v").to_numpy() * 2)


@pytest.mark.conformance
def test_what_all_sites_report_is_what_was_fed(engine: ef.Engine, named: Callable[[str], str]) -> None:
    at = np.arange(ROWS)
    parts = [pa.record_batch({"k": at[i::4] % 100, "v": at[i::4]}) for i in range(4)]
    flow = ef.Dataflow("statistics")
    rows = flow.source(ef.sources.memory(parts, partitions=4)).where("v < 30000", name="most").select("k", d=double)
    rows.group_by("k").agg(n="count(*)").to(ef.sinks.memory(named("statistics")))
    run = engine.start(flow)
    assert run.await_termination(60)
    statistics, seen = run.statistics_since()
    assert run.statistics_since(seen) == (Statistics(0, 0, ()), seen)
    assert {partition: count for (segment, partition), count in statistics.rows().items() if segment == 0} == dict.fromkeys(
        range(4), 10_000
    )
    most = next(box for box in statistics.boxes().values() if box.name == "most")
    assert (most.rows_in, most.rows_out) == (40_000, 30_000)
    assert most.cost_us is not None and most.cost_us > 0
    assert [window.site for window in statistics.sites] == list(engine.sites_now)
    assert all(0 < window.utilization <= 1 for window in statistics.sites)
    assert sum(window.latency.count for window in statistics.sites) > 0
    assert Statistics.from_json(run.statistics(last_s=60).to_json()) == statistics
    with pytest.raises(StatisticsError, match="more than nothing"):
        run.statistics(last_s=0)
    progress = run.progress()
    assert "most" in [box["box"] for box in progress["boxes"]]
    assert all(site["utilization"] > 0 for site in progress["sites"])
