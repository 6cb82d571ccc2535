"""A run whose driver or whole cluster is lost goes on where its journal stands, and its outputs do not show it (J1, K10)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.availability.entries import Ended
from evenflow.availability.mode import Mode
from evenflow.coordinator.events import RepartitionRequested, StopRequested
from evenflow.errors import EvenflowError, PartitionsLost, SourceError
from evenflow.query.planner import layout
from evenflow.site.events import DrainRequested
from evenflow.site.options import FlowOptions
from evenflow.swarm.cases import Case
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.draw import EVERY_CASE
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.swarm.mutations import REPLAY, Mutation, planted
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in


class Stage:
    """A dataflow over several generations, with every checker."""

    def __init__(self, case: str = "windows", *, sites: int = 4, replicas: int = 1, rows: int = 400, seed: int = 1, **given: Any) -> None:
        self.case: Case = EVERY_CASE[case](Random(seed), rows)
        self.checkers: list[Checkers] = []
        options = given.pop("options", FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0))
        self.planned = layout(self.case.flow.network, sites=sites, partitions=16, max_partitions=given.pop("max_partitions", None))
        given = {"read_rows": 10, "read_every_us": (500, 2_000), "patience_ms": 50.0, **given}
        self.cluster = SimCluster(self.planned, seed=seed, prepare=self._prepare, sites=sites, replicas=replicas, options=options, **given)
        self.world.sources_may_end = False
        for segment in self.planned.segments:
            if segment.kind == "ingress":
                for partition, count in enumerate(self.case.counts[segment.source or ""]):
                    self.world.quotas[segment.id, partition] = count * 2 // 3

    def _prepare(self, world: SimWorld) -> None:
        self.checkers.append(Checkers(world, self.checkers[-1] if self.checkers else None))
        JournalCheckers(world)

    @property
    def world(self) -> SimWorld:
        return self.cluster.world

    @property
    def durable(self) -> int:
        return self.cluster.store.standing().durable

    def replayed(self) -> bool:
        """All that was durable is processed once more, and something new is."""
        world = self.world
        return all(world.sites[i].part.processed > world.coordinator.beginning.durable for i in world.coordinator.view.active())

    def finish(self) -> None:
        """The run ends with the right answer."""
        self.world.quotas.clear()
        self.world.sources_may_end = True
        self.world.run_until_quiet(20.0)
        assert self.case.judge({sink: self.world.output(sink) for sink in self.world.released}) is None


def undisturbed(case: str, seconds: float, **given: Any) -> dict[str, dict[int, list[str]]]:
    """The rows by sink and epoch of the same run, to which nothing happens."""
    stage = Stage(case, **given)
    stage.world.run_for(seconds)
    stage.finish()
    return by_epoch(stage.world.released)


def by_epoch(released: dict[str, list[tuple[int, pa.RecordBatch]]]) -> dict[str, dict[int, list[str]]]:
    return {
        sink: {epoch: sorted(map(repr, rows.to_pylist())) for epoch, rows in epochs if rows.num_rows} for sink, epochs in released.items()
    }


def as_undisturbed(stage: Stage, durable: int, case: str, seconds: float, **given: Any) -> None:
    """What sinks have of the epochs that were durable is what they have where nothing happens."""
    before, found = undisturbed(case, seconds, **given), by_epoch(stage.world.released)
    for sink, epochs in before.items():
        assert {e: rows for e, rows in found[sink].items() if e <= durable} == {e: rows for e, rows in epochs.items() if e <= durable}


@pytest.mark.parametrize(
    ("case", "replicas"),
    one_in(3, [("running", 1), ("running", 2), ("windows", 1), ("joins", 2), ("two_stages", 1), ("boxes", 2), ("late", 1)], spread=True),
)
def test_the_cluster_is_lost(case: str, replicas: int) -> None:
    """Goal: nothing is lost, repeated or different. Method: everything is gone at once; as many sites come again."""
    stage = Stage(case, replicas=replicas)
    stage.world.run_for(0.05)
    stage.cluster.lose_all()
    stored = {sink: len(epochs) for sink, epochs in by_epoch(stage.world.released).items()}
    durable = stage.cluster.restart().coordinator.beginning.durable
    assert durable > 5
    stage.finish()
    assert dict(stage.cluster.lasting.dropped) == {sink: count for sink, count in stored.items() if count}, "each is given once more"
    as_undisturbed(stage, durable, case, 0.05, replicas=replicas)


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_the_driver_is_lost_and_its_sites_go_on_for_a_while(seed: int) -> None:
    """Goal: what sites of a former generation still do is nobody's business. Method: the next driver is there before they have ended."""
    stage = Stage("running", replicas=2, seed=seed)
    stage.world.run_for(0.05)
    former = stage.world
    stage.cluster.kill_driver()
    durable = stage.durable
    stage.cluster.restart(dark_us=2_000)
    assert all(site.alive for site in former.sites)
    stage.finish()
    as_undisturbed(stage, durable, "running", 0.05, replicas=2, seed=seed)


