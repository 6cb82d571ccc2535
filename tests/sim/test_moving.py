"""Moves: replicas go from one live site to another while the query runs, and nobody can tell from its output."""

from __future__ import annotations

from typing import Any

import pytest

from evenflow.coordinator.events import DrainSite, MovesRequested, SiteLost
from evenflow.policy.move import Move
from evenflow.site.options import FlowOptions
from evenflow.swarm.taken import taken_in
from tests.drawn import one_in
from tests.sim.test_scenarios import Stage


def moves(stage: Stage, *wanted: Move) -> None:
    stage.world.driver.coordinate(MovesRequested(wanted))


def kinds(stage: Stage) -> list[str]:
    return [event.kind for _, event in stage.world.happened]


def hosts(stage: Stage, segment: int, partition: int) -> tuple[int, ...]:
    found: tuple[int, ...] = stage.machine.membership.live(stage.machine.plan, segment, partition)
    return found


def moved(stage: Stage, count: int = 1) -> None:
    stage.wait(lambda: kinds(stage).count("move_done") >= count, "the moves")


def other(stage: Stage, segment: int, partitions: tuple[int, ...]) -> int:
    taken = {site for p in partitions for site in hosts(stage, segment, p)}
    return next(site for site in stage.machine.sites if site not in taken)


@pytest.mark.parametrize("replicas", one_in(3, [2, 1, 3]))
@pytest.mark.parametrize("case", ["running", "windows", "boxes"])
def test_a_partition_of_every_segment_moves(case: str, replicas: int) -> None:
    """Goal: a move disturbs nothing, whatever moves. Method: the first partitions of every segment go elsewhere, one after the other."""
    stage = Stage(case, sites=5, replicas=replicas)
    stage.world.run_for(0.02)
    for number, segment in enumerate(stage.world.layout.segments):
        partitions = tuple(p for p in range(min(3, segment.partitions)) if hosts(stage, number, p) == hosts(stage, number, 0))
        before = hosts(stage, number, 0)
        target = other(stage, number, partitions)
        moves(stage, Move(number, partitions, before[0], target, "to see"))
        moved(stage, number + 1)
        for p in partitions:
            assert hosts(stage, number, p) != before and target in hosts(stage, number, p) and before[0] not in hosts(stage, number, p)
            assert len(hosts(stage, number, p)) == replicas
        stage.world.run_for(0.01)
    stage.finish()


@pytest.mark.parametrize("replicas", one_in(2, [2, 1]))
def test_there_and_back_again(replicas: int) -> None:
    """Goal: a site takes back what it has given away. Method: the same partitions of every segment go to and fro."""
    stage = Stage(sites=4, replicas=replicas)
    stage.world.run_for(0.02)
    done = 0
    for _ in range(3):
        for number in range(len(stage.world.layout.segments)):
            source = hosts(stage, number, 0)[0]
            target = other(stage, number, (0,))
            moves(stage, Move(number, (0,), source, target, "there"), Move(number, (0,), target, source, "and back"))
            done += 2
            moved(stage, done)
            assert source in hosts(stage, number, 0)
    assert not stage.machine.moving.begun, "nothing is kept of a move that is over"
    stage.finish()


@pytest.mark.parametrize("replicas", one_in(2, [2, 1]))
def test_a_site_is_emptied(replicas: int) -> None:
    """Goal: planned downtime. Method: a site is drained, then it ends; the run goes on with what it had elsewhere."""
    stage = Stage(sites=4, replicas=replicas)
    stage.world.run_for(0.02)
    victim = stage.leader()
    stage.world.driver.coordinate(DrainSite(victim))
    stage.wait(lambda: "site_emptied" in kinds(stage), "an empty site")
    assert all(victim not in hosts(stage, s.id, p) for s in stage.world.layout.segments for p in range(s.partitions))
    stage.world.kill(victim)
    stage.wait(lambda: victim not in stage.machine.sites, "the verdict")
    assert stage.world.redundancy() == replicas
    stage.finish()


