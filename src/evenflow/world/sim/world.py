"""The simulator: the same machines as on Spark, under a virtual clock, with simulated sites, links, processors and faults.

A run is determined by its seed. The world decides nothing about the protocol: it delivers events, late or after a lost connection
again, and carries out actions. Operators run for real, so the output is the real output.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from evenflow.coordinator.machine import (
    CoordinatorAction,
    CoordinatorEvent,
    EndRun,
    EpochSeen,
    PlanChangeRequested,
    RunMachine,
    SiteReady,
    SiteSaid,
    StopRequested,
    Tell,
)
from evenflow.errors import EvenflowError, ProtocolError
from evenflow.query.plan import Layout, Plan
from evenflow.query.planner import first_plan
from evenflow.sinks.store import no_wait
from evenflow.site.events import (
    Action,
    Event,
    Heard,
    LinkUp,
    Release,
    RowsArrived,
    Run,
    Say,
    SetTimer,
    SinkCommitted,
    SourceEnded,
    TellCoordinator,
    TimerFired,
    WorkDone,
)
from evenflow.site.options import FlowOptions
from evenflow.site.part import Part
from evenflow.world.binding import bind_run
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import CostModel, LinkModel, SinkModel

FLUSH_US = 20
"""A loop tick: events that come within it share one message per peer."""


@dataclass(slots=True)
class SimSite:
    """A simulated site: its part, and when its processor is free again."""

    part: Part
    index: int
    free_at_us: int = 0
    flush_due: bool = False
    timers: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Link:
    """One direction between two sites. generation: raised when the connection is lost, which voids what is under way."""

    generation: int = 0
    up: bool = True
    last_arrival_us: int = 0


class SimWorld:
    """Runs one dataflow on simulated sites.

    checkers are called with the world after every event that a site handles; they raise AssertionError.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        sites: int,
        seed: int = 0,
        options: FlowOptions | None = None,
        link: LinkModel | None = None,
        cost: CostModel | None = None,
        sink: SinkModel | None = None,
        plan: Plan | None = None,
        read_rows: int = 4096,
        checkers: Sequence[Callable[[SimWorld], None]] = (),
    ) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.layout = layout = bind_run(layout, "sim", no_wait)
        self.options = options or FlowOptions()
        self.link, self.cost, self.sink = link or LinkModel(), cost or CostModel(), sink or SinkModel()
        self.checkers = tuple(checkers)
        self.read_rows = read_rows
        self.error: EvenflowError | None = None
        self.ended = False
        self.messages = 0
        self.released: dict[str, list[tuple[int, pa.RecordBatch]]] = {name: [] for name in layout.sinks}
        self.latencies_us: list[int] = []
        plan = plan or first_plan(layout, sites)
        self.sites = [SimSite(Part(layout, plan, s, self.options), s) for s in range(sites)]
        self.coordinator = RunMachine(plan)
        self.links = {(a, b): Link() for a in range(sites) for b in range(sites) if a != b}
        self._sink_free_us: dict[tuple[int, int], int] = {}
        self._told_us: dict[tuple[str, int], int] = {}
        self._held: list[tuple[type, deque[Callable[[], None]]]] = []
        for site in self.sites:
            self._open_sources(site)
            self._coordinate(SiteReady(site.index))
        if self.link.drop_every_us:
            self._plan_next_drop()

    # ------------------------------------------------------------ what a scenario may do

    def run_until_quiet(self, limit_s: float = 600.0) -> None:
        """Go on until the run has ended. Raises its error; ProtocolError if nothing happens any more or `limit_s` virtual seconds pass."""
        limit_us = self.clock.now_us + int(limit_s * 1e6)
        while not self.ended:
            if not self.clock.step() or self.clock.now_us > limit_us:
                raise ProtocolError(f"the run does not end: {[s.part for s in self.sites]}, {self.coordinator}")
        if self.error is not None:
            raise self.error

    def run_for(self, seconds: float) -> None:
        """Let `seconds` of virtual time pass."""
        until_us = self.clock.now_us + int(seconds * 1e6)
        reached: list[bool] = []
        self.clock.at(until_us, lambda: reached.append(True))
        while not reached and not self.ended:
            self.clock.step()

    def change_plan(self, placement: tuple[tuple[int, ...], ...] | None = None) -> None:
        """Ask the coordinator for a new plan."""
        self._coordinate(PlanChangeRequested(placement))

    def stop(self, *, drain: bool) -> None:
        self._coordinate(StopRequested(drain))

    def drop_link(self, a: int, b: int) -> None:
        """Lose the connection between two sites, with what is under way, for `reconnect_us`."""
        for pair in ((a, b), (b, a)):
            link = self.links[pair]
            link.generation += 1
            link.up = False
        self.clock.after(self.link.reconnect_us, lambda: self._reconnect(a, b))

    def output(self, sink: str) -> pa.Table:
        """All rows that a sink has been given, in order."""
        batches = [batch for _, batch in self.released[sink]]
        return pa.Table.from_batches(batches) if batches else pa.table({})

    def fired(self, rule: str) -> int:
        """How often the rule fired, at any site or the coordinator."""
        return self.coordinator.story.fired[rule] + sum(site.part.story.fired[rule] for site in self.sites)

    # ------------------------------------------------------------ sources and sinks

    def _open_sources(self, site: SimSite) -> None:
        for segment, partition, name in site.part.sources:
            source = self.layout.sources[name]
            reader = source.open(partition, self.layout.segments[segment].partitions)
            self.clock.after(self.random.randint(0, 500), lambda r=reader, s=segment, p=partition: self._poll(site, s, p, r))  # type: ignore[misc]

    def _poll(self, site: SimSite, segment: int, partition: int, reader: Any) -> None:
        room = site.part.room(segment, partition)
        if room:
            batch = reader.read(self.clock.now_us, min(room, self.random.randint(1, self.read_rows)))
            if batch is not None and batch.num_rows:
                self._deliver(site, RowsArrived(segment, partition, batch))
            if reader.ended:
                self._deliver(site, SourceEnded(segment, partition))
                return
        wake = reader.wake_us if room and reader.wake_us is not None else self.clock.now_us + self.random.randint(50, 1_000)
        self.clock.at(wake, lambda: self._poll(site, segment, partition, reader))

    def _release(self, site: SimSite, action: Release) -> None:
        key = (site.index, action.segment)
        free = max(self._sink_free_us.get(key, 0), self.clock.now_us) + self.random.randint(*self.sink.delay_us)
        self._sink_free_us[key] = free

        def commit() -> None:
            self.released[action.sink].append((action.epoch, action.batch))
            if action.batch.num_rows:
                self.latencies_us.append(self.clock.now_us - action.opened)
            self._deliver(site, SinkCommitted(action.segment, action.epoch))

        self.clock.at(free, commit)

    # ------------------------------------------------------------ sites

    def _deliver(self, site: SimSite, event: Event) -> None:
        """Let the site handle the event when its processor is free."""
        start = max(self.clock.now_us, site.free_at_us)
        site.free_at_us = start + int(self.cost.event_us)
        self.clock.at(start, lambda: self._handle(site, event))

    def _handle(self, site: SimSite, event: Event) -> None:
        if self.ended:
            return
        for action in site.part.handle(event, self.clock.now_us):
            self._carry_out(site, action)
        self._coordinate(EpochSeen(site.part.closed))
        if not site.flush_due:
            site.flush_due = True
            self.clock.after(FLUSH_US, lambda: self._flush(site))
        for check in self.checkers:
            check(self)

    def _flush(self, site: SimSite) -> None:
        site.flush_due = False
        for said in site.part.flush(self.clock.now_us):
            self._send(site.index, said)

    def _carry_out(self, site: SimSite, action: Action) -> None:
        match action:
            case Run(work):
                start = max(self.clock.now_us, site.free_at_us)
                site.free_at_us = start + self.cost.of_work(site.index, work.rows)
                self.clock.at(site.free_at_us, lambda: self._handle(site, WorkDone(work.run())))
            case SetTimer(name, at_us):
                site.timers[name] = at_us
                self.clock.at(at_us, lambda: self._fire(site, name, at_us))
            case Release():
                self._release(site, action)
            case TellCoordinator(fact):
                self._by_control("up", site.index, lambda: self._coordinate(SiteSaid(site.index, fact)))
            case Say():
                self._send(site.index, action)

    def _fire(self, site: SimSite, name: Any, at_us: int) -> None:
        if site.timers.get(name) == at_us:
            del site.timers[name]
            self._deliver(site, TimerFired(name))

    # ------------------------------------------------------------ links

    def _send(self, sender: int, said: Say) -> None:
        link = self.links[sender, said.peer]
        self.messages += 1
        if not link.up:
            return
        arrival = max(self.clock.now_us + self.link.draw_delay(self.random), link.last_arrival_us + 1)
        link.last_arrival_us = arrival
        generation = link.generation

        def arrive() -> None:
            if link.generation == generation:
                self._deliver(self.sites[said.peer], Heard(sender, said.section))

        self.clock.at(arrival, arrive)

    def _reconnect(self, a: int, b: int) -> None:
        for pair in ((a, b), (b, a)):
            self.links[pair].up = True
        self._deliver(self.sites[a], LinkUp(b))
        self._deliver(self.sites[b], LinkUp(a))

    def _plan_next_drop(self) -> None:
        def drop() -> None:
            up = [pair for pair, link in self.links.items() if link.up and pair[0] < pair[1]]
            if up:
                self.drop_link(*self.random.choice(up))
            self._plan_next_drop()

        self.clock.after(int(self.random.expovariate(1.0) * self.link.drop_every_us) + 1, drop)

    # ------------------------------------------------------------ coordinator

    def _by_control(self, direction: str, site: int, arrive: Callable[[], None]) -> None:
        """A message on the connection between a site and the coordinator, which keeps order in each direction."""
        at_us = max(self.clock.now_us + self.link.draw_delay(self.random), self._told_us.get((direction, site), 0) + 1)
        self._told_us[direction, site] = at_us
        self.clock.at(at_us, arrive)

    def _coordinate(self, event: CoordinatorEvent) -> None:
        for action in self.coordinator.handle(event):
            self._obey(action)

    def _obey(self, action: CoordinatorAction) -> None:
        match action:
            case Tell(site, message):
                self._by_control("down", site, lambda: self._deliver(self.sites[site], message))
            case EndRun(error):
                self.error, self.ended = error, True
