"""What a part reads: the feeds of the ingress partitions that its site leads, opened and closed as the part says, asked when it is time.

Nothing here knows operators or peers. What a feed gives goes to whoever `take` is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from evenflow.plan.layout import Layout
from evenflow.plan.plan import Plan
from evenflow.site.events import Event, OpenSource
from evenflow.site.machine import SiteMachine
from evenflow.site.staging import PushedFeed
from evenflow.sources.source import place
from evenflow.sources.then import awaited, followed
from evenflow.stream.waiting import Waiting
from evenflow.stream.weight import read_names
from evenflow.world.spark.executor.feeds import NEVER_US, BesideFeed, CutFeed, Feed, ReaderFeed
from evenflow.world.spark.net.reactor import Reactor
from evenflow.world.spark.regions.upstream import by_subscription


class Reading:
    """take(event, now_us): give the part an event. plan: the first one. feeds: that are open. settling: those that answer tasks of Spark
    when rows are safe."""

    def __init__(self, part: SiteMachine, layout: Layout, plan: Plan, reactor: Reactor, take: Callable[[Event, int], None]) -> None:
        self._part, self._layout, self._reactor, self._take = part, layout, reactor, take
        self._replicated = any(len(sites) > 1 for segment in plan.placement for sites in segment)
        self.feeds: list[Feed] = []
        self.settling: list[PushedFeed] = []
        self._pushed: dict[str, tuple[int, bool]] = {}
        self._parked: list[OpenSource] = []

    # ------------------------------------------------------------ what is read

    def open(self, opening: OpenSource) -> None:
        """This site leads an ingress partition: read it, from where its log ends."""
        segment, partition = opening.segment, opening.partition
        described = self._layout.segments[segment]
        source = self._layout.sources[described.source or ""]
        if self._must_wait(source):
            self._parked.append(opening)
            return
        if source.pushed:
            self._open_pushed(opening, described.source or "", source.schema)
            return
        names = read_names(described.schema.names, source.schema)
        reader = place(source.open_for(partition, described.partitions, names), opening.rows, opening.through, opening.end)
        reader.reach(by_subscription)
        if came := self._part.view.plan.came(segment):
            reader.meet(came)
        dated = self._part.ingress.reflex.covers(segment)
        if source.blocking:
            self.feeds.append(BesideFeed(segment, partition, reader, self._reactor, dated=dated))
        elif self._part.by_content:
            self.feeds.append(CutFeed(segment, partition, reader, self._reactor))
        else:
            linger_us = int(self._part.options.linger_ms * 1000)
            self.feeds.append(ReaderFeed(segment, partition, reader, self._reactor, dated=dated, linger_us=linger_us))

    def _must_wait(self, source: Any) -> bool:
        """It begins after another one, which Spark has not pushed whole."""
        first = awaited(source)
        return first is not None and not source.pushed and not self._pushed.get(first, (0, False))[1]

    def _open_pushed(self, opening: OpenSource, source: str, schema: pa.Schema) -> None:
        """Spark's tasks push the rows here from now on; what they and the driver have told another leader is known from the log."""
        entered = self._part.entered(opening.segment, opening.partition)
        settling = self._replicated or followed(self._layout.sources, source)
        feed = PushedFeed(opening.segment, opening.partition, schema, source, opening.rows, entered, settling)
        self.feeds.append(feed)
        if settling:
            self.settling.append(feed)
        if source in self._pushed:
            tell(feed, *self._pushed[source])

    def close(self, segment: int, partition: int) -> None:
        """This site leads the partition no more."""
        self._parked = [opening for opening in self._parked if (opening.segment, opening.partition) != (segment, partition)]
        for feed in [feed for feed in self.feeds if (feed.segment, feed.partition) == (segment, partition)]:
            self.feeds.remove(feed)
            feed.close()

    def close_all(self, but: Callable[[int, int], bool] = lambda segment, partition: False) -> None:
        kept = [feed for feed in self.feeds if but(feed.segment, feed.partition)]
        for feed in self.feeds:
            if feed not in kept:
                feed.close()
        self.feeds, self.settling, self._parked = kept, [], []

    def meet(self, segment: int, names: Sequence[str]) -> None:
        for feed in self.feeds:
            if feed.segment == segment and isinstance(feed, ReaderFeed | BesideFeed):
                feed.meet(names)

    # ------------------------------------------------------------ when it is read

    def due_us(self) -> int:
        """When some feed is worth asking for which there is room."""
        due = NEVER_US
        for feed in self.feeds:
            if feed.due_us < due and self._part.room(feed.segment, feed.partition) > 0:
                due = feed.due_us
        return due

    def poll(self, now_us: int, *, closing: bool = False) -> None:
        """Ask the feeds that are due. closing: an epoch is about to close, so ask also those that rest until then. Raises what a reader
        raises."""
        over = False
        for feed in self.feeds:
            if feed.due_us > now_us and not (closing and feed.resting):
                continue
            room = self._part.room(feed.segment, feed.partition)
            if room <= 0:
                continue
            for event in feed.poll(now_us, room):
                self._take(event, now_us)
            feed.rest(self._part.close_due_us)
            over = over or feed.over
        if over:
            self.feeds = [feed for feed in self.feeds if not feed.over]

    def settle(self) -> None:
        """Answer tasks of Spark whose rows are where the death of a site does not touch them."""
        for feed in self.settling:
            feed.settle(self._part.settled_rows(feed.segment, feed.partition))

    # ------------------------------------------------------------ what Spark pushes

    def pushed_feed(self, source: str, partition: int) -> PushedFeed | None:
        """The feed of an ingress partition that lives here and is not over."""
        for feed in self.feeds:
            if isinstance(feed, PushedFeed) and feed.partition == partition and feed.source == source:
                return feed
        return None

    def pushed(self, source: str, batch: int, ended: bool) -> None:
        """The driver says that all batches up to this one are whole, and whether the source has ended."""
        self._pushed[source] = (batch, ended)
        parked, self._parked = self._parked, []
        for opening in parked:
            self.open(opening)
        for feed in self.feeds:
            if isinstance(feed, PushedFeed) and feed.source == source:
                tell(feed, batch, ended)

    # ------------------------------------------------------------ what is told of it

    def behind(self) -> tuple[tuple[str, str, int], ...]:
        """(source, topic, messages) of the partitions of sources that are read here."""
        found = list[tuple[str, str, int]]()
        for feed in self.feeds:
            if (behind := feed.behind()) is not None:
                found.append((self._layout.segments[feed.segment].source or "", *behind))
        return tuple(found)

    def unread(self, now_us: int) -> dict[tuple[int, int], Waiting]:
        """By (segment, partition), what there is to read."""
        waiting = {(feed.segment, feed.partition): feed.waiting(now_us) for feed in self.feeds}
        return {key: told for key, told in waiting.items() if told is not None}


def tell(feed: PushedFeed, batch: int, ended: bool) -> None:
    feed.end_batch(batch)
    if ended:
        feed.end()
