"""Tables of Delta and Iceberg behind a run that loses sites, all of them, or its driver: each row is in them once."""

from __future__ import annotations

from pathlib import Path

import pytest

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.world import SimWorld
from tests.sim.test_statistics import FED, ROWS, passed
from tests.sinks.test_table_formats import commits, sink_at


@pytest.mark.conformance  # As of files: test_larger_files.
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_losses_and_restarts_show_in_no_table(tmp_path: Path, format_: str) -> None:
    """Goal: nothing lost, nothing twice, no commit of an epoch that is not durable. Method: a site is lost, later everything, and then a
    driver whose sites go on for a while."""
    flow = ef.Dataflow("tables")
    parts = [[part.slice(at, 20) for at in range(0, ROWS, 20)] for part in FED]
    sink = sink_at(format_, tmp_path, commit_s=0.04, retries=5)
    flow.source(ef.sources.memory(parts), name="rows").where("value < 50", name="half").to(sink)
    planned = layout(flow.network, sites=3, partitions=4)
    (stage,) = planned.stages()
    sink.prepare("r", stage.schema)
    checkers: list[Checkers] = []

    def prepare(world: SimWorld) -> None:
        checkers.append(Checkers(world, checkers[-1] if checkers else None))
        JournalCheckers(world)

    options = FlowOptions(linger_ms=0.5, epoch_rows=10, heartbeat_ms=10.0)
    given = {"read_rows": 5, "read_every_us": (500, 2_000), "patience_ms": 50.0}
    cluster = SimCluster(planned, seed=4, prepare=prepare, sites=3, replicas=2, options=options, **given)
    cluster.world.run_for(0.02)
    cluster.world.kill(1)
    cluster.world.add_site()
    cluster.world.run_for(0.03)
    cluster.lose_all()
    cluster.restart()
    cluster.world.run_for(0.03)
    cluster.kill_driver()
    cluster.restart(dark_us=2_000)
    cluster.world.run_until_quiet(20.0)
    assert cluster.world.error is None
    found = sink.read().select(passed().column_names)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, passed().to_pylist()))
    made = commits(format_, sink)
    assert len(made) == len(set(made)) > 2 and len({run for run, _ in made}) == 1
    assert max(int(epoch) for _, epoch in made) <= cluster.store.standing().durable
