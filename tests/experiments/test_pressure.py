"""The experiments with memory pressure, held against worlds whose figures are known, and what they need of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenflow.experiments.harness import pressure
from evenflow.experiments.harness.balancing import FLUX_2002, deployment
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.pressure import BYTES_PER_MB, GROUPS, EvenSource, Machine, Pressed, even_keys
from evenflow.experiments.harness.simulated import Deployment
from evenflow.experiments.harness.simulator import start
from evenflow.experiments.harness.workload import grouped
from evenflow.experiments.papers import hybrid, memory
from evenflow.experiments.result.drawing import draw
from evenflow.experiments.result.result import Measurement
from evenflow.kernels.hash import hash_columns, partition_of, table_of_ranges
from tests.experiments.fake_balancing import FakeBalancing, worlds

QUICK = Setting("sim", True, lambda text: None)
Latency = Callable[[str, int | None], int]


def missed(found: Measurement) -> set[str]:
    return {name for name, bound in found.target.items() if not bound.holds(found.measured.get(name))}


def late(made: Callable[[Deployment], FakeBalancing], latency_us: Latency) -> Callable[[Deployment], FakeBalancing]:
    """Worlds whose epochs take so long."""

    def begin(deployed: Deployment) -> FakeBalancing:
        world = made(deployed)
        world.latency_us = latency_us
        return world

    return begin


def falls(deployed: Deployment, now_us: int, since_us: int | None) -> int:
    """Nothing comes out for two seconds; then all of it, if somebody moves partitions."""
    if since_us is None:
        return 100
    return 0 if since_us < 2_000_000 else 5 if deployed.policy == "none" else 100


def spilled(policy: str, since_us: int | None) -> int:
    return 4_000 if since_us is None or policy != "none" else 4_000_000


def test_memory_is_judged_by_the_rate_and_by_when_it_is_back(tmp_path: Path) -> None:
    made, begin = worlds(falls, ((5_000_000, 3), (11_000_000, 3)))
    found = memory.measure(QUICK, late(begin, spilled))
    assert missed(found) == set() and found.measured["relieved_s_evenflow"] == pytest.approx(9.0)
    assert found.measured["share_none"] == pytest.approx(0.05) and found.measured["share_memory"] == pytest.approx(1.0)
    assert found.measured["back_s_evenflow"] == pytest.approx(2.0) and found.measured["latency_none_by_evenflow"] == pytest.approx(1000)
    half = int(memory.QUICK.machine.mb / 2 * BYTES_PER_MB)
    assert [world.memory for world in made] == [{memory.VICTIM: half}] * 4
    assert [world.deployment.policy for world in made] == ["none", "memory", "memory", "evenflow"]
    asked = [world.deployment.parameters for world in made]
    assert asked[1] == FLUX_2002 and asked[2] == replace(FLUX_2002, relief_us=pressure.WAITS_US) and asked[0] is asked[3] is None
    draw(found.chart, tmp_path / "memory.svg")


def test_memory_misses_what_it_should() -> None:
    def stays(deployed: Deployment, now_us: int, since_us: int | None) -> int:
        return 100 if since_us is None else 50

    found = memory.measure(QUICK, worlds(stays)[1])
    assert missed(found) == {
        "share_memory", "share_memory_waits", "back_s_memory_waits", "share_evenflow", "back_s_evenflow", "relieved_s_evenflow",
        "latency_none_by_evenflow",
    }  # fmt: skip


SLOWER = {f"rate_{load}_hybrid_by_best_single" for load in hybrid.LOADS} | {"rate_medium_hybrid_waits_by_best_single"}
LATER = {f"latency_heavy_utilization_by_{name}" for name in hybrid.OURS}


@pytest.mark.parametrize(
    ("rates", "latency", "misses"),
    [
        ({"memory": 80, "utilization": 100, "hybrid": 100, "evenflow": 100}, 2.0, set()),
        ({"memory": 100, "utilization": 80, "hybrid": 90, "evenflow": 100}, 2.0, SLOWER),
        ({"memory": 100, "utilization": 100, "hybrid": 100, "evenflow": 100}, 0.5, LATER),
    ],
)  # fmt: skip
@pytest.mark.conformance
def test_hybrid_is_held_against_the_best_of_the_two(rates: dict[str, int], latency: float, misses: set[str], tmp_path: Path) -> None:
    made, begin = worlds(lambda deployed, now_us, since_us: rates[deployed.policy])
    found = hybrid.measure(QUICK, late(begin, lambda policy, since_us: 1_000 * round(10 * latency if policy == "utilization" else 10)))
    assert missed(found) == misses
    loads = len(hybrid.POLICIES)
    medium, heavy, waiting = made[:loads], made[loads : 2 * loads], made[2 * loads :]
    assert [world.deployment.policy for world in waiting] == ["memory", "utilization", "hybrid"]
    assert all(world.deployment.parameters.relief_us == pressure.WAITS_US for world in waiting)  # type: ignore[union-attr]
    medium += waiting
    assert all(set(world.slow) == set(world.memory) == {0} for world in medium)
    assert all(set(world.slow) == set(world.memory) == {0, 1, 2, 3} for world in heavy)
    assert all(world.slow[0] == pytest.approx(1 / hybrid.LEFT) for world in made)
    draw(found.chart, tmp_path / "hybrid.svg")


def test_the_set_up_is_the_papers_but_for_its_scale() -> None:
    variant = pressure.variants(memory.TIMES.set_up, Machine(), "memory")[0]
    made = pressure.limited(Machine(), Deployment(None, 8, variant.partitions))  # type: ignore[arg-type]
    assert variant.partitions == 8 * 128 and variant.parameters == FLUX_2002
    assert made.options.state_memory_bytes == 1024 * 1_000_000 // pressure.SCALE
    assert made.disk_bytes_per_us * pressure.SCALE == pytest.approx(20.0) and made.link_shared
    assert [each.mb for each in hybrid.TIMES.pressed("heavy")] == [512.0] * 4 + [762.0] * 4


def test_each_partition_owns_as_many_keys() -> None:
    keys = even_keys(32)
    batch = EvenSource(rate=None, keys=32 * GROUPS, count=2).open(0, 2).read(0, 1000)
    assert batch is not None
    owner = partition_of(hash_columns(batch, ["key"]), table_of_ranges(32))
    assert set(batch.column("key").to_pylist()) <= set(keys.tolist())
    assert np.unique(keys).size == 32 * GROUPS and np.bincount(owner).min() > 0
    early = [EvenSource(rate=None, keys=128, count=2).open(p, 2).read(0, 64) for p in (0, 1)]
    first = [key for rows in early if rows is not None for key in rows.column("key").to_pylist()]
    assert sorted(first) == sorted(keys.tolist())  # Each of them, before any comes twice.


def test_a_site_without_memory_spills_and_is_relieved_in_the_simulator() -> None:
    """The whole of it, small: half of a site's partitions have no room any more, and go to where there is some."""
    machine, set_up = Machine(8, 64.0), replace(memory.QUICK.set_up, every_s=0.05)
    variant = pressure.variants(set_up, machine, "evenflow")[0]
    run = pressure.run(start, set_up, machine, variant, 6.0, [Pressed(1.5, 1, 32.0)])
    assert run.moved(1.5) >= 3 and run.seen.copied_mb(1.5, 6.0) * pressure.SCALE > 15


def test_what_is_over_the_budget_goes_to_disk_while_epochs_come() -> None:
    """Groups of one partition each: several of them must be on disk at once, though every epoch brings all of them back in turn."""
    machine, set_up = Machine(8, 64.0), memory.QUICK.set_up
    variant = pressure.variants(set_up, machine, "none")[0]
    source = EvenSource(rate=None, keys=variant.partitions * GROUPS, count=pressure.INGRESS)
    flow = grouped(keys=source.keys, shown=1, history=pressure.HISTORY, source=source)
    world = start(pressure.limited(machine, deployment(set_up, variant, flow)))
    world.run_for(1.5)
    world.limit_memory(1, int(24 * BYTES_PER_MB))
    world.run_for(0.1)
    short = world.collect().sites[1]  # type: ignore[attr-defined]
    world.run_for(4.0)
    later = world.collect().sites[1]  # type: ignore[attr-defined]
    assert short.free_bytes < 0 <= later.free_bytes and later.spilled_bytes > 3 * 6 * BYTES_PER_MB
