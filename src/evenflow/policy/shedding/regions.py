"""Plans in advance by the solver (BO 4.1): the space of rates is divided like a quadtree, and a region has one plan.

For every region the program is solved at its top-most and at its bottom-most point, q and r. The worth at any point s between lies
between theirs, so if they differ by epsilon at most, s can use r's plan, with its inputs lowered to r's rates besides. A region is
divided unless that is so, or its top-most point fits. `Solver-W` knows how likely rates are, and stops when the expected error is small:
what is rarely asked for is divided late, or never.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Final

import numpy as np

from evenflow.policy.shedding.linear import Linear
from evenflow.stream.arrays import Floats

Likely = Callable[[Floats, Floats], float]
"""How much of the workload has its rates between two points."""
DEPTH_MAX: Final = 12


@dataclass(frozen=True, slots=True)
class Region:
    """low, high: its corners. plan: what is let in at `low`. worth: of it; most: at `high`. parts: what it was divided into."""

    low: Floats
    high: Floats
    plan: Floats
    worth: float
    most: float
    whole: bool
    parts: list[Region] = field(default_factory=list)

    @property
    def error(self) -> float:
        """The most that a point in it loses by the plan of its lower corner, of what would be best; 0 where all fit."""
        return 0.0 if self.whole or self.most <= 0 else (self.most - self.worth) / self.most


@dataclass(slots=True)
class Solver:
    """Regions from the origin to `top`, d sources. asked: how often the program was solved."""

    linear: Linear
    top: Floats
    asked: int = 0
    root: Region = field(init=False)
    _known: dict[bytes, tuple[Floats, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = self._region(np.zeros(len(self.top)), self.top)

    def lookup(self, point: Floats) -> Floats:
        """What is let in of these rates: they fit, and are nowhere above. Rates beyond the top are as those at it."""
        at = np.minimum(point, self.top)
        region = self.root
        while region.parts:
            middle = (region.low + region.high) / 2
            region = region.parts[sum(int(at[i] >= middle[i]) << i for i in range(len(at)))]
        return at if region.whole else np.minimum(region.plan, at)

    def divide_all(self, epsilon: float) -> None:
        """Until every region is within epsilon (the paper's Solver)."""
        waiting = [(self.root, 0)]
        while waiting:
            region, depth = waiting.pop()
            if region.error > epsilon and depth < DEPTH_MAX:
                self._divide(region)
                waiting += [(part, depth + 1) for part in region.parts]

    def divide_likely(self, epsilon: float, likely: Likely) -> None:
        """Until the expected error is within epsilon (Solver-W): what adds most to it is divided first."""
        count = 0
        heap = [(-self.root.error * likely(self.root.low, self.root.high), count, self.root, 0)]
        expected = -heap[0][0]
        while heap and expected > epsilon:
            weighed, _, region, depth = heapq.heappop(heap)
            if weighed == 0 or depth >= DEPTH_MAX:
                break
            expected += weighed
            self._divide(region)
            for part in region.parts:
                count += 1
                weight = part.error * likely(part.low, part.high)
                expected += weight
                heapq.heappush(heap, (-weight, count, part, depth + 1))

    def expected(self, likely: Likely) -> float:
        """The error to expect: of each region the most that it may be."""
        return sum(leaf.error * likely(leaf.low, leaf.high) for leaf in self.leaves())

    def leaves(self) -> list[Region]:
        found, waiting = [], [self.root]
        while waiting:
            region = waiting.pop()
            waiting += region.parts
            if not region.parts:
                found.append(region)
        return found

    def _divide(self, region: Region) -> None:
        middle = (region.low + region.high) / 2
        for upper in product((False, True), repeat=len(middle)):
            above = np.array(upper[::-1])  # The first source is the lowest bit of a part's place.
            region.parts.append(self._region(np.where(above, middle, region.low), np.where(above, region.high, middle)))

    def _region(self, low: Floats, high: Floats) -> Region:
        if self.linear.fits(high[None])[0]:
            return Region(low, high, high, float(high @ self.linear.worth), float(high @ self.linear.worth), True)
        plan, worth = self._best(low)
        return Region(low, high, plan, worth, self._best(high)[1], False)

    def _best(self, point: Floats) -> tuple[Floats, float]:
        """Neighbours share corners, which are solved once; one that fits needs no solver."""
        key = point.tobytes()
        if key not in self._known:
            self.asked += not self.linear.fits(point[None])[0]
            plan = self.linear.best(point)
            self._known[key] = plan, float(plan @ self.linear.worth)
        return self._known[key]


__all__ = ["Likely", "Region", "Solver"]
