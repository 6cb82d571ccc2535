"""Distant sites and a month of delays between them, from a seed: what stands in for the thesis' trace of PlanetLab (HW 5.5.1).

Delays are recorded every ten seconds, as there. A few paths make most of the trouble, as was found of the Internet's: how often a path is
congested or cut varies by factors that are lognormal. What is sent while a path is cut arrives when it is whole again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from evenflow.stream.arrays import Floats

STEP_S: Final = 10.0
DAY: Final = int(86_400 / STEP_S)
MONTH: Final = 30 * DAY
"""Steps."""

REGIONS: Final = {
    "North America, east": (9, 40.0, -78.0, 6.0),
    "North America, west": (5, 39.0, -119.0, 5.0),
    "Europe": (9, 49.0, 8.0, 7.0),
    "Asia": (5, 33.0, 122.0, 9.0),
    "South America": (1, -23.0, -46.0, 0.0),
    "Australia": (1, -34.0, 151.0, 0.0),
}
"""Sites, latitude and longitude of the middle, how far they are scattered, degrees. Thirty in all."""

KM_PER_MS: Final = 200.0
"""Light in fibre."""
DETOUR: Final = 1.6
"""Routes by great circles."""
UNEVEN: Final = (1.0, 1.0)
"""Deviation of the logarithm of how often paths are in trouble: by the sites at their ends, some of which are busy with other things
(HW 5.5.1), and by themselves."""
CONGESTED_PER_DAY: Final = 0.5
CONGESTED_S: Final = 240.0
CONGESTED_MS: Final = (250.0, 1.0, 30_000.0)
"""What is added: median, deviation of the logarithm, at most."""
CUT_PER_DAY: Final = 0.1
CUT_S: Final = (90.0, 1_200.0)
"""Mean, at most."""
KEPT: Final = 320
"""Paths whose delays stay in memory; 1 MB each."""


@dataclass(slots=True)
class Trace:
    """base_ms: float (sites, sites), one way, when nothing is the matter; 0 on the diagonal. region: of each site, an index of REGIONS.

    trouble: float (sites, sites), how often a path is congested or cut, relative to the median one.
    """

    seed: int
    steps: int
    base_ms: Floats
    region: npt.NDArray[np.int64]
    trouble: Floats
    _kept: OrderedDict[tuple[int, int], npt.NDArray[np.float32]] = field(default_factory=OrderedDict)

    @staticmethod
    def drawn(seed: int, steps: int = MONTH) -> Trace:
        random = np.random.default_rng(seed)
        region = np.repeat(np.arange(len(REGIONS)), [each[0] for each in REGIONS.values()])
        places = np.array([each[1:3] for each in REGIONS.values()])[region]
        places = np.radians(places + random.normal(size=places.shape) * np.array([each[3] for each in REGIONS.values()])[region][:, None])
        straight = distances_km(places)
        uneven = np.exp(random.normal(0.0, 0.15, straight.shape))
        access = random.uniform(1.0, 4.0, len(region))
        base = straight / KM_PER_MS * DETOUR * np.sqrt(uneven * uneven.T) + access[:, None] + access[None, :]
        np.fill_diagonal(base, 0.0)
        busy = random.normal(0.0, UNEVEN[0], len(region))
        trouble = np.exp(busy[:, None] + busy[None, :] + random.normal(0.0, UNEVEN[1], straight.shape))
        return Trace(seed, steps, base, region, trouble)

    def calm(self) -> Trace:
        """The same paths, on which nothing is ever the matter but jitter."""
        return Trace(self.seed, self.steps, self.base_ms, self.region, np.zeros_like(self.trouble))

    @property
    def sites(self) -> int:
        return len(self.region)

    def delays_s(self, a: int, b: int) -> npt.NDArray[np.float32]:
        """float32 (steps,): one way from a to b for what is sent in each step. Always the same for the same seed."""
        found = self._kept.get((a, b))
        if found is None:
            found = self._kept[a, b] = self._draw(a, b)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end((a, b))
        return found

    def _draw(self, a: int, b: int) -> npt.NDArray[np.float32]:
        if a == b:
            return np.zeros(self.steps, np.float32)
        random = np.random.default_rng((self.seed, a, b))
        jitter_s = (0.5 + 0.03 * self.base_ms[a, b]) / 1000
        found = random.standard_exponential(self.steps, np.float32) * np.float32(jitter_s) + np.float32(self.base_ms[a, b] / 1000)
        days = self.steps / DAY
        median, deviation, most = CONGESTED_MS
        for _ in range(random.poisson(CONGESTED_PER_DAY * self.trouble[a, b] * days)):
            begin, length = self._when(random, CONGESTED_S)
            added = min(median * np.exp(random.normal(0.0, deviation)), most) / 1000
            found[begin : begin + length] += added * random.uniform(0.5, 1.0, found[begin : begin + length].size).astype(np.float32)
        for _ in range(random.poisson(CUT_PER_DAY * self.trouble[a, b] * days)):
            begin, length = self._when(random, CUT_S[0], CUT_S[1])
            cut = found[begin : begin + length]
            np.maximum(cut, (np.arange(length, 0, -1)[: cut.size] * STEP_S + self.base_ms[a, b] / 1000).astype(np.float32), out=cut)
        return found

    def _when(self, random: np.random.Generator, mean_s: float, most_s: float = np.inf) -> tuple[int, int]:
        """Begin and length, steps."""
        return int(random.integers(self.steps)), max(1, round(min(random.exponential(mean_s), most_s) / STEP_S))


def distances_km(places: Floats) -> Floats:
    """float (sites, sites): great circles between places, radians of latitude and longitude."""
    latitude, longitude = places[:, 0], places[:, 1]
    half = np.sin(np.subtract.outer(latitude, latitude) / 2) ** 2
    half += np.outer(np.cos(latitude), np.cos(latitude)) * np.sin(np.subtract.outer(longitude, longitude) / 2) ** 2
    found: Floats = 2 * 6_371.0 * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0)))
    return found
