"""Seeds of regions: two to four of them run a dataflow as one run, each with sites, faults and a clock of its own (race.md, "Swarm").

Inside each region there are the faults that single runs have. Besides, a driver or a whole region is lost and comes back, from the origin
or from its horizon; it is cut off from its sources, from sinks or from readers; a leg is slow. In the end all is whole again, and readers
and shared sinks must have the chain, once, with what plain Python says.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

import pyarrow as pa

from evenflow.availability.silence import Reading, near
from evenflow.errors import RegionsDisagree
from evenflow.query.horizon import horizon_us
from evenflow.query.network import Network
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.sources.cut import CutSource
from evenflow.swarm.cases import Case
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.cut_cases import by_content
from evenflow.swarm.draw import EVERY_CASE, QUICK, draw_mix
from evenflow.swarm.faults import Faults, Mix
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.swarm.pushed_cases import PUSHED
from evenflow.swarm.region_checkers import Ends, RegionCheckers
from evenflow.swarm.shed_cases import BEGIN_US
from evenflow.swarm.verdict import Coverage, Verdict
from evenflow.world.grouping import InGroup
from evenflow.world.sim.model import DetectionModel, LinkModel
from evenflow.world.sim.regions import EXACT, Given, SimRegion, SimRegions
from evenflow.world.sim.subscriber import SimEar, SimSubscriber
from evenflow.world.sim.world import SimWorld

REGIONAL: Final = 0.03
"""So many of all seeds."""
LYING: Final = 0.12
"""So many of these have a region whose rows differ."""
CONVERGE_S: Final = 40.0
"""Virtual seconds after the last fault within which readers and shared sinks must have everything."""
BOUNDED: Final = 0.4
"""So many of dataflows whose state does not reach far back, with rows for many epochs: who begins at his horizon is to be believed."""
LOCATED: Final = 0.25
"""So many have regions with a checkpoint location."""
BOUND: Final = ("late", "idle")
CASES: Final = sorted(EVERY_CASE.keys() - PUSHED.keys())


def is_regional(seed: int) -> bool:
    """It is of regions."""
    return Random(f"regions or not of seed {seed}").random() < REGIONAL


@dataclass
class Drawn:
    """What a seed stands for. needed: epochs with rows after which a silent region is believed here; runs are short. liar: the region that
    says other digests from that epoch on."""

    seed: int
    name: str
    case: Case
    network: Network
    group: SimRegions
    until_us: int
    needed: int
    every_us: int
    kinds: list[str]
    liar: tuple[str, int] | None
    mixes: dict[str, Mix] = field(default_factory=dict)
    width_us: int = 1000

    def __str__(self) -> str:
        shared = {name: "owned" if sink.owned else "table" for name, sink in self.group.shared.items()}
        sites = [
            f"{region.given.sites} sites x{region.given.replicas}{' at a location' * region.given.located}" for region in self.group.regions
        ]
        lying = f", {self.liar[0]} lies from epoch {self.liar[1]}" if self.liar else ""
        return f"{self.name} in {len(sites)} regions ({', '.join(sites)}), shared {shared or 'nothing'}, faults {self.kinds}{lying}"


def draw_regions(seed: int) -> Drawn:
    """All of it follows from the seed."""
    random = Random(f"regions of seed {seed}")
    located = is_located(seed)
    name, case, network = draw_case(random, located=located)
    shape, partitions = random.choice([1, 2, 4]), random.choice([1, 3, 8])
    given = [_region(random, seed, place, slowly=located or _short(network), located=located) for place in range(random.randint(2, 4))]
    sinks = [box.name for box in network.of_kind("sink")]
    shared = {sink: random.random() < 0.5 for sink in sinks[_short(network) :] if random.random() < 0.4}

    def plan(sites: int) -> Any:
        return layout(network, sites=sites, partitions=partitions, max_partitions=2 * partitions)

    group = SimRegions(
        plan, InGroup("swarm", BEGIN_US, shape), given, seed=seed, shared=shared,
        takes_us=random.choice([(200, 2_000), (200, 20_000), (110_000, 120_000)]),
    )  # fmt: skip
    kinds = sorted({random.choice(KINDS) for _ in range(random.randint(1, 5))})
    liar = (random.choice(given).name, random.randint(1, 20)) if random.random() < LYING else None
    until_us = random.choice([100_000, 400_000, 1_500_000])
    mixes = {each.name: draw_mix(random, each.replicas, quick=True) if random.random() < 0.5 else Mix() for each in given}
    width_us = _cut(network).width_us
    if located or _short(network):
        kinds = sorted({*kinds[:2], "lose"})
    return Drawn(
        seed, name, case, network, group, until_us, random.choice([1, 2, 5]), random.choice([20_000, 100_000, 300_000]), kinds, liar,
        mixes, width_us,
    )  # fmt: skip


def is_located(seed: int) -> bool:
    """Regions of this seed may have locations, and rows for long enough that they go on there in the middle."""
    return Random(f"locations of seed {seed}").random() < LOCATED


def draw_case(random: Random, *, located: bool) -> tuple[str, Case, Network]:
    """The first that can be cut by content. Half of those without locations have a horizon, if one is found soon."""
    bounded = random.random() < BOUNDED and not located
    for tries in range(60):
        name = random.choice(BOUND if bounded else CASES)
        case = EVERY_CASE[name](random, random.choice([400, 1200]) if bounded or located else random.choice([40, 120]))
        network = by_content(case.flow.network, random)
        if network is not None and (not bounded or tries >= 30 or _short(network)):
            return name, case, network
    raise AssertionError("no case can be cut by content")


def _short(network: Network) -> bool:
    """There are many more epochs than its state reaches back."""
    cut = _cut(network)
    return cut.by == "time" and cut.width_us <= 1_000 and horizon_us(network) is not None


def _cut(network: Network) -> CutSource:
    found = network.of_kind("source")[0].params["source"]
    assert isinstance(found, CutSource)
    return found


def _region(random: Random, seed: int, place: int, *, slowly: bool, located: bool) -> Given:
    """slowly: it does not read everything at once, so that others can be lost and believed meanwhile. located: it may
    have a location; the first one never has, so that there is one to compare with from the first epoch on."""
    sites = random.randint(1, 4)
    replicas = random.choice([1, 2]) if sites > 1 else 1
    world: dict[str, Any] = {
        "seed": 1000 * seed + place,
        "placement": random.choice(["mirrored", "chained"]),
        "options": FlowOptions(
            linger_ms=0.5, pipeline=random.choice([1, 4]), window_epochs=random.choice([4, 16, 64]),
            epoch_rows=random.choice([50, 131_072]), heartbeat_ms=random.choice([20.0, 100.0]), ack_ms=random.choice([1.0, 10.0]),
        ),
        "link": LinkModel((10, random.choice([50, 500])), 0, 500, 10.0, (0, 5_000)),
        "detection": DetectionModel(patience=QUICK, removed_us=(5_000, 60_000)),
        "read_rows": random.choice([3, 10, 40] if slowly else [3, 10, 40, 400]),
        "read_every_us": random.choice([(500, 3_000), (1_000, 10_000)] if slowly else [(50, 1_000), (1_000, 10_000), (5_000, 30_000)]),
    }  # fmt: skip
    located = located and place > 0 and Random(f"location of region {place} of seed {seed}").random() < 0.7
    if located:
        checkpoint_s = Random(f"checkpoints of region {place} of seed {seed}").choice([0.003, 0.01, 0.03])
        world["options"] = replace(world["options"], checkpoint_s=checkpoint_s)
    keep_us = 600_000_000 if place == 0 else random.choice([600_000_000, 200_000])
    return Given(f"region{place}", sites, replicas, random.randint(-10_000_000, 10_000_000), world, keep_us, located)


# ---------------------------------------------------------------- what goes wrong between regions


class Blows:
    """What happens to regions: one after the other, at random times. done: how often each kind did."""

    def __init__(self, drawn: Drawn, readers: list[SimSubscriber]) -> None:
        self._drawn, self._group, self._readers = drawn, drawn.group, readers
        self._random = Random(f"what is lost of seed {drawn.seed}")
        self._undo: list[Callable[[], None]] = []
        self._over = False
        self.done: Counter[str] = Counter()
        self._next()

    def _next(self) -> None:
        self._group.clock.after(int(self._random.expovariate(1.0) * self._drawn.every_us) + 1, self._strike)

    def _strike(self) -> None:
        if not self._over:
            kind, region = self._random.choice(self._drawn.kinds), self._random.choice(self._group.regions)
            if getattr(self, kind)(region):
                self.done[f"region {kind}"] += 1
            self._next()

    def _for_a_while(self, undo: Callable[[], None]) -> bool:
        self._undo.append(undo)

        def now() -> None:
            if undo in self._undo:
                self._undo.remove(undo)
                undo()

        self._group.clock.after(self._random.choice([5_000, 80_000, 500_000]), now)
        return True

    def end(self) -> None:
        """All is whole again."""
        self._over = True
        for undo in self._undo:
            undo()
        self._undo.clear()

    def _back(self, region: SimRegion) -> bool:
        """It is there again after a while: from the origin, or from its horizon where it has one."""
        reading = self._reading(region)
        return self._for_a_while(lambda: self._again(region, reading))

    def _again(self, region: SimRegion, reading: Reading) -> None:
        if not region.there and not region.over:
            if not region.world.ended:
                region.lose()
            world = region.begin(reading)
            if reading.silent:
                self.done["region from its horizon"] += 1
                for silence in region.gate.silences.values():
                    silence.needed = self._drawn.needed
                SimEar(region, self._random.choice([500, 20_000]))
            self.done["region at its location"] += region.store is not None
            assert world is region.world

    def _reading(self, region: SimRegion) -> Reading:
        """From where it reads. The first region is always exact: rows that nobody else has any more must be there again."""
        back_us = horizon_us(self._drawn.network)
        readable = any(outlet.shared is None for outlet in region.outlets.values())
        if region.place == 0 or region.store is not None or back_us is None or not readable or self._random.random() < 0.3:
            return EXACT
        made = max([epoch for other in self._group.regions for o in other.outlets.values() for epoch in o.made], default=0)
        # From as far back as its state reaches, or from further back: then there is more by which others may believe it.
        return near(int(made * self._random.choice([0.2, 0.5, 0.8, 1.0])), back_us // self._drawn.width_us)

    def lose_driver(self, region: SimRegion) -> bool:
        if not region.there:
            return False
        region.lose_driver()
        return self._back(region)

    def lose(self, region: SimRegion) -> bool:
        if not region.there:
            return False
        region.lose()
        return self._back(region)

    def cut_source(self, region: SimRegion) -> bool:
        if region.off_source or not region.there:
            return False
        region.cut_source()
        return self._for_a_while(region.heal_source)

    def cut_sinks(self, region: SimRegion) -> bool:
        if region.off_sinks:
            return False
        region.off_sinks = True
        return self._for_a_while(lambda: setattr(region, "off_sinks", False))

    def cut_clients(self, region: SimRegion) -> bool:
        if region.off_clients:
            return False
        region.off_clients = True
        return self._for_a_while(lambda: setattr(region, "off_clients", False))

    def slow_leg(self, region: SimRegion) -> bool:
        reader = self._random.choice(self._readers) if self._readers else None
        if reader is None or reader.legs[region.place].slow_us:
            return False
        leg = reader.legs[region.place]
        leg.slow_us = self._random.choice([20_000, 150_000])
        return self._for_a_while(lambda: setattr(leg, "slow_us", 0))


KINDS: Final = ["lose_driver", "lose", "cut_source", "cut_sinks", "cut_clients", "slow_leg"]


# ---------------------------------------------------------------- a seed


def run_regional(seed: int, *, tell: bool = False) -> Verdict:
    """Run it. tell: with its story."""
    drawn = draw_regions(seed)
    group, coverages, inner = drawn.group, list[Coverage](), list[Faults]()
    checkers = RegionCheckers(group)
    random = Random(f"beginnings of seed {seed}")

    def prepare(region: SimRegion, world: SimWorld) -> None:
        coverages.append(Coverage(world))
        former = formers.get(region.name) if region.store is not None else None
        formers[region.name] = Checkers(world, former)
        if region.store is not None:
            JournalCheckers(world)
        checkers.watch(region, world)
        drawn.case.watch(world)
        mix = drawn.mixes[region.name]
        if not ended:
            inner.append(Faults(world, mix, Random(f"faults in {region.name} of seed {seed}, life {len(region.lives)}"), careful=True))

    ended, formers = list[bool](), dict[str, Checkers]()
    group.prepare.append(prepare)
    if drawn.liar is not None:
        group.liar = drawn.liar
    failure = trace = None
    blows = None
    try:
        for region in group.regions:
            late_us = 0 if region.place == 0 else random.choice([0, 0, 50_000])
            group.clock.after(late_us, lambda region=region: region.begin())  # type: ignore[misc]
        group.run_for(0.06)
        sinks = [sink for sink in group.regions[0].outlets if sink not in group.shared]
        delays = [500, 10_000, 40_000, 90_000]
        readers = [
            SimSubscriber(group, sink, [random.choice(delays) for _ in group.regions], race=random.random() < 0.25) for sink in sinks
        ]
        checkers.follow(readers)
        blows = Blows(drawn, readers)
        group.run_for(drawn.until_us / 1e6)
        blows.end()
        ended.append(True)
        for faults in inner:
            faults.end()
        for region in group.regions:
            if not region.there and not region.over:
                blows.done["region back in the end"] += 1
                if not region.world.ended:
                    region.lose()
                region.begin()
        failure = _finish(drawn, checkers, readers)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}".split("\n")[0][:600]
        trace = traceback.format_exc()
    faults_done = sum([Counter(faults.done) for faults in inner], Counter())
    return Verdict(
        seed, failure, str(drawn), sum([coverage.fired for coverage in coverages], Counter()),
        faults_done + (blows.done if blows is not None else Counter()), checkers.happened(), checkers.story if tell else [],
        group.clock.now_us, trace or "",
    )  # fmt: skip


def _finish(drawn: Drawn, checkers: RegionCheckers, readers: list[SimSubscriber]) -> str | None:
    """Until readers and sinks have everything, or regions contradict each other where one of them lies."""
    group = drawn.group
    ends = Ends(group, readers)
    group.run_until(lambda: ends.over, CONVERGE_S)
    if (found := checkers.judge(lied=drawn.liar is not None)) is not None:
        return found
    if drawn.liar is not None and (any(isinstance(reader.error, RegionsDisagree) for reader in readers) or group.disagreed):
        return None
    if missing := ends.missing():
        return f"{missing} after {CONVERGE_S} virtual seconds"
    errors = [f"{region.name}: {world.error}" for region in group.regions for world in region.lives if world.error is not None]
    if errors:
        return errors[0]
    return drawn.case.judge({sink: _table(rows) for sink, rows in ends.rows().items()})


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches) if batches else pa.table({})
