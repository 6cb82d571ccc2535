"""A region that began without state and is not believed yet: what it makes waits here until it is as live regions have it (race.md, W4).

    peers' ports --heads--> `Ear`, a thread --\\
                                               `Silent`: one gate for all sinks --open--> what waits in each `WithholdingWriter` goes out
    own outlets --epochs, digests------------/

What has to agree, and what goes out first, is `availability.silence`'s business. Nothing waits for the gate: epochs are through as they are
made, since what a shared sink lacks before this region is believed, live ones bring.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from evenflow.availability.chain import Link
from evenflow.availability.group import differs
from evenflow.availability.silence import Gate, Silence, Withheld
from evenflow.errors import GroupDiffers, RegionsDisagree, UnreadableMessage
from evenflow.kernels.digest import set_of_rows
from evenflow.sinks.sink import Writer
from evenflow.stream.region_url import Place
from evenflow.world.spark.net.channel import Channel
from evenflow.world.spark.net.connection import Connection, words
from evenflow.world.spark.net.framing import CONTROL, ROWS
from evenflow.world.spark.net.listener import Dialer
from evenflow.world.spark.net.reactor import Reactor
from evenflow.world.spark.net.trust import Trust
from evenflow.world.spark.regions.words import FORMAT, SUBSCRIBER, epoch_in, whole_in

AGAIN_FIRST_S: Final = 0.05
AGAIN_LAST_S: Final = 2.0
"""From one try to reach a region to the next: twice as long each time."""
"""Host, port, and the port at which the region listens."""

log = logging.getLogger("evenflow")


class Silent:
    """Of one run. after: its first epoch comes behind this one. sinks: those that are compared. on_believed: is called once, with the epoch
    behind which all is as live regions have it, in whichever thread has found it out. From any thread."""

    def __init__(self, after: int, sinks: Sequence[str]) -> None:
        self.after = after
        self.on_believed: Callable[[int], None] = lambda since: None
        self.gate = Gate({sink: Silence.behind(sink, after) for sink in sinks})
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._disagreed: RegionsDisagree | None = None

    def made(self, sink: str, link: Link) -> None:
        """This region has finished an epoch with rows. Raises RegionsDisagree if a region is contradicted that believed it before."""
        if self._disagreed is not None:
            raise self._disagreed
        if sink in self.gate.silences:
            self._note(lambda: self.gate.silences[sink].made(link))

    def heard(self, sink: str, link: Link, region: str) -> None:
        """A live one has. What it contradicts is raised where this region next makes an epoch."""
        try:
            self._note(lambda: self.gate.silences[sink].heard(link, region))
        except RegionsDisagree as error:
            self._disagreed = error

    def _note(self, compare: Callable[[], None]) -> None:
        with self._lock:
            if self.over.is_set():
                return
            compare()
            if not self.gate.over:
                return
            self.over.set()
        self.on_believed(self.gate.since)


class WithholdingWriter(Writer):
    """One sink's side of a silent region. writer: what takes the rows once the region is believed. close_ear: nobody needs to be heard."""

    def __init__(self, writer: Writer, silent: Silent, sink: str, close_ear: Callable[[], None]) -> None:
        self._writer, self._silent, self._sink, self._close_ear = writer, silent, sink, close_ear
        self._withheld = Withheld[pa.RecordBatch](silent.gate, silent.after, known=False)
        self._giving = deque[tuple[Link, pa.RecordBatch]]()
        self._begun = False

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        """Raises RegionsDisagree, and what the sink raises; then what was to be given is given with the next try."""
        if batch.num_rows and epoch > self._withheld.prev:
            self._silent.made(self._sink, self._withheld.made(epoch, set_of_rows(batch), batch))
        if not self._silent.over.is_set():
            return
        self._giving.extend(self._withheld.given())
        while self._giving:
            link, rows = self._giving[0]
            self._begin(link.prev)
            self._writer.write(link.epoch, rows)
            self._giving.popleft()
        if self._begun:
            self._writer.write(epoch, batch.slice(0, 0))  # It is through, with rows or without.

    def _begin(self, prev: int) -> None:
        if not self._begun:
            self._writer.begin_behind(prev)
            self._begun = True

    def interrupt(self) -> None:
        self._writer.interrupt()

    def ended(self) -> None:
        """A region that was never believed does not say that all is over."""
        if self._silent.over.is_set() and self._withheld.known:
            self._begin(self._withheld.prev)
            self._writer.ended()

    def close(self) -> None:
        self._close_ear()
        self._writer.close()


