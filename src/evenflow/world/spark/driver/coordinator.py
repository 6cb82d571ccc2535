"""The driver's end of the engine: one thread that talks to the sites and runs the coordinator's machines. No row passes here, except
those of sinks that live in the driver, and those only on their way to the sink's own thread.

Sites come and go. Who says hello gets an index that nobody had before; who is dead, `coordinator.detector` judges (V4). A death is
announced in this order: the site itself is told to leave, the others get a roster without it, then the runs hear of it (V1).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from evenflow.coordinator.detector import (
    IDLE,
    REPLICATED,
    UNREPLICATED,
    Beat,
    ControlBack,
    ControlLost,
    Detector,
    DetectorEvent,
    ExecutorRemoved,
    Joined,
    PatienceChanged,
    SiteEnded,
    Spoke,
    Tick,
)
from evenflow.coordinator.events import SiteLost
from evenflow.errors import ClusterError
from evenflow.world.spark.bridge.pushing import tell_leader
from evenflow.world.spark.bridge.stream_source import tell_where
from evenflow.world.spark.driver.driving import DrivenRun
from evenflow.world.spark.executor.preparing import Preparations
from evenflow.world.spark.net import control
from evenflow.world.spark.net.channel import GARBLED_MAX, Channel, Line
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import CONTROL, RELEASE
from evenflow.world.spark.net.handshake import Hello
from evenflow.world.spark.net.listener import Listener, open_port
from evenflow.world.spark.net.priority import DRIVER
from evenflow.world.spark.net.reactor import Clock, Reactor
from evenflow.world.spark.net.wire import run_released

PING_S: Final = 1.0
ANSWER_S: Final = 10.0
"""How long somebody in another thread waits for the coordinator's."""
CONFIRM_EVERY: Final = 64
"""Messages of a site after which it is told that they have come, if no ping says so before."""

log = logging.getLogger("evenflow")
T = TypeVar("T")


@dataclass(slots=True)
class KnownSite:
    """A site that has said hello and is not dead. since: number of the first roster with it. linked: it has reached all its peers."""

    index: int
    line: Line
    hello: Hello
    address: tuple[str, int]
    since: int = 0
    linked: bool = False
    report: control.Report | None = None
    confirmed: int = 0

    @property
    def incarnation(self) -> str:
        return str(self.hello["incarnation"])

    @property
    def executor(self) -> str:
        return str(self.hello["executor"])

    def describe(self) -> str:
        return f"on executor {self.hello['executor']} ({self.hello['host']}, process {self.hello['pid']})"


