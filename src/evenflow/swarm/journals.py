"""The journal of a run: what its store is like, and what goes wrong with it. It is slow, refuses everything for a while, loses answers,
shows parts of objects; and another driver may take the location over.

Random numbers are of its own, so that a seed has the same faults otherwise, whatever is drawn here.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from evenflow.plan.layout import Layout
from evenflow.swarm.recurring import Recurring
from evenflow.world.sim.model import StoreModel
from evenflow.world.sim.world import SimWorld

OFTEN_US: Final = (5_000, 30_000)


def draw_store(random: Random) -> StoreModel | None:
    """What the journal is on; None: the run has none."""
    if random.random() < 0.55:
        return None
    slowest = random.choice([500, 3_000, 40_000])
    return StoreModel((100, slowest), random.choice([0.0, 0.0, 0.1, 0.4]), random.choice([1_000, 50_000]), random.choice([0.0, 0.3]))


def publishing(layout: Layout, random: Random) -> Layout:
    """The same dataflow, of which some segment counts as one that leaves something outside, as those do that write files: it waits for the
    journal, wherever it is."""
    able = [segment.id for segment in layout.segments if segment.kind != "ingress"]
    chosen = {segment for segment in able if random.random() < 0.25}
    return replace(layout, segments=tuple(replace(s, publishes=s.id in chosen) for s in layout.segments))


class Journals(Recurring):
    """What happens to the store while faults may; and in some runs another driver takes the location over."""

    def __init__(self, world: SimWorld, random: Random, until_us: int) -> None:
        every_us = random.choice(OFTEN_US)
        super().__init__(world, random, until_us, every_us if world.store is not None and random.random() < 0.6 else None)
        if world.store is not None and random.random() < 0.12:
            world.clock.after(random.randint(1, 2 * until_us), self._take_over)

    def end(self) -> None:
        """The store does what it is asked."""
        super().end()
        store = self.world.store
        if store is not None:
            store.refuses, store.slow = False, 1.0
            store.model = replace(store.model, lost=0.0, torn=0.0)

    def strike(self) -> None:
        store, random = self.world.store, self._random
        assert store is not None
        if random.random() < 0.5:
            store.refuses = not store.refuses
        else:
            store.slow = random.choice([1.0, 10.0, 50.0])

    def _take_over(self) -> None:
        """What a driver does that begins while this one is away, as it believes."""
        store = self.world.store
        assert store is not None
        standing = store.standing()
        if not self.world.ended and standing.ended is None:
            assert standing.begun is not None
            store.begin(standing.begun, "nonce of another driver")
