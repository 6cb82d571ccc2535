"""The kill in the demo: announce it, kill the executor of a site that works, and watch what comes of it.

It is told four times a second how the run goes. Nothing is killed that this command has not started on this machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from evenflow.bench import killing
from evenflow.bench.gaps import longest_gap, percentile_ms, usual_gaps
from evenflow.coordinator.hosting import Hosting
from evenflow.errors import ClusterError, OperationRefused
from evenflow.monitor.kill import Aftermath, Kill, aftermath, kill_sentence
from evenflow.monitor.summary import milliseconds
from evenflow.statistics.progress import Progress, SiteProgress

ANNOUNCED_S: Final = 3.0
SPAN_S: Final = 1.0
"""The longest gap is looked for in at least this much time after the kill, and the usual one in spans as long before it."""
SETTLED_S: Final = 2.0
"""The first epochs do not count as usual: operators are compiled, caches are cold, and what was due meanwhile is caught up with."""
KEPT: Final = 200_000


class Moments:
    """When the sink was given an epoch, with or without rows: monotonic seconds, the newest KEPT.

    Noted in the sink's thread, read in another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moments: list[float] = []

    def note(self) -> None:
        with self._lock:
            self._moments.append(time.monotonic())
            if len(self._moments) > 2 * KEPT:
                del self._moments[:KEPT]

    def all(self) -> Any:
        with self._lock:
            return np.array(self._moments)


class Strike:
    """after_s: seconds from the first epoch to the kill. replicas: that there must be for anybody to be killed.

    said: what to show of it now, None before there is something. skipped: why nobody was or will be killed, or None.
    """

    def __init__(self, master: str, after_s: float, replicas: int, moments: Moments, say: Callable[[str], None]) -> None:
        self._after_s, self._replicas, self._moments, self._say = after_s, replicas, moments, say
        self.skipped = obstacle(master, replicas)
        self.said: str | None = None if self.skipped is None else f"Nobody will be killed: {self.skipped}."
        self.kill: Kill | None = None
        self._began_s = self._killed_s = 0.0
        self._announced = False
        self.after: Aftermath | None = None

    @property
    def pending(self) -> bool:
        """The kill's consequences are not over."""
        return self.kill is not None and self.after is not None and self.after.redundancy_s is None

    @property
    def healed(self) -> bool:
        return self.after is not None and self.after.redundancy_s is not None

    def step(self, run: Any, progress: Progress, hosting: Mapping[int, Hosting], running_s: float) -> None:
        """running_s: since the first epoch."""
        if self.kill is not None:
            if not self.healed:
                self._look(run.events())
        elif self.skipped is not None:
            return
        elif running_s >= self._after_s:
            if progress.redundancy == self._replicas and not any(site.coming for site in hosting.values()):
                self._strike(run, progress, hosting)
            else:
                self.said = f"The kill waits: redundancy is {progress.redundancy} of {self._replicas}."
        elif running_s >= self._after_s - ANNOUNCED_S:
            self.said = f"In {self._after_s - running_s:.0f} s: kill -9 of an executor. Watch the results, the sites and the clock."
            if not self._announced:
                self._announced = True
                self._say(self.said)

    def _strike(self, run: Any, progress: Progress, hosting: Mapping[int, Hosting]) -> None:
        site = victim(progress.sites, hosting)
        if site is None:
            return
        try:
            found = killing.victim_of(site.site, site.pid)
        except ClusterError as error:
            self.skipped = str(error)
            self.said = f"Nobody will be killed: {self.skipped}."
            self._say(self.said)
            return
        before_s = time.monotonic()
        seconds = run.numbers().seconds
        self._began_s = (before_s + time.monotonic()) / 2 - seconds
        self._killed_s = killing.kill(found.processes("executor"))
        self.kill = Kill(site.site, site.executor, self._killed_s - self._began_s)
        self._say(f"killed executor {self.kill.executor} (site {self.kill.site}): kill -9 of process {found.executor}")
        self._look(run.events())

    def _look(self, events: Sequence[Mapping[str, Any]]) -> None:
        assert self.kill is not None
        after = aftermath(self.kill, events, None, None)
        moments = self._moments.all()
        span_s = max(SPAN_S, after.redundancy_s or 0.0)
        ended_s = self._killed_s + (span_s if after.redundancy_s is not None else time.monotonic() - self._killed_s)
        gap_ms, usual_ms = gaps_ms(moments, self._killed_s, ended_s, span_s)
        self.after = aftermath(self.kill, events, gap_ms, usual_ms)
        self.said = kill_sentence(self.after) if self.healed else self._meanwhile(gap_ms, usual_ms)

    def _meanwhile(self, gap_ms: float | None, usual_ms: float | None) -> str:
        assert self.kill is not None and self.after is not None
        since_s = time.monotonic() - self._killed_s
        step = "nobody has noticed yet" if self.after.take_over_ms is None else f"taken over after {milliseconds(self.after.take_over_ms)}"
        return (
            f"Executor {self.kill.executor} (site {self.kill.site}) was killed {since_s:.1f} s ago: {step}, "
            f"longest gap at the sink {milliseconds(gap_ms)} (usually {milliseconds(usual_ms)}), redundancy is being restored."
        )

    def finish(self) -> None:
        """The run is over. What nobody saw while it ran is not looked for: that nothing comes out of a stopped run is no gap."""
        if self.after is not None:
            self.said = kill_sentence(self.after)
        elif self.skipped is None:
            self.said = "Nobody was killed: the run was over before it came to that."


def kill_site(engine: Any, given: Mapping[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """What a button of the demo's page does. Raises ClusterError if no executor of this command hosts that site."""
    wanted = int(given["site"])
    sites = {site.site: site for run in engine.runs if run.is_active for site in run.numbers().sites}
    if wanted not in sites:
        raise OperationRefused(f"there is no site {wanted}; there are {', '.join(map(str, sorted(sites))) or 'none'}")
    found = killing.victim_of(wanted, sites[wanted].pid)
    killing.kill(found.processes("executor"))
    return {"killed": {"site": wanted, "executor": sites[wanted].executor, "process": found.executor}}


def obstacle(master: str, replicas: int) -> str | None:
    """Why nobody can be killed, or None."""
    if not master.startswith("local-cluster"):
        return f"the executors of {master} do not belong to this command; only those of a local-cluster do"
    return "with --replicas 1 nobody would be there to take over" if replicas < 2 else None


def victim(sites: Sequence[SiteProgress], hosting: Mapping[int, Hosting]) -> SiteProgress | None:
    """The site that hosts most, of several the one with the most state; None if none hosts anything."""
    working = [site for site in sites if site.site in hosting and hosting[site.site].role == "live"]
    return max(working, key=lambda site: (hosting[site.site].partitions, site.state_bytes, -site.site), default=None)


def gaps_ms(moments: Any, killed_s: float, ended_s: float, span_s: float) -> tuple[float | None, float | None]:
    """(longest gap from the kill on, the usual longest one in a span of that length before it), milliseconds. Pure.

    moments: when the sink was given something, sorted. The usual one is the median of the spans that fit; None if nothing came.
    """
    if not len(moments):
        return None, None
    gap_s = longest_gap(moments, killed_s, ended_s).seconds
    calm = (float(moments[0]) + SETTLED_S, killed_s)
    usual = usual_gaps(moments, [calm], span_s) or usual_gaps(moments, [calm], SPAN_S)
    return round(gap_s * 1000, 1), percentile_ms(usual, 50)
