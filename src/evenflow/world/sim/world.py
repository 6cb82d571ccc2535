"""The simulator: the same machines as on Spark, under a virtual clock, with simulated sites, links, processors and faults.

A run is determined by its seed. The world decides nothing about the protocol: it delivers events, late or after a lost connection
again, and carries out actions. Operators run for real, so the output is the real output. What faults there are stands here, one method
each; who draws them, and who checks what comes of them, is `evenflow.swarm`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Literal, Protocol

import pyarrow as pa

from evenflow.availability.choosing import modes_of
from evenflow.availability.content import Content
from evenflow.availability.entries import Begun
from evenflow.availability.mode import Mode, Modes
from evenflow.coordinator.events import (
    AvailabilityRequested,
    CheckpointRequested,
    Denied,
    Done,
    Happened,
    PlanChangeRequested,
    StopRequested,
)
from evenflow.coordinator.journal import Journal
from evenflow.coordinator.machine import RunMachine
from evenflow.coordinator.recovery import PATIENCE_MS
from evenflow.coordinator.retries import PAUSE_MS
from evenflow.errors import EvenflowError, ProtocolError
from evenflow.plan.layout import Layout
from evenflow.plan.placement import Scheme, first_membership, first_plan
from evenflow.plan.plan import Copy, Placement, Plan
from evenflow.policy.proposal import Parameters
from evenflow.policy.shedding.live import way_of
from evenflow.policy.start import place_of
from evenflow.site.events import Heard, Release, StateMemoryChanged
from evenflow.site.ground import Setup
from evenflow.site.machine import SiteMachine
from evenflow.site.options import FlowOptions
from evenflow.site.peers import Connected, Disconnected
from evenflow.site.replaying import FROM_NOTHING, Beginning
from evenflow.statistics.recent import Recent
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SiteWindow
from evenflow.store.patience import no_wait
from evenflow.stream.ids import SiteId
from evenflow.world.binding import begun, bind_run
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.lasting import Lasting
from evenflow.world.sim.model import CostModel, DetectionModel, DiskModel, LinkModel, SinkModel
from evenflow.world.sim.network import Ends, Network
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.pushing import SimPushing
from evenflow.world.sim.reading import read_by_spark
from evenflow.world.sim.removal import Removal
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.store import SimStore

Fate = Literal["whole", "corrupt", "lost"]


class Outlet(Protocol):
    """Where a region gives the epochs of a sink, in place of the sink itself (`world.sim.regions`)."""

    def take(self, release: Release) -> None: ...


UNLIMITED = 2**62


class SimWorld:
    """Runs one dataflow on simulated sites.

    observers see everything that happens. read_rows: most rows that a source gives at a time; read_every_us: least and greatest time
    between two times. report_us: least and greatest time that statistics of a round are on their way. start_us: least and greatest time
    until one of the first sites has built its part. replicas: of each partition at the start. store: of the run's journal, with the clock
    that is everybody's; None if it has none.

    sources_may_end: else a source that is over does not say so yet, except for the partitions in end_early, (segment, partition). quotas:
    rows that a source may give for now, by (segment, partition). failing: (segment, epoch) in which a box raises, at every replica.
    deadly, endless: (segment, partition, epoch) at which user code ends its process, or never returns. transfer_fates: what becomes of the
    next transfers, oldest first. copied_bytes: state sent so far. statistics: the windows that were asked for (`collect`).

    placed: what `first_plan` was told. It is one generation of a run. lasting: what outlives it; its own, if none is given. ahead_us: of
    the wall clock of its machines. beginning: where it goes on; `plan` is the last of its plans then. lost: everything of it is gone, or
    its driver is. way: how sources reach other engines (`Reader.reach`).
    """

    way: Any = None

    def __init__(
        self,
        layout: Layout,
        *,
        sites: int,
        replicas: int = 1,
        availability: str = Mode.PAIRS,
        spares: int = 0,
        placement: Scheme = "mirrored",
        first_placement: str = "home",
        seed: int = 0,
        options: FlowOptions | None = None,
        link: LinkModel | None = None,
        cost: CostModel | None = None,
        sink: SinkModel | None = None,
        detection: DetectionModel | None = None,
        disk: DiskModel | None = None,
        plan: Plan | None = None,
        read_rows: int = 4096,
        read_every_us: tuple[int, int] = (50, 1_000),
        patience_ms: float = PATIENCE_MS,
        settle_ms: float = 0.0,
        pause_ms: float = PAUSE_MS,
        policy: str = "none",
        parameters: Parameters | None = None,
        report_us: tuple[int, int] = (0, 0),
        start_us: tuple[int, int] = (0, 0),
        store: SimStore | None = None,
        observers: Sequence[Observer] = (),
        lasting: Lasting | None = None,
        ahead_us: int = 0,
        beginning: Beginning = FROM_NOTHING,
    ) -> None:
        self.random = Random(seed)
        self.lasting = Lasting(layout.sinks, None if store is None else store.clock) if lasting is None else lasting
        self.clock = self.lasting.clock if lasting is None else VirtualClock(of=lasting.clock, ahead_us=ahead_us)
        self.store = store
        self.link, self.cost, self.sink = link or LinkModel(), cost or CostModel(), sink or SinkModel()
        layout = read_by_spark(layout) if self.sink.reads else layout
        self.layout = layout = bind_run(begun(layout, self.clock.now_us), self.lasting.run or "sim", no_wait)
        self.options = options or FlowOptions()
        self.detection, self.disk = detection or DetectionModel(), disk or DiskModel()
        self.seed = seed
        self.observers = tuple(observers)
        self.read_rows, self.read_every_us, self.report_us = read_rows, read_every_us, report_us
        self.error: EvenflowError | None = None
        self.ended = self.lost = False
        self.sources_may_end = True
        self.end_early: set[tuple[int, int]] = set()
        self.failing: tuple[int, int] | None = None
        self.quotas: dict[tuple[int, int], int] = {}
        self.transfer_fates: list[Fate] = []
        self.deadly: set[tuple[int, int, int]] = set()
        self.endless: set[tuple[int, int, int]] = set()
        self.sink_blocked_until_us = 0
        self.outlets: Mapping[str, Outlet] = {}
        self.copied_bytes = 0
        self.happened: list[tuple[int, Happened]] = []
        self.answers: dict[int, Done | Denied] = {}
        self._requests = 1_000_000
        self.released = self.lasting.released
        self.lasting.unkept = not all(source.kept for source in layout.sources.values())
        self.latencies_us: list[int] = []
        self.statistics = Recent()
        modes = () if plan is not None else modes_of(layout, availability, sites, replicas, located=store is not None)
        plan = plan or first_plan(layout, sites, replicas, placement, place=place_of(first_placement, layout), modes=modes)
        self.placed = (sites, replicas, placement, first_placement)
        self.replicas = len(plan.placement[0][0])
        membership = first_membership(layout, plan, map(SiteId, range(sites + spares)))
        journal = None if store is None else Journal.of(store.begin(self._begun(plan), f"nonce of seed {seed}"))
        every_ms = None if self.options.checkpoint_s is None else self.options.checkpoint_s * 1000
        machine = RunMachine(
            layout,
            plan,
            membership,
            patience_ms,
            settle_ms,
            policy,
            parameters,
            spares,
            pause_ms,
            beginning,
            journal=journal,
            checkpoint_ms=every_ms,
            shedding=way_of(self.options.shedding),
        )
        self.driver = SimDriver(self, machine, sites + spares)
        self.network = Network(
            self.clock,
            self.random,
            self.link,
            self.detection,
            Ends(self._answers, self._knows, self._link_up, self._link_down, self._section),
        )
        self.sites: list[SimSite] = []
        for _ in range(sites + spares):
            self._make_site(linked=True)
        for site in self.sites:
            site.start_linked(sites + spares)
        self.driver.start(sites + spares, start_us)
        self.driver.tick()
        self.pushing = SimPushing(self)
        if self.link.drop_every_us:
            self._plan_next_drop()

    @property
    def coordinator(self) -> RunMachine:
        return self.driver.machine

    @property
    def now_us(self) -> int:
        return self.clock.now_us

    @property
    def messages(self) -> int:
        """Sections sent so far."""
        return self.network.messages

    def _begun(self, plan: Plan) -> Begun:
        """What the driver says first in its journal."""
        ingress = tuple((s.id, p) for s in self.layout.segments if s.kind == "ingress" for p in range(s.partitions))
        return Begun("sim", self.layout.name, "", {}, ingress, Content.of(plan))

    def make_part(self, index: int) -> SiteMachine:
        """A site's part of the run, as it begins now."""
        machine = self.coordinator
        return SiteMachine(
            Setup(
                self.layout,
                machine.plan,
                machine.membership,
                SiteId(index),
                self.options,
                machine.beginning if machine.journal is None else replace(machine.beginning, generation=machine.journal.generation),
                journalled=machine.durable is not None,
            )
        )

    def _make_site(self, *, linked: bool) -> SimSite:
        index = len(self.sites)
        site = SimSite(self, self.make_part(index), index)
        self.sites.append(site)
        self.network.add(index, linked=linked)
        # Beats are not in step, as sites do not start in step.
        self.clock.after(1 + self.detection.patience.beat_us * (index % 7 + 1) // 8, site.beat)
        return site

    # ------------------------------------------------------------ what a scenario may do

    def run_until_quiet(self, limit_s: float = 600.0) -> None:
        """Go on until the run has ended. Raises its error; ProtocolError if nothing happens any more or `limit_s` virtual seconds pass."""
        self.run_until(lambda: self.ended, limit_s, "the run to end")
        if self.error is not None:
            raise self.error

    def run_until(self, reached: Callable[[], bool], limit_s: float, what: str) -> None:
        """Go on until that is so, or the run has ended. Raises ProtocolError if `limit_s` virtual seconds pass before."""
        limit_us = self.clock.now_us + int(limit_s * 1e6)
        while not self.ended and not reached():
            if not self.clock.step() or self.clock.now_us > limit_us:
                raise ProtocolError(f"waited {limit_s} virtual seconds for {what}: {self.sites}, {self.coordinator}")

    def run_for(self, seconds: float) -> None:
        """Let `seconds` of virtual time pass."""
        until_us = self.clock.now_us + int(seconds * 1e6)
        reached: list[bool] = []
        self.clock.at(until_us, lambda: reached.append(True))
        while not reached and not self.ended:
            self.clock.step()

    def linger(self, seconds: float) -> None:
        """Let time pass after the end: what was under way to the driver still comes, and its machine hears it."""
        until_us = self.clock.now_us + int(seconds * 1e6)
        reached: list[bool] = []
        self.clock.at(until_us, lambda: reached.append(True))
        while not reached:
            self.clock.step()

    def change_plan(self, placement: Placement | None = None) -> None:
        """Ask the coordinator for a new plan."""
        self.driver.soon(lambda: self.driver.coordinate(PlanChangeRequested(placement)))

    def set_availability(self, modes: Modes, replicas: int) -> int:
        """A person wants other modes. Returns the request's number, by which it is answered."""
        self._requests += 1
        self.driver.coordinate(AvailabilityRequested(modes, replicas, "some boxes", self._requests))
        return self._requests

    def checkpoint(self, *, last: bool = False) -> int:
        """Ask for a checkpoint now. Returns the number of the request, whose answer will be in `answers`."""
        self._requests += 1
        event = CheckpointRequested(self._requests, last)
        self.driver.soon(lambda: self.driver.coordinate(event))
        return event.request

    def stop(self, *, drain: bool) -> None:
        self.driver.soon(lambda: self.driver.coordinate(StopRequested(drain)))

    def add_site(self) -> int:
        """A new site joins, as when Spark runs a lost site's task again. Returns its index."""
        site = self._make_site(linked=False)
        self._fault(f"site {site.index} comes")
        self.driver.welcome(site)
        return site.index

    def remove_sites(self, *sites: int) -> Removal:
        """They are emptied and leave as planned. Raises OperationRefused if they cannot."""
        removal = Removal(self, sites)
        self._fault(f"sites {sites} are to leave")
        return removal

    def output(self, sink: str) -> pa.Table:
        """All rows that a sink has been given, in order."""
        batches = [batch for _, batch in self.released[sink]]
        return pa.Table.from_batches(batches) if batches else pa.table({})

    def fired(self, rule: str, effect: str) -> int:
        """How often the rule had this effect, at any site or the coordinator."""
        return self.coordinator.story.fired[rule, effect] + sum(site.part.story.fired[rule, effect] for site in self.sites)

    def redundancy(self) -> int:
        """Least number of live replicas over all partitions."""
        return self.coordinator.redundancy()

    def cpu_us(self) -> int:
        """What all sites have been busy for so far."""
        return sum(site.busy_us for site in self.sites)

    def collect(self) -> Statistics:
        """What each site that lives and does not hang has done since it was last asked."""
        windows: list[SiteWindow] = [site.reporting.window() for site in self.sites if site.alive and not site.hung]
        for window in windows:
            self.statistics.add(window)
        return Statistics.of(windows)

    def may_end(self, segment: int, partition: int) -> bool:
        """Whether a source partition that is over may say so."""
        return self.sources_may_end or (segment, partition) in self.end_early

    def quota(self, segment: int, partition: int) -> int:
        """Rows that the source partition may give for now, in all."""
        return self.quotas.get((segment, partition), UNLIMITED)

    # ------------------------------------------------------------ faults

    def _fault(self, text: str) -> None:
        for observer in self.observers:
            observer.fault(text)

    def lose_all(self) -> None:
        """The whole cluster is gone at once, the driver too."""
        self._fault("all is lost")
        self.lost = self.ended = True
        self.driver.die()
        self.clock.stop()

    def kill_driver(self) -> None:
        """The driver's process is gone. Sites go on until their lease is over, and reach nobody but each other."""
        self._fault("the driver is killed")
        self.lost = True
        self.driver.die()

    def kill(self, index: int, *, silently: bool = False) -> None:
        """The site's process is gone: connections end, and Spark notices too. silently: its machine is, and nothing says so."""
        site = self.sites[index]
        if not site.alive:
            return
        self._fault(f"kill site {index}{' silently' if silently else ''}")
        if silently:
            site.alive = False
            site.timers.clear()
            self.network.die(index, silently=True)
        else:
            site.end("it was killed")

    def site_ended(self, index: int, why: str) -> None:
        """The site's process has ended, by itself or not: its connections do."""
        self._fault(f"site {index} ends: {why}")
        self.network.die(index, silently=False)
        low, high = self.detection.link_us
        self.clock.after(self.random.randint(low, high), lambda: self.driver.lost_connection(index))
        low, high = self.detection.removed_us
        self.clock.after(self.random.randint(low, high), lambda: self.driver.executor_removed(index))

    def hang(self, index: int) -> None:
        """The site's process is stopped; its connections stay."""
        self._fault(f"hang site {index}")
        self.sites[index].hang()

    def go_on(self, index: int) -> None:
        """The hung site goes on, not knowing that any time has passed."""
        self._fault(f"site {index} goes on")
        self.sites[index].go_on()

    def slow_down(self, index: int, factor: float) -> None:
        """The site needs so many times as long for everything; 1 ends it."""
        self._fault(f"site {index} is {factor} times slower")
        self.sites[index].slow = factor

    def limit_memory(self, index: int, state_bytes: int | None) -> None:
        """From now on the site may hold so much state in memory; None: all of it."""
        self._fault(f"site {index} may hold {state_bytes} bytes of state in memory")
        self.sites[index].deliver(StateMemoryChanged(state_bytes))

    def drop_link(self, a: int, b: int, after_us: int | None = None) -> None:
        """Lose the connection between two sites, with what is under way."""
        self._fault(f"lose the link between {a} and {b}")
        self.network.lose(a, b, after_us=after_us)

    def cut(self, *wires: tuple[int, int]) -> None:
        """Nothing gets through from the first to the second of each pair, until healed."""
        self._fault(f"cut {wires}")
        for sender, receiver in wires:
            self.network.cut(sender, receiver)

    def heal(self, *wires: tuple[int, int]) -> None:
        self._fault(f"heal {wires}")
        for sender, receiver in wires:
            self.network.heal(sender, receiver)

    def cut_control(self, index: int, *, up: bool = True, down: bool = True) -> None:
        """The site and the coordinator do not hear each other, or one does not hear the other, until healed."""
        self._fault(f"cut site {index} from the coordinator (up {up}, down {down})")
        line = self.driver.lines[index]
        line.up.cut, line.down.cut = line.up.cut or up, line.down.cut or down

    def heal_control(self, index: int) -> None:
        self._fault(f"heal site {index} and the coordinator")
        line = self.driver.lines[index]
        line.heal(self.clock, line.up)
        line.heal(self.clock, line.down)

    def drop_control(self, index: int, seconds: float) -> None:
        """The site's connection to the coordinator breaks, which both see, and is there again after a while: nothing is lost."""
        self.cut_control(index)
        self.driver.lost_connection(index)

        def back() -> None:
            self.heal_control(index)
            if self.sites[index].alive:
                self.driver.connected_again(index)

        self.clock.after(int(seconds * 1e6), back)

    def pause_driver(self, seconds: float) -> None:
        """The coordinator and the sinks do nothing for a while."""
        self._fault(f"the driver pauses for {seconds} s")
        self.driver.pause()
        self.clock.after(int(seconds * 1e6), self.driver.go_on)

    def block_sinks(self, seconds: float) -> None:
        """The sinks fail, and are tried again, for a while."""
        self._fault(f"the sinks fail for {seconds} s")
        self.sink_blocked_until_us = max(self.sink_blocked_until_us, self.clock.now_us + int(seconds * 1e6))

    def slow_link(self, a: int, b: int, delay_us: int) -> None:
        """Messages between two sites take so much longer; 0 ends it."""
        self._fault(f"the link between {a} and {b} takes {delay_us} us longer")
        for pair in ((a, b), (b, a)):
            self.network.wires[pair].slow_us = delay_us

    @staticmethod
    def falls_on(places: set[tuple[int, int, int]], segment: int, partitions: Sequence[int], epoch: int) -> bool:
        """Whether one of these places is in what a site works on."""
        return bool(places) and any((segment, partition, epoch) in places for partition in partitions)

    def transfer_fate(self, copy: Copy) -> Fate:
        """What becomes of a transfer that begins now."""
        fate = self.transfer_fates.pop(0) if self.transfer_fates else "whole"
        if fate != "whole":
            self._fault(f"the transfer of copy {copy.number} is {fate}")
        return fate

    def _plan_next_drop(self) -> None:
        def drop() -> None:
            if not self.link.drop_every_us:
                return
            up = [pair for pair, connection in self.network.connections.items() if all(connection.open.get(end) for end in pair)]
            if up:
                self.drop_link(*self.random.choice(up))
            if self.link.drop_every_us:
                self._plan_next_drop()

        self.clock.after(int(self.random.expovariate(1.0) * self.link.drop_every_us) + 1, drop)

    # ------------------------------------------------------------ what the network asks and says

    def _answers(self, index: int) -> bool:
        return self.sites[index].alive and not self.sites[index].hung

    def _knows(self, index: int, peer: int) -> bool:
        """Whether they may still get a link: nobody who lives has dropped the other, or will not hear of it any more."""
        site = self.sites[index]
        return site.alive and peer in self.driver.present

    def _link_up(self, index: int, peer: int) -> None:
        self.sites[index].handle_peers(Connected(peer))

    def _link_down(self, index: int, peer: int) -> None:
        self.sites[index].handle_peers(Disconnected(peer))

    def _section(self, receiver: int, sender: int, section: object) -> None:
        self.sites[receiver].deliver(Heard(sender, section))  # type: ignore[arg-type]
