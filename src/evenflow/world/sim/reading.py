"""A simulated sink that reads by itself, as Spark's streaming queries do: a batch is said to be stored when the next is planned (O2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenflow.site.events import Release, SinkTook

if TYPE_CHECKING:
    from evenflow.world.sim.world import SimWorld


class ReadingSink:
    """The reader of one egress segment. Sites that host the segment later hear at the next poll what has been planned."""

    def __init__(self, world: SimWorld, segment: int) -> None:
        self._world, self._segment = world, segment
        self._there: list[Release] = []
        self._planned = self._stored = self._committed = 0
        self._ended = False
        self._heard: dict[int, int] = {}
        self._poll()

    def take(self, release: Release) -> None:
        """An epoch may be read from now on."""
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
            if self._there:
                batch, self._there = self._there, []
                self._planned = batch[-1].epoch
                world.clock.after(world.random.randint(*world.sink.delay_us), lambda: self._store(batch))
        for host in world.driver.hosts(self._segment):
            if self._heard.get(host, 0) < self._planned:
                self._heard[host] = self._planned
                world.driver.tell(host, SinkTook(self._segment, self._planned))

    def _store(self, batch: list[Release]) -> None:
        for release in batch:
            self._world.driver.store(release)
        self._stored, self._ended = batch[-1].epoch, batch[-1].last
