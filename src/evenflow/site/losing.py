"""Losing: what becomes of rows whose consumers are lost with nobody to take their place until they begin anew (availability.md, B4).

Frames are kept until their consumers hold them. Where the last replica of a consumer dies, those that it did not hold go, and so do those
that are made until a plan lets it begin anew: their rows are counted, and told when the last of them has been made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evenflow.availability.mode import MODES
from evenflow.exchange.retention import Asked, Kept
from evenflow.exchange.section import Resume
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Copy, Plan
from evenflow.site.cohort import Cohort
from evenflow.site.facts import Unread, Voided
from evenflow.site.feeding import Feeding
from evenflow.site.ground import Acts
from evenflow.site.view import View
from evenflow.stream.ids import NO_COPY, NO_FEED, SiteId


@dataclass(slots=True)
class _Lost:
    """partitions: of the consumer, that nobody has. rows: for them, so far. until: the last epoch that they do not get; None: not known."""

    partitions: set[int]
    rows: int = 0
    until: int | None = None


class Losing:
    """_lost: by the key of a cohort here and stream."""

    def __init__(self, layout: Layout, view: View, acts: Acts) -> None:
        self._layout, self._view, self._acts = layout, view, acts
        self._lost: dict[tuple[int, int], _Lost] = {}

    @property
    def counting(self) -> bool:
        return bool(self._lost)

    def note(self, dead: SiteId, cohorts: Iterable[Cohort]) -> None:
        """A site is dead; what is kept for it is still here."""
        for cohort in cohorts:
            for stream, retained in cohort.retained.items():
                consumer = self._layout.arcs[stream].consumer
                if MODES[self._view.plan.mode(consumer)].base != "void":
                    continue  # It is asked for again.
                gone = {p for block in self._view.blocks(consumer) if not self._view.live(block) for p in block.partitions}
                if not gone or dead not in retained.acked:
                    continue
                lost = self._lost.setdefault((cohort.born, stream), _Lost(set()))
                new = gone - lost.partitions
                lost.partitions |= gone
                lost.until = None
                for kept in retained.since(retained.acked[dead] + 1):
                    lost.rows += _rows(kept, stream, new, cohort)

    def made(self, cohort: Cohort, stream: int, kept: Kept) -> None:
        """An epoch was made here."""
        lost = self._lost.get((cohort.born, stream))
        if lost is not None and (lost.until is None or kept.epoch <= lost.until):
            lost.rows += _rows(kept, stream, lost.partitions, cohort)
        if lost is not None and lost.until is not None and kept.epoch >= lost.until:
            self._tell(cohort, stream)

    def begin(self, plan: Plan, cohorts: Mapping[tuple[int, int], Cohort]) -> None:
        """A plan lets partitions begin anew."""
        anew = {copy.segment for copy in plan.copies if copy.void}
        for cohort in cohorts.values():
            for stream in cohort.retained:
                lost = self._lost.get((cohort.born, stream))
                if lost is not None and self._layout.arcs[stream].consumer in anew:
                    lost.until = plan.effective - 1
                    if cohort.hosted.done >= lost.until:
                        self._tell(cohort, stream)

    def void(self, copy: Copy, order: Iterable[Cohort], feeding: Feeding) -> bool:
        """B4: partitions begin anew with the plan, and nobody has what they have sent behind what is here: it is read as empty. True if
        anything is. order: cohorts here."""
        until, number, found = self._view.plan.effective - 1, self._view.plan.number, False
        for cohort in order:
            for stream in cohort.segment.inputs:
                first = cohort.inboxes[stream].through + 1
                if self._layout.arcs[stream].producer == copy.segment and first <= until:
                    feeding.void(cohort, stream, copy.partitions, until)
                    self._acts.tell(Voided(number, stream, copy.partitions, first, until))
                    found = True
        return found

    def _tell(self, cohort: Cohort, stream: int) -> None:
        self._acts.tell(Unread(stream, self._lost.pop((cohort.born, stream)).rows))


def _rows(kept: Kept, stream: int, consumers: set[int], cohort: Cohort) -> int:
    """How many rows of an epoch are for these partitions."""
    asked = Asked(SiteId(-1), Resume(stream, NO_COPY, NO_FEED, kept.epoch, cohort.partitions, tuple(sorted(consumers))), kept.epoch)
    return sum(bundle.rows.num_rows for bundle in asked.bundles(kept, stream))
