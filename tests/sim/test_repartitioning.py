"""A keyed segment gets more partitions, or fewer, while it runs, and nobody can tell from its output (E1)."""

from __future__ import annotations

import pytest

from evenflow.availability.mode import Mode
from evenflow.coordinator.events import DrainSite, MovesRequested, Pin, RepartitionRequested, Tell
from evenflow.coordinator.operations import chosen, to_repartition
from evenflow.coordinator.repartitioning import TRIES_MAX
from evenflow.errors import OperationRefused
from evenflow.plan.ranges import in_use
from evenflow.policy.move import Move
from evenflow.site.events import PlanAborted
from evenflow.site.options import FlowOptions
from tests.drawn import one_in
from tests.sim.test_moving import hosts, kinds, moved, moves, other
from tests.sim.test_scenarios import Stage

REQUEST = 7


def keyed(stage: Stage) -> tuple[int, ...]:
    layout = stage.world.layout
    return tuple(segment.id for segment in layout.segments if segment.is_keyed(layout))


def ask(stage: Stage, partitions: int) -> None:
    stage.world.driver.coordinate(RepartitionRequested(keyed(stage), partitions, REQUEST))


def used(stage: Stage, segment: int) -> tuple[int, ...]:
    return in_use(stage.machine.plan.ranges_of(stage.world.layout.segments[segment]))


def divided(stage: Stage, partitions: int) -> None:
    """So it is, and all who host anything have gone on under the plan."""
    stage.wait(lambda: all(len(used(stage, segment)) == partitions for segment in keyed(stage)), f"{partitions} partitions")
    effective = stage.machine.plan.effective
    sites = stage.world.sites
    stage.wait(lambda: all(sites[i].part.processed > effective for i in stage.machine.view.active() if sites[i].alive), "an epoch under it")


def rows_by_partition(stage: Stage, segment: int) -> dict[int, int]:
    """Bytes of state by partition, of the first replica of each."""
    found: dict[int, int] = {}
    for site in stage.world.sites:
        cohort = site.part.cohorts.get((segment, 0)) if site.alive else None
        if cohort is not None:
            found |= dict(zip(cohort.partitions, cohort.partition_bytes(cohort.partitions).tolist(), strict=True))
    return {partition: size for partition, size in found.items() if size}


@pytest.mark.parametrize("replicas", one_in(2, [1, 2]))
@pytest.mark.parametrize("case", one_in(2, ["running", "windows", "boxes", "row_windows", "joins", "two_stages"]))
def test_there_are_more_partitions_then_fewer(case: str, replicas: int) -> None:
    """Goal: results stay the same whatever state is divided. Method: all keyed segments are split, joined into one, and split again."""
    stage = Stage(case, replicas=replicas, max_partitions=40)
    stage.world.run_for(0.02)
    for partitions in (40, 1, 16):
        ask(stage, partitions)
        divided(stage, partitions)
        for segment in keyed(stage):
            assert set(rows_by_partition(stage, segment)) <= set(used(stage, segment)), "state is where its key groups are"
    assert kinds(stage).count("repartitioned") == 3 * len(keyed(stage))
    stage.finish()


def test_nothing_travels_when_a_partition_is_split_and_the_new_ones_can_move() -> None:
    """Goal: splitting makes finer units of load. Method: the new partitions are at their origin's site; one of them then moves."""
    stage = Stage(replicas=1, max_partitions=32)
    stage.world.run_for(0.05)
    (segment,) = keyed(stage)
    ask(stage, 32)
    divided(stage, 32)
    assert stage.world.copied_bytes < 100_000 and len(rows_by_partition(stage, segment)) > 16
    new = next(p for p in rows_by_partition(stage, segment) if p >= 16)
    source = hosts(stage, segment, new)[0]
    target = next(site for site in stage.machine.sites if site != source)
    before = kinds(stage).count("move_done")
    stage.world.driver.coordinate(MovesRequested((Move(segment, (new,), source, target, "to see"),)))
    stage.wait(lambda: kinds(stage).count("move_done") > before, "the move")
    assert hosts(stage, segment, new) == (target,)
    stage.finish()


