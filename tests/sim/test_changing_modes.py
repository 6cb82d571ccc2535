"""A mode changes while a run goes on: nothing is lost or repeated by the change, and what a death costs is what the new mode says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.availability.mode import Mode, Modes
from evenflow.coordinator.events import Done, Happened, RepartitionRequested
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld
from tests.sim.test_amnesia import some

ROWS = 6_000
FAST = FlowOptions(linger_ms=2.0, heartbeat_ms=20.0)


def world(*, seed: int = 0, availability: str = "pairs", replicas: int = 2, spares: int = 0, partitions: int = 8) -> SimWorld:
    flow = ef.Dataflow("modes")
    source = ef.sources.generator(20_000, 50, rows=ROWS, partitions=4, seed=seed).begun(1_000_000)
    stream = flow.source(source, name="in")
    stream.select("key", "value", "ts").to(ef.sinks.memory("rows"), name="rows")
    stream.group_by("key").agg(n="count(*)").to(ef.sinks.memory("totals"), name="totals")
    planned = layout(flow.network, sites=4, partitions=partitions, max_partitions=8)
    return SimWorld(planned, sites=4, spares=spares, seed=seed, options=FAST, replicas=replicas, availability=availability, patience_ms=0.0)


def of_all(run: SimWorld, mode: Mode) -> Modes:
    return (mode,) * len(run.layout.segments)


def happened(run: SimWorld, kind: str) -> list[Happened]:
    return [event for _, event in run.happened if event.kind == kind]


def rows(run: SimWorld) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in run.output("rows").to_pylist())


def last_totals(run: SimWorld) -> dict[int, int]:
    return {row["key"]: row["n"] for row in run.output("totals").to_pylist()}


def change(run: SimWorld, mode: Mode) -> None:
    request = run.set_availability(of_all(run, mode), 2)
    run.run_until(lambda: request in run.answers, 5.0, f"the change to {mode}")
    assert isinstance(run.answers[request], Done)


def whole_again(run: SimWorld) -> None:
    run.run_until(lambda: run.redundancy() == 2 and not run.coordinator.under_way(), 5.0, "two replicas of everything")


def precise(run: SimWorld, seed: int = 0) -> None:
    plain = world(seed=seed)
    plain.run_until_quiet()
    run.run_until_quiet()
    assert run.error is None and plain.error is None
    assert rows(run) == rows(plain) and sum(rows(run).values()) == ROWS
    assert last_totals(run) == last_totals(plain)


@pytest.mark.parametrize("seed", some(range(3)))
def test_pairs_to_amnesia_and_back_loses_and_repeats_nothing(seed: int) -> None:
    """Goal: a change is no failure. Method: pairs, amnesia, pairs, amnesia, in the middle of the rows; the output is the plain one."""
    run = world(seed=seed)
    run.run_for(0.03)
    for mode in (Mode.AMNESIA, Mode.PAIRS, Mode.AMNESIA):
        change(run, mode)
        if mode is Mode.PAIRS:
            whole_again(run)
        run.run_for(0.02)
        assert run.coordinator.plan.mode(0) is mode
    assert run.redundancy() == 1 and run.fired("M2", "want_modes") == 3
    assert len(run.coordinator.view.load()) == 4, "what is left is spread over all sites"
    precise(run, seed)


@pytest.mark.conformance
def test_after_the_change_back_a_death_costs_nothing() -> None:
    """Goal: `protected` tells the truth. Method: begin with amnesia, change to pairs, and kill a site when it says 1."""
    run = world(availability="amnesia")
    run.run_for(0.03)
    assert run.coordinator.view.protected() == 0
    change(run, Mode.PAIRS)
    assert run.coordinator.view.protected() == 0, "not before the copies are live"
    whole_again(run)
    assert run.coordinator.view.protected() == 1
    run.kill(2)
    precise(run)
    assert not happened(run, "begun_anew")


@pytest.mark.parametrize("victim", some(range(4)))
@pytest.mark.parametrize("after_s", some((0.001, 0.0, 0.02)))
def test_a_death_after_the_change_to_amnesia_repeats_nothing(victim: int, after_s: float) -> None:
    """Goal: where a source stands is known though the replica that knew it has gone. Method: kill each site at once or a little later."""
    plain = world()
    plain.run_until_quiet()
    run = world()
    run.run_for(0.05)
    change(run, Mode.AMNESIA)
    run.run_for(after_s)
    run.kill(victim)
    run.run_until_quiet()
    assert run.error is None and happened(run, "begun_anew")
    assert not rows(run) - rows(plain), "rows came twice"
    assert sum(rows(run).values()) > ROWS // 2


@pytest.mark.parametrize("victim", some(range(4)))
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_death_after_the_change_of_what_one_site_has_alone_repeats_nothing(victim: int, replicas: int) -> None:
    """Goal: where a source stands is known though it was read by one replica, which had nobody to tell as long as it was in pairs. Method:
    there is one from the start, or the second one cannot be copied; kill each site as soon as all have amnesia."""
    plain = world()
    plain.run_until_quiet()
    run = world(replicas=replicas, availability="pairs" if replicas == 1 else "amnesia")
    run.run_for(0.03)
    run.transfer_fates += ["lost"] * 1_000
    if replicas > 1:
        change(run, Mode.PAIRS)
    run.run_for(0.03)
    assert run.redundancy() == 1
    change(run, Mode.AMNESIA)
    run.transfer_fates.clear()
    run.kill(victim)
    run.run_until_quiet()
    assert run.error is None and happened(run, "begun_anew")
    assert not rows(run) - rows(plain), "rows came twice"


@pytest.mark.conformance
def test_a_change_waits_for_copies_that_are_under_way() -> None:
    """Goal: a change during a copy is no conflict. Method: lose a site, so that replicas are copied, and ask at once."""
    run = world(spares=1)
    run.run_for(0.03)
    run.kill(1)
    run.run_until(lambda: bool(run.coordinator.membership.joining), 5.0, "a copy")
    request = run.set_availability(of_all(run, Mode.AMNESIA), 2)
    assert request not in run.answers and run.coordinator.plan.mode(0) is Mode.PAIRS
    run.run_until(lambda: request in run.answers, 5.0, "the change")
    precise(run)


@pytest.mark.parametrize("partitions", [1, 8])
@pytest.mark.conformance
def test_a_change_waits_until_state_is_divided(partitions: int) -> None:
    """Goal: replicas that are needed no more take part in what is divided before they go (E1). Method: ask for other numbers of partitions
    and for one replica of each at once, so that the plan with fewer replicas follows at the heels of the one that divides."""
    run = world(partitions=4 if partitions > 4 else 8)
    run.run_for(0.03)
    keyed = tuple(segment.id for segment in run.layout.segments if segment.is_keyed(run.layout))
    run.driver.coordinate(RepartitionRequested(keyed, partitions, 7))
    request = run.set_availability(of_all(run, Mode.AMNESIA), 2)
    run.run_until(lambda: request in run.answers, 5.0, "the change")
    assert all(run.coordinator.repartitioning.count(segment) == partitions for segment in keyed)
    precise(run)


def test_one_that_is_there_already_is_answered() -> None:
    run = world()
    run.run_for(0.03)
    change(run, Mode.PAIRS)
    assert not happened(run, "availability")


@pytest.mark.parametrize("victim", some(range(4)))
def test_a_change_does_not_ride_on_the_plan_of_a_death(victim: int) -> None:
    """Goal: who is to be in pairs again gets a second replica. Method: ask for pairs when a site has died and nobody knows: the change is
    proposed, given up for the death, and what was lost begins anew by a plan of its own."""
    run = world(availability="amnesia", spares=1)
    run.run_for(0.03)
    run.kill(victim)
    request = run.set_availability(of_all(run, Mode.PAIRS), 2)
    run.run_until(lambda: request in run.answers, 5.0, "the change to pairs")
    whole_again(run)
    assert all(len(set(sites)) == 2 and min(sites) >= 0 for row in run.coordinator.plan.placement for sites in row)
    assert happened(run, "begun_anew")


def test_a_source_that_has_ended_hears_what_is_closed_when_it_gets_followers() -> None:
    """Goal: whoever leads a source that has ended closes what others do, also where a run began without replicas: nothing else says so."""
    counts = (4_000, 20)
    parts = [pa.table({"key": [(i * 7 + p) % 50 for i in range(count)], "v": list(range(count))}) for p, count in enumerate(counts)]
    flow = ef.Dataflow("modes")
    stream = flow.source(ef.sources.memory([part.to_batches() for part in parts]), name="in")
    stream.group_by("key").agg(n="count(*)").to(ef.sinks.memory("totals"), name="totals")
    options = FlowOptions(linger_ms=2.0, heartbeat_ms=20.0, epoch_rows=50)
    given: Any = {"availability": "amnesia", "options": options, "patience_ms": 0.0, "read_rows": 10, "read_every_us": (500, 1_500)}
    run = SimWorld(layout(flow.network, sites=3, partitions=4), sites=3, replicas=2, **given)
    run.run_for(0.02)
    request = run.set_availability(of_all(run, Mode.PAIRS), 2)
    run.run_until(lambda: request in run.answers, 5.0, "the change")
    run.run_until_quiet(20.0)
    newest = {row["key"]: row["n"] for row in run.output("totals").to_pylist()}
    assert sum(newest.values()) == sum(counts)


def test_replicas_that_were_copied_of_what_nobody_compared_are_not_compared() -> None:
    """Goal: no box is called another one each time because its copies began to count at different epochs. Method: all had amnesia at
    first; then two of three replicas die, one after the other."""
    flow = ef.Dataflow("modes")
    stream = flow.source(ef.sources.generator(20_000, 50, rows=ROWS, partitions=2).begun(1_000_000), name="in")
    stream.group_by("key").agg(n="count(*)").to(ef.sinks.memory("totals"), name="totals")
    run = SimWorld(
        layout(flow.network, sites=3, partitions=4), sites=3, replicas=3, options=FAST, availability="amnesia", patience_ms=0.0
    )  # fmt: skip
    run.run_for(0.03)
    request = run.set_availability(of_all(run, Mode.PAIRS), 3)
    run.run_until(lambda: request in run.answers, 5.0, "the change")

    def whole() -> bool:
        return run.redundancy() == 3 and not run.coordinator.under_way()

    run.run_until(whole, 5.0, "replicas")
    for victim in (1, 2):
        run.kill(victim)
        run.add_site()
        run.run_until(lambda victim=victim: victim not in run.coordinator.sites and whole(), 5.0, "replicas again")
    run.run_until_quiet(20.0)
    newest = {row["key"]: row["n"] for row in run.output("totals").to_pylist()}
    assert sum(newest.values()) == ROWS
