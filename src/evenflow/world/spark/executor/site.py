"""A site: the event loop of one long-running Spark task (architecture: "How it sits on Spark").

One tick: wait for sockets, timers and other threads; give what they brought to the parts; let every part fire timers, ask its sources and
run operators; then collect what the parts want to say and send each peer one message with the sections of all dataflows (E4).

Where there are replicas the site says every 50 ms that it lives, to the driver and on links that are idle, and says at once when a link
breaks (V4); and it connects to the driver again when that connection ends. Without replicas it ends with that connection.

The site ends when the driver says so, when it is in the roster no more, or when the driver has been silent for the lease (V3).
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from functools import partial
from typing import Final, assert_never

from evenflow.errors import EvenflowError, ProtocolError
from evenflow.exchange.parts import MESSAGE_BYTES_GOOD, in_parts
from evenflow.exchange.section import Section
from evenflow.site.events import (
    Event,
    Heard,
    LinkDown,
    LinkUp,
    MembershipChanged,
    PlanCommitted,
    Release,
    Ship,
    StateArrived,
    TransferFailed,
)
from evenflow.site.facts import Fact
from evenflow.site.peers import Talk
from evenflow.stream.ids import CopyNumber, SiteId
from evenflow.world.spark.executor.guests import Guests
from evenflow.world.spark.executor.heap import give_back
from evenflow.world.spark.executor.links import Links
from evenflow.world.spark.executor.part_runner import PartRunner, arrived
from evenflow.world.spark.executor.quiet import Quiet
from evenflow.world.spark.executor.sampled import Sampled
from evenflow.world.spark.executor.shipping import Shipper
from evenflow.world.spark.executor.user_thread import Ending
from evenflow.world.spark.executor.warned import Warnings
from evenflow.world.spark.net import control
from evenflow.world.spark.net.channel import GARBLED_MAX, Channel, Line
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import CONTROL, RELEASE, SECTIONS
from evenflow.world.spark.net.handshake import Hello
from evenflow.world.spark.net.listener import Dialer, Listener
from evenflow.world.spark.net.priority import SWITCH_INTERVAL_S
from evenflow.world.spark.net.reactor import Clock, Reactor
from evenflow.world.spark.net.trust import Trusted
from evenflow.world.spark.net.vitals import Lateness, Proportional, rss_bytes
from evenflow.world.spark.net.wire import (
    RunSchemas,
    bytes_of,
    decode_sections,
    encode_release,
    encode_sections,
)

REPORT_S: Final = 0.25
COLLECT_S: Final = 1.0
COLLECT_ALL_EVERY: Final = 60
"""Quick collections between two full ones."""
GIVE_BACK_AFTER: Final = 2
"""Quick collections behind the beginning of a part: what it was built with, and what its sources opened with, is free then."""
STUCK_S: Final = 1.0
"""User code that has not come back this long after its run counts as stuck."""
PSS_EVERY: Final = 80
"""Reports between two looks at the proportional memory, at which the system goes over all of it."""
POLL_MAX_S: Final = 0.5

REDIAL_S: Final = 0.03
"""Between two attempts to reach the driver again."""

log = logging.getLogger("evenflow")


class Site:
    """you: what the driver has called this site. driver: the authenticated connection to the driver; hello: what was said on it, and
    address: where it listens, to connect again. port: listening for peers and Spark's tasks.
    """

    def __init__(
        self,
        you: control.You,
        hello: Hello,
        secret: Trusted,
        address: tuple[str, int],
        driver: Connection,
        port: socket.socket,
        lease_s: float,
    ) -> None:
        self.index, self._lease_s, self._beat_s = you.index, lease_s, you.beat_s
        self._pace = control.Pace(you.beat_s)
        self._hello, self._address, self._secret = hello, address, secret
        self.clock, self.reactor = Clock(), Reactor()
        self.parts: dict[int, PartRunner] = {}
        self._schemas: dict[int, RunSchemas] = {}
        self._opened_sinks: set[tuple[int, int, bool]] = set()
        self._leaving: str | None = None
        self._ending = Ending(self.reactor)
        self._heard_driver_s = time.monotonic()
        self._reports = self._collections = self._begun_at = 0
        self._proportional = Proportional()
        self._quiet = Quiet()
        self.listener = Listener(port, self.reactor, secret, self._welcome)
        self.links = Links(
            you.index,
            str(hello["incarnation"]),
            self.reactor,
            secret,
            self._heard,
            self._link_up,
            self._link_down,
            self._garbled,
            self._relay,
            self._say_linked,
        )
        self.guests = Guests(self)
        self.shipper = Shipper(self.reactor, secret, self.state_failed)
        self._busy: dict[int | None, str] = {}
        self._was_busy: str | None = None
        self._lateness = Lateness()
        self._warnings = Warnings()
        self.sampled = Sampled(you.index, self.reactor, self._send)
        self.driver = Line(self._told, keeps=self._beat_s > 0)
        self.driver.resume(Channel(driver, self.reactor, self._from_driver, self._driver_lost), 0)

    # ------------------------------------------------------------ the loop

    def serve(self) -> str:
        """Run until there is a reason to leave, and return it."""
        gc.freeze()  # What was loaded stays, and has next to no garbage: to look for it takes a tenth of a second.
        gc.disable()  # A collection in the middle of an epoch costs more than its whole linger; see _collect.
        logging.getLogger().addHandler(self._warnings)
        self._report()
        self._collect()
        self._watch_lease()
        if self._beat_s:
            self._beat_on(control.Pace(self._beat_s))
        try:
            while self._leaving is None:
                self.reactor.poll(self._timeout_s())
                self._tick()
            return self._leaving
        except Exception:
            self._send(control.SiteBroken(traceback.format_exc()))
            raise
        finally:
            logging.getLogger().removeHandler(self._warnings)
            gc.enable()
            gc.unfreeze()
            self.close()

    def _tick(self) -> None:
        now_us = self.clock.now_us()
        outbox: dict[int, list[tuple[int, Section]]] = {}
        for run, part in self.parts.items():
            part.advance(now_us)
            for peer, section in part.flush(now_us):
                if peer in outbox:
                    outbox[peer].append((run, section))
                else:
                    outbox[peer] = [(run, section)]
        for peer, sections in outbox.items():
            if bytes_of(sections) <= MESSAGE_BYTES_GOOD:
                self.links.send(peer, SECTIONS, encode_sections(sections))
            else:
                self._send_in_parts(peer, sections)

    def _send_in_parts(self, peer: int, sections: list[tuple[int, Section]]) -> None:
        """Much has to be said again over a new link, or an epoch's rows are many: several messages, in order."""
        for run, section in sections:
            try:
                for some in in_parts(section):
                    self.links.send(peer, SECTIONS, encode_sections([(run, some)]))
            except ProtocolError as error:
                self.parts[run].fail(EvenflowError(f"the rows of one epoch for one site are too many to be sent: {error}"))

    def _timeout_s(self) -> float:
        wait_s = POLL_MAX_S
        for part in self.parts.values():
            wait_s = min(wait_s, (part.due_us() - self.clock.now_us()) / 1e6)
        return max(0.0, wait_s)

    def leave(self, why: str) -> None:
        if self._leaving is None:
            self._leaving = why

    def close(self) -> None:
        self.sampled.close()
        for part in self.parts.values():
            self._ending.add(part.close(), lambda: None)
        self.parts.clear()
        self.links.close()
        self.shipper.close()
        self.guests.close()
        self.listener.close()
        self.driver.close()
        self.reactor.close()

    def hang_up(self) -> None:
        """Its executor has ended: let the peers know before the system takes this process's memory apart, which takes it 50 ms and more."""
        self.links.close()
        self.driver.close()
        os.kill(os.getpid(), signal.SIGKILL)

    @property
    def stuck(self) -> bool:
        """User code is still running and cannot be stopped, so only the end of the process ends it. May take a second to find out."""
        return self._ending.stuck(STUCK_S)

    # ------------------------------------------------------------ peers

    def _welcome(self, connection: Connection, hello: Hello) -> None:
        """A connection has proved that it belongs to the engine. What it is for, it says."""
        try:
            if hello["as"] == "peer":
                self.links.accept(connection, hello)
            else:
                self.guests.accept(connection, hello)
        except (KeyError, ValueError, TypeError) as error:
            log.warning("a connection with an incomprehensible hello was closed: %r", error)
            connection.close()

    def _heard(self, peer: int, kind: int, body: bytes | memoryview) -> None:
        if kind != SECTIONS:
            raise ProtocolError(f"a message of kind {kind} from site {peer}")
        now_us = self.clock.now_us()
        for run, section in decode_sections(body, self._schemas):
            self.parts[run].hear(Heard(SiteId(peer), section), now_us)

    def _link_up(self, peer: int) -> None:
        now_us = self.clock.now_us()
        for part in self.parts.values():
            part.deliver(LinkUp(SiteId(peer)), now_us)

    def _link_down(self, peer: int) -> None:
        """Nobody waits for the coordinator to take over (T2), nor the coordinator for the next beat."""
        now_us = self.clock.now_us()
        for part in self.parts.values():
            part.deliver(LinkDown(SiteId(peer)), now_us)
        if self._beat_s:
            self._beat()

    def _garbled(self, peer: int, reason: str) -> None:
        """It is a bug, and saying it all again does not help: better the dataflows end, and say so, than that they hang."""
        for part in self.parts.values():
            part.fail(ProtocolError(f"what site {peer} says to site {self.index} cannot be read, again and again: {reason}"))

    def _relay(self, peer: int, talk: Talk, kind: int, body: bytes) -> None:
        self._send(control.Relay(peer, talk, kind, body))

    def _say_linked(self) -> None:
        self._send(control.Linked(self.links.roster.number))

    # ------------------------------------------------------------ life signs

    def _beat_on(self, pace: control.Pace) -> None:
        """Beat at this pace until there is another one. All sites at the same moments: who is woken by one, hears all."""
        self._pace = pace

        self._lateness = Lateness()

        def beat() -> None:
            if self._pace is pace:
                wait_s = pace.beat_s - time.time() % pace.beat_s
                self._lateness.due(time.monotonic() + wait_s)
                self.reactor.call_later(wait_s, beat)
                self.links.beat()
                if self._was_busy is not None:
                    self._was_busy = next(iter(self._busy.values()), None)
                self._beat()

        beat()

    def _beat(self) -> None:
        late_us = self._lateness.most_us if self._lateness.known or self._was_busy is None else None
        self._send(control.Beat(self.driver.taken, self.links.accused, self._was_busy, late_us))

    def busy(self, run: int | None, what: str | None) -> None:
        """The interpreter may be held from now on: by `what`, or by nothing any more. To be called before, from the loop's thread.

        The driver hears it at once, unless it has been told so since the last beat; that it is over it hears with a beat.
        """
        if what is None:
            self._busy.pop(run, None)
            return
        self._busy[run] = what
        if self._beat_s and self._was_busy is None:
            self._was_busy = what
            self._beat()

    def in_user_code(self, run: int, works: tuple[tuple[int, int], ...]) -> None:
        """User code is about to run on these epochs, or on none any more, which a beat says where there is nothing else to say."""
        if works or self._busy or not self._beat_s:
            self._send(control.InUserCode(run, works))

    # ------------------------------------------------------------ the driver

    def _driver_lost(self, channel: Channel, reason: str) -> None:
        self.driver.lost(channel)
        if self.driver.garbled >= GARBLED_MAX:
            self.leave(f"failed: what the driver says cannot be read, again and again: {reason}")
        elif not self._beat_s:
            self.leave(f"the driver is gone: {reason}")
        else:
            self.reactor.call_soon(self._redial)

    def _redial(self) -> None:
        """Connect to the driver again. The lease bounds how long this is tried; a port that is closed says that there is no driver."""

        def done(connection: Connection) -> None:
            Channel(connection, self.reactor, self._from_driver, self._driver_lost)

        def failed(reason: str) -> None:
            if "ECONNREFUSED" in reason:
                self.leave(f"the driver is gone: {reason}")
            else:
                self.reactor.call_later(REDIAL_S, self._redial)

        if self._leaving is None:
            hello: Hello = {**self._hello, "site": self.index, "taken": self.driver.taken}
            Dialer(self._address, self.reactor, self._secret, hello, done, failed)

    def _from_driver(self, channel: Channel, kind: int, body: bytes | memoryview) -> None:
        """The first word on a new connection says whether the driver still knows this site; the line goes on from there."""
        if self.driver.take(channel, kind, body):
            return
        message = control.from_driver(body)
        if isinstance(message, control.You):
            self.driver.resume(channel, message.taken)
        elif isinstance(message, control.Leave):
            self.leave(message.why)

    def _told(self, kind: int, body: bytes | memoryview) -> None:
        self._heard_driver_s = time.monotonic()
        message = control.from_driver(body)
        match message:
            case control.Deliver():
                part = self.parts.get(message.run)
                if part is not None:
                    self._deliver(part, message.event)
            case control.Ping():
                self.driver.confirmed(message.taken)
            case control.Pace():
                self._beat_on(message)
            case control.Relay():
                self.links.hear_relayed(message.peer, message.talk, message.kind, message.body)
            case control.Roster():
                if self.index in message.sites:
                    self.links.set_roster(message)
                else:
                    self.leave("it is in the roster no more")
            case control.StartPart():
                self._start_part(message)
            case control.Pushed():
                part = self.parts.get(message.run)
                if part is not None:
                    part.pushed(message.source, message.batch, message.ended)
            case control.EndPart():
                self._end_part(message.run)
            case control.Leave():
                self.leave(message.why)
            case control.Profile():
                self.sampled.begin(message)
            case control.You():
                pass  # It is the first word on a connection, and has been taken as such.
            case _:
                assert_never(message)

    def _deliver(self, part: PartRunner, event: Event) -> None:
        """Some events take long: operators are built, state is installed. That is not the silence of the dead."""
        long = isinstance(event, PlanCommitted | StateArrived | MembershipChanged)
        if long:
            self.busy(None, "taking in partitions")
        part.deliver(event, self.clock.now_us())
        if long:
            self.busy(None, None)

    def _start_part(self, message: control.StartPart) -> None:
        self.busy(None, "building its part of a run")
        try:
            self._build_part(message)
        finally:
            self.busy(None, None)

    def _build_part(self, message: control.StartPart) -> None:
        try:
            layout, options = pickle.loads(message.program)
            part = PartRunner(message, layout, options, self.index, self.reactor, self.clock, self)
        except Exception as error:
            self._send(control.broken(message.run, error))
            return
        if any(segment.user_code for segment in layout.segments):
            sys.setswitchinterval(SWITCH_INTERVAL_S)
        if not self.parts:
            gc.unfreeze()  # What earlier runs have left may go; it takes a while, but nobody is held up.
        self.parts[message.run], self._begun_at = part, self._collections
        self._schemas[message.run] = part.schemas
        gc.collect()
        gc.freeze()
        self._send(control.PartReady(message.run))

    def _end_part(self, run: int) -> None:
        """It has ended when nothing of it is written any more."""
        part, user = self.parts.pop(run, None), None
        self._schemas.pop(run, None)
        if part is not None:
            self._send(self._measure({run: part}))
            user = part.close()
            self.guests.run_ended(run)
            self.shipper.run_ended(run)
            self._opened_sinks = {key for key in self._opened_sinks if key[0] != run}
        self._ending.add(user, lambda: self._send(control.PartEnded(run)))

    def _send(self, message: control.FromSite) -> None:
        self.driver.send(CONTROL, control.encode(message))

    def _watch_lease(self, due_s: float = 0.0) -> None:
        """due_s: when this was to be looked at. A site that was busy itself first listens: what was said meanwhile may wait unread."""
        now_s, every_s = time.monotonic(), min(1.0, self._lease_s / 4)
        silence_s = now_s - self._heard_driver_s
        if silence_s > self._lease_s and now_s - due_s < every_s:
            self.leave(f"the driver has been silent for {silence_s:.1f} s")
        self.reactor.call_later(every_s, partial(self._watch_lease, now_s + every_s))

    # ------------------------------------------------------------ what parts ask for (Surroundings)

    def tell(self, run: int, fact: Fact) -> None:
        self._send(control.Said(run, fact))

    def release(self, run: int, release: Release) -> None:
        key = (run, release.segment, release.portion is None)
        if key not in self._opened_sinks:
            self._opened_sinks.add(key)
            self._send(control.SinkOpened(run, release.segment, release.batch.schema))
        self.driver.send(RELEASE, encode_release(run, release))

    def broke(self, run: int, error: Exception) -> None:
        self._send(control.broken(run, error))

    def ship(self, run: int, ship: Ship) -> None:
        """Bring a copy's state to its target (C2); a target that has left the roster gets none."""
        target = self.links.roster.sites.get(ship.copy.target)
        if target is None:
            self.state_failed(run, ship.copy.number, f"site {ship.copy.target} is not there any more")
        else:
            self.shipper.ship(run, ship.copy.number, ship.capture, target[:2])

    def give_up(self, why: str) -> None:
        """What this site has is lost here, and others have it: it ends, so that they take over at once."""
        self._send(control.SiteBroken(why))
        self.leave(why)

    def state_arrived(self, run: int, copy: int, state: bytes) -> None:
        if run in self.parts:
            self._deliver(self.parts[run], arrived(copy, state))

    def state_failed(self, run: int, copy: int, why: str) -> None:
        if run in self.parts:
            self.parts[run].deliver(TransferFailed(CopyNumber(copy), why), self.clock.now_us())

    # ------------------------------------------------------------ upkeep

    def _report(self) -> None:
        if self._warnings.waiting or not self._quiet.holds([part.stands() for part in self.parts.values()]):
            self._send(self._measure(self.parts))
        self.reactor.call_later(REPORT_S, self._report)

    def _measure(self, parts: dict[int, PartRunner]) -> control.Report:
        if self._reports % PSS_EVERY == 0:
            self._proportional.look()
        self._reports += 1
        reports = {run: part.report() for run, part in parts.items() if not part.broken}
        return control.Report(self.clock.now_us(), time.process_time(), rss_bytes(), self._proportional.bytes, self.listener.refused,
            reports, self._warnings.take(), self._warnings.left_out,
        )  # fmt: skip

    def _collect(self) -> None:
        """Look for young garbage once a second, for old garbage once a minute; nothing here makes cycles, but user code may."""
        self._collections += 1
        gc.collect(1 if self._collections % COLLECT_ALL_EVERY else 2)
        if self._collections == self._begun_at + GIVE_BACK_AFTER:
            give_back()
        self.reactor.call_later(COLLECT_S, self._collect)
