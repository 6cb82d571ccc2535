"""Who else connects to a site: Spark's tasks that push rows or fetch finished epochs, and sites that bring state.

They know the engine's secret, but what they send is never unpickled: rows are Arrow IPC, requests are JSON.

    push   hello {"as": "push", run, source, to, batch, partition, attempt}; ROWS...; {"ask": "finish"}  -> {"taken": true} | {"gone": true}
           {"refused": why}, perhaps before the rows are all there: this site cannot keep them now
    fetch  hello {"as": "fetch", run, sink}; {"ask": "newest", "taken", "stored"} -> {"newest", "committed", "taken", "stored",
           "begun", "ended", "offer"} | {"gone": true}; see `held.py`; stored: what another replica has said
           {"ask": "rows", "after", "through"} -> (ROWS..., {"epoch"})..., {"rows": count} | {"newest", "since"}: not all are here
           {"ask": "commit", "through"} -> as for newest, without an offer
    state  hello {"as": "state", run, copy, bytes}; see `shipping.py`
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from evenflow.errors import ProtocolError
from evenflow.site.staging import Attempt
from evenflow.world.spark.executor.held import UNKNOWN
from evenflow.world.spark.executor.shipping import Receiver
from evenflow.world.spark.net.channel import Channel
from evenflow.world.spark.net.connection import Connection, words
from evenflow.world.spark.net.framing import CONTROL, ROWS
from evenflow.world.spark.net.handshake import Hello
from evenflow.world.spark.net.kept import STAGED_BYTES_MAX, Kept

if TYPE_CHECKING:
    from evenflow.world.spark.executor.held import HeldEpochs
    from evenflow.world.spark.executor.part_runner import PartRunner
    from evenflow.world.spark.net.reactor import Clock, Reactor

FETCH_ROWS_MAX: Final = 16_384
"""Rows per message to a reader."""

log = logging.getLogger("evenflow")


def answer(channel: Channel, **facts: Any) -> None:
    channel.send(CONTROL, [json.dumps(facts).encode()])


class Host(Protocol):
    """A site, as far as its guests need it."""

    @property
    def parts(self) -> Mapping[int, PartRunner]: ...
    @property
    def reactor(self) -> Reactor: ...
    @property
    def clock(self) -> Clock: ...
    def state_arrived(self, run: int, copy: int, state: bytes) -> None: ...
    def state_failed(self, run: int, copy: int, why: str) -> None: ...


class Guests:
    """The guest connections of one site."""

    def __init__(self, site: Host) -> None:
        self._site = site
        self._guests: dict[Channel, Pusher | Fetcher | Receiver] = {}

    def accept(self, connection: Connection, hello: Hello) -> None:
        """Raises KeyError or ValueError for a hello that makes no sense."""
        guest = self._guest(hello)
        channel = Channel(connection, self._site.reactor, partial(self._heard, guest), self._gone)
        self._guests[channel] = guest

    def _heard(self, guest: Pusher | Fetcher | Receiver, channel: Channel, kind: int, body: bytes | memoryview) -> None:
        """An error over what a guest says ends its visit, and not the site, which has others to serve. Raises ProtocolError for what cannot
        be read."""
        try:
            guest.take(channel, kind, body)
        except ProtocolError:
            raise
        except Exception as error:
            log.exception("a %s of run %d, who is a guest of this site, is let go", type(guest).__name__, guest.run)
            channel.close()
            self._gone(channel, f"the site met an error over it: {error!r}")

    def _guest(self, hello: Hello) -> Pusher | Fetcher | Receiver:
        if hello["as"] == "push":
            return Pusher(self._site, hello)
        if hello["as"] == "state":
            if int(hello["run"]) not in self._site.parts:
                raise ValueError(f"run {hello['run']} has no part here that could take state")
            return Receiver(hello, self._site.state_arrived, self._site.state_failed)
        return Fetcher(self._site, hello)

    def run_ended(self, run: int) -> None:
        """Let tasks that push into it end; they have been answered, or their run needs no rows any more. Nor does it need state."""
        self._dismiss(lambda guest: guest.run == run and not isinstance(guest, Fetcher))

    def _dismiss(self, chosen: Callable[[Pusher | Fetcher | Receiver], bool]) -> None:
        for channel, guest in list(self._guests.items()):
            if chosen(guest):
                guest.forget()
                self._guests.pop(channel)
                channel.close()

    def close(self) -> None:
        for channel, guest in self._guests.items():
            guest.forget()
            channel.close()
        self._guests.clear()

    def _gone(self, channel: Channel, reason: str) -> None:
        """A task has ended, or was killed: what its attempt has staged and not finished is forgotten."""
        guest = self._guests.pop(channel, None)
        if isinstance(guest, Receiver):
            guest.broke(reason)
        elif guest is not None:
            guest.forget()


class Pusher:
    """One attempt of a Spark task."""

    def __init__(self, site: Host, hello: Hello) -> None:
        self._site = site
        self.run = int(hello["run"])
        self._source, self._to = str(hello["source"]), int(hello["to"])
        self._attempt = Attempt((int(hello["batch"]), int(hello["partition"])), int(hello["attempt"]), Kept(STAGED_BYTES_MAX))
        self._finished = False

    def take(self, channel: Channel, kind: int, body: bytes | memoryview) -> None:
        if self._finished:
            return  # What was on its way when its rows were refused.
        try:
            self._take(channel, kind, body)
        except OSError as error:
            why = f"it cannot keep them in a temporary file: {error}"
            log.warning("rows of a task of Spark for source %r are refused: %s", self._source, why)
            self.forget()
            self._finished = True
            answer(channel, refused=why)

    def _take(self, channel: Channel, kind: int, body: bytes | memoryview) -> None:
        """Raises OSError if the rows find no room."""
        if kind == ROWS:
            self._attempt.add(body)
            return
        hosted = self._site.parts.get(self.run)
        if hosted is None:
            answer(channel, gone=True)
            return
        feed = hosted.pushed_feed(self._source, self._to)
        if feed is None:
            # The source is over here: the run drains, so nothing more is taken in. Or this site does not lead (yet, or any more).
            self.forget()
            self._finished = True
            answer(channel, gone=True)
            return
        feed.finish(self._attempt, lambda: answer(channel, taken=True))
        self._finished = True

    def forget(self) -> None:
        if not self._finished:
            self._attempt.kept.close()


class Fetcher:
    """The reader of a Spark streaming query, in Spark's driver or in one of its tasks."""

    def __init__(self, site: Host, hello: Hello) -> None:
        self._site = site
        self.run, self._sink = int(hello["run"]), str(hello["sink"])

    def take(self, channel: Channel, kind: int, body: bytes | memoryview) -> None:
        request = words(kind, body)
        hosted = self._site.parts.get(self.run)
        held = hosted.held_for(self._sink) if hosted is not None else None
        if hosted is None or held is None:
            answer(channel, gone=True)
            return
        ask = request["ask"]
        if ask == "rows":
            self._send_rows(channel, held, int(request["after"]), int(request["through"]))
            return
        if ask == "commit":
            hosted.committed_by_spark(self._sink, int(request["through"]), self._site.clock.now_us())
        facts: dict[str, Any] = {}
        if ask == "newest":
            taken = int(request["taken"])
            hosted.taken_by_spark(self._sink, taken, int(request["stored"]), self._site.clock.now_us())
            facts["offer"] = held.offer(held.taken if taken == UNKNOWN else taken)
        facts |= {"newest": held.newest, "committed": held.committed, "taken": held.taken, "stored": held.stored_through}
        answer(channel, **facts, begun=held.begun, ended=held.ended)

    def _send_rows(self, channel: Channel, held: HeldEpochs, after: int, through: int) -> None:
        """Epoch by epoch: a reader whose site dies goes on behind the last whole one at another."""
        if not held.has(after, through):
            answer(channel, newest=held.newest, since=held.since)
            return
        epochs = held.between(after, through)
        for epoch in epochs:
            for start in range(0, epoch.rows.num_rows, FETCH_ROWS_MAX):
                channel.send(ROWS, [epoch.rows.slice(start, FETCH_ROWS_MAX).serialize()])
            answer(channel, epoch=epoch.epoch)
        answer(channel, rows=sum(epoch.rows.num_rows for epoch in epochs))

    def forget(self) -> None:
        """Nothing is kept for a reader."""