@pytest.mark.parametrize("everything", one_in(2, [False, True]))
def test_the_driver_is_lost_while_the_last_word_is_under_way(everything: bool) -> None:
    """Goal: who comes next finds that the run is over, and begins nothing; sinks have everything. Method: the journal's last entry has been
    sent and its answer has not come."""
    stage = Stage("running", replicas=2)
    world = stage.world
    world.quotas.clear()
    world.sources_may_end = True
    journal = world.coordinator.journal
    assert journal is not None
    world.run_until(lambda: journal.open is not None and isinstance(journal.open.matter, Ended), 20.0, "the last word")
    assert not world.ended
    stage.cluster.lose_all() if everything else stage.cluster.kill_driver()
    assert stage.cluster.restart() is world, "nothing is begun"
    assert stage.cluster.over
    assert stage.case.judge({sink: world.output(sink) for sink in world.released}) is None


@pytest.mark.parametrize(("replicas", "everything"), one_in(2, [(1, False), (2, False), (2, True)], spread=True))
def test_all_replicas_of_something_are_lost_and_the_same_driver_goes_on(replicas: int, everything: bool) -> None:
    """Goal: nothing is lost, repeated or different, on the sites that are left, or on new ones; what those that are left still do for the
    former generation is nobody's business. Method: kill the sites with all replicas of a partition, or all sites."""
    stage = Stage("running", replicas=replicas)
    stage.world.run_for(0.05)
    former = stage.world
    victims = range(len(former.sites)) if everything else former.coordinator.plan.placement[-1][0]
    for site in victims:
        former.kill(site)
    former.run_until(lambda: former.ended, 5.0, "the run to be lost")
    assert isinstance(former.error, PartitionsLost)
    durable = stage.durable
    left = sum(site.alive for site in former.sites)
    assert left == len(former.sites) - len(victims)
    stage.cluster.go_on_in_place(sites=max(left, replicas))
    stage.finish()
    as_undisturbed(stage, durable, "running", 0.05, replicas=replicas)


@pytest.mark.parametrize(
    ("case", "sites", "replicas"), one_in(4, [("joins", 3, 2), ("joins", 1, 1), ("row_windows", 7, 3), ("row_windows", 4, 1)], spread=True)
)
def test_other_sites_and_other_replicas_come(case: str, sites: int, replicas: int) -> None:
    """Goal: what is replayed does not depend on where it runs. Method: one, three or seven sites where there were four."""
    stage = Stage(case, replicas=2)
    stage.world.run_for(0.06)
    stage.cluster.lose_all()
    durable = stage.durable
    stage.cluster.restart(sites=sites, replicas=replicas)
    assert stage.world.redundancy() == replicas
    stage.finish()
    as_undisturbed(stage, durable, case, 0.06, replicas=2)


