"""Who leads an ended source from now on hears of the epochs that others have closed meanwhile, the last of all included (E5, I1)."""

from __future__ import annotations

from random import Random

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.cases import newest, source
from evenflow.swarm.checkers import Checkers
from evenflow.world.sim.world import SimWorld

SHORT, LONG = 20, 400
PARTS = [[(2 * at + 1, at % 7, at) for at in range(LONG)], [(2 * at + 2, at % 7, at) for at in range(SHORT)]]


def test_a_successor_that_nothing_else_tells_hears_of_the_last_epoch() -> None:
    """Goal: the run ends, though the leader of an ended source dies before it has closed the last epoch of all.

    Method: of six sites two have the long source, two the short one, and two all that reads them: so the successor of the short one gets
    neither records of the long one nor its frames. Its leader does not hear of the last epoch, and is killed when that has been closed.
    """
    flow = ef.Dataflow("last epoch")
    flow.source(source(PARTS, Random(1)), name="in").group_by("k").agg(n="count(*)").to(ef.sinks.memory("out"), name="out")
    planned = layout(flow.network, sites=6, partitions=1)
    options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0)
    world = SimWorld(planned, sites=6, replicas=2, seed=1, options=options, read_rows=10, read_every_us=(500, 2_000), patience_ms=60_000.0)
    Checkers(world)
    machine = world.coordinator
    long, short = machine.membership.leaders[0]
    successor = next(site for site in machine.plan.placement[0][1] if site != short.site)
    assert machine.view.load()[successor] == 1 and successor not in machine.plan.placement[0][0]
    leading = world.sites[long.site].part
    world.quotas[0, 0] = LONG - 10
    world.end_early.add((0, 1))
    world.sources_may_end = False
    world.run_until(lambda: world.sites[successor].part.leading.logs[0, 1].ended, 10.0, "the short source to end")
    world.run_until(lambda: leading.leading.logs[0, 0].taken == LONG - 10, 10.0, "most of the long source")
    world.cut((long.site, short.site))
    world.quotas.clear()
    world.sources_may_end = True
    world.run_until(lambda: leading.leading.logs[0, 0].ended, 10.0, "the last epoch of all")
    last = leading.closed
    assert world.sites[short.site].part.closed < last
    world.network.lose(long.site, short.site, by=long.site)
    world.kill(short.site)
    world.run_until_quiet(20.0)
    assert world.sites[successor].part.closed == last
    rows = newest(world.output("out")).values()
    assert sorted(rows) == [(k, sum(1 for part in PARTS for _, key, _ in part if key == k)) for k in range(7)]
