"""Copied partitions become level at sites that have no time to spare."""

from __future__ import annotations

import pytest

from evenflow.errors import ProtocolError
from evenflow.experiments.harness.simulated import Deployment
from evenflow.experiments.harness.simulator import start
from evenflow.experiments.harness.workload import SINK, grouped
from evenflow.site import arriving
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in


def whole_after_a_death(seed: int) -> SimWorld:
    """Sources that are never empty, operators that are the bottleneck, no spare. ProtocolError if it is not whole within 5 s."""
    options = FlowOptions(partitions=32, epoch_rows=10, pipeline=8)
    flow = grouped(keys=2_000, shown=1)
    # A piece of the state is under way for some ten epochs: a cohort that is never faster than the others stays that far behind.
    world = start(Deployment(flow, 4, 32, replicas=2, placement="chained", row_us=100.0, link_mbit_per_s=2.0, seed=seed, options=options))
    assert isinstance(world, SimWorld)
    world.run_for(1.0)
    world.kill(3)
    world.run_until(lambda: any(event.kind == "redundancy" for _, event in world.happened), 5.0, "redundancy")
    return world


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_partitions_are_recovered_onto_sites_that_are_busy_with_their_own(seed: int) -> None:
    """Goal: redundancy comes back without a site that has nothing to do.
    Method: a site dies, no other comes, and the rest are driven as fast as they go; the state takes longer than many epochs."""
    world = whole_after_a_death(seed)
    assert world.redundancy() == 2 and world.error is None
    before = len(world.released[SINK])
    world.run_for(0.5)
    assert len(world.released[SINK]) > before


@pytest.mark.conformance
def test_turn_and_turn_about_would_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenario is one in which copied cohorts need more than every second turn."""
    monkeypatch.setattr(arriving, "CATCH_UP_EPOCHS", 0)
    with pytest.raises(ProtocolError, match="redundancy"):
        whole_after_a_death(0)
