"""In which order a site begins the epochs that are ready, where outputs differ in what their age costs them (see `policy.urgency`).

A world asks when more than one waits for its processor, or for the thread of user code. Where nothing is more urgent than anything else
there is nothing to ask: `Urgency.of` gives None, and who waits longest goes first.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Final

from evenflow.plan.layout import Layout
from evenflow.policy.urgency import Ready, first
from evenflow.site.hosted import Work

LEAST_US: Final = 1.0


class Urgency:
    """number: of choices so far."""

    def __init__(self, layout: Layout) -> None:
        self._worths = layout.worths
        self.number = 0

    @staticmethod
    def of(layout: Layout) -> Urgency | None:
        return Urgency(layout) if layout.worths else None

    def take(self, works: MutableSequence[Work], now_us: int) -> Work:
        """Take out what goes first. works: in the order in which they became ready, one at least, none of them of the same cohort."""
        at = 0
        if len(works) > 1:
            at = first([self._ready(work) for work in works], now_us, self.number)
            self.number += 1
        work = works[at]
        del works[at]
        return work

    def _ready(self, work: Work) -> Ready:
        """What its rows will take is what rows of its segment have taken so far."""
        tally = work.hosted.tally
        rows = int(tally.rows.sum())
        row_us = tally.busy_ns / 1000 / rows if rows else LEAST_US
        return Ready(self._worths.get(work.segment, ()), work.opened, work.rows, max(LEAST_US, row_us * work.rows))
