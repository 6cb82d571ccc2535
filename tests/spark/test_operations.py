"""What a person does with a running engine, on real executors: sites leave and come while rows flow, and none is lost or counted twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import OperationRefused
from evenflow.world.spark.driver.control_client import ask, find
from tests.worlds.dataflows import Totals, counted

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]
Named = Callable[[str], str]
ROWS = 120_000
"""More than are read before the gate opens: there is load through all of it."""


class Flowing:
    """A counting dataflow in the middle of its run."""

    def __init__(self, engine: ef.Engine, gate: Path, name: str, replicas: int = 1) -> None:
        self.gate, self.sink = gate, ef.sinks.memory(name)
        self.run = engine.start(counted(gate, self.sink, ROWS, rate=8_000), replicas=replicas)
        self.goes_on()

    def goes_on(self) -> None:
        before = self.sink.rows().num_rows
        wait_until(lambda: self.sink.rows().num_rows > before + 300 or not self.run.is_active, "results come")
        assert self.run.is_active, str(self.run.exception())

    def hosts(self) -> dict[int, int]:
        return {site["site"]: site["partitions"] for site in self.run.progress()["sites"]}

    def gathers(self, box: str, site: int) -> int:
        """Pin a box to a site, wait until everything is there. Returns how many moves that took: none if a round has brought it there."""
        before = len(self.run.moves())
        asked = self.run.pin(box, sites=[site])
        wait_until(lambda: [m["state"] for m in self.run.moves()[before:]].count("done") >= asked, "the moves are over")
        return asked

    def ends_well(self) -> None:
        self.gate.touch()
        assert self.run.await_termination(120)
        Totals(ROWS).check(self.sink.rows())


def size(engine: ef.Engine) -> tuple[int, tuple[int, ...]]:
    return engine.sites, engine.sites_now


def wait_until(reached: Callable[[], object], what: str, within_s: float = 90.0) -> None:
    deadline, pause = time.monotonic() + within_s, threading.Event()
    while not reached():
        assert time.monotonic() < deadline, f"waited {within_s} s until {what}"
        pause.wait(0.05)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "gate"
    yield path
    path.touch()


def test_a_site_is_drained_one_is_added_load_is_spread_and_one_is_removed(
    spark: Any, gate: Path, named: Named, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: planned downtime and elastic scaling cost no row. Method: the engine shrinks, grows, balances and shrinks under load."""
    with ef.Engine(spark, sites=3, place_timeout_s=150) as engine:
        flowing = Flowing(engine, gate, named("operated"))
        said: list[str] = []
        place = engine._coordinator.sites[0].executor  # type: ignore[union-attr]

        left = engine.drain(0, say=said.append)
        assert (left.site, left.executor, left.lost) == (0, place, False)
        assert left.moves > 0 and left.partitions > 0 and left.bytes > 0 and said
        assert size(engine) == (2, (1, 2))
        assert {event["kind"] for event in flowing.run.events()} >= {"site_emptied", "site_left"}
        assert not {"site_lost", "take_over"} & {event["kind"] for event in flowing.run.events()}
        flowing.goes_on()

        with pytest.raises(OperationRefused, match="there is no site 0; there are 1, 2"):
            engine.drain(0)

        (new,) = engine.add_sites(1)
        assert new == 3 and size(engine) == (3, (1, 2, 3))
        assert engine._coordinator.sites[3].executor != place, "there was another one"  # type: ignore[union-attr]
        assert flowing.hosts()[3] == 0
        wait_until(lambda: flowing.run.rebalance() and flowing.hosts()[3] > 1, "the new site has got load")
        flowing.goes_on()

        flowing.gathers("aggregate", 1)
        assert flowing.gathers("aggregate", 3) > 0
        with pytest.raises(OperationRefused, match="site 3 cannot leave.* are pinned there"):
            engine.drain(3)
        flowing.run.unpin("aggregate")

        assert flowing.run.repartition("aggregate", 16) == 256
        flowing.goes_on()

        monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
        file = engine.open_control()
        found = ask(find(), "sites")
        assert {site["site"]: site["role"] for site in found["sites"]} == {1: "live", 2: "live", 3: "live"}
        assert [run["run"] for run in found["runs"]] == [flowing.run.id] and found["runs"][0]["moves"] == flowing.run.moves()
        with pytest.raises(OperationRefused, match="there is no site 0"):
            ask(find(), "drain", site=0)

        (removed,) = engine.remove_sites(1)
        assert removed.site in (1, 2), "the site with all of the box hosts most"
        assert size(engine)[0] == 2 and removed.site not in flowing.hosts()
        flowing.ends_well()
        assert all(move["state"] == "done" and move["seconds"] > 0 for move in flowing.run.moves())
    assert not file.exists()


@pytest.mark.conformance
def test_with_replicas_redundancy_never_falls_and_a_spare_takes_the_place(spark: Any, gate: Path, named: Named) -> None:
    with ef.Engine(spark, sites=3, spares=1, replicas=2, place_timeout_s=150) as engine:
        flowing = Flowing(engine, gate, named("pairs"), replicas=2)
        least: list[int] = []
        watching = threading.Event()

        def watch() -> None:
            while not watching.wait(0.02):
                least.append(flowing.run.progress()["redundancy"])

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            engine.drain(1)
        finally:
            watching.set()
            watcher.join()
        assert set(least) == {2}
        assert (engine.sites, engine.spares) == (3, 0) and engine.sites_now == (0, 2, 3)
        assert flowing.hosts()[3] > 0
        other = engine.start(counted(gate, ef.sinks.memory(named("beside")), rows=2_000))
        with pytest.raises(OperationRefused, match="1 would be left, and 2 replicas"):
            engine._operations.drain((0, 2), 10.0)
        flowing.ends_well()
        assert other.await_termination(60)
