"""Several regions run a dataflow as one run: seeds of the swarm, and what they have found."""

from __future__ import annotations

from random import Random

import pytest

import evenflow as ef
from evenflow.availability.silence import Withheld
from evenflow.query.horizon import endless, horizon_us
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.cases import SCHEMA, Case, batches, make_rows
from evenflow.swarm.cut_cases import by_content
from evenflow.swarm.draw import EVERY_CASE
from evenflow.swarm.mutations import find
from evenflow.swarm.region_checkers import RegionCheckers
from evenflow.swarm.region_mutations import REGIONS
from evenflow.swarm.regional import run_regional
from evenflow.swarm.shed_cases import BEGIN_US
from evenflow.world.grouping import InGroup
from evenflow.world.sim.regions import Given, SimRegions
from evenflow.world.sim.subscriber import SimSubscriber

pytestmark = pytest.mark.swarm


def group_of(case: Case, random: Random, shape: int = 3) -> SimRegions:
    network = by_content(case.flow.network, random)
    assert network is not None
    given = [Given(f"region{at}", 1 + at, 1, (at - 1) * 10_000_000, {"seed": at, "read_rows": [10, 50, 400][at]}) for at in range(3)]
    return SimRegions(lambda sites: layout(network, sites=sites, partitions=8), InGroup("g", BEGIN_US, shape), given)


@pytest.mark.parametrize(("name", "seed"), [("dealt", 1), ("duplicates", 21)])
def test_the_order_of_rows_within_an_epoch_is_no_contradiction(name: str, seed: int) -> None:
    """Goal: what is the same in all regions is an epoch's rows, whose order is free (E3). Method: regions with one to three sites, whose
    rows arrive in other orders at boxes that do not care."""
    random = Random(seed)
    random.choice([0])
    case = EVERY_CASE[name](random, 120)
    group = group_of(case, random)
    for region in group.regions:
        region.begin()
    readers = [SimSubscriber(group, sink, [500, 2_000, 9_000]) for sink in group.regions[0].outlets]
    group.run_until(lambda: all(reader.over or reader.error for reader in readers), 20.0)
    assert [str(reader.error) for reader in readers if reader.error is not None] == []
    assert all(reader.over for reader in readers)


def traffic() -> ef.Stream:
    random = Random(1)
    parts = make_rows(random, 2, 40, 5)
    flow = ef.Dataflow("horizons")
    source = ef.sources.memory([batches(part, random) for part in parts])
    assert source.schema == SCHEMA
    return flow.source(source, name="in")


def test_the_horizon_is_the_longest_path_of_windows_bounds_and_delays() -> None:
    rows = traffic().where("v > 0").with_watermark("ts", "2 seconds")
    rows.to(ef.sinks.memory("rows"), name="rows")
    assert horizon_us(rows.flow.network) == 2_000_000
    rows.group_by("k").window("5 seconds").agg(n="count(*)").to(ef.sinks.memory("out"), name="out")
    assert horizon_us(rows.flow.network) == 7_000_000


def test_totals_that_never_close_reach_back_for_ever_and_are_named() -> None:
    totals = traffic().group_by("k").agg(n="count(*)").name("totals")
    totals.to(ef.sinks.memory("out"), name="out")
    assert horizon_us(totals.flow.network) is None and endless(totals.flow.network, {}) == "totals"


SEEDS = (1, 2, 4, 6, 7, 9, 58, 91)


def test_seeds_of_regions_pass_and_lose_what_regions_can_lose() -> None:
    verdicts = [run_regional(seed) for seed in SEEDS]
    assert [(each.seed, each.failure) for each in verdicts if each.failure] == []
    done = {kind for each in verdicts for kind in each.faults if kind.startswith("region ")}
    assert done >= {"region lose", "region lose_driver", "region cut_source", "region cut_clients", "region slow_leg"}


def test_a_seed_of_regions_replays_exactly() -> None:
    first, second = run_regional(4, tell=True), run_regional(4, tell=True)
    assert first.story and (first.story, first.virtual_us, first.fired) == (second.story, second.virtual_us, second.fired)


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("a layout for the sites that a region has", 1), ("a region stamps by its own clock", 1),
        ("a silent region gives out what it makes", 15),
        pytest.param("rows before the horizon are read, too", 15, marks=pytest.mark.conformance),
        pytest.param("one epoch is enough to be believed", 15, marks=pytest.mark.conformance),
        pytest.param("the first epoch behind the horizon is given out, too", 91, marks=pytest.mark.conformance),
        pytest.param("digests of what was delivered are not compared", 127, marks=pytest.mark.conformance),
        pytest.param("a standby goes on from its own epoch", 28, marks=pytest.mark.conformance),
    ],
)  # fmt: skip
def test_planted_bugs_of_regions_are_found(name: str, seed: int) -> None:
    mutation = next(mutation for mutation in REGIONS if mutation.name == name)
    assert find(mutation, range(seed, seed + 1)) is not None


def goes_on_at_a_location() -> None:
    """The driver of a region is lost in the middle, with its sites, and another one begins at its location. Whatever it makes is compared
    with what the other region has made."""
    random = Random(3)
    case = EVERY_CASE["dealt"](random, 1200)
    network = by_content(case.flow.network, random)
    assert network is not None
    options = FlowOptions(linger_ms=0.5, checkpoint_s=0.003)
    world = {"read_rows": 10, "read_every_us": (500, 2_000), "options": options}
    given = [Given("exact", 1, 1, 0, {**world, "seed": 1}), Given("located", 2, 2, 3_000_000, {**world, "seed": 2}, located=True)]
    group = SimRegions(lambda sites: layout(network, sites=sites, partitions=8), InGroup("g", BEGIN_US, 2), given)
    RegionCheckers(group)
    for region in group.regions:
        region.begin()
    readers = [SimSubscriber(group, sink, [500, 2_000]) for sink in group.regions[0].outlets]
    located = group.regions[1]
    store = located.store
    assert store is not None
    assert group.run_until(lambda: any(store.standing().lasts.values()), 5.0), "no checkpoint came behind an epoch with rows"
    located.lose_driver()
    group.run_for(0.02)
    located.lose()
    located.begin()
    assert located.world.coordinator.beginning.epoch > 0
    assert group.run_until(lambda: all(reader.over or reader.error for reader in readers), 20.0)
    assert [str(reader.error) for reader in readers if reader.error is not None] == []
    assert group.run_until(lambda: all(outlet.ended for outlet in located.outlets.values()), 20.0)
    assert any(outlet.made for outlet in located.outlets.values()), "it made nothing any more"


def test_a_region_at_a_location_goes_on_with_its_state_and_its_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: readers of both find no contradiction. Method: as above; then with an outlet that does not heed what the checkpoint says of its
    sink, which must be found."""
    goes_on_at_a_location()
    monkeypatch.setattr("evenflow.world.sim.regions.Withheld", lambda gate, last, known: Withheld(gate, 0, known))
    with pytest.raises(AssertionError, match="an exact region has made"):
        goes_on_at_a_location()
