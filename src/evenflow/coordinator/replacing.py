"""Replacing: a run goes on as another version of its dataflow from some epoch on (V2). Decides; the machine proposes the plan.

The version is part of the plan, as ranges and weights are, and every later plan has it. So whoever joins, misses a plan or takes over
knows what to run, and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenflow.availability.content import Content
from evenflow.coordinator.events import CoordinatorAction, Done, Happened, Kind
from evenflow.plan.plan import Plan, Version
from evenflow.site.view import NOBODY, View


class Replacing:
    """version: of the next plan. newest: the highest number that was ever wanted. owed: version, and the answer to who has asked for it,
    until the journal has the plan."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.version = view.plan.version
        self.newest, self._request = 0 if self.version is None else self.version.number, 0
        self.owed: tuple[int, Done] | None = None

    def want(self, version: Version | None, request: int = 0) -> None:
        """Instead of what was wanted and is in no plan yet. request: is answered when a plan has it; 0 for one that nobody waits for."""
        self.version, self._request = version, request if version is not None else 0
        self.newest = max(self.newest, 0 if version is None else version.number)

    @property
    def wanted(self) -> bool:
        """The newest plan has another version."""
        return self.version is not self._view.plan.version

    def committed(self, before: Plan, *, journalled: bool = False) -> list[CoordinatorAction]:
        """A plan is. journalled: who has asked is answered when the journal has it, and a restart goes on so. If it changes the version,
        returns what a person wants to know, with version, epoch and boxes, and with the table that was read anew and its rows, if that is
        it; and the same for who has asked for it."""
        plan = self._view.plan
        if plan.version is None or plan.version == before.version:
            return []
        details: dict[str, Any] = {"version": plan.version.number, "epoch": plan.effective, "boxes": list(plan.version.boxes)}
        for table, rows in plan.version.tables:
            text = f"table {table} was read anew and has {rows:,} rows from epoch {plan.effective} on"
            return self._answered(Happened(Kind.TABLE_REFRESHED, NOBODY, text, details | {"table": table, "rows": rows}), journalled)
        boxes = ", ".join(plan.version.boxes)
        text = f"version {plan.version.number} runs from epoch {plan.effective} on; its new boxes: {boxes}"
        return self._answered(Happened(Kind.REPLACED, NOBODY, text, details), journalled)

    def durable(self, contents: Sequence[Content]) -> list[CoordinatorAction]:
        """An entry with these is in the journal."""
        if self.owed is None or all(content.version != self.owed[0] for content in contents):
            return []
        answer, self.owed = self.owed[1], None
        return [answer]

    def _answered(self, happened: Happened, journalled: bool) -> list[CoordinatorAction]:
        """A plan with an older version may still have been under way: that one answers nobody."""
        if not self._request or self._view.plan.version != self.version:
            return [happened]
        answer, self._request = Done(self._request, happened.details), 0
        if journalled:
            self.owed = happened.details["version"], answer
            return [happened]
        return [happened, answer]
