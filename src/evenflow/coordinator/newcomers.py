"""What has come to sources while a run goes on, such as a topic that its pattern fits: each gets a place that waits for it (decision 101).

Which place it is follows from nothing but the order in which the driver has seen them, so the order is part of the plan, and of the
journal. A name that has a place keeps it: whoever reads the place, now or after a restart, reads the same.
"""

from __future__ import annotations

from evenflow.coordinator.events import CoordinatorAction, Happened, Kind
from evenflow.plan.plan import Newcomers, Plan
from evenflow.site.view import NOBODY, View


class Arrivals:
    """newcomers: of the next plan."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.newcomers: Newcomers = view.plan.newcomers

    def of(self, segment: int) -> tuple[str, ...]:
        return dict(self.newcomers).get(segment, ())

    def want(self, segment: int, names: tuple[str, ...]) -> None:
        """These have come; those that were known have their places already."""
        new = tuple(name for name in dict.fromkeys(names) if name not in self.of(segment))
        if new:
            self.newcomers = tuple(sorted((dict(self.newcomers) | {segment: (*self.of(segment), *new)}).items()))

    @property
    def wanted(self) -> bool:
        """The newest plan does not name all."""
        return self.newcomers != self._view.plan.newcomers

    def committed(self, before: Plan) -> list[CoordinatorAction]:
        """A plan is. Returns what a person wants to know of those that it names first."""
        plan = self._view.plan
        found: list[CoordinatorAction] = []
        for segment, names in plan.newcomers:
            for name in names[len(before.came(segment)) :]:
                source = self._view.layout.segments[segment].source
                found.append(Happened(Kind.NEWCOMER, NOBODY, f"source {source} reads {name} from now on", {"source": source, "name": name}))
        return found


__all__ = ["Arrivals"]
