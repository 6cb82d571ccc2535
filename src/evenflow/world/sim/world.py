"""The simulator: the same machines as on Spark, under a virtual clock, with simulated sites, links, processors and faults.

A run is determined by its seed. The world decides nothing about the protocol: it delivers events, late or after a lost connection
again, and carries out actions. Operators run for real, so the output is the real output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from evenflow.coordinator.events import (
    CoordinatorAction,
    CoordinatorEvent,
    EndRun,
    EpochSeen,
    Happened,
    PlanChangeRequested,
    SiteLost,
    SiteReady,
    SiteSaid,
    StopRequested,
    Tell,
    Waited,
    Wake,
)
from evenflow.coordinator.machine import RunMachine
from evenflow.errors import EvenflowError, ProtocolError
from evenflow.query.placement import Scheme, first_membership, first_plan
from evenflow.query.plan import Copy, Layout, Placement, Plan
from evenflow.sinks.store import no_wait
from evenflow.site.events import (
    Action,
    Event,
    Fact,
    Heard,
    LinkDown,
    LinkUp,
    OpenSource,
    Release,
    RowsArrived,
    Run,
    Say,
    SetTimer,
    Ship,
    SinkCommitted,
    SourceEnded,
    StateArrived,
    TellCoordinator,
    TimerFired,
    WorkDone,
)
from evenflow.site.hosted import Work
from evenflow.site.options import FlowOptions
from evenflow.site.part import Part
from evenflow.world.binding import bind_run
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import CostModel, DetectionModel, LinkModel, SinkModel

FLUSH_US = 20
"""A loop tick: events that come within it share one message per peer."""


@dataclass(slots=True)
class SimSite:
    """A simulated site: its part, and when its processor is free again. alive: it runs."""

    part: Part
    index: int
    free_at_us: int = 0
    flush_due: bool = False
    alive: bool = True
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
        replicas: int = 1,
        spares: int = 0,
        placement: Scheme = "mirrored",
        seed: int = 0,
        options: FlowOptions | None = None,
        link: LinkModel | None = None,
        cost: CostModel | None = None,
        sink: SinkModel | None = None,
        detection: DetectionModel | None = None,
        plan: Plan | None = None,
        read_rows: int = 4096,
        patience_ms: float = 500.0,
        checkers: Sequence[Callable[[SimWorld], None]] = (),
    ) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.layout = layout = bind_run(layout, "sim", no_wait)
        self.options = options or FlowOptions()
        self.link, self.cost, self.sink = link or LinkModel(), cost or CostModel(), sink or SinkModel()
        self.detection = detection or DetectionModel()
        self.checkers = tuple(checkers)
        self.read_rows = read_rows
        self.error: EvenflowError | None = None
        self.ended = False
        self.messages = 0
        self.happened: list[tuple[int, Happened]] = []
        self.released: dict[str, list[tuple[int, pa.RecordBatch]]] = {name: [] for name in layout.sinks}
        self.latencies_us: list[int] = []
        plan = plan or first_plan(layout, sites, replicas, placement)
        membership = first_membership(layout, plan, range(sites + spares))
        self.coordinator = RunMachine(layout, plan, membership, patience_ms)
        self.sites: list[SimSite] = []
        self.links: dict[tuple[int, int], Link] = {}
        self._sink_free_us: dict[tuple[int, int], int] = {}
        self._first_copies: dict[int, int] = {}
        self._told_us: dict[tuple[str, int], int] = {}
        for _ in range(sites + spares):
            self._add_site()
        for site in self.sites:
            self._coordinate(SiteReady(site.index))
        if self.link.drop_every_us:
            self._plan_next_drop()

    def _add_site(self) -> SimSite:
        machine = self.coordinator
        index = len(self.sites)
        site = SimSite(Part(self.layout, machine.plan, machine.membership, index, self.options), index)
        for other in range(index):
            self.links[index, other], self.links[other, index] = Link(), Link()
        self.sites.append(site)
        return site

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

    def change_plan(self, placement: Placement | None = None) -> None:
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
        self._deliver(self.sites[a], LinkDown(b))
        self._deliver(self.sites[b], LinkDown(a))
        self.clock.after(self.link.reconnect_us, lambda: self._reconnect(a, b))

    def kill(self, index: int) -> None:
        """The site's process is gone. Its peers see their links end, and the coordinator learns of it, each a little later."""
        site = self.sites[index]
        site.alive = False
        site.timers.clear()
        for pair, link in self.links.items():
            if index in pair:
                link.generation += 1
                link.up = False
        for peer in self.sites:
            if peer.alive:
                self.clock.after(self.random.randint(*self.detection.link_us), lambda p=peer: self._deliver(p, LinkDown(index)))  # type: ignore[misc]
        self.clock.after(self.random.randint(*self.detection.death_us), lambda: self._coordinate(SiteLost(index, "it was killed")))

    def add_site(self) -> int:
        """A new site joins, as when Spark runs a lost site's task again. Returns its index."""
        site = self._add_site()
        for pair, link in self.links.items():
            if site.index in pair and not all(self.sites[end].alive for end in pair):
                link.up = False
        self.clock.after(self.random.randint(*self.detection.link_us), lambda: self._coordinate(SiteReady(site.index)))
        return site.index

    def output(self, sink: str) -> pa.Table:
        """All rows that a sink has been given, in order."""
        batches = [batch for _, batch in self.released[sink]]
        return pa.Table.from_batches(batches) if batches else pa.table({})

    def fired(self, rule: str) -> int:
        """How often the rule fired, at any site or the coordinator."""
        return self.coordinator.story.fired[rule] + sum(site.part.story.fired[rule] for site in self.sites)

    # ------------------------------------------------------------ sources and sinks

    def _open_source(self, site: SimSite, action: OpenSource) -> None:
        segment = self.layout.segments[action.segment]
        reader = self.layout.sources[segment.source or ""].open(action.partition, segment.partitions)
        if action.rows:
            reader.skip(action.rows)
        self.clock.after(self.random.randint(0, 500), lambda: self._poll(site, action.segment, action.partition, reader))

    def _poll(self, site: SimSite, segment: int, partition: int, reader: Any) -> None:
        if not site.alive or self.ended:
            return
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
        """The way to the driver, where the first copy of an epoch counts (O1), and the sink's work there."""
        arrival = self.clock.now_us + self.link.draw_delay(self.random)
        key = ("release", site.index)
        arrival = self._told_us[key] = max(arrival, self._told_us.get(key, 0) + 1)
        self.clock.at(arrival, lambda: self._take_release(site.index, action))

    def _take_release(self, index: int, action: Release) -> None:
        if index not in self.coordinator.sites or action.epoch <= self._first_copies.get(action.segment, 0):
            return
        self._first_copies[action.segment] = action.epoch
        free = max(self._sink_free_us.get((0, action.segment), 0), self.clock.now_us) + self.random.randint(*self.sink.delay_us)
        self._sink_free_us[0, action.segment] = free

        def commit() -> None:
            self.released[action.sink].append((action.epoch, action.batch))
            if action.batch.num_rows:
                self.latencies_us.append(self.clock.now_us - action.opened)
            for host in self.coordinator.plan.hosts(action.segment):
                if host in self.coordinator.sites:
                    self._tell(host, SinkCommitted(action.segment, action.epoch))

        self.clock.at(free, commit)

    # ------------------------------------------------------------ sites

    def _deliver(self, site: SimSite, event: Event) -> None:
        """Let the site handle the event when its processor is free."""
        start = max(self.clock.now_us, site.free_at_us)
        site.free_at_us = start + int(self.cost.event_us)
        self.clock.at(start, lambda: self._handle(site, event))

    def _handle(self, site: SimSite, event: Event) -> None:
        if self.ended or not site.alive:
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
        if site.alive:
            for said in site.part.flush(self.clock.now_us):
                self._send(site.index, said)

    def _carry_out(self, site: SimSite, action: Action) -> None:
        match action:
            case Run(work):
                start = max(self.clock.now_us, site.free_at_us)
                site.free_at_us = start + self.cost.of_work(site.index, work.rows)
                self.clock.at(site.free_at_us, lambda: self._work(site, work))
            case SetTimer(name, at_us):
                site.timers[name] = at_us
                self.clock.at(at_us, lambda: self._fire(site, name, at_us))
            case Release():
                self._release(site, action)
            case OpenSource():
                self._open_source(site, action)
            case Ship(copy, capture):
                self._ship(site, copy, capture)
            case TellCoordinator(fact):
                self._by_control("up", site.index, lambda: self._hear(site, fact))
            case Say():
                self._send(site.index, action)

    def _work(self, site: SimSite, work: Work) -> None:
        if site.alive:
            self._handle(site, WorkDone(work.run()))

    def _fire(self, site: SimSite, name: Any, at_us: int) -> None:
        if site.alive and site.timers.get(name) == at_us:
            del site.timers[name]
            self._deliver(site, TimerFired(name))

    def _ship(self, site: SimSite, copy: Copy, capture: Any) -> None:
        """The state travels beside the loop; it is made bytes a while after it was taken."""

        def pack() -> None:
            if not site.alive:
                return
            state = capture.to_bytes()
            delay_us = self.link.draw_delay(self.random) + int(len(state) / self.link.bytes_per_us)
            self.clock.after(delay_us, lambda: arrive(state))

        def arrive(state: bytes) -> None:
            target = self.sites[copy.target]
            if site.alive and target.alive:
                self._deliver(target, StateArrived(copy.number, state))

        self.clock.after(self.random.randint(*self.link.pack_us), pack)

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
        if not (self.sites[a].alive and self.sites[b].alive):
            return
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

    def _hear(self, site: SimSite, fact: Fact) -> None:
        if site.alive or site.index in self.coordinator.sites:
            self._coordinate(SiteSaid(site.index, fact))

    def _coordinate(self, event: CoordinatorEvent) -> None:
        for action in self.coordinator.handle(event):
            self._obey(action)

    def _tell(self, site: int, message: Event) -> None:
        if self.sites[site].alive:
            self._by_control("down", site, lambda: self._deliver(self.sites[site], message))

    def _obey(self, action: CoordinatorAction) -> None:
        match action:
            case Tell(site, message):
                self._tell(site, message)
            case Wake(after_ms):
                self.clock.after(int(after_ms * 1000), lambda: self._coordinate(Waited()))
            case Happened():
                self.happened.append((self.clock.now_us, action))
            case EndRun(error):
                self.error, self.ended = error, True
