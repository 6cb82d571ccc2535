"""Nexmark while partitions move and a site is killed: nobody can tell from the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from evenflow import nexmark
from evenflow.coordinator.events import DrainSite
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in
from tests.nexmark.dataflows import dataflow

EVENTS = {"events": 4_000, "rate": 4_000, "event_rate": 100, "disorder": 100}
"""Forty seconds of event time that comes within a second."""
SITES = 4


def world_of(name: str, seed: int, replicas: int) -> SimWorld:
    planned = layout(dataflow(name, seed=seed, partitions=2, **EVENTS).network, sites=SITES, partitions=16)
    options = FlowOptions(epoch_rows=1_000, linger_ms=20)
    return SimWorld(planned, sites=SITES, spares=1, replicas=replicas, seed=seed, options=options)


def results(table: pa.Table, newest: Sequence[str]) -> list[tuple[Any, ...]]:
    """Sorted rows; of states so far, the newest of each identity."""
    rows = table.to_pylist()
    if newest:
        rows = list({tuple(row[column] for column in newest): row for row in rows}.values())
    return sorted((tuple(row.values()) for row in rows), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.conformance)])
@pytest.mark.parametrize("name", one_in(10, nexmark.NAMES))
def test_results_are_the_same_when_a_site_is_emptied_and_another_one_killed(name: str, seed: int) -> None:
    """Goal: state of every query moves and is taken over. Method: a site's partitions move while rows come, then another site dies."""
    calm = world_of(name, seed, 1)
    calm.run_until_quiet()
    expected = results(calm.output("out"), nexmark.query(name).newest)
    world = world_of(name, seed, 2)
    world.run_for(0.2)
    world.driver.coordinate(DrainSite(0))
    world.run_until(lambda: any(event.kind == "site_emptied" for _, event in world.happened), 60.0, "an empty site")
    assert not world.ended, "there must be rows to come"
    world.kill(1)
    world.run_until_quiet()
    assert results(world.output("out"), nexmark.query(name).newest) == expected
    assert expected
    assert {"move_done", "site_lost"} <= {event.kind for _, event in world.happened}
