"""A table that is joined changes at one epoch everywhere, for every join with it, whoever dies, joins or moves meanwhile (V2)."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.events import ReplaceRequested
from evenflow.coordinator.versions import with_table
from evenflow.query.planner import layout
from evenflow.query.refreshed import refreshed_tables
from evenflow.query.tables import with_tables
from evenflow.site.options import FlowOptions
from evenflow.swarm.cases import source
from evenflow.swarm.checkers import Checkers
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in

ROWS, KEYS = 4_000, 10
PARTS = [[(2 * at + p + 1, at % KEYS, at) for at in range(ROWS)] for p in range(2)]
ONE_SIDED = 3
"""This key is in the table of odd versions only."""


def content(version: int) -> pa.Table:
    keys = [k for k in range(KEYS) if version % 2 or k != ONE_SIDED]
    return pa.table({"k": pa.array(keys, pa.int64()), "version": pa.array([version] * len(keys), pa.int64())})


class Refreshed:
    """A run with a join where rows enter, and one behind an exchange, of the same table."""

    def __init__(self, replicas: int = 2, **options: Any) -> None:
        flow = ef.Dataflow("refreshed")
        table = flow.table(lambda: content(0), "versions", key="k", refresh=None)
        rows = flow.source(source(PARTS, Random(4)), name="in").select("k", "v").name("rows")
        rows.join(table, "k", "left", name="early").to(ef.sinks.memory("out"), name="out")
        counts = rows.group_by("k").agg(n="count(*)").name("counts")
        counts.join(table, "k", "inner", name="late").to(ef.sinks.memory("counts"), name="counted")
        (self.table,) = refreshed_tables(flow.network)
        self.planned = with_tables(layout(flow.network, sites=4, partitions=8), {"versions": self.read(0)})
        given = FlowOptions(linger_ms=0.5, epoch_rows=40, heartbeat_ms=10.0, **options)
        self.world = SimWorld(self.planned, sites=4, replicas=replicas, seed=3, options=given, read_rows=50, patience_ms=20.0)
        self.effective = {0: 0}
        Checkers(self.world)

    def read(self, version: int) -> pa.Table:
        return self.table.checked(content(version))

    def refresh(self, version: int) -> None:
        made = with_table(self.planned, self.world.coordinator.plan, "versions", self.read(version), version)
        assert made.boxes == ("early", "late")
        self.world.driver.coordinate(ReplaceRequested(made))

    def wait(self, version: int) -> None:
        def there() -> bool:
            found = self.world.coordinator.plan.version
            return found is not None and found.number == version

        self.world.run_until(there, 5.0, f"version {version}")
        self.effective[version] = self.world.coordinator.plan.effective

    def version_at(self, epoch: int) -> int:
        return max(version for version, effective in self.effective.items() if effective <= epoch)

    def finish(self) -> None:
        """Each epoch's rows are those of a batch join with the table that the plan has at that epoch."""
        self.world.run_until_quiet()
        seen: list[tuple[int, int]] = []
        for epoch, batch in self.world.released["out"]:
            version = self.version_at(epoch)
            for row in batch.to_pylist():
                seen.append((row["k"], row["v"]))
                assert row["version"] == (version if version % 2 or row["k"] != ONE_SIDED else None)
        assert sorted(seen) == sorted((k, v) for part in PARTS for _, k, v in part)
        for epoch, batch in self.world.released["counted"]:
            assert set(batch.column("version").to_pylist()) <= {self.version_at(epoch)}
            assert self.version_at(epoch) % 2 or ONE_SIDED not in batch.column("k").to_pylist()
        told = [event.details for _, event in self.world.happened if event.kind == "table_refreshed"]
        assert [(each["version"], each["epoch"]) for each in told] == [each for each in self.effective.items() if each[0]]


@pytest.mark.parametrize("replicas", one_in(2, [2, 1]))
def test_rows_meet_the_table_of_their_epoch(replicas: int) -> None:
    run = Refreshed(replicas)
    for version in (1, 2, 3):
        run.world.run_until(lambda: run.world.coordinator.seen > run.world.coordinator.plan.effective + 1, 5.0, "some epochs")
        run.refresh(version)
        run.wait(version)
    run.finish()
    released = {run.version_at(epoch) for epoch, batch in run.world.released["out"] if batch.num_rows}
    assert released == {0, 1, 2, 3}, "every content was met"


@pytest.mark.parametrize("victim", one_in(2, [0, 3]))
def test_whoever_dies_or_joins_meanwhile(victim: int) -> None:
    """Goal: an epoch has one content, who ever runs it. Method: a site dies before the plan, another joins after it; then comes a next."""
    run = Refreshed()
    run.world.run_for(0.01)
    run.refresh(1)
    run.world.kill(victim)
    run.wait(1)
    run.world.add_site()
    run.world.run_until(lambda: run.world.redundancy() == 2, 5.0, "redundancy")
    run.refresh(2)
    run.wait(2)
    run.finish()
