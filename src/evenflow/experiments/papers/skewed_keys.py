"""`skewed-keys`: a few partitions have most of the rows, and the collection phase has a least length, delta_min (FL fig. 9).

With 10 ms the paper's rounds see chance and move popular partitions about: half of the static rate. From 150 ms with external load, and
from 250 ms without, they do better than nothing. Evenflow's policy sets delta_min itself, and is held against itself with a fixed one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.experiments.harness import balancing
from evenflow.experiments.harness.balancing import FLUX_2002, Balanced, SetUp, Slow, Variant
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.simulated import EMULATED, StartBalancing
from evenflow.experiments.result.chart import Chart, Curves, Line, Mark
from evenflow.experiments.result.result import Bound, Figures, Measurement
from evenflow.kernels.hash import hash_columns, partition_of, table_of_ranges
from evenflow.policy.catalogue import POLICIES
from evenflow.query.builder import Dataflow
from evenflow.sources.generator import GeneratorReader, GeneratorSource

EXPONENT: Final = np.log(0.2) / np.log(0.8)
"""80% of the rows go to 20% of the keys, 80% of those to 20% of these, and so on: key = N u^EXPONENT for a uniform u."""
LEAST_OF_BEST: Final = 0.97
LEFT: Final = 0.43
"""What the external process leaves of a machine's speed (FL 4)."""


