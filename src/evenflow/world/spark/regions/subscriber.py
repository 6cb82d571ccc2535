"""`ef.subscribe`: the epochs of one sink of one or several regions, each once, in order, whichever region is there (race.md, W6).

All of it happens in the thread that asks for the next epoch: a program that is busy with one does not read the next, and a region's
bounded buffer waits for it. What to ask of whom is `availability.subscribing`'s business.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from evenflow.availability.group import differs
from evenflow.availability.subscribing import Action, Deliver, End, Follow, Subscription, Want, progress
from evenflow.errors import EvenflowError, GroupDiffers, OperationRefused, OptionError, RegionsUnreachable, UnreadableMessage
from evenflow.stream.region_url import Place, places_of
from evenflow.world.spark.net.channel import Channel
from evenflow.world.spark.net.connection import Connection, words
from evenflow.world.spark.net.framing import CONTROL, ROWS
from evenflow.world.spark.net.listener import Dialer
from evenflow.world.spark.net.reactor import Reactor
from evenflow.world.spark.net.trust import Given, Trust
from evenflow.world.spark.regions.words import FORMAT, SUBSCRIBER, epoch_in, rows_in, schema_in, secret_of, whole_in

AGAIN_FIRST_S: Final = 0.05
AGAIN_LAST_S: Final = 2.0
"""From one try to reach a region to the next: twice as long each time."""
SILENT: Final = "it has begun without state, and is silent until live regions have had the same results for a while"
WHOSE: Final = "subscription"

log = logging.getLogger("evenflow")


def subscribe(
    urls: Sequence[str] | str,
    group: str | None = None,
    sink: str | None = None,
    *,
    after: int | None = None,
    race: bool = False,
    secret_file: str | None = None,
    tls_ca: str | None = None,
    patience_s: float = 60.0,
) -> Subscriber:
    """The epochs of a sink, as (epoch, rows), each once and in order, from whichever of the regions is there.

        for epoch, rows in ef.subscribe(["east:4001", "west:4001"], "traffic", after=last):
            ...

    urls: "host:port" of each region's `ef.sinks.stream`, the nearest first; one is enough. Behind something that forwards another port,
    "host:port?listens=4001" names the region's own. group, sink: the names that the regions must have; None: any, but all the same.
    after: the last epoch that was taken before; 0: from the first one; None: what comes from now on. race: rows from all regions, and not
    heads: the least wait for the most traffic. secret_file: as for the sink; None: the environment's EVENFLOW_STREAM_SECRET. tls_ca: the
    authority, a file in PEM, that signed the regions' certificates. patience_s: for how long no region may be there.

    Iterating ends when all regions' sources have. Raises OptionError; GroupDiffers; RegionsDisagree; EpochsGone; RegionsUnreachable.
    """
    given = (urls,) if isinstance(urls, str) else tuple(urls)
    if after is not None and (type(after) is not int or after < 0):
        raise OptionError(f"subscription: after is {after!r}; give the last epoch that was taken, 0 for all, or None for what comes")
    places = places_of(given, tls_ca)
    tls = None if tls_ca is None else Given(tls_ca, "", "")
    return Subscriber(places, group, sink, after, Trust(secret_of(secret_file, WHOSE), tls), race=race, patience_s=patience_s)


class _Leg:
    """The way to one region: a connection, and when to try again."""

    def __init__(self, place: tuple[str, int, int], number: int) -> None:
        self.place, self.number, self.name = place, number, f"{place[0]}:{place[1]}"
        self.channel: Channel | None = None
        self.schema: pa.Schema | None = None
        self.known = False
        self.again_s = AGAIN_FIRST_S
        self.dialer: Dialer | None = None
        self.why = ""


class Subscriber:
    """See `subscribe`. An iterator of (epoch, rows), and a context manager. delivered: the last epoch that it gave. facts: of the
    group, and its sink; None until a region has said them. on_shown: told (leg, epoch) of each epoch that a leg shows or brings."""

    def __init__(
        self, places: Sequence[Place], group: str | None, sink: str | None, after: int | Callable[[Mapping[str, Any]], int] | None,
        trust: Trust, *, race: bool, patience_s: float, marks: bool = False,
    ) -> None:  # fmt: skip
        """after: as for `subscribe`, or what makes it of the group's facts. marks: regions say, too, up to which epoch nothing has come."""
        self._group, self._sink, self._trust, self._marks = group, sink, trust, marks
        self._after = after if isinstance(after, int) else None
        self._behind = after if callable(after) else None
        self._reactor = Reactor()
        self._legs = [_Leg(place, at) for at, place in enumerate(places)]
        self.facts: Mapping[str, Any] | None = None
        names = [leg.name for leg in self._legs]
        self._subscription = Subscription.of(
            sink or "stream", names, self._after or 0, _now_us(), race=race, patience_us=max(1, int(patience_s * 1e6))
        )
        self._ready: deque[tuple[int, pa.RecordBatch]] = deque()
        self._failure: EvenflowError | None = None
        self._ended = self._closed = False
        self.on_shown: Callable[[int, int], object] | None = None
        self.bytes = self.useful_bytes = 0
        self.delivered = self._after or 0
        for leg in self._legs:
            self._dial(leg)

    # ------------------------------------------------------------ for users

    def __iter__(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self

    def __next__(self) -> tuple[int, pa.RecordBatch]:
        while True:
            found = self.take(3600.0)
            if found is not None:
                return found
            if self._ended or self._closed:
                raise StopIteration

    def take(self, timeout_s: float) -> tuple[int, pa.RecordBatch] | None:
        """The next epoch, or None if none has come in so long, or none comes any more (`ended`). Raises as `subscribe` says."""
        until_s = time.monotonic() + timeout_s
        while not self._ready:
            if self._failure is not None:
                failure = self._failure
                self.close()
                raise failure
            left_s = until_s - time.monotonic()
            if self._ended or self._closed or left_s <= 0:
                return None
            due_us = self._subscription.due_us
            wait_s = left_s if due_us is None else min(left_s, (due_us - _now_us()) / 1e6)
            self._reactor.poll(min(1.0, max(0.0, wait_s)))
            self._carry(lambda: self._subscription.tick(_now_us()))
        found = self._ready.popleft()
        self.delivered = found[0]
        return found

    @property
    def ended(self) -> bool:
        """Everything that there will ever be has been given."""
        return self._ended and not self._ready

    @property
    def through(self) -> int:
        """All rows of the epochs up to this one have been given; with `marks` also where none came."""
        return self.delivered if self._ready else self._subscription.through

    def progress(self) -> dict[str, int]:
        """Counts: epochs that were asked for twice (hedged), that came twice (repeated), changes of the leg that brings rows (swapped),
        bytes of rows, and of those that were the first to come."""
        counts = {"delivered": self.delivered, "bytes": self.bytes, "useful_bytes": self.useful_bytes}
        return {**progress(self._subscription), **counts}

    @property
    def leg(self) -> int | None:
        """Which of the regions brings rows now, by its place in what was given; None if none is there."""
        return self._subscription.rows_from

    def close(self) -> None:
        """Ask nobody any more. May be called twice."""
        if self._closed:
            return
        self._closed = True
        for leg in self._legs:
            if leg.dialer is not None:
                leg.dialer.abandon()
            if leg.channel is not None:
                leg.channel.close()
        self._reactor.close()

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ------------------------------------------------------------ legs

    def _dial(self, leg: _Leg) -> None:
        if self._closed:
            return
        host, port, listens = leg.place
        hello = {"as": SUBSCRIBER, "format": FORMAT, "group": self._group, "sink": self._sink}

        def done(connection: Connection) -> None:
            leg.dialer, leg.schema, leg.known = None, None, False
            leg.channel = Channel(
                connection, self._reactor, lambda _, kind, body: self._heard(leg, kind, body), lambda _, why: self._lost(leg, why)
            )

        leg.dialer = Dialer((host, port), self._reactor, self._trust, hello, done, lambda why: self._lost(leg, why), listens)

    def _lost(self, leg: _Leg, why: str) -> None:
        log.debug("region %s is not there: %s", leg.name, why)
        leg.dialer = leg.channel = None
        leg.why = f"{why} (or it has another secret)" if "closed the connection" in why and not leg.known else why
        self._carry(lambda: self._subscription.lost(leg.number, _now_us()))
        if self._failure is None and not self._ended:
            self._reactor.call_later(leg.again_s, lambda: self._dial(leg))
            leg.again_s = min(AGAIN_LAST_S, 2 * leg.again_s)

    def _heard(self, leg: _Leg, kind: int, body: bytes | memoryview) -> None:
        if self._failure is not None:
            return
        if kind == ROWS:
            link, rows = epoch_in(body)
            if not leg.known:
                raise UnreadableMessage("rows came before the region had said who it is")
            self.bytes += 0 if rows is None else len(rows)
            if self.on_shown is not None:
                self.on_shown(leg.number, link.epoch)
            # What comes a second time is dropped by its address, undecoded. What counts is read before it counts.
            batch: Any = rows if rows is None or link.epoch <= self._subscription.chain.delivered else rows_in(rows, leg.schema)
            before = self._subscription.chain.delivered
            self._carry(lambda: self._subscription.told(leg.number, link, batch, _now_us()))
            if rows is not None and before < link.epoch <= self._subscription.chain.delivered:
                self.useful_bytes += len(rows)
            return
        said = words(kind, body)
        if "silent" in said:
            assert leg.channel is not None
            leg.channel.close()
            self._lost(leg, SILENT)
        elif "refused" in said:
            self._refused(leg, said)
        elif not leg.known:
            self._welcomed(leg, said)
        elif "schema" in said:
            leg.schema = schema_in(said["schema"])
        elif "missing" in said:
            floor = whole_in(said, "missing")
            self._carry(lambda: self._subscription.missing(leg.number, floor, _now_us()))
        elif "passed" in said:
            last, through = whole_in(said, "last"), whole_in(said, "passed")
            self._carry(lambda: self._subscription.passed(leg.number, last, through))
        elif "ended" in said:
            last = whole_in(said, "ended")
            self._carry(lambda: self._subscription.ended(leg.number, last))
        else:
            raise UnreadableMessage(f"a region says {sorted(said)!r:.80}")

    def _refused(self, leg: _Leg, said: Mapping[str, Any]) -> None:
        """What a region refuses for good ends the subscription: another try would end as this one."""
        text = f"region {leg.name}: {said.get('message')!s:.300}"
        if said.get("refused") == "GroupDiffers":
            self._failure = GroupDiffers(leg.name, "name", self._group or self._sink, said.get("message"), "look at the regions given")
        else:
            self._failure = OperationRefused(text)

    def _welcomed(self, leg: _Leg, said: Mapping[str, Any]) -> None:
        facts, last = said.get("group"), whole_in(said, "last")
        if not isinstance(facts, Mapping):
            raise UnreadableMessage("a region does not say of which group it is")
        try:
            if self.facts is None:
                self.facts = {**facts, "sink": said.get("sink")}
            differs(self.facts, {**facts, "sink": said.get("sink")}, leg.name)
            if self._after is None:  # What comes from now on: behind what the first region that answers has.
                after = last if self._behind is None else self._behind(self.facts)
                self._after = self.delivered = self._subscription.chain.delivered = after
        except EvenflowError as error:
            self._failure = error
            return
        leg.known, leg.again_s = True, AGAIN_FIRST_S
        self._carry(lambda: self._subscription.joined(leg.number, _now_us()))

    # ------------------------------------------------------------ what is to be done

    def _carry(self, decide: Any) -> None:
        """Let the subscription decide, and carry it out."""
        if self._failure is not None or self._closed:
            return
        try:
            actions: list[Action] = decide()
        except RegionsUnreachable as error:
            reasons = "; ".join(f"{leg.name}: {leg.why}" for leg in self._legs if leg.why)
            self._failure = RegionsUnreachable(f"{error}. {reasons}")
            return
        except EvenflowError as error:
            self._failure = error
            return
        for action in actions:
            match action:
                case Follow(leg, brings, after):
                    self._say(leg, ask="follow", brings=brings, after=after, marks=self._marks)
                case Want(leg, epoch):
                    self._say(leg, ask="want", epoch=epoch)
                case Deliver(link, rows):
                    self._ready.append((link.epoch, rows))
                case End():
                    self._ended = True

    def _say(self, leg: int, **facts: Any) -> None:
        channel = self._legs[leg].channel
        if channel is not None:
            channel.send(CONTROL, [json.dumps(facts).encode()])


def _now_us() -> int:
    return time.monotonic_ns() // 1000
