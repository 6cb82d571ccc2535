"""Boxes that answer otherwise each time they are asked: leaders ask, and all replicas go by what they were told (N1)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.availability.choosing import modes_of
from evenflow.availability.mode import Mode
from evenflow.coordinator.events import MovesRequested
from evenflow.errors import AvailabilityError, BoxFailed
from evenflow.policy.move import Move
from evenflow.query.planner import layout
from evenflow.swarm.asked_cases import asked
from evenflow.swarm.checkers import Checkers
from evenflow.world.sim.world import SimWorld
from tests.sim.test_amnesia import ROWS as FORGOTTEN
from tests.sim.test_amnesia import each_row, happened, rows, whole
from tests.sim.test_amnesia import world as forgetting
from tests.sim.test_moving import hosts, moved, moves, other
from tests.sim.test_scenarios import Stage


def stage(seed: int = 4, **given: Any) -> Stage:
    """Rows that are asked for once, some of them in vain, and go on to totals."""
    return Stage(asked, seed=seed, **given)


def leads(stage: Stage, segment: int, partition: int = 0) -> int:
    return int(stage.machine.membership.leaders[segment][partition].site)


def box_of(stage: Stage) -> int:
    return next(segment.id for segment in stage.world.layout.segments if segment.effects is not None)


def test_only_leaders_ask() -> None:
    """Goal: a key is asked for once, however many replicas there are. Method: calls are counted."""
    calls: list[int] = []

    def fetch(k: int) -> int:
        calls.append(k)
        return len(calls)

    flow = ef.Dataflow("orders")
    rows = pa.table({"k": list(range(50))})
    flow.source(ef.sources.memory(rows)).lookup(fetch, "n int", on="k").to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(flow.network, sites=4, partitions=8), sites=4, replicas=3)
    Checkers(world)
    world.run_until_quiet()
    assert sorted(calls) == list(range(50))
    assert sorted(world.output("out").column("n").to_pylist()) == list(range(1, 51))


@pytest.mark.parametrize("replicas", [2, pytest.param(3, marks=pytest.mark.conformance)])
def test_the_leader_dies(replicas: int) -> None:
    """Goal: who has led is succeeded, and nothing that was given out is asked for again. Method: the box's leaders die one after the
    other, each in the middle of rows."""
    play = stage(sites=5, replicas=replicas)
    box = box_of(play)
    for _ in range(2):
        play.world.run_for(0.01)
        victim = leads(play, box)
        play.world.kill(victim)
        play.world.add_site()
        play.wait(lambda victim=victim: victim not in play.machine.membership.sites, "the death to be known")
        assert leads(play, box) != victim
        play.whole()
    play.finish()
    assert play.world.fired("T2", "lose_link")


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.conformance
def test_who_answers_moves(replicas: int) -> None:
    """Goal: a partition that moves is asked where it has gone. Method: all of the box's, one after the other."""
    play = stage(sites=5, replicas=replicas)
    play.world.run_for(0.01)
    box = box_of(play)
    for number in range(play.world.layout.segments[box].partitions):
        target = other(play, box, (number,))
        moves(play, Move(box, (number,), hosts(play, box, number)[0], target, "to see"))
        moved(play, number + 1)
        assert target in hosts(play, box, number)
    play.finish()


def test_who_answers_stays_when_replicas_are_left_out() -> None:
    """Goal: each partition is led by who has it. Method: everything changes to one replica while the box is asked."""
    play = stage(sites=5, replicas=2)
    play.world.run_for(0.01)
    request = play.world.set_availability((Mode.AMNESIA,) * len(play.world.layout.segments), 2)
    play.wait(lambda: request in play.world.answers, "the change")
    box = box_of(play)
    for partition in range(play.world.layout.segments[box].partitions):
        assert hosts(play, box, partition) == (leads(play, box, partition),)
    play.finish()