@pytest.mark.parametrize("case", one_in(2, ["running", "two_stages"]))
def test_the_cluster_is_lost_again_and_again(case: str) -> None:
    """Goal: a replay can be replayed. Method: the second loss comes while the first is made good, the third after something new."""
    stage = Stage(case, replicas=2)
    stage.world.run_for(0.1)
    stage.cluster.lose_all()
    first = stage.cluster.restart().coordinator.beginning.durable
    stage.world.run_until(lambda: any(site.part.processed > first // 2 for site in stage.world.sites), 10.0, "half of the replay")
    stage.cluster.kill_driver()
    assert stage.durable == first, "what is replayed is not journalled again"
    stage.cluster.restart(sites=3)
    stage.world.run_until(lambda: stage.durable > first + 3, 10.0, "something new")
    stage.cluster.lose_all()
    stage.cluster.restart(sites=5)
    stage.finish()
    as_undisturbed(stage, first, case, 0.1, replicas=2)


@pytest.mark.parametrize("seed", one_in(3, (2, 0, 1, 3)))
def test_a_death_while_it_is_replayed(seed: int) -> None:
    """Goal: a successor goes on with the script, for partitions that it has led before and those that it has not.
    Method: the leader of a partition dies in the middle of the replay."""
    stage = Stage("two_stages", replicas=2, seed=seed)
    stage.world.run_for(0.08)
    stage.cluster.lose_all()
    durable = stage.durable
    stage.cluster.restart()
    world = stage.world
    world.run_until(lambda: any(site.part.processed > durable // 3 for site in world.sites), 10.0, "some of the replay")
    leaders = [leader.site for row in world.coordinator.membership.leaders for leader in row]
    world.kill(leaders[0])
    world.add_site()
    stage.finish()
    as_undisturbed(stage, durable, "two_stages", 0.08, replicas=2, seed=seed)


@pytest.mark.parametrize(("case", "sites"), one_in(3, [("running", 2), ("windows", 5), ("boxes", 2)], spread=True))
def test_partitions_were_divided_between_the_base_and_the_loss(case: str, sites: int) -> None:
    """Goal: each epoch is replayed under what its plan said. Method: keyed segments are split and joined, then all is lost."""
    stage = Stage(case, max_partitions=40)
    keyed = tuple(segment.id for segment in stage.planned.segments if segment.is_keyed(stage.planned))
    for partitions in (40, 3):
        stage.world.run_for(0.01)
        stage.world.driver.coordinate(RepartitionRequested(keyed, partitions))
        count = len(stage.cluster.store.standing().contents)
        stage.world.run_until(lambda c=count: len(stage.cluster.store.standing().contents) > c, 10.0, "the plan")  # type: ignore[misc]
        effective = stage.world.coordinator.plan.effective
        stage.world.run_until(lambda e=effective: stage.durable > e + 3, 10.0, "epochs under it")  # type: ignore[misc]
    stage.cluster.lose_all()
    stage.cluster.restart(sites=sites)
    beginning = stage.world.coordinator.beginning
    assert len(beginning.plans) >= 3 and beginning.plans[-1].effective < beginning.durable
    stage.world.run_until(stage.replayed, 10.0, "the replay")
    stage.world.driver.coordinate(RepartitionRequested(keyed, 16))
    stage.finish()
    assert stage.world.coordinator.plan.number > beginning.plans[-1].number and stage.world.coordinator.plan.effective > beginning.durable


def test_what_is_replayed_keeps_its_content_though_a_plan_is_wanted_meanwhile() -> None:
    """Goal: a plan that divides partitions waits until what is replayed is over. Method: one is asked for at the beginning of a replay."""
    stage = Stage("running", max_partitions=40)
    stage.world.run_for(0.08)
    stage.cluster.lose_all()
    stage.cluster.restart()
    keyed = tuple(segment.id for segment in stage.planned.segments if segment.is_keyed(stage.planned))
    stage.world.driver.coordinate(RepartitionRequested(keyed, 40))
    stage.finish()
    machine, contents = stage.world.coordinator, stage.cluster.store.standing().contents
    assert [content.ranges != () for content in contents] == [False, True] and contents[1].effective > machine.beginning.durable


def test_who_has_chosen_pairs_has_them_after_every_loss() -> None:
    """Goal: that nothing is said of modes and that all are to be pairs are two things. Method: a passive run is changed to pairs, and lost
    twice; each generation is started as the first one was."""
    stage = Stage(availability="passive")
    stage.world.run_for(0.02)
    stage.world.set_availability((Mode.PAIRS,) * len(stage.planned.segments), 1)
    stage.world.run_until(lambda: stage.world.coordinator.plan.number > 0, 5.0, "the change")
    effective = stage.world.coordinator.plan.effective
    stage.world.run_until(lambda: stage.durable >= effective, 5.0, "an epoch of the new plan")
    for _ in range(2):
        stage.cluster.lose_all()
        stage.cluster.restart()
        assert {stage.world.coordinator.plan.mode(segment.id) for segment in stage.planned.segments} == {Mode.PAIRS}
        stage.world.run_until(stage.replayed, 5.0, "something new")
    stage.finish()


def test_a_clock_that_has_jumped_back() -> None:
    """Goal: time does not go back for what is computed from it (E6). Method: the clocks of those who come are late."""
    stage = Stage("running")
    stage.world.run_for(0.05)
    stage.cluster.lose_all()
    found = stage.cluster.store.standing()
    newest = {key: max(cut.stamp for cut in cuts if cut.epoch <= found.durable) for key, cuts in found.cuts.items()}
    stage.cluster.restart(ahead_us=-900_000)
    assert stage.world.clock.now_us < min(newest.values())
    stage.finish()
    for key, cuts in stage.cluster.store.standing().cuts.items():
        stamps = [cut.stamp for cut in cuts]
        assert stamps == sorted(set(stamps)) and stamps[-1] > newest[key]


def test_a_clock_that_has_jumped_ahead_and_back() -> None:
    """Goal: as before; and what is replayed is not later than it was. Method: a driver that is a day ahead, and one that is right again."""
    stage = Stage("windows")
    for ahead_us in (86_400_000_000, 0):
        stage.world.run_for(0.05)
        stage.cluster.lose_all()
        before = stage.cluster.store.standing().cuts
        stage.cluster.restart(ahead_us=ahead_us)
        stage.world.run_until(stage.replayed, 10.0, "what was durable to be there again")
        after = stage.cluster.store.standing().cuts
        assert all(after[key][: len(cuts)] == cuts for key, cuts in before.items())
    newest = {key: cuts[-1].stamp for key, cuts in after.items()}
    assert stage.world.clock.now_us < min(newest.values()), "a day was added to all of them"
    stage.finish()
    for cuts in stage.cluster.store.standing().cuts.values():
        stamps = [cut.stamp for cut in cuts]
        assert stamps == sorted(set(stamps))


def test_an_epoch_that_is_greater_than_epochs_may_be_now() -> None:
    """Goal: what was cut is cut so again, whatever options say now. Method: the next driver allows epochs of two rows."""
    stage = Stage("running", options=FlowOptions(linger_ms=2.0, epoch_rows=60, heartbeat_ms=10.0))
    stage.world.run_for(0.05)
    stage.cluster.lose_all()
    before = stage.cluster.store.standing().cuts
    assert max(b.taken - a.taken for cuts in before.values() for a, b in pairwise(cuts)) > 4
    stage.cluster.restart(options=FlowOptions(linger_ms=0.5, epoch_rows=2, heartbeat_ms=10.0, window_epochs=4))
    stage.finish()
    after = stage.cluster.store.standing().cuts
    assert all(after[key][: len(cuts)] == cuts for key, cuts in before.items())


def test_a_source_that_has_forgotten_its_rows_ends_the_run() -> None:
    """Goal: rows that are gone are named, and nothing is given out instead. Method: most rows are gone when they are read again."""
    stage = Stage("running")
    stage.world.run_for(0.05)
    stage.cluster.lose_all()
    stored = by_epoch(stage.world.released)
    for name, source in list(stage.planned.sources.items()):
        shorter = tuple(tuple(batch.slice(0, 3) for batch in part[:1]) for part in source.per_partition)
        stage.planned.sources[name] = type(source)(source.columns, shorter)  # type: ignore[index]
    stage.cluster.restart()
    stage.world.quotas.clear()
    stage.world.sources_may_end = True
    with pytest.raises(SourceError, match=r"box 'in', epoch \d+: partition \d cannot be replayed: .* goes from position 0 to \d+, and the"):
        stage.world.run_until_quiet(20.0)
    assert by_epoch(stage.world.released) == stored


@pytest.mark.parametrize("seed", one_in(8, range(24)))
def test_a_source_that_forgets_ends_the_run_exactly_if_the_rows_are_needed(seed: int) -> None:
    """Goal: rows before the newest checkpoint may go, others are named when they have, and nothing is given out instead. Method: all is
    lost at any time, and a partition of a source keeps its first rows only, however many."""
    random = Random(f"what is forgotten {seed}")
    options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, checkpoint_s=random.choice([None, 0.005, 0.02]))
    stage = Stage(random.choice(["running", "windows", "joins", "two_stages"]), replicas=random.choice([1, 2]), seed=seed, options=options)
    stage.world.run_for(random.uniform(0.02, 0.12))
    stage.cluster.lose_all()
    beginning = stage.cluster.restart().coordinator.beginning
    key = random.choice(sorted(beginning.cuts))
    before, through = beginning.logs.get(key, [0])[0], beginning.through(key)
    kept = random.choice([random.randint(0, before), random.randint(before, max(before, through)), through])
    name = stage.planned.segments[key[0]].source or ""
    source: Any = stage.planned.sources[name]
    rows = pa.Table.from_batches(source.per_partition[key[1]]).slice(0, kept).to_batches()
    parts = [tuple(rows) if number == key[1] else part for number, part in enumerate(source.per_partition)]
    stage.planned.sources[name] = type(source)(source.columns, tuple(parts))  # type: ignore[index]
    stored = by_epoch(stage.world.released)
    stage.world.quotas.clear()
    stage.world.sources_may_end = True
    if before < through and kept < through:
        named = rf"partition {key[1]} cannot be replayed: .* goes from position \d+ to \d+, and the"
        with pytest.raises(SourceError, match=named):
            stage.world.run_until_quiet(20.0)
        found = by_epoch(stage.world.released)
        assert all(epoch <= beginning.durable for epochs in found.values() for epoch in epochs)
    else:
        stage.world.run_until_quiet(20.0)
        found = by_epoch(stage.world.released)
    assert all(found[sink][epoch] == rows for sink, epochs in stored.items() for epoch, rows in epochs.items())


def test_a_drain_while_it_is_replayed_takes_in_what_was_taken_in_before() -> None:
    """Goal: a drained run has the effect of all that was given out, and of no more. Method: it is drained as it begins."""
    stage = Stage("running")
    stage.world.run_for(0.06)
    stage.cluster.lose_all()
    cuts = stage.cluster.store.standing().cuts
    stage.cluster.restart()
    stage.world.stop(drain=True)
    stage.world.run_until_quiet(20.0)
    after = stage.cluster.store.standing().cuts
    for key, before in cuts.items():
        assert after[key][: len(before)] == before and after[key][-1].ended


@pytest.mark.parametrize("all_lost", [True, False])
def test_a_drain_goes_on_where_its_driver_is_lost(all_lost: bool) -> None:
    """Goal: each partition of a source ends where it had come to, and none is read to its end. Method: one site hears late that the run is
    drained; all is lost when some partitions have ended, by what is durable, and others have not."""
    count, schema = 3_000, pa.schema([("k", pa.int64()), ("v", pa.int64())])
    flow = ef.Dataflow("half")
    parts = [[pa.record_batch([[number] * count, [1] * count], schema=schema)] for number in range(3)]
    flow.source(ef.sources.memory(parts)).group_by("k").agg(n="sum(v)").to(ef.sinks.memory("out"), name="out")
    given: Any = {
        "options": FlowOptions(linger_ms=0.5, heartbeat_ms=20.0),
        "read_rows": 20,
        "prepare": lambda world: Checkers(world) and None,
    }
    cluster = SimCluster(layout(flow.network, sites=4, partitions=8), sites=4, replicas=2, **given)
    world, store = cluster.world, cluster.store
    world.run_for(0.03)
    deliver = world.sites[0].deliver

    def late(event: Any, *more: Any) -> None:
        if isinstance(event, DrainRequested):
            world.clock.after(5_000, lambda: deliver(event, *more))
        else:
            deliver(event, *more)

    world.sites[0].deliver = late  # type: ignore[method-assign]
    world.stop(drain=True)

    def ended() -> int:
        standing = store.standing()
        return sum(any(cut.ended and cut.epoch <= standing.durable for cut in cuts) for cuts in standing.cuts.values())

    world.run_until(lambda: 0 < ended() < len(parts), 10.0, "some partitions to end")
    assert store.standing().drained
    if all_lost:
        cluster.lose_all()
    else:
        cluster.kill_driver()
    world = cluster.restart()
    world.run_until_quiet(30.0)
    taken = {partition: cuts[-1].taken for (_, partition), cuts in store.standing().cuts.items()}
    assert {row["k"]: row["n"] for row in world.output("out").to_pylist()} == taken and max(taken.values()) < count // 2
    assert not world.coordinator.exhausted and store.standing().ended is not None


def test_a_drain_before_the_sites_are_there_is_journalled() -> None:
    """Goal: nobody goes on by himself with what a person has ended. Nothing has been taken in, so there is nothing to bring out."""
    stage = Stage("running", start_us=(20_000, 20_000))
    assert not stage.world.coordinator.running
    stage.world.stop(drain=True)
    stage.world.run_until_quiet(5.0)
    assert stage.cluster.store.standing().stopped


@pytest.mark.parametrize("case", one_in(3, ["running", "windows", "joins"]))
def test_a_drain_while_what_is_behind_a_checkpoint_is_replayed(case: str) -> None:
    """Goal: as above, with state from a checkpoint."""
    stage = Stage(case, options=FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, checkpoint_s=0.02))
    stage.world.run_until(lambda: len(stage.cluster.store.standing().checkpoints) > 1, 10.0, "two checkpoints")
    base = stage.cluster.store.standing().base
    stage.world.run_until(lambda: stage.durable > base + 2, 10.0, "something is behind it")
    stage.cluster.lose_all()
    durable, cuts = stage.durable, stage.cluster.store.standing().cuts
    stage.cluster.restart()
    stage.world.driver.coordinate(StopRequested(drain=True))
    stage.world.run_until_quiet(20.0)
    after = stage.cluster.store.standing()
    assert after.ended is not None and after.durable >= durable
    for key, before in cuts.items():
        last = next(cut for cut in reversed(before) if cut.epoch <= durable)
        assert after.cuts[key][-1].ended and after.cuts[key][-1].taken == last.taken, "no more is taken in"


@pytest.mark.parametrize(
    ("case", "sites", "replicas"),
    one_in(3, [("running", 4, 1), ("running", 3, 2), ("windows", 3, 2), ("joins", 4, 1), ("boxes", 3, 1)], spread=True),
)
def test_what_lies_before_a_checkpoint_is_not_replayed(case: str, sites: int, replicas: int) -> None:
    """Goal: state comes from the store, and only what is behind it comes from the sources again (K9). Method: all is lost after two
    checkpoints, and other sites come."""
    options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, checkpoint_s=0.02)
    stage = Stage(case, options=options)
    stage.world.run_until(lambda: len(stage.cluster.store.standing().checkpoints) > 1, 10.0, "two checkpoints")
    durable = stage.durable
    stage.world.run_until(lambda: stage.durable > durable + 3, 10.0, "epochs behind it")
    stage.cluster.lose_all()
    beginning = stage.cluster.restart(sites=sites, replicas=replicas).coordinator.beginning
    assert 0 < beginning.epoch < beginning.durable
    stage.finish()
    assert stage.world.fired("K9", "restore") > 0


SCENARIOS: dict[str, Callable[[], None]] = {
    "a content acts an epoch late in a replay": lambda: test_partitions_were_divided_between_the_base_and_the_loss("running", 2),
    "what is divided in a replay lies apart": lambda: test_partitions_were_divided_between_the_base_and_the_loss("windows", 5),
    "a plan changes what is being replayed": test_what_is_replayed_keeps_its_content_though_a_plan_is_wanted_meanwhile,
    "stamps of a replay are forgotten": test_a_clock_that_has_jumped_back,
    "a successor fills up what is replayed": lambda: test_a_death_while_it_is_replayed(0),
    "a replayed epoch is cut anew": lambda: test_the_cluster_is_lost("running", 1),
    "the replay ends an epoch too soon": lambda: test_the_cluster_is_lost("running", 1),
    "a replay follows its peers": lambda: test_the_cluster_is_lost("running", 1),
}


@pytest.mark.conformance
@pytest.mark.parametrize("mutation", REPLAY, ids=lambda mutation: mutation.name)
def test_planted_bugs_are_found(mutation: Mutation) -> None:
    """Goal: these scenarios would notice. Method: the bug is there while the one that is for it is played."""
    with planted(mutation), pytest.raises((AssertionError, EvenflowError)):
        SCENARIOS[mutation.name]()


@pytest.mark.parametrize("away", one_in(2, [True, False]))
def test_a_run_that_a_person_stops_says_so_and_goes_on_when_it_is_started_again(away: bool) -> None:
    """Goal: who stands by can tell it from a dead one, and a store that is away keeps no run from being stopped."""
    stage = Stage(replicas=2)
    stage.world.run_for(0.05)
    stage.cluster.store.refuses = away
    stage.world.stop(drain=False)
    stage.world.run_until(lambda: stage.world.ended, 5.0, "its end")
    assert stage.world.error is None
    stage.cluster.store.refuses = False
    assert stage.cluster.store.standing().stopped == (not away)
    stage.cluster.lose_all()
    stage.cluster.restart()
    assert not stage.cluster.store.standing().stopped
    stage.finish()
