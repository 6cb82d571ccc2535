"""`degradation`: more and more of 32 machines lose 57% of their speed (FL fig. 8).

Without balancing, one slow machine is enough: all go at its pace, however many there are. With it the rate falls in a straight line, as the
capacity does. One move per pair and round takes 32 rounds to get there (FL fig. 7: 32 partitions in 9 s).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from evenflow.experiments.harness import balancing
from evenflow.experiments.harness.balancing import FLUX_2002, POINTS, Balanced, SetUp, Slow, Variant
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.simulated import EMULATED, StartBalancing
from evenflow.experiments.result.chart import Chart, Curves, Line
from evenflow.experiments.result.result import Bound, Figures, Measurement

SPEED: Final = 0.43
"""What the external process leaves of a machine's rate (FL 4)."""
PER_SITE: Final = 64
"""Partitions (FL 5.4)."""
LEAST_OF_IDEAL: Final = 0.97


@dataclass(frozen=True, slots=True)
class Times:
    """slow: numbers of slow sites, by variant. seconds: of a run, by variant: until its rate has settled, and steady_s more, in which the
    steady state is seen. slow_at_s: when sites become slow."""

    slow: Mapping[str, tuple[int, ...]]
    seconds: Mapping[str, float]
    slow_at_s: float
    steady_s: float
    set_up: SetUp

    @property
    def variants(self) -> tuple[Variant, ...]:
        partitions = PER_SITE * self.set_up.sites
        return (
            Variant("static", "nothing moves", "none", partitions),
            Variant("flux", "the policy of Flux 2002", "utilization", partitions, FLUX_2002),
            Variant("evenflow", "Evenflow's policy", "evenflow", partitions),
        )


SET_UP: Final = SetUp(
    sites=32, replicas=1, keys=16_384, row_us=1_000.0, link_mbit_per_s=250.0, every_s=0.05, epoch_rows=267, pipeline=3, settle_s=2.0,
    read_every_us=(10_000, 30_000),
)  # fmt: skip
TIMES: Final = Times(
    {"static": (1,), "flux": (8,), "evenflow": (1, 8, 24)},
    {"static": 11.0, "flux": 100.0, "evenflow": 20.0},
    3.0,
    6.0,
    SET_UP,
)
QUICK: Final = Times(
    {"static": (1,), "flux": (), "evenflow": (1, 2)},
    {"static": 5.0, "flux": 5.0, "evenflow": 8.0},
    2.0,
    2.0,
    replace(SET_UP, sites=4, epoch_rows=33),
)

PAPER: Final[Figures] = {
    "share_1_slow_static": SPEED,
    "partitions_moved_1_slow_flux": 32,
    "balanced_s_1_slow_flux": 9,
}


def measure(setting: Setting, start: StartBalancing) -> Measurement:
    """Each number of slow sites with each policy. Which sites are slow is drawn at random, the same for all."""
    times = QUICK if setting.quick else TIMES
    sites = list(range(times.set_up.sites))
    Random(8).shuffle(sites)
    seen = {}
    for variant in times.variants:
        for count in times.slow[variant.name]:
            balancing.say(setting, variant, f"{count} of {len(sites)} sites have {SPEED:.0%} of their speed after {times.slow_at_s:g} s")
            slow = [Slow(times.slow_at_s, site, 1 / SPEED) for site in sites[:count]]
            seen[variant.name, count] = balancing.run(start, times.set_up, variant, times.seconds[variant.name], slow)
    return Measurement(figures(times, seen), targets(times), chart(times, seen), (EMULATED, *NOTES), PAPER)


def ideal(times: Times, slow: int) -> float:
    """Share of the capacity that is left."""
    return 1 - slow * (1 - SPEED) / times.set_up.sites


def by_thresholds(times: Times, slow: int) -> float:
    """Share at which rounds with th_imb end: the slow sites are fully and the others 1 / th_imb utilized."""
    return ((times.set_up.sites - slow) / FLUX_2002.th_imb + slow * SPEED) / times.set_up.sites


def figures(times: Times, seen: Mapping[tuple[str, int], Balanced]) -> Figures:
    """Rates are shares of each run's own rate before."""
    found: dict[str, float] = {"rows_per_s_before": before(times, next(iter(seen.values())))}
    for (variant, count), run in seen.items():
        end, name = times.seconds[variant], f"{count}_slow_{variant}"
        found[f"share_{name}"] = run.share(end - times.steady_s, end, before(times, run))
        if variant != "static":
            found[f"partitions_moved_{name}"] = run.moved(times.slow_at_s)
            found[f"balanced_s_{name}"] = run.balanced_s(times.slow_at_s)
        if variant == "evenflow":
            found[f"share_{count}_slow_ideal"] = ideal(times, count)
    own = times.slow["evenflow"]
    found["least_share_of_ideal_evenflow"] = min(found[f"share_{count}_slow_evenflow"] / ideal(times, count) for count in own)
    return found


def before(times: Times, run: Balanced) -> float:
    return run.seen.rate(times.slow_at_s - times.set_up.settle_s, times.slow_at_s)


def targets(times: Times) -> dict[str, Bound]:
    theirs = {f"share_{count}_slow_flux": Bound(at_least=by_thresholds(times, count) - POINTS) for count in times.slow["flux"]}
    return {**theirs, "least_share_of_ideal_evenflow": Bound(at_least=LEAST_OF_IDEAL)}


def chart(times: Times, seen: Mapping[tuple[str, int], Balanced]) -> Chart:
    sites = times.set_up.sites
    lines = []
    for variant in times.variants:
        counts = times.slow[variant.name]
        shares = [
            seen[variant.name, n].share(
                times.seconds[variant.name] - times.steady_s, times.seconds[variant.name], before(times, seen[variant.name, n])
            )
            for n in counts
        ]
        if counts:
            lines.append(Line(variant.label, [0, *counts], [1, *shares], points=True))
        if variant.name == "static":
            lines.append(Line("paper: its text", [0, 1, sites], [1, SPEED, SPEED], "paper"))
        if variant.name == "flux" and counts:
            reached = [by_thresholds(times, count) for count in range(1, sites + 1)]
            lines.append(Line("its rounds do not end below, by its thresholds", list(range(1, sites + 1)), reached, "law"))
    lines.append(Line("capacity left", [0, sites], [1, SPEED], "law"))
    return Chart("Slow sites of 32 (FL fig. 8)", (Curves("output", "slow sites", "output, share of before", tuple(lines)),))


NOTES: Final = (
    "External load is emulated: everything at a slow site takes 1 / 0.43 as long, which is what the paper's process did to a machine.",
    "The paper's text says no more of its curve than that it is linear: its policy is held against what its threshold lets it reach.",
    "Shares are of the rate before, which is nine tenths of what 32 sites could do: by chance an epoch brings some of them more rows.",
    "The rate is a twentieth of the paper's, a row costing a millisecond; both policies have the paper's 64 partitions per site.",
)
