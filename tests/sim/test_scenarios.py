"""Named schedules, most of them found by the swarm: who dies, hangs or is late when. Sites are named by their role.

Each proves that it went where it was meant to go: a rule has fired, or the state that makes it matter was there.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent
from evenflow.errors import DriverAway, PartitionsLost
from evenflow.query.planner import layout
from evenflow.site.events import Event, Heard, MembershipChanged, PlanCommitted, StateArrived
from evenflow.site.options import FlowOptions
from evenflow.swarm.cases import Case
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.draw import EVERY_CASE
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.model import DetectionModel, LinkModel
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld


class Seen(Observer):
    """events: what each site handled, with its rule, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[int, str, Event]] = []
        self.told: list[CoordinatorAction] = []

    def handled(self, site: SimSite, event: Event) -> None:
        self.events.append((site.index, site.part.story.lines[-1][0].id, event))

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        self.told += actions

    def of(self, site: int, kind: type) -> list[Any]:
        return [event for index, _, event in self.events if index == site and isinstance(event, kind)]


class Stage:
    """A dataflow on simulated sites that goes on until it is told to end, with every checker."""

    def __init__(
        self, case: str | Callable[[Random, int], Case] = "running", *, sites: int = 4, replicas: int = 2, rows: int = 400, seed: int = 1,
        **given: Any,
    ) -> None:  # fmt: skip
        self.case: Case = (EVERY_CASE[case] if isinstance(case, str) else case)(Random(seed), rows)
        self.seen = Seen()
        options = given.pop("options", FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0))
        given.setdefault("patience_ms", 50.0)
        planned = layout(self.case.flow.network, sites=sites, partitions=16, max_partitions=given.pop("max_partitions", None))
        given |= {"sites": sites, "replicas": replicas, "seed": seed, "options": options, "observers": [self.seen]}
        self.world = SimWorld(planned, read_rows=10, read_every_us=(500, 2_000), **given)
        Checkers(self.world)
        self.world.sources_may_end = False
        for segment in self.world.layout.segments:
            if segment.kind == "ingress":
                for partition, count in enumerate(self.case.counts[segment.source or ""]):
                    self.world.quotas[segment.id, partition] = count * 2 // 3

    @property
    def machine(self) -> Any:
        return self.world.coordinator

    def leader(self, partition: int = 0) -> int:
        return int(self.machine.membership.leaders[0][partition].site)

    def follower(self, partition: int = 0) -> int:
        return next(s for s in self.machine.membership.live(self.machine.plan, 0, partition) if s != self.leader(partition))

    def wait(self, reached: Callable[[], bool], what: str) -> None:
        self.world.run_until(reached, 10.0, what)

    def copy(self) -> Any:
        """One that is under way; waits for it."""
        self.wait(lambda: bool(self.machine.membership.joining), "a copy")
        return self.machine.membership.joining[0]

    def whole(self, replicas: int = 2) -> None:
        self.wait(lambda: self.world.redundancy() >= replicas and not self.machine.membership.joining, "full redundancy")

    def finish(self) -> None:
        """The run ends with the right answer."""
        world = self.world
        world.quotas.clear()
        world.sources_may_end = True
        world.run_until_quiet(20.0)
        assert self.case.judge({sink: world.output(sink) for sink in world.released}) is None


def test_a_death_is_masked_and_redundancy_comes_back() -> None:
    """Goal: the plainest of all failures. Method: an ingress leader dies; a new site comes; the run ends with all replicas."""
    stage = Stage()
    stage.world.run_for(0.02)
    stage.world.kill(stage.leader())
    stage.wait(lambda: any(event.kind == "take_over" for _, event in stage.world.happened), "the take-over")
    stage.world.add_site()
    stage.whole()
    stage.finish()
    assert stage.world.fired("T2", "lose_link") and stage.world.fired("C3", "note_live")


