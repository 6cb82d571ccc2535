"""The number of an engine's sites follows what its sources offer: `Engine(autoscale=(2, 8))`.

A thread of its own looks once a second at what the runs have shown, asks the policy, and calls for executors and sites. Another one empties
a site and gives its executor back, while the first one looks on and may call it off. What is decided, `coordinator.scaling` says. A person
may add and remove sites meanwhile; there is one at a time. What goes wrong at one look is said, and the next one comes.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from evenflow.coordinator.events import Kind, MovesRequested
from evenflow.coordinator.scaling import Facts, Scaling
from evenflow.errors import ClusterError, EvenflowError, OperationRefused
from evenflow.policy.scaling import Bounds, Times, Wanted
from evenflow.statistics.statistics import Statistics
from evenflow.world.spark.cluster.placement import executors, find_room, give_back

if TYPE_CHECKING:
    from evenflow.world.spark.driver.driver_loop import DriverLoop
    from evenflow.world.spark.driver.operations import Operations, Staffed

LOOK_S: Final = 1.0
AGAIN_S: Final = 30.0
"""Who was not given executors asks again after so long, and so does he for whom something has failed."""
LEAVES_S: Final = 120.0
"""A site that is not empty by then stays, and is asked again."""

log = logging.getLogger("evenflow")


class Autoscaler:
    """Of one engine, from `begin` on until `close`. place_timeout_s: how long executors and sites are waited for."""

    def __init__(
        self, engine: Staffed, operations: Operations, coordinator: DriverLoop, bounds: Bounds, times: Times, place_timeout_s: float
    ) -> None:
        self._engine, self._operations, self._coordinator = engine, operations, coordinator
        self._scaling = Scaling(bounds, times, len(coordinator.fleet.sites))
        self._place_timeout_s = place_timeout_s
        self._seen: dict[int, int] = {}
        self._given = {executor.id for executor in executors(engine.spark.sparkContext)}
        self._not_before_s, self._away_until_s, self._waits, self._overloaded = 0.0, 0.0, "", ""
        self._closing, self._stays = threading.Event(), threading.Event()
        self._emptying: threading.Thread | None = None
        self._thread = threading.Thread(target=self._watch, name="evenflow-scaling", daemon=True)

    @property
    def changes(self) -> int:
        """How often another number of sites was wanted."""
        return self._scaling.changes

    def begin(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Nothing more is asked for. What is under way ends with the engine."""
        self._closing.set()
        self._stays.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        if self._emptying is not None:
            self._emptying.join(timeout_s)

    def _watch(self) -> None:
        while not self._closing.wait(LOOK_S):
            try:
                self._look()
            except Exception as error:
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        """A cluster manager that is away raises whatever Spark has for that: nothing changes for a while, and looks go on."""
        if isinstance(error, OperationRefused):
            log.debug("the number of sites stays: %s", error)  # A person is at it, or something there cannot move.
        elif self._closing.is_set():
            log.debug("the engine ends while its sites change: %s", error)
        elif isinstance(error, EvenflowError):
            log.warning("the number of sites stays as it is now: %s", error)
        else:
            now_s = time.monotonic()
            if now_s >= self._away_until_s:
                self._away_until_s = now_s + AGAIN_S
                log.warning("the number of sites stays as it is now, and autoscale asks again in %.0f s", AGAIN_S, exc_info=error)

    def _look(self) -> None:
        coordinator, emptying = self._coordinator, self._emptying is not None and self._emptying.is_alive()
        runs = {number: run for number, run in list(coordinator.runs.items()) if not run.over.is_set()}
        counts = {number: run.numbers.count() for number, run in runs.items()}
        told = {number: run.numbers.since(self._seen.get(number, counts[number])) for number, run in runs.items()}
        self._seen = counts

        def ask() -> tuple[dict[int, Facts], int, bool, int]:
            fleet = coordinator.fleet
            running = {number: run.machine for number, run in runs.items() if not run.machine.over}
            there = len(fleet.sites) - len(fleet.leaving)
            joined = all(set(fleet.sites) <= set(machine.sites) for machine in running.values() if machine.running)
            changing = emptying or bool(fleet.leaving) or there != fleet.wanted or not joined
            return {number: Facts.of(machine) for number, machine in running.items()}, there, changing, len(fleet.leaving)

        facts, there, changing, leaving = coordinator.ask(ask)
        shown = {number: (fact, told.get(number, Statistics.of(()))) for number, fact in facts.items()}
        before, at_us = self._scaling.changes, int(time.monotonic() * 1e6)
        wanted = self._scaling.look(shown, there - self._engine.spares, at_us, changing=changing, leaving=leaving if emptying else 0)
        self._settle(facts)
        if not facts:
            return
        if self._scaling.changes > before:
            log.info("%s", wanted.text)
            self._tell(Kind.SCALING, wanted.text, wanted)
        self._tell_overload(wanted)
        if changing:
            if emptying and wanted.sites + self._engine.spares > there:
                self._stays.set()
        elif wanted.sites + self._engine.spares > there:
            self._more(wanted, there)
        elif wanted.sites + self._engine.spares < there:
            self._fewer()

    def _tell_overload(self, wanted: Wanted) -> None:
        """Once each time that it begins."""
        text, self._overloaded = "" if self._overloaded else self._scaling.overloaded, self._scaling.overloaded
        if text:
            log.warning("autoscale: %s", text)
            self._tell(Kind.OVERLOADED, text, wanted)

    def _settle(self, facts: dict[int, Facts]) -> None:
        """Sites that have come are given their part, but for as many as are spares."""
        coordinator = self._coordinator
        for number, fact in facts.items():
            moves = self._scaling.settle(number, fact)
            if moves:
                run = coordinator.runs.get(number)
                if run is not None:
                    run.ask_soon(MovesRequested(moves))

    def _more(self, wanted: Wanted, there: int) -> None:
        """All that are missing at once; or as many as there is room for now, and the others later."""
        if time.monotonic() < max(self._not_before_s, self._away_until_s):
            return
        missing, why = wanted.sites + self._engine.spares - there, ""
        context = self._engine.spark.sparkContext
        while missing > 0:
            try:
                find_room(context, there + missing, ask=True)
                break
            except ClusterError as error:
                missing, why = missing - 1, why or str(error)
        try:
            if missing > 0:
                self._operations.add(missing, self._place_timeout_s, ask=True)
        except OperationRefused:
            raise
        except ClusterError as error:
            why = str(error)
        self._not_before_s = time.monotonic() + AGAIN_S if why else 0.0
        if why and why != self._waits:
            self._tell(Kind.SCALING_WAITS, f"{wanted.sites} sites are wanted, and there are {len(self._engine.sites_now)}: {why}", wanted)
            log.warning("autoscale: %s. It goes on with what there is, and asks again.", why)
        self._waits = why

    def _fewer(self) -> None:
        """One at a time (R3), beside the looks."""
        if time.monotonic() < self._away_until_s:
            return
        self._stays.clear()
        if self._closing.is_set():
            return
        self._emptying = threading.Thread(target=self._empty, args=(self._operations.least(1),), name="evenflow-scaling-down", daemon=True)
        self._emptying.start()

    def _empty(self, sites: tuple[int, ...]) -> None:
        try:
            for gone in self._operations.drain(sites, LEAVES_S, stays=self._stays):
                if gone.executor not in self._given:
                    give_back(self._engine.spark.sparkContext, gone.executor)
        except Exception as error:
            self._failed(error)

    def _tell(self, kind: Kind, text: str, wanted: Wanted) -> None:
        for run in list(self._coordinator.runs.values()):
            if not run.over.is_set():
                run.record(kind, text, sites=len(self._engine.sites_now), wanted=wanted.sites)


__all__ = ["Autoscaler"]