class SelfSimilarReader(GeneratorReader):
    """As the generator's, with other keys."""

    def _keys(self, bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        uniform = (bits >> np.uint64(11)) * 2.0**-53
        keys: npt.NDArray[np.int64] = np.minimum((self._source.keys * uniform**EXPONENT).astype(np.int64), self._source.keys - 1)
        return keys


class SelfSimilarSource(GeneratorSource):
    """80/20 keys, as fast as they are taken."""

    kind: ClassVar[str] = "self_similar"
    reader: ClassVar[type[GeneratorReader]] = SelfSimilarReader


@dataclass(frozen=True, slots=True)
class Times:
    """deltas_ms: delta_min, one run each. The load is there from the beginning, as the balancing is; the first `skipped_s` do not count."""

    deltas_ms: tuple[int, ...]
    loads: tuple[str, ...]
    seconds: float
    skipped_s: float
    set_up: SetUp
    partitions: int = 512


SET_UP: Final = SetUp(
    sites=8, replicas=1, keys=16_384, row_us=500.0, link_mbit_per_s=250.0, every_s=0.05, epoch_rows=40, pipeline=4,
    read_every_us=(5_000, 20_000),
)  # fmt: skip
TIMES: Final = Times((10, 150, 500), ("no_load", "load"), 10.0, 2.0, SET_UP)
QUICK: Final = Times((250,), ("no_load",), 4.0, 1.0, replace(SET_UP, sites=4))

PAPER: Final[Figures] = {
    "flux_10_ms_by_static_no_load": 0.5,
    "flux_least_delta_ms_better_than_static_no_load": 250,
    "flux_least_delta_ms_better_than_static_load": 150,
}


def variants(times: Times) -> list[tuple[str, int, Variant]]:
    """(who, delta_min in ms or 0, variant)."""
    own = POLICIES["evenflow"].parameters
    found = [("static", 0, Variant("static", "nothing moves", "none", times.partitions))]
    for ms in times.deltas_ms:
        us = ms * 1000
        flux = replace(FLUX_2002, delta_min_us=us)
        fixed = replace(own, delta_min_us=us, delta_least_us=us, delta_most_us=us, evidence_us=us)
        found.append(("flux", ms, Variant("flux", f"the policy of Flux 2002, {ms} ms", "utilization", times.partitions, flux)))
        found.append(("fixed", ms, Variant("fixed", f"Evenflow's policy, fixed {ms} ms", "evenflow", times.partitions, fixed)))
    found.append(("evenflow", 0, Variant("evenflow", "Evenflow's policy, which tunes delta_min", "evenflow", times.partitions)))
    return found


def flow_of(times: Times) -> Dataflow:
    return times.set_up.drawn(times.set_up, SelfSimilarSource(rate=None, keys=times.set_up.keys, count=12))


def measure(setting: Setting, start: StartBalancing) -> Measurement:
    times = QUICK if setting.quick else TIMES
    rates = compare(setting, start, times)
    return Measurement(figures(times, rates), targets(times), chart(times, rates), (EMULATED, *NOTES), PAPER)


def compare(setting: Setting, start: StartBalancing, times: Times) -> Rates:
    """Each policy and delta_min without and with external load: on a quarter of the sites, the one with the hottest key among them."""
    rates: dict[tuple[str, str, int], float] = {}
    for load in times.loads:
        for who, delta_ms, variant in variants(times):
            balancing.say(setting, variant, "external load on a quarter of the sites" if load == "load" else "no external load")
            loaded = (hottest(times), *(s for s in range(times.set_up.sites) if s != hottest(times)))[: times.set_up.sites // 4]
            slow = [Slow(0.0, site, 1 / LEFT) for site in loaded] if load == "load" else []
            rates[load, who, delta_ms] = rate(times, balancing.run(start, times.set_up, variant, times.seconds, slow, flow_of(times)))
    return rates


def hottest(times: Times) -> int:
    """The site that has the most popular key, 0, at the start: partitions are ranges of hashes and lie in order."""
    key = pa.record_batch({"key": pa.array([0], pa.int64())})
    return int(partition_of(hash_columns(key, ["key"]), table_of_ranges(times.set_up.sites))[0])


def rate(times: Times, run: Balanced) -> float:
    """Rows per second that were put out."""
    return run.seen.rate(times.skipped_s, times.seconds)


Rates = Mapping[tuple[str, str, int], float]


def figures(times: Times, rates: Rates) -> Figures:
    """Rates by the static one of the same load; and the tuned one by the best fixed one."""
    found: dict[str, float | None] = {}
    for load in times.loads:
        static, unloaded = rates[load, "static", 0], rates[times.loads[0], "static", 0]
        found[f"rows_per_s_static_{load}"] = static
        for who in ("flux", "fixed"):
            for ms in times.deltas_ms:
                found[f"{who}_{ms}_ms_by_static_{load}"] = rates[load, who, ms] / static
        better = [ms for ms in times.deltas_ms if rates[load, "flux", ms] > unloaded]
        found[f"flux_least_delta_ms_better_than_static_{load}"] = min(better) if better else None
        found[f"evenflow_by_static_{load}"] = rates[load, "evenflow", 0] / static
        found[f"evenflow_by_best_fixed_{load}"] = rates[load, "evenflow", 0] / max(rates[load, "fixed", ms] for ms in times.deltas_ms)
    return found


def targets(times: Times) -> dict[str, Bound]:
    return {f"evenflow_by_best_fixed_{load}": Bound(at_least=LEAST_OF_BEST) for load in times.loads}


def chart(times: Times, rates: Rates) -> Chart:
    panels = []
    x = [float(ms) for ms in times.deltas_ms]
    for load in times.loads:
        static = rates[load, "static", 0]
        lines = [
            Line("the policy of Flux 2002", x, [rates[load, "flux", ms] / static for ms in times.deltas_ms], points=True),
            *paper(load),
            Line("Evenflow's, fixed", x, [rates[load, "fixed", ms] / static for ms in times.deltas_ms], points=True),
            Line("Evenflow's, tuned", [x[0], x[-1]], [rates[load, "evenflow", 0] / static] * 2),
            Line("nothing moves", [x[0], x[-1]], [1.0, 1.0], "law"),
        ]
        better = Mark(float(PAPER[f"flux_least_delta_ms_better_than_static_{load}"]), "paper: from here on better than static without load")
        panels.append(Curves(load.replace("_", " "), "delta_min, ms", "output by static", tuple(lines), (better,)))
    return Chart("80/20 keys (FL fig. 9)", tuple(panels))


def paper(load: str) -> list[Line]:
    """What its text says of its policy with the least delta_min."""
    name = f"flux_10_ms_by_static_{load}"
    return [Line("paper: its text", [10.0], [float(PAPER[name])], "paper", points=True)] if name in PAPER else []


NOTES: Final = (
    "8 sites with 64 partitions each instead of 32 sites; the external load is on two of them instead of eight.",
    "80/20 is self-similar over 16,384 keys: one key has a quarter of all rows. The paper does not say which 80/20 it uses.",
    "The paper's text says no more than when its policy is better than nothing. A move there takes milliseconds, here a plan's round trip.",
)
