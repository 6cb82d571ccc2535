"""A run that is lost begins with its newest checkpoint that can be read, and its outputs do not show it (availability.md, K9)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evenflow.availability.retained import place_of
from evenflow.coordinator.events import MovesRequested, RepartitionRequested
from evenflow.errors import CheckpointCorrupt
from evenflow.policy.move import Move
from evenflow.site.events import Event, StateMemoryChanged, StatePartRead, StateRead
from evenflow.site.machine import SiteMachine
from evenflow.site.options import FlowOptions
from evenflow.state import folding
from evenflow.swarm.draw import EVERY_CASE, PUSHED
from evenflow.swarm.state_checkers import StateCheckers
from evenflow.world.sim.model import DiskModel
from tests.drawn import one_in
from tests.sim.test_restart import Stage, as_undisturbed

pytestmark = pytest.mark.one_in(2)

OPTIONS = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, checkpoint_s=0.01)


@pytest.fixture(autouse=True)
def _a_part_for_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """State that is as small as here would come in one part."""
    monkeypatch.setattr(folding, "READ_ROWS", 1)


def staged(case: str, seconds: float = 0.08, **given: Any) -> Stage:
    """Half way through, with some checkpoints, and then all is lost."""
    stage = Stage(case, options=OPTIONS, **given)
    stage.world.run_for(seconds)
    stage.cluster.lose_all()
    found = stage.cluster.store.standing()
    assert len(found.checkpoints) >= 2, "there is something to begin with"
    return stage


def restored(stage: Stage) -> bool:
    return all(cohort.ready for site in stage.world.sites for cohort in site.part.cohorts.values())


def spoil(stage: Stage, *, lost: bool, back: int = 1) -> list[str]:
    """The objects of a checkpoint are lost or altered; the newest, or one before. Returns their names."""
    store, made = stage.cluster.store, stage.cluster.store.standing().checkpoints[-back]
    own = made.place  # What it has from those before is theirs, too.
    names = [stored.name for stored in made.objects if place_of(stored.name) == own]
    for name in names:
        data = store.objects.pop(name)
        if not lost:
            store.objects[name] = data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
    return names


@pytest.mark.parametrize("case", one_in(5, sorted(EVERY_CASE.keys() - PUSHED.keys())))
def test_all_is_lost_and_comes_again_from_the_newest_checkpoint(case: str) -> None:
    replicas = 1 + sorted(EVERY_CASE).index(case) // 2 % 2
    stage = staged(case, replicas=replicas)
    stage.cluster.restart()
    beginning = stage.world.coordinator.beginning  # What was on its way to the journal when all was lost may have come there since.
    assert beginning.epoch > 0
    stage.finish()
    assert stage.world.fired("K9", "restore") and stage.world.fired("K9", "restore_part") > 1
    as_undisturbed(stage, beginning.durable, case, 0.08, replicas=replicas, options=OPTIONS)


@pytest.mark.parametrize(("sites", "replicas"), one_in(2, [(1, 1), (3, 2), (7, 2)], spread=True))
@pytest.mark.parametrize("case", one_in(2, ["two_stages", "joins"]))
def test_onto_other_sites(case: str, sites: int, replicas: int) -> None:
    stage = staged(case, replicas=2)
    stage.cluster.restart(sites=sites, replicas=replicas)
    assert stage.world.coordinator.beginning.epoch > 0
    stage.finish()


def test_memory_of_what_comes_back_is_taken_in_small_pages_until_it_is_here() -> None:
    stage = staged("two_stages", replicas=2)
    stage.cluster.restart()
    cohorts = [cohort for site in stage.world.sites for cohort in site.part.cohorts.values()]
    tables = [own.table for cohort in cohorts for own in cohort.hosted.facts.shares if own is not None]
    stage.world.run_until(lambda: any(table.arena.small for table in tables) or restored(stage), 10.0, "state that comes")
    assert any(table.arena.small for table in tables) and not restored(stage)
    stage.world.run_until(lambda: restored(stage), 10.0, "all of it")
    assert any(table.count for table in tables) and not any(table.arena.small for table in tables)


def test_a_second_loss_before_the_state_is_read_and_a_third_after_more_checkpoints() -> None:
    stage = staged("windows", replicas=2)
    stage.cluster.store.slow = 20.0
    stage.cluster.restart()
    stage.world.run_for(0.01)
    assert not restored(stage)
    stage.cluster.lose_all()
    stage.cluster.store.slow = 1.0
    first = stage.cluster.store.standing().base
    stage.cluster.restart()
    stage.world.run_until(lambda: stage.cluster.store.standing().base > first, 10.0, "a checkpoint of this generation")
    stage.cluster.lose_all()
    stage.cluster.restart(sites=3)
    assert stage.world.coordinator.beginning.epoch > first
    stage.finish()


def go_on_three_times(case: str = "windows", seed: int = 0) -> tuple[Stage, list[int]]:
    """Everything is lost behind some checkpoints of each generation, and goes on at other sites. Returns how many objects of generations
    before the newest checkpoint of each one has named."""
    stage, shared = staged(case, replicas=2, seed=seed), list[int]()
    for sites in (3, 2, 4):
        stage.cluster.restart(sites=sites)
        StateCheckers(stage.world)
        store, generation = stage.cluster.store, stage.cluster.store.generations
        own = lambda: [made for made in store.standing().checkpoints if made.generation == generation]  # noqa: B023, E731
        stage.world.run_until(lambda: len(own()) >= 2 or stage.world.ended, 10.0, "checkpoints of this generation")  # noqa: B023
        before = [stored for made in own() for stored in made.objects if (place_of(stored.name) or (0, 0))[0] < generation]
        shared.append(len(before))
        if stage.world.ended:
            break
        stage.cluster.lose_all()
    return stage, shared


def test_checkpoints_go_on_from_the_one_that_was_restored() -> None:
    """Goal: the first checkpoint of a generation has what has changed, whatever sites have what was restored. Method: three losses, each
    behind some checkpoints, on as many sites as never before."""
    stage, shared = go_on_three_times()
    assert all(shared), "objects of generations before are needed still"
    if not stage.cluster.over:
        stage.cluster.restart()
        stage.finish()


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_a_site_dies_while_its_state_is_read(seed: int) -> None:
    stage = staged("windows", replicas=2, seed=seed)
    stage.cluster.store.slow = 20.0
    stage.cluster.restart()
    stage.world.run_for(0.005)
    assert not restored(stage)
    stage.world.kill(seed)
    stage.cluster.store.slow = 1.0
    stage.finish()


@pytest.mark.parametrize(("case", "replicas"), one_in(2, [("windows", 2), ("poison", 1)], spread=True))
def test_what_is_read_goes_to_disk_by_whole_partitions(case: str, replicas: int) -> None:
    """Goal: what is read of a partition has a place where all of it is. Method: hardly any memory, boxes with several states, and between
    two parts so much time that it is looked in between whether something has to go to disk."""
    options = replace(OPTIONS, state_memory_bytes=1)
    stage = Stage(case, options=options, replicas=replicas, sites=2)
    stage.world.run_until(lambda: stage.cluster.store.standing().base > 0, 10.0, "a checkpoint")
    stage.cluster.lose_all()
    stage.cluster.restart(sites=2)
    world, early = stage.world, set[str]()
    assert world.coordinator.beginning.epoch > 0

    def look() -> bool:
        for site in world.sites:
            site.part.spilling.hear(StateMemoryChanged(1))  # It is looked at once, and not after a while.
            early.update(str(cohort.key) for cohort in site.part.cohorts.values() if not cohort.ready and cohort.turns is not None)
        return restored(stage)

    world.run_until(look, 10.0, "the state")
    assert world.fired("K9", "restore_part") > 1 and early
    stage.finish()


class Watched:
    """Half way through, all is lost, and the state is read again with so much memory. most: bytes that were in memory at any site at once.
    whole: the most state that a site had before the loss; largest: of one partition."""

    def __init__(self, budget: int, case: str = "two_stages") -> None:
        options = replace(OPTIONS, state_memory_bytes=budget)
        self.stage, self.most = Stage(case, options=options, rows=1500, sites=2), 0
        self.stage.world.run_for(0.3)
        held = [self._sizes(site.part) for site in self.stage.world.sites]
        self.whole, self.largest = max(map(sum, held)), max(map(max, held))
        self.stage.cluster.lose_all()
        assert self.stage.cluster.store.standing().checkpoints
        self.stage.cluster.restart(sites=2)

    @staticmethod
    def _sizes(part: SiteMachine) -> list[int]:
        """Bytes of each partition of each segment, wherever it is."""
        return [size for cohort in part.cohorts.values() for size in cohort.partition_bytes(cohort.partitions).tolist()]

    @staticmethod
    def _in_memory(part: SiteMachine) -> int:
        total = 0
        for cohort in part.cohorts.values():
            groups = [] if cohort.turns is None else [group.hosted for group in cohort.turns.groups]
            for hosted in [cohort.hosted, *[hosted for hosted in groups if hosted is not None]]:
                total += int(hosted.partition_bytes(hosted.partitions).sum())
        return total

    def read(self) -> None:
        def look() -> bool:
            self.most = max([self.most, *[self._in_memory(site.part) for site in self.stage.world.sites]])
            return restored(self.stage)

        self.stage.world.run_until(look, 10.0, "the state")


@pytest.mark.conformance
def test_a_restart_takes_no_more_memory_than_the_budget() -> None:
    """Goal: state that was on disk before a loss is on disk behind it, and is never in memory meanwhile; but one partition that is larger
    than a group may be there beside the budget. Method: look at each step."""
    watched = Watched(12_000)
    assert 12_000 + watched.largest < 0.6 * watched.whole
    watched.read()
    assert 6_000 < watched.most <= 12_000 + watched.largest
    assert any(site.part.spilling.spilled_bytes for site in watched.stage.world.sites)
    watched.stage.finish()


@pytest.mark.conformance
def test_a_restart_with_room_for_all_writes_nothing() -> None:
    watched = Watched(1 << 30)
    watched.read()
    assert not any(site.disk.written_bytes for site in watched.stage.world.sites)
    watched.stage.finish()


@pytest.mark.conformance
def test_a_disk_that_takes_nothing_costs_a_restart_memory_and_no_more() -> None:
    watched = Watched(12_000)
    for site in watched.stage.world.sites:
        site.disk.refuses = True
    watched.read()
    assert watched.most > 12_000
    for site in watched.stage.world.sites:
        site.disk.refuses = False
    watched.stage.finish()


@pytest.mark.conformance
def test_the_budget_is_given_up_while_a_restart_waits_for_the_disk() -> None:
    watched = Watched(12_000)
    for site in watched.stage.world.sites:
        site.disk._model = DiskModel((5_000_000, 5_000_000))
    began_us = watched.stage.world.clock.now_us
    watched.stage.world.run_for(0.1)
    assert not restored(watched.stage), "the disk is slow"
    for site in watched.stage.world.sites:
        site.deliver(StateMemoryChanged(None))
    watched.read()
    assert watched.stage.world.clock.now_us < began_us + 1_000_000
    watched.stage.finish()


@pytest.mark.parametrize("lost", one_in(2, [False, True]))
def test_a_checkpoint_that_cannot_be_read_is_passed_over(lost: bool) -> None:
    """Goal: nothing that is missing is taken for empty, nothing torn for whole. Method: the newest one is spoilt, then the one before."""
    stage = staged("windows")
    stage.cluster.lasting.clock.after(100_000, lambda: None)
    while stage.cluster.lasting.clock.step():
        pass  # What is on its way to the store comes there.
    names, found = spoil(stage, lost=lost), stage.cluster.store.standing()
    stage.cluster.restart()
    with pytest.raises(CheckpointCorrupt, match=f"object '({'|'.join(names)})' with the state of box '.*', partitions"):
        stage.world.run_until_quiet()
    spoil(stage, lost=lost, back=2)
    stage.cluster.try_older()
    assert stage.world.coordinator.beginning.epoch == found.checkpoints[-2].epoch
    with pytest.raises(CheckpointCorrupt):
        stage.world.run_until_quiet()
    stage.cluster.try_older()
    assert stage.world.coordinator.beginning.epoch == (found.checkpoints[-3].epoch if len(found.checkpoints) > 2 else 0)
    assert stage.world.coordinator.beginning.durable == found.durable
    stage.world.run_until(stage.replayed, 10.0, "the replay")
    stage.world.run_until(lambda: stage.cluster.store.standing().base > found.durable, 10.0, "a checkpoint behind what was made again")
    stage.cluster.store.unreadable.clear()
    assert stage.cluster.store.standing().base > found.durable, "who does not know that some are unreadable finds no contradiction"
    stage.finish()
    as_undisturbed(stage, found.durable, "windows", 0.08, options=OPTIONS)


def test_reads_that_bring_a_part_only_are_done_again() -> None:
    stage = staged("windows")
    stage.cluster.store.model = type(stage.cluster.store.model)(torn=0.15)
    stage.cluster.restart()
    stage.world.run_until(lambda: restored(stage), 10.0, "the state")
    stage.finish()


def test_what_is_read_of_a_replica_that_has_gone_is_ignored() -> None:
    stage = staged("windows", replicas=2)
    stage.cluster.restart()
    stage.world.run_until(lambda: restored(stage), 10.0, "the state")
    site = stage.world.sites[0]
    for segment in range(len(stage.planned.segments)):
        site.deliver(StatePartRead(segment, {(0, 0): b"late"}, {}))
        site.deliver(StateRead(segment, {}))
    stage.finish()


def test_some_partitions_leave_while_their_state_is_read() -> None:
    """Goal: what is read of a partition that has gone is let go. Method: of the replicas one is read slowly. A move away from it is done
    without it, by epochs that are replayed, and who waited for its frames is dead."""
    stage = Stage("windows", options=OPTIONS, replicas=2, sites=4)
    stage.world.run_until(lambda: stage.cluster.store.standing().base > 0, 10.0, "a checkpoint")
    stage.world.coordinator.checkpointing.every_ms = 1e9
    stage.world.run_until(lambda: stage.durable > stage.cluster.store.standing().base + 8, 10.0, "epochs behind it")
    stage.cluster.lose_all()
    stage.cluster.restart(sites=4)
    world, slow = stage.world, stage.world.sites[2]
    segment = next(segment.id for segment in stage.planned.segments if segment.is_keyed(stage.planned))
    held, deliver = list[Event](), slow.deliver

    def hold(event: Event, *rest: Any) -> None:
        if isinstance(event, StatePartRead | StateRead) and event.segment == segment:
            held.append(event)
        else:
            deliver(event, *rest)

    slow.deliver = hold  # type: ignore[method-assign]
    others = [site for site in world.sites if site is not slow]
    world.run_until(lambda: bool(held) and all(c.ready for site in others for c in site.part.cohorts.values()), 10.0, "the others")
    cohort = slow.part.cohorts[segment, 0]
    gone = next(partition for event in held if isinstance(event, StatePartRead) for partition, _ in event.states)
    world.driver.coordinate(MovesRequested((Move(segment, (gone,), 2, 1, "to see"),)))
    world.run_for(0.1)
    world.kill(3)
    world.run_until(lambda: gone not in cohort.partitions, 10.0, "a partition to leave")
    assert not cohort.ready and cohort.partitions, "others wait for their state"
    slow.deliver = deliver  # type: ignore[method-assign]
    for event in held:
        deliver(event)
    world.run_until(lambda: cohort.ready, 10.0, "the state")
    assert not cohort.hosted.partition_bytes((gone,)).any(), "nothing is kept of it"
    stage.finish()


@pytest.mark.parametrize("sites", one_in(2, [2, 5]))
def test_partitions_were_divided_after_the_checkpoint(sites: int) -> None:
    """Goal: state is taken as the plan of its epoch has left it. Method: a plan between the base and the loss."""
    stage = Stage("windows", options=OPTIONS, max_partitions=40)
    keyed = tuple(segment.id for segment in stage.planned.segments if segment.is_keyed(stage.planned))
    stage.world.run_until(lambda: stage.cluster.store.standing().base > 0, 10.0, "a checkpoint")
    stage.world.coordinator.checkpointing.every_ms = 1e9
    stage.world.driver.coordinate(RepartitionRequested(keyed, 40))
    stage.world.run_until(lambda: len(stage.cluster.store.standing().contents) > 1, 10.0, "the plan")
    effective = stage.world.coordinator.plan.effective
    stage.world.run_until(lambda: stage.durable > effective + 3, 10.0, "epochs under it")
    stage.cluster.lose_all()
    base = stage.cluster.store.standing().base
    assert 0 < base < effective, "the newest checkpoint is of the plan before"
    stage.cluster.restart(sites=sites)
    stage.finish()
