"""What a person does with a running engine: sites leave as planned, more come, load is spread anew.

Everything is decided in the coordinator's thread, where nothing else happens meanwhile; a person's thread asks there again and again, and
waits. A site that leaves is told to every run as one that gets nothing more; when no run has anything there or under way to it, it is let
go, and one site less is wanted. A run that is started meanwhile does not learn of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from evenflow.coordinator.events import SparesChanged
from evenflow.coordinator.fleet import Drain, Look, Stay, named
from evenflow.coordinator.operations import obstacles
from evenflow.errors import ClusterError, OperationRefused, in_a_line
from evenflow.monitor.watching import shown
from evenflow.statistics.moves import in_all, moves_of
from evenflow.stream.ids import SiteId
from evenflow.world.spark.cluster.placement import Placement, check_session, executors, find_room
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.driver.known import KnownSite
from evenflow.world.spark.driver.standing_by import Standbys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evenflow.world.spark.driver.run import Run

LOOK_S: Final = 0.1
"""How often it is looked whether a site is empty."""
DRAIN_S: Final = 300.0

Say = Callable[[str], None]
"""Is told in a sentence how far an operation has come, whenever that has changed."""

log = logging.getLogger("evenflow")


@dataclass(frozen=True, slots=True)
class Departure:
    """A site that has left.

    moves, partitions, bytes: of what has gone to other sites, all runs together. stall_ms: the longest of a move, at most (see
    `Run.moves`). seconds: from the request until it was gone. lost: it died before it was empty.
    """

    site: int
    executor: str
    moves: int
    partitions: int
    bytes: int
    stall_ms: float
    seconds: float
    lost: bool


class Staffed(Protocol):
    """What operations ask of the engine, which is made of them: its sites, its runs and its executors.

    sites, spares: that it is laid out for. _lock: whoever changes these, or chooses the sites of a run, has it. Nobody waits for a
    store with it.
    """

    spark: SparkSession
    sites: int
    spares: int
    replicas: int
    _lock: threading.RLock
    _placement: Placement | None
    _standbys: Standbys

    @property
    def runs(self) -> tuple[Run, ...]: ...

    @property
    def sites_now(self) -> tuple[int, ...]: ...

    def _once_there(self) -> DriverLoop: ...


class Operations:
    """Of one engine, one at a time."""

    def __init__(self, engine: Staffed) -> None:
        self._engine = engine
        self._under_way = ""
        self._lock = threading.Lock()

    # ------------------------------------------------------------ fewer sites

    def drain(
        self, sites: Sequence[int], timeout_s: float, say: Say | None = None, stays: threading.Event | None = None
    ) -> tuple[Departure, ...]:
        """See Engine.drain and Engine.remove_sites. stays: once it is set, who is not empty stays; raises OperationRefused then."""
        with self._alone(f"draining {named(sites)}") as coordinator:
            began_s = time.monotonic()
            runs = {run: run.events_since()[1] for run in self._engine.runs}
            roles, gone_s = list[str](), dict[int, float]()
            try:
                with self._engine._lock:
                    known = coordinator.ask(lambda: self._begin(coordinator, sites))
                    self._shrink(sites, roles)
                coordinator.ask(self._tell_spares(coordinator))
                self._await_empty(coordinator, sites, began_s + timeout_s, gone_s, say, stays)
            except BaseException:
                self._stay(coordinator, [site for site in sites if site not in gone_s], roles)
                raise
        assert self._engine._placement is not None
        self._engine._placement.await_ends({int(known[site].hello["job"]) for site in sites} & coordinator.fleet.released)
        departures = []
        for site in sites:
            moves = [move for run, seen in runs.items() for move in moves_of(run.events_since(seen)[0]) if move["source"] == site]
            lost = known[site].hello["job"] not in coordinator.fleet.released
            departures.append(Departure(site, known[site].executor, seconds=round(gone_s[site] - began_s, 3), lost=lost, **in_all(moves)))
        return tuple(departures)

    def least(self, count: int) -> tuple[int, ...]:
        """So many sites that can leave, those that host least first. Raises OperationRefused if there are fewer."""
        _check_count(count)
        coordinator = self._engine._once_there()

        def choose() -> tuple[int, ...]:
            load: Counter[int] = Counter()
            stuck: dict[int, str] = {}
            for run in self._active(coordinator):
                load.update(run.machine.view.load())
                for site in coordinator.sites:
                    found = obstacles(run.machine, SiteId(site))
                    if found:
                        stuck[site] = f"site {site}: {found[0]}"
            free = sorted(
                (s for s in coordinator.sites if s not in stuck and s not in coordinator.fleet.leaving), key=lambda s: (load[s], -s)
            )
            if len(free) < count:
                why = "; ".join(stuck.values()) or "there are no more"
                raise OperationRefused(f"{count} sites cannot leave, only {len(free)} of {len(coordinator.sites)} can: {why}")
            return tuple(free[:count])

        return coordinator.ask(choose)

    def _begin(self, coordinator: DriverLoop, sites: Sequence[int]) -> dict[int, KnownSite]:
        """Mark them, if all of them can leave; else nothing changes."""
        coordinator.fleet.check_drain(sites, self._engine.replicas)
        coordinator.observe(Drain(tuple(sites)))
        return {site: coordinator.sites[site] for site in sites}

    def _shrink(self, sites: Sequence[int], roles: list[str]) -> None:
        """The engine is laid out for fewer: for each site a spare less while there are spares, which take its place, then a site less.
        roles: are told which."""
        engine = self._engine
        for _ in sites:
            role = "spares" if engine.spares else "sites"
            setattr(engine, role, getattr(engine, role) - 1)
            roles.append(role)

    def _tell_spares(self, coordinator: DriverLoop) -> Callable[[], None]:
        """Is to be called in the coordinator's thread."""
        spares = self._engine.spares

        def tell() -> None:
            for run in self._active(coordinator):
                run.handle(SparesChanged(spares))

        return tell

    def _await_empty(
        self, coordinator: DriverLoop, sites: Sequence[int], deadline_s: float, gone_s: dict[int, float], say: Say | None,
        stays: threading.Event | None,
    ) -> None:  # fmt: skip
        said = ""
        while True:
            left = coordinator.ask(lambda: self._look(coordinator, sites))
            now_s = time.monotonic()
            gone_s.update({site: now_s for site in sites if site not in left and site not in gone_s})
            if not left:
                return
            told = "; ".join(f"site {site} still hosts {count} replicas" for site, count in sorted(left.items()))
            if told != said:
                said = told
                log.info("%s", told)
                if say is not None:
                    say(told)
            if stays is not None and stays.is_set():
                raise OperationRefused(f"{told}, and it is needed: what has moved stays where it is now, and the rest stays there")
            if now_s > deadline_s:
                raise ClusterError(f"{told} when the time was over; what has moved stays where it is now, and the rest stays there")
            with coordinator.changed:
                coordinator.changed.wait(LOOK_S)

    def _look(self, coordinator: DriverLoop, sites: Sequence[int]) -> dict[int, int]:
        """Let go whoever is empty. Returns how many replicas the others still have."""
        coordinator.observe(Look())
        return {site: coordinator.fleet.hosted(site) for site in sites if site in coordinator.fleet.leaving}

    def _stay(self, coordinator: DriverLoop, sites: Sequence[int], roles: list[str]) -> None:
        """They do not leave after all. The coordinator may be busy: it hears of it when it is not, and nobody waits for that."""

        def stay() -> None:
            leaving = tuple(site for site in sites if site in coordinator.fleet.leaving)  # None, if it was refused.
            if leaving:
                coordinator.observe(Stay(leaving))

        with self._engine._lock:
            for role in list(reversed(roles))[: len(sites)]:
                setattr(self._engine, role, getattr(self._engine, role) + 1)
        coordinator.call_soon(stay)
        coordinator.call_soon(self._tell_spares(coordinator))

    # ------------------------------------------------------------ more sites

    def add(self, count: int, timeout_s: float, *, ask: bool = False) -> tuple[int, ...]:
        """See Engine.add_sites. ask: the cluster manager is asked for executors also without dynamic allocation."""
        _check_count(count)
        engine = self._engine
        with self._alone(f"adding {count} sites") as coordinator:
            before, deadline_s = set(engine.sites_now), time.monotonic() + timeout_s
            wanted = coordinator.fleet.wanted + count
            check_session(engine.spark, wanted)
            context = engine.spark.sparkContext
            find_room(context, wanted, ask=ask)
            assert engine._placement is not None

            there = {executor.id for executor in executors(context)}

            def want() -> None:
                coordinator.fleet.wanted = wanted
                taken = {site.executor for site in coordinator.sites.values()}
                if len(there - taken - coordinator.fleet.shunned) < count:
                    coordinator.fleet.shunned.clear()  # There is no other room.

            coordinator.ask(want)
            try:
                engine._placement.ensure(wanted, timeout_s)
                self._await_welcome(coordinator, deadline_s)
            except BaseException:

                def give_in() -> None:
                    coordinator.fleet.wanted = max(wanted - count, len(coordinator.sites))

                coordinator.ask(give_in)
                raise
            finally:
                with engine._lock:
                    engine.sites += max(0, coordinator.fleet.wanted - (wanted - count))
            return tuple(site for site in engine.sites_now if site not in before)

    def _await_welcome(self, coordinator: DriverLoop, deadline_s: float) -> None:
        """Until every run that is under way has taken the newcomers in; at the deadline they are still building their parts."""

        def is_done() -> bool:
            runs = [run for run in self._active(coordinator) if run.machine.running]
            return all(coordinator.sites.keys() - set(coordinator.fleet.leaving) <= set(run.machine.sites) for run in runs)

        while time.monotonic() < deadline_s and not coordinator.ask(is_done):
            with coordinator.changed:
                coordinator.changed.wait(LOOK_S)

    # ------------------------------------------------------------ all at once

    def describe(self) -> dict[str, Any]:
        """What there is: engine, master, replicas, spares, sites, runs, standby. See docs/cli.md."""
        engine = self._engine
        coordinator = engine._once_there()
        sites = {site.site: site.to_json() | {"partitions": 0, "coming": 0, "utilization": 0.0} for site in coordinator.describe_sites()}
        runs = []
        known = [(run, run.is_active, run.exception()) for run in engine.runs]
        for place in shown([(run.dataflow, active, not active and error is not None) for run, active, error in known]):
            run, active, error = known[place]
            progress = run.numbers()
            for told in progress.sites if active else ():
                mine = sites.get(told.site)
                if mine is not None:
                    mine["partitions"] += told.partitions
                    mine["coming"] += told.coming
                    mine["utilization"] = round(mine["utilization"] + (told.utilization or 0.0), 4)
            runs.append(
                {
                    "run": progress.run,
                    "dataflow": progress.dataflow,
                    "state": "live" if active else "over" if error is None else "failed",
                    "error": None if active or error is None else in_a_line(error),
                    "replicas": progress.replicas,
                    "redundancy": progress.redundancy,
                    "rows_in_per_s": progress.rows_in_per_s,
                    "rows_out_per_s": progress.rows_out_per_s,
                    "p99_ms": progress.p99_ms,
                    "moves": run.moves(),
                }
            )
        for mine in sites.values():
            mine["role"] = "leaving" if mine["leaving"] else "joining" if mine["coming"] else "live" if mine["partitions"] else "spare"
        return {
            "engine": coordinator.engine,
            "master": engine.spark.sparkContext.master,
            "replicas": engine.replicas,
            "spares": engine.spares,
            "under_way": self._under_way or None,
            "sites": list(sites.values()),
            "runs": runs,
            "standby": [progress.to_json() for progress in engine._standbys.progress],
        }

    # ------------------------------------------------------------ helpers

    @staticmethod
    def _active(coordinator: DriverLoop) -> list[Any]:
        return [run for run in coordinator.runs.values() if not run.over.is_set()]

    @contextmanager
    def _alone(self, what: str) -> Iterator[DriverLoop]:
        """Two at a time could each take what the other counts on."""
        if not self._lock.acquire(blocking=False):
            raise OperationRefused(f"the engine is {self._under_way or 'changing'}: wait until that is over")
        try:
            self._under_way = what
            yield self._engine._once_there()
        finally:
            self._under_way = ""
            self._lock.release()


def _check_count(count: int) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise OperationRefused(f"a number of sites is a whole number from 1 on, not {count!r}")
