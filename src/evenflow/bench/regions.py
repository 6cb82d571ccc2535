"""`evenflow bench regions`: two regions run a dataflow as one run; drivers are killed and cut off by turns, and who reads goes on.

A subscriber reads both through proxies on loopback, one nearer than the other. Each event strikes the region that brings the rows. After a
kill the region is started again: it reads its sources from the group's begin and catches up. A gap is the longest wait between two
epochs from the event until a while after it, an epoch's width included. Beside it stands what it can be made of: by how much the regions
that were not struck were behind, for how long they showed nothing new, and for how long this process itself was not let run. At the end
every row that the subscriber was given, and every row of the table, files and topic that both regions write to, is compared with plain
addition.
"""

from __future__ import annotations

import os
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

from evenflow.bench.background import free_ports
from evenflow.bench.delaying_proxy import DelayingProxy
from evenflow.bench.measuring import machine
from evenflow.bench.regional import Region, Started, compare, new_log_folder
from evenflow.bench.regional_sinks import SINKS, Shared, compare_rows, shared
from evenflow.errors import ClusterError, OptionError
from evenflow.sinks.stream import SECRET_VARIABLE
from evenflow.world.spark.regions.subscriber import Subscriber, subscribe

Say = Callable[[str], None]
WATCHED_S: Final = 2.0
"""After an event, so long a wait counts as its gap."""
LEVEL_S: Final = 1.0
"""A region is level when what it finishes is no older."""
WITHIN_S: Final = 120.0
PAUSE_S: Final = 0.005
SAID: Final = {"gap": "gap_ms", "others behind by": "behind_ms", "nothing shown for": "unshown_ms", "not let run for": "pause_ms"}
"""Of each event. behind_ms: by how much the best other region was behind when it came; unshown_ms: for how long the others showed nothing
new; pause_ms: for how long this process was not let run."""


@dataclass(frozen=True, slots=True)
class Setting:
    """kills: of drivers. cuts: of the subscriber from a region. rate: rows/s. delays_ms: of the regions, one way. calm_s: between events.
    cut_s: for how long. bare: drivers with site processes of their own, without Spark. sinks: that both write to, besides."""

    kills: int = 20
    cuts: int = 20
    rate: int = 2_000
    sites: int = 2
    width_ms: float = 50.0
    delays_ms: tuple[float, ...] = (1.0, 10.0)
    calm_s: float = 2.0
    cut_s: float = 3.0
    seed: int = 1
    bare: bool = False
    sinks: tuple[str, ...] = SINKS[:1]

    def events(self) -> list[str]:
        """In a drawn order."""
        made = ["kill"] * self.kills + ["cut"] * self.cuts
        Random(self.seed).shuffle(made)
        return made


class Reading:
    """A subscriber in a thread of its own: what it was given, and when. shown: when a leg showed an epoch that it had not shown before."""

    def __init__(self, subscriber: Subscriber, width_ms: float, begin_s: float) -> None:
        self.subscriber, self._width_s, self._begin_s = subscriber, width_ms / 1000, begin_s
        self.got: list[tuple[int, Mapping[str, Any]]] = []
        self.moments: list[float] = []
        self.shown: dict[int, list[float]] = {}
        self._newest: dict[int, int] = {}
        subscriber.on_shown = self._show
        self.error: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                taken = self.subscriber.take(0.1)
                if taken is not None:
                    self.moments.append(time.monotonic())
                    self.got += ((taken[0], row) for row in taken[1].to_pylist())
        except Exception as error:
            self.error = error
        finally:
            self.subscriber.close()

    def _show(self, leg: int, epoch: int) -> None:
        if epoch > self._newest.get(leg, 0):
            self._newest[leg] = epoch
            self.shown.setdefault(leg, []).append(time.monotonic())

    def behind_s(self) -> float:
        """How old the newest epoch is."""
        if self.error is not None:
            raise self.error
        return time.time() - self._begin_s - self.subscriber.delivered * self._width_s

    def end(self) -> None:
        self._over.set()
        self._thread.join(10.0)
        if self.error is not None:
            raise self.error

    def gap_s(self, since_s: float, until_s: float) -> float:
        """The longest time between two epochs, of those that overlap it."""
        return longest_s(list(self.moments), since_s, until_s)

    def others_behind_s(self, struck: int) -> float:
        """By how much the best other leg is behind what has been given, as epochs go: what it must make first."""
        newest = max((epoch for leg, epoch in self._newest.items() if leg != struck), default=0)
        return max(0, self.subscriber.delivered - newest) * self._width_s

    def unshown_s(self, struck: int, since_s: float, until_s: float) -> float:
        """The same of what the other legs show: of the one that shows something at the shortest intervals."""
        legs = [list(moments) for leg, moments in self.shown.items() if leg != struck]
        return min((longest_s(moments, since_s, until_s) for moments in legs), default=until_s - since_s)


