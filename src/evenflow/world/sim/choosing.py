"""What is ready at a simulated site and waits for its processor, where something may be more urgent than what came before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from evenflow.plan.layout import Layout
from evenflow.site.hosted import Work
from evenflow.site.urgent import Urgency
from evenflow.world.sim.clock import VirtualClock


class Processor(Protocol):
    """A simulated site, as far as something waits for it. free_at_us: when it has done what was given to it."""

    alive: bool
    hung: bool
    free_at_us: int

    def beside(self, do: Callable[[], None]) -> None: ...


class Choosing:
    """begin: gives work to the processor. Where nothing differs in worth, that is at once, and works go in the order in which they came."""

    def __init__(self, site: Processor, layout: Layout, clock: VirtualClock, begin: Callable[[Work], None]) -> None:
        self._site, self._clock, self._begin = site, clock, begin
        self.urgency = Urgency.of(layout)
        self._ready: list[Work] = []
        self._due = False

    def put(self, work: Work) -> None:
        if self.urgency is None:
            self._begin(work)
        else:
            self._ready.append(work)
            self._look_soon()

    def _look_soon(self) -> None:
        """When the processor is free, the most urgent of what is ready then goes on it."""
        if self._ready and not self._due:
            self._due = True
            self._clock.at(max(self._clock.now_us, self._site.free_at_us), self._look)

    def _look(self) -> None:
        self._due = False
        if self._site.hung:
            self._site.beside(self._look_soon)
        elif self._site.alive and self._ready and self.urgency is not None:
            self._begin(self.urgency.take(self._ready, self._clock.now_us))
            self._look_soon()
