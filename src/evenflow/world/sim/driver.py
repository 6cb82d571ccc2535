"""The simulated Spark driver: the coordinator with its detector, what sites say to it, and the sinks. It can pause as a whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from evenflow.coordinator.detector import (
    Beat,
    ControlBack,
    ControlLost,
    Detector,
    DetectorEvent,
    ExecutorRemoved,
    Joined,
    Spoke,
    Tick,
)
from evenflow.coordinator.events import (
    Collect,
    Collected,
    CoordinatorAction,
    CoordinatorEvent,
    EndRun,
    EpochSeen,
    Happened,
    SiteLost,
    SiteReady,
    SiteSaid,
    Tell,
    Waited,
    Wake,
)
from evenflow.coordinator.machine import RunMachine
from evenflow.exchange.section import Section
from evenflow.site.events import Event, Fact, Release, SinkCommitted
from evenflow.statistics.window import Statistics
from evenflow.world.sim.network import Line
from evenflow.world.sim.reading import ReadingSink

if TYPE_CHECKING:
    from evenflow.world.sim.site import SimSite
    from evenflow.world.sim.world import SimWorld


class SimDriver:
    """machine: the run's. present: sites that are not dead, the roster. sink_free_us: by egress segment, when its sink is idle again."""

    def __init__(self, world: SimWorld, machine: RunMachine) -> None:
        self.world, self.machine = world, machine
        self.detector = Detector(world.detection.patience, machine.view.vital)
        self.present: set[int] = set()
        self.lines: dict[int, Line] = {}
        self.paused = False
        self.sink_free_us: dict[int, int] = {}
        self.first_copies: dict[int, int] = {}
        self._uncommitted: dict[int, deque[Release]] = {}
        self._reading: dict[int, ReadingSink] = {}
        self._backlog: list[Callable[[], None]] = []
        self._reports = Random(f"reports of seed {world.seed}")
        self._building: set[int] = set()

    # ------------------------------------------------------------ sites come and go

    def welcome(self, site: SimSite) -> None:
        """A site says hello: everybody gets a roster with it."""
        self.lines[site.index] = Line()
        self.present.add(site.index)
        self._observe(Joined(site.index, self.world.clock.now_us))

    def send_roster(self) -> None:
        roster = set(self.present)
        for index in sorted(roster):
            self._by_line(index, lambda i=index: self.world.sites[i].set_roster(roster))  # type: ignore[misc]

    def begin(self, index: int) -> None:
        """The newcomer builds its part; it says so, once it is linked to its peers or has waited long enough for that."""
        self._building.add(index)
        tries = 0

        def look() -> None:
            nonlocal tries
            site = self.world.sites[index]
            if not site.alive or index not in self.present:
                return
            tries += 1
            linked = all(self.world.network.is_open(index, peer) for peer in self.present if peer != index)
            if (linked or tries > 40) and not site.hung:
                self.hear_later(site, lambda: self._ready(index))
            else:
                self.world.clock.after(5_000, look)

        self.world.clock.after(self.world.random.randint(*self.world.detection.ready_us), look)

    def _ready(self, index: int) -> None:
        if index in self.present:  # Else it has gone meanwhile: who is dead does not join.
            self.coordinate(SiteReady(index))

    def tick(self) -> None:
        """Time passes for the detector, and everybody hears that the driver lives."""
        if self.world.ended:
            return
        self.world.clock.after(self.world.detection.patience.beat_us, self.tick)
        if self.paused:
            return
        self._observe(Tick(self.world.clock.now_us))
        now_us = self.world.clock.now_us
        for index in self.present:
            if not self.lines[index].down.cut:
                self.world.sites[index].heard_driver_us = now_us

    def lost_connection(self, index: int) -> None:
        self.soon(lambda: self._observe(ControlLost(index, self.world.clock.now_us)))

    def connected_again(self, index: int) -> None:
        self.soon(lambda: self._observe(ControlBack(index, self.world.clock.now_us)))

    def executor_removed(self, index: int) -> None:
        self.soon(lambda: self._observe(ExecutorRemoved(index, self.world.clock.now_us)))

    def _observe(self, event: DetectorEvent) -> None:
        for verdict in self.detector.handle(event):
            self._dismiss(verdict.site, verdict.why)

    def let_go(self, index: int) -> None:
        """A site that has been emptied goes as planned: what follows is what follows on a death (decision 22)."""
        self.detector.forget(index)
        self._dismiss(index, "it was drained", planned=True)

    def _dismiss(self, index: int, why: str, *, planned: bool = False) -> None:
        """It is gone, for ever: it is told to leave, the others get a roster without it, then the run hears of it (V1)."""
        self.present.discard(index)
        told = why if planned else "it has been declared dead"
        self._by_line(index, lambda: self.world.sites[index].leave(told))
        self.send_roster()
        self.coordinate(SiteLost(index, why, planned, self.world.sites[index].doing()))

    # ------------------------------------------------------------ what is said

    def soon(self, do: Callable[[], None]) -> None:
        """Now, or when the driver goes on."""
        if self.paused:
            self._backlog.append(do)
        elif not self.world.ended:
            do()

    def hear_later(self, site: SimSite, do: Callable[[], None]) -> None:
        """What a site says arrives after a while, in order."""
        line = self.lines[site.index]
        line.carry(self.world.clock, line.up, self.world.link.draw_delay(self.world.random), lambda: self.soon(do))

    def hear(self, index: int, fact: Fact) -> None:
        self._spoke(index)
        self.coordinate(SiteSaid(index, fact))

    def _spoke(self, index: int) -> None:
        if index in self.present:
            self._observe(Spoke(index, self.world.clock.now_us))

    def take_beat(self, index: int, accused: tuple[int, ...], closed: int) -> None:
        if index in self.present:
            self.coordinate(EpochSeen(closed))
            self._observe(Beat(index, self.world.clock.now_us, accused))

    def pass_on(self, sender: int, peer: int, section: Section | None) -> None:
        """What a site says to a peer for want of a link."""
        self._spoke(sender)
        if sender in self.present and peer in self.present:
            self._by_line(peer, lambda: self.world.sites[peer].hear_relayed(sender, section))

    def pause(self) -> None:
        self.paused = True

    def go_on(self) -> None:
        self.paused = False
        backlog, self._backlog = self._backlog, []
        # The clock is looked at before what has waited is read.
        self._observe(Tick(self.world.clock.now_us))
        for do in backlog:
            self.soon(do)

    # ------------------------------------------------------------ the coordinator's machine

    def coordinate(self, event: CoordinatorEvent) -> None:
        if self.world.ended:
            return
        actions = self.machine.handle(event)
        for action in actions:
            self._obey(action)
        for observer in self.world.observers:
            observer.coordinated(self, event, actions)

    def _obey(self, action: CoordinatorAction) -> None:
        world = self.world
        match action:
            case Tell(site, message):
                self.tell(site, message)
            case Wake(after_ms, pause):
                world.clock.after(int(after_ms * 1000), lambda: self.soon(lambda: self.coordinate(Waited(pause))))
            case Collect(for_us):
                self._collect(for_us)
            case Happened():
                world.happened.append((world.clock.now_us, action))
            case EndRun(error):
                world.error, world.ended = error, True

    def _collect(self, for_us: int) -> None:
        """The sites' windows from now on; what came before is forgotten. Reports cost nothing, but may be on their way for a while
        (`report_us`): what they say may be over when they come."""
        world, begun_us = self.world, self.world.clock.now_us
        for site in world.sites:
            site.window()

        def collected() -> None:
            windows = [site.window() for site in world.sites if site.alive and not site.hung and site.index in self.present]
            report = Collected(Statistics.of(windows), begun_us, world.clock.now_us)
            late_us = self._reports.randint(*world.report_us)
            if late_us:
                world.clock.after(late_us, lambda: self.soon(lambda: self.coordinate(report)))
            else:
                self.soon(lambda: self.coordinate(report))

        world.clock.after(for_us, collected)

    def tell(self, index: int, message: Event) -> None:
        self._by_line(index, lambda: self.world.sites[index].deliver(message))

    def _by_line(self, index: int, arrive: Callable[[], None]) -> None:
        line = self.lines[index]
        line.carry(self.world.clock, line.down, self.world.link.draw_delay(self.world.random), arrive)

    # ------------------------------------------------------------ sinks

    def take_release(self, index: int, release: Release) -> None:
        """The first copy of an epoch counts (O1)."""
        accepted = self.accepts(index, release)
        for observer in self.world.observers:
            observer.release_came(index, release, accepted)
        if not accepted:
            return
        world, segment = self.world, release.segment
        if release.batch.num_rows:
            world.sites[index].latencies_us.append(world.clock.now_us - release.opened)
        self.first_copies[segment] = release.epoch
        if world.sink.reads:
            self._reading.setdefault(segment, ReadingSink(world, segment)).take(release)
            return
        self.sink_free_us[segment] = max(self.sink_free_us.get(segment, 0), world.clock.now_us) + world.random.randint(*world.sink.delay_us)
        self._uncommitted.setdefault(segment, deque()).append(release)
        world.clock.at(self.sink_free_us[segment], lambda: self._commit_next(segment))

    def accepts(self, index: int, release: Release) -> bool:
        return index in self.present and release.epoch > self.first_copies.get(release.segment, 0)

    def _commit_next(self, segment: int) -> None:
        world = self.world
        if world.sink_blocked_until_us > world.clock.now_us:
            world.clock.at(world.sink_blocked_until_us, lambda: self._commit_next(segment))
            return
        release = self._uncommitted[segment].popleft()
        self.store(release)
        self.soon(lambda: self.say_committed(segment, release.epoch))

    def store(self, release: Release) -> None:
        """A sink has this epoch for good."""
        world = self.world
        world.released[release.sink].append((release.epoch, release.batch))
        if release.batch.num_rows:
            world.latencies_us.append(world.clock.now_us - release.opened)
        for observer in world.observers:
            observer.committed(release)

    def say_committed(self, segment: int, epoch: int) -> None:
        for host in self.hosts(segment):
            self.tell(host, SinkCommitted(segment, epoch))

    def hosts(self, segment: int) -> list[int]:
        """Sites that hold what a sink has not stored yet."""
        return [host for host in self.machine.plan.hosts(segment) if host in self.present]