class Coordinator:
    """engine: id that sites must name. sites, spares: how many there shall be. replicas: the most that a run may have; with more than one
    the sites beat and are asked about each other, else a silent one has a minute.

    `changed` is notified when a site comes, goes or is linked; on_site(index) is called when a newcomer has reached all its peers,
    on_lost(index, why) when one is dead, in the coordinator's thread. unwanted: jobs whose site is dead; Spark may start them again, but
    what comes of it is sent away. leaving: sites that are being emptied; when one goes, whatever the reason, one less is wanted. released:
    jobs of those that have gone, shunned: their executors, which get no site again until somebody asks for more sites.
    """

    def __init__(self, engine: str, sites: int, secret: bytes, host: str, spares: int = 0, replicas: int = 1) -> None:
        self.engine, self.wanted, self.secret = engine, sites + spares, secret
        self.clock, self._reactor = Clock(), Reactor()
        self.changed = threading.Condition()
        self.sites: dict[int, KnownSite] = {}
        self.runs: dict[int, DrivenRun] = {}
        self.unwanted: set[int] = set()
        self.leaving: set[int] = set()
        self.released: set[int] = set()
        self.shunned: set[str] = set()
        self.on_site: list[Callable[[int], None]] = []
        self.on_lost: list[Callable[[int, str], None]] = []
        self._beats = replicas > 1
        self.detector = Detector(IDLE if self._beats else UNREPLICATED, self._vital)
        self._next = self._rosters = self._ticks = 0
        self._closing = False
        self._dismissed: str | None = None
        self._others: list[Listener] = []
        self.preparations = Preparations(self._reactor)
        self.listener = Listener(open_port(host), self._reactor, secret, self._welcome)
        self._thread = threading.Thread(target=self._serve, name="evenflow-coordinator", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self.listener.port

    def listen(self, host: str, secret: bytes, welcome: Callable[[Connection, Hello], None]) -> int:
        """Open a port for others than sites, with a secret of its own. Returns its number. In the coordinator's thread."""
        self._others.append(Listener(open_port(host), self._reactor, secret, welcome))
        return self._others[-1].port

    @property
    def ready(self) -> bool:
        """Every site is there and has reached its peers, the spares too."""
        return self.enough(self.wanted)

    def enough(self, sites: int) -> bool:
        """That many sites, or more, are there and have reached their peers."""
        return sum(site.linked for site in self.known()) >= sites

    def known(self) -> list[KnownSite]:
        """The sites that are there. From any thread: they come and go meanwhile."""
        return list(self.sites.values())

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call in the coordinator's thread. Safe from any thread; after `close` nothing is called."""
        self._reactor.call_soon(call)

    def ask(self, call: Callable[[], T]) -> T:
        """Call in the coordinator's thread and return, or raise, what the call does. From any other thread. Raises ClusterError if the
        engine has been stopped meanwhile."""
        future: Future[T] = Future()

        def answer() -> None:
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)

        self.call_soon(answer)
        try:
            return future.result(ANSWER_S)
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

    def add_run(self, run: DrivenRun) -> None:
        """Start a run on its sites, the spares too. From any thread."""

        def begin() -> None:
            self.runs[run.number] = run
            DRIVER.settle()
            run.on_over += [self._notify, self._set_pace]
            self._set_pace()
            for site in run.machine.sites:
                if site not in self.sites and not run.machine.over:
                    run.handle(SiteLost(site, "it went before the run began"))
            if not run.machine.over:
                for site in run.machine.sites:
                    run.begin(site)
                for index, known in list(self.sites.items()):
                    # The others are newcomers: the run hears of them when they have reached their peers; or they are about to leave.
                    if known.linked and index not in self.leaving:
                        run.site_joined(index)

        self.call_soon(begin)

    def executor_removed(self, executor: str) -> None:
        """Spark says that an executor is gone. From any thread."""

        def removed() -> None:
            for index, site in list(self.sites.items()):
                if site.executor == executor:
                    self._observe(ExecutorRemoved(index, self._now_us()))

        self.call_soon(removed)

    @property
    def suspects(self) -> list[KnownSite]:
        """Sites whose connection is gone; Spark may know more. From any thread."""
        return [site for site in self.known() if not site.line.connected]

    def describe_sites(self) -> list[dict[str, Any]]:
        """What is known of every site, for progress reports. From any thread."""
        described = []
        for index, site in sorted(dict(self.sites).items()):
            report = site.report
            described.append(
                {
                    "site": index,
                    "executor": site.hello["executor"],
                    "host": site.hello["host"],
                    "pid": site.hello["pid"],
                    "rss_bytes": report.rss_bytes if report else 0,
                    "pss_bytes": report.pss_bytes if report else 0,
                    "refused": report.refused if report else 0,
                    "leaving": index in self.leaving,
                }
            )
        return described

    def dismiss(self, why: str) -> None:
        """Tell every site to leave, and those that are still to come. From any thread."""

        def dismiss() -> None:
            self._dismissed = why
            self.send_all(control.Leave(why))

        self.call_soon(dismiss)

    def close(self) -> None:
        """End the thread and close everything. From any other thread."""
        self._closing = True
        self._reactor.wake()
        self._thread.join(5.0)

    # ------------------------------------------------------------ the thread

    def _serve(self) -> None:
        with DRIVER.serving():
            self._serve_sites()
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
                self._reactor.call_later(self.detector.patience.beat_us / 1e6, tick)
                self._observe(Tick(self._now_us()))

        tick()

    @property
    def _beat_s(self) -> float:
        return self.detector.patience.beat_us / 1e6 if self._beats else 0.0

    def _set_pace(self) -> None:
        """Life signs are quick while a run is active, and nobody is blamed for what the change does to them."""
        active = any(not run.over.is_set() for run in self.runs.values())
        patience = REPLICATED if active else IDLE
        if self._beats and self.detector.patience is not patience:
            self._observe(PatienceChanged(patience, self._now_us()))
            self.send_all(control.Pace(self._beat_s))
            self._tick_on()

    def _now_us(self) -> int:
        """Of a clock that goes on while the machine sleeps, or the process is stopped: both count as the detector's own lateness."""
        return time.monotonic_ns() // 1000

    # ------------------------------------------------------------ who comes

    def _welcome(self, sock: Connection, hello: Hello) -> None:
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
        again = self.sites.get(int(hello.get("site", -1)))
        why = self._dismissed  # Its task was still starting, or has been started again.
        if why is None and "site" in hello:
            why = None if again is not None and again.incarnation == hello["incarnation"] else "it has been declared dead"
        elif why is None:
            why = self._refusal(hello)
        if why is not None:
            channel = Channel(sock, self._reactor, lambda channel, kind, body: None, lambda channel, reason: None)
            channel.send(CONTROL, control.encode(control.Leave(why)))
        elif again is not None:
            self._resume(again, sock, int(hello["taken"]))
        else:
            self._take_in(sock, hello)

    def _refusal(self, hello: Hello) -> str | None:
        """Why a newcomer cannot stay: placement by Spark is soft, and a lost task may come back beside its successor."""
        if hello["job"] in self.unwanted:
            return "again: its job has been given up"
        if hello["executor"] in self.shunned:
            return "again: its executor is given back"
        twin = next((i for i, site in self.sites.items() if site.hello["identity"] == hello["identity"]), None)
        if twin is not None:
            return f"again: site {twin} is on the same executor"
        return f"again: there are {self.wanted} sites already" if len(self.sites) >= self.wanted else None

    def _take_in(self, sock: Connection, hello: Hello) -> None:
        index, self._next = self._next, self._next + 1
        line = Line(lambda kind, body: self._heard(index, kind, body), keeps=self._beats)
        address = (str(sock.peer_host), int(hello["port"]))
        site = self.sites[index] = KnownSite(index, line, hello, address, self._rosters + 1)
        self._observe(Joined(index, self._now_us()))
        self._resume(site, sock, 0)
        self._send_roster()
        self._notify()

    def _resume(self, site: KnownSite, sock: Connection, taken: int) -> None:
        line = site.line
        channel = Channel(sock, self._reactor, line.take, lambda channel, reason: self._unheard(site, channel, reason))
        channel.send(CONTROL, control.encode(control.You(site.index, line.taken, self._beat_s)))
        line.resume(channel, taken)
        self._observe(ControlBack(site.index, self._now_us()))

    def _send_roster(self) -> None:
        self._rosters += 1
        self.send_all(control.Roster(self._rosters, {i: (*site.address, site.incarnation) for i, site in self.sites.items()}))

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
            self._observe(Beat(index, self._now_us(), message.accused, message.busy, message.late_us))
            return
        self._observe(Spoke(index, self._now_us()))
        if isinstance(message, control.Report):
            site.report = message
            for number in message.parts:
                if number in self.runs:
                    self.runs[number].note(index, message)
        elif isinstance(message, control.Linked):
            if message.roster >= site.since and not site.linked:
                site.linked = True
                self._joined(index)
        elif isinstance(message, control.Relay):
            self.send(message.peer, control.Relay(index, message.kind, message.body))
        elif isinstance(message, control.SiteBroken):
            self._observe(SiteEnded(index, self._now_us(), message.trace))
        elif isinstance(
            message, control.InUserCode | control.PartReady | control.PartBroken | control.Said | control.SinkOpened | control.PartEnded
        ):
            run = self.runs.get(message.run)
            if run is not None:
                run.hear(index, message)

    def _joined(self, index: int) -> None:
        """A newcomer has reached all its peers. Runs that are under way may want it."""
        for run in list(self.runs.values()):
            run.site_joined(index)
        for call in self.on_site:
            call(index)
        self._notify()

    # ------------------------------------------------------------ who goes

    def _vital(self, index: int) -> bool:
        """Some run cannot go on without this site."""
        return any(run.vital(index) for run in self.runs.values())

    def _unheard(self, site: KnownSite, channel: Channel, reason: str) -> None:
        if not site.line.lost(channel) or self.sites.get(site.index) is not site:
            return
        if self._dismissed is not None:
            self._declare(site.index, reason)
            return
        if site.line.garbled >= GARBLED_MAX:
            why = f"what it says to the driver cannot be read, again and again: {reason}"
            self._observe(SiteEnded(site.index, self._now_us(), why))
        else:
            self._observe(ControlLost(site.index, self._now_us(), reason))
        self._notify()

    def _observe(self, event: DetectorEvent) -> None:
        for verdict in self.detector.handle(event):
            self._declare(verdict.site, verdict.why)

    def release(self, index: int) -> None:
        """Let a site go that has been emptied. In the coordinator's thread."""
        self._declare(index, "it was drained", planned=True)

    def _declare(self, index: int, why: str, planned: bool = False) -> None:
        """The site is dead, for ever; or it has been emptied and goes as planned."""
        site = self.sites.pop(index)
        self.detector.forget(index)
        self.unwanted.add(site.hello["job"])
        if index in self.leaving:
            self.leaving.discard(index)
            self.wanted -= 1
            self.shunned |= {site.executor} - {"?", "driver"}
        if planned:
            self.released.add(site.hello["job"])
        site.line.send(CONTROL, control.encode(control.Leave(why if planned else f"it has been declared dead: {why}")))
        site.line.close()
        if self._dismissed is None:
            self._send_roster()
        for run in list(self.runs.values()):
            run.part_ended(index)
            run.lose(index, f"{site.describe()}: {why}", planned)
        if self._dismissed is None:
            for call in self.on_lost:
                call(index, why)
        self._notify()

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()
