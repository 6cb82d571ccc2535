"""Replacing: a run goes on as another version of its dataflow from some epoch on (V2). Decides; the machine proposes the plan.

The version is part of the plan, as ranges and weights are, and every later plan has it. So whoever joins, misses a plan or takes over
knows what to run, and when.
"""

from __future__ import annotations

from evenflow.coordinator.events import Happened
from evenflow.plan.plan import Plan, Version
from evenflow.site.view import NOBODY, View


class Replacing:
    """version: of the next plan. newest: the highest number that was ever wanted."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.version = view.plan.version
        self.newest = 0

    def want(self, version: Version | None) -> None:
        """Instead of what was wanted and is in no plan yet."""
        self.version = version
        self.newest = max(self.newest, 0 if version is None else version.number)

    @property
    def wanted(self) -> bool:
        """The newest plan has another version."""
        return self.version is not self._view.plan.version

    def committed(self, before: Plan) -> Happened | None:
        """A plan is. Returns what a person wants to know, if it changes the version: with version, epoch and boxes, and with the table
        that was read anew and its rows, if that is it."""
        plan = self._view.plan
        if plan.version is None or plan.version == before.version:
            return None
        details = {"version": plan.version.number, "epoch": plan.effective, "boxes": list(plan.version.boxes)}
        for table, rows in plan.version.tables:
            text = f"table {table} was read anew and has {rows:,} rows from epoch {plan.effective} on"
            return Happened("table_refreshed", NOBODY, text, details | {"table": table, "rows": rows})
        boxes = ", ".join(plan.version.boxes)
        text = f"version {plan.version.number} runs from epoch {plan.effective} on; its new boxes: {boxes}"
        return Happened("replaced", NOBODY, text, details)
