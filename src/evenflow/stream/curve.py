"""A piecewise linear function of one number: what an answer is worth over its age, over what share of it came, or over a value in it.

Before its first point and behind its last one it is level. Nothing here knows what the axes mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from evenflow.stream.arrays import Floats

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """points: (x, y), x ascending, two at least. Raises ValueError for others."""

    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        if len(self.points) < 2:
            raise ValueError("a curve has two points at least")
        if not all(math.isfinite(number) for point in self.points for number in point):
            raise ValueError("the points of a curve are finite numbers")
        for (x, _), (following, _) in pairwise(self.points):
            if following <= x:
                raise ValueError(f"the points of a curve have different places, and {following:g} is there twice")

    @classmethod
    def of(cls, points: Iterable[Point]) -> Self:
        """Through these points, in any order."""
        return cls(tuple(sorted((float(x), float(y)) for x, y in points)))

    def __call__(self, x: float) -> float:
        return float(np.interp(x, *self._axes()))

    def at(self, x: Any) -> Floats:
        """Its values at many places, an array of the shape of `x`."""
        found: Floats = np.interp(x, *self._axes())
        return found

    def rises(self) -> bool:
        """Whether it falls nowhere."""
        return all(after >= before for (_, before), (_, after) in pairwise(self.points))

    def falls(self) -> bool:
        """Whether it rises nowhere."""
        return all(after <= before for (_, before), (_, after) in pairwise(self.points))

    def is_concave(self) -> bool:
        slopes = self.slopes()
        return all(after <= before + 1e-12 * (abs(before) + 1) for before, after in pairwise(slopes))

    def slopes(self) -> tuple[float, ...]:
        """One per piece between two points."""
        return tuple((y - before) / (x - at) for (at, before), (x, y) in pairwise(self.points))

    def hull(self) -> Curve:
        """The least concave curve above it, on the same stretch: itself if it is concave. Cost: linear in its points."""
        kept: list[Point] = []
        for point in self.points:
            while len(kept) > 1 and _turn(kept[-2], kept[-1], point) >= 0:
                kept.pop()
            kept.append(point)
        return Curve(tuple(kept))

    def over(self, low: float, high: float) -> Curve:
        """The same between these two, with a point at each, level where it does not reach them. low: less than high."""
        inside = [(x, y) for x, y in self.points if low < x < high]
        return Curve(((low, self(low)), *inside, (high, self(high))))

    def _axes(self) -> tuple[list[float], list[float]]:
        return [x for x, _ in self.points], [y for _, y in self.points]


def _turn(first: Point, middle: Point, last: Point) -> float:
    """Above 0 where the way bends to the left at `middle`, 0 where it goes straight on."""
    return (middle[0] - first[0]) * (last[1] - first[1]) - (middle[1] - first[1]) * (last[0] - first[0])


__all__ = ["Curve", "Floats", "Point"]
