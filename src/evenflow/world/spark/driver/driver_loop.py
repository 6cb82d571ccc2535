"""The driver's end of the engine: one thread that talks to the sites and runs the coordinator's machines. No row passes here, except
those of sinks that live in the driver, and those only on their way to the sink's own thread.

Sites come and go. Who is taken in, who is dead, who may leave, and in which order everybody hears of it, `coordinator.fleet` decides;
here are the connections and the thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar, assert_never

from evenflow.coordinator.detector import (
    IDLE,
    REPLICATED,
    UNREPLICATED,
    Beat,
    ControlLost,
    ExecutorRemoved,
    SiteEnded,
    Spoke,
    Tick,
)
from evenflow.coordinator.events import SiteLost
from evenflow.coordinator.fleet import (
    BeginPart,
    Dismiss,
    Fleet,
    FleetAction,
    FleetEvent,
    Hello,
    LetAllGo,
    LetGo,
    Linked,
    Newcomer,
    Refuse,
    Resume,
    RunBegun,
    RunEnded,
    SendRoster,
    SetPace,
    SiteCame,
    SiteGone,
    TakeIn,
    TellRun,
)
from evenflow.errors import ClusterError
from evenflow.statistics.progress import SiteProcess
from evenflow.world.spark.bridge.pushing import tell_leader
from evenflow.world.spark.bridge.stream_source import tell_where
from evenflow.world.spark.driver.known import Hailing, KnownSite, Profiles, Warnings
from evenflow.world.spark.driver.run_loop import RunLoop
from evenflow.world.spark.driver.versions import Versions
from evenflow.world.spark.executor.preparing import Preparations
from evenflow.world.spark.net import control
from evenflow.world.spark.net.channel import GARBLED_MAX, Channel, Line
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import CONTROL, RELEASE
from evenflow.world.spark.net.handshake import Hello as Greeting
from evenflow.world.spark.net.listener import Listener, open_port
from evenflow.world.spark.net.priority import DRIVER
from evenflow.world.spark.net.reactor import Clock, Reactor
from evenflow.world.spark.net.trust import Trusted
from evenflow.world.spark.net.wire import run_released

PING_S: Final = 1.0
ANSWER_S: Final = 10.0
"""How long somebody in another thread waits for the coordinator's."""
CONFIRM_EVERY: Final = 64
"""Messages of a site after which it is told that they have come, if no ping says so before."""

STOPPED: Final = "the engine has been stopped"
log = logging.getLogger("evenflow")
T = TypeVar("T")


