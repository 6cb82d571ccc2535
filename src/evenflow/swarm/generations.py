"""Runs that lose their driver, or everything, and go on where their journal stands: on other sites, with other replicas, by another clock.

Each generation has faults of its own until it is lost. The last one must converge, and what sinks then have must be right: `Lasting` sees
to it that no epoch was given to them twice in different ways, and `Checkers` that what was replayed came out as before, at every partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from evenflow.availability.retained import RETAINED, needed
from evenflow.coordinator.survival import Survival
from evenflow.errors import CheckpointCorrupt, EvenflowError, Fenced, LostBeforeStart, PartitionsLost, SourceError, UserCodeCrashed
from evenflow.swarm.balance_checkers import check_first
from evenflow.swarm.base_checkers import BaseCheckers
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.coincidences import BLINKS, Coincidences
from evenflow.swarm.damage import damage
from evenflow.swarm.divisions import Divisions, divide
from evenflow.swarm.draw import Drawn
from evenflow.swarm.faults import Faults
from evenflow.swarm.forgetting import Forgetting
from evenflow.swarm.full_stores import FullStores
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.swarm.journals import Journals
from evenflow.swarm.movements import Movements
from evenflow.swarm.portions import PortionCheckers
from evenflow.swarm.pushed_cases import PUSHED
from evenflow.swarm.recurring import Recurring
from evenflow.swarm.remoded_cases import is_alone
from evenflow.swarm.remodes import Remodes
from evenflow.swarm.replacements import Replacements
from evenflow.swarm.stale import Stale
from evenflow.swarm.standbys import StandsBy
from evenflow.swarm.state_checkers import StateCheckers
from evenflow.swarm.taken import all_taken
from evenflow.swarm.wishes import Wishes, ask_checkpoint
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.world import SimWorld

GENERATIONS_MAX: Final = 12
MADE_GOOD: Final = (PartitionsLost, Fenced, LostBeforeStart, CheckpointCorrupt)
"""Types of errors with which a run may end that has a journal: another driver goes on. The third is of a site lost before the start, the
last of an object that was damaged here: then an older checkpoint does."""
CALM: Final = 0.4
"""So often nothing goes wrong before a run is lost: else hardly a checkpoint becomes whole between moves and deaths."""
DAMAGED: Final = 0.3
"""So often an object of the newest checkpoint is lost or altered when a run is."""
STOOD_BY: Final = 0.4
"""So often a driver stands by."""
STOPPED: Final = 0.15
"""So often a person stops the first generation."""
DRAINED: Final = 0.15
"""So often a person drains the first generation, which is lost soon."""
DRAINED_SINCE: Final = 11_090_000
"""From this seed on."""
DRAINED_US: Final = (100, 1_000, 20_000)
"""For so long, at most, a drained generation goes on before it is lost."""
COLLECTED: Final = 0.3
"""So often it is waited until entries are collected, for `PATIENCE` times 20 ms: runs are short for so many checkpoints."""
PATIENCE: Final = 25
DIVIDED: Final = 0.5
"""So often partitions are divided meanwhile."""

Heal = Callable[[Drawn, SimWorld, Faults], None]


def losses(drawn: Drawn) -> int:
    """How often the run of a seed is lost as a whole. Rows that Spark has pushed cannot be replayed."""
    random = Random(f"generations of seed {drawn.seed}")
    able = drawn.store is not None and not drawn.doomed and drawn.name not in PUSHED
    drawn_often = able and (random.random() < 0.35 or drawn.name in ("kept", "modes"))  # Rows that are given once are for that.
    return random.choice([1, 1, 2, 3]) if drawn_often else 0


class Generations:
    """One seed's run over its generations. watch: is called with each one. struck: the faults of all of them."""

    def __init__(self, drawn: Drawn, watch: Callable[[SimWorld], None]) -> None:
        self._drawn, self._watch = drawn, watch
        self._random, self._chance = Random(f"losses of seed {drawn.seed}"), Random(f"survival of seed {drawn.seed}")
        self._checkers: Checkers | None = None
        self._journal: JournalCheckers | None = None
        self._damaged, self._survival = False, Survival()
        self._unsound = drawn.store is not None and bool(drawn.store.lost or drawn.store.torn)
        self._stale: list[Stale] = []
        self.struck: Counter[str] = Counter()
        given = {name: value for name, value in drawn.world.items() if name not in {"layout", "seed"}}
        checkpoint_s = Random(f"checkpoints of seed {drawn.seed}").choice([None, 0.001, 0.003, 0.01, 0.03])
        given["options"] = replace(given["options"], checkpoint_s=checkpoint_s)
        self.cluster = SimCluster(drawn.world["layout"], seed=drawn.seed, store=drawn.store, prepare=self._prepare, **given)
        drawn.hold(self.cluster.world)
        self._forgetting = Forgetting(self.cluster, Random(f"what sources forget of seed {drawn.seed}"))
        others = Random(f"who stands by of seed {drawn.seed}")
        self._standby = StandsBy(self.cluster, others) if others.random() < STOOD_BY else None
        self._stops = others.random() < STOPPED
        drains = Random(f"whether seed {drawn.seed} is drained")
        able = drawn.seed >= DRAINED_SINCE and drawn.case.cut and drawn.name not in ("kept", "modes", "spooled")
        able = able and drawn.store is not None and drawn.store.cuts  # Else what comes behind the last checkpoint comes again.
        self._drains = drains if able and drains.random() < DRAINED else None
        self._waits = checkpoint_s is not None and (others.random() < COLLECTED or drawn.name == "kept")

    def _prepare(self, world: SimWorld) -> None:
        self._watch(world)
        self._drawn.case.watch(world)
        self._checkers = Checkers(world, None if world.lasting.unkept else self._checkers)
        PortionCheckers(world)
        self._journal = JournalCheckers(world)
        StateCheckers(world, sound=not self._unsound)
        BaseCheckers(world)

    def play(self, count: int, heal: Heal) -> str | None:
        """What is wrong, or None. count: how often the run is lost."""
        drawn = self._drawn
        for generation in range(count):
            if self._go_on(generation) or (self._waits and self._collects()):
                return self._judge()
            world = self.cluster.world
            if self._stops and not world.ended and generation == 0:
                drawn = self._stop(drawn)
                if self.cluster.over:
                    return self._judge()
                continue
            if self._drains is not None and not world.ended and generation == 0 and self._drain(self._drains):
                return self._judge()
            if world.error is not None and not self._goes_on(world.error):
                return self._judge_error(world.error)
            if self._chance.random() < 0.5 and self._survival.survives(world.error, world.driver.machine.kept):
                self._in_place(drawn)
                if self.cluster.over:
                    return self._judge()
                continue
            if world.ended or self._random.random() < 0.5:
                self.cluster.lose_all()
            else:
                self.cluster.kill_driver()
            drawn = self._elsewhere(drawn)
            if self.cluster.over:
                return self._judge()
        if self._standby is not None:
            self._standby.end()
        self._go_on(count, lambda world, faults: heal(drawn, world, faults))
        self._to_the_end()
        while not self.cluster.over and self._goes_on(error := self.cluster.world.error) and len(self.cluster.worlds) < GENERATIONS_MAX:
            if type(error) is CheckpointCorrupt and not (self._damaged or self._unsound or self.cluster.store.has_refused):
                break
            if self._survival.survives(error, self.cluster.world.driver.machine.kept):
                self._in_place(drawn)
            else:
                self.cluster.lose_all()
                self._elsewhere(drawn, stood_by=False)  # Nobody stands by any more.
            self._to_the_end()
        return self._judge()

    def _collects(self) -> bool:
        """Until entries of the journal were collected, in this generation, partitions are divided once at the most, so that the oldest
        checkpoint that is kept is not of the first plan; nothing else happens. True if the run has ended well."""
        world, store = self.cluster.world, self.cluster.store
        random = Random(f"divided before generation {store.generations} of seed {self._drawn.seed} collects")
        if random.random() < DIVIDED:
            world.driver.soon(lambda: divide(world, random))
        before = store.standing().collected
        for _ in range(PATIENCE):
            if world.ended or store.standing().collected > before:
                break
            world.run_for(0.02)
        return world.ended and world.error is None

    def _stop(self, drawn: Drawn) -> Drawn:
        """A person stops the run, and starts it again later."""
        world = self.cluster.world
        world.stop(drain=False)
        world.run_until(lambda: world.ended, drawn.converge_s(world), "a run to stop")
        if self._standby is not None and self.cluster.store.standing().stopped:
            self._standby.leaves_alone()
        self.cluster.lose_all()
        self.struck["stopped"] += 1
        return self._elsewhere(drawn, stood_by=False)

    def _drain(self, random: Random) -> bool:
        """A person drains the run; the others go on a little. True if it has ended well by that."""
        world = self.cluster.world
        world.stop(drain=True)
        world.run_for(random.randint(0, random.choice(DRAINED_US)) / 1e6)
        self.struck["drained"] += 1
        return world.ended and world.error is None

    def _to_the_end(self) -> None:
        """Nothing happens to this generation any more."""
        world = self.cluster.world
        world.quotas.clear()
        world.sources_may_end = True
        world.run_until(lambda: world.ended, self._drawn.converge_s(world), "the last generation to end")

    def _elsewhere(self, drawn: Drawn, *, stood_by: bool = True) -> Drawn:
        """Another driver goes on, with what it has, or without a checkpoint that its sites could not read. stood_by: by itself, if one
        stands by."""
        random, machine = self._random, self.cluster.world.driver.machine
        if self.cluster.world.error is None and machine.journal is not None and not machine.journal.leaving:
            self._stale.append(Stale(machine.journal, self.cluster.store))
        self._forgetting.give_back(self.cluster.world.error)
        if isinstance(self.cluster.world.error, CheckpointCorrupt):
            self.cluster.pass_over()
        elif random.random() < DAMAGED:
            self._damage()
        replicas = drawn.world["replicas"] if drawn.world["replicas"] == 1 else random.choice([2, 2, 3])
        changed = {"replicas": replicas, "sites": random.randint(max(replicas, 2), 6), "spares": 0}
        if stood_by and self._standby is not None and not self.cluster.over and not isinstance(self.cluster.world.error, Fenced):
            self._standby.takes_over()
            self.struck["stood by"] += 1
        self.cluster.restart(dark_us=random.randint(0, 100_000), ahead_us=random.choice([0, 0, 5_000_000, -500_000]), **changed)
        self._forget()
        return replace(drawn, world={**drawn.world, **changed})

    def _in_place(self, drawn: Drawn) -> None:
        """The same driver goes on by itself, on the sites that are left or as many as come (K14)."""
        world = self.cluster.world
        left = sum(site.alive for site in world.sites)
        replicas = drawn.world["replicas"]
        self.cluster.go_on_in_place(replicas=replicas, sites=max(left, replicas), spares=0)
        self._forget()

    def _forget(self) -> None:
        if not self.cluster.over:
            self._forgetting.strike()
            self.struck["forgot"] = self._forgetting.times
            self.struck["forgotten"] = self._forgetting.met

    def _damage(self) -> None:
        """An object of the newest checkpoint is gone, or is not what was written. Where entries were collected, another one stays whole:
        else nobody could go on."""
        store, random = self.cluster.store, self._random
        standing = store.standing()
        names = sorted(stored.name for newest in standing.checkpoints[-1:] for stored in newest.objects)
        if standing.collected or store.swept or len(standing.checkpoints) >= RETAINED:  # Who collects may be at it.
            others = [needed([made]) for made in standing.checkpoints[:-1] if made.epoch >= store.swept and store.is_whole(made)]
            names = [name for name in names if not all(name in other for other in others)]
        if names:
            self._damaged = True
            damage(store, names, random, self._drawn.seed)

    def _go_on(self, generation: int, heal: Callable[[SimWorld, Faults], None] | None = None) -> bool:
        """Let a generation run for a while, with faults that are over then. True if the run has ended well."""
        check_first(self.cluster.world)
        world, drawn = self.cluster.world, self._drawn
        until_us = self._random.randint(1, 2 * drawn.mix.until_us)
        named = f"of generation {generation} of seed {drawn.seed}"
        if heal is None and Random(f"calm {named}").random() < CALM:
            world.run_for(3 * until_us / 1e6)
            return world.ended and world.error is None
        faults = Faults(world, replace(drawn.mix, until_us=until_us), Random(f"faults {named}"), careful=True)
        alone = drawn.case.deadly and is_alone(drawn.seed)
        others: tuple[Recurring, ...] = (
            *(() if alone else (Movements(world, Random(f"moves {named}"), until_us),)),
            *(() if alone else (Divisions(world, Random(f"numbers {named}"), until_us),)),
            Journals(world, Random(f"journal {named}"), until_us),
            Coincidences(world, Random(f"coincidences {named}"), until_us, faults),
            Coincidences(world, Random(f"blinks {named}"), until_us, faults, BLINKS),
            Remodes(world, Random(f"modes {named}"), until_us, drawn.case, faults),
            *(() if alone else (Replacements(world, Random(f"versions {named}"), until_us),)),
            FullStores(world, Random(f"full stores {named}"), until_us),
        )
        Wishes(world, Random(f"who wishes {named}"), until_us)
        asked = Random(f"wishes {named}")
        for _ in range(asked.randint(0, 2)):
            world.clock.after(asked.randint(1, 2 * until_us), lambda: ask_checkpoint(world))
        world.run_for(until_us / 1e6)
        for each in others:
            each.end()
        faults.end()
        if heal is not None:
            heal(world, faults)
        self.struck.update(faults.done)
        return world.ended and world.error is None

    # ------------------------------------------------------------ the end

    def _goes_on(self, error: EvenflowError | None) -> bool:
        """Another driver goes on. Rows that nobody else has may look cut off at each of a few reads, in a store that shows parts."""
        return (
            type(error) in MADE_GOOD
            or self._forgetting.ends(error)
            or (self._unsound and isinstance(error, SourceError) and "give the object back" in str(error))
        )

    def _judge(self) -> str | None:
        for driver in self._stale:
            driver.wakes()
        world = self.cluster.world
        if world.error is not None and not (self.cluster.over and self._goes_on(world.error)):
            return self._judge_error(world.error)
        assert self._journal is not None
        case = self._drawn.cut(all_taken(world)) if self.cluster.store.standing().drained else self._drawn.case
        found = case.judge({sink: world.output(sink) for sink in world.released})
        return found or self._journal.judge(None, stopped=False)

    def _judge_error(self, error: EvenflowError) -> str | None:
        world = self.cluster.world
        if isinstance(error, UserCodeCrashed) or self._forgetting.ends(error):
            return self._drawn.case.judge_part({sink: world.output(sink) for sink in world.released})
        beyond = world.driver.machine.beginning.epoch < self.cluster.store.swept
        if self._unsound and beyond and isinstance(error, SourceError):  # No checkpoint that is kept could be read in such a store.
            return self._drawn.case.judge_part({sink: world.output(sink) for sink in world.released})
        return f"{type(error).__name__}: {error}"
