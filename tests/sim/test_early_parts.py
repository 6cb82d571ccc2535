"""What parts of open epochs could bring at distant sites (race.md, R1): measured, so that it is known why they are not built (no. 169)."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.detector import Patience
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.model import DetectionModel, LinkModel
from evenflow.world.sim.world import SimWorld

WIDTH_MS: Final = 50.0
AT_ONCE_MS: Final = 2.0
"""An epoch so narrow that its rows leave as soon as they come: no part of a wider one could leave sooner but by that."""
PATIENT: Final = Patience(500_000, misses=60, grace_us=0, lease_us=60_000_000, busy_us=60_000_000, late_us=1_000_000, votes=False)


def p50_ms(width_ms: float, delay_ms: int, seconds: float = 1.5) -> float:
    """Of a row, from when it was due until the sink had it: a filter, an exchange and a projection, the boxes that could emit parts."""
    flow = ef.Dataflow("early")
    rows = flow.source(ef.sources.generator(200, 1000, partitions=4), cut="content", width_ms=width_ms)
    rows.where("value >= 0").repartition().select("ts as at").to(ef.sinks.memory("out"), name="out")
    world = SimWorld(
        layout(flow.network, sites=4, partitions=4), sites=4, seed=1,
        options=FlowOptions(linger_ms=width_ms, window_epochs=4000, partitions=4),
        link=LinkModel((delay_ms * 950, delay_ms * 1_050)), detection=DetectionModel(patience=PATIENT),
    )  # fmt: skip
    world.run_for(1.2)
    taken, found = len(world.released["out"]), list[float]()
    until_us = world.now_us + int(seconds * 1e6)
    while world.now_us < until_us:
        world.run_for(0.001)
        new = world.released["out"][taken:]
        taken += len(new)
        for _, batch in new:
            found += list((world.now_us - batch.column("at").cast(pa.int64()).to_numpy()) / 1e3) if batch.num_rows else []
    return float(np.percentile(found, 50))


@pytest.mark.conformance
@pytest.mark.timeout(600)
@pytest.mark.parametrize("delay_ms", [10, 40])
def test_early_parts_would_not_halve_the_latency_between_distant_sites(delay_ms: int) -> None:
    whole, at_once = p50_ms(WIDTH_MS, delay_ms), p50_ms(AT_ONCE_MS, delay_ms)
    assert WIDTH_MS / 4 < whole - at_once < WIDTH_MS, "half a width is what they save, whatever the delay"
    assert whole < 2 * at_once
