"""The number of an engine's sites follows what its sources offer: `Engine(autoscale=(2, 8))`.

A thread of its own looks once a second at what the runs have shown, asks the policy, calls for executors and sites, or empties a site and
gives its executor back. What is decided, `coordinator.scaling` says. A person may add and remove sites meanwhile; there is one at a time.
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
"""Who was not given executors asks again after so long."""
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
        self._not_before_s, self._waits = 0.0, ""
        self._closing = threading.Event()
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
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _watch(self) -> None:
        while not self._closing.wait(LOOK_S):
            try:
                self._look()
            except OperationRefused as error:
                log.debug("the number of sites stays: %s", error)  # A person is at it, or something there cannot move.
            except EvenflowError as error:
                if self._closing.is_set():
                    return
                log.warning("the number of sites stays as it is now: %s", error)

    def _look(self) -> None:
        coordinator = self._coordinator
        runs = {number: run for number, run in list(coordinator.runs.items()) if not run.over.is_set()}
        counts = {number: run.numbers.count() for number, run in runs.items()}
        told = {number: run.numbers.since(self._seen.get(number, counts[number])) for number, run in runs.items()}
        self._seen = counts

        def ask() -> tuple[dict[int, Facts], int, bool]:
            fleet = coordinator.fleet
            running = {number: run.machine for number, run in runs.items() if not run.machine.over}
            there = len(fleet.sites) - len(fleet.leaving)
            joined = all(set(fleet.sites) <= set(machine.sites) for machine in running.values() if machine.running)
            changing = bool(fleet.leaving) or there != fleet.wanted or not joined
            return {number: Facts.of(machine) for number, machine in running.items()}, there, changing

        facts, there, changing = coordinator.ask(ask)
        shown = {number: (fact, told.get(number, Statistics.of(()))) for number, fact in facts.items()}
        before = self._scaling.changes
        wanted = self._scaling.look(shown, there - self._engine.spares, int(time.monotonic() * 1e6), changing=changing)
        self._settle(facts)
        if changing or not facts:
            return
        if self._scaling.changes > before:
            log.info("%s", wanted.text)
            self._tell(Kind.SCALING, wanted.text, wanted)
        if wanted.sites + self._engine.spares > there:
            self._more(wanted, there)
        elif wanted.sites + self._engine.spares < there:
            self._fewer()

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
        if time.monotonic() < self._not_before_s:
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
        """One at a time (R3)."""
        for gone in self._operations.drain(self._operations.least(1), LEAVES_S):
            if gone.executor not in self._given:
                give_back(self._engine.spark.sparkContext, gone.executor)

    def _tell(self, kind: Kind, text: str, wanted: Wanted) -> None:
        for run in list(self._coordinator.runs.values()):
            if not run.over.is_set():
                run.record(kind, text, sites=len(self._engine.sites_now), wanted=wanted.sites)


__all__ = ["Autoscaler"]
