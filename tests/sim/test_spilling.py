"""State beyond the budget is on disk and takes turns in memory (M1): results are the same, whatever the disk does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.events import MovesRequested
from evenflow.errors import DiskError
from evenflow.policy.move import Move
from evenflow.policy.proposal import Parameters
from evenflow.query.builder import Stream
from evenflow.query.planner import layout
from evenflow.site.events import SpillFailed, StateMemoryChanged
from evenflow.site.options import FlowOptions
from evenflow.site.spilling import CHECK_US
from evenflow.site.turns import Turns
from evenflow.swarm.cases import make_rows, source
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.draw import EVERY_CASE
from evenflow.swarm.run import run_seed
from evenflow.world.sim.model import DiskModel, LinkModel
from evenflow.world.sim.world import SimWorld
from evenflow.world.spark.driver.options import EngineOptions
from tests.drawn import one_in

pytestmark = pytest.mark.one_in(3)

PACE: Final = {"read_rows": 10, "read_every_us": (500, 3_000)}


class Run:
    """A case on simulated sites. watch: spilled bytes at their most, over all sites."""

    def __init__(self, name: str, budget: int | None, *, rows: int = 300, sites: int = 3, replicas: int = 1, **given: Any) -> None:
        self.case = EVERY_CASE[name](Random(3), rows)
        options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, state_memory_bytes=budget, **given.pop("options", {}))
        planned = layout(self.case.flow.network, sites=sites, partitions=16)
        self.world = SimWorld(planned, sites=sites, replicas=replicas, seed=5, options=options, patience_ms=50.0, **(PACE | given))
        Checkers(self.world)
        self.most_spilled = 0

    def turns(self) -> list[Turns]:
        return [cohort.turns for site in self.world.sites for cohort in site.part.cohorts.values() if cohort.turns is not None]

    def look(self) -> bool:
        self.most_spilled = max(self.most_spilled, sum(site.part.spilling.spilled_bytes for site in self.world.sites))
        return False

    def finish(self) -> None:
        self.world.run_until(lambda: self.world.ended or self.look(), 600, "the run to end")
        if self.world.error is not None:
            raise self.world.error

    def judge(self) -> str | None:
        return self.case.judge({sink: self.world.output(sink) for sink in self.world.released})

    def read(self) -> int:
        return sum(site.disk.read_bytes for site in self.world.sites)

    def written(self) -> int:
        return sum(site.disk.written_bytes for site in self.world.sites)


@pytest.mark.parametrize("budget", [1, pytest.param(400, marks=pytest.mark.conformance)])
@pytest.mark.parametrize("name", one_in(3, sorted(EVERY_CASE)))
def test_the_output_is_the_same_with_hardly_any_memory(name: str, budget: int) -> None:
    run = Run(name, budget, rows=900 if name == "boxes" else 150, sites=2)
    run.finish()
    assert run.judge() is None
    assert run.written() and run.read(), "nothing was ever on disk"
    assert run.most_spilled


def of_rows(rows: Stream, mode: str) -> Stream:
    return rows.agg(n="count(*)", total="sum(v)", mode=mode)


def of_totals(rows: Stream, mode: str) -> Stream:
    return rows.group_by("k").agg(mode=mode, n="count(*)", t="sum(v)").agg(mode=mode, most="max(t)", n="count(*)")


def last(table: pa.Table) -> list[dict[str, Any]]:
    """Rows that are left of a changelog, or those of a table as it was put out last."""
    if "_change" not in table.column_names:
        return list(table.to_pylist())
    left: Counter[tuple[Any, ...]] = Counter()
    for row in table.to_pylist():
        change = row.pop("_change")
        left[tuple(row.items())] += -1 if change in ("delete", "update_before") else 1
    return [dict(row) for row in left.elements()]


@pytest.mark.parametrize(("make", "mode"), [(of_rows, "changelog"), (of_totals, "changelog"), (of_rows, "complete")])
def test_a_total_without_keys_is_one_row_wherever_its_state_is(make: Callable[[Stream, str], Stream], mode: str) -> None:
    """Goal: who has no partition while the only one takes turns does not answer at the end that there were no rows."""
    found = []
    for budget in (None, 1):
        flow = ef.Dataflow("totals")
        make(flow.source(source(make_rows(Random(3), 2, 150, 5), Random(3)), name="in"), mode).to(ef.sinks.memory("out"), name="out")
        options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, state_memory_bytes=budget)
        world = SimWorld(layout(flow.network, sites=2, partitions=16), sites=2, seed=5, options=options, patience_ms=50.0, **PACE)
        Checkers(world)
        world.run_until_quiet(600)
        assert bool(sum(site.disk.written_bytes for site in world.sites)) == (budget is not None)
        found.append(last(world.output("out")))
    assert found[0] == found[1] and len(found[0]) == 1


def test_without_a_budget_nothing_is_written() -> None:
    run = Run("running", None)
    run.finish()
    assert not run.written() and not run.turns()


def test_with_enough_memory_nothing_is_written() -> None:
    run = Run("running", 1 << 30)
    run.finish()
    assert not run.written() and not run.turns()


def test_memory_stays_within_the_budget_and_a_part_of_the_state_in_it() -> None:
    """Goal: the budget holds between rotations. Method: ask what is in memory whenever the site has just looked."""
    run, most, looks = Run("running", 3_000, rows=700, sites=1, read_every_us=(2_000, 8_000)), 0, 0

    def look() -> bool:
        nonlocal most, looks
        spilling = run.world.sites[0].part.spilling
        just_looked = spilling._check_us == run.world.clock.now_us + CHECK_US and not spilling._over
        if just_looked and spilling.spilled_bytes and not any(turns.rotation for turns in run.turns()):
            spilling._measure()
            most, looks = max(most, spilling._in_memory()), looks + 1
        return run.world.ended

    run.world.run_until(look, 600, "the end")
    assert run.judge() is None
    assert looks > 3 and 1_500 < most <= 3_000


def test_less_memory_while_it_runs_and_then_more() -> None:
    """Goal: relinquish and donate. Method: no budget, then hardly any, then none: state goes to disk, and comes back for good."""
    run = Run("running", None, sites=2)
    world = run.world
    world.sources_may_end = False
    world.run_for(0.05)
    assert not run.written()
    for site in world.sites:
        site.deliver(StateMemoryChanged(1))
    world.run_until(lambda: sum(site.part.spilling.spilled_bytes for site in world.sites) > 0, 5, "state on disk")
    for site in world.sites:
        site.deliver(StateMemoryChanged(None))
    world.run_until(lambda: all(not turns.groups for turns in run.turns()), 5, "all in memory")
    world.sources_may_end = True
    run.finish()
    assert run.judge() is None
    assert all(site.disk.used_bytes == 0 for site in world.sites), "what is not needed is still on disk"


def test_a_partition_on_disk_moves_from_there() -> None:
    """Goal: a move ships bytes from disk. Method: everything is on disk; move all partitions of a segment to another site."""
    run = Run("running", 1, sites=3)
    world, segment = run.world, 1
    world.sources_may_end = False
    world.run_until(lambda: all(site.part.spilling.on_disk(segment) for site in world.sites[:2]), 5, "partitions on disk")
    partitions = world.sites[0].part.cohorts[segment, 0].partitions
    world.driver.coordinate(MovesRequested((Move(segment, partitions, 0, 2, "test"),)))
    world.run_until(lambda: (segment, 0) not in world.sites[0].part.cohorts, 10, "the move")
    assert set(partitions) <= set(world.sites[2].part.cohorts[segment, 0].partitions)
    world.sources_may_end = True
    run.finish()
    assert run.judge() is None


def test_what_moves_away_is_not_written() -> None:
    """Goal: moves pre-empt spilling. Method: all state of a site is on its way elsewhere, over a slow link, when its memory is taken."""
    run = Run("running", None, sites=3, link=LinkModel(bytes_per_us=0.05))
    world, segment = run.world, 1
    world.sources_may_end = False
    world.run_for(0.05)
    partitions = world.sites[0].part.cohorts[segment, 0].partitions
    world.driver.coordinate(MovesRequested((Move(segment, partitions, 0, 2, "test"),)))
    world.run_until(lambda: bool(world.sites[0].part.view.leaving(segment)), 5, "the plan")
    world.limit_memory(0, 1)
    world.run_for(0.001)
    free = world.collect().sites[0].free_bytes
    assert free is not None and free < -1_000, "it is still there, and says so"
    world.run_until(lambda: (segment, 0) not in world.sites[0].part.cohorts, 10, "the move")
    assert not world.sites[0].disk.written_bytes
    world.sources_may_end = True
    run.finish()
    assert run.judge() is None


@pytest.mark.conformance
def test_a_policy_has_time_to_relieve_a_site_before_it_writes() -> None:
    """Goal: as above, from the lack of memory to the last move. Method: one site has half the memory that it needs."""
    run = Run("running", 1 << 30, sites=3, policy="evenflow")
    world = run.world
    world.sources_may_end = False
    world.run_for(0.05)
    world.limit_memory(0, world.collect().sites[0].state_bytes // 2)
    world.run_for(0.001)
    assert (world.collect().sites[0].free_bytes or 0) < 0
    world.run_until(lambda: (world.collect().sites[0].free_bytes or 0) >= 0, 5, "room at that site")
    assert not run.written()
    world.sources_may_end = True
    run.finish()
    assert run.judge() is None


def test_it_is_written_when_no_moves_have_come() -> None:
    parameters = Parameters(th_imb=1e9, relief_us=200_000)
    run = Run("running", None, sites=2, policy="utilization", parameters=parameters)
    world = run.world
    world.sources_may_end = False
    world.run_for(0.05)
    world.limit_memory(0, 1)
    world.run_for(0.19)
    assert not run.written()
    world.run_for(0.2)
    assert run.written()
    world.sources_may_end = True
    run.finish()
    assert run.judge() is None


@pytest.mark.parametrize("trouble", ["full", "refuses"])
def test_a_disk_that_takes_nothing_costs_memory_and_says_so(trouble: str) -> None:
    """Goal: degraded, not wrong. Method: every disk is full, or refuses; later they take again."""
    run = Run("running", 1, disk=DiskModel(capacity_bytes=1 if trouble == "full" else 0))
    world = run.world
    for site in world.sites:
        site.disk.refuses = trouble == "refuses"
    world.run_until(lambda: world.fired("M1", "hear_disk") > 3, 5, "a refusal")
    assert not run.written() and all(site.part.spilling.spilled_bytes == 0 for site in world.sites)
    told = [event for _, event in world.happened if event.kind == "disk_trouble"]
    assert told and ("full" if trouble == "full" else "takes nothing") in told[0].text
    assert len(told) == len({event.site for event in told}), "once is enough"
    for site in world.sites:
        site.disk.refuses, site.disk.capacity_bytes = False, 0
    run.finish()
    assert run.judge() is None


def test_what_is_read_wrong_once_is_read_again() -> None:
    run = Run("running", 1)
    for site in run.world.sites:
        site.disk.spoils = 1
    run.finish()
    assert run.judge() is None
    assert all(site.disk.spoils == 0 for site in run.world.sites)


def test_a_disk_that_lost_the_only_state_ends_the_run_with_its_error() -> None:
    run = Run("running", 1)
    world = run.world
    world.run_until(lambda: world.sites[0].part.spilling.spilled_bytes > 0, 5, "state on disk")
    world.sites[0].disk.breaks()
    with pytest.raises(DiskError, match="cannot be read"):
        run.finish()
    assert run.case.judge_part({sink: world.output(sink) for sink in world.released}) is None


def test_with_replicas_the_site_whose_disk_lost_state_leaves() -> None:
    run = Run("running", 1, replicas=2)
    world = run.world
    world.sources_may_end = False
    world.run_until(lambda: world.sites[0].part.spilling.spilled_bytes > 0, 5, "state on disk")
    world.sites[0].disk.breaks()
    world.run_until(lambda: not world.sites[0].alive, 5, "the site to leave")
    world.sources_may_end = True
    run.finish()
    assert run.judge() is None


def test_a_gap_makes_fewer_and_larger_rotations() -> None:
    """t_gap: less is read for the same rows (FL 6.1)."""
    read = {}
    for gap_ms in (0.0, 20.0):
        run = Run("running", 1, rows=400, sites=1, options={"spill_gap_ms": gap_ms})
        run.finish()
        assert run.judge() is None
        read[gap_ms] = run.read()
    assert read[20.0] < read[0.0] / 1.5


def test_groups_without_rows_stay_on_disk() -> None:
    """Goal: cold partitions are not read, where time changes nothing. Method: count reads of a run whose keys do not come again."""
    run = Run("running", 1, rows=200)
    asleep = 0

    def look() -> bool:
        nonlocal asleep
        asleep = max(asleep, sum(group.idle > 3 and group.hosted is None for turns in run.turns() for group in turns.groups))
        return run.world.ended

    run.world.run_until(look, 600, "the end")
    assert run.judge() is None and asleep


def test_answers_to_a_part_that_has_failed_are_ignored() -> None:
    run = Run("running", 1)
    part = run.world.sites[0].part
    part.failed = True
    assert part.handle(SpillFailed(1, "late"), 1) == []
    assert part.story.lines[-1][0].id == "M1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state_memory_bytes": 0}, "state_memory_bytes is 0; give a whole number, 1 or more"),
        ({"spill_group_bytes": 0}, "spill_group_bytes is 0; give a whole number"),
        ({"spill_gap_ms": -1.0}, "spill_gap_ms is -1.0; give a number 0 or more"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FlowOptions(**options)


def test_the_engine_says_its_own_name_for_the_budget() -> None:
    with pytest.raises(ValueError, match="state_memory_mb is .*greater than zero"):
        EngineOptions(state_memory_mb=0)
    assert EngineOptions(state_memory_mb=1.5).flow_options().state_memory_bytes == 3 << 19


def test_what_is_on_disk_and_has_no_state_any_more_is_whole_in_a_checkpoint() -> None:
    """Objects of earlier checkpoints have rows of such a partition: a later one has to say that they are gone. The seed is one that finds a
    checkpoint without that unreadable."""
    assert run_seed(700_577).failure is None
