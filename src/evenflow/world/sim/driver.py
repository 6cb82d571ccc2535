"""The simulated Spark driver: the coordinator with its detector, what sites say to it, and the sinks. It can pause as a whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, KeysView
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final, assert_never

from evenflow.availability.entries import Completed
from evenflow.coordinator.collection import Begin, CalledOff, Collection, LookAgain, Whole
from evenflow.coordinator.detector import Beat, ControlLost, ExecutorRemoved, Spoke, Tick
from evenflow.coordinator.events import (
    Append,
    Collect,
    Collected,
    CoordinatorAction,
    CoordinatorEvent,
    Denied,
    Done,
    EndRun,
    EpochSeen,
    Happened,
    OpenEnds,
    ReadEntry,
    RunBroken,
    SiteLost,
    SiteReady,
    SiteSaid,
    Sweep,
    Tell,
    Waited,
    Wake,
)
from evenflow.coordinator.first_copy import FirstCopy, FirstPortions
from evenflow.coordinator.fleet import (
    BeginPart,
    Fleet,
    FleetEvent,
    Hello,
    LetAllGo,
    LetGo,
    Linked,
    Newcomer,
    Refuse,
    Resume,
    RunBegun,
    SendRoster,
    SetPace,
    SiteCame,
    SiteGone,
    TakeIn,
    TellRun,
)
from evenflow.coordinator.machine import RunMachine
from evenflow.coordinator.stored import Stored
from evenflow.errors import EvenflowError
from evenflow.exchange.portion import Portion, rows_of
from evenflow.exchange.section import Section
from evenflow.site.events import Event, Release
from evenflow.site.facts import Fact
from evenflow.site.peers import Talk
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SiteWindow
from evenflow.stream.ids import SiteId
from evenflow.world.sim.appending import SimJournal
from evenflow.world.sim.network import Line
from evenflow.world.sim.reading import ReadingSink

if TYPE_CHECKING:
    from evenflow.world.sim.site import SimSite
    from evenflow.world.sim.world import SimWorld

RUN: Final = 0
"""There is one run in a simulated world."""


class SimDriver:
    """machine: the run's. fleet: who is there, and what follows when that changes. sink_free_us: by egress segment, when its sink is idle
    again."""

    def __init__(self, world: SimWorld, machine: RunMachine, sites: int) -> None:
        self.world, self.machine = world, machine
        self.fleet = Fleet(sites, world.detection.patience)
        self.lines: dict[int, Line] = {}
        self.paused = self.dead = False
        self.sink_free_us: dict[int, int] = {}
        self._first: dict[int, FirstCopy] = {}
        self._first_portions: dict[int, FirstPortions] = {}
        self._uncommitted: dict[int, deque[Release]] = {}
        self._stored = Stored()
        self._reading: dict[int, ReadingSink] = {}
        self._closed: list[Release] = []
        self.journal = SimJournal(world.store, self.soon, self.coordinate)
        self._backlog: list[Callable[[], None]] = []
        self._reports = Random(f"reports of seed {world.seed}")
        self._hailing = -1

    # ------------------------------------------------------------ sites come and go

    @property
    def present(self) -> KeysView[int]:
        """Sites that are not dead."""
        return self.fleet.sites.keys()

    def start(self, sites: int, start_us: tuple[int, int]) -> None:
        """The first sites have said hello and are linked; they build their parts of the run."""
        now_us = self.world.clock.now_us
        for index in range(sites):
            self.lines[index] = Line()
            begun: tuple[FleetEvent, ...] = (Hello(self._newcomer(index), now_us), Linked(index, sites))
            for event in begun:
                list(self.fleet.handle(event))
        list(self.fleet.handle(RunBegun(RUN, self.machine.layout.name, self.machine, now_us)))
        for index in range(sites):
            self._ready_later(index, start_us)

    def _ready_later(self, index: int, after_us: tuple[int, int]) -> None:
        """One of the first sites has built its part after a while, at once if that is none."""
        if after_us == (0, 0):
            self.coordinate(SiteReady(SiteId(index)))
            return
        site = self.world.sites[index]
        ready = lambda: self.hear_later(site, lambda: self.take_ready(index)) if site.alive else None  # noqa: E731
        self.world.clock.after(self._reports.randint(*after_us), ready)

    def welcome(self, site: SimSite) -> None:
        """One site more says hello."""
        self.lines[site.index] = Line()
        self.fleet.wanted = max(self.fleet.wanted, len(self.present) + 1)
        self._hailing = site.index
        self.observe(Hello(self._newcomer(site.index), self.world.clock.now_us))

    def _newcomer(self, index: int) -> Newcomer:
        return Newcomer(job=index, identity=f"executor {index}", incarnation=f"life {index}")

    def observe(self, event: FleetEvent) -> None:
        """Give the fleet an event and carry out what follows, one after the other."""
        sites = self.world.sites
        for action in self.fleet.handle(event):
            match action:
                case SendRoster(number, there):
                    for index in there:
                        self._by_line(index, lambda i=index: sites[i].set_roster(number, there))  # type: ignore[misc]
                case LetGo(index, why):
                    self._by_line(index, lambda i=index, w=why: sites[i].leave(w))  # type: ignore[misc]
                case BeginPart(_, index):
                    part = self.world.make_part(index)
                    self._by_line(index, lambda i=index, p=part: sites[i].begin(p))  # type: ignore[misc]
                    self.world.pushing.tell(index)
                case TellRun(_, SiteLost() as lost):
                    self.coordinate(replace(lost, doing=sites[lost.site].doing()))
                case TellRun(_, told):
                    self.coordinate(told)
                case Refuse(why):
                    self._by_line(self._hailing, lambda i=self._hailing, w=why: sites[i].leave(w))  # type: ignore[misc]
                case TakeIn(index):
                    assert index == self._hailing, "sites are numbered as they come"
                case Resume() | SiteCame() | SiteGone() | SetPace() | LetAllGo():
                    pass  # A line carries on by itself; nobody waits for sites in a thread of his own; there is one pace, and one run.
                case _:
                    assert_never(action)

    def take_ready(self, index: int) -> None:
        """A site has built its part."""
        if index in self.present:  # Else it has gone meanwhile: who is dead does not join.
            self.coordinate(SiteReady(SiteId(index)))

    def tick(self) -> None:
        """Time passes for the detector, and everybody hears that the driver lives."""
        if self.world.ended or self.dead:
            return
        self.world.clock.after(self.world.detection.patience.beat_us, self.tick)
        if self.paused:
            return
        self.observe(Tick(self.world.clock.now_us))
        now_us = self.world.clock.now_us
        for index in self.present:
            if not self.lines[index].down.cut:
                self.world.sites[index].heard_driver_us = now_us

    def lost_connection(self, index: int) -> None:
        self.soon(lambda: self.observe(ControlLost(index, self.world.clock.now_us)))

    def connected_again(self, index: int) -> None:
        def hail() -> None:
            self._hailing = index
            self.observe(Hello(self._newcomer(index), self.world.clock.now_us, index))

        self.soon(hail)

    def executor_removed(self, index: int) -> None:
        self.soon(lambda: self.observe(ExecutorRemoved(index, self.world.clock.now_us)))

    # ------------------------------------------------------------ what is said

    def soon(self, do: Callable[[], None]) -> None:
        """Now, or when the driver goes on."""
        if self.paused:
            self._backlog.append(do)
        elif not self.dead:
            do()

    def hear_later(self, site: SimSite, do: Callable[[], None]) -> None:
        """What a site says arrives after a while, in order."""
        line = self.lines[site.index]
        line.carry(self.world.clock, line.up, self.world.link.draw_delay(self.world.random), lambda: self.soon(do))

    def hear(self, index: int, fact: Fact) -> None:
        self._spoke(index)
        self.coordinate(SiteSaid(SiteId(index), fact))

    def hear_broken(self, site: SimSite, error: EvenflowError) -> None:
        """A reader has raised that."""
        self.hear_later(site, lambda: self.coordinate(RunBroken(error)) if site.index in self.present else None)

    def take_linked(self, index: int, roster: int) -> None:
        self._spoke(index)
        self.observe(Linked(index, roster))

    def _spoke(self, index: int) -> None:
        if index in self.present:
            self.observe(Spoke(index, self.world.clock.now_us))

    def take_beat(self, index: int, accused: tuple[int, ...], closed: int) -> None:
        if index in self.present:
            self.coordinate(EpochSeen(closed))
            self.observe(Beat(index, self.world.clock.now_us, accused))

    def pass_on(self, sender: int, peer: int, talk: Talk, section: Section | None) -> None:
        """What a site says to a peer for want of a link."""
        self._spoke(sender)
        if sender in self.present and peer in self.present:
            self._by_line(peer, lambda: self.world.sites[peer].hear_relayed(sender, talk, section))

    def die(self) -> None:
        """Its process is gone: it says, hears and stores nothing any more."""
        self.dead = True
        self._backlog.clear()

    def pause(self) -> None:
        self.paused = True

    def go_on(self) -> None:
        self.paused = False
        backlog, self._backlog = self._backlog, []
        # The clock is looked at before what has waited is read.
        self.observe(Tick(self.world.clock.now_us))
        for do in backlog:
            self.soon(do)

    # ------------------------------------------------------------ the coordinator's machine

    def coordinate(self, event: CoordinatorEvent) -> None:
        over = self.machine.over
        actions = self.machine.handle(event)
        assert not (over and actions), f"the run is over, and {event} makes the coordinator ask for {actions}"
        for action in actions:
            self._obey(action)
        for observer in self.world.observers:
            observer.coordinated(self, event, actions)

    def _obey(self, action: CoordinatorAction) -> None:
        world = self.world
        match action:
            case Tell(site, message):
                for each in (message, *self._stored.behind(site, message)):
                    self.tell(site, each)
            case Wake(after_ms, pause):
                world.clock.after(int(after_ms * 1000), lambda: self.soon(lambda: self.coordinate(Waited(pause))))
            case Collect(for_us):
                self._collect(for_us)
            case Happened():
                world.happened.append((world.clock.now_us, action))
            case Done() | Denied():
                world.answers[action.request] = action
            case Append(entry):
                if isinstance(entry.matter, Completed):
                    entry = replace(entry, matter=replace(entry.matter, lasts=world.lasting.lasts(entry.matter.epoch)))
                self.journal.obey(Append(entry))
            case ReadEntry() | Sweep():
                self.journal.obey(action)
            case OpenEnds(epoch):
                self._open_ends(epoch)
            case EndRun(error):
                world.error, world.ended = error, True
            case _:
                assert_never(action)

    def _collect(self, for_us: int) -> None:
        """The sites' windows from now on; what came before is forgotten. Reports cost nothing, but may be on their way for a while
        (`report_us`): what they say may be over when they come."""
        world, collection = self.world, Collection(self.machine, for_us)
        windows: list[SiteWindow] = []

        def look() -> None:
            now_us = world.clock.now_us
            if collection.has_begun:
                windows.extend(
                    site.reporting.window() for site in world.sites if site.alive and not site.hung and site.index in self.present
                )
            match collection.look(now_us, 0, {window.site for window in windows}):
                case Begin(after_us):
                    for site in world.sites:
                        site.reporting.begin()
                    world.clock.after(after_us, look)
                case LookAgain(after_us):
                    world.clock.after(after_us, look)
                case Whole(begun_us):
                    report = Collected(Statistics.of(windows), begun_us, now_us)
                    late_us = self._reports.randint(*world.report_us)
                    if late_us:
                        world.clock.after(late_us, lambda: self.soon(lambda: self.coordinate(report)))
                    else:
                        self.soon(lambda: self.coordinate(report))
                case CalledOff():
                    pass
                case step:
                    assert_never(step)

        look()

    def tell(self, index: int, message: Event) -> None:
        self._by_line(index, lambda: self.world.sites[index].deliver(message))

    def say(self, index: int, arrive: Callable[[], None]) -> None:
        """What a site hears from the driver beside its machine's words, in order with them."""
        self._by_line(index, arrive)

    def _by_line(self, index: int, arrive: Callable[[], None]) -> None:
        line = self.lines[index]
        line.carry(self.world.clock, line.down, self.world.link.draw_delay(self.world.random), arrive)

    # ------------------------------------------------------------ sinks

    def take_release(self, index: int, release: Release) -> None:
        """The first copy of an epoch counts, or of a partition's portion of one (O1)."""
        if self.world.ended:
            return
        if release.portion is not None:
            self._take_portion(index, release, release.portion)
            return
        if self.world.sink.reads:
            self._reader(release.segment).hold(index, release)
        accepted = self.accepts(index, release)
        for observer in self.world.observers:
            observer.release_came(index, release, accepted)
        if not accepted:
            return
        self._let_out(index, release)

    def _take_portion(self, index: int, release: Release, portion: Portion) -> None:
        first = self._first_portions.setdefault(release.segment, FirstPortions())
        fresh = first.accept(portion.stream, portion.producers, release.epoch) if index in self.present else ()
        for observer in self.world.observers:
            observer.portion_came(index, release, fresh)
        if fresh:
            self._let_out(index, replace(release, batch=rows_of(release.batch, fresh), portion=Portion(portion.stream, fresh)))

    def _let_out(self, index: int, release: Release) -> None:
        world = self.world
        if release.batch.num_rows:
            world.sites[index].reporting.latencies_us.append(world.clock.now_us - release.opened)
        durable = self.machine.durable
        if durable is not None and release.epoch > durable:
            self._closed.append(release)
        else:
            self._hand_over(release)

    def _open_ends(self, epoch: int) -> None:
        """Sinks may take the epochs up to this one (J3)."""
        closed, self._closed = self._closed, []
        for release in closed:
            if release.epoch <= epoch:
                self._hand_over(release)
            else:
                self._closed.append(release)

    def _hand_over(self, release: Release) -> None:
        """A sink takes an epoch."""
        world, segment = self.world, release.segment
        if release.sink in world.outlets:
            world.outlets[release.sink].take(release)
            return
        if world.sink.reads:
            self._reader(segment).take(release)
            return
        self.sink_free_us[segment] = max(self.sink_free_us.get(segment, 0), world.clock.now_us) + world.random.randint(*world.sink.delay_us)
        self._uncommitted.setdefault(segment, deque()).append(release)
        world.clock.at(self.sink_free_us[segment], lambda: self._commit_next(segment))

    def _reader(self, segment: int) -> ReadingSink:
        if segment not in self._reading:
            self._reading[segment] = ReadingSink(self.world, segment)
        return self._reading[segment]

    def accepts(self, index: int, release: Release) -> bool:
        return index in self.present and self._first.setdefault(release.segment, FirstCopy()).accept(release.epoch)

    def newest(self, segment: int) -> int:
        """The last epoch of an egress segment of which a copy has come."""
        return self._first[segment].newest if segment in self._first else 0

    def _commit_next(self, segment: int) -> None:
        world = self.world
        if self.dead:
            return
        if world.sink_blocked_until_us > world.clock.now_us:
            world.clock.at(world.sink_blocked_until_us, lambda: self._commit_next(segment))
            return
        release = self._uncommitted[segment].popleft()
        if release.portion is not None:
            self._store_portion(release, release.portion)
            return
        self.store(release)
        self.soon(lambda: self.say_committed(segment, release.epoch))

    def _store_portion(self, release: Release, portion: Portion) -> None:
        """A sink has these partitions' rows of an epoch for good."""
        world = self.world
        stored = world.lasting.store_portion(release.sink, release.epoch, portion, release.batch)
        if stored:
            world.latencies_us.append(world.clock.now_us - release.opened)
        for observer in world.observers:
            observer.portion_stored(release, stored)

    def store(self, release: Release) -> None:
        """A sink has this epoch for good."""
        world = self.world
        if self.dead:
            return
        if world.layout.segments[release.segment].unordered:
            release = replace(release, batch=world.lasting.whole(release.sink, release.epoch, release.batch))
        new = world.lasting.store(release.sink, release.epoch, release.batch)
        if new and release.batch.num_rows:
            world.latencies_us.append(world.clock.now_us - release.opened)
        for observer in world.observers:
            observer.committed(release)

    def say_committed(self, segment: int, epoch: int) -> None:
        for host, said in self._stored.note(self.machine.plan, segment, epoch):
            if host in self.present:
                self.tell(host, said)

    def hosts(self, segment: int) -> list[int]:
        """Sites that hold what a sink has not stored yet."""
        return [host for host in self.machine.plan.hosts(segment) if host in self.present]
