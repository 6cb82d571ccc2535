"""Coincidences: two things that go wrong at once or shortly after each other, which faults that are drawn one by one hardly ever meet.

Each is survived by what the protocol says, not by chance: no site that a partition needs is declared dead while it speaks (V4), a move ends
with one replica or with both (C3), and what is said late is of a talk that is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from random import Random
from typing import Final

from evenflow.site.peers import APART_BEATS
from evenflow.swarm.faults import LOOK_US, LOOKS, Faults
from evenflow.swarm.recurring import Recurring
from evenflow.world.sim.world import SimWorld

OFTEN_US: Final = (5_000, 20_000, 100_000)
MET: Final = 0.2
"""So many runs with faults and replicas have them."""
KINDS: Final = ("die_beside_cut", "die_unconfirmed", "cut_middle", "word_comes_late")
BLINKS: Final = ("blink",)
"""Drawn beside the others, so that a seed has the same ones otherwise."""


class Coincidences(Recurring):
    """They have random numbers of their own. faults: say who may be lost, and undo what lasts. kinds: names of methods."""

    def __init__(self, world: SimWorld, random: Random, until_us: int, faults: Faults, kinds: Sequence[str] = KINDS) -> None:
        self._faults, self._kinds = faults, kinds
        every_us = random.choice(OFTEN_US)
        able = bool(faults.mix.kinds) and faults.careful and world.detection.patience.votes
        super().__init__(world, random, until_us, every_us if able and random.random() < MET else None)

    def strike(self) -> None:
        kind = self._random.choice(self._kinds)
        if self.world.coordinator.running and getattr(self, kind)():
            self._faults.done[kind] = self._faults.done.get(kind, 0) + 1

    # ------------------------------------------------------------ a link and a death

    def die_beside_cut(self) -> bool:
        """A site dies while the only other one that has some of its partitions cannot talk with a third one: that is no second death."""
        able = [pair for pair in self._pairs() if self._calm() and len(self._faults.living()) > 2]
        if not able:
            return False
        victim, left = self._random.choice(able)
        third = self._random.choice([site for site in self._faults.living() if site not in (victim, left)])
        self._cut(self._random.choice([[(left, third)], [(third, left)], [(left, third), (third, left)]]), [left, third])
        self._later([0, 0, 2_000, 100_000], lambda: self._die(victim, [left, third]))
        return True

    def _pairs(self) -> list[tuple[int, int]]:
        """(a site, the only other one that has a replica of some of its partitions)."""
        world, found = self.world, set()
        for segment in world.layout.segments:
            for block in world.coordinator.view.blocks(segment.id):
                live = world.coordinator.view.live(block)
                found.update([(a, b) for a, b in product(live, live) if a != b and len(live) == 2])
        return sorted(found)

    def _die(self, victim: int, though: list[int]) -> None:
        if not self._off() and self._calm(though) and set(though) <= set(self._faults.living()):
            self._faults.lose(victim, though)

    def cut_middle(self) -> bool:
        """Half of the sites cannot talk with the other half. Whoever goes for that, nothing is lost with it."""
        living = self._faults.living()
        if len(living) < 3 or not self._calm():
            return False
        half = self._random.sample(living, len(living) // 2)
        wires = [(a, b) for a in half for b in living if b not in half]
        back = [(b, a) for a, b in wires]
        self._cut(self._random.choice([wires, back, wires + back]), living)
        return True

    def _cut(self, wires: list[tuple[int, int]], suspects: list[int]) -> None:
        length_us = self._faults.length()
        self._faults.risk(suspects, length_us)
        self.world.cut(*wires)
        self._faults.lasting(length_us, lambda: self.world.heal(*wires))

    def _calm(self, though: list[int] | None = None) -> bool:
        """Nothing is wrong with any site of the run, but with these."""
        known = though or []
        sites = self.world.coordinator.sites
        return set(self._faults.living()) == set(sites) and not any(self._faults.at_risk(site) for site in sites if site not in known)

    # ------------------------------------------------------------ a death, and a network that is away

    def blink(self) -> bool:
        """A site dies, and the only other one that has some of its partitions loses all its connections for a moment."""
        able = self._pairs() if self._calm() else []
        if not able:
            return False
        victim, left = self._random.choice(able)
        if not self._faults.lose(victim):
            return False
        self._await_noticed(victim, left, LOOKS)
        return True

    def _await_noticed(self, victim: int, left: int, tries: int) -> None:
        """Until the driver knows that something is wrong with the dead one. Before that, the other one is not the last."""
        if self._off() or not tries:
            return
        if self._noticed(victim):
            self._later([0, 0, 2_000, 20_000], lambda: self._away(victim, left))
        else:
            self.world.clock.after(self.world.detection.patience.beat_us // 50, lambda: self._await_noticed(victim, left, tries - 1))

    def _noticed(self, victim: int) -> bool:
        """A driver that pauses notices nothing, and afterwards grants every silence afresh."""
        driver, silent_us = self.world.driver, self.world.detection.patience.silent_us
        watched = driver.fleet.detector.sites.get(victim)
        gone = watched is None or watched.lost_us is not None or self.world.clock.now_us - watched.heard_us >= silent_us
        return gone and not driver.paused

    def _away(self, victim: int, site: int) -> None:
        """Shorter than the grace, by as much as the driver may be late without noticing."""
        world, faults, patience = self.world, self._faults, self.world.detection.patience
        able = not self._off() and self._noticed(victim) and site in faults.living() and not faults.at_risk(site)
        if not able or faults.may_lose((site,)):
            return
        away_us = self._random.randint(1, patience.grace_us - patience.late_us)
        faults.risk((site,), away_us)
        for peer in world.network.peers(site):
            world.drop_link(site, peer, away_us)
        world.drop_control(site, away_us / 1e6)

    # ------------------------------------------------------------ a move and a death

    def die_unconfirmed(self) -> bool:
        """The target of a move counts, and has not answered that it knows: it dies, or what it replaces, or where it came from."""
        role = self._random.choice(["target", "target", "replaces", "source"])
        self._await_unconfirmed(role, LOOKS)
        return True

    def _await_unconfirmed(self, role: str, tries: int) -> None:
        if self._off() or not tries:
            return
        moves = list(self.world.coordinator.moving.unconfirmed.values())
        if moves:
            site = getattr(self._random.choice(moves), role)
            self._later([0, 0, 500], lambda: None if self._off() else self._faults.lose(site))
        else:
            self.world.clock.after(LOOK_US, lambda: self._await_unconfirmed(role, tries - 1))

    # ------------------------------------------------------------ words by the driver

    def word_comes_late(self) -> bool:
        """What one site says to another by the driver waits there until the two have had a link again, and have lost it."""
        living, world, faults = self._faults.living(), self.world, self._faults
        if len(living) < 2 or not self._calm():
            return False
        speaker, hearer = self._random.sample(living, 2)
        if not faults.may_lose((speaker, hearer)):
            return False
        beat_us, wires = world.detection.patience.beat_us, ((speaker, hearer), (hearer, speaker))
        apart_us, linked_us, late_us = (self._random.randint(1, most) * beat_us for most in (4, 4, 2))
        found_us = APART_BEATS * beat_us + apart_us
        faults.risk((speaker, hearer), found_us + linked_us + late_us)
        world.drop_link(speaker, hearer)
        world.cut(*wires)
        faults.lasting(found_us, lambda: world.heal(*wires))
        world.cut_control(hearer, up=False)
        faults.lasting(found_us + linked_us + late_us, lambda: world.heal_control(hearer))
        world.clock.after(found_us + linked_us, lambda: None if self._off() else world.drop_link(speaker, hearer, 4 * beat_us))
        return True

    # ------------------------------------------------------------ when

    def _off(self) -> bool:
        return self.over or self.world.ended

    def _later(self, most_us: list[int], do: Callable[[], object]) -> None:
        self.world.clock.after(self._random.randint(0, self._random.choice(most_us)) + 1, lambda: (do(), None)[1])
