"""Passive standby: one replica runs, and what dies with it begins again elsewhere from the last checkpoint, in the same run (B1, B2)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from evenflow.coordinator.events import Kind, SiteSaid
from evenflow.errors import AvailabilityError, EvenflowError
from evenflow.query.planner import layout
from evenflow.site.facts import CopyFailed
from evenflow.site.options import FlowOptions
from evenflow.swarm.cases import Case
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.draw import EVERY_CASE
from evenflow.swarm.mutations import Mutation, planted
from evenflow.swarm.passive_mutations import PASSIVE as PLANTED
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.model import SinkModel
from evenflow.world.sim.world import SimWorld
from tests.drawn import but, one_in

PASSIVE = "passive"


class Stage:
    """A dataflow in one generation, with every checker, whose sources hold a third of their rows back until it finishes."""

    def __init__(
        self,
        case: str,
        *,
        sites: int = 4,
        rows: int = 400,
        seed: int = 1,
        checkpoint_s: float | None = 0.02,
        window_epochs: int = 64,
        **given: Any,
    ) -> None:
        self.case: Case = EVERY_CASE[case](Random(seed), rows)
        options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, checkpoint_s=checkpoint_s, window_epochs=window_epochs)
        self.planned = layout(self.case.flow.network, sites=sites, partitions=16)
        given = {"read_rows": 10, "read_every_us": (500, 2_000), "availability": PASSIVE, "replicas": 2, **given}
        self.cluster = SimCluster(self.planned, seed=seed, prepare=Checkers, sites=sites, options=options, **given)
        self.world.sources_may_end = False
        for segment in self.planned.segments:
            if segment.kind == "ingress":
                for partition, count in enumerate(self.case.counts[segment.source or ""]):
                    self.world.quotas[segment.id, partition] = count * 2 // 3

    @property
    def world(self) -> SimWorld:
        return self.cluster.world

    def count(self, kind: Kind) -> int:
        return sum(event.kind is kind for _, event in self.world.happened)

    @property
    def alone(self) -> dict[int, list[str]]:
        """By site: segments of which it has partitions that nobody else has."""
        found: dict[int, list[str]] = {}
        for segment in self.planned.segments:
            for block in self.world.coordinator.view.blocks(segment.id):
                if len(live := self.world.coordinator.view.live(block)) == 1:
                    found.setdefault(live[0], []).append(segment.name)
        return found

    def kill_one(self) -> int:
        victim = max(self.alone, key=lambda site: (len(self.alone[site]), site))
        self.world.kill(victim)
        return victim

    @property
    def whole(self) -> bool:
        """Every partition lives, and nothing is under way."""
        run = self.world.coordinator
        return not run.recovery.lost() and not run.under_way() and not run.recovery.missing

    def finish(self) -> None:
        self.world.quotas.clear()
        self.world.sources_may_end = True
        self.world.run_until_quiet(20.0)
        assert self.case.judge({sink: self.world.output(sink) for sink in self.world.released}) is None
        assert len(self.cluster.worlds) == 1, "it was one run all the time"


@pytest.mark.parametrize("case", one_in(3, ["running", "windows", "joins", "two_stages", "boxes", "late"]))
@pytest.mark.parametrize("checkpoints", one_in(2, [True, False]))
def test_what_only_a_dead_site_had_begins_again_elsewhere(case: str, checkpoints: bool) -> None:
    """Goal: nothing lost, repeated or different when the one replica of something dies; the run goes on.
    Method: kill the site that has most alone, behind a checkpoint, or before there is any."""
    stage = Stage(case, checkpoint_s=0.02 if checkpoints else None)
    if checkpoints:
        stage.world.run_until(lambda: stage.count(Kind.CHECKPOINT_COMPLETED) > 0, 10.0, "a checkpoint")
    stage.world.run_for(0.015)
    stage.kill_one()
    stage.world.run_until(lambda: stage.whole and stage.count(Kind.COPY_LIVE) > 0, 10.0, "everything lives again")
    begun = [event.text for _, event in stage.world.happened if event.kind is Kind.COPY_BEGUN and "begin again" in event.text]
    assert begun and all(("from the end of epoch 0" in text) != checkpoints for text in begun)
    stage.finish()


def test_frames_are_kept_until_a_checkpoint_has_their_effect() -> None:
    """B2: received by all is not enough where the consumer is passive."""
    stage = Stage("running", checkpoint_s=None)
    stage.world.run_for(0.05)
    cohorts = [cohort for site in stage.world.sites for cohort in site.part.cohorts.values()]
    held = [retained for cohort in cohorts for retained in cohort.retained.values() if retained.stable is not None]
    assert held and all(retained.stable == 0 for retained in held)
    received = [retained for retained in held if retained.settled() > 5]
    assert received and all(retained.since(1)[0].epoch == 1 for retained in received)


def beginning_again(seed: int) -> Stage:
    """What one site had alone begins again at several others."""
    stage = Stage("two_stages", seed=seed, sites=6)
    stage.world.run_until(lambda: stage.count(Kind.CHECKPOINT_COMPLETED) > 0, 10.0, "a checkpoint")
    stage.kill_one()
    stage.world.run_until(lambda: len(stage.world.coordinator.membership.joining) > 1, 10.0, "copies")
    return stage


@pytest.mark.parametrize("seed", one_in(3, [0, 1, 5]))
def test_a_second_site_dies_while_the_first_ones_partitions_begin_again(seed: int) -> None:
    """Goal: what begins again elsewhere and waits for frames of the second one is not waited for for ever. Method: kill who is to make
    what others wait for."""
    stage = beginning_again(seed)
    stage.world.kill(stage.world.coordinator.membership.joining[0].target)
    stage.finish()


@pytest.mark.parametrize("seed", one_in(3, [0, 1, 5]))
def test_one_base_cannot_be_read_and_what_others_begin_again_waits_for_it(seed: int) -> None:
    stage = beginning_again(seed)
    copy = stage.world.coordinator.membership.joining[0]
    stage.world.driver.coordinate(SiteSaid(copy.target, CopyFailed(copy.number, "the base cannot be read")))
    stage.finish()


@pytest.mark.parametrize(
    ("sink", "seed"), [(SinkModel((20_000, 30_000)), 1), (SinkModel((5_000, 10_000), reads=True), 4)], ids=["given", "reads"]
)
def test_the_end_of_a_slow_sink_begins_again(sink: SinkModel, seed: int) -> None:
    """Goal: what was granted while the sink was near holds, and no more than that (A5); a reader is given again what it has planned,
    epochs without rows, too (O2). Method: a small window and a slow sink; the one site that has its end dies, and all is made again."""
    stage = Stage("running", seed=seed, checkpoint_s=None, window_epochs=8, sink=sink)
    stage.world.run_for(0.1)
    alone = stage.alone
    assert "out" in alone[stage.kill_one()]
    stage.world.run_until(lambda: stage.whole and stage.count(Kind.COPY_LIVE) > 0, 10.0, "everything lives again")
    stage.finish()


def test_what_has_come_some_way_is_given_up_with_another_and_begins_again_where_it_was() -> None:
    """Goal: it begins with its base once more, at the same site, too. Method: one base cannot be read when what another one brought has
    begun to work."""
    stage = beginning_again(0)
    world = stage.world

    def working() -> set[int]:
        cohorts = [cohort for site in world.sites if site.alive for cohort in site.part.cohorts.values()]
        begun = {copy.number: copy.base for copy in world.coordinator.membership.joining}
        return {cohort.number for cohort in cohorts if cohort.number in begun and cohort.hosted.done > begun[cohort.number]}

    def ahead() -> bool:
        return bool(working()) and any(copy.number not in working() for copy in world.coordinator.membership.joining)

    world.run_until(ahead, 10.0, "one to work and another one to wait")
    was = {(copy.target, copy.segment) for copy in world.coordinator.membership.joining if copy.number in working()}
    other = next(copy for copy in world.coordinator.membership.joining if copy.number not in working())
    world.driver.coordinate(SiteSaid(other.target, CopyFailed(other.number, "the base cannot be read")))
    again = lambda: was & {(copy.target, copy.segment) for copy in world.coordinator.membership.joining}  # noqa: E731
    world.run_until(lambda: bool(again()), 10.0, "the one that worked to begin again where it was")
    stage.finish()


def test_two_deaths_with_a_checkpoint_between_them() -> None:
    stage = Stage("windows", sites=5, rows=900)
    for _ in range(2):
        before = stage.count(Kind.CHECKPOINT_COMPLETED)
        stage.world.run_until(lambda: stage.whole and stage.count(Kind.CHECKPOINT_COMPLETED) > before, 10.0, "a checkpoint")  # noqa: B023
        stage.kill_one()
        stage.world.run_until(lambda: stage.whole, 10.0, "everything lives again")
    stage.finish()


def test_passive_wants_two_sites() -> None:
    planned = layout(EVERY_CASE["running"](Random(1), 10).flow.network, sites=1, partitions=4)
    with pytest.raises(AvailabilityError, match="two sites"):
        SimWorld(planned, sites=1, availability=PASSIVE)
    with pytest.raises(AvailabilityError, match="two sites"):
        SimCluster(planned, sites=1, availability=PASSIVE)


def play() -> None:
    """Deaths while a checkpoint is under way, and at the end of what sources have."""
    stage = Stage("two_stages")
    stage.world.run_until(lambda: stage.count(Kind.CHECKPOINT_COMPLETED) > 0, 10.0, "a checkpoint")
    captured = stage.world.coordinator.checkpointing
    stage.world.run_until(
        lambda: captured.open is not None and stage.world.sites[0].part.captures_at == captured.open.epoch, 10.0, "one more"
    )
    stage.kill_one()
    stage.world.run_until(lambda: stage.whole, 10.0, "everything lives again")
    stage.finish()
    stage = Stage("two_stages")
    stage.world.quotas.clear()
    stage.world.sources_may_end = True
    stage.world.run_until(lambda: all(site.part.finished >= site.part.closed > 5 for site in stage.world.sites), 10.0, "all is through")
    stage.kill_one()
    stage.finish()


@pytest.mark.conformance
def test_deaths_at_bad_moments() -> None:
    play()


@pytest.mark.conformance
@pytest.mark.parametrize("mutation", but({"what is made again is awaited by who has it"}, PLANTED), ids=lambda mutation: mutation.name)
def test_planted_bugs_show(mutation: Mutation) -> None:
    with planted(mutation), pytest.raises((AssertionError, EvenflowError, TimeoutError, KeyError)):
        play()
