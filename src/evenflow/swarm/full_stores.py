"""The store of a journal has no room for a while: for anything, or for what one step writes. Nothing is lost by it, a person hears
of it, and it is asked ever more seldom; what is half there is believed by nobody (`StateCheckers`, `CollectionCheckers`).

Random numbers are of its own, so that a seed has the same faults otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from evenflow.availability.entries import JOURNAL, snapshot_name
from evenflow.availability.retained import CHECKPOINTS, folder_of
from evenflow.coordinator.appending import TROUBLE_MS
from evenflow.coordinator.events import Kind
from evenflow.coordinator.journal import RETRY_MS
from evenflow.exchange.section import ROWS
from evenflow.swarm.recurring import Recurring
from evenflow.world.sim.store import has_room
from evenflow.world.sim.world import SimWorld

Full = Callable[[str, bytes], bool]
SNAPSHOT: Final = "." + snapshot_name(0).partition(".")[2]
FULL: Final = 0.3
"""So many runs that have a journal meet a full store."""
OFTEN_US: Final = (5_000, 30_000, 120_000)


def is_entry(name: str, data: bytes) -> bool:
    return name.startswith(JOURNAL) and not name.endswith(SNAPSHOT)


STEPS: Final[Mapping[str, Full]] = {
    "any": lambda name, data: True,
    "an entry": is_entry,
    "the entry of a whole checkpoint": lambda name, data: is_entry(name, data) and b'"completed"' in data,
    "a snapshot of the journal": lambda name, data: name.endswith(SNAPSHOT),
    "an object of state": lambda name, data: name.startswith(CHECKPOINTS),
    "an object with rows": lambda name, data: name.startswith(ROWS),
}
"""What there is no room for."""


def of_site(site: int) -> Full:
    """Only one site has none, for the state that it writes."""
    return lambda name, data: name.startswith(CHECKPOINTS) and name.split("-")[2][:4] == f"{site:04d}"


class FullStores(Recurring):
    """See the module."""

    def __init__(self, world: SimWorld, random: Random, until_us: int) -> None:
        every_us = random.choice(OFTEN_US)
        super().__init__(world, random, until_us, every_us if world.store is not None and random.random() < FULL else None)
        self._since = 0 if world.store is None else len(world.store.refused)

    def strike(self) -> None:
        store, random = self.world.store, self._random
        assert store is not None
        if store.full is not has_room:
            store.full = has_room
        elif random.random() < 0.4:
            store.full = of_site(random.randrange(len(self.world.sites)))
        else:
            store.full = random.choice(list(STEPS.values()))

    def end(self) -> None:
        """There is room again. Raises AssertionError if a person was told nothing, or the store was asked as if in a loop."""
        super().end()
        store = self.world.store
        if store is None:
            return
        store.full = has_room
        refused, happened = store.refused[self._since :], {said.kind for _, said in self.world.happened}
        tries: dict[str, list[int]] = {}
        for name, at_us in refused:
            tries.setdefault(name, []).append(at_us)
        for name, times in tries.items():
            if not is_entry(name, b""):
                continue
            pauses = [min(RETRY_MS[1], RETRY_MS[0] * 2.0**number) for number in range(len(times))]
            assert times[-1] - times[0] >= 1000 * sum(pauses[:-1]), f"a full store is asked for {name} at {times}"
            told = Kind.JOURNAL_WAITS in happened or self.world.driver.paused or self.world.driver.dead
            assert told or max(pauses[:-1], default=0) < TROUBLE_MS, (
                f"the store had no room for {name} {len(times)} times, and nobody was told"
            )
        self._judge_checkpoints({name for name in tries if name.startswith(CHECKPOINTS)})

    def _judge_checkpoints(self, refused: set[str]) -> None:
        """None is whole that lacks an object."""
        journal, store = self.world.coordinator.journal, self.world.store
        if journal is None or store is None:
            return
        for made in self.world.coordinator.checkpointing.retained:
            of = folder_of(*made.place)
            lacking = [name for name in refused if name.startswith(f"{of}/") and name in {each.name for each in made.objects}]
            lacking = [name for name in lacking if name not in store.objects]
            assert not lacking, f"checkpoint {made.name} is whole, and there was no room for {lacking}"
