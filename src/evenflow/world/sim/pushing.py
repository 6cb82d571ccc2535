"""Spark's tasks, and the site that takes what they push: what `ingest`, `pushing` and `guests` do on Spark, in virtual time (protocol I2).

A source's DataFrame is a list of batches here, a batch a list of tasks, a task a list of record batches. Batches come one after the other;
a batch is whole when each of its tasks has been answered. A task pushes its rows to whoever leads its ingress partition, and pushes them
again to the successor when that site is lost, leads no more, or says nothing for a while. What is staged, when a task is answered, and what
of its rows is in the log already, is decided by `site.staging`, as on Spark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from evenflow.plan.layout import Segment
from evenflow.site.staging import Attempt, PushedFeed
from evenflow.sources.then import awaited, followed

if TYPE_CHECKING:
    from evenflow.site.events import OpenSource
    from evenflow.world.sim.site import SimSite
    from evenflow.world.sim.world import SimWorld

LOOK_US: Final = 5_000
"""How often a task that waits for its answer asks who leads."""
PAUSE_US: Final = 2_000
TASK_US: Final = (100, 20_000)
"""Least and greatest time until a task has read its rows."""
HELD_BACK: Final = 0.6
"""As long as sources are held by quotas, batches beyond this part of all wait."""


class Pieces:
    """The encoded rows of an attempt, in memory."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = deque(pieces)

    def add(self, piece: bytes | memoryview) -> None:
        self._pieces.append(bytes(piece))

    @property
    def empty(self) -> bool:
        return not self._pieces

    def rewind(self) -> None: ...

    def take(self) -> bytes:
        return self._pieces.popleft()

    def close(self) -> None:
        self._pieces.clear()


@dataclass(slots=True)
class Pushing:
    """A source that Spark pushes. batch: under way, or to come. waiting: its tasks that have not been answered. told: (newest batch that is
    whole, whether the source has ended), as all sites are told."""

    name: str
    segment: Segment
    batches: list[list[list[pa.RecordBatch]]]
    batch: int = 0
    waiting: set[int] = field(default_factory=set)
    told: tuple[int, bool] = (-1, False)


class SimPushing:
    """The tasks of all sources of a run, and the driver's half of its ingest."""

    def __init__(self, world: SimWorld) -> None:
        self._world, self._random = world, Random(f"tasks of seed {world.seed}")
        self.sources: list[Pushing] = []
        for segment in world.layout.segments:
            name = segment.source or ""
            if segment.kind == "ingress" and world.layout.sources[name].pushed:
                self.sources.append(Pushing(name, segment, world.layout.sources[name].dataframe))
        for pushing in self.sources:
            self._next(pushing)

    def tell(self, site: int) -> None:
        """What a newcomer is told of all sources."""
        for pushing in self.sources:
            if pushing.told != (-1, False):
                self._tell(pushing, site)

    # ------------------------------------------------------------ batches

    def _next(self, pushing: Pushing) -> None:
        """Begin the next batch, if it may come yet; or say that there is none."""
        world = self._world
        if self._over():
            return
        first = awaited(world.layout.sources[pushing.name])
        if first is not None and not any(other.name == first and other.told[1] for other in self.sources):
            world.clock.after(PAUSE_US, lambda: self._next(pushing))
            return
        if pushing.batch == len(pushing.batches):
            if world.sources_may_end:
                self._whole(pushing, ended=True)
                return
        elif not world.quotas or pushing.batch < HELD_BACK * len(pushing.batches):
            tasks = pushing.batches[pushing.batch]
            pushing.waiting = set(range(len(tasks)))
            for task in pushing.waiting:
                world.clock.after(self._random.randint(*TASK_US), lambda t=task, b=pushing.batch: self._push(pushing, b, t))  # type: ignore[misc]
            if tasks:
                return
            self._whole(pushing, ended=False)
        world.clock.after(PAUSE_US, lambda: self._next(pushing))

    def _whole(self, pushing: Pushing, *, ended: bool) -> None:
        """All sites hear it, since any of them may lead later on."""
        pushing.told = (pushing.batch - 1 if ended else pushing.batch, ended)
        if not ended:
            pushing.batch += 1
        for site in sorted(self._world.driver.present):
            self._tell(pushing, site)

    def _tell(self, pushing: Pushing, site: int) -> None:
        batch, ended = pushing.told
        self._world.driver.say(site, lambda: self._world.sites[site].hear_pushed(pushing.name, batch, ended))

    def _over(self) -> bool:
        """The run needs no more rows."""
        return self._world.ended or self._world.driver.dead or self._world.coordinator.draining

    # ------------------------------------------------------------ one task

    def _push(self, pushing: Pushing, batch: int, task: int) -> None:
        """Send everything to who leads now, as the driver knows; look after a while whether it still does."""
        world = self._world
        if self._over() or (batch, task) != (pushing.batch, task) or task not in pushing.waiting:
            return
        if world.driver.paused:
            world.clock.after(PAUSE_US, lambda: self._push(pushing, batch, task))
            return
        partition = task % pushing.segment.partitions
        leader = world.coordinator.membership.leaders[pushing.segment.id][partition].site
        open_: list[bool] = [True]

        def answered() -> None:
            if open_[0] and world.sites[leader].alive:
                world.clock.after(world.link.draw_delay(world.random), taken)

        def taken() -> None:
            if open_[0]:
                open_[0] = False
                world.driver.soon(lambda: self._answered(pushing, batch, task))

        def gone() -> None:
            if open_[0]:
                open_[0] = False
                world.clock.after(PAUSE_US, lambda: self._push(pushing, batch, task))

        def look() -> None:
            if not open_[0] or self._over():
                return
            leads = world.coordinator.membership.leaders[pushing.segment.id][partition].site
            if leads != leader or not world.sites[leader].alive:
                gone()
            else:
                world.clock.after(LOOK_US, look)

        body = [rows.serialize().to_pybytes() for rows in pushing.batches[batch][task]]
        attempt = Attempt((batch, task), 0, Pieces(body), sum(map(len, body)))
        site = world.sites[leader]
        world.clock.after(
            world.link.draw_delay(world.random), lambda: site.take_push((pushing.segment.id, partition), attempt, answered, gone)
        )
        world.clock.after(LOOK_US, look)

    def _answered(self, pushing: Pushing, batch: int, task: int) -> None:
        if batch != pushing.batch or task not in pushing.waiting:
            return
        pushing.waiting.discard(task)
        if not pushing.waiting:
            self._whole(pushing, ended=False)
            self._world.clock.after(self._random.randint(*TASK_US), lambda: self._next(pushing))