class Pauses:
    """A thread that does nothing but wake up: when it was not let run, this process, or the machine, stood still."""

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pauses", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        before_s = time.monotonic()
        while not self._over.wait(PAUSE_S):
            now_s = time.monotonic()
            if now_s - before_s > 2 * PAUSE_S:
                self._late.append((now_s, now_s - before_s - PAUSE_S))
            before_s = now_s

    def longest_s(self, since_s: float, until_s: float) -> float:
        """Of those that overlap it."""
        return max((late_s for at_s, late_s in list(self._late) if at_s > since_s and at_s - late_s < until_s), default=0.0)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def longest_s(moments: Sequence[float], since_s: float, until_s: float) -> float:
    """The longest time between two of these moments, ascending, of those that overlap it; up to `until_s` behind the last one."""
    moments = [at for at in moments if at <= until_s]
    pairs = zip(moments, [*moments[1:], until_s], strict=False)
    return max((later - at for at, later in pairs if later > since_s), default=until_s - since_s)


def run(setting: Setting, *, quick: bool = False, say: Say = print) -> dict[str, Any]:
    """See the module. Raises EvenflowError if a region cannot be started, or regions disagree."""
    unknown = [sink for sink in setting.sinks if sink not in SINKS]
    if unknown:
        raise OptionError(f"bench regions: regions cannot write to one {unknown[0]!r} yet; give --sink {', '.join(SINKS)}")
    before, secret = os.environ.get(SECRET_VARIABLE), secrets.token_hex(32)
    os.environ[SECRET_VARIABLE] = secret
    try:
        with new_log_folder() as folder, shared(setting.sinks, Path(folder)) as besides:
            return _run(setting, secret, Path(folder), besides, say, quick=quick)
    finally:
        os.environ.pop(SECRET_VARIABLE)
        if before is not None:
            os.environ[SECRET_VARIABLE] = before