def test_a_link_breaks_between_who_answers_and_who_hears() -> None:
    """Goal: a record that was on its way is told again. Method: the link between leader and follower breaks, again and again."""
    play = stage(sites=4)
    box = box_of(play)
    follower = next(site for site in hosts(play, box, 0) if site != leads(play, box))
    for _ in range(6):
        play.world.run_for(0.004)
        play.world.drop_link(leads(play, box), follower)
    play.finish()
    assert play.world.fired("A3", "resume_link")


def test_a_service_that_fails_the_run_says_so() -> None:
    flow = ef.Dataflow("orders")

    def fetch(k: int) -> int:
        raise LookupError("no such thing")

    flow.source(ef.sources.memory(pa.table({"k": [1]}))).lookup(fetch, "n int", on="k", retries=0).to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(flow.network, sites=2, partitions=4), sites=2, replicas=2)
    with pytest.raises(BoxFailed, match="has no answer for 1") as found:
        world.run_until_quiet()
    assert "no such thing" in found.value.user_traceback


@pytest.mark.parametrize("victim", [0, *(pytest.param(site, marks=pytest.mark.conformance) for site in (1, 2, 3))])
def test_with_amnesia_what_was_answered_is_lost_and_nothing_comes_twice(victim: int) -> None:
    """Goal: the run goes on, each row at most once. Method: a site dies that asks, reads, or both."""
    numbers = iter(range(1_000_000))

    def with_answers(stream: Any) -> Any:
        found = stream.lookup(lambda key: next(numbers), "number bigint", on="key", concurrency=1)
        return found.where("number >= 0").select("key", "value", "ts")

    run = forgetting(with_answers)
    run.run_for(0.06)
    run.kill(victim)
    run.run_until_quiet()
    assert run.error is None and happened(run, "begun_anew")
    assert not rows(run) - whole(each_row) and sum(rows(run).values()) > FORGOTTEN * 0.5


class Dealt(ef.Processor):
    """Deals each key a number when it comes first."""

    output = "key bigint, number bigint"
    deterministic = False

    def __init__(self) -> None:
        self.numbers = iter(range(1, 1_000_000))

    def open(self, store: Any) -> None:
        store.value("number", "bigint", default=0)

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        state.number = state.number or next(self.numbers)
        return [(*key, state.number) for _ in range(len(rows["value"]))]


def test_a_state_that_follows_from_answers_stays_where_it_is() -> None:
    """Goal: nobody goes on from another answer than the one that was given out. Method: a key is dealt a number when it comes first, and
    its host is to give it away; then it is to be backed up."""
    flow = ef.Dataflow("dealt")
    source = ef.sources.memory([pa.table({"key": [at // 4 for at in range(2_000)], "value": list(range(2_000))})])
    flow.source(source, name="in").key_by("key").process(Dealt(), order="arrival", name="dealt").to(ef.sinks.memory("out"), name="out")
    planned = layout(flow.network, sites=3, partitions=4)
    run = SimWorld(planned, sites=3, replicas=1, read_rows=10, read_every_us=(500, 1_000))
    Checkers(run)
    box = next(segment.id for segment in planned.segments if segment.name == "dealt")
    run.run_for(0.02)
    for partition in range(4):
        (source_site,) = run.coordinator.plan.placement[box][partition]
        run.driver.coordinate(MovesRequested((Move(box, (partition,), source_site, (source_site + 1) % 3, "to see"),)))
    run.run_until_quiet()
    said = [event.text for _, event in run.happened if "cannot move" in event.text]
    assert len(said) == 4 and all("box 'dealt' may answer otherwise at another site" in text for text in said)
    found = {tuple(row.values()) for row in run.output("out").to_pylist()}
    assert len(found) == 500, "a key has two numbers"
    with pytest.raises(AvailabilityError, match="box 'dealt' .arbitrary. may answer otherwise .* use 'amnesia' or 'pairs'"):
        modes_of(planned, "passive", 3)