class DriverLoop:
    """engine: id that sites must name. sites, spares: how many there shall be. replicas: the most that a run may have; with more than one
    the sites beat and are asked about each other, else a silent one has a minute. lease_s: how long sites live without the driver.

    `changed` is notified when a site comes, goes or is linked; on_site(index) is called when a newcomer has reached all its peers,
    on_lost(index, why) when one is dead, in the coordinator's thread. fleet: decides; its events come in the coordinator's thread.
    """

    def __init__(
        self,
        engine: str,
        sites: int,
        secret: Trusted,
        host: str,
        spares: int = 0,
        replicas: int = 1,
        lease_s: float = 10.0,
        ports: tuple[int, int] | None = None,
    ) -> None:
        self.engine, self.secret = engine, secret
        self.clock, self._reactor = Clock(), Reactor()
        self.changed = threading.Condition()
        self.sites: dict[int, KnownSite] = {}
        self.runs: dict[int, RunLoop] = {}
        self.warnings = Warnings()
        self.on_site: list[Callable[[int], None]] = []
        self.on_lost: list[Callable[[int, str], None]] = []
        self.replicas = replicas
        self._beats = replicas > 1
        active, idle = (REPLICATED, IDLE) if self._beats else (UNREPLICATED, UNREPLICATED)
        self.fleet = Fleet(sites + spares, active, idle, int(lease_s * 1e6))
        self._ticks = 0
        self._closing = self._closed = False
        self._given: list[RunLoop] = []
        self._giving = threading.Lock()
        self._others: list[Listener] = []
        self._versions = Versions()
        self.profiles = Profiles()
        self.preparations = Preparations(self._reactor)
        self.listener = Listener(open_port(host, ports), self._reactor, secret, self._welcome)
        self._thread = threading.Thread(target=self._serve, name="evenflow-coordinator", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self.listener.port

    def listen(self, host: str, secret: bytes, welcome: Callable[[Connection, Greeting], None]) -> int:
        """Open a port for others than sites, with a secret of its own. Returns its number. In the coordinator's thread."""
        self._others.append(Listener(open_port(host), self._reactor, secret, welcome))
        return self._others[-1].port

    def listen_no_more(self, port: int) -> None:
        """Close a port that `listen` has opened. In the coordinator's thread."""
        for listener in [each for each in self._others if each.port == port]:
            self._others.remove(listener)
            listener.close()

    @property
    def ready(self) -> bool:
        """Every site is there and has reached its peers, the spares too."""
        return self.fleet.enough(self.fleet.wanted)

    def enough(self, sites: int) -> bool:
        """That many sites, or more, are there and have reached their peers."""
        return self.fleet.enough(sites)

    def known(self) -> list[KnownSite]:
        """The sites that are there. From any thread: they come and go meanwhile."""
        return list(self.sites.values())

    def is_leaving(self, site: int) -> bool:
        """It is being drained. From any thread."""
        return site in self.fleet.leaving

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call in the coordinator's thread. Safe from any thread; after `close` nothing is called."""
        self._reactor.call_soon(call)

    def ask(self, call: Callable[[], T]) -> T:
        """Call in the coordinator's thread and return, or raise, what the call does. From any other thread. Raises ClusterError if the
        engine has been stopped meanwhile."""
        future: Future[T] = Future()

        def answer() -> None:
            if not future.set_running_or_notify_cancel():
                return  # Nobody waits for it any more, and it has been said that it was not done.
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)

        self.call_soon(answer)
        try:
            try:
                return future.result(ANSWER_S)
            except TimeoutError:
                if not future.cancel():
                    return future.result(ANSWER_S)  # It is being done right now.
                raise
        except TimeoutError:
            raise ClusterError("the engine does not answer: it has been stopped, or its driver is much too busy") from None

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call after a while. In the coordinator's thread."""
        self._reactor.call_later(delay_s, call)

    def send(self, site: int, message: control.FromDriver) -> None:
        """Send to a site, if it is there. In the coordinator's thread."""
        known = self.sites.get(site)
        if known is not None:
            known.line.send(CONTROL, control.encode(message))

    def present(self) -> list[int]:
        """Indices of the sites that are there."""
        return list(self.sites)

    def host_of(self, site: int) -> str:
        """The host of a site, "" if it is not there."""
        known = self.sites.get(site)
        return "" if known is None else str(known.hello["host"])

    def send_all(self, message: control.FromDriver) -> None:
        for site in list(self.sites):
            self.send(site, message)

    def add_run(self, run: RunLoop) -> None:
        """Start a run on its sites, the spares too. From any thread. It is forgotten when it is over: whoever started it has it. One that
        is not over when this is closed, or comes behind that, ends with a ClusterError."""

        def forget() -> None:
            self.runs.pop(run.number, None)
            with self._giving:
                self._given = [each for each in self._given if each is not run]
            if not self.runs:
                self.call_soon(DRIVER.tidy)  # Not here, where it is held.

        def begin() -> None:
            if run.over.is_set():
                forget()
                return
            self.runs[run.number] = run
            DRIVER.settle()
            run.when_over(self._notify)
            run.when_over(lambda: self.observe(RunEnded(run.number, self._now_us())))
            run.when_over(lambda: self.call_soon(forget))  # Some of what is being done now may still be for it.
            self.observe(RunBegun(run.number, run.run_id, run.machine, self._now_us()))

        with self._giving:
            closed = self._closed
            if not closed:
                self._given.append(run)
                self.call_soon(begin)
        if closed:
            run.abandon(ClusterError(STOPPED))

    def executor_removed(self, executor: str) -> None:
        """Spark says that an executor is gone. From any thread."""

        def removed() -> None:
            for index, site in list(self.sites.items()):
                if site.executor == executor:
                    self.observe(ExecutorRemoved(index, self._now_us()))

        self.call_soon(removed)

    @property
    def suspects(self) -> list[KnownSite]:
        """Sites whose connection is gone; Spark may know more. From any thread."""
        return [site for site in self.known() if not site.line.connected]

    def describe_sites(self) -> list[SiteProcess]:
        """What is known of every site, ascending. From any thread."""
        return [site.described(leaving=index in self.fleet.leaving) for index, site in sorted(dict(self.sites).items())]

    def dismiss(self, why: str) -> None:
        """Tell every site to leave, and those that are still to come. From any thread."""

        self.call_soon(lambda: self.observe(Dismiss(why)))

    def close(self) -> None:
        """End the thread and close everything. From any other thread."""
        self._closing = True
        self._reactor.wake()
        self._thread.join(5.0)

    # ------------------------------------------------------------ the thread

    def _serve(self) -> None:
        with DRIVER.serving():
            self._serve_sites()
            self._abandon()
        for site in self.sites.values():
            site.line.close()
        for listener in (self.listener, *self._others):
            listener.close()
        self.preparations.close()
        self._reactor.close()

    def _serve_sites(self) -> None:
        self._ping()
        self._tick_on()
        while not self._closing:
            try:
                self._reactor.poll(1.0)
            except Exception:
                log.exception("the coordinator met an error and goes on")

    def _abandon(self) -> None:
        """Nobody else would say of what has not ended, or not even begun, that it is over."""
        with self._giving:
            self._closed, given, self._given = True, self._given, []
        for run in given:
            if not run.over.is_set():
                try:
                    run.abandon(ClusterError(STOPPED))
                except Exception:
                    log.exception("run %s could not be ended with the engine", run.run_id)

    def _ping(self) -> None:
        self._reactor.call_later(PING_S, self._ping)  # First of all: without pings the sites would leave, whatever goes wrong here.
        for site in list(self.sites.values()):
            self._confirm(site)

    def _confirm(self, site: KnownSite) -> None:
        site.confirmed = site.line.taken
        site.line.send(CONTROL, control.encode(control.Ping(site.line.taken)))

    def _tick_on(self) -> None:
        """Tick at the detector's pace, until this is called again."""
        self._ticks = chain = self._ticks + 1

        def tick() -> None:
            if self._ticks == chain:
                self._reactor.call_later(self.fleet.patience.beat_us / 1e6, tick)
                self.observe(Tick(self._now_us()))

        tick()

    @property
    def _beat_s(self) -> float:
        return self.fleet.patience.beat_us / 1e6 if self._beats else 0.0

    def _now_us(self) -> int:
        """Of a clock that goes on while the machine sleeps, or the process is stopped: both count as the detector's own lateness."""
        return time.monotonic_ns() // 1000

    # ------------------------------------------------------------ who comes

    def _welcome(self, sock: Connection, hello: Greeting) -> None:
        tells = {"where": tell_where, "leads": tell_leader}.get(str(hello.get("as")))
        if tells is not None:
            try:
                tells(sock, hello, self.runs, self.sites)
            except (KeyError, ValueError, TypeError, IndexError, StopIteration) as error:
                log.warning("a connection with an incomprehensible hello was closed: %r", error)
                sock.close()
            return
        if hello.get("as") == "prepares":
            self.preparations.begin(sock, hello)
            return
        if hello.get("as") != "site" or hello.get("engine") != self.engine:
            log.warning("a connection with an incomprehensible hello was closed: %r", hello)
            sock.close()
            return
        if other := self._versions.refusal(hello):
            log.warning("%s", other)
            self._refuse(sock, control.Leave(f"failed: ClusterError: {other}", False))
            return
        try:  # All that may be wrong with it is found before the fleet hears of a site.
            where = f"on executor {hello['executor']} ({hello.get('host')}, process {hello.get('pid')})"
            newcomer = Newcomer(int(hello["job"]), str(hello["executor"]), str(hello["identity"]), str(hello["incarnation"]), where)
            site, taken = (int(hello["site"]), int(hello["taken"])) if "site" in hello else (None, 0)
            self._hailing = Hailing(sock, hello, (str(hello.get("listens") or sock.peer_host), int(hello["port"])), taken)
        except OSError as error:
            log.info("a site %s was gone when its hello was read: %s", where, error)
            sock.close()
        except (KeyError, ValueError, TypeError) as error:
            log.warning("a connection with an incomprehensible hello was closed: %r", error)
            sock.close()
        else:
            self.observe(Hello(newcomer, self._now_us(), site))

    def _refuse(self, sock: Connection, leave: control.Leave) -> None:
        channel = Channel(sock, self._reactor, lambda channel, kind, body: None, lambda channel, reason: None)
        channel.send(CONTROL, control.encode(leave))

    def _take_in(self, index: int) -> None:
        hailing = self._hailing
        line = Line(lambda kind, body: self._heard(index, kind, body), keeps=self._beats)
        self.sites[index] = KnownSite(index, line, hailing.hello, hailing.address, self.fleet.sites[index])
        self._resume(index, 0)

    def _resume(self, index: int, taken: int) -> None:
        site, sock = self.sites[index], self._hailing.sock
        line = site.line
        channel = Channel(sock, self._reactor, line.take, lambda channel, reason: self._unheard(site, channel, reason))
        channel.send(CONTROL, control.encode(control.You(site.index, line.taken, self._beat_s)))
        line.resume(channel, taken)

    # ------------------------------------------------------------ what they say

    def _heard(self, index: int, kind: int, body: bytes | memoryview) -> None:
        site = self.sites.get(index)
        if site is None:
            return  # It has been told to leave; what it says until then does not count (V3).
        if self._beats and site.line.taken - site.confirmed >= CONFIRM_EVERY:
            self._confirm(site)
        if kind == RELEASE:
            run = self.runs.get(run_released(body))
            if run is not None and not run.over.is_set():
                run.release(body)
            return
        message = control.from_site(body)
        if isinstance(message, control.Beat):
            site.line.confirmed(message.taken)
            if message.busy is None:
                for run in self.runs.values():
                    run.note_user_code(index, ())
            self.observe(Beat(index, self._now_us(), message.accused, message.busy, message.late_us))
            return
        self.observe(Spoke(index, self._now_us()))
        if isinstance(message, control.OfRun):
            run = self.runs.get(message.run)
            if run is not None:
                run.hear(index, message)
            return
        match message:
            case control.Report():
                site.report, site.reported_s = message, time.monotonic()
                self.warnings.take(index, message)
                for number in message.parts:
                    if number in self.runs:
                        self.runs[number].note(index, message)
            case control.Linked():
                self.observe(Linked(index, message.roster))
            case control.Relay():
                self.send(message.peer, control.Relay(index, message.talk, message.kind, message.body))
            case control.Profiled():
                self.profiles.take(message)
            case control.SiteBroken():
                self.observe(SiteEnded(index, self._now_us(), message.trace))
            case _:
                assert_never(message)

    # ------------------------------------------------------------ what follows

    def _unheard(self, site: KnownSite, channel: Channel, reason: str) -> None:
        if not site.line.lost(channel) or self.sites.get(site.index) is not site:
            return
        if site.line.garbled >= GARBLED_MAX and self.fleet.dismissed is None:
            why = f"what it says to the driver cannot be read, again and again: {reason}"
            self.observe(SiteEnded(site.index, self._now_us(), why))
        else:
            self.observe(ControlLost(site.index, self._now_us(), reason))
        self._notify()

    def observe(self, event: FleetEvent) -> None:
        """Give the fleet an event and carry out what follows, one after the other. In the coordinator's thread. An error that is met over
        one of them is logged, and the next one follows all the same: else nobody would be told, say, who is dead."""
        changed = False
        for action in self.fleet.handle(event):
            changed = changed or isinstance(action, TakeIn | LetGo | SiteCame)
            try:
                self._carry_out(action)
            except Exception as error:
                log.exception("the coordinator met an error over %s and goes on", action)
                if isinstance(action, TakeIn | Resume):
                    self._cannot_serve(action, str(error))
        if changed:
            self._notify()

    def _carry_out(self, action: FleetAction) -> None:
        match action:
            case Refuse():
                self._refuse(self._hailing.sock, control.Leave(action.why, action.again))
            case TakeIn(site):
                self._take_in(site)
            case Resume(site):
                self._resume(site, self._hailing.taken)
            case SendRoster(number, sites):
                known = {index: self.sites[index] for index in sites}
                self.send_all(control.Roster(number, {i: (*site.address, site.incarnation) for i, site in known.items()}))
            case LetGo(site, why):
                gone = self.sites.pop(site)
                gone.line.send(CONTROL, control.encode(control.Leave(why)))
                gone.line.close()
            case LetAllGo(why):
                self.send_all(control.Leave(why))
            case BeginPart(run, site):
                self.runs[run].begin(site)
            case TellRun(run, SiteLost() as lost):
                self.runs[run].lose(lost)
            case TellRun(run, told):
                self.runs[run].handle(told)
            case SiteCame(site):
                for call in self.on_site:
                    call(site)
            case SiteGone(site, why):
                for tell in self.on_lost:
                    tell(site, why)
            case SetPace():
                if self._beats:
                    self.send_all(control.Pace(self._beat_s))
                    self._tick_on()
            case _:
                assert_never(action)

    def _cannot_serve(self, action: TakeIn | Resume, why: str) -> None:
        """Who has just said hello finds the connection closed: a site that was here already dials again, a newcomer is one no more."""
        self._hailing.sock.close()
        if isinstance(action, TakeIn):
            self.call_soon(lambda: self.observe(SiteEnded(action.site, self._now_us(), f"the driver cannot take it in: {why}")))

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()
