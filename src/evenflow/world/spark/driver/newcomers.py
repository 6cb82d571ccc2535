"""Looks for what comes to the sources of one run while it goes on, such as topics of a pattern, and tells the coordinator (decision 101).

A thread in the driver asks; what has come, and in which order, the run's plan says. Who cannot be asked is asked again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from evenflow.coordinator.events import CoordinatorEvent, NewcomersSeen, RunBroken
from evenflow.errors import ClusterError, SourceError
from evenflow.plan.layout import Layout
from evenflow.sources.source import Source
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.driver.in_place import Generations

LOOK_S: Final = 5.0
log = logging.getLogger("evenflow")


def expecting(layout: Layout) -> dict[int, Source]:
    """The sources to which something may come, by ingress segment."""
    sources = {segment.id: layout.sources[segment.source] for segment in layout.segments if segment.source is not None}
    return {segment: source for segment, source in sources.items() if source.newcomers_most}


def seen(source: Source, known: Sequence[str], segment: int, new: Sequence[str]) -> CoordinatorEvent:
    """What the coordinator is told of newcomers that have no place yet."""
    if len(known) + len(new) <= source.newcomers_most:
        return NewcomersSeen(segment, tuple(new))
    return RunBroken(
        SourceError(
            f"{source.kind} source: {', '.join(new)} came while it is read, and of its places for {source.newcomers_most} newcomers "
            f"{len(known)} are taken; start this dataflow with more (spare_topics=), at a location of its own"
        )
    )


def looking(generations: Generations, coordinator: DriverLoop) -> Generations:
    """The run, for whose sources somebody looks out until it is over, if something may come to them."""
    sources = expecting(generations.newest.layout)
    if sources and not generations.over.is_set():
        Lookout(sources, generations, coordinator).begin()
    return generations


class Lookout:
    """`begin` when the run is made. It ends when the run is over."""

    def __init__(self, sources: Mapping[int, Source], generations: Generations, coordinator: DriverLoop) -> None:
        self._sources, self._generations, self._coordinator = sources, generations, coordinator
        self._thread = threading.Thread(target=self._watch, name="evenflow-newcomers", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def _watch(self) -> None:
        while not self._generations.over.wait(LOOK_S):
            for segment, source in self._sources.items():
                try:
                    self._look(segment, source)
                except SourceError as error:
                    log.warning("%s; it is asked again", error)
                except ClusterError:
                    return  # The engine has been stopped.

    def _look(self, segment: int, source: Source) -> None:
        generations = self._generations
        known = self._coordinator.ask(lambda: generations.newest.machine.arrivals.of(segment))
        if new := source.look(known):
            event = seen(source, known, segment, new)
            self._coordinator.call_soon(lambda: generations.newest.handle(event))


__all__ = ["expecting", "looking", "seen"]
