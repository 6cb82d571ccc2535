"""What a seed stands for: a dataflow, a topology, a load, and what goes wrong. All of it follows from the seed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from evenflow.coordinator.detector import Patience
from evenflow.policy.proposal import Parameters
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.asked_cases import REMODED_SINCE, asked
from evenflow.swarm.balancing import draw_balance
from evenflow.swarm.based_cases import based, deaths, is_based, lasting
from evenflow.swarm.cases import CASES, Case, Cutting
from evenflow.swarm.cut_cases import by_content, is_cut
from evenflow.swarm.durability_cases import draw_durability
from evenflow.swarm.endings import draw_ending
from evenflow.swarm.faults import BRIEF_US, CUTS, DEATHS, DRIVER, HANGS, HARMLESS, Mix
from evenflow.swarm.journals import draw_store, publishing
from evenflow.swarm.kept_cases import kept
from evenflow.swarm.memory import draw_memory
from evenflow.swarm.mode_cases import among, is_mixed, is_moded, mixed, moded
from evenflow.swarm.portions import unordered
from evenflow.swarm.pushed_cases import PUSHED
from evenflow.swarm.remoded_cases import is_alone, is_remoded, remoded
from evenflow.swarm.shaped_cases import SHAPED
from evenflow.swarm.shed_cases import shed
from evenflow.swarm.shed_joins import shed_joins
from evenflow.swarm.shed_windows import shed_sessions, shed_windows
from evenflow.swarm.spooled_cases import SPOOLED, spooled
from evenflow.swarm.thinned_cases import thinned
from evenflow.swarm.timed_cases import TIMED
from evenflow.swarm.view_cases import views
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import CostModel, DetectionModel, LinkModel, SinkModel, StoreModel
from evenflow.world.sim.store import SimStore
from evenflow.world.sim.world import Fate, SimWorld

EVERY_CASE: Final = {**CASES, **SHAPED, **TIMED, **PUSHED}

QUICK: Final = Patience(beat_us=5_000, grace_us=25_000, lease_us=400_000, busy_us=400_000, late_us=10_000)
SLOW: Final = Patience(beat_us=25_000, grace_us=120_000, lease_us=1_500_000, busy_us=1_500_000, late_us=50_000)
ALONE: Final = Patience(500_000, misses=60, grace_us=0, lease_us=60_000_000, busy_us=60_000_000, late_us=1_000_000, votes=False)
"""Without replicas nobody is declared dead for a silence."""

CONVERGE_S: Final = 20.0
"""For whatever takes no time of its own: see `Drawn.converge_s`."""

THRASHING_S: Final = 60.0
"""The same where what is behind may be all that a slow disk does: each epoch reads every partition from it and writes it back."""

PARTITIONS: Final = 60
"""Most that a segment may have. A round of a policy costs as much as there are, and there may be a round every millisecond; what more of
them could find is found with these: several per site, site and rank, more than the copies that go at once, and divisions by all numbers."""

KEPT: Final = 0.12
"""So many runs that have a journal have rows that nobody gives again."""

BEGUN: Final = 0.25
"""So many runs begin where the potential puts what has one partition."""

VIEWED: Final = 0.07
"""Share of the other seeds that are views over results that change."""

SHED: Final = 0.25
"""So many of the others have more rows than can be done, and leave some out: a seventh of all seeds."""
SHED_SINCE, SHED_MORE = 10_000_000, 0.5
"""From that seed on it is so many of them, which is a quarter of all. Those before it, of which tests name some, are what they were."""

ASKED: Final = 0.06
"""Share of the other seeds that have boxes which answer otherwise each time."""

WHOLE: Final = 0.4
"""So many of these leave out whole windows."""
OF_SESSIONS: Final = 0.4
"""So many of these have sessions, and leave out whole keys."""
OF_JOINS: Final = 0.3
"""So many of the others have a join, and leave out whole keys of both sides."""
PLANNED: Final = 0.4
"""Of the others so many have plans that say what is left out."""


@dataclass(frozen=True)
class Drawn:
    """See the module. world: arguments of SimWorld. doomed: the run is to lose partitions. held: part of each source's rows comes only
    after the faults, so that the run goes on until redundancy is whole again. ending: how it ends, see `endings`. spoiled: what becomes of
    the first copies. store: of the journal, if the run has one."""

    seed: int
    name: str
    case: Case
    world: dict[str, Any] = field(repr=False)
    mix: Mix
    doomed: bool
    held: bool
    ending: str
    spoiled: list[Fate] = field(default_factory=list, repr=False)
    store: StoreModel | None = None

    def converge_s(self, world: SimWorld) -> float:
        """Virtual seconds after the last fault within which redundancy must be whole again; and after that, the run at its end. Time that
        nobody can save is what the slowest site would need for all rows, if it were alone, and what sites are at already, some of which
        they began while a fault made them slower."""
        cost, rows = self.world["cost"], sum(map(sum, self.case.counts.values()))
        alone_us: float = sum(cost.epoch_us(segment.kind, rows) for segment in self.world["layout"].segments)
        slowest: float = max(cost.slow, default=1.0)
        at_it_us = max((site.free_at_us - world.clock.now_us for site in world.sites if site.alive), default=0)
        thrashes = self.world["disk"].bytes_per_us <= 1 and world.options.state_memory_bytes is not None
        return (THRASHING_S if thrashes else CONVERGE_S) + (slowest * alone_us + max(at_it_us, 0)) / 1e6

    def build(self) -> SimWorld:
        store = None if self.store is None else SimStore(VirtualClock(), self.store, Random(f"store of seed {self.seed}"))
        world = SimWorld(**self.world, store=store)
        world.transfer_fates += self.spoiled
        self.case.watch(world)
        self.hold(world)
        return world

    def hold(self, world: SimWorld) -> None:
        """Sources keep some of their rows for later, if they are to."""
        if self.held:
            random = Random(self.seed + 2)
            world.sources_may_end = False
            for segment in world.layout.segments:
                if segment.kind == "ingress":
                    for partition, rows in enumerate(self.case.counts[segment.source or ""]):
                        world.quotas[segment.id, partition] = int(rows * random.choice([0.5, 0.8, 0.95]))

    def cut(self, taken: Iterable[int]) -> Case:
        """The case as if its sources had no more rows than these, by partition."""
        return draw_case(Cutting(self.seed, taken))[1]

    def __str__(self) -> str:
        w = self.world
        also = f"{', doomed' if self.doomed else ''}{', journalled' if self.store is not None else ''}"
        also += "" if self.store is None or self.store.cuts else " by checkpoints only"
        also += ", first come, first served" if any(segment.unordered for segment in w["layout"].segments) else ""
        return (
            f"{self.name} on {w['sites']} sites and {w['spares']} spares, {w['replicas']} replicas, {w['placement']}, "
            f"{w['first_placement']}, policy {w.get('policy', 'none')}, faults {self.mix.kinds or 'none'}, ends by {self.ending}{also}"
        )


def draw_case(random: Random) -> tuple[str, Case]:
    """The first that is drawn of a seed."""
    name = random.choice(sorted(EVERY_CASE))
    return name, EVERY_CASE[name](random, random.choice([40, 120, 300]))


def is_kept(seed: int) -> bool:
    """Its rows are given once: some of those that have a journal."""
    return draw_store(Random(f"journal of seed {seed}")) is not None and Random(f"kept rows of seed {seed}").random() < KEPT


def is_spooled(seed: int) -> bool:
    """If Spark gives its rows, it writes them at the location, which it has then."""
    located = draw_store(Random(f"journal of seed {seed}")) is not None
    return located and Random(f"batches at the location of seed {seed}").random() < SPOOLED


def is_shed(seed: int) -> bool:
    """It leaves rows out."""
    return Random(f"shedding of seed {seed}").random() < (SHED if seed < SHED_SINCE else SHED_MORE)


def is_of_windows(seed: int) -> bool:
    """If rows are left out, windows stay whole."""
    return Random(f"windows of seed {seed}").random() < WHOLE


def is_of_sessions(seed: int) -> bool:
    """If windows stay whole, they are sessions, and so it is keys that do."""
    return Random(f"sessions of seed {seed}").random() < OF_SESSIONS


def is_of_joins(seed: int) -> bool:
    """If windows stay whole, and are no sessions, it is keys before a join that do."""
    return Random(f"joins of seed {seed}").random() < OF_JOINS


def is_view(seed: int) -> bool:
    """Its rows are results that change, in a box above another one."""
    return Random(f"views of seed {seed}").random() < VIEWED


def is_asked(seed: int) -> bool:
    """Some of its boxes answer otherwise each time they are asked."""
    return Random(f"answers of seed {seed}").random() < ASKED


def is_thinned(seed: int) -> bool:
    """If rows are left out, and not by windows, plans do it."""
    return is_shed(seed) and not is_of_windows(seed) and Random(f"plans of seed {seed}").random() < PLANNED


def draw_overload(random: Random, *, behind: bool = False) -> dict[str, Any]:
    """What makes a source of `shed_cases` too fast, most of the times, and always where a site is slow. behind: for what comes after it."""
    free = ("ingress", "egress") if behind else ("egress", "inner")
    return {"row_us": random.choice([200.0, 600.0, 2_000.0] if behind else [20.0, 200.0, 600.0]), "free": frozenset(free)}


def draw_shedding(seed: int) -> str:
    """The option of that name, of a seed that leaves rows out."""
    return Random(f"way of seed {seed}").choice(["lp", "lp", "fit"]) if is_thinned(seed) else "reflex"


def draw_planned(random: Random, balance: dict[str, Any]) -> dict[str, Any]:
    """Arguments of SimWorld where plans leave rows out: rounds are short."""
    return {"parameters": Parameters(delta_min_us=random.choice([5_000, 20_000, 50_000]))} | balance


def draw(seed: int, *, modes: bool = True) -> Drawn:
    """modes: some have boxes with modes of availability; else the seed is what it was before there were any."""
    random = Random(seed)
    name, case = draw_case(random)
    begins_again = modes and is_based(seed)
    if modes and is_moded(seed):
        located = draw_store(Random(f"journal of seed {seed}")) is not None
        rows = Random(f"rows of seed {seed}")
        if is_remoded(seed):
            name, case = "modes", remoded(rows, located=located)
        else:
            name, case = "modes", mixed(rows, 300) if located and is_mixed(seed) else moded(rows, 120, among(located=located))
    elif begins_again:
        name, case = "modes", based(seed)
    elif is_kept(seed):
        name, case = "kept", kept(Random(f"rows of seed {seed}"), 120)
    elif is_shed(seed):
        whole = shed_sessions if is_of_sessions(seed) else shed_joins if is_of_joins(seed) else shed_windows
        made = whole if is_of_windows(seed) else thinned if is_thinned(seed) else shed
        name, case = "shed", made(Random(f"rows of seed {seed}"))
    elif is_view(seed):
        name, case = "views", views(Random(f"rows of seed {seed}"), 60)
    elif is_asked(seed):
        name, case = "asked", asked(Random(f"rows of seed {seed}"), 100, remoded=modes and seed >= REMODED_SINCE)
    elif name in PUSHED and is_spooled(seed):
        name, case = "spooled", spooled(Random(f"rows of seed {seed}"), 120)
    replicas = random.choice([2, 2, 2, 3] if name in PUSHED else [1, 2, 2, 2, 2, 2, 3, 3])  # What one site has staged is lost with it.
    if name == "modes":
        replicas = max(replicas, 2)
    sites = random.randint(max(replicas, 2 if replicas > 1 else 1), 6)
    spares = random.choice([0, 0, 1, 2]) if replicas > 1 else 0
    balance, planned_to_shed = draw_balance(Random(f"balance of seed {seed}")), name == "shed" and is_thinned(seed)
    partitions, most = random.choice([1, 3, 16, 40]), Random(f"partitions of seed {seed}").choice([1, 1, 2, 5])
    doomed = replicas > 1 and random.random() < 0.06 and name != "modes"  # What is lost for good there depends on the mode.
    held = not doomed and random.random() < 0.7
    ending = draw_ending(Random(f"ending of seed {seed}"), held=held, doomed=doomed)
    if begins_again:
        sites, partitions = min(max(sites, 3), 4), 3
    if ending == "last_epoch":
        sites, partitions = 6, 1  # Some sites have a source and nothing that reads one.
    cuts = is_cut(seed, moded=name == "modes") and name not in ("kept", "shed", "asked")
    cut = by_content(case.flow.network, Random(f"widths of seed {seed}")) if cuts else None
    if cut is not None:  # Sources that are held hold plans back, too, and the last rows are taken in when the source has ended.
        held, ending = False, draw_ending(Random(f"ending of seed {seed}"), held=False, doomed=doomed)
    planned = layout(cut or case.flow.network, sites=sites, partitions=partitions, max_partitions=min(partitions * most, PARTITIONS))
    journal = Random(f"journal of seed {seed}")
    store = draw_store(journal) if name != "asked" and not begins_again else None
    if store is not None:
        planned = publishing(planned, journal)
    # What waits at a site for such a reader, amnesia would lose and an image has not: the engine refuses both there.
    reads = (name != "modes" or store is not None) and Random(f"reader of seed {seed}").random() < 0.15
    repeats = cut is None and not reads and all(source.repeats and not source.pushed for source in planned.sources.values())
    store = draw_durability(seed, name, store, repeats=repeats)
    if not reads and name != "modes":
        planned = unordered(planned, Random(f"first come of seed {seed}"))
    patience = ALONE if replicas == 1 else random.choice([QUICK, QUICK, SLOW])
    quick = patience is QUICK
    mix = draw_mix(random, replicas, quick)
    if begins_again:
        patience, quick = QUICK, True
        mix = deaths(Random(f"faults beside deaths of seed {seed}"), mix, seed)
    memory, disk = draw_memory(Random(f"budget of seed {seed}"))
    drops = random.choice([0, 0, 5_000, 50_000]) if mix.kinds else 0
    world: dict[str, Any] = {
        "layout": planned,
        "sites": sites,
        "replicas": replicas,
        "spares": spares,
        "placement": random.choice(["mirrored", "chained"]),
        "first_placement": "start" if Random(f"first place of seed {seed}").random() < BEGUN else "home",
        "seed": seed,
        "options": FlowOptions(
            linger_ms=random.choice([0.5, 5.0]),
            pipeline=random.choice([1, 2, 4]),
            window_epochs=random.choice([4, 16, 64]),
            epoch_rows=random.choice([7, 50, 300, 131_072]),
            heartbeat_ms=random.choice([20.0, 100.0, 1000.0]),
            ack_ms=random.choice([1.0, 10.0]),
            memory_bytes=random.choice([1, 2**28, 2**28]),
            piece_bytes=Random(f"pieces of seed {seed}").choice([1, 1_000, 2**18]),
            user_timeout_s=6.0 if doomed else None,
            shedding=draw_shedding(seed) if name == "shed" else "off",
            journal_ms=journal.choice([0, 1.0, 5.0]),
            **memory,
        ),
        "link": LinkModel(
            (10, random.choice([50, 500, 3_000])),
            drops,
            random.choice([500, 2_000] if quick else [500, 20_000]),
            random.choice([0.5, 10.0, 1000.0]),
            (0, random.choice([100, 5_000, 50_000])),
        ),
        "cost": CostModel(
            slow=tuple(random.choice([1.0, 1.0, 10.0]) for _ in range(sites)),
            **(draw_overload(Random(f"overload of seed {seed}"), behind=planned_to_shed) if name == "shed" else {}),
        ),
        "sink": SinkModel((20, random.choice([100, 2_000, 20_000])), reads=reads),
        "detection": DetectionModel(patience=patience, removed_us=(5_000, 60_000)),
        "disk": disk,
        "read_rows": random.choice([10, 50, 400]),
        "read_every_us": random.choice([(50, 1_000), (1_000, 10_000), (5_000, 30_000)]),
        "patience_ms": Random(f"patience of seed {seed}").choice([0.0, 0.0, 50.0]),
        "pause_ms": Random(f"pauses of seed {seed}").choice([1.0, 10.0, 250.0]),
        "settle_ms": Random(~seed).choice([0.0, 0.0, 2.0, 20.0]),
        "start_us": (0, Random(f"start of seed {seed}").choice([0, 0, 0, 5_000, 50_000])),
        **(draw_planned(Random(f"rounds of seed {seed}"), balance) if planned_to_shed else balance),
    }
    if case.deadly and is_alone(seed):
        world.pop("policy", None)
        mix = replace(mix, until_us=Random(f"time of seed {seed}").choice([150_000, 400_000]))
    if begins_again or (case.deadly and is_alone(seed)):
        world |= lasting(Random(f"epochs of seed {seed}"), world)
    return Drawn(seed, name, case, world, mix, doomed, held, ending, draw_fates(Random(f"transfers of seed {seed}")), store)


def draw_fates(random: Random) -> list[Fate]:
    """In some runs copies fail over and over until the faults are over, nearly all of them or every other one."""
    if random.random() >= 0.15:
        return []
    whole = random.choice([0, 1, 4])
    return random.choices(["whole", "corrupt", "lost"], [whole, 1, 1], k=200)


def draw_mix(random: Random, replicas: int, quick: bool) -> Mix:
    """Few kinds of faults at a time, so that some runs are full of one."""
    if random.random() < 0.08:
        return Mix()
    kinds: dict[str, int] = {}
    if replicas == 1:
        kinds = dict(HARMLESS)
    else:
        for group, chance in ((DEATHS, 0.75), (HANGS, 0.4), (CUTS, 0.5), (DRIVER, 0.5)):
            if random.random() < chance:
                kinds |= group
    return Mix(
        kinds,
        every_us=random.choice([5_000, 30_000, 100_000]),
        until_us=random.choice([30_000, 150_000, 400_000]),
        replaced=random.choice([0.0, 0.7, 1.0]),
        moments=random.choice([0.0, 0.2, 0.5]),
        longest_us=BRIEF_US if quick else 600_000,
    )
