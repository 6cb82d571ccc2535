"""What readers get: the newest scene and reading, encoded once for all of them, what happened so far, and the curves of the last minutes.

A reader says what it has, and gets what is newer in one piece. Readings that a slow reader has missed are not kept for it: counters only
grow, so the newest says as much. Events are kept, and are numbered, so that none is missed and none comes twice.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

EVENTS_KEPT: Final = 2_000
SAID_KEPT: Final = 500
CURVE_POINTS: Final = 1_200
"""Ten minutes at 2 Hz."""
FRAMES_KEPT: Final = 64
"""Until the next change."""
MISSED: Final = 8
"""Readings. Who has had no more of them, as a page has that was hidden, is told its curves anew: they would have a gap."""
LINGER_S: Final = 60.0
"""After the last reader has gone it is told as before: a page that is loaded again misses nothing."""
LOOKED_S: Final = 5.0
RUNS_KEPT: Final = 8
"""Of those that are over, whose curves are still known."""


@dataclass(frozen=True, slots=True)
class Position:
    """What a reader has: number of its scene, and how many readings, events and lines there had been. None of anything yet: all are 0."""

    scene: int = 0
    reading: int = 0
    events: int = 0
    said: int = 0

    def id(self, nonce: str) -> str:
        return f"{nonce}.{self.scene}.{self.reading}.{self.events}.{self.said}"

    @staticmethod
    def of(id_: str | None, nonce: str) -> Position:
        """What a reader had when it was cut off. An id of another server, or no id at all, is the beginning."""
        parts = (id_ or "").split(".")
        if len(parts) != 5 or parts[0] != nonce or not all(part.isascii() and part.isdigit() and len(part) < 16 for part in parts[1:]):
            return Position()
        return Position(*map(int, parts[1:]))


def encoded(value: object) -> bytes:
    """JSON on one line. What is no number in JSON is null, and no other kind of value ends what others are told."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError):
        return json.dumps(_plain(value), separators=(",", ":"), allow_nan=False).encode()


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple | deque) else str(value)


@dataclass(slots=True)
class Kept:
    """A list of which the oldest are forgotten. first: how many have been."""

    limit: int
    items: deque[Any] = field(default_factory=deque)
    first: int = 0

    @property
    def end(self) -> int:
        return self.first + len(self.items)

    def take(self, new: Sequence[Any]) -> None:
        self.items.extend(new)
        while len(self.items) > self.limit:
            self.items.popleft()
            self.first += 1

    def since(self, number: int) -> list[Any]:
        behind = self.end - number
        return [] if behind <= 0 else list(self.items)[-behind:]


