"""Modes while a run goes on: some segments are to have another one from some epoch on (availability.md, M2). Decides; the machine proposes.

One plan changes the modes and who consumes. Where one replica is enough, the others go as if they had died; of an ingress partition its
leader stays. Where several are to be, places for them are made, and recovery copies what is there to them: until that is done, the next
death may end the run, as it does wherever pairs have one replica left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenflow.availability.mode import Mode, Modes, replicas_of, shortened
from evenflow.coordinator.events import CoordinatorAction, Done, Happened, Kind
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Placement, Plan
from evenflow.site.view import NOBODY, View


class ModesWanted:
    """modes: of the next plan. view: the coordinator's, shared. _requests: what each of those who wait for an answer wants, together with
    what was wanted before."""

    def __init__(self, layout: Layout, view: View) -> None:
        self._layout, self._view = layout, view
        self.modes: Modes = view.plan.modes
        self._replicas = 1
        self._requests: dict[int, Modes] = {}
        self._boxes = ""

    def want(self, modes: Modes, replicas: int, boxes: str, request: int = 0) -> None:
        """Instead of what was wanted and is in no plan yet. replicas: of what is replicated. boxes: for people. request: see `Done`.

        Who wants pairs in place of something else has chosen that: a plan says so by name, and a restart goes on with it."""
        chosen = (Mode.PAIRS,) * len(self._layout.segments) if self._view.plan.modes else ()
        self.modes, self._replicas, self._boxes = shortened(modes) or chosen, replicas, boxes
        if request:
            self._requests[request] = self.modes

    def settled(self) -> list[CoordinatorAction]:
        """The answer to who has asked for what is there already."""
        return self._answers({"epoch": self._view.plan.effective, "modes": {}})

    @property
    def wanted(self) -> bool:
        """The newest plan has other modes."""
        return self.modes != self._view.plan.modes

    def placed(self, placement: Placement) -> Placement:
        """The placement with as many replicas as the wanted modes have."""
        if not self.wanted:
            return placement
        view, rows = self._view, []
        before = view.plan.modes or (Mode.PAIRS,) * len(placement)
        after = self.modes or (Mode.PAIRS,) * len(placement)
        for segment, row in enumerate(placement):
            if before[segment] is after[segment]:
                rows.append(row)
                continue
            many = replicas_of(after[segment], self._replicas)
            rows.append(tuple(self._resized(segment, partition, sites, many) for partition, sites in enumerate(row)))
        return tuple(rows)

    def _resized(self, segment: int, partition: int, sites: tuple[Any, ...], many: int) -> tuple[Any, ...]:
        live = [site for site in sites if site >= 0]
        if self._layout.segments[segment].led:  # Who leads goes on: nobody else would.
            leader = self._view.membership.leaders[segment][partition].site
            live.sort(key=lambda site: site != leader)
        elif live:
            live = live[partition % len(live) :] + live[: partition % len(live)]  # Every other one at each rank.
        kept = live[:many]
        return (*kept, *[NOBODY] * (many - len(kept)))

    def committed(self, before: Plan) -> list[CoordinatorAction]:
        """A plan is. If it has other modes, what a person wants to know, and who has asked."""
        plan = self._view.plan
        if plan.modes == before.modes:
            return []
        modes = plan.modes or (Mode.PAIRS,) * len(self._layout.segments)
        changed = {
            segment.name: str(modes[segment.id])
            for segment in self._layout.segments
            if plan.mode(segment.id) is not before.mode(segment.id)
        }
        details: dict[str, Any] = {"epoch": plan.effective, "modes": changed}
        text = f"from epoch {plan.effective} on, availability of {self._boxes} is {', '.join(sorted(set(changed.values())))}"
        happened = Happened(Kind.AVAILABILITY, NOBODY, text, details)
        return [happened, *self._answers(details)]

    def _answers(self, details: Mapping[str, Any]) -> list[CoordinatorAction]:
        """To all who have what they want with the newest plan: where that is the last that was wanted, everybody has."""
        plan = self._view.plan
        have = [request for request, modes in self._requests.items() if plan.modes in (modes, self.modes)]
        self._requests = {request: modes for request, modes in self._requests.items() if request not in have}
        return [Done(request, details) for request in have]
