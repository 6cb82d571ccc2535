"""One dataflow's part at a site, with everything the part's actions need: feeds, timers, the user's thread, sinks.

The part decides; this carries out. Whatever goes wrong here ends this dataflow at this site and is told to the driver; the site and the
other dataflows on it go on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, assert_never

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
    StateArrived,
    Stored,
    StoreState,
    TellCoordinator,
    TimerFired,
    WorkDone,
)
from evenflow.site.facts import Fact
from evenflow.site.ground import Setup
from evenflow.site.hosted import Hosted, Work
from evenflow.site.images import CaptureArrived, Hasten, OpenImage, PasteCapture
from evenflow.site.kept_rows import ReadRows, StoreRows
from evenflow.site.machine import SiteMachine
from evenflow.site.options import FlowOptions
from evenflow.site.outcome import Outcome
from evenflow.site.overdue import Overdue
from evenflow.site.staging import PushedFeed
from evenflow.site.urgent import Urgency
from evenflow.statistics.histogram import Histogram, latency_of
from evenflow.statistics.wire import FlatWindow
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.ids import FIRST_PLAN, NO_SITE, CopyNumber, SiteId
from evenflow.world.spark.executor.feeds import NEVER_US
from evenflow.world.spark.executor.held import HeldEpoch, HeldEpochs
from evenflow.world.spark.executor.pasting import Pasting
from evenflow.world.spark.executor.reading import Reading
from evenflow.world.spark.executor.spill_store import SpillStore
from evenflow.world.spark.executor.storing import Order, Storing
from evenflow.world.spark.executor.user_thread import UserThread
from evenflow.world.spark.net.control import PartReport, StartPart
from evenflow.world.spark.net.reactor import Clock, Reactor
from evenflow.world.spark.net.told_versions import Told, unpacked
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
        run, plan = start.run, unpacked(start.plan)
        beginning = replace(start.beginning, plans=tuple(map(unpacked, start.beginning.plans)))
        self.run, self._layout, self._world, self._reactor = run, layout, world, reactor
        self._clock, self._now_us = clock, clock.now_us()
        self.broken = False
        self.part = SiteMachine(Setup(layout, plan, start.membership, SiteId(site), options, beginning, journalled=start.journalled))
        self._told = Told(plan)
        self.schemas = RunSchemas([wire_schema(arc, layout) for arc in layout.arcs], [segment.recorded for segment in layout.segments])
        self.latencies = Histogram()
        self._handed_over = Histogram()
        self._told_us, self._told_working_us = self._now_us, reactor.working.total_us()
        self.held: dict[str, HeldEpochs] = {}
        self._held_segments: dict[str, int] = {}
        self._held_told: dict[str, tuple[int, int]] = {}
        self._timers: dict[Any, int] = {}
        self._works: deque[Work] = deque()
        self._user: UserThread | None = None
        self._urgency, self._waiting = Urgency.of(layout), list[Work]()
        self._overdue = Overdue(options.user_timeout_s)
        self._disk: SpillStore | None = None
        self._pasting: Pasting | None = None
        self._store_url = start.store
        self._storing: dict[str, Storing] = {}
        self._reading = Reading(self.part, layout, plan, reactor, self._take)
        self._asked = False
        self._beside: deque[Work] = deque()
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

    # ------------------------------------------------------------ events in, actions out

    def deliver(self, event: Event, now_us: int) -> None:
        """Give the part an event and carry out what it asks for."""
        if self.broken:
            return
        self._now_us = now_us
        try:
            event = self._told.whole(event)
            actions = self.part.handle(event, now_us)
            if actions:
                self._carry_out(actions)
            if isinstance(event, DrainRequested):
                self._reading.close_all(but=self.part.replays)
        except Exception as error:
            self.fail(error)

    def hear(self, event: Heard, now_us: int) -> None:
        """Take what a peer says. What follows, this tick's `advance` looks at: other peers may have said something, too."""
        if not self._asked and self._reading.feeds and not self.broken and self.part.follows(event.section):
            self._asked = True
            self._read(now_us, closing=True)
        self._take(event, now_us)

    def _take(self, event: Event, now_us: int) -> None:
        if not self.broken:
            try:
                self.part.take(event, now_us)
            except Exception as error:
                self.fail(error)

    def _look(self) -> None:
        """Carry out what follows from what was taken."""
        self._asked = False
        if not self.broken:
            try:
                actions = self.part.look()
                if actions:
                    self._carry_out(actions)
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
                    self._reading.open(action)
                case CloseSource():
                    self._reading.close(action.segment, action.partition)
                case Meet():
                    self._reading.meet(action.segment, action.names)
                case Ship():
                    self._world.ship(self.run, action)
                case PasteCapture() | OpenImage() | Hasten():
                    self._pasting = self._pasting or Pasting(f"evenflow-images-{self.run}", self._reactor, self._disk_answers)
                    self._pasting.ask(action)
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
            spare, site = self.part.options.state_memory_bytes is not None, self.part.site
            self._storing[what] = Storing(name, self._store_url, site, self._reactor, self._disk_answers, spare=spare)
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
        if self._urgency is not None and self._beside:
            self._waiting.append(work)  # What is most urgent then goes next.
        else:
            self._submit(work)

    def _submit(self, work: Work) -> None:
        assert self._user is not None
        self._beside.append(work)
        self._world.busy(self.run, work.hosted.segment.name)
        if work.calls:
            self._tell_user_code()
        self._user.submit(work)

    def _user_done(self, outcome: Outcome) -> None:
        self._beside.popleft()
        if self._waiting and self._urgency is not None and not self.broken:
            self._submit(self._urgency.take(self._waiting, self._clock.now_us()))
        self._rest_user()
        self._take(WorkDone(outcome), self._clock.now_us())

    def _rest_user(self) -> None:
        """Nothing runs beside the loop any more, if that is so."""
        if not self._beside:
            self._world.busy(self.run, None)
            self._tell_user_code()

    def _tell_user_code(self) -> None:
        """Where the process may end now: see `control.InUserCode`."""
        self._world.in_user_code(self.run, tuple((work.segment, work.tick.epoch) for work in self._beside if work.calls))

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
        if self._reading.feeds:
            self._read(now_us)
        if self._timers and min(self._timers.values()) <= now_us:
            self._fire_timers(now_us)
        self._look()
        if self._works:
            self._run_works(now_us)
        if self._reading.settling:
            self._reading.settle()

    def flush(self, now_us: int) -> list[tuple[int, Section]]:
        """(peer, section) for everything that has to be said since the last flush."""
        if self.broken:
            return []
        try:
            return [(say.peer, say.section) for say in self.part.flush(now_us)] if self.part.outbox else []
        except Exception as error:
            self.fail(error)
            return []

    def due_us(self) -> int:
        """When `advance` is worth while again, wall clock; 0 for at once."""
        if self.broken:
            return NEVER_US
        if self._works:
            return 0
        return min([self._reading.due_us(), *self._timers.values()])

    def _fire_timers(self, now_us: int) -> None:
        for name in [name for name, at_us in self._timers.items() if at_us <= now_us]:
            del self._timers[name]
            self._take(TimerFired(name), now_us)

    def _read(self, now_us: int, *, closing: bool = False) -> None:
        try:
            self._reading.poll(now_us, closing=closing)
        except Exception as error:
            self.fail(error)

    def _run_works(self, now_us: int) -> None:
        deadline = time.monotonic() + WORK_BUDGET_S
        while self._works:
            work = self._works.popleft() if self._urgency is None else self._urgency.take(self._works, now_us)
            self._take(WorkDone(work.run(time.perf_counter_ns)), now_us)
            late = time.monotonic() > deadline
            if late or not self._works:
                self._look()
            if late:
                return

    # ------------------------------------------------------------ Spark on both sides

    def pushed_feed(self, source: str, partition: int) -> PushedFeed | None:
        """The feed of an ingress partition that lives here and is not over."""
        return self._reading.pushed_feed(source, partition)

    def pushed(self, source: str, batch: int, ended: bool) -> None:
        """The driver says that all batches up to this one are whole, and whether the source has ended."""
        try:
            self._reading.pushed(source, batch, ended)
        except Exception as error:
            self.fail(error)

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

    def stands(self) -> tuple[int, ...] | None:
        """How far the part is; None while anything is under way. If it is the same twice, there is nothing new to report."""
        part = self.part
        waits = any(queue.waiting for queue in part.ingress.queues.values())
        if not self.broken and (waits or part.epochs_in_flight or self._works or self._beside):
            return None
        return part.closed, part.finished, part.view.plan.number, part.view.membership.number, part.counters.rows_in, part.counters.rows_out

    def report(self) -> PartReport:
        part, latencies = self.part, self.latencies.take()
        counters, now_s = part.counters, time.monotonic()
        for fact in self._overdue.look(None if self._user is None else self._user.running(), now_s):
            self._world.tell(self.run, fact)
        late = part.late_by_box()
        return PartReport(
            counters.rows_in, counters.rows_out, sum([rows for _, _, rows in late]), counters.rows_failed, part.closed, part.finished,
            part.epochs_in_flight, part.state_bytes(), part.buffered_bytes, counters.sections_out, self._window(latencies), latencies,
            self._overdue.slow(now_s), self._reading.behind(), tuple(counters.taken.items()), part.waiting(), late,
            part.failed_rows(),
        )  # fmt: skip

    def _window(self, latencies: Mapping[int, int]) -> FlatWindow:
        """Since the last report. A sink in the driver stores what it is given there: its latency here is until it is on its way."""
        begin_us, working_us = self._told_us, self._told_working_us
        self._told_us, self._told_working_us = max(begin_us, self._clock.now_us()), self._reactor.working.total_us()
        released = latency_of([latencies, self._handed_over.take()])
        unread = self._reading.unread(self._told_us)
        return self.part.counting.flat(begin_us, self._told_us, self._told_working_us - working_us, released, unread)

    def close(self) -> UserThread | None:
        """Give everything back. Returns the thread of the user's code, if there is one: it ends as soon as the code lets it."""
        self.broken = True
        self._reading.close_all()
        self._works.clear()
        self._waiting.clear()
        self._timers.clear()
        if self._disk is not None:
            self._disk.close()
        if self._pasting is not None:
            self._pasting.close()
        for storing in self._storing.values():
            storing.close()
        user, self._user = self._user, None
        if user is not None:
            for _ in range(user.stop()):
                self._beside.pop()
            self._rest_user()
        return user

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


def arrived(copy: int, state: bytes) -> Event:
    """What has a negative number is no copy's state, but a capture: see `site.backing`."""
    return StateArrived(CopyNumber(copy), state) if copy > 0 else CaptureArrived(-copy, state)
