"""Upstream backup: a base is never told newer than what states follow from, whatever has come to a site, gone from it or come back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.events import Kind, MovesRequested
from evenflow.errors import EvenflowError
from evenflow.policy.move import Move
from evenflow.query.planner import layout
from evenflow.swarm.cases import rows_of
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.mutations import Mutation, planted
from evenflow.world.sim.world import SimWorld
from tests.sim.test_upstream import QUICK, alone, bases, count

STEP_US = 50
"""Event time from one row to the next."""


def world(draw: Any, rows: list[tuple[int, int]], *, sites: int = 3, delay: str = "1 millisecond", **given: Any) -> SimWorld:
    """rows: (key, number), STEP_US apart, of two partitions in turn."""
    flow = ef.Dataflow("told")
    schema = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("ts", pa.timestamp("us"))])
    every = [(key, value, at * STEP_US) for at, (key, value) in enumerate(rows)]
    parts = [[pa.record_batch([list(column) for column in zip(*every[p::2], strict=True)], schema=schema)] for p in range(2)]
    stream = flow.source(ef.sources.memory(parts), name="in").with_watermark("ts", delay)
    draw(stream).to(ef.sinks.memory("out"), name="out", guarantee="precise")
    planned = layout(flow.network, sites=sites, partitions=4)
    given = {"availability": "upstream", "replicas": 2, "options": QUICK, "read_rows": 10, "read_every_us": (500, 1_500), **given}
    made = SimWorld(planned, sites=sites, seed=given.pop("seed", 1), **given)
    Checkers(made)
    return made


def found(run: SimWorld) -> Counter[Any]:
    return Counter(rows_of(run.output("out")))


def answer(draw: Any, rows: list[tuple[int, int]], **given: Any) -> Counter[Any]:
    """What comes out where nobody dies."""
    plain = world(draw, rows, availability="pairs", replicas=1, **given)
    plain.run_until_quiet()
    return found(plain)


def based(run: SimWorld) -> bool:
    """Whatever is lost now can begin again."""
    machine, modes = run.coordinator, enumerate(run.coordinator.plan.modes)
    if machine.recovery.lost() or machine.under_way():
        return False
    return all(machine.reviving.has_base(segment) for segment, mode in modes if mode == "upstream")


def one_window(stream: Any) -> Any:
    """One partition has all."""
    return stream.group_by().window("30 milliseconds", slide="5 milliseconds").agg(n="count(*)", total="sum(value)")


def sessions(stream: Any) -> Any:
    return stream.group_by("key").session("3 milliseconds").agg(n="count(*)", total="sum(value)")


def host_of(run: SimWorld, segment: int) -> int:
    """Of its one partition."""
    (block,) = run.coordinator.view.blocks(segment)
    (host,) = run.coordinator.view.live(block)
    return int(host)


def move(run: SimWorld, segment: int, source: int, target: int) -> None:
    before = count(run, Kind.MOVE_DONE)
    run.driver.coordinate(MovesRequested((Move(segment, (0,), source, target, "to see"),)))
    run.run_until(lambda: count(run, Kind.MOVE_DONE) > before, 5.0, "the move")


def test_what_comes_back_to_a_site_follows_from_what_came_while_it_was_away() -> None:
    """Goal: what a site knew of a partition that it had before is no help when it has it again. Method: the one partition of a window goes
    elsewhere, and comes back later than the window is long; its host dies as soon as all can begin again."""
    rows = [(0, at) for at in range(9_000)]
    run = world(one_window, rows)
    segment = next(s.id for s in run.layout.segments if s.kind == "inner" and s.partitions == 1)
    run.run_until(lambda: min(bases(run)) > 0, 5.0, "bases to move")
    home = host_of(run, segment)
    other = next(site for site in run.coordinator.sites if site != home)
    move(run, segment, home, other)
    run.run_for(0.16)
    move(run, segment, other, home)
    run.run_until(lambda: based(run), 5.0, "all to have a base again")
    assert not run.ended and host_of(run, segment) == home
    run.kill(home)
    run.run_until_quiet()
    assert run.error is None and found(run) == answer(one_window, rows)


def long_and_short(rows: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Key 0 has a row every half a millisecond in between. The others come for a millisecond each, by turns."""
    return [(0 if begin <= at < end and at % 10 == 0 else 1 + at // 20 % 40, at) for at in range(rows)]


def oldest_us(run: SimWorld) -> dict[int, int]:
    """By site that has sessions alone: the first row of those that are open."""
    found = {}
    for index in run.coordinator.sites:
        for cohort in run.sites[index].part.cohorts.values() if run.sites[index].alive else ():
            for operator in cohort.hosted.facts.reaching if not cohort.number else ():
                found[index] = operator.oldest_us(cohort.watermark)
    return found


def host_of_long(run: SimWorld) -> int:
    found = oldest_us(run)
    return min(found, key=lambda site: found[site])


def spread_us(run: SimWorld) -> int:
    """How much older the oldest session of all is than that of the next site."""
    first, second, *_ = [*sorted(oldest_us(run).values()), 0, 0]
    return second - first


@pytest.mark.conformance
def test_sessions_that_were_on_their_way_are_in_no_base_of_before() -> None:
    """Goal: how far sessions reach that come to a site is not judged by those that it had. Method: the host of the one long session dies;
    who has got it dies as soon as all can begin again, or when the session is over."""
    rows = long_and_short(4_600, 400, 2_600)
    run = world(sessions, rows, sites=4, patience_ms=10_000.0, seed=3)
    run.run_until(lambda: min(bases(run)) > 0 and spread_us(run) > 50_000, 5.0, "a session that is older than all others")
    run.kill(host_of_long(run))
    before = min(bases(run))
    run.run_until(lambda: count(run, Kind.COPY_LIVE) > 0 and based(run), 5.0, "all to have a base again")
    run.run_until(lambda: based(run) and min(bases(run)) > before, 5.0, "bases of what it has now")
    assert not run.ended and spread_us(run) < 10_000, "the long session is open, and its rows are behind its base"
    run.kill(host_of_long(run))
    run.run_until_quiet()
    assert run.error is None and found(run) == answer(sessions, rows)


def windows(stream: Any) -> Any:
    return stream.group_by("key").window("5 milliseconds").agg(n="count(*)", total="sum(value)")


def spilled(run: SimWorld) -> int:
    return sum(site.part.spilling.spilled_bytes for site in run.sites)


@pytest.mark.parametrize("shape", [sessions, windows])
@pytest.mark.conformance
def test_bases_move_on_when_state_has_been_on_disk(shape: Any) -> None:
    """Goal: what is kept is bounded by how far states reach, also where memory was short once; and while it is, as far as event time says
    how far that is. Method: the budget shrinks and grows again."""
    rows = [(at // 20 % 40, at) for at in range(5_000)]
    run = world(shape, rows, sites=3)
    run.run_until(lambda: min(bases(run)) > 0, 5.0, "bases to move")
    for site in run.coordinator.sites:
        run.limit_memory(site, 1)
    run.run_until(lambda: spilled(run) > 0, 5.0, "state on disk")
    run.run_for(0.03)
    if shape is windows:
        before = min(bases(run))
        run.run_until(lambda: min(bases(run)) > before, 1.0, "bases that move while state is on disk")
        assert spilled(run) > 0 and not run.ended
    for site in run.coordinator.sites:
        run.limit_memory(site, None)
    turns = [cohort.turns for site in run.sites for cohort in site.part.cohorts.values() if cohort.turns is not None]
    run.run_until(lambda: not any(each.groups for each in turns), 5.0, "all state in memory")
    before = min(bases(run))
    run.run_until(lambda: min(bases(run)) > before, 1.0, "bases to move again")
    assert turns and not run.ended
    run.kill(alone(run)[0])
    run.run_until_quiet()
    assert run.error is None and found(run) == answer(shape, rows)


BUGS = (
    (
        Mutation("what was known goes on over a gap", "site.depending:Depending._note", "tick.epoch != history.last + 1", "False"),
        test_what_comes_back_to_a_site_follows_from_what_came_while_it_was_away,
    ),
)

TURNS = Mutation("turns are never over", "site.depending:_is_here", "not turns.groups", "False")


@pytest.mark.conformance
@pytest.mark.parametrize(("bug", "scenario"), BUGS, ids=[bug.name for bug, _ in BUGS])
def test_planted_bugs_show(bug: Mutation, scenario: Any) -> None:
    with planted(bug), pytest.raises((AssertionError, EvenflowError, TimeoutError, KeyError)):
        scenario()


@pytest.mark.conformance
def test_that_turns_are_never_over_shows() -> None:
    with planted(TURNS), pytest.raises((AssertionError, EvenflowError)):
        test_bases_move_on_when_state_has_been_on_disk(sessions)
