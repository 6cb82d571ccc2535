"""Replacing: a run goes on as another version of its dataflow from some epoch on (V2). Decides; the machine proposes the plan.

The version is part of the plan, as ranges and weights are, and every later plan has it. So whoever joins, misses a plan or takes over
knows what to run, and when.
"""

from __future__ import annotations

from typing import Any

from evenflow.query.plan import Plan, Version
from evenflow.site.view import View


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

    def committed(self, before: Plan) -> tuple[str, dict[str, Any]] | None:
        """A plan is. Returns what a person wants to know, if it changes the version: a sentence, and version, epoch, boxes."""
        plan = self._view.plan
        if plan.version is None or plan.version == before.version:
            return None
        details = {"version": plan.version.number, "epoch": plan.effective, "boxes": list(plan.version.boxes)}
        boxes = ", ".join(plan.version.boxes)
        return f"version {plan.version.number} runs from epoch {plan.effective} on; its new boxes: {boxes}", details
