"""The driver's end of the engine: one thread that talks to the sites and runs the coordinator's machines. No row passes here, except
those of sinks that live in the driver, and those only on their way to the sink's own thread.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from evenflow.coordinator.machine import SiteLost
from evenflow.world.spark import control
from evenflow.world.spark.channel import Channel
from evenflow.world.spark.driving import DrivenRun
from evenflow.world.spark.handshake import Hello
from evenflow.world.spark.listener import Listener, open_port
from evenflow.world.spark.reactor import Clock, Reactor
from evenflow.world.spark.wire import CONTROL, RELEASE, RELEASE_HEAD

PING_S: Final = 1.0
SILENT_S: Final = 60.0
"""A site that has said nothing for this long is lost, though its connection stands. User code may hold a site's interpreter for a while."""

log = logging.getLogger("evenflow")


@dataclass(slots=True)
class KnownSite:
    """A site that has said hello. linked: it has reached all peers of the current roster."""

    channel: Channel
    hello: Hello
    address: tuple[str, int]
    heard_s: float
    linked: bool = False
    report: control.Report | None = None
    broken: str = ""

    @property
    def incarnation(self) -> str:
        return str(self.hello["incarnation"])

    def describe(self) -> str:
        return f"on executor {self.hello['executor']} ({self.hello['host']}, process {self.hello['pid']})"


class Coordinator:
    """engine: id that sites must name. sites: how many there shall be. `changed` is notified when a site comes, goes or is linked."""

    def __init__(self, engine: str, sites: int, secret: bytes, host: str) -> None:
        self.engine, self.count, self.secret = engine, sites, secret
        self.clock, self._reactor = Clock(), Reactor()
        self.changed = threading.Condition()
        self.sites: dict[int, KnownSite] = {}
        self.runs: dict[int, DrivenRun] = {}
        self._closing = False
        self._dismissed: str | None = None
        self.listener = Listener(open_port(host), self._reactor, secret, self._welcome)
        self._thread = threading.Thread(target=self._serve, name="evenflow-coordinator", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self.listener.port

    @property
    def ready(self) -> bool:
        """Every site is there and has reached its peers."""
        sites = self.known()
        return len(sites) == self.count and all(site.linked for site in sites)

    def known(self) -> list[KnownSite]:
        """The sites that are there. From any thread: they come and go meanwhile."""
        return list(self.sites.values())

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call in the coordinator's thread. Safe from any thread; after `close` nothing is called."""
        self._reactor.call_soon(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call after a while. In the coordinator's thread."""
        self._reactor.call_later(delay_s, call)

    def send(self, site: int, message: control.FromDriver) -> None:
        """Send to a site, if it is there. In the coordinator's thread."""
        known = self.sites.get(site)
        if known is not None:
            known.channel.send(CONTROL, control.encode(message))

    def present(self) -> list[int]:
        """Indices of the sites that are there."""
        return list(self.sites)

    def send_all(self, message: control.FromDriver) -> None:
        for site in list(self.sites):
            self.send(site, message)

    def add_run(self, run: DrivenRun, program: bytes) -> None:
        """Start a run on all sites. From any thread."""

        def begin() -> None:
            self.runs[run.number] = run
            run.on_over.append(self._notify)
            for site in range(self.count):
                if site not in self.sites:
                    run.handle(SiteLost(site, "it went before the run began"))
                    return
            self.send_all(control.StartPart(run.number, run.run_id, program))

        self.call_soon(begin)

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
        self._ping()
        while not self._closing:
            try:
                self._reactor.poll(1.0)
            except Exception:
                log.exception("the coordinator met an error and goes on")
        for site in self.sites.values():
            site.channel.close()
        self.listener.close()
        self._reactor.close()

    def _ping(self) -> None:
        self._reactor.call_later(PING_S, self._ping)  # First of all: without pings the sites would leave, whatever goes wrong here.
        self.send_all(control.Ping())
        now_s = time.monotonic()
        for index, site in list(self.sites.items()):
            if now_s - site.heard_s > SILENT_S:
                site.channel.close()
                self._lost(index, site.channel, f"it has been silent for {SILENT_S:.0f} s")

    def _welcome(self, sock: socket.socket, hello: Hello) -> None:
        index = hello.get("site")
        if hello.get("as") != "site" or hello.get("engine") != self.engine or not isinstance(index, int) or not 0 <= index < self.count:
            log.warning("a connection with an incomprehensible hello was closed: %r", hello)
            sock.close()
            return
        address = (str(sock.getpeername()[0]), int(hello["port"]))
        channel = Channel(
            sock, self._reactor, lambda ch, kind, body: self._heard(index, ch, kind, body), lambda ch, reason: self._lost(index, ch, reason)
        )
        if self._dismissed is not None:  # Its task was still starting, or has been started again.
            channel.send(CONTROL, control.encode(control.Leave(self._dismissed)))
            return
        twin = next((i for i, s in self.sites.items() if s.hello["identity"] == hello["identity"] and i != index), None)
        if index in self.sites or twin is not None:
            # Placement by Spark is soft, and a lost task may come back beside its successor: the later one goes (two never share an
            # executor).
            why = f"site {index} is there already" if twin is None else f"site {twin} is on the same executor"
            channel.send(CONTROL, control.encode(control.Leave(f"again: {why}")))
            return
        self.sites[index] = KnownSite(channel, hello, address, time.monotonic())
        self._send_roster()
        self._notify()

    def _send_roster(self) -> None:
        if len(self.sites) < self.count:
            return
        known = [self.sites[i] for i in range(self.count)]
        roster = control.Roster(tuple(s.address for s in known), tuple(s.incarnation for s in known))
        for site in known:
            site.linked = False
        self.send_all(roster)

    def _heard(self, index: int, channel: Channel, kind: int, body: bytes | memoryview) -> None:
        site = self.sites.get(index)
        if site is None or site.channel is not channel:
            return  # It has been told to leave; what it says until then does not count (V3).
        site.heard_s = time.monotonic()
        if kind == RELEASE:
            run = self.runs.get(RELEASE_HEAD.unpack_from(body)[0])
            if run is not None and not run.over.is_set():
                run.release(body)
            return
        message = control.decode(body)
        if isinstance(message, control.Report):
            site.report = message
            for number in message.parts:
                if number in self.runs:
                    self.runs[number].note(index, message)
        elif isinstance(message, control.Linked):
            site.linked = message.incarnations == tuple(self.sites[i].incarnation for i in range(self.count) if i in self.sites)
            self._notify()
        elif isinstance(message, control.SiteBroken):
            site.broken = message.trace
        elif isinstance(message, control.PartReady | control.PartBroken | control.Said | control.SinkOpened | control.PartEnded):
            run = self.runs.get(message.run)
            if run is not None:
                run.hear(index, message)

    def _lost(self, index: int, channel: Channel, reason: str) -> None:
        site = self.sites.get(index)
        if site is None or site.channel is not channel:
            return
        del self.sites[index]
        for run in self.runs.values():
            run.part_ended(index)
            run.handle(SiteLost(index, f"{site.describe()}: {site.broken or reason}"))
        self._notify()

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()