class PushedHere:
    """The feeds of a site: pushed ingress partitions that it leads."""

    def __init__(self, site: SimSite) -> None:
        self._site = site
        self._feeds: dict[tuple[int, int], PushedFeed] = {}
        self._told: dict[str, tuple[int, bool]] = {}
        self._parked: list[OpenSource] = []

    def open(self, opening: OpenSource, name: str, schema: pa.Schema) -> None:
        site, key = self._site, (opening.segment, opening.partition)
        entered = site.part.entered(*key)
        settling = site.world.replicas > 1 or followed(site.world.layout.sources, name)
        feed = PushedFeed(*key, schema, name, opening.rows, entered, settling)
        self._feeds[key] = feed
        if name in self._told:
            self._tell(feed, *self._told[name])
        self._poll(feed)

    def parks(self, opening: OpenSource, source: Any) -> bool:
        """Whether a source waits for the end of another one, which Spark pushes; then it is opened later."""
        first = awaited(source)
        waits = first is not None and not source.pushed and not self._told.get(first, (0, False))[1]
        if waits:
            self._parked.append(opening)
        return waits

    def close(self, key: tuple[int, int]) -> None:
        self._parked = [opening for opening in self._parked if (opening.segment, opening.partition) != key]
        feed = self._feeds.pop(key, None)
        if feed is not None:
            feed.close()

    def close_all(self) -> None:
        for key in list(self._feeds):
            self.close(key)
        self._parked = []

    def hear(self, name: str, batch: int, ended: bool) -> None:
        """All batches of the source up to this one are whole; whether it has ended."""
        self._told[name] = batch, ended
        parked, self._parked = self._parked, []
        for opening in parked:
            self._site.open_source(opening)
        for feed in self._feeds.values():
            if feed.source == name:
                self._tell(feed, batch, ended)

    def _tell(self, feed: PushedFeed, batch: int, ended: bool) -> None:
        feed.end_batch(batch)
        if ended:
            feed.end()

    def take(self, key: tuple[int, int], attempt: Attempt, answer: Callable[[], None], gone: Callable[[], None]) -> None:
        """A task has pushed all its rows. gone: it is said that nobody takes them here."""
        feed = self._feeds.get(key)
        if feed is None or feed.over:
            gone()
        else:
            feed.finish(attempt, answer)

    def _poll(self, feed: PushedFeed) -> None:
        site, world, key = self._site, self._site.world, (feed.segment, feed.partition)
        if not site.alive or world.ended or self._feeds.get(key) is not feed:
            return
        if not site.hung:
            feed.settle(site.part.settled_rows(*key))
            room = min(site.part.room(*key), world.random.randint(1, world.read_rows))
            for event in feed.poll(world.clock.now_us, room) if room > 0 else ():
                site.deliver(event, lambda: self._feeds.get(key, feed) is feed)
        world.clock.after(world.random.randint(*world.read_every_us), lambda: self._poll(feed))
