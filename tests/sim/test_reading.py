"""Sinks that read by themselves, as Spark does: a batch is said to be stored when the next one is planned (protocol O2)."""

from __future__ import annotations

import pytest

from evenflow.site.events import SinkTook
from evenflow.site.options import FlowOptions
from evenflow.world.sim.model import SinkModel
from tests.sim.test_scenarios import Stage

QUICK = FlowOptions(linger_ms=0.5, epoch_rows=5, heartbeat_ms=10.0, window_epochs=4)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("delay_us", [(20, 1_000), (30_000, 60_000)])
def test_what_a_batch_has_taken_does_not_hold_the_next_one_back(replicas: int, delay_us: tuple[int, int]) -> None:
    """Goal: no deadlock, and bounded memory behind a slow sink. Method: a reader that begins late finds a whole window, and takes it; many
    windows follow, to the end."""
    stage = Stage(replicas=replicas, options=QUICK, sink=SinkModel(delay_us, reads=True))
    world, most = stage.world, 0
    world.sink_blocked_until_us = world.now_us + 50_000
    egress = [segment.id for segment in world.layout.segments if segment.sink is not None]

    def look() -> bool:
        nonlocal most
        most = max([most, *[site.part.releasing.waiting_epochs for site in world.sites]])
        return min(world.driver.newest(segment) for segment in egress) > 10 * QUICK.window_epochs

    world.quotas.clear()
    world.run_until(look, 60.0, "ten windows of epochs")
    stage.finish()
    assert most <= 2 * QUICK.window_epochs * len(egress)
    assert any(stage.seen.of(site, SinkTook) for site in range(4))
    assert world.fired("O2", "give_way")


def test_a_replica_that_comes_later_is_told_what_has_been_taken() -> None:
    """Goal: it holds nobody back. Method: a host of the egress is lost between two batches, and has a successor."""
    stage = Stage(options=QUICK, sink=SinkModel((5_000, 20_000), reads=True), spares=1)
    world = stage.world
    egress = next(segment.id for segment in world.layout.segments if segment.sink is not None)
    stage.wait(lambda: world.driver.newest(egress) > 8, "some batches")
    world.kill(stage.machine.plan.hosts(egress)[0])
    stage.whole()
    stage.finish()
    assert world.fired("O2", "give_way") and world.fired("C3", "install_state")
