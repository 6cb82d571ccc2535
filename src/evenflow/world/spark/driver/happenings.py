"""The events of a run for people: when they happened, and how long a move took. Written by the coordinator's thread, read from any."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from evenflow.coordinator.events import Happened, Kind
from evenflow.world.logs import about

KEPT: Final = 10_000
"""The newest so many events are kept: a checkpoint every 10 s alone makes 8,640 a day, and a run may last for months."""
EMPTY: Final[Mapping[str, Any]] = {}
log = logging.getLogger("evenflow")


class Happenings:
    """began_s: when the run began, of the clock by which everything here is told. run, dataflow: for the log, which hears of all of it."""

    def __init__(self, began_s: float, run: str | None = None, dataflow: str | None = None) -> None:
        self._began_s, self._run, self._dataflow = began_s, run, dataflow
        self._lock = threading.Lock()
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._count = 0
        self._moves_begun_s: dict[int, float] = {}
        self._moves_live_s: dict[int, float] = {}

    @property
    def moves_under_way(self) -> frozenset[int]:
        """Copies whose times are kept."""
        return frozenset((*self._moves_begun_s, *self._moves_live_s))

    def forget_moves(self) -> None:
        """Another generation numbers its copies anew."""
        self._moves_begun_s.clear()
        self._moves_live_s.clear()

    def is_live(self, copy: int, now_s: float) -> None:
        """What a copy brings is level. If it moves something, that stalls from now until its target counts."""
        if copy in self._moves_begun_s:
            self._moves_live_s[copy] = now_s

    def note(self, happened: Happened, now_s: float, more: Mapping[str, Any] = EMPTY) -> None:
        """The end of a move says its `seconds`, and for how many milliseconds its partitions may have stalled (`stall_ms`). more: what the
        event says besides."""
        details = {**happened.details, **more}
        event = {"at_s": round(now_s - self._began_s, 4), "kind": str(happened.kind), "site": happened.site, "text": happened.text}
        if happened.kind == Kind.MOVE_BEGUN:
            self._moves_begun_s[details["number"]] = now_s
        elif happened.kind in (Kind.MOVE_DONE, Kind.MOVE_DROPPED):
            begun_s, live_s = (times.pop(details["number"], now_s) for times in (self._moves_begun_s, self._moves_live_s))
            details["seconds"] = round(now_s - begun_s, 4)
            details["stall_ms"] = round(1000 * (now_s - live_s), 1)
        with self._lock:
            self._kept.append(event | details)
            self._count += 1
        site = happened.site if happened.site >= 0 else None
        facts = about(run=self._run, dataflow=self._dataflow, site=site, kind=str(happened.kind), epoch=details.get("epoch"))
        if happened.kind == Kind.FAILED:
            log.error("%s: failed: %s", self._run or "run", happened.text, extra=facts)
        else:
            log.info("%s: %s", self._run or "run", happened.text, extra=facts)

    def since(self, seen: int) -> tuple[list[dict[str, Any]], int]:
        """Those behind the first `seen` that are kept, oldest first, and how many there have been. Cost: what is returned."""
        with self._lock:
            news = list(islice(reversed(self._kept), max(0, self._count - seen)))
            return news[::-1], self._count

    def all(self) -> list[dict[str, Any]]:
        """Those that are kept, oldest first."""
        with self._lock:
            return list(self._kept)