def test_followers_keep_a_promise_until_they_hear_the_plan() -> None:
    """Goal: nobody processes an epoch under a plan that is over. Method: the coordinator's words reach a follower late, while its leader
    commits the plan and sends it records of the plan's first epoch."""
    stage = Stage()
    world, follower = stage.world, stage.follower()
    world.run_for(0.02)
    plan = stage.machine.plan.number
    world.change_plan()
    stage.wait(lambda: follower in stage.machine.promised, "the follower's promise")
    world.cut_control(follower, up=False)
    effective = stage.machine.proposed.effective if stage.machine.proposed else stage.machine.plan.effective
    log = world.sites[follower].part.leading.logs[0, 0]
    stage.wait(lambda: log.end >= effective, "a record of the plan's first epoch")
    assert world.sites[follower].part.view.plan.number == plan and log.settled >= effective
    world.run_for(0.005)
    assert log.done == effective - 1
    world.heal_control(follower)
    stage.finish()


def test_the_target_of_a_dropped_copy_is_waited_for_by_nobody() -> None:
    """Goal: no epoch waits for a log that is not there any more. Method: the transfer of an ingress partition fails after its target has
    begun to follow the leader."""
    stage = Stage(link=LinkModel(bytes_per_us=0.05, pack_us=(20_000, 20_000)))
    world = stage.world
    world.transfer_fates += ["lost"] * 2
    world.run_for(0.02)
    world.kill(stage.follower())
    world.add_site()
    copy = stage.copy()
    assert copy.segment == 0
    target = world.sites[copy.target].part
    stage.wait(lambda: any(role.enrolled for role in target.leading._roles.values()), "the target to follow")
    stage.wait(lambda: copy.number in stage.machine.membership.dropped, "the copy to be dropped")
    stage.whole()
    stage.finish()
    assert world.fired("C4", "drop_copy")


def test_a_state_is_faster_than_the_plan_that_begins_its_copy() -> None:
    """Goal: a copy is not lost because its bytes come by another way than the plan. Method: the coordinator's words reach
    the target late."""
    stage = Stage(link=LinkModel(pack_us=(0, 0)))
    world = stage.world
    world.run_for(0.02)
    world.kill(stage.follower())
    newcomer = world.add_site()
    stage.wait(lambda: stage.machine.proposed is not None and newcomer in stage.machine.promised, "the promise of the newcomer")
    world.cut_control(newcomer, up=False)
    stage.wait(lambda: bool(stage.seen.of(newcomer, StateArrived)), "the state")
    assert world.sites[newcomer].part.view.copies() == ()
    world.heal_control(newcomer)
    stage.whole()
    stage.finish()


@pytest.mark.parametrize("most_bytes", [None, 1])
def test_a_successor_without_the_records_that_all_held_leads_nevertheless(most_bytes: int | None) -> None:
    """Goal: a follower that does not know what was settled goes on under a leader that has forgotten it. Method: of three replicas, one
    does not hear its leader's last word; the other has emitted, forgotten the record, and becomes leader. Whatever can be said in several
    messages is said in one, or in several."""
    stage = Stage(sites=3, replicas=3, link=LinkModel(delay_us=(10, 20)))
    world, leader = stage.world, stage.leader()
    world.network.most_bytes = most_bytes
    successor, other = [s for s in stage.machine.membership.live(stage.machine.plan, 0, 0) if s != leader]
    world.run_for(0.02)
    logs = {site: world.sites[site].part.leading.logs[0, 0] for site in (leader, successor, other)}
    # The last word to the other follower never comes.
    stage.wait(lambda: logs[leader].settled > logs[other].settled < logs[other].matched, "a record that is settled and not known to be")
    world.cut((leader, other))
    stage.wait(lambda: logs[successor].done > logs[other].settled, "the successor to emit")
    lacking = logs[other].settled
    world.kill(leader)
    stage.wait(lambda: world.sites[other].part.view.leader(0, 0).site == successor, "the successor to lead")
    assert lacking + 1 not in logs[successor]._records
    stage.wait(lambda: logs[other].done > lacking + 2, "the other to go on")
    stage.finish()


