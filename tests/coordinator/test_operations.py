"""What a person may ask of a run: what can leave a site, what can be pinned, and the errors that say why not."""

from __future__ import annotations

from typing import Any

import pytest

import evenflow as ef
from evenflow.coordinator.events import DrainSite, MovesRequested, Pin, SparesChanged
from evenflow.coordinator.machine import RunMachine
from evenflow.coordinator.operations import PINNED, chosen, is_empty, moves_to, obstacles, segments_of, to_repartition
from evenflow.errors import OperationRefused
from evenflow.plan.placement import first_membership, first_plan
from evenflow.query.planner import layout as layout_of
from tests.coordinator.test_machine import LAYOUT
from tests.coordinator.test_rounds import DEALT, machine_of
from tests.sim.test_moving import hosts, kinds
from tests.sim.test_scenarios import Stage


@pytest.fixture
def stage() -> Stage:
    stage = Stage(sites=4, replicas=2)
    stage.world.run_for(0.02)
    return stage


def keyed(stage: Stage) -> Any:
    return next(segment for segment in stage.world.layout.segments if segment.kind == "inner")


def test_every_box_is_found_by_its_name(stage: Stage) -> None:
    layout = stage.world.layout
    for segment in layout.segments:
        for name in (segment.source, segment.sink, segment.name):
            assert name is None or segment.id in segments_of(layout, name)
    combined = {step.box for step in layout.segments[0].steps if step.kind == "combine"}
    assert combined and all(0 not in segments_of(layout, box) for box in combined), "combining is not where the aggregate's state is"
    with pytest.raises(OperationRefused, match=f"has no box 'nowhere'; it has .*{layout.segments[0].source}"):
        segments_of(layout, "nowhere")


def test_what_a_box_does_before_an_exchange_is_not_where_it_is() -> None:
    flow = ef.Dataflow("totals")
    rows = flow.source(ef.sources.generator(keys=9), name="rows").group_by("key").agg("count(*) as n").name("totals")
    rows.where("n > 1").to(ef.sinks.memory("out"), name="out")
    layout = layout_of(flow.network, sites=2, partitions=8)
    assert [[step.box for step in segment.steps].count("totals") > 0 for segment in layout.segments][:2] == [True, True]
    assert segments_of(layout, "totals") == (1,) and segments_of(layout, "rows") == (0,)
    assert chosen(layout, "totals", [7]) == {(1, 7)}


def test_partitions_that_are_not_there_are_refused(stage: Stage) -> None:
    segment = keyed(stage)
    assert chosen(stage.world.layout, segment.name, [3, 5]) == {(segment.id, 3), (segment.id, 5)}
    assert len(chosen(stage.world.layout, segment.name)) == 16
    with pytest.raises(OperationRefused, match="partitions 0 to 15, not 16"):
        chosen(stage.world.layout, segment.name, [0, 16])
    with pytest.raises(OperationRefused, match="no partition of box"):
        chosen(stage.world.layout, segment.name, [])


def test_a_pinned_box_moves_to_its_sites_and_stays(stage: Stage) -> None:
    segment = keyed(stage)
    found = chosen(stage.world.layout, segment.name)
    moves = moves_to(stage.machine, found, [1, 3])
    assert moves and {move.target for move in moves} <= {1, 3} and {move.reason for move in moves} == {PINNED}
    assert not {move.source for move in moves} & {1, 3}
    stage.world.driver.coordinate(Pin(found))
    stage.world.driver.coordinate(MovesRequested(moves))
    taken = stage.machine.moving.takes
    stage.wait(lambda: taken(found) or kinds(stage).count("move_done") >= len(moves), "the first to begin")
    assert taken(found) and not taken({(segment.id, 16)}), "where they are is not known until that is over"
    stage.wait(lambda: kinds(stage).count("move_done") >= len(moves) and not stage.machine.under_way(), "the moves")
    assert all(set(hosts(stage, segment.id, p)) == {1, 3} for p in range(16)) and not taken(found)
    assert moves_to(stage.machine, found, [1, 3]) == ()
    assert stage.machine.rounds.hosting().pinned >= found
    assert obstacles(stage.machine, 1) == [f"16 partitions of {segment.name} are pinned there (unpin them first)"]
    stage.world.driver.coordinate(Pin(found, pinned=False))
    assert obstacles(stage.machine, 1) == []
    stage.finish()


def test_moves_are_spread_evenly() -> None:
    stage = Stage(sites=4, replicas=1)
    stage.world.run_for(0.02)
    segment = keyed(stage)
    moves = moves_to(stage.machine, chosen(stage.world.layout, segment.name), [0, 1])
    load = {site: sum(site in hosts(stage, segment.id, p) for p in range(16)) for site in (0, 1)}
    for move in moves:
        load[move.target] += len(move.partitions)
    assert load == {0: 8, 1: 8}
    stage.finish()


