"""What a running engine tells those who watch it: one stream of scenes and readings, made only while somebody looks.

Whoever asks first after half a second has the next reading made, in its own thread; all others get the same, encoded once. Who reads slowly
gets the newest one only, with the events of those that it has missed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

from evenflow.errors import EvenflowError
from evenflow.monitor.history import History
from evenflow.monitor.reading import Reading
from evenflow.monitor.recorded import encoded
from evenflow.monitor.scene import Scene, SceneSite, SiteState
from evenflow.monitor.watching import Gauges, Watched, Watching, shown
from evenflow.world.spark.driver.known import KnownSite, Warnings

EVERY_S: Final = 0.5
KEPT_US: Final = 60_000_000
"""How long somebody may read nothing and still miss no event."""
GONE_SHOWN_S: Final = 20.0
UNSAID: Final = Gauges(rss_bytes=0, pss_bytes=0, refused=0)
"""Of a site that has not reported yet, or is gone."""


class WatchedRun(Protocol):
    """A run, as far as it can be watched."""

    @property
    def dataflow(self) -> str: ...

    @property
    def is_active(self) -> bool: ...

    def exception(self) -> EvenflowError | None: ...

    def watched(self) -> Watched: ...


class Watches(Protocol):
    """An engine, as far as it can be watched."""

    @property
    def runs(self) -> Sequence[WatchedRun]: ...


class KnowsSites(Protocol):
    """Who knows the sites: the coordinator."""

    def known(self) -> list[KnownSite]: ...

    def is_leaving(self, site: int) -> bool: ...

    @property
    def warnings(self) -> Warnings: ...


class Watcher:
    """engine: what is watched, `coordinator` knows its sites. number: its id, name: of the application. From any thread."""

    def __init__(self, engine: Watches, coordinator: KnowsSites, number: str, name: str) -> None:
        self._engine, self._coordinator = engine, coordinator
        self._watching, self._history = Watching(number, name), History(KEPT_US)
        self._lock = threading.Lock()
        self._looked_s = -EVERY_S
        self._seen: dict[int, SceneSite] = {}
        self._gone_s: dict[int, float] = {}
        self._encoded: dict[tuple[str, int], bytes] = {}

    def due_s(self) -> float:
        """For how long there is nothing new yet."""
        return max(0.0, self._looked_s + EVERY_S - time.monotonic())

    def news(self, scene: int, reading: int, *, now: bool = False) -> tuple[int, int, list[bytes]]:
        """(scene, reading, JSON of the scene, if it is another one, and of the newest reading) for somebody who knows those of these
        numbers, 0 for none. Nothing to say if the newest is known. now: it is looked at once, though another reading is not due."""
        with self._lock:
            if now or self.due_s() <= 0.0:
                self._look()
            news = self._history.since(reading, scene)
            if news is None:
                return scene, reading, []
            told = [] if news.scene is None else [self._text("scene", news.scene.number, news.scene)]
            follows = reading == news.reading.number - 1
            told.append(self._text("reading", news.reading.number, news.reading) if follows else encoded(news.reading))
            return news.reading.scene, news.reading.number, told

    def _look(self) -> None:
        self._looked_s = time.monotonic()
        # Asked once each: a run that ends meanwhile would be neither active nor among those that are over.
        asked = [(run, run.is_active) for run in self._engine.runs]
        places = shown([(run.dataflow, active, not active and run.exception() is not None) for run, active in asked])
        runs = [asked[place][0].watched() for place in places]
        warnings = self._coordinator.warnings
        scene, reading = self._watching.look(time.time_ns() // 1000, self._sites(), runs, (tuple(warnings.lines), warnings.count))
        if self._history.scene is not scene:
            self._history.add(scene)
        self._history.add(reading)

    def _text(self, kind: str, number: int, told: Scene | Reading) -> bytes:
        """Encoded once for all. Only the newest of each kind is kept."""
        text = self._encoded.get((kind, number))
        if text is None:
            self._encoded = {key: kept for key, kept in self._encoded.items() if key[0] != kind}
            text = self._encoded[kind, number] = encoded(told)
        return text

    def _sites(self) -> list[tuple[SceneSite, Gauges]]:
        """Those that are there, and for a while those that have gone, ascending."""
        now_s = time.monotonic()
        there: dict[int, tuple[SceneSite, Gauges]] = {}
        for known in self._coordinator.known():
            state: SiteState = "leaving" if self._coordinator.is_leaving(known.index) else "live"
            site = SceneSite(known.index, known.executor, str(known.hello["host"]), int(known.hello["pid"]), state)
            report = known.report
            gauges = UNSAID
            if report is not None:
                heard_us = int((now_s - known.reported_s) * 1e6)
                memory, shares = report.pss_bytes or report.rss_bytes, (report.rss_bytes, report.pss_bytes)
                gauges = Gauges(int(report.cpu_s * 1e6), memory, heard_us, *shares, report.refused)
            self._seen[known.index] = site
            there[known.index] = site, gauges
        for index, site in list(self._seen.items()):
            if index in there:
                continue
            if now_s - self._gone_s.setdefault(index, now_s) > GONE_SHOWN_S:
                del self._seen[index]
                continue
            gone: SiteState = "left" if site.state == "leaving" else "dead"
            there[index] = SceneSite(index, site.executor, site.host, site.pid, gone), UNSAID
        return [there[index] for index in sorted(there)]


def watcher_of(engine: Any) -> Watcher:
    """Of a running `Engine`."""
    coordinator = engine._once_there()
    return Watcher(engine, coordinator, coordinator.engine, str(engine.spark.sparkContext.appName))
