"""A run on real executors begins where its option says, and again so at the location, on other sites."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import evenflow as ef
from tests.restarting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.conformance]
TOTALS, ROWS = 4, 12_000


def test_what_has_one_partition_does_not_meet_and_not_after_a_restart_either(spark: Any, tmp_path: Path) -> None:
    """Goal: four totals and their sinks are two at each of four sites, and then four at each of two; all totals are right. By the hash
    of their names four are at one site, and none at another. Method: end the engine in the middle, and start another one at the
    location."""
    flow = ef.Dataflow("stones")
    rows = flow.source(ef.sources.generator(rows=ROWS, rate=2_000, partitions=2), name="in")
    sinks = [ef.sinks.memory(f"stones{at}") for at in range(TOTALS)]
    for at, sink in enumerate(sinks):
        rows.agg(n="count(*)").to(sink, name=f"total{at}")
    at_site = []
    for sites in (4, 2):
        with ef.Engine(spark, sites=sites, first_placement="start", lease_s=2.0, checkpoint_s=1.0) as engine:
            run = engine.start(flow, checkpoint_location=str(tmp_path / "location"))
            if sites == 4:
                wait_until(lambda: all(sink.rows().num_rows > 1 for sink in sinks), 60, "some totals")
                assert run.is_active, "it was over before it was ended"
            else:
                assert run.await_termination(90)
            loads = run.statistics(last_s=60).replicas()
            names = {s.segment: s.name for window in run.statistics(last_s=60).sites for s in window.segments}
            at_site.append(Counter(load.site for load in loads if names[load.segment] != "in"))
    assert [sorted(counts.values()) for counts in at_site] == [[2, 2, 2, 2], [4, 4]]
    assert [sink.rows().column("n").to_pylist()[-1] for sink in sinks] == [ROWS] * TOTALS