@pytest.mark.parametrize(
    ("sites", "why"),
    [
        ([77], "there is no site 77 to pin to; there are 0, 1, 2, 3"),
        ([], "no site is named"),
        ([2], "2 replicas need as many sites, and 1"),
    ],
)
def test_sites_that_will_not_do_are_refused(stage: Stage, sites: list[int], why: str) -> None:
    with pytest.raises(OperationRefused, match=why):
        moves_to(stage.machine, chosen(stage.world.layout, keyed(stage).name), sites)


def test_nothing_is_pinned_to_a_site_that_is_being_emptied(stage: Stage) -> None:
    stage.world.driver.coordinate(DrainSite(2))
    with pytest.raises(OperationRefused, match="there is no site 2 to pin to; there are 0, 1, 3"):
        moves_to(stage.machine, chosen(stage.world.layout, keyed(stage).name), [1, 2])


def test_what_is_bound_to_its_site_is_named(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, first, last = stage.world.layout, stage.world.layout.segments[0], stage.world.layout.segments[-1]
    leader = stage.leader()
    assert obstacles(stage.machine, leader) == []
    source = layout.sources[first.source]
    monkeypatch.setattr(type(source), "pushed", True, raising=False)
    assert obstacles(stage.machine, leader) == [f"source {first.source!r} gets its rows from tasks of Spark, which bring them to that site"]
    monkeypatch.setattr(type(source), "pushed", False, raising=False)
    monkeypatch.setattr(type(source), "replayable", False, raising=False)
    assert obstacles(stage.machine, leader) == [f"the rows of source {first.source!r} cannot be read again elsewhere"]
    stray = [site for site in stage.machine.sites if site not in hosts(stage, 0, 0)]
    with pytest.raises(OperationRefused, match="cannot move: the rows of source"):
        moves_to(stage.machine, chosen(layout, first.source, [0]), stray)
    monkeypatch.setattr(type(source), "replayable", True, raising=False)
    sink = layout.sinks[last.sink]
    monkeypatch.setattr(type(sink), "where", "spark", raising=False)
    assert obstacles(stage.machine, hosts(stage, last.id, 0)[0])[-1] == f"sink {last.sink!r} is read by Spark from that site"


def test_a_site_is_empty_when_nothing_is_there_or_on_its_way(stage: Stage) -> None:
    """Goal: a site is let go only when nobody misses it. Method: it is asked at every step while the site is emptied."""
    machine, victim = stage.machine, stage.leader()
    assert machine.view.load()[victim] > 0 and not is_empty(machine, victim)
    assert is_empty(machine, 99), "a site that the run does not know has nothing of it"
    stage.world.driver.coordinate(DrainSite(victim))
    early: list[int] = []

    def looked() -> bool:
        copies = (*machine.membership.joining, *machine.moving.unconfirmed.values())
        if is_empty(machine, victim) and (machine.view.load()[victim] or any(victim in (c.source, c.replaces) for c in copies)):
            early.append(machine.membership.number)
        return is_empty(machine, victim)

    stage.wait(looked, "an empty site")
    assert not early and machine.view.load()[victim] == 0
    stage.finish()
    assert is_empty(machine, stage.follower()), "a run that is over misses nobody"


def test_a_site_without_anything_is_not_empty_before_the_run_has_begun() -> None:
    """Its end would end the run, which waits for it."""
    plan = first_plan(LAYOUT, 3)
    machine = RunMachine(LAYOUT, plan, first_membership(LAYOUT, plan, (0, 1, 2, 3)))
    assert machine.view.load()[3] == 0 and not is_empty(machine, 3)


def test_a_spare_that_is_none_any_more_may_be_given_load() -> None:
    stage = Stage(sites=3, replicas=1, spares=1)
    stage.world.run_for(0.02)
    stage.machine.rounds.spares = 1
    assert set(stage.machine.rounds.hosting().capacity) == {0, 1, 2}
    stage.world.driver.coordinate(SparesChanged(0))
    assert set(stage.machine.rounds.hosting().capacity) == {0, 1, 2, 3}
    stage.finish()


def test_partitions_that_rows_are_dealt_out_to_are_not_divided() -> None:
    machine, _ = machine_of(layout=DEALT)
    with pytest.raises(OperationRefused, match="box 'mid' has no rows by key, so its partitions cannot be divided anew"):
        to_repartition(machine, "mid", 2)
    assert to_repartition(machine, "keys", 3) == (2,)
