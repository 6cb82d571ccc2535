"""Upstream backup: one replica runs, producers keep what its state follows from, and what is lost is made again of that (B1, B2)."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import evenflow as ef
from evenflow.coordinator.events import Kind
from evenflow.errors import AvailabilityError, EvenflowError
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.cases import rows_of
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.mutations import Mutation, planted
from evenflow.swarm.upstream_mutations import UPSTREAM as PLANTED
from evenflow.world.sim.model import SinkModel
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in
from tests.sim.test_amnesia import some

pytestmark = pytest.mark.one_in(2)

ROWS = 2_400
QUICK = FlowOptions(linger_ms=1.0, heartbeat_ms=5.0, epoch_rows=40)


def rows(stream: Any) -> Any:
    return stream.select("key", "value", "ts")


def windows(stream: Any) -> Any:
    return stream.group_by("key").window("5 milliseconds", slide="2 milliseconds").agg(n="count(*)", total="sum(value)")


def sessions(stream: Any) -> Any:
    return stream.group_by("key").session("3 milliseconds").agg(n="count(*)", total="sum(value)")


def in_order(stream: Any) -> Any:
    return stream.sort()


SHAPES = {"rows": rows, "windows": windows, "sessions": sessions, "sort": in_order}


def world(
    draw: Any, *, seed: int = 0, sites: int = 4, spares: int = 0, replicas: int = 2, checked: bool = True, rows: int = ROWS, **given: Any
) -> SimWorld:
    flow = ef.Dataflow("upstream")
    source = ef.sources.generator(20_000, 50, rows=rows, partitions=3, seed=seed).begun(1_000_000)
    stream = flow.source(source, name="in").with_watermark("ts", "1 millisecond")
    draw(stream).to(ef.sinks.memory("out"), name="out", guarantee="precise")
    planned = layout(flow.network, sites=sites, partitions=8)
    given = {"availability": "upstream", "options": QUICK, "read_rows": 20, "read_every_us": (500, 1_500), **given}
    made = SimWorld(planned, sites=sites, spares=spares, replicas=replicas, seed=seed, **given)
    if checked:
        Checkers(made)
    return made


@cache
def truth(shape: str, seed: int) -> Counter[Any]:
    """What comes out where nobody dies."""
    plain = world(SHAPES[shape], seed=seed, availability="pairs", replicas=1, checked=False)
    plain.run_until_quiet()
    assert plain.error is None and sum(found(plain).values()) > 100
    return found(plain)


def count(run: SimWorld, kind: Kind) -> int:
    return sum(event.kind is kind for _, event in run.happened)


def found(run: SimWorld) -> Counter[Any]:
    return Counter(rows_of(run.output("out")))


def alone(run: SimWorld) -> list[int]:
    """Sites that have what nobody else has, those with most of it first."""
    view = run.coordinator.view
    only = Counter(view.live(b)[0] for s in run.layout.segments for b in view.blocks(s.id) if len(view.live(b)) == 1)
    return [site for site, _ in sorted(only.items(), key=lambda each: (-each[1], each[0]))]


def whole(run: SimWorld) -> bool:
    machine = run.coordinator
    return not machine.recovery.lost() and not machine.under_way() and not machine.recovery.missing


def settled(run: SimWorld) -> bool:
    """Whatever is lost now can begin again: all bases are behind the last copies."""
    modes = enumerate(run.coordinator.plan.modes)
    return whole(run) and all(run.coordinator.reviving.has_base(segment) for segment, mode in modes if mode == "upstream")


def bases(run: SimWorld) -> list[int]:
    return [run.coordinator.reviving.base_of(segment) for segment, mode in enumerate(run.coordinator.plan.modes) if mode == "upstream"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", some(range(4)))
def test_what_only_a_dead_site_had_is_made_again(shape: str, seed: int) -> None:
    """Goal: nothing lost, repeated or different when the one replica of something dies. Method: kill the site that has most alone, when
    bases have moved, and a second one when all can begin again from theirs."""
    run = world(SHAPES[shape], seed=seed, spares=1)
    run.run_until(lambda: min(bases(run)) > 0, 5.0, "bases to move")
    run.kill(alone(run)[0])
    run.run_until(lambda: count(run, Kind.COPY_LIVE) > 0 and settled(run), 5.0, "all to have a base again")
    if not run.ended:
        assert run.coordinator.protected() == 1
        run.kill(alone(run)[0])
    run.run_until_quiet()
    assert run.error is None
    begun = [event.text for _, event in run.happened if event.kind is Kind.COPY_BEGUN and "begin again" in event.text]
    assert begun and any("from the end of epoch 0" not in text for text in begun)
    assert found(run) == truth(shape, seed)


def test_producers_keep_no_more_than_states_follow_from() -> None:
    """Goal: what is kept is bounded by how far states reach back, and not by how long the run has been going. Method: look at the oldest
    epoch that is kept, late in a run whose windows are 5 ms."""
    run = world(windows, rows=6_000, checked=False)
    run.run_for(0.25)
    kept = [
        retained.produced - retained.since(0)[0].epoch
        for site in run.sites
        for cohort in site.part.cohorts.values()
        for retained in cohort.retained.values()
        if retained.since(0)
    ]
    assert run.sites[0].part.processed > 120 and kept and max(kept) < 40


def test_a_second_death_before_there_is_a_base_is_said() -> None:
    """Goal: what cannot be made again is not made up. Method: kill a site, and another one at once when a follower of a source has been
    copied, which has come without frames."""
    run = world(windows, sites=3)
    run.run_until(lambda: min(bases(run)) > 0, 5.0, "bases to move")
    run.kill(alone(run)[0])
    run.run_until(lambda: whole(run) and count(run, Kind.COPY_LIVE) > 1, 5.0, "all to live again")
    assert not settled(run) and run.coordinator.protected() == 0
    run.kill(alone(run)[0])
    run.run_until(lambda: run.ended, 5.0, "the end")
    assert type(run.error).__name__ == "PartitionsLost"


def test_states_that_never_close_are_refused() -> None:
    """The error names the box and what would do."""
    with pytest.raises(AvailabilityError, match=r"box 'aggregate'.*depends on all.*'passive' or 'pairs'"):
        world(lambda stream: stream.group_by("key").agg(n="count(*)"))
    with pytest.raises(AvailabilityError, match="needs two sites"):
        world(windows, sites=1, replicas=1)
    with pytest.raises(AvailabilityError, match="do not go together"):
        world(lambda stream: windows(stream).availability("amnesia"))
    with pytest.raises(AvailabilityError, match="with a checkpoint location only"):
        world(lambda stream: windows(stream).availability("passive"))


def later(batch: Any) -> Any:
    """Each row, due thirty milliseconds behind."""
    due = pc.add(batch["ts"].view(pa.int64()), 30_000).view(pa.timestamp("us"))
    return {"key": batch["key"], "ts": due}, np.arange(batch.num_rows)


def due(stream: Any) -> Any:
    return stream.flat_map(later, "key bigint, ts timestamp").sort()


def test_rows_that_are_ahead_of_their_sources_have_no_base() -> None:
    """Goal: what follows from rows that sources gave long ago is not taken for new. Method: rows wait in a sort for a time that is later
    than any that the source has given; it is refused, and where it is not, its host dies and rows are missing."""
    with pytest.raises(AvailabilityError, match="gets event times that box 'flat_map' makes, which may be later"):
        world(due)
    unchecked = Mutation("event times are the sources'", "availability.choosing:check_ahead", "layout.ahead.get(box)", "None")
    with planted(unchecked):
        run = world(due, rows=1_500)
    run.run_until(lambda: min(bases(run)) > 20, 5.0, "bases to move")
    (block,) = next(run.coordinator.view.blocks(s.id) for s in run.layout.segments if s.kind == "inner")
    run.kill(run.coordinator.view.live(block)[0])

    def comes() -> None:
        run.run_until_quiet()
        assert sum(found(run).values()) == 1_500

    with pytest.raises(AssertionError):
        comes()


def play() -> None:
    """Deaths of windows and sessions behind a base, late in the run."""
    for shape in ("windows", "sessions"):
        run = world(SHAPES[shape], seed=3, sites=3)
        run.run_until(lambda run=run: min(bases(run)) > 30, 5.0, "bases to move")
        run.kill(alone(run)[0])
        run.run_until_quiet(5.0)
        assert run.error is None and found(run) == truth(shape, 3)


@pytest.mark.conformance
@pytest.mark.parametrize("mutation", PLANTED, ids=lambda mutation: mutation.name)
def test_planted_bugs_show(mutation: Mutation) -> None:
    with planted(mutation), pytest.raises((AssertionError, EvenflowError, TimeoutError, KeyError)):
        play()


@pytest.mark.parametrize("shape", one_in(2, SHAPES))
@pytest.mark.parametrize("seed", some(range(6)))
def test_epochs_that_a_reader_has_planned_and_not_stored_are_made_again(shape: str, seed: int) -> None:
    """Goal: a sink that reads by itself loses nothing with the one replica that kept epochs for it. Method: a slow reader; the host of the
    egress dies while a batch that it has planned waits there; then its successor."""
    run = world(SHAPES[shape], seed=seed, spares=2, sink=SinkModel((5_000, 20_000), reads=True, poll_us=4_000))
    egress = next(segment.id for segment in run.layout.segments if segment.sink is not None)
    for _ in range(2):
        run.run_until(lambda: min(bases(run)) > 0 and settled(run) and planned(run, egress), 10.0, "a batch that is under way")
        if run.ended:
            break
        (host,) = run.coordinator.plan.hosts(egress)
        stored = run.sites[host].part.releasing.through(egress)
        assert run.driver.newest(egress) > stored
        run.kill(host)
    run.run_until_quiet()
    assert run.error is None and count(run, Kind.COPY_LIVE) > 0
    assert found(run) == truth(shape, seed)


def planned(run: SimWorld, egress: int) -> bool:
    """The one host of the egress has epochs that the reader has planned and not stored, or the run is over."""
    hosts = run.coordinator.plan.hosts(egress)
    releasing = [run.sites[host].part.releasing for host in hosts if run.sites[host].alive]
    return run.ended or (len(hosts) == 1 and bool(releasing) and releasing[0].taken(egress) > releasing[0].through(egress))


@pytest.mark.conformance
def test_what_is_safe_before_a_sink_has_stored_it_shows() -> None:
    bug = Mutation(
        "what a sink was given counts as stored", "site.depending:Depending._safe", "if cohort.segment.sink is not None:", "if False:"
    )
    with planted(bug), pytest.raises((AssertionError, EvenflowError, TimeoutError, KeyError)):
        test_epochs_that_a_reader_has_planned_and_not_stored_are_made_again("rows", 0)