def test_who_is_behind_divides_before_the_next_plan_moves_something_away() -> None:
    """Goal: what is split off gets its state where its origin's replica is about to leave (seed 11,075,730). Method: a site that is far
    behind, and nobody waits for, hears of the split, and at once of a move of the origin from there; its other replica gives the state."""
    options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, pipeline=8)
    stage = Stage(sites=5, replicas=2, rows=2000, max_partitions=64, options=options)
    stage.world.run_for(0.02)
    (segment,), machine = keyed(stage), stage.machine
    modes = [Mode.PAIRS if each.sink is None else Mode.AMNESIA for each in stage.world.layout.segments]
    ask(stage, 1)
    divided(stage, 1)
    stage.world.set_availability(tuple(modes), 2)  # The only consumer of its rows gets them from the other replica.
    stage.wait(lambda: machine.plan.modes == tuple(modes), "one sink")
    origin = used(stage, segment)
    slow = next(site for site in hosts(stage, segment, origin[0]) if site not in hosts(stage, segment + 1, 0))
    target, part = other(stage, segment, origin), stage.world.sites[slow].part
    ask(stage, 64)
    stage.wait(lambda: len(used(stage, segment)) == 64, "the split")
    stage.world.slow_down(slow, 100.0)
    split, before = machine.plan.effective, kinds(stage).count("move_done")
    moves(stage, Move(segment, origin, slow, target, "to see"))
    assert part.cohorts[segment, 0].hosted.done < split - 1, "it has divided already"
    moved(stage, before + 1)
    stage.world.slow_down(slow, 1.0)
    assert slow not in hosts(stage, segment, origin[0])
    stage.finish()


@pytest.mark.parametrize("replicas", one_in(2, [2, 3]))
def test_a_death_while_partitions_come_together(replicas: int) -> None:
    """Goal: what follows is decided by where replicas are. Method: everything is to be one partition; the target of a move dies."""
    stage = Stage(sites=6, replicas=replicas)
    stage.world.run_for(0.02)
    ask(stage, 1)
    copy = stage.copy()
    assert copy.moves
    stage.world.kill(copy.target)
    stage.wait(lambda: "take_over" in kinds(stage), "the take-over")
    stage.world.add_site()
    divided(stage, 1)
    stage.finish()


def test_a_death_before_the_plan_is_committed() -> None:
    """Goal: a plan that was aborted is proposed again (V1). Method: it is proposed when a site is dead and nobody knows."""
    stage = Stage(sites=4, replicas=2, max_partitions=32)
    stage.world.run_for(0.02)
    stage.world.kill(stage.leader())
    ask(stage, 32)
    first = stage.machine.proposed
    assert first is not None and first.ranges
    stage.wait(lambda: "take_over" in kinds(stage), "the take-over")
    assert stage.machine.plan.ranges == () and Tell(stage.machine.sites[0], PlanAborted(first.number)) in stage.seen.told
    stage.world.add_site()
    divided(stage, 32)
    stage.whole()
    stage.finish()


def test_state_on_disk_comes_together_first() -> None:
    """Goal: partitions that take turns can be divided, too. Method: nearly nothing may be in memory."""
    options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, state_memory_bytes=2_000)
    stage = Stage("windows", replicas=2, max_partitions=64, options=options)
    (segment,) = keyed(stage)

    def asleep() -> int:
        return sum(len(site.part.spilling.on_disk(segment)) for site in stage.world.sites)

    stage.wait(lambda: asleep() > 4, "state on disk")
    for partitions in (64, 3):
        ask(stage, partitions)
        divided(stage, partitions)
        assert set(rows_by_partition(stage, segment)) <= set(used(stage, segment))
        stage.wait(lambda: asleep() > 0, "state on disk again")
    stage.finish()


