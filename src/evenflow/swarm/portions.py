"""Sinks that take first come, first served (O1): which seeds have them, and what must hold of the portions that they are given.

Whole epochs are looked at as everywhere: here it is what goes out before an epoch is whole. Raises AssertionError with one sentence.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

import numpy as np

from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent
from evenflow.exchange.portion import Portion, rows_of, without_producer
from evenflow.kernels.digest import add_digests
from evenflow.plan.layout import Layout
from evenflow.site.events import Release
from evenflow.site.hosted import Work
from evenflow.site.outcome import Outcome
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld

UNORDERED: Final = 0.25
"""So many seeds have sinks that take first come, first served."""


def unordered(layout: Layout, random: Random) -> Layout:
    """Perhaps some sinks of the driver's take first come, first served."""
    if random.random() >= UNORDERED:
        return layout
    segments = [replace(s, unordered=random.random() < 0.7) if s.sink is not None else s for s in layout.segments]
    return replace(layout, segments=tuple(segments))


class PortionCheckers(Observer):
    """_digests: of what a partition put on a stream to a sink in an epoch, as it came first, and from where. _newest: by segment, stream
    and partition, the last epoch of which the driver took rows. _rows: by segment and epoch, how many. _made: how many there are.
    _stored: as _newest, of a sink. first_us: by segment and epoch, when rows of it were taken first.
    ahead_us: of each epoch that is whole, how long before that some of its rows were taken. _live: sites with a replica of a sink
    that counts, or has counted: what it finished before it heard that it has moved is as right as ever."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self._digests: dict[tuple[int, int, int, int], tuple[int, int]] = {}
        self._newest: dict[tuple[int, int, int], int] = {}
        self._rows: dict[tuple[int, int], int] = {}
        self._made: dict[tuple[int, int], int] = {}
        self._stored: dict[tuple[str, int, int], int] = {}
        self.first_us: dict[tuple[int, int], int] = {}
        self.ahead_us: list[int] = []
        self._unordered = [segment.id for segment in world.layout.segments if segment.unordered]
        self._live: set[tuple[int, int]] = set()
        self._note_live()
        world.observers = (*world.observers, self)

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        if self._unordered:
            self._note_live()

    def _note_live(self) -> None:
        machine = self.world.coordinator
        for segment in self._unordered:
            self._live.update((site, segment) for site in machine.membership.live(machine.plan, segment, 0))

    def worked(self, site: SimSite, work: Work, outcome: Outcome) -> None:
        segment, epoch = work.hosted.segment, work.tick.epoch
        if segment.unordered and outcome.released is not None:
            self._made[segment.id, epoch] = max(self._made.get((segment.id, epoch), 0), outcome.released.num_rows)

    def portion_came(self, site: int, release: Release, fresh: tuple[int, ...]) -> None:
        """Each partition's epochs come in order and are taken once, whichever replica is faster, and all replicas' are the same rows."""
        portion = release.portion
        assert isinstance(portion, Portion), f"a portion of epoch {release.epoch} says not of whom it is"
        if site not in self.world.driver.present:
            assert not fresh, f"a portion of the dead site {site} was taken"
            return
        assert (site, release.segment) in self._live, f"site {site} releases a portion of {release.epoch}, and its replica is not live (C3)"
        for producer in portion.producers:
            rows, digest = without_producer(rows_of(release.batch, (producer,))), np.zeros(1, np.uint64)
            if rows.num_rows:
                add_digests(rows, np.zeros(rows.num_rows, np.int32), digest)
            key = release.segment, portion.stream, producer
            first = self._digests.setdefault((*key, release.epoch), (site, int(digest[0])))
            assert first[1] == int(digest[0]), (
                f"sites {first[0]} and {site} release different rows of partition {producer} for epoch {release.epoch}"
            )
            if producer not in fresh:
                continue
            before = self._newest.get(key, 0)
            assert release.epoch > before, f"epoch {release.epoch} of partition {producer} was taken after {before}"
            self._newest[key] = release.epoch
            count = release.segment, release.epoch
            self._rows[count] = self._rows.get(count, 0) + rows.num_rows
        self.first_us.setdefault((release.segment, release.epoch), self.world.clock.now_us)

    def release_came(self, site: int, release: Release, accepted: bool) -> None:
        """An epoch is whole when all rows that there are have come."""
        if accepted and self.world.layout.segments[release.segment].unordered:
            key = release.segment, release.epoch
            came, made = self._rows.get(key, 0), self._made.get(key, 0)
            assert came == made, f"epoch {release.epoch} of segment {release.segment} is said to be whole with {came} of {made} rows"
            assert release.batch.num_rows == 0, f"epoch {release.epoch} has rows twice"
            self.ahead_us.append(self.world.clock.now_us - self.first_us.get(key, self.world.clock.now_us))

    def portion_stored(self, release: Release, stored: tuple[int, ...]) -> None:
        """A sink is given each partition's epochs in order."""
        assert release.portion is not None
        for producer in stored:
            key = release.sink, release.portion.stream, producer
            before = self._stored.get(key, 0)
            assert release.epoch > before, f"sink {release.sink} got epoch {release.epoch} of partition {producer} after {before}"
            self._stored[key] = release.epoch

    def committed(self, release: Release) -> None:
        """A sink is told to have an epoch when it has all of its rows. What it had of one whose rows were lost with a generation, as nobody
        keeps them, is not made again."""
        again = self.world.lasting.unkept and release.epoch <= self.world.coordinator.beginning.durable
        if self.world.layout.segments[release.segment].unordered and not again:
            made = self._made.get((release.segment, release.epoch), 0)
            assert release.batch.num_rows == made, (
                f"sink {release.sink} has {release.batch.num_rows} of {made} rows of epoch {release.epoch}, which is committed"
            )