def test_a_newcomers_first_words_come_before_the_news_that_it_counts() -> None:
    """Goal: credit that was granted once is not lost. Method: the leader learns late that a copy has become live; meanwhile the target has
    said how much room it has, and does not say it again."""
    options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, memory_bytes=1, window_epochs=4)
    stage = Stage(sites=2, options=options)
    world, leader = stage.world, stage.leader()
    world.run_for(0.02)
    world.kill(stage.follower())
    newcomer = world.add_site()
    stage.copy()
    stage.wait(lambda: newcomer in stage.machine.view.active(), "the newcomer to count")
    world.cut_control(stage.leader(), up=False)
    part = world.sites[leader].part
    stage.wait(lambda: newcomer in part.credit._early, "the newcomer's words")
    world.heal_control(leader)
    stage.whole()
    stage.finish()


def test_a_site_that_was_declared_dead_while_it_hung_is_harmless() -> None:
    """Goal: fencing. Method: a leader hangs, is declared dead, goes on, and says all that it has to say before it hears that it is dead."""
    stage = Stage()
    world, leader = stage.world, stage.leader()
    world.run_for(0.02)
    world.hang(leader)
    world.cut_control(leader, up=False)
    stage.wait(lambda: leader not in stage.machine.sites, "the verdict")
    world.go_on(leader)
    world.run_for(0.05)
    assert world.sites[leader].alive
    world.heal_control(leader)
    stage.wait(lambda: not world.sites[leader].alive, "it to leave")
    world.add_site()
    stage.whole()
    stage.finish()


def test_source_and_target_of_a_copy_die_at_once() -> None:
    """Goal: C4. Method: with three replicas, both ends of a copy die while the state is on its way; another replica is its next source."""
    stage = Stage(sites=5, replicas=3, spares=2, placement="chained", link=LinkModel(bytes_per_us=0.01, pack_us=(20_000, 20_000)))
    world = stage.world
    world.run_for(0.02)
    world.kill(stage.follower())
    copy = stage.copy()
    world.kill(copy.source)
    world.kill(copy.target)
    stage.wait(lambda: not {copy.source, copy.target} & set(stage.machine.sites), "the verdicts")
    for _ in range(3):
        world.add_site()
    stage.whole(3)
    stage.finish()


def test_the_successor_dies_before_it_has_heard_that_it_leads() -> None:
    """Goal: a failure during a take-over. Method: of three replicas the leader dies, and then the next as it is named."""
    stage = Stage(sites=3, replicas=3)
    world, leader = stage.world, stage.leader()
    world.run_for(0.02)
    world.kill(leader)
    stage.wait(lambda: stage.leader() != leader, "a successor")
    successor = stage.leader()
    assert not any(e.membership.leaders[0][0].site == successor for e in stage.seen.of(successor, MembershipChanged))
    world.kill(successor)
    stage.wait(lambda: stage.leader() not in (leader, successor), "the next successor")
    stage.finish()


def test_a_cut_between_two_sites_costs_nobody_his_life() -> None:
    """Goal: V4: a broken link is not a dead site. Method: nothing gets through between a leader and its follower for a while; the others
    talk with both."""
    stage = Stage(detection=DetectionModel())
    world, leader, follower = stage.world, stage.leader(), stage.follower()
    world.run_for(0.02)
    world.cut((leader, follower), (follower, leader))
    world.run_for(1.0)
    world.heal((leader, follower), (follower, leader))
    stage.finish()
    assert all(site.alive for site in world.sites)
    assert world.fired("T2", "lose_link") and world.fired("A3", "resume_link")