@pytest.mark.parametrize("told", ["before", "behind"])
@pytest.mark.parametrize(("replicas", "dies"), [(1, False), (2, False), (2, True)])
def test_a_run_is_drained_while_a_source_moves(replicas: int, told: str, dies: bool) -> None:
    """Goal: what has been taken in is finished, whoever has taken it in. Method: the leader of a source's partition takes in rows that no
    epoch has yet when the partition is live elsewhere; the run is drained just before or behind that. What a leader that dies then has
    not told anybody may be lost, but the run ends."""
    stage = Stage(sites=5, replicas=replicas, options=FlowOptions(linger_ms=40.0, epoch_rows=1_000, heartbeat_ms=10.0))
    world, machine, key = stage.world, stage.machine, (0, 0)
    world.run_for(0.2)
    former, more = stage.leader(), world.quotas[key] + 7
    moves(stage, Move(*key[:1], key[1:], former, other(stage, 0, (0,)), "to see"))
    stage.wait(lambda: bool(machine.moving.unconfirmed), "the move to be all but over")
    world.pause_driver(0.01)
    part = world.sites[former].part
    world.quotas[key] = more
    stage.wait(lambda: key not in part.ingress.queues or part.ingress.queues[key].rows == 7, "rows")
    assert part.leading.logs[key].taken == more - 7 and machine.moving.unconfirmed, "an epoch has them already"
    if told == "behind":
        moved(stage)
    assert stage.leader() == (former if told == "before" else hosts(stage, 0, 0)[-1])
    world.stop(drain=True)
    world.quotas.clear()
    if dies:
        stage.wait(lambda: key not in part.ingress.queues, "the partition to be elsewhere")
        world.kill(former)
    world.run_until_quiet(20.0)
    assert world.error is None
    taken = [taken_in(world, 0, partition) for partition in range(world.layout.segments[0].partitions)]
    assert dies or taken[0] >= more, f"{more} rows had been taken in, and {taken[0]} are in epochs"


@pytest.mark.parametrize("role", ["target", "replaced", "source"])
def test_a_death_during_a_move(role: str) -> None:
    """Goal: nobody is lost with a move. Method: one of the three sites of a move of everything dies while its state travels."""
    stage = Stage(sites=5, replicas=2)
    stage.world.run_for(0.02)
    donor = hosts(stage, 1, 0)[0]
    partitions = tuple(p for p in range(16) if hosts(stage, 1, p) == hosts(stage, 1, 0))
    moves(stage, Move(1, partitions, donor, other(stage, 1, partitions), "to see"))
    copy: Any = stage.copy()
    assert copy.moves and copy.replaces == donor
    stage.world.kill({"target": copy.target, "replaced": copy.replaces, "source": copy.source}[role])
    stage.wait(lambda: "take_over" in kinds(stage), "the take-over")
    stage.world.add_site()
    stage.whole()
    assert all(len(sites) == 2 for row in stage.machine.recovery.cleared() for sites in row)
    assert not stage.machine.moving.begun, "nothing is kept of a move that is over, or was given up"
    stage.finish()


@pytest.mark.parametrize(
    ("move", "why"),
    [
        (Move(99, (0,), 0, 1, ""), "there is no segment 99"),
        (Move(1, (999,), 0, 1, ""), "there is no partition 999"),
        (Move(1, (0,), 0, 77, ""), "its target is not there"),
    ],
)
def test_what_cannot_move_is_refused_and_says_why(move: Move, why: str) -> None:
    stage = Stage(sites=4, replicas=2)
    stage.world.run_for(0.02)
    moves(stage, move)
    stage.world.run_for(0.02)
    assert [why in event.text for _, event in stage.world.happened if event.kind == "move_refused"] == [True]
    stage.finish()


