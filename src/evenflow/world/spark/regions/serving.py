"""The port at which a driver offers the epochs of one sink: a thread of its own, which waits for nobody (race.md, W5, W6).

The sink's thread hands an epoch over and goes on. Each subscriber has a place in what is kept; it is sent what follows as fast as it reads,
with a bounded amount under way. Who reads too slowly for what is kept loses its place: it is told so, and its connection ends.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from evenflow.availability.finished import Epoch, Finished
from evenflow.errors import ClusterError, SinkError, TlsRefused, UnreadableMessage
from evenflow.kernels.digest import set_of_rows
from evenflow.sinks.sink import Writer
from evenflow.sinks.stream import StreamSink
from evenflow.world.spark.net.channel import Channel
from evenflow.world.spark.net.connection import Connection, words
from evenflow.world.spark.net.framing import CONTROL, ROWS
from evenflow.world.spark.net.handshake import Hello
from evenflow.world.spark.net.listener import Listener, open_port
from evenflow.world.spark.net.reactor import Reactor
from evenflow.world.spark.net.trust import Given, Trust
from evenflow.world.spark.regions.words import FORMAT, SUBSCRIBER, epoch_pieces, schema_text, secret_of, whole_in

UNDER_WAY_BYTES: Final = 4 << 20
"""What a subscriber may have been sent and not taken."""
LOOK_S: Final = 0.02
"""Those who have not taken what was under way are looked at again so often, and what is too old is forgotten."""
WANTED_MOST: Final = 1_024
"""Epochs that a subscriber may have asked for besides: it asks for one when that is late."""
SUBSCRIBERS_MOST: Final = 256
LAST_WORDS_S: Final = 2.0
AGAIN_S: Final = 0.1
"""How long nobody is served after an error that nobody has foreseen."""
"""So long a run that is over waits for its subscribers to have read all; a run that goes on never waits."""
SILENT_S: Final = 0.1
"""Who calls at a region that is silent is told so, and let go so much later."""
READ_S: Final = 30.0
"""Who has taken nothing of what waits for it for so long is let go."""

log = logging.getLogger("evenflow")

Rows = tuple[pa.Buffer, pa.Schema]


@dataclass(slots=True)
class Place:
    """Of a subscriber. after: the last epoch that it was sent; None: it has not said from where, or cannot go on. told: the columns. marks:
    it wants to know which epochs have passed without rows; passed: up to there it does. wanted: epochs that it has asked for besides, and
    was not sent yet."""

    channel: Channel
    after: int | None = None
    brings: str = "heads"
    told: pa.Schema | None = None
    ended: bool = False
    marks: bool = False
    passed: int = 0
    moved_s: float = 0.0
    sent: int = 0
    wanted: deque[int] = field(default_factory=deque)


class StreamServer:
    """port: at which it listens. facts: of the group. Everything but `publish`, `skip`, `finish` and `close` happens in its own thread."""

    def __init__(self, sink: StreamSink, name: str, facts: Mapping[str, Any], behind: int | None = 0) -> None:
        """behind: the epoch after which the first one comes; None: that is said later (`begin`), and until then nobody is served. Raises
        SinkError if the port cannot be opened."""
        whose = f"stream sink {name!r}"
        tls = None if sink.tls_certificate is None else Given("", sink.tls_certificate, str(sink.tls_key))
        trust = Trust(secret_of(sink.secret_file, whose), tls)
        self._name, self._facts = name, dict(facts)
        self._kept = Finished[Rows](int(sink.keep_s * 1e6), sink.keep_mb << 20)
        self._silent = behind is None
        self._kept.begin_behind(behind or 0)
        self._places: dict[Channel, Place] = {}
        self._reactor, self._closing, self._over = Reactor(), threading.Event(), threading.Event()
        self._quiet = threading.Event()
        self._looking = False
        self.lost_places = 0
        try:
            self._sock = open_port(sink.host, (sink.port, sink.port) if sink.port else None)
            self._listener = Listener(self._sock, self._reactor, trust, self._welcome)
        except (OSError, ClusterError, TlsRefused) as error:
            self._reactor.close()
            raise SinkError(f"{whose}: port {sink.port} of {sink.host} cannot be opened: {error}") from error
        self.host, self.port = sink.host, self._listener.port
        self._thread = threading.Thread(target=self._serve, name=f"evenflow-stream-{name}", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ from the sink's thread

    def begin(self, behind: int) -> None:
        """What comes first is behind this epoch. Now readers are served."""

        def take() -> None:
            self._silent = False
            self._kept.begin_behind(behind)

        self._soon(take)

    def publish(self, epoch: int, batch: pa.RecordBatch) -> None:
        """An epoch is finished. Costs its digest and its encoding, and waits for nobody."""
        if not batch.num_rows:
            self._soon(lambda: self._skip(epoch))
            return
        digest, rows, schema = set_of_rows(batch), batch.serialize(), batch.schema.remove_metadata()

        def take() -> None:
            self._kept.add(epoch, digest, (rows, schema), rows.size, _now_us())
            self._pump_all()

        self._soon(take)

    def finish(self) -> None:
        """Every source has ended, and all epochs were published."""

        def take() -> None:
            self._kept.ended = True
            self._pump_all()

        self._soon(take)

    def settle(self, wait_s: float) -> None:
        """Wait until those who are connected have been sent all, at most so long."""
        self._quiet.clear()
        self._soon(self._say_when_quiet)
        self._quiet.wait(0.0 if self._over.is_set() else wait_s)

    def close(self) -> None:
        """Serve nobody any more. May be called twice."""
        self._closing.set()
        self._reactor.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)

    def _soon(self, call: Callable[[], None]) -> None:
        if not self._closing.is_set():
            self._reactor.call_soon(call)

    # ------------------------------------------------------------ its own thread

    def _serve(self) -> None:
        try:
            while not self._closing.is_set():
                try:
                    self._reactor.poll(1.0)
                    self._kept.trim(_now_us())
                except Exception:
                    log.exception("the port of stream sink %r met an error and goes on", self._name)
                    self._closing.wait(AGAIN_S)
        finally:
            for channel in list(self._places):
                channel.close()
            self._listener.close()
            self._closing.set()
            self._over.set()
            self._quiet.set()
            self._reactor.close()

    def _welcome(self, connection: Connection, hello: Hello) -> None:
        channel = Channel(connection, self._reactor, self._heard, self._gone)
        if self._silent:
            self._tell(channel, silent=True)
            self._reactor.call_later(SILENT_S, channel.close)
            return
        refusal = self._refusal(hello)
        if refusal is not None:
            self._tell(channel, refused=refusal[0], message=refusal[1])
            self._reactor.call_later(1.0, channel.close)
            return
        self._places[channel] = Place(channel, moved_s=time.monotonic())
        self._tell(channel, group=self._facts, sink=self._name, last=self._kept.last)

    def _refusal(self, hello: Hello) -> tuple[str, str] | None:
        """Why this one is not served."""
        if hello.get("as") != SUBSCRIBER or hello.get("format") != FORMAT:
            return "OperationRefused", f"this is the port of a stream sink, for subscribers of format {FORMAT}"
        for what, given, own in (("group", hello.get("group"), self._facts["name"]), ("sink", hello.get("sink"), self._name)):
            if given is not None and given != own:
                return "GroupDiffers", f"this port has {what} {own!r}, and not {given!r:.100}"
        if len(self._places) >= SUBSCRIBERS_MOST:
            return "OperationRefused", f"{SUBSCRIBERS_MOST} subscribers are served already"
        return None

    def _heard(self, channel: Channel, kind: int, body: bytes | memoryview) -> None:
        said, place = words(kind, body), self._places.get(channel)
        if place is None:
            return
        if said.get("ask") == "follow":
            place.after, place.ended = whole_in(said, "after"), False
            place.brings = "rows" if said.get("brings") == "rows" else "heads"
            place.marks, place.passed = said.get("marks") is True, 0
            self._pump(place)
        elif said.get("ask") == "want":
            if len(place.wanted) >= WANTED_MOST:
                raise UnreadableMessage(f"a subscriber asks for {WANTED_MOST:,} epochs besides and takes none")
            place.wanted.append(whole_in(said, "epoch"))
            self._pump(place)
        else:
            raise UnreadableMessage(f"a subscriber asks for {said.get('ask')!r:.40}")

    def _gone(self, channel: Channel, reason: str) -> None:
        self._places.pop(channel, None)

    def _skip(self, epoch: int) -> None:
        """An epoch without rows is through: news for those who want marks."""
        self._kept.skip(epoch)
        for place in list(self._places.values()):
            if place.marks:
                self._pump(place)

    def _pump_all(self) -> None:
        for place in list(self._places.values()):
            self._pump(place)

    def _pump(self, place: Place) -> None:
        """Send what follows, as far as there is room under way."""
        channel = place.channel
        while place.wanted and not channel.closed:
            if channel.queued_bytes >= UNDER_WAY_BYTES:
                self._look_later()
                return
            if (wanted := self._kept.of(place.wanted.popleft())) is not None:
                self._send(place, wanted, rows=True)
        while place.after is not None and not channel.closed:
            if not self._kept.reaches(place.after):
                self.lost_places += 1
                self._tell(channel, missing=self._kept.floor)
                place.after = None
                return
            if channel.queued_bytes >= UNDER_WAY_BYTES:
                self._look_later()
                return
            found = self._kept.after(place.after)
            if found is None:
                if place.marks and self._kept.passed > max(place.passed, self._kept.last):
                    place.passed = self._kept.passed
                    self._tell(channel, passed=self._kept.passed, last=self._kept.last)
                if self._kept.ended and not place.ended:
                    place.ended = True
                    self._tell(channel, ended=self._kept.last)
                return
            place.after = found.link.epoch
            self._send(place, found, rows=place.brings == "rows")

    def _send(self, place: Place, epoch: Epoch[Rows], *, rows: bool) -> None:
        encoded, schema = epoch.rows
        if rows and (place.told is None or not schema.equals(place.told)):
            self._tell(place.channel, schema=schema_text(schema))
            place.told = schema
        place.channel.send(ROWS, epoch_pieces(epoch.link, encoded if rows else None))

    def _tell(self, channel: Channel, **facts: Any) -> None:
        channel.send(CONTROL, [json.dumps(facts).encode()])

    def _look_later(self) -> None:
        """There is somebody for whom something waits."""
        if not self._looking:
            self._looking = True
            self._reactor.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = False
        now_s = time.monotonic()
        self._kept.trim(_now_us())
        for place in list(self._places.values()):
            if place.channel.sent != place.sent or not place.channel.queued_bytes:
                place.sent, place.moved_s = place.channel.sent, now_s
            elif now_s - place.moved_s > READ_S or (place.after is None and place.channel.queued_bytes >= UNDER_WAY_BYTES):
                log.warning("stream sink %r: a subscriber that does not read is let go", self._name)
                place.channel.close()
                del self._places[place.channel]
                continue
            self._pump(place)

    def _say_when_quiet(self) -> None:
        waiting = any(
            place.channel.queued_bytes or (place.after is not None and self._kept.after(place.after)) for place in self._places.values()
        )
        if waiting:
            self._reactor.call_later(LOOK_S, self._say_when_quiet)
        else:
            self._quiet.set()


def _now_us() -> int:
    return time.monotonic_ns() // 1000


# ---------------------------------------------------------------- as a sink

OPEN: Final[dict[tuple[str, int], StreamServer]] = {}
"""Ports of this process. A run that is over leaves its port open for late readers, until another run wants it."""


class StreamWriter(Writer):
    """The sink's side of a port. One whose sources have all ended stays open for late readers while its process lives."""

    def __init__(self, server: StreamServer) -> None:
        self.server, self._ended = server, False

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        self.server.publish(epoch, batch)

    def begin_behind(self, epoch: int) -> None:
        self.server.begin(epoch)

    def ended(self) -> None:
        self._ended = True
        self.server.finish()

    def close(self) -> None:
        self.server.settle(LAST_WORDS_S)
        if not self._ended:
            self.server.close()


class Served:
    """A stream sink as an outlet opens it. name: of the sink. facts: of its group, if it is in one. behind: see `StreamServer`."""

    def __init__(self, sink: StreamSink, name: str, facts: Mapping[str, Any], behind: int | None = 0) -> None:
        self._sink, self._name, self._facts, self._behind = sink, name, facts, behind
        self.retries, self.backoff_ms = sink.retries, sink.backoff_ms

    def open(self, run_id: str) -> StreamWriter:
        """Raises SinkError."""
        at = (self._sink.host, self._sink.port)
        if self._sink.port and (before := OPEN.pop(at, None)) is not None:
            before.close()
        server = StreamServer(self._sink, self._name, {"name": run_id, **self._facts}, self._behind)
        OPEN[server.host, server.port] = server
        log.info("sink %r is read at %s:%d", self._name, server.host, server.port)
        return StreamWriter(server)
