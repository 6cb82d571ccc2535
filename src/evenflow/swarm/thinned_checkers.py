"""Plans leave rows out only while more is offered than sites can do, and not for long after it (D6): worked out from what sites say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from evenflow.coordinator.balancing import is_calm
from evenflow.coordinator.events import Collected, CoordinatorAction, CoordinatorEvent
from evenflow.policy.shedding.flow import HEADROOM
from evenflow.statistics.statistics import Statistics
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer

CALM_ROUNDS: Final = 10
"""After so many looks at which all that was offered fitted, and at which plans are made, every row goes on."""
ROUNDING: Final = 1e-3


@dataclass
class Needed(Observer):
    """Of one generation. before: what the next plan kept at the last event. calm: looks in a row since all has fitted. began: how often a
    plan has begun to leave rows out."""

    world: Any
    before: Any = field(init=False)
    calm: int = 0
    began: int = 0

    def __post_init__(self) -> None:
        self.before = self.world.coordinator.rounds.keeps

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        rounds = self.world.coordinator.rounds
        before, self.before = self.before, rounds.keeps
        if rounds.flow is None or not isinstance(event, Collected):
            assert before == self.before, f"{event} changes what plans keep from {before} to {self.before}"
            return
        asked = self.asked(event.statistics)
        if asked is None:
            return
        if self.before and not before:
            self.began += 1
            assert asked > 1 - ROUNDING, f"the busiest site would be {asked:.0%} busy with all that is offered, and {self.before} is kept"
        fits = bool(self.before) and asked < HEADROOM - ROUNDING
        looked = is_calm(self.world.coordinator) or before != self.before  # Else something is under way, and there is no plan meanwhile.
        self.calm = self.calm + looked if fits else 0
        assert self.calm <= CALM_ROUNDS, f"all that is offered has fitted for {self.calm} looks, and plans keep {self.before}"

    def asked(self, statistics: Statistics) -> float | None:
        """How busy the busiest site would be if all went on that sources have offered, by the time that it has for it; None if nobody knows
        what rows cost, or none have come."""
        layout, flow = self.world.layout, self.world.coordinator.rounds.flow
        offered = [each for window in statistics.sites for each in window.sources]
        seconds = (statistics.end_us - statistics.begin_us) / 1e6
        if not flow.costs or not sum(each.offered for each in offered) or seconds <= 0:
            return None
        rows, busy = dict[int, float](), dict[int, float]()
        for segment in layout.segments:  # Producers come first.
            rows[segment.id] = sum(each.offered for each in offered if each.segment == segment.id) / seconds
            rows[segment.id] += sum(rows[layout.arcs[arc].producer] * flow.selectivity.get(arc, 1.0) for arc in segment.inputs)
            for site, cost_s in flow.costs.get(segment.id, {}).items():
                busy[site] = busy.get(site, 0.0) + cost_s * rows[segment.id]
        here = {window.site for window in statistics.sites}
        return max((each / max(0.05, 1 - flow.aside.get(site, 0.0)) for site, each in busy.items() if site in here), default=None)
