"""What an experiment found, beside what the paper found and what Evenflow must reach. Nothing here knows how it was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from evenflow.experiments.result.chart import Chart

World = Literal["sim", "spark"]

Figures = Mapping[str, Any]
"""Name of a figure, its unit last, to its value: a number, a text, or None where there is none."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a figure must reach; None: no bound on that side."""

    at_least: float | None = None
    at_most: float | None = None

    def holds(self, value: object) -> bool:
        """Whether `value` is within. What is no number, or not a finite one, is not."""
        if not isinstance(value, int | float) or not math.isfinite(value):
            return False
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def to_json(self) -> dict[str, float]:
        return {name: value for name, value in (("at_least", self.at_least), ("at_most", self.at_most)) if value is not None}


@dataclass(frozen=True, slots=True)
class Measurement:
    """What an experiment's measuring function returns.

    target: of figures in `measured`; it may depend on what was measured. notes: sentences that a reader of the figures must know, such
    as what was emulated. paper: the paper's figures that depend on the set-up, beside those of the experiment.
    """

    measured: Figures
    target: Mapping[str, Bound]
    chart: Chart
    notes: tuple[str, ...] = ()
    paper: Figures = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """One run of an experiment. source: paper and figure. plot: path of the picture, None if none could be drawn."""

    name: str
    source: str
    world: World
    paper: Figures
    measured: Figures
    target: Mapping[str, Bound]
    plot: str | None

    @property
    def missed(self) -> tuple[str, ...]:
        """Figures that are not what they must be."""
        return tuple(name for name, bound in self.target.items() if not bound.holds(self.measured.get(name)))

    @property
    def holds(self) -> bool:
        return not self.missed

    def to_json(self) -> dict[str, Any]:
        """The object that --json prints; its keys are described in docs/cli.md."""
        return {
            "name": self.name,
            "source": self.source,
            "world": self.world,
            "paper": {name: plain(value) for name, value in self.paper.items()},
            "measured": {name: plain(value) for name, value in self.measured.items()},
            "target": {name: bound.to_json() for name, bound in self.target.items()},
            "holds": self.holds,
            "plot": self.plot,
        }


def plain(value: Any) -> Any:
    """A figure as JSON has it: four significant digits are more than a measurement has, and what is not finite is null."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.4g}")