class Feed:
    """Told by one thread (`scene`, `reading`, `say`, `end`), read by many coroutines (`newer`). nonce: of this server; curves: names of the
    curves that are kept."""

    def __init__(self, nonce: str, curves: Sequence[str]) -> None:
        self.nonce, self.curves = nonce, tuple(curves)
        self.scene_json: bytes | None = None
        self.reading_json: bytes | None = None
        self.latest: tuple[Any, Any] = (None, None)
        self.ended: str | None = None
        self.closed = False
        self._lock = threading.Lock()
        self._scenes = self._readings = 0
        self._events, self._said = Kept(EVENTS_KEPT), Kept(SAID_KEPT)
        self._points: dict[str, deque[Sequence[float | None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self._frames: dict[tuple[Position, Position], bytes] = {}
        self.readers = 0
        self.wanted = threading.Event()
        self._left_s = -LINGER_S

    # ------------------------------------------------ told

    def scene(self, scene: object, told: Mapping[str, Any]) -> None:
        """told: the scene as JSON has it."""
        with self._lock:
            self._scenes += 1
            self.scene_json = encoded(told)
            self.latest = (scene, None)
        self._wake()

    def reading(
        self, reading: object, told: Mapping[str, Any], events: Sequence[Mapping[str, Any]], points: Mapping[str, Sequence[float | None]]
    ) -> None:
        """told: the reading as JSON has it, without its events. points: a value per curve, by run."""
        with self._lock:
            self._readings += 1
            self.reading_json = encoded(told)
            self.latest = (self.latest[0], reading)
            self._events.take(events)
            for run, point in points.items():
                self._points.setdefault(run, deque(maxlen=CURVE_POINTS)).append(point)
            for run in [run for run in self._points if run not in points][:-RUNS_KEPT] if points else ():
                del self._points[run]
        self._wake()

    def begins_anew(self, run: str) -> None:
        """Another run of that id is told of from now on: curves begin with it."""
        with self._lock:
            self._points.pop(run, None)

    def say(self, line: Mapping[str, Any]) -> None:
        """How far an operation is: request, operation, and said, done or problem."""
        with self._lock:
            self._said.take([dict(line)])
        self._wake()

    def end(self, why: str) -> None:
        """There will be nothing more."""
        with self._lock:
            self.ended = why
        self._wake()

    def _wake(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._turn)
            except RuntimeError:
                pass  # The server has stopped meanwhile.

    def _turn(self) -> None:
        """Who waits goes on, and waits for the next change from then on. Which event that is, is only known in the loop: two changes may be
        told before it turns once, and whoever has begun to wait in between hears of the second, too."""
        changed, self._changed = self._changed, asyncio.Event()
        with self._lock:
            self._frames.clear()
        if changed is not None:
            changed.set()

    # ------------------------------------------------ read

    def came(self) -> None:
        """Somebody reads from now on."""
        with self._lock:
            self.readers += 1
        self.wanted.set()

    def went(self) -> None:
        """Somebody reads no more."""
        with self._lock:
            self.readers -= 1
            self._left_s = time.monotonic()

    def looked(self) -> None:
        """Somebody has looked once, and may do so again."""
        self._left_s = max(self._left_s, time.monotonic() + LOOKED_S - LINGER_S)
        self.wanted.set()

    @property
    def busy(self) -> bool:
        """Somebody reads, or has read just now. Who tells this feed may rest while nobody does, until `wanted` is set."""
        with self._lock:
            busy = self.readers > 0 or time.monotonic() - self._left_s < LINGER_S
            if not busy:
                self.wanted.clear()
            return busy

    def open(self) -> None:
        """Called by the server in its loop, before anybody reads."""
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()

    def close(self) -> None:
        """The server ends: whoever reads goes. Called in its loop."""
        self.closed = True
        if self._changed is not None:
            self._turn()

    @property
    def turn(self) -> asyncio.Event:
        """Is set with the next change. Taken before `newer`, it misses none."""
        assert self._changed is not None
        return self._changed

    def newer(self, had: Position) -> tuple[Position, bytes]:
        """All that is newer than what a reader had, as events of the SSE format, and what it has then. Who had the same share it."""
        with self._lock:
            now = Position(self._scenes, self._readings, self._events.end, self._said.end)
            if now == had and self.ended is None:
                return now, b""
            found = self._frames.get((had, now))
            if found is None or self.ended is not None:
                found = self._frame(had, now)
                if len(self._frames) < FRAMES_KEPT and self.ended is None:
                    self._frames[had, now] = found
            return now, found

    def happened_json(self, since: int, more: Mapping[str, Any]) -> bytes:
        """What has happened behind the first so many events, how many there are then, and `more`: for who cannot read the stream."""
        with self._lock:
            return encoded({**more, "nonce": self.nonce, "end": self._events.end, "events": self._events.since(since)})

    def _frame(self, had: Position, now: Position) -> bytes:
        parts: list[tuple[str, bytes]] = []
        if now.scene != had.scene and self.scene_json is not None:
            parts.append(("scene", self.scene_json))
        if (had.reading == 0 or now.reading - had.reading > MISSED) and self._points:
            parts.append(("past", self._past()))
        if now.events != had.events:
            parts.append(("happened", encoded(self._events.since(had.events))))
        if now.reading != had.reading and self.reading_json is not None:
            parts.append(("reading", self.reading_json))
        said = self._under_way() if had == Position() else self._said.since(had.said)
        if said:
            parts.append(("said", encoded(said)))
        if self.ended is not None:
            parts.append(("ended", encoded({"why": self.ended})))
        last = f"id: {now.id(self.nonce)}\n".encode()
        return b"".join(
            b"event: %s\ndata: %s\n" % (kind.encode(), data) + (last if data is parts[-1][1] else b"") + b"\n" for kind, data in parts
        )

    def _under_way(self) -> list[Any]:
        """What has been said of operations that go on. Who comes now need not hear how far those were that are over."""
        over = {line["request"] for line in self._said.items if line.get("over")}
        return [line for line in self._said.items if line["request"] not in over]

    def _past(self) -> bytes:
        """The curves of each run, by their names, as columns."""
        columns = {run: list(zip(*points, strict=True)) for run, points in self._points.items() if points}
        return encoded({run: dict(zip(self.curves, found, strict=True)) for run, found in columns.items()})
