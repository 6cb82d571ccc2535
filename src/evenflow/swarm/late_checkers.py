"""The reflex begins to leave rows out only when a row has waited for half of what an answer may take (D6): worked out from when
rows are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from evenflow.availability.entries import Key
from evenflow.site.events import Event
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite

SOURCE: Final = "in"


@dataclass
class Late(Observer):
    """Of one generation. parts: all rows of the source, by partition; `ts` says when each is due. began: how often rows began to be left
    out. _taken: by partition that the site leads, its rows that epochs have, before the event that is being handled; None where rows are
    left out already."""

    world: Any
    parts: Sequence[pa.RecordBatch]
    began: int = 0
    _taken: Mapping[Key, int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._due_us = [part.column("ts").cast(pa.timestamp("us")).view(pa.int64()).to_numpy() for part in self.parts]

    def before_handled(self, site: SimSite, event: Event) -> None:
        ingress = site.part.ingress
        self._taken = None
        if ingress.reflex.active and ingress.reflex.allowance.share is None:
            self._taken = {key: site.part.leading.logs[key].taken for key in ingress.queues if key in site.part.leading.logs}

    def handled(self, site: SimSite, event: Event) -> None:
        taken, share = self._taken, site.part.ingress.reflex.allowance.share
        if taken is None or share is None:
            return
        self.began += 1
        patience_us, now_us = self.world.layout.sheds[SOURCE].patience_us, self.world.clock.now_us
        if not set(site.part.ingress.queues) <= taken.keys():
            return  # It leads partitions since this event.
        waits = [now_us - int(due[at]) for (_, partition), at in taken.items() if at < len(due := self._due_us[partition])]
        assert max(waits, default=0) > patience_us / 2, (
            f"{site.part} leaves rows out, and the oldest has waited for {max(waits, default=0)} us of {patience_us}"
        )
