"""On a standalone master with several workers: a whole worker is lost, with its executor and everything below it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import evenflow as ef
from evenflow.bench.standalone import standalone_cluster
from evenflow.world.spark.cluster.session import embedded_session, stop_session
from tests.worlds.dataflows import Totals, counted
from tests.worlds.worlds import OnSpark

pytestmark = [pytest.mark.spark, pytest.mark.conformance, pytest.mark.timeout(300)]


def test_a_worker_is_lost_with_its_executor(gate: Path, tmp_path: Path, named: Callable[[str], str]) -> None:
    """Goal: nothing is lost, nothing comes twice, and the spare on another worker takes the place of what was lost."""
    home = tmp_path / "cluster"
    home.mkdir()
    with standalone_cluster(3, home) as cluster:
        spark = embedded_session(cluster.url, "evenflow-standalone", {"spark.executor.cores": "2", "spark.executor.memory": "512m"})
        try:
            with ef.Engine(spark, sites=2, spares=1, replicas=2) as engine:
                world = OnSpark(engine)
                sink = ef.sinks.memory(named("standalone"))
                world.start(counted(gate, sink), sink)
                world.until(lambda: world.output().num_rows > 300, "results come")
                victim = world.cast.leader
                cluster.kill_worker(cluster.worker_of(world.pid(victim)))
                world.until(lambda: bool(world.happened("redundancy")), "every partition has all its replicas")
                gate.touch()
                Totals().check(world.finish())
                assert world.happened("site_lost") == [victim] == world.happened("take_over")
        finally:
            stop_session(spark)
    assert not cluster.left
