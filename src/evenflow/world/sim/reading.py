"""A simulated sink that reads by itself, as Spark's streaming queries do: a batch is said to be stored when the next is planned (O2)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from evenflow.plan.layout import Layout
from evenflow.sinks.callback import SparkSink
from evenflow.site.events import Release, SinkTook

if TYPE_CHECKING:
    from evenflow.world.sim.world import SimWorld


AGAIN_US: Final = 2_000
"""So much later rows are asked for again that no site has."""


def read_by_spark(layout: Layout) -> Layout:
    """The same dataflow, whose sinks' epochs are the offsets of Spark's queries: sites keep them, those without rows, too."""
    return replace(layout, sinks=dict.fromkeys(layout.sinks, SparkSink()))


class ReadingSink:
    """The reader of one egress segment. Sites that host the segment later hear at the next poll what has been planned.

    Epochs wait at the sites that have released them until they are said to be stored. What a batch has planned is read from whichever site
    has it then, and waited for where none has.
    """

    def __init__(self, world: SimWorld, segment: int) -> None:
        self._world, self._segment = world, segment
        self._there: list[Release] = []
        self._planned = self._stored = self._committed = 0
        self._newest = world.driver.machine.beginning.epoch
        self._ended = False
        self._heard: dict[int, int] = {}
        self._held: dict[int, dict[int, Release]] = {}
        self._poll()

    def hold(self, site: int, release: Release) -> None:
        """A site has finished an epoch, and keeps it."""
        if release.epoch > self._committed:
            self._held.setdefault(release.epoch, {})[site] = release

    def take(self, release: Release) -> None:
        """An epoch may be read from now on. Raises AssertionError if one before it never came: they are the offsets of Spark's query."""
        assert release.epoch == self._newest + 1, f"a reader is given epoch {release.epoch} after {self._newest}"
        self._newest = release.epoch
        self._there.append(release)

    def _poll(self) -> None:
        if self._world.ended or self._world.driver.dead:
            return
        self._world.driver.soon(self._look)
        self._world.clock.after(self._world.sink.poll_us, self._poll)

    def _look(self) -> None:
        """Plan a batch of all that is there, when the one before is stored, which is said now."""
        world = self._world
        if self._planned == self._stored and (self._there or self._ended) and world.sink_blocked_until_us <= world.clock.now_us:
            if self._stored > self._committed:
                self._committed = self._stored
                world.driver.say_committed(self._segment, self._committed)
                for epoch in [epoch for epoch in self._held if epoch <= self._committed]:
                    del self._held[epoch]
            if self._there:
                batch, self._there = self._there, []
                self._planned = batch[-1].epoch
                world.clock.after(world.random.randint(*world.sink.delay_us), lambda: self._store(batch))
        for host in world.driver.hosts(self._segment):
            if self._heard.get(host, 0) < self._planned:
                self._heard[host] = self._planned
                world.driver.tell(host, SinkTook(self._segment, self._planned))

    def _store(self, batch: list[Release]) -> None:
        for at, release in enumerate(batch):
            found = self._kept(release.epoch)
            if found is None:
                self._world.clock.after(AGAIN_US, lambda left=batch[at:]: self._store(left))  # type: ignore[misc]
                return
            self._world.driver.store(found)
        self._stored, self._ended = batch[-1].epoch, batch[-1].last

    def _kept(self, epoch: int) -> Release | None:
        """An epoch, if a site that lives has it."""
        sites = self._world.sites
        return next((release for site, release in sorted(self._held.get(epoch, {}).items()) if sites[site].alive), None)