def test_a_spare_is_emptied_while_it_inherits() -> None:
    """Goal: it gets nothing that it would have to give away again, and all comes to rest. Method: the order comes with its first copy."""
    stage = Stage("running", sites=4, replicas=2, spares=1)
    world, machine, spare = stage.world, stage.machine, 4
    world.run_for(0.02)
    world.kill(0)
    stage.wait(lambda: any(copy.target == spare for copy in machine.plan.copies), "the first copy to the spare")
    world.driver.coordinate(DrainSite(spare))
    begun = {copy.number for copy in machine.plan.copies}
    stage.wait(lambda: "site_emptied" in kinds(stage) and "redundancy" in kinds(stage), "everything elsewhere")
    texts = [event.text for _, event in world.happened if event.kind == "copy_begun"]
    assert sum(f"to site {spare}" in text for text in texts) <= len(begun)
    assert spare not in machine.view.active() and machine.view.redundancy() == 2
    stage.finish()


def test_a_move_tells_what_it_is_and_a_site_that_was_emptied_leaves_without_a_take_over() -> None:
    """Goal: who watches sees each move with its reason and bytes. Method: a site is emptied and then leaves as planned."""
    stage = Stage(sites=4, replicas=2)
    stage.world.run_for(0.02)
    victim = stage.leader()
    stage.world.driver.coordinate(DrainSite(victim))
    stage.wait(lambda: "site_emptied" in kinds(stage), "an empty site")
    told = {kind: [e.details for _, e in stage.world.happened if e.kind == kind] for kind in ("move_begun", "move_done")}
    assert sorted(each["number"] for each in told["move_done"]) == [each["number"] for each in told["move_begun"]]
    assert all(each["source"] == victim != each["target"] and f"site {victim}" in each["reason"] for each in told["move_done"])
    assert sum(each["bytes"] for each in told["move_done"]) > 0 == sum(each["bytes"] for each in told["move_begun"])
    names = {segment.name for segment in stage.world.layout.segments}
    assert {each["segment"] for each in told["move_done"]} <= names
    stage.world.driver.coordinate(SiteLost(victim, "it was drained", planned=True))
    assert "site_left" in kinds(stage) and not {"site_lost", "take_over"} & set(kinds(stage))
    assert victim not in stage.machine.sites and victim not in stage.machine.moving.leaving
    stage.world.kill(victim)
    stage.finish()


def test_a_move_that_is_given_up_says_so() -> None:
    stage = Stage(sites=5, replicas=2)
    stage.world.run_for(0.02)
    partitions = tuple(p for p in range(16) if hosts(stage, 1, p) == hosts(stage, 1, 0))
    target = other(stage, 1, partitions)
    moves(stage, Move(1, partitions, hosts(stage, 1, 0)[0], target, "to see"))
    stage.copy()
    stage.world.kill(target)
    stage.wait(lambda: "move_dropped" in kinds(stage), "the move is given up")
    (dropped,) = [event for _, event in stage.world.happened if event.kind == "move_dropped"]
    assert f"site {target} is lost" in dropped.text and dropped.details["target"] == target
    stage.finish()


def test_a_site_that_comes_while_something_moves_is_not_taken_in_by_the_rank_of_the_move() -> None:
    """Goal: without replicas nothing is compared, wherever a part was built. Method: a site joins while a copy of a move is under way, so
    that the plan that it is built for has two ranks; then it gets partitions, and gives them back to a site that has been there from the
    start."""
    stage = Stage(sites=4, replicas=1)
    stage.world.run_for(0.02)
    donor = hosts(stage, 1, 0)[0]
    partitions = tuple(p for p in range(16) if hosts(stage, 1, p) == (donor,))
    target = other(stage, 1, partitions)
    moves(stage, Move(1, partitions, donor, target, "to see"))
    stage.copy()
    stage.world.add_site()
    stage.wait(lambda: 4 in stage.machine.sites, "the newcomer")
    assert any(len(sites) > 1 for sites in stage.machine.plan.placement[1]), "its part was built under the plan of the move"
    moved(stage)
    moves(stage, Move(1, partitions, target, 4, "to the newcomer"))
    moved(stage, 2)
    moves(stage, Move(1, partitions, 4, donor, "and back"))
    moved(stage, 3)
    assert hosts(stage, 1, 0) == (donor,)
    stage.finish()