def test_a_site_that_has_just_got_partitions_divides_them_with_its_own() -> None:
    """Goal: no key is lost between a copied cohort and the one that it joins. Method: a dead site's partitions come back, and as soon as
    they count everything is joined."""
    stage = Stage("boxes", sites=4, replicas=2)
    stage.world.run_for(0.02)
    victim = hosts(stage, keyed(stage)[0], 0)[0]
    ask(stage, 4)
    stage.world.kill(victim)
    stage.world.add_site()
    divided(stage, 4)
    stage.whole()
    stage.finish()


def test_what_is_drained_meanwhile_leaves_first() -> None:
    stage = Stage(sites=4, replicas=1)
    stage.world.run_for(0.02)
    stage.world.driver.coordinate(DrainSite(0))
    ask(stage, 2)
    divided(stage, 2)
    assert "site_emptied" in kinds(stage)
    stage.finish()


def test_what_does_not_come_together_stays_as_it_is() -> None:
    """Goal: no endless moving. Method: no state arrives as it was sent, so no move is ever done."""
    stage = Stage(sites=3, replicas=1)
    stage.world.run_for(0.02)
    stage.world.transfer_fates.extend(["corrupt"] * 20 * TRIES_MAX)
    ask(stage, 1)
    stage.wait(lambda: "repartition_refused" in kinds(stage), "an answer")
    assert "cannot be divided" in stage.world.answers[REQUEST].why  # type: ignore[union-attr]
    stage.world.transfer_fates.clear()
    assert stage.machine.plan.ranges == () and not stage.machine.repartitioning.wanted
    stage.finish()


def test_it_is_not_wanted_any_more() -> None:
    stage = Stage(sites=3, replicas=1)
    stage.world.run_for(0.02)
    ask(stage, 1)
    ask(stage, 0)
    stage.world.run_for(0.2)
    assert stage.machine.plan.ranges == ()
    stage.finish()


def test_what_cannot_be_divided_is_refused_and_says_why() -> None:
    stage = Stage(max_partitions=32)
    stage.world.run_for(0.02)
    layout, machine = stage.world.layout, stage.machine
    (segment,) = keyed(stage)
    name = layout.segments[segment].name
    assert to_repartition(machine, name, 32) == (segment,)
    for count in (0, True, 2.5):
        with pytest.raises(OperationRefused, match="a whole number from 1 on"):
            to_repartition(machine, name, count)  # type: ignore[arg-type]
    with pytest.raises(OperationRefused, match="32 partitions at most, not 33: start it with the option max_partitions=33"):
        to_repartition(machine, name, 33)
    with pytest.raises(OperationRefused, match="has no box 'nowhere'"):
        to_repartition(machine, "nowhere", 4)
    with pytest.raises(OperationRefused, match="box 'out' has no rows by key"):
        to_repartition(machine, "out", 4)
    stage.world.driver.coordinate(Pin(chosen(layout, name, [3])))
    with pytest.raises(OperationRefused, match="1 partitions of .* are pinned, .* unpin them first"):
        to_repartition(machine, name, 4)
    stage.finish()


def test_a_copy_takes_state_that_has_been_divided() -> None:
    """Goal: no copy begins with a plan of the epoch before the state is divided. Method: a new partition is to move at once."""
    stage = Stage(replicas=1, max_partitions=32)
    stage.world.run_for(0.05)
    (segment,) = keyed(stage)
    ask(stage, 32)
    stage.wait(lambda: bool(stage.machine.plan.ranges), "the plan")
    source = hosts(stage, segment, 16)[0]
    target = next(site for site in stage.machine.sites if site != source)
    moving = tuple(p for p in range(32) if hosts(stage, segment, p) == (source,))
    stage.world.driver.coordinate(MovesRequested((Move(segment, moving, source, target, "to see"),)))
    assert stage.machine.proposed.effective == stage.machine.plan.effective + 1
    stage.wait(lambda: "move_done" in kinds(stage), "the move")
    stage.finish()
