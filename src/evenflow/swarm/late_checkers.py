"""The reflex begins to leave rows out only when a row has waited for half of what an answer may take (D6): worked out beside it, from when
batches were due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evenflow.availability.entries import Key
from evenflow.site.events import Event, RowsArrived
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite


@dataclass
class Late(Observer):
    """Of one generation. began: how often rows began to be left out. _due_us: by partition that the site leads, when the batch of its
    oldest row was due, before the event that is being handled; None where rows are left out already."""

    world: Any
    began: int = 0
    _due_us: Mapping[Key, int | None] | None = field(default=None, init=False)

    def before_handled(self, site: SimSite, event: Event) -> None:
        ingress, self._due_us = site.part.ingress, None
        if ingress.reflex.active and ingress.reflex.allowance.share is None:
            self._due_us = {key: queue.due_us for key, queue in ingress.queues.items()}

    def handled(self, site: SimSite, event: Event) -> None:
        ingress, before = site.part.ingress, self._due_us
        if before is None or ingress.reflex.allowance.share is None:
            return
        self.began += 1
        if not set(ingress.queues) <= before.keys():
            return  # It leads partitions since this event.
        dues = [*before.values(), event.due_us if isinstance(event, RowsArrived) else None]
        patience_us = min(each.shed.patience_us for each in ingress.reflex.sheddable.values())
        waited_us = max([max(site.part.now_us, self.world.clock.now_us) - due for due in dues if due is not None], default=0)
        assert waited_us > patience_us / 2, f"{site.part} leaves rows out, and the oldest has waited for {waited_us} us of {patience_us}"
