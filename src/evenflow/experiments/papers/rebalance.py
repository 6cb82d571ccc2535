"""`rebalance`: one of four machines is left with half of its speed (FT fig. 5.3, table 5.1; FL fig. 7).

Without balancing all four go at the pace of the slow one. The thesis moves 7 of its 16 partitions away and has 85% of the rate after 9.2 s,
where 87.5% is what is left. With its thresholds, rounds end when the slow site is less than 15% busier than the others, and so before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from evenflow.experiments.harness import balancing
from evenflow.experiments.harness.balancing import POINTS, THESIS, Balanced, SetUp, Slow, Variant
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.simulated import EMULATED, StartBalancing
from evenflow.experiments.result.chart import Chart, Line
from evenflow.experiments.result.result import Bound, Figures, Measurement

STATIC: Final = Variant("static", "nothing moves, P = 32", "none", 32)
PAPERS: Final = Variant("thesis", "the thesis' policy, P = 32", "utilization", 32, THESIS)
OWN: Final = Variant("evenflow", "Evenflow's policy, P = 256", "evenflow", 256)
VARIANTS: Final = (STATIC, PAPERS, OWN)
WITHIN_S: Final = 5.0
LEAST_SHARE: Final = 0.86
VICTIM: Final = 1


@dataclass(frozen=True, slots=True)
class Times:
    """slow_at_s: when the site becomes slow. seconds: of a run in which load is balanced; static_s: of the one in which it is not.

    steady_s: at the end of a run, in which the steady state is seen."""

    slow_at_s: float = 6.0
    seconds: float = 24.0
    static_s: float = 10.0
    steady_s: float = 8.0
    factor: float = 2.0
    set_up: SetUp = field(default_factory=SetUp)


TIMES: Final = Times()
QUICK: Final = Times(slow_at_s=2.0, seconds=12.0, static_s=5.0, steady_s=2.0, set_up=balancing.quick(SetUp()))

PAPER: Final[Figures] = {
    "rows_per_s_before": 19_430,
    "share_static": 9.75 / 19.43,
    "share_thesis": 16.52 / 19.43,
    "balanced_s_thesis": 9.2,
    "partitions_moved_thesis": 7,
    "moved_mb_thesis": 6.5,
    "share_ideal": 0.875,
}


def measure(setting: Setting, start: StartBalancing) -> Measurement:
    times = QUICK if setting.quick else TIMES
    seen = compare(setting, start, times)
    return Measurement(figures(times, seen), targets(), chart(times, seen), (EMULATED, *NOTES), PAPER)


def compare(setting: Setting, start: StartBalancing, times: Times) -> dict[str, Balanced]:
    """All variants, one after the other."""
    seen = {}
    for variant in VARIANTS:
        balancing.say(
            setting, variant, f"site {VICTIM} of {times.set_up.sites} is {times.factor:g} times slower after {times.slow_at_s:g} s"
        )
        seconds = times.static_s if variant is STATIC else times.seconds
        seen[variant.name] = balancing.run(start, times.set_up, variant, seconds, [Slow(times.slow_at_s, VICTIM, times.factor)])
    return seen


def figures(times: Times, seen: Mapping[str, Balanced]) -> Figures:
    """Rates are shares of each run's own rate before."""
    slow_at_s = times.slow_at_s
    found: dict[str, float] = {"rows_per_s_before": before(times, seen[PAPERS.name])}
    for variant in VARIANTS:
        run, end = seen[variant.name], times.static_s if variant is STATIC else times.seconds
        found[f"share_{variant.name}"] = run.share(end - times.steady_s / (2 if variant is STATIC else 1), end, before(times, run))
        if variant is not STATIC:
            found[f"balanced_s_{variant.name}"] = run.balanced_s(slow_at_s)
            found[f"partitions_moved_{variant.name}"] = run.moved(slow_at_s)
            found[f"moved_mb_{variant.name}"] = run.seen.copied_mb(slow_at_s, end)
    own = seen[OWN.name]
    soon = slow_at_s + WITHIN_S
    found["share_evenflow_after_5_s"] = own.share(soon, min(soon + 2.0, times.seconds), before(times, own))
    return found


def before(times: Times, run: Balanced) -> float:
    return run.seen.rate(times.slow_at_s - times.set_up.settle_s, times.slow_at_s)


def targets() -> dict[str, Bound]:
    thesis = float(PAPER["share_thesis"])
    return {
        "share_thesis": Bound(thesis - POINTS, thesis + POINTS),
        "share_evenflow": Bound(at_least=LEAST_SHARE),
        "share_evenflow_after_5_s": Bound(at_least=LEAST_SHARE),
    }


def chart(times: Times, seen: Mapping[str, Balanced]) -> Chart:
    at, done = times.slow_at_s, times.slow_at_s + float(PAPER["balanced_s_thesis"])
    share, static = float(PAPER["share_thesis"]), float(PAPER["share_static"])
    theirs = Line(
        "paper: levels in its table",
        [0, at, at, at, done, done, times.seconds],
        [1, 1, float("nan"), static, static, share, share],
        "paper",
    )
    lines = [(variant, seen[variant.name], before(times, seen[variant.name])) for variant in VARIANTS]
    return Chart("A site at half speed (FT fig. 5.3)", (balancing.panel("output", lines, 0.875, at, "site slows", [theirs]),))


NOTES: Final = (
    "External load is emulated: everything at the slow site takes twice as long.",
    "P = 32 is the thesis' 64 partitions, which count both replicas. Its output is first come, first served; Evenflow's is in order.",
    "Ingress and egress cost nothing per row, as if they had machines of their own, as in the thesis.",
)