class Withholding:
    """A sink as an outlet opens it, in a silent region. opened: the sink as it is opened else."""

    def __init__(self, opened: Any, silent: Silent, sink: str, ear: Ear) -> None:
        self._opened, self._silent, self._sink, self._ear = opened, silent, sink, ear
        self.retries, self.backoff_ms = opened.retries, opened.backoff_ms

    def open(self, run_id: str) -> Writer:
        """Raises SinkError."""
        return WithholdingWriter(self._opened.open(run_id), self._silent, self._sink, self._ear.close)


class _Peer:
    """The way to one region's port for one sink."""

    def __init__(self, sink: str, place: Place, trust: Trust) -> None:
        self.sink, self.place, self.trust, self.name = sink, place, trust, f"{place[0]}:{place[1]}"
        self.channel: Channel | None = None
        self.dialer: Dialer | None = None
        self.known = False
        self.again_s = AGAIN_FIRST_S


class Ear:
    """Hears the heads of live regions, in a thread of its own, until the region is believed or the run is over.

    peers: by sink, where they are and whom to trust. facts: of the group; who says others is not heard.
    """

    def __init__(self, silent: Silent, peers: Mapping[str, tuple[Sequence[Place], Trust]], facts: Mapping[str, Any]) -> None:
        self._silent, self._facts = silent, facts
        self._peers = [_Peer(sink, place, trust) for sink, (places, trust) in peers.items() for place in places]
        self._reactor, self._closing = Reactor(), threading.Event()
        self._thread = threading.Thread(target=self._listen, name="evenflow-ear", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hear nobody any more. May be called twice, from any thread."""
        self._closing.set()
        self._reactor.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)

    def _listen(self) -> None:
        try:
            for peer in self._peers:
                self._dial(peer)
            while not (self._closing.is_set() or self._silent.over.is_set()):
                self._reactor.poll(1.0)
        except Exception:
            log.exception("a region that is silent hears nobody any more, and stays silent")
        finally:
            for peer in self._peers:
                if peer.dialer is not None:
                    peer.dialer.abandon()
                if peer.channel is not None:
                    peer.channel.close()
            self._reactor.close()

    def _dial(self, peer: _Peer) -> None:
        host, port, listens = peer.place
        hello = {"as": SUBSCRIBER, "format": FORMAT, "group": self._facts["name"], "sink": peer.sink}

        def done(connection: Connection) -> None:
            peer.dialer, peer.known = None, False
            peer.channel = Channel(
                connection, self._reactor, lambda _, kind, body: self._heard(peer, kind, body), lambda _, why: self._lost(peer, why)
            )

        peer.dialer = Dialer((host, port), self._reactor, peer.trust, hello, done, lambda why: self._lost(peer, why), listens)

    def _lost(self, peer: _Peer, why: str) -> None:
        log.debug("region %s is not heard: %s", peer.name, why)
        peer.dialer = peer.channel = None
        self._reactor.call_later(peer.again_s, lambda: self._dial(peer))
        peer.again_s = min(AGAIN_LAST_S, 2 * peer.again_s)

    def _heard(self, peer: _Peer, kind: int, body: bytes | memoryview) -> None:
        if kind == ROWS:
            if not peer.known:
                raise UnreadableMessage("an epoch came before the region had said who it is")
            self._silent.heard(peer.sink, epoch_in(body)[0], peer.name)
            return
        said = words(kind, body)
        if "missing" in said:  # What came before is not known here, so nothing of it can be compared.
            self._follow(peer, whole_in(said, "missing"))
        elif "group" in said and not peer.known:
            self._welcomed(peer, said)

    def _welcomed(self, peer: _Peer, said: Mapping[str, Any]) -> None:
        facts = said.get("group")
        try:
            differs(self._facts, facts if isinstance(facts, Mapping) else {}, peer.name)
        except GroupDiffers as error:
            log.warning("a region that is silent does not hear %s: %s", peer.name, error)
            return
        peer.known, peer.again_s = True, AGAIN_FIRST_S
        self._follow(peer, self._silent.after)

    def _follow(self, peer: _Peer, after: int) -> None:
        assert peer.channel is not None
        peer.channel.send(CONTROL, [json.dumps({"ask": "follow", "brings": "heads", "after": after}).encode()])


__all__ = ["Ear", "Silent", "Withholding", "WithholdingWriter"]
