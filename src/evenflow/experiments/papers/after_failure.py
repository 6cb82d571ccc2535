"""`after-failure`: how much of the rate is left when a machine is gone and no other takes its place (FT fig. 5.4, table 5.2).

Three of four machines can do 75%. The thesis' Flux-HA has two partitions a machine and recovers them where it will: 50 to 67%. Flux has
many small ones and balances load afterwards: 71%, whether recovery was balanced, or everything came onto one machine. Here recovery
spreads small partitions by itself; in the simulator the unbalanced one is measured too, with the thesis' policy and with Evenflow's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from evenflow.experiments.harness import balancing, recovery
from evenflow.experiments.harness.balancing import POINTS, THESIS, Balanced
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.recovery import REPLICAS
from evenflow.experiments.harness.simulated import EMULATED, StartBalancing
from evenflow.experiments.result.chart import Chart, Line
from evenflow.experiments.result.result import Bound, Figures, Measurement

LEAST_SHARE: Final = 0.73

STATIC: Final = balancing.Variant("4_partitions", "P = 4, as Flux-HA", "none", 4)
PAPERS: Final = balancing.Variant("thesis", "the thesis' policy, P = 32", "utilization", 32, THESIS)
OWN: Final = balancing.Variant("evenflow", "Evenflow's policy, P = 256", "evenflow", 256)
VARIANTS: Final = (STATIC, PAPERS, OWN)
RECOVERIES: Final = ("balanced", "unbalanced")
"""Lost replicas go to all remaining sites, or to one of them."""


@dataclass(frozen=True, slots=True)
class Times:
    """A site dies at kill_at_s. seconds: of a run, by variant: until its rounds have ended, and steady_s more, in which the steady state is
    seen."""

    kill_at_s: float = 5.0
    seconds: Mapping[str, float] = field(default_factory=lambda: {STATIC.name: 20.0, PAPERS.name: 40.0, OWN.name: 26.0})
    steady_s: float = 6.0
    set_up: balancing.SetUp = balancing.COARSE


TIMES: Final = Times()
QUICK: Final = Times(2.0, {STATIC.name: 8.0, PAPERS.name: 8.0, OWN.name: 8.0}, 2.0, replace(balancing.quick(balancing.SetUp()), keys=2_000))
PAPER: Final[Figures] = {
    "share_after_balanced_4_partitions": 13.16 / 19.63,
    "share_after_unbalanced_4_partitions": 9.85 / 19.63,
    "share_after_balanced_thesis": 13.78 / 19.33,
    "share_after_unbalanced_thesis": 13.91 / 19.33,
    "balanced_s_balanced_thesis": 19.0,
    "balanced_s_unbalanced_thesis": 19.0,
    "partitions_moved_balanced_thesis": 4,
    "partitions_moved_unbalanced_thesis": 10,
    "recovery_s_balanced_thesis": 12.0,
    "recovery_s_unbalanced_thesis": 12.0,
}


def measure(setting: Setting, start: StartBalancing) -> Measurement:
    times = QUICK if setting.quick else TIMES
    seen = compare(setting, start, times)
    return Measurement(figures(times, seen), targets(), chart(times, seen), (EMULATED, *NOTES), PAPER)


def compare(setting: Setting, start: StartBalancing, times: Times) -> Seen:
    """Flux-HA, the thesis' policy and Evenflow's, after both recoveries."""
    seen = {}
    for recovery_name in RECOVERIES:
        for variant in VARIANTS:
            balancing.say(setting, variant, f"a site of {times.set_up.sites} dies after {times.kill_at_s:g} s, {recovery_name} recovery")
            seen[recovery_name, variant.name] = balancing.run(
                start,
                times.set_up,
                variant,
                times.seconds[variant.name],
                adjust=partial(replace, spread=recovery_name == "balanced"),
                others=lambda world: [(times.kill_at_s, partial(world.kill, recovery.VICTIM))],
            )
    return seen


Seen = Mapping[tuple[str, str], Balanced]


def before(times: Times, run: Balanced) -> float:
    """Rows per second, before the death."""
    return run.seen.rate(times.kill_at_s - times.set_up.settle_s, times.kill_at_s)


def figures(times: Times, seen: Seen) -> Figures:
    found: dict[str, float] = {"rows_per_s_before": before(times, seen["balanced", PAPERS.name])}
    for (recovered, variant), run in seen.items():
        whole_s = run.seen.whole_after_s(times.kill_at_s, REPLICAS)
        end, name = times.seconds[variant], f"{recovered}_{variant}"
        settled = times.kill_at_s + whole_s <= end - times.steady_s
        share = run.share(end - times.steady_s, end, before(times, run))
        found[f"share_after_{name}"] = share if settled else float("nan")
        found[f"recovery_s_{name}"] = whole_s
        if variant != STATIC.name:
            found[f"balanced_s_{name}"] = run.balanced_s(times.kill_at_s)
            found[f"partitions_moved_{name}"] = run.moved(times.kill_at_s)
    return found


def targets() -> dict[str, Bound]:
    theirs = {f"share_after_{recovered}_thesis": float(PAPER[f"share_after_{recovered}_thesis"]) for recovered in RECOVERIES}
    return {
        **{name: Bound(share - POINTS, share + POINTS) for name, share in theirs.items()},
        **{f"share_after_{recovered}_evenflow": Bound(at_least=LEAST_SHARE) for recovered in RECOVERIES},
    }


def chart(times: Times, seen: Seen) -> Chart:
    """One panel per recovery."""
    at, panels = times.kill_at_s, []
    for recovered in RECOVERIES:
        runs = [(variant, seen[recovered, variant.name]) for variant in VARIANTS]
        lines = [(variant, run, before(times, run)) for variant, run in runs]
        share = float(PAPER[f"share_after_{recovered}_thesis"])
        theirs = Line(
            "paper: Flux, at the end", [0, at, at, at + 19.0, times.seconds[PAPERS.name]], [1, 1, float("nan"), share, share], "paper"
        )
        panels.append(balancing.panel(f"{recovered} recovery", lines, 0.75, at, "site dies", [theirs]))
    return Chart("A site dies and nobody takes its place (FT fig. 5.4)", tuple(panels))


NOTES: Final = (
    "P = 4 and P = 32 are the thesis' 8 and 64 partitions, which count both replicas.",
    "The thesis' output is first come, first served; Evenflow's is in order.",
    "Unbalanced recovery puts all lost replicas on one site, and is there for this experiment alone; Evenflow spreads them.",
    "Seconds count from the death; the thesis balances 12 s after it and is done 7 s later.",
    "Ingress and egress cost nothing per row, as if they had machines of their own, as in the thesis.",
)
