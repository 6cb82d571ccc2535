"""One dataflow's part at a site, with everything the part's actions need: feeds, timers, the user's thread, sinks.

The part decides; this carries out. Whatever goes wrong here ends this dataflow at this site and is told to the driver; the site and the
other dataflows on it go on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, assert_never

import pyarrow as pa

from evenflow.exchange.routing import Split, wire_schema
from evenflow.exchange.section import Section
from evenflow.plan.layout import Layout, Segment
from evenflow.plan.plan import Placement, Plan
from evenflow.site.events import (
    Action,
    CloseSource,
    DrainRequested,
    Event,
    Heard,
    Leave,
    Load,
    Meet,
    OpenSource,
    PartTaken,
    Release,
    RestoreState,
    Run,
    SetTimer,
    Ship,
    SinkCommitted,
    SinkTook,
    Spill,
    Stored,
    StoreState,
    TellCoordinator,
    TimerFired,
    WorkDone,
)
from evenflow.site.facts import Fact
from evenflow.site.ground import Setup
from evenflow.site.hosted import Hosted, Outcome, Work
from evenflow.site.kept_rows import ReadRows, StoreRows
from evenflow.site.machine import SiteMachine
from evenflow.site.options import FlowOptions
from evenflow.site.overdue import Overdue
from evenflow.site.staging import PushedFeed
from evenflow.sources.source import place
from evenflow.sources.then import awaited, followed
from evenflow.statistics.histogram import Histogram, latency_of
from evenflow.statistics.wire import FlatWindow
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.ids import FIRST_PLAN, NO_SITE, SiteId
from evenflow.world.spark.executor.feeds import NEVER_US, BesideFeed, Feed, ReaderFeed
from evenflow.world.spark.executor.held import HeldEpoch, HeldEpochs
from evenflow.world.spark.executor.spill_store import SpillStore
from evenflow.world.spark.executor.storing import Order, Storing
from evenflow.world.spark.executor.user_thread import UserThread
from evenflow.world.spark.net.control import PartReport, StartPart
from evenflow.world.spark.net.reactor import Clock, Reactor
from evenflow.world.spark.net.told_versions import Told
from evenflow.world.spark.net.wire import RunSchemas

WORK_BUDGET_S: Final = 0.004
"""Operators run this long before the network is looked at again."""


class Surroundings(Protocol):
    """What a hosted part asks of its site."""

    def tell(self, run: int, fact: Fact) -> None: ...
    def release(self, run: int, release: Release) -> None: ...
    def ship(self, run: int, ship: Ship) -> None: ...
    def give_up(self, why: str) -> None: ...
    def busy(self, run: int | None, what: str | None) -> None: ...
    def in_user_code(self, run: int, works: tuple[tuple[int, int], ...]) -> None: ...
    def broke(self, run: int, error: Exception) -> None: ...


class PartRunner:
    """See the module. start: as the driver has said it; layout, options: its program. run: its number. schemas: of what peers send.
    broken: nothing is done any more."""

    def __init__(
        self,
        start: StartPart,
        layout: Layout,
        options: FlowOptions,
        site: int,
        reactor: Reactor,
        clock: Clock,
        world: Surroundings,
    ) -> None:
        run, plan = start.run, start.plan
        self.run, self._layout, self._world, self._reactor = run, layout, world, reactor
        self._clock, self._now_us = clock, clock.now_us()
        self.broken = False
        self.part = SiteMachine(Setup(layout, plan, start.membership, SiteId(site), options, start.beginning, journalled=start.journalled))
        self._told = Told(plan)
        self.schemas = RunSchemas([wire_schema(arc, layout) for arc in layout.arcs], [segment.schema for segment in layout.segments])
        self.latencies = Histogram()
        self._handed_over = Histogram()
        self._told_us, self._told_working_us = self._now_us, reactor.working.total_us()
        self.held: dict[str, HeldEpochs] = {}
        self._held_segments: dict[str, int] = {}
        self._held_told: dict[str, tuple[int, int]] = {}
        self._timers: dict[Any, int] = {}
        self._works: deque[Work] = deque()
        self._user: UserThread | None = None
        self._overdue = Overdue(options.user_timeout_s)
        self._disk: SpillStore | None = None
        self._store_url = start.store
        self._storing: dict[str, Storing] = {}
        self._feeds: list[Feed] = []
        self._beside: deque[Work] = deque()
        self._replicated = any(len(sites) > 1 for segment in plan.placement for sites in segment)
        self._settling: list[PushedFeed] = []
        self._pushed: dict[str, tuple[int, bool]] = {}
        self._parked: list[OpenSource] = []
        for source in layout.sources.values():
            source.warm_up()
        for described in layout.segments:
            if (described.id, 0) in self.part.cohorts:
                self._hold_epochs(described.id, start.beginning.epoch)
            else:
                warm_up(described, layout)

    def _hold_epochs(self, segment: int, since: int) -> None:
        """Keep what this segment finishes for Spark's readers, if it feeds a Spark sink. since: epochs up to this one are elsewhere.

        A copy that is being made has nothing to give yet, and must hear what Spark commits: it is level when all before it is stored.
        """
        sink = self._layout.segments[segment].sink
        if sink is not None and self._layout.sinks[sink].where == "spark" and sink not in self.held:
            self.held[sink] = HeldEpochs(self._layout.segments[segment].schema, since)
            self._held_segments[sink] = segment

    def _open_source(self, opening: OpenSource) -> None:
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
        reader = place(source.open(partition, described.partitions), opening.rows, opening.through)
        if came := self.part.view.plan.came(segment):
            reader.meet(came)
        make = BesideFeed if source.blocking else ReaderFeed
        self._feeds.append(make(segment, partition, reader, self._reactor, dated=self.part.ingress.reflex.covers(segment)))

    def _must_wait(self, source: Any) -> bool:
        """It begins after another one, which Spark has not pushed whole."""
        first = awaited(source)
        return first is not None and not source.pushed and not self._pushed.get(first, (0, False))[1]

    def _open_pushed(self, opening: OpenSource, source: str, schema: pa.Schema) -> None:
        """Spark's tasks push the rows here from now on; what they and the driver have told another leader is known from the log."""
        entered = self.part.entered(opening.segment, opening.partition)
        settling = self._replicated or followed(self._layout.sources, source)
        feed = PushedFeed(opening.segment, opening.partition, schema, source, opening.rows, entered, settling)
        self._feeds.append(feed)
        if settling:
            self._settling.append(feed)
        if source in self._pushed:
            self._tell_feed(feed, *self._pushed[source])

    def _close_source(self, segment: int, partition: int) -> None:
        self._parked = [opening for opening in self._parked if (opening.segment, opening.partition) != (segment, partition)]
        for feed in [feed for feed in self._feeds if (feed.segment, feed.partition) == (segment, partition)]:
            self._feeds.remove(feed)
            feed.close()

    # ------------------------------------------------------------ events in, actions out

    def deliver(self, event: Event, now_us: int) -> None:
        """Give the part an event and carry out what it asks for."""
        if self.broken:
            return
        self._now_us = now_us
        try:
            if type(event) is not Heard:
                event = self._told.whole(event)
            elif self._feeds and self.part.follows(event.section):
                self._poll_feeds(now_us, closing=True)
            actions = self.part.handle(event, now_us)
            if actions:
                self._carry_out(actions)
            if isinstance(event, DrainRequested):
                self._close_feeds(but=self.part.replays)
        except Exception as error:
            self.fail(error)

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Run():
                    self._start(action.work)
                case SetTimer():
                    self._timers[action.name] = action.at_us
                case Release():
                    self._release(action)
                case Stored():
                    for opened in action.opened:
                        self.latencies.add(self._now_us - opened)
                case TellCoordinator():
                    self._world.tell(self.run, action.fact)
                case OpenSource():
                    self._open_source(action)
                case CloseSource():
                    self._close_source(action.segment, action.partition)
                case Meet():
                    for feed in self._feeds:
                        if feed.segment == action.segment and isinstance(feed, ReaderFeed | BesideFeed):
                            feed.meet(action.names)
                case Ship():
                    self._world.ship(self.run, action)
                case Spill() | Load():
                    self._disk = self._disk or SpillStore(f"evenflow-disk-{self.run}", self._reactor, self._disk_answers)
                    self._disk.ask(action)
                case StoreState() | RestoreState() | StoreRows() | ReadRows():
                    self._ask_store(action)
                case PartTaken():
                    self._storing["checkpoints"].let_go(action)
                case Leave():
                    self._world.give_up(action.why)
                case _:
                    assert_never(action)

    def _ask_store(self, action: Order) -> None:
        """Rows do not wait for state: each has a hand of its own."""
        assert self._store_url is not None, "a run without a checkpoint location has nothing in a store"
        what = "rows" if isinstance(action, StoreRows | ReadRows) else "checkpoints"
        if what not in self._storing:
            name = f"evenflow-{what}-{self.run}"
            self._storing[what] = Storing(name, self._store_url, self.part.site, self._reactor, self._disk_answers)
        self._storing[what].ask(action)

    def _disk_answers(self, event: Event) -> None:
        """Operators are built and state is installed: that is not the silence of the dead."""
        self._world.busy(None, "taking in state from disk")
        self.deliver(event, self._clock.now_us())
        self._world.busy(None, None)

    def _start(self, work: Work) -> None:
        if not work.beside:
            self._works.append(work)
            return
        if self._user is None:
            self._user = UserThread(f"evenflow-user-{self.run}", self._reactor, self._user_done)
        self._beside.append(work)
        self._world.busy(self.run, work.hosted.segment.name)
        if work.hosted.user_code:
            self._tell_user_code()
        self._user.submit(work)

    def _user_done(self, outcome: Outcome) -> None:
        self._beside.popleft()
        if not self._beside:
            self._world.busy(self.run, None)
            self._tell_user_code()
        self.deliver(WorkDone(outcome), self._clock.now_us())

    def _tell_user_code(self) -> None:
        """Where the process may end now: see `control.InUserCode`."""
        self._world.in_user_code(self.run, tuple((work.segment, work.tick.epoch) for work in self._beside if work.hosted.user_code))

    def _release(self, release: Release) -> None:
        where = self._layout.sinks[release.sink].where
        if where == "driver":
            self._handed_over.add(self._now_us - release.opened)
            self._world.release(self.run, release)
        elif where == "spark":
            self._hold_epochs(release.segment, release.epoch - 1)
            self.held[release.sink].begin(release.epoch)
            held = HeldEpoch(release.epoch, release.batch, release.opened, release.last)
            self._forgotten(release.sink, self.held[release.sink].hold(held), self._now_us)
        else:
            self.latencies.add(self._now_us - release.opened)
            self.deliver(SinkCommitted(release.segment, release.epoch), self._now_us)

    # ------------------------------------------------------------ one tick

    def advance(self, now_us: int) -> None:
        """Fire timers, ask feeds, run operators for a while."""
        if self.broken:
            return
        self._now_us = now_us
        if self._feeds:
            self._poll_feeds(now_us)
        if self._timers:
            self._fire_timers(now_us)
        if self._works:
            self._run_works(now_us)
        for feed in self._settling:
            feed.settle(self.part.settled_rows(feed.segment, feed.partition))

    def flush(self, now_us: int) -> list[tuple[int, Section]]:
        """(peer, section) for everything that has to be said since the last flush."""
        if self.broken:
            return []
        try:
            return [(say.peer, say.section) for say in self.part.flush(now_us)]
        except Exception as error:
            self.fail(error)
            return []

    def due_us(self) -> int:
        """When `advance` is worth while again, wall clock; 0 for at once."""
        if self.broken:
            return NEVER_US
        if self._works:
            return 0
        due = min(self._timers.values(), default=NEVER_US)
        for feed in self._feeds:
            if feed.due_us < due and self.part.room(feed.segment, feed.partition) > 0:
                due = feed.due_us
        return due

    def _fire_timers(self, now_us: int) -> None:
        for name in [name for name, at_us in self._timers.items() if at_us <= now_us]:
            del self._timers[name]
            self.deliver(TimerFired(name), now_us)

    def _poll_feeds(self, now_us: int, *, closing: bool = False) -> None:
        """Ask the feeds that are due. closing: an epoch is about to close, so ask also those that were told to rest until then."""
        over = False
        for feed in self._feeds:
            if feed.due_us > now_us and not (closing and feed.resting):
                continue
            room = self.part.room(feed.segment, feed.partition)
            if room <= 0:
                continue
            try:
                events = feed.poll(now_us, room)
            except Exception as error:
                self.fail(error)
                return
            for event in events:
                self.deliver(event, now_us)
            feed.rest(self.part.close_due_us)
            over = over or feed.over
        if over:
            self._feeds = [feed for feed in self._feeds if not feed.over]

    def _run_works(self, now_us: int) -> None:
        deadline = time.monotonic() + WORK_BUDGET_S
        while self._works:
            self.deliver(WorkDone(self._works.popleft().run(time.perf_counter_ns)), now_us)
            if time.monotonic() > deadline:
                return

    # ------------------------------------------------------------ Spark on both sides

    def pushed_feed(self, source: str, partition: int) -> PushedFeed | None:
        """The feed of an ingress partition that lives here and is not over."""
        for feed in self._feeds:
            if isinstance(feed, PushedFeed) and feed.partition == partition and feed.source == source:
                return feed
        return None

    def pushed(self, source: str, batch: int, ended: bool) -> None:
        """The driver says that all batches up to this one are whole, and whether the source has ended."""
        self._pushed[source] = (batch, ended)
        parked, self._parked = self._parked, []
        try:
            for opening in parked:
                self._open_source(opening)
        except Exception as error:
            self.fail(error)
        for feed in self._feeds:
            if isinstance(feed, PushedFeed) and feed.source == source:
                self._tell_feed(feed, batch, ended)

    def _tell_feed(self, feed: PushedFeed, batch: int, ended: bool) -> None:
        feed.end_batch(batch)
        if ended:
            feed.end()

    def held_for(self, sink: str) -> HeldEpochs | None:
        """The epochs of a sink, if its segment lives here or is on its way."""
        for cohort in self.part.cohorts.values() if sink not in self.held else ():
            if cohort.segment.sink == sink:
                self._hold_epochs(cohort.segment.id, cohort.hosted.done)
        return self.held.get(sink)

    def taken_by_spark(self, sink: str, taken: int, stored: int, now_us: int) -> None:
        """Spark has planned to read the epochs up to `taken`. All rows up to `stored` have been committed, says another replica."""
        self.held[sink].take(taken)
        self.committed_by_spark(sink, stored, now_us)

    def committed_by_spark(self, sink: str, epoch: int, now_us: int) -> None:
        self._forgotten(sink, self.held[sink].commit(epoch), now_us)

    def _forgotten(self, sink: str, gone: list[HeldEpoch], now_us: int) -> None:
        """Spark has stored these epochs. The part hears what holds no room any more, and what need not be kept."""
        for epoch in gone:
            self.latencies.add(now_us - epoch.opened)
        held, segment = self.held[sink], self._held_segments[sink]
        told, now = self._held_told.get(sink, (0, 0)), (held.taken_through, held.stored_through)
        self._held_told[sink] = now
        if now[0] > told[0]:
            self.deliver(SinkTook(segment, now[0]), now_us)
        if now[1] > told[1]:
            self.deliver(SinkCommitted(segment, now[1]), now_us)

    # ------------------------------------------------------------ the end

    def report(self) -> PartReport:
        part, latencies = self.part, self.latencies.take()
        counters, now_s = part.counters, time.monotonic()
        for fact in self._overdue.look(None if self._user is None else self._user.running(), now_s):
            self._world.tell(self.run, fact)
        return PartReport(
            counters.rows_in, counters.rows_out, part.late_rows(), counters.rows_failed, part.closed, part.finished,
            part.epochs_in_flight, part.state_bytes(), part.buffered_bytes, counters.sections_out, self._window(latencies), latencies,
            self._overdue.slow(now_s), self._behind(), tuple(counters.taken.items()), part.waiting(), part.late_by_box(),
            part.failed_rows(),
        )  # fmt: skip

    def _behind(self) -> tuple[tuple[str, str, int], ...]:
        """Of the partitions of sources that are read here."""
        found = list[tuple[str, str, int]]()
        for feed in self._feeds:
            if (behind := feed.behind()) is not None:
                found.append((self._layout.segments[feed.segment].source or "", *behind))
        return tuple(found)

    def _window(self, latencies: Mapping[int, int]) -> FlatWindow:
        """Since the last report. A sink in the driver stores what it is given there: its latency here is until it is on its way."""
        begin_us, working_us = self._told_us, self._told_working_us
        self._told_us, self._told_working_us = max(begin_us, self._clock.now_us()), self._reactor.working.total_us()
        released = latency_of([latencies, self._handed_over.take()])
        waiting = {(feed.segment, feed.partition): feed.waiting(self._told_us) for feed in self._feeds}
        unread = {key: told for key, told in waiting.items() if told is not None}
        return self.part.counting.flat(begin_us, self._told_us, self._told_working_us - working_us, released, unread)

    def close(self) -> UserThread | None:
        """Give everything back. Returns the thread of the user's code, if there is one: it ends as soon as the code lets it."""
        self.broken = True
        self._close_feeds()
        self._works.clear()
        self._timers.clear()
        if self._disk is not None:
            self._disk.close()
        for storing in self._storing.values():
            storing.close()
        user, self._user = self._user, None
        if user is not None:
            user.stop()
        return user

    def _close_feeds(self, but: Callable[[int, int], bool] = lambda segment, partition: False) -> None:
        kept = [feed for feed in self._feeds if but(feed.segment, feed.partition)]
        for feed in self._feeds:
            if feed not in kept:
                feed.close()
        self._feeds, self._settling, self._parked = kept, [], []

    def fail(self, error: Exception) -> None:
        """Do nothing any more, and tell the driver why."""
        if not self.broken:
            self.broken = True
            self._world.broke(self.run, error)


def warm_up(segment: Segment, layout: Layout) -> None:
    """Whatever is imported, compiled or cached when the segment's operators are built and first run, is so now and not in a take-over."""
    hosted = Hosted.of(segment, layout, (0,))
    splits = tuple(Split.of(layout.arcs[arc], layout, Plan(FIRST_PLAN, 1, nowhere(layout))) for arc in segment.outputs)
    Work(hosted, 0, splits, (), (), (), frozenset(), Tick(1, 1, NO_WATERMARK, NO_WATERMARK), 1, 0).run()


def nowhere(layout: Layout) -> Placement:
    """A placement that has everything at one site that does not exist."""
    return tuple(((NO_SITE,),) * segment.partitions for segment in layout.segments)
