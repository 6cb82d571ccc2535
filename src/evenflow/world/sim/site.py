"""A simulated site: one processor, a part, timers, sources; it can be slow, hang, and die.

A hung site does nothing, like a stopped process: its connections stay, what comes waits, and all of it is handled when it goes on, whatever
the others have decided about it meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, assert_never

from evenflow.errors import SourceError
from evenflow.exchange.section import Section
from evenflow.site.events import (
    Action,
    BatchDone,
    CloseSource,
    DrainRequested,
    Event,
    Heard,
    Leave,
    LinkDown,
    LinkUp,
    Load,
    Meet,
    OpenSource,
    PartTaken,
    Release,
    RestoreState,
    RowsArrived,
    Run,
    SetTimer,
    Ship,
    SourceEnded,
    Spill,
    Stored,
    StoreState,
    TellCoordinator,
    TimerFired,
    WorkDone,
)
from evenflow.site.facts import PartFailed
from evenflow.site.given import EpochsGiven
from evenflow.site.hosted import Work
from evenflow.site.images import Hasten, OpenImage, PasteCapture
from evenflow.site.kept_rows import ReadRows, StoreRows
from evenflow.site.machine import SiteMachine
from evenflow.site.outcome import Outcome
from evenflow.site.overdue import Overdue, Running
from evenflow.site.peers import (
    AskDriver,
    BeatDue,
    BroughtByDriver,
    CloseLink,
    Connected,
    PeerEvent,
    Peers,
    ReportGarbled,
    RosterChanged,
    SayAlive,
    Talk,
    TellDown,
    TellLinked,
    TellUp,
)
from evenflow.site.staging import Attempt
from evenflow.sources.source import place
from evenflow.stream.ids import SiteId
from evenflow.stream.weight import read_names
from evenflow.world.sim.choosing import Choosing
from evenflow.world.sim.disk import SimDisk
from evenflow.world.sim.forgetting import what_is_left
from evenflow.world.sim.pushing import PushedHere
from evenflow.world.sim.reporting import Reporting, boxes_us_of
from evenflow.world.sim.shipping import SimShipping
from evenflow.world.sim.storing import SimStoring

if TYPE_CHECKING:
    from evenflow.world.sim.world import SimWorld

FLUSH_US = 20
"""A loop tick: events that come within it share one message per peer."""


def always() -> bool:
    return True


class SimSite:
    """See the module. alive: it runs. hung: it does nothing for now. peers: whom it can talk with. begun: it has a part. slow: how
    many times slower it is.

    busy_us: processor time used so far, and that of what waits for the processor. coming: by partition, rows that its reader has given and
    the part has not.
    """

    def __init__(self, world: SimWorld, part: SiteMachine, index: int) -> None:
        self.world, self.part, self.index = world, part, index
        self.alive, self.hung, self.slow = True, False, 1.0
        self.peers = Peers(index)
        self.begun, self._roster = False, 0
        self.timers: dict[str, int] = {}
        self.free_at_us = self.busy_us = 0
        self.heard_driver_us = world.clock.now_us
        self.pushed = PushedHere(self)
        self.disk = SimDisk(world.disk, world.clock, Random(f"disk of site {index}, seed {world.seed}"))
        self.storing = SimStoring(self, world.store, Random(f"store of site {index}, seed {world.seed}"), world.link.pack_us)
        self.shipping = SimShipping(self, world)
        self.reporting = Reporting(self, world.clock)
        self._flush_due = False
        self._given: dict[int, tuple[Work, int]] = {}
        self._overdue = Overdue(world.options.user_timeout_s)
        self._backlog: list[Callable[[], None]] = []
        self._events: deque[tuple[Event, Callable[[], bool]]] = deque()
        self.choosing = Choosing(self, world.layout, world.clock, self._begin_work)
        self.readers: dict[tuple[int, int], Any] = {}
        self.coming: dict[tuple[int, int], int] = {}

    def __repr__(self) -> str:
        return f"{self.part} ({'dead' if not self.alive else 'hung' if self.hung else 'alive'})"

    def doing(self) -> tuple[tuple[int, int], ...]:
        """(segment, epoch) of the user code that it is running, or was when it died."""
        return tuple((work.segment, work.tick.epoch) for work, _ in self._given.values() if work.calls)

    # ------------------------------------------------------------ events and actions

    def deliver(self, event: Event, wanted: Callable[[], bool] = always) -> None:
        """Let the part handle the event when the processor is free, after all that came before, if it is still wanted then."""
        if not self.begun:
            return  # There is nothing yet that wants to know.
        self._events.append((event, wanted))
        self._take_turn()

    def _take_turn(self) -> None:
        world = self.world
        start = max(world.clock.now_us, self.free_at_us)
        cost_us = int(world.cost.event_us * self.slow)
        self.busy_us += cost_us
        self.free_at_us = start + cost_us
        world.clock.at(start, self._handle_next)

    def _handle_next(self) -> None:
        """Whatever has waited longest, since a turn that came while the site hung is taken later."""
        if self.world.ended or not self.alive:
            return
        if self.hung:
            self._backlog.append(self._take_turn)
            return
        event, wanted = self._events.popleft()
        if wanted():
            self._handle(event)

    def _handle(self, event: Event) -> None:
        world = self.world
        for observer in world.observers:
            observer.before_handled(self, event)
        for action in self.part.handle(event, world.clock.now_us):
            self._carry_out(action)
        if isinstance(event, DrainRequested):
            self.pushed.close_all()
        if not self._flush_due:
            self._flush_due = True
            world.clock.after(FLUSH_US, self._flush)
        for observer in world.observers:
            observer.handled(self, event)

    def _flush(self) -> None:
        if not self.alive:
            return
        if self.hung:
            self._backlog.append(self._flush)
            return
        self._flush_due = False
        for said in self.part.flush(self.world.clock.now_us):
            self._say(said.peer, said.section)

    def _carry_out(self, action: Action) -> None:
        world = self.world
        match action:
            case Run(work):
                self.choosing.put(work)
            case SetTimer(name, at_us):
                self.timers[name] = at_us
                world.clock.at(at_us, lambda: self._fire(name, at_us))
            case TellCoordinator(fact):
                world.driver.hear_later(self, lambda: world.driver.hear(self.index, fact))
            case Release():
                world.driver.hear_later(self, lambda: world.driver.take_release(self.index, action))
            case Stored(_, opened):
                self.reporting.latencies_us += [world.clock.now_us - opened_us for opened_us in opened]
                world.latencies_us += [world.clock.now_us - opened_us for opened_us in opened]
            case OpenSource():
                self.open_source(action)
            case Meet(segment, names):
                for place_of, reader in self.readers.items():
                    if place_of[0] == segment:
                        reader.meet(names)
            case CloseSource(segment, partition):
                self.readers.pop((segment, partition), None)
                self.pushed.close((segment, partition))
            case Spill():
                self.disk.write(self, action)
            case Load():
                self.disk.read(self, action)
            case StoreState() | RestoreState() | PartTaken() | StoreRows() | ReadRows():
                self.storing.ask(action)
            case Leave(why):
                self.end(why)
            case Ship() | PasteCapture() | OpenImage() | Hasten():
                self.shipping.ask(action)
            case _:
                assert_never(action)

    def _begin_work(self, work: Work) -> None:
        world = self.world
        self._given[id(work)] = work, world.clock.now_us
        cost_us = int(self.slow * world.cost.factor(self.index) * world.cost.epoch_us(work.hosted.segment.kind, work.rows))
        self.busy_us += cost_us
        self.free_at_us = max(world.clock.now_us, self.free_at_us) + cost_us
        world.clock.at(self.free_at_us, lambda: self._work(work, cost_us))

    def _work(self, work: Work, cost_us: int) -> None:
        world = self.world
        if not self.alive or world.ended:
            return
        if self.hung:
            self._backlog.append(lambda: self._work(work, cost_us))
            return
        place = work.segment, work.hosted.partitions, work.tick.epoch
        if work.calls and world.falls_on(world.deadly, *place):
            self.end("user code has ended its process")
            return
        if work.calls and world.falls_on(world.endless, *place):
            return
        del self._given[id(work)]
        before, outcome = tuple(work.hosted.tally.rows_in) if world.cost.boxes else (), work.run()
        if world.failing is not None and outcome.error is None and work.segment == world.failing[0]:
            outcome = spoiled(outcome, world.failing[1])
        boxes_us = boxes_us_of(work.hosted, before, world.cost, self.slow * world.cost.factor(self.index)) if before else 0
        self.part.counting.spent(work.segment, cost_us + boxes_us)
        for observer in world.observers:
            observer.worked(self, work, outcome)
        if not boxes_us:
            self._handle(WorkDone(outcome))
            return
        self.busy_us += boxes_us
        self.free_at_us = max(world.clock.now_us, self.free_at_us) + boxes_us
        world.clock.at(self.free_at_us, lambda: self._handle(WorkDone(outcome)))

    def _fire(self, name: Any, at_us: int) -> None:
        if self.alive and self.timers.get(name) == at_us:
            del self.timers[name]
            self.deliver(TimerFired(name))

    # ------------------------------------------------------------ beside the loop

    def beside(self, do: Callable[[], None]) -> None:
        """Something that is done beside the loop: now, or when it goes on if it hangs; never if it is dead, or the run is over."""
        if self.hung:
            self._backlog.append(lambda: self.beside(do))
        elif self.alive and not self.world.ended:
            do()

    # ------------------------------------------------------------ sources

    def open_source(self, action: OpenSource) -> None:
        world = self.world
        segment = world.layout.segments[action.segment]
        name = segment.source or ""
        source = world.layout.sources[name]
        if self.pushed.parks(action, source):
            return
        if source.pushed:
            self.pushed.open(action, name, source.schema)
            return
        names = read_names(segment.schema.names, source.schema)
        reader = place(source.open_for(action.partition, segment.partitions, names), action.rows, action.through, action.end)
        reader = what_is_left(reader, action, name, world.lasting.kept)
        reader.reach(world.way)
        if came := self.part.view.plan.came(action.segment):
            reader.meet(came)
        self.readers[action.segment, action.partition] = reader
        world.clock.after(world.random.randint(0, 500), lambda: self._poll(action.segment, action.partition, reader, action.rows))

    def _bring(self, rows: RowsArrived, reader: Any) -> None:
        """What a reader has given comes to the part when the processor is free. On executors one loop does both: no look falls between."""
        key, count = (rows.segment, rows.partition), rows.batch.num_rows
        self.coming[key] = self.coming.get(key, 0) + count

        def comes() -> bool:
            self.coming[key] -= count
            return self._comes(*key, reader)

        self.deliver(rows, comes)

    def _reads(self, segment: int, partition: int, reader: Any) -> bool:
        """It is still the reader of that partition here."""
        return self.readers.get((segment, partition)) is reader

    def _comes(self, segment: int, partition: int, reader: Any) -> bool:
        """What it has given still reaches the part, though it may have been closed since; not if another one reads in its place."""
        return self.readers.get((segment, partition), reader) is reader

    def _poll(self, segment: int, partition: int, reader: Any, at: int) -> None:
        """at: rows of the source that are behind the reader."""
        world = self.world
        if not self.alive or world.ended or not self._reads(segment, partition, reader):
            return
        room = 0 if self.hung else min(self.part.room(segment, partition), world.quota(segment, partition) - at)
        if room > 0:
            waiting = reader.waiting(world.clock.now_us) if self.part.ingress.reflex.covers(segment) else None
            due_us, before = None if waiting is None else waiting.since_us, reader.batch
            try:
                batch = reader.read(world.clock.now_us, min(room, world.random.randint(1, world.read_rows)))
            except SourceError as error:
                world.driver.hear_broken(self, error)
                return
            if batch is not None and batch.num_rows:
                at += batch.num_rows
                self._bring(RowsArrived(segment, partition, batch, due_us=due_us), reader)
            if reader.complete and not reader.ended:
                self.deliver(EpochsGiven(segment, partition, reader.complete), lambda: self._comes(segment, partition, reader))
            if reader.batch > before:
                self.deliver(BatchDone(segment, partition, reader.batch), lambda: self._comes(segment, partition, reader))
        if reader.ended and world.may_end(segment, partition) and not self.hung:
            self.deliver(SourceEnded(segment, partition), lambda: self._comes(segment, partition, reader))
            return
        wake = world.clock.now_us + world.random.randint(*world.read_every_us)
        if room > 0 and reader.wake_us is not None:
            wake = reader.wake_us
        elif room <= 0 or reader.ended:
            wake += 500
        world.clock.at(wake, lambda: self._poll(segment, partition, reader, at))

    # ------------------------------------------------------------ Spark's tasks

    def hear_pushed(self, source: str, batch: int, ended: bool) -> None:
        """The driver says that all batches up to this one are whole, and whether the source has ended."""
        if self.hung:
            self._backlog.append(lambda: self.hear_pushed(source, batch, ended))
        elif self.alive:
            self.pushed.hear(source, batch, ended)

    def take_push(self, key: tuple[int, int], attempt: Attempt, answer: Callable[[], None], gone: Callable[[], None]) -> None:
        """A task of Spark has pushed all its rows here. gone: it is told that nobody takes them here."""
        if self.hung:
            self._backlog.append(lambda: self.take_push(key, attempt, answer, gone))
        elif self.alive:
            self.pushed.take(key, attempt, answer, gone)

    # ------------------------------------------------------------ life signs

    def beat(self) -> None:
        """Say that it lives, and which peers do not seem to; give up links that are silent; end when the lease is over (V3)."""
        world, network = self.world, self.world.network
        if not self.alive or world.ended:
            return
        patience = world.detection.patience
        world.clock.after(patience.beat_us, self.beat)
        if self.hung:
            return
        now_us = world.clock.now_us
        if now_us - self.heard_driver_us > patience.lease_us:
            self.end("its lease is over")
            return
        if patience.votes:  # Else sites do not beat, as on Spark where there are no replicas: only the links themselves tell.
            self.handle_peers(BeatDue(network.traffic(self.index)))
        beside = [Running(work, since_us / 1e6, str) for work, since_us in self._given.values() if work.calls]
        for fact in self._overdue.look(beside[0] if beside else None, now_us / 1e6):
            self._carry_out(TellCoordinator(fact))
        self._tell_beat()

    def _tell_beat(self) -> None:
        world = self.world
        closed, accused = self.part.closed, self.peers.accused
        world.driver.hear_later(self, lambda: world.driver.take_beat(self.index, accused, closed))

    # ------------------------------------------------------------ peers

    def handle_peers(self, event: PeerEvent) -> None:
        """Something has become of a link, the roster or the beat: carry out what follows. A process that hangs does nothing about it
        until it goes on; the state of its links changes without it."""
        for action in self.peers.handle(event):
            match action:
                case TellUp(peer):
                    self.deliver(LinkUp(SiteId(peer)))
                case TellDown(peer):
                    self.deliver(LinkDown(SiteId(peer)))
                    if self.alive and not self.hung and self.world.detection.patience.votes:
                        self._tell_beat()  # The coordinator does not wait for the next beat.
                case TellLinked():
                    self._tell_linked(self._roster)
                case CloseLink(peer):
                    self.world.network.leave(self.index, peer)
                case SayAlive(peer):
                    self.world.network.say_alive(self.index, peer)
                case AskDriver(peer):
                    self._relay(peer, None)
                case ReportGarbled():
                    pass  # What a simulated peer says can be read.
                case _:
                    assert_never(action)

    def set_roster(self, number: int, sites: tuple[int, ...]) -> None:
        """Who is in the roster. Links to those who are not any more are closed, for ever; one may have come before its peer's name."""
        if self.hung:
            self._backlog.append(lambda: self.set_roster(number, sites))
            return
        if not self.alive:
            return  # Its connection may stand for a while, when it has died without a word.
        self._roster = number
        new = [peer for peer in sites if peer != self.index and peer not in self.peers]
        self.handle_peers(RosterChanged(sites))
        for peer in new:
            if self.world.network.is_open(self.index, peer):
                self.handle_peers(Connected(peer))

    def start_linked(self, sites: int) -> None:
        """It is one of the first sites, which are all linked when their parts begin."""
        self.begun = True
        self.peers.handle(RosterChanged(tuple(range(sites))))
        for peer in range(sites):
            self.peers.handle(Connected(peer))

    def _tell_linked(self, roster: int) -> None:
        self.world.driver.hear_later(self, lambda: self.world.driver.take_linked(self.index, roster))

    def begin(self, part: SiteMachine) -> None:
        """Build its part, with the plan and the membership that the driver has given it; say when that is done."""
        if self.hung:
            self._backlog.append(lambda: self.begin(part))
        elif self.alive and not self.begun:
            self.part, self.begun = part, True
            self.world.clock.after(self.world.random.randint(*self.world.detection.ready_us), self._tell_ready)

    def _tell_ready(self) -> None:
        if self.hung:
            self._backlog.append(self._tell_ready)
        elif self.alive:
            self.world.driver.hear_later(self, lambda: self.world.driver.take_ready(self.index))

    def _say(self, peer: int, section: Section) -> None:
        """By the link, or by the driver; else it is lost, and said again when there is one."""
        if not self.peers.linked(peer) and self.peers.relayed(peer):
            self._relay(peer, section)
        else:
            self.world.network.send(self.index, peer, section)

    def _relay(self, peer: int, section: Section | None) -> None:
        """None: a word that only says that it lives."""
        world, talk = self.world, self.peers.talk(peer)
        world.driver.hear_later(self, lambda: world.driver.pass_on(self.index, peer, talk, section))

    def hear_relayed(self, peer: int, talk: Talk, section: Section | None) -> None:
        """The driver brings what a peer says."""
        if self.hung:
            self._backlog.append(lambda: self.hear_relayed(peer, talk, section))
        elif self.alive:
            self.handle_peers(BroughtByDriver(peer, talk))
            if section is not None and self.peers.hears(peer, talk):
                self.deliver(Heard(SiteId(peer), section))

    # ------------------------------------------------------------ faults

    def hang(self) -> None:
        self.hung = True

    def go_on(self) -> None:
        """All that has waited is handled now, before anything that comes later."""
        if self.hung and self.alive:
            self.hung = False
            backlog, self._backlog = self._backlog, []
            for do in backlog:
                do()

    def leave(self, why: str) -> None:
        """The driver says that it shall end. Who hangs hears of it when he goes on, and is a zombie until then (V3)."""
        if self.hung:
            self._backlog.append(lambda: self.end(why))
        else:
            self.end(why)

    def end(self, why: str) -> None:
        """The process ends."""
        if self.alive:
            self.alive = False
            self.timers.clear()
            self._backlog.clear()
            self.world.site_ended(self.index, why)


def spoiled(outcome: Outcome, epoch: int) -> Outcome:
    """What a box makes of this epoch if it raises in that one."""
    if outcome.tick.epoch != epoch:
        return outcome
    failed = PartFailed("box", epoch, "ValueError: the box does not like this epoch", "it raised", "BoxFailed")
    return Outcome(outcome.key, outcome.tick, outcome.opened, error=failed)
