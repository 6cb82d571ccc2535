"""A sink whose commits become larger files, behind a run that loses sites, all of them, and its driver.

Plain readers see whole epochs only. A planted bug shows that the checks find what is lost.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow.errors import EvenflowError
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.swarm.mutations import Mutation, planted
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.world import SimWorld
from tests.sim.test_statistics import FED

ROWS = 500
"""Of each of two partitions."""
FORGETS = Mutation("a successor forgets what waits", "sinks.committed:CommittedFiles._learn", "if epoch > self._closed]", "if epoch < 0]")


def counted(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def plain(path: Path) -> Counter[str]:
    """What a reader sees that knows nothing of manifests."""
    return sum((counted(pq.read_table(file)) for file in path.glob("*.parquet")), Counter())


def seen_through(path: Path, seed: int) -> None:
    """Play it to its end. Raises AssertionError if a plain reader sees something other than whole commits, or not all of them then."""
    flow = ef.Dataflow("files")
    fed = [part.slice(0, ROWS) for part in FED]
    parts = [[part.slice(at, 20) for at in range(0, ROWS, 20)] for part in fed]
    sink = ef.sinks.parquet(str(path), commit_interval_ms=10, file_s=0.03)
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
    cluster = SimCluster(planned, seed=seed, prepare=prepare, sites=3, replicas=2, options=options, **given)
    shown: list[Counter[str]] = []

    def look(seconds: float) -> None:
        for _ in range(round(seconds / 0.01)):
            cluster.world.run_for(0.01)
            assert cluster.world.error is None
            shown.append(plain(path))
            whole = counted(sink.read())
            assert shown[-1] <= whole <= every
            assert len(shown) == 1 or shown[-2] <= shown[-1]

    every = counted(pa.Table.from_batches(fed).filter(pc.field("value") < 50))
    look(0.03)
    cluster.world.kill(1)
    cluster.world.add_site()
    look(0.05)
    cluster.lose_all()
    cluster.restart()
    look(0.03)
    cluster.kill_driver()
    cluster.restart(dark_us=2_000)
    cluster.world.run_until_quiet(20.0)
    assert cluster.world.error is None
    assert plain(path) == every == counted(sink.read())
    assert any(seen < every for seen in shown)
    assert 1 < len(list(path.glob("*.parquet"))) < len(list((path / "_evenflow").glob("manifest-*")))
    assert [name.name for name in (path / "_staging").iterdir() if not name.name.startswith((".", "_"))] == []


def test_losses_and_restarts_show_in_no_file(tmp_path: Path) -> None:
    seen_through(tmp_path, 4)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(5, 15))
def test_losses_and_restarts_show_in_no_file_whatever_the_seed(tmp_path: Path, seed: int) -> None:
    seen_through(tmp_path, seed)


@pytest.mark.conformance
def test_a_planted_bug_is_found(tmp_path: Path) -> None:
    with planted(FORGETS), pytest.raises((AssertionError, EvenflowError)):
        seen_through(tmp_path, 4)
