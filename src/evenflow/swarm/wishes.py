"""Somebody wants a checkpoint at the moments at which one is hardest: when the last has just been dropped, and a word about that one
is on its way, or when a copy has just become live, and its site has not joined the others (K1, K2, K6).

Random numbers are of its own, so that a seed has the same faults otherwise.
"""

from __future__ import annotations

from random import Random
from typing import Final

from evenflow.coordinator.events import CheckpointRequested, CoordinatorAction, CoordinatorEvent, Happened, Kind
from evenflow.site.events import Event, Written
from evenflow.swarm.full_stores import of_site
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.store import has_room
from evenflow.world.sim.world import SimWorld

WANTED: Final = 0.5
"""So many runs that have a journal have somebody who wants them then."""
MOMENTS: Final = (Kind.CHECKPOINT_DROPPED, Kind.COPY_LIVE, Kind.MOVE_DONE, Kind.REDUNDANCY)
SOON_US: Final = (1, 1, 200, 2_000)
MOST: Final = 30
HELD_UP: Final = 0.5
LATE: Final = 10
"""So many words are late, at most."""
BEATS: Final = 3
"""A site that its peers hear is not declared dead for a silence that is shorter than four beats."""


def ask_checkpoint(world: SimWorld) -> None:
    """Somebody wants one now."""
    if not world.ended:
        world.driver.soon(lambda: world.driver.coordinate(CheckpointRequested()))


class Wishes(Observer):
    """until_us: virtual time after which nobody wants any. In some runs that have them a site's word that it has stored its part is late:
    meanwhile another one finds no room for its own, the checkpoint is dropped, and the next is ordered."""

    def __init__(self, world: SimWorld, random: Random, until_us: int) -> None:
        self.world, self._random, self._left = world, random, MOST
        self._end_us = world.clock.now_us + until_us
        self._late = LATE if random.random() < HELD_UP else 0
        if world.store is not None and random.random() < WANTED:
            world.observers = (*world.observers, self)

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        if self._left and self.world.clock.now_us <= self._end_us:
            for action in actions:
                if isinstance(action, Happened) and action.kind in MOMENTS:
                    self._left -= 1
                    self.world.clock.after(self._random.choice(SOON_US), lambda: ask_checkpoint(self.world))
                    return

    # ------------------------------------------------------------ a late word

    def before_handled(self, site: SimSite, event: Event) -> None:
        world, found = self.world, self.world.coordinator.checkpointing.open
        if not (self._late and isinstance(event, Written) and found is not None and found.number == event.number):
            return
        others, store = sorted(found.owing - {site.index}), world.store
        if store is None or site.index not in found.owing or not others or world.clock.now_us > self._end_us or world.ended:
            return
        self._late -= 1
        line = world.driver.lines[site.index]
        if line.up.cut or line.down.cut or store.full is not has_room:
            return
        world.cut_control(site.index, down=False)
        store.full = full = of_site(self._random.choice(others))

        def room() -> None:
            if store.full is full:
                store.full = has_room

        world.clock.after(self._random.randint(1, BEATS * world.detection.patience.beat_us), lambda: world.heal_control(site.index))
        world.clock.after(BEATS * world.detection.patience.beat_us, room)