def _run(setting: Setting, secret: str, home: Path, besides: Shared, say: Say, *, quick: bool) -> dict[str, Any]:
    count, name, begin_s = len(setting.delays_ms), f"bench-{secrets.token_hex(4)}", time.time() + 1.0
    regions = [
        Region(
            port, name, begin_s, setting.rate, None, setting.sites, setting.sites, setting.width_ms, setting.bare, place, **besides.given()
        )
        for place, port in enumerate(free_ports(count))
    ]
    started, proxies = list[Started](), list[DelayingProxy]()
    events: list[dict[str, Any]] = []
    pauses = Pauses()
    try:
        started += [Started(region, secret, home / f"region{at}.log") for at, region in enumerate(regions)]
        for each in started:
            each.await_running()
        proxies += [DelayingProxy(("127.0.0.1", r.port), delay) for r, delay in zip(regions, setting.delays_ms, strict=True)]
        urls = [f"127.0.0.1:{p.address[1]}?listens={r.port}" for p, r in zip(proxies, regions, strict=True)]
        reading = Reading(subscribe(urls, name, after=0), setting.width_ms, begin_s)

        def together_s() -> float:
            for each in started:
                each.check()
            return reading.behind_s()

        _level(together_s)
        for number, kind in enumerate(setting.events(), 1):
            _calm(setting.calm_s, reading)
            victim = reading.subscriber.leg or 0
            events.append(
                {"kind": kind, "region": victim, **_strike(kind, victim, setting, regions, started, proxies, reading, secret, pauses)}
            )
            made = ", ".join(f"{what} {events[-1][key]:.0f} ms" for what, key in SAID.items())
            say(f"{number}: {kind} of region {victim}, {made}")
        _calm(setting.calm_s, reading)
        reading.end()
    finally:
        pauses.end()
        for proxy in proxies:
            proxy.close()
        for each in started:
            each.end()
    through = reading.got[-1][0]
    lasts = besides.last_epochs(name)
    newest = max([through, *lasts.values()])  # Regions go on while the reader ends.
    rows = int(setting.rate * (newest + 1) * setting.width_ms / 1000) + setting.rate
    expected = replace(regions[0], rows=rows).expected()
    compared = {"subscriber": compare(expected, reading.got, through)}
    for sink, found in besides.rows(name):
        compared[sink] = compare_rows(found, lasts[sink], expected)
    gaps = [event["gap_ms"] for event in events]
    counts = reading.subscriber.progress()
    catching = [event["catch_up"] for event in events if "catch_up" in event]
    return {
        "driver_kills": setting.kills, "cuts": setting.cuts,
        "regions": count, "quick": quick, "benchmark": "regions", "rate": setting.rate, "width_ms": setting.width_ms,
        "delays_ms": list(setting.delays_ms), "seed": setting.seed, "bare": setting.bare, "sinks": list(setting.sinks),
        "gap_ms_p50": round(statistics.median(gaps), 1) if gaps else None, "gap_ms_max": round(max(gaps), 1) if gaps else None,
        "rows_lost": sum(each["lost"] for each in compared.values()), "rows_repeated": sum(each["repeated"] for each in compared.values()),
        "rows_wrong": sum(each["wrong"] for each in compared.values()), "rows_compared": sum(each["rows"] for each in compared.values()),
        "bytes_ratio": round(counts["bytes"] / max(1, counts["useful_bytes"]), 3), "catch_up_least": min(catching, default=None),
        "hedged": counts["hedged"], "swapped": counts["swapped"], "epochs": len(reading.moments), "compared": compared, "events": events,
        "machine": machine(),
    }  # fmt: skip


def _strike(
    kind: str, victim: int, setting: Setting, regions: Sequence[Region], started: list[Started], proxies: Sequence[DelayingProxy],
    reading: Reading, secret: str, pauses: Pauses,
) -> dict[str, Any]:  # fmt: skip
    """One event, until all is as before."""
    behind_s = reading.others_behind_s(victim)

    def waits(since_s: float, until_s: float) -> dict[str, float]:
        unshown_s, pause_s = reading.unshown_s(victim, since_s, until_s), pauses.longest_s(since_s, until_s)
        seconds = reading.gap_s(since_s, until_s), behind_s, unshown_s, pause_s
        return dict(zip(SAID.values(), (1000 * each for each in seconds), strict=True))

    if kind == "cut":
        at_s = time.monotonic()
        proxies[victim].cut()
        _calm(setting.cut_s, reading)
        found = waits(at_s, at_s + min(WATCHED_S, setting.cut_s))
        proxies[victim].heal()
        return found
    at_s = time.monotonic()
    started[victim].kill()
    _calm(WATCHED_S, reading)
    found = waits(at_s, at_s + WATCHED_S)
    region = regions[victim]
    started[victim] = Started(region, secret, started[victim].log)
    started[victim].await_running()
    begun_s, was_s = time.monotonic(), time.time() - region.begin_s
    with subscribe(region.url, region.group, after=0) as alone:

        def level_s() -> float:
            if reading.error is not None:
                raise reading.error
            while alone.take(0.02) is not None and time.time() - region.begin_s - alone.delivered * region.width_ms / 1000 > LEVEL_S:
                pass
            return time.time() - region.begin_s - alone.delivered * region.width_ms / 1000

        _level(level_s)
    return {**found, "catch_up": round(was_s / max(0.001, time.monotonic() - begun_s), 1)}


def _level(behind_s: Callable[[], float]) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while behind_s() > LEVEL_S:
        if time.monotonic() > deadline_s:
            raise ClusterError(f"a region has not caught up within {WITHIN_S:g} s")
        threading.Event().wait(0.005)


def _calm(seconds: float, reading: Reading) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if reading.error is not None:
            raise reading.error
        threading.Event().wait(0.02)


__all__ = ["SINKS", "Pauses", "Reading", "Setting", "run"]