def test_two_sites_without_a_link_go_on_by_the_driver() -> None:
    """Goal: a cut that lasts stops nobody, for its ends talk by the driver. Method: epochs end while the link is away, and the link comes
    back when the cut is healed."""
    stage = Stage()
    world, leader, follower = stage.world, stage.leader(), stage.follower()
    stage.wait(lambda: stage.machine.running, "the run to begin")
    wires = (leader, follower), (follower, leader)
    world.cut(*wires)
    ends = [world.sites[leader].peers, world.sites[follower].peers]
    stage.wait(lambda: ends[0].relayed(follower) and ends[1].relayed(leader), "the driver to pass words on")
    before = [world.sites[site].part.closed for site in (leader, follower)]
    stage.wait(lambda: all(world.sites[s].part.closed > closed + 5 for s, closed in zip((leader, follower), before, strict=True)), "epochs")
    assert ends[0].relayed(follower) and not world.network.is_open(leader, follower)
    world.heal(*wires)
    stage.wait(lambda: ends[0].linked(follower) and ends[1].linked(leader), "the link to come back")
    assert not ends[0].relayed(follower) and not ends[1].relayed(leader)
    stage.finish()
    assert all(site.alive for site in world.sites)


@pytest.mark.parametrize("declared", [True, False])
def test_the_only_replica_that_is_left_may_lose_all_its_connections_for_a_moment(declared: bool) -> None:
    """Goal: what would end the run waits for the grace. Method: a leader dies, and before anything has been copied again, or as soon as the
    driver has seen its connection end, the network of its follower's machine is away for half of the grace: every connection ends, that to
    the driver too."""
    stage = Stage(link=LinkModel(bytes_per_us=0.001))
    world, leader, follower = stage.world, stage.leader(), stage.follower()
    world.run_for(0.02)
    world.kill(leader)
    watched = world.driver.fleet.detector.sites
    stage.wait(lambda: leader not in watched if declared else watched[leader].lost_us is not None, "the first death")
    assert (leader in stage.machine.sites) is not declared
    grace_us = world.detection.patience.grace_us
    for peer in world.network.peers(follower):
        world.drop_link(follower, peer, grace_us // 2)
    world.drop_control(follower, grace_us / 2e6)
    world.run_for(2 * grace_us / 1e6)
    assert follower in stage.machine.sites and stage.machine.view.vital(follower)
    world.link = LinkModel()
    stage.finish()


def test_what_was_said_by_the_driver_before_there_was_a_link_is_not_heard_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a demand from before is not taken for a new one. Method: a site and one that it feeds lose their link, and find each other by
    the driver, whose way to the feeder is cut. They have a link again, and lose it; then what has waited comes."""
    stage = Stage()
    world = stage.world
    stage.wait(lambda: stage.machine.running, "the run to begin")
    world.run_for(0.02)
    fed, feeder = next(
        (site.index, feed.site)
        for site in world.sites
        for cohort in site.part.cohorts.values()
        for inbox in cohort.inboxes.values()
        for feed in inbox.feeds.values()
        if feed.site != site.index
    )
    wires, peers = ((fed, feeder), (feeder, fed)), {site: world.sites[site].peers for site in (fed, feeder)}
    hear = world.sites[feeder].hear_relayed
    demands: list[bool] = []

    def brought(peer: int, *said: Any) -> None:
        demands.extend([peers[feeder].linked(peer)] * bool(said[-1] and said[-1].resumes))
        hear(peer, *said)

    monkeypatch.setattr(world.sites[feeder], "hear_relayed", brought)
    world.cut(*wires)
    world.cut_control(feeder, up=False)
    stage.wait(lambda: peers[fed].relayed(feeder), "the feeder to be found")
    world.run_for(0.005)
    assert not peers[feeder].relayed(fed)
    world.heal(*wires)
    stage.wait(lambda: peers[fed].linked(feeder) and peers[feeder].linked(fed), "the link to come back")
    closed = max(world.sites[site].part.closed for site in wires[0])
    stage.wait(lambda: all(world.sites[site].part.processed > closed + 5 for site in wires[0]), "epochs")
    world.drop_link(*wires[0], after_us=300_000)
    stage.wait(lambda: not (peers[fed].linked(feeder) or peers[feeder].linked(fed)), "the link to be lost again")
    world.heal_control(feeder)
    stage.finish()
    assert demands[0] is False, "there was no link when the demand came"
    assert all(site.alive for site in world.sites)


def test_a_driver_that_pauses_for_long_declares_nobody_dead() -> None:
    """Goal: a judge that was asleep grants every deadline afresh. Method: the driver does nothing for a second and a half."""
    stage = Stage()
    stage.world.run_for(0.02)
    stage.world.pause_driver(1.5)
    stage.world.run_for(2.0)
    stage.finish()
    assert all(site.alive for site in stage.world.sites)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_driver_that_was_away_for_longer_than_the_lease_says_so(replicas: int) -> None:
    """Goal: nobody looks for a fault of the cluster where there was none. Method: the driver does nothing until all sites have ended."""
    stage = Stage(replicas=replicas)
    stage.world.run_for(0.02)
    stage.world.pause_driver(3.0)
    with pytest.raises(DriverAway, match=r"was away for 3\.0 s .* longer than lease_s \(2 s\)") as caught:
        stage.world.run_until_quiet(20.0)
    assert caught.value.epoch > 0 and not any(site.alive for site in stage.world.sites)


def test_the_last_replicas_death_is_said_with_names() -> None:
    """Goal: never silently wrong. Method: both replicas of a leader's column die; what was released is right."""
    stage = Stage()
    world = stage.world
    world.run_for(0.03)
    both = stage.machine.membership.live(stage.machine.plan, 0, 0)
    for site in both:
        world.kill(site)
    with pytest.raises(PartitionsLost) as lost:
        world.run_until_quiet(10.0)
    assert lost.value.partitions
    assert stage.case.judge_part({sink: world.output(sink) for sink in world.released}) is None


def test_all_sites_die_and_every_partition_is_named() -> None:
    stage = Stage(sites=2)
    stage.world.run_for(0.03)
    for site in (0, 1):
        stage.world.kill(site)
    with pytest.raises(PartitionsLost) as lost:
        stage.world.run_until_quiet(10.0)
    assert set(lost.value.partitions) <= {segment.name for segment in stage.world.layout.segments}
    assert lost.value.partitions


def test_plans_never_act_from_an_earlier_epoch_than_their_predecessors() -> None:
    """Goal: one order of plans. Method: two plans are asked for while nothing tells the coordinator of new epochs."""
    stage = Stage()
    stage.world.run_for(0.02)
    stage.world.change_plan()
    stage.world.change_plan()
    stage.wait(lambda: stage.machine.plan.number >= 2, "two plans")
    plans = {event.plan.number: event.plan for event in stage.seen.of(stage.leader(), PlanCommitted)}
    stage.finish()
    effective = [plans[number].effective for number in sorted(plans)]
    assert effective == sorted(effective)


def test_words_of_a_dead_site_that_come_late_are_not_heard() -> None:
    """Goal: V3. Method: a hung site's words are already on slow links when it is declared dead."""
    stage = Stage()
    world, victim = stage.world, stage.follower()
    world.run_for(0.02)
    peer = next(s for s in stage.machine.sites if s != victim)
    world.network.wires[victim, peer].slow_us = 5_000_000
    stage.wait(lambda: victim not in stage.machine.sites or bool(stage.seen.of(peer, Heard)), "words")
    world.network.wires[victim, peer].slow_us = 0
    world.hang(victim)
    stage.wait(lambda: victim not in stage.machine.sites, "the verdict")
    world.go_on(victim)
    world.add_site()
    stage.whole()
    stage.finish()
