"""`wide-area`: replicas at thirty distant sites that never coordinate, and what they cost (HW fig. 5.6 to 5.9, table 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from evenflow.experiments.harness.arrivals import WIDTH_S as EPOCH_S
from evenflow.experiments.harness.distant_sites import DAY, MONTH, Trace
from evenflow.experiments.harness.experiment import Experiment, Setting
from evenflow.experiments.harness.replica_price import DEGREES, OPERATORS, prices_us
from evenflow.experiments.harness.wide_query import HOUR, K_MAX, SEED, Month, Ran, min_cost, randomly, worst_difference_s
from evenflow.experiments.papers import wide_area_failure as failure
from evenflow.experiments.result.chart import Bars, Chart, Curves, Line, Mark
from evenflow.experiments.result.result import Bound, Figures, Measurement
from evenflow.stream.arrays import Floats

MONTHS: Final = 5
"""From seeds one after the other, of which the longest latencies count together: one of a single month is chance."""
AT: Final = 3
"""Replicas at which they are compared, as in the thesis."""
DEVIATION_AT: Final = 3
QUICK_STEPS: Final = 2 * DAY
QUICK_K: Final = 3
PRICED: Final = 5, 400
QUICK_PRICED: Final = 1, 60
"""Rounds and epochs in which replicas are priced."""
PRICES_AT_MOST: Final = {
    "cpu_union_4_by_none": Bound(at_most=2.0),
    "cpu_filter_4_by_none": Bound(at_most=2.0),
    "cpu_aggregate_4_by_none": Bound(at_most=1.4),
    "cpu_join_4_by_none": Bound(at_most=1.15),
}
TABLE: Final = {
    "union": (1.43, 2.57, 3.86, 5.00),
    "filter": (1.38, 2.37, 3.50, 4.50),
    "aggregate": (1.17, 1.57, 1.92, 2.26),
    "join": (1.08, 1.14, 1.22, 1.29),
}
"""HW table 5.1: for 1 to 4 replicas."""
LATER: Final = "share of epochs that are later"
SHARES: Final = 10.0 ** -np.arange(1.0, 6.1, 0.1)
"""Of epochs, of which curves say how late the latest are."""


@dataclass(slots=True)
class Found:
    """By replicas: runs where the cost is least, where replicas are by chance, and where legs are left out, for good or until they are
    wanted. longest_ms: of all months, by placement; hour_ms: latencies at an application over an hour, by replicas."""

    months: int
    least: dict[int, Ran] = field(default_factory=dict)
    chance: dict[int, Ran] = field(default_factory=dict)
    discarded: dict[int, Ran] = field(default_factory=dict)
    revived: dict[int, Ran] = field(default_factory=dict)
    longest_ms: dict[str, list[float]] = field(default_factory=lambda: {"min": [], "random": []})
    rows_per_s: dict[tuple[str, int], float] = field(default_factory=dict)
    difference_s: float = 0.0


def measure(setting: Setting) -> Measurement:
    steps, k_max, months = (QUICK_STEPS, QUICK_K, 1) if setting.quick else (MONTH, K_MAX, MONTHS)
    setting.say("a union's site dies: four ways of being reliable")
    late_s = failure.latencies_s(Trace.drawn(SEED, round(failure.SECONDS / failure.WIDTH_S)).calm())
    setting.say(f"{steps // DAY} days between thirty sites, 1 to {k_max} replicas")
    month = Month.of(SEED, steps)
    found = Found(months)
    for k in range(1, k_max + 1):
        legs = month.legs(min_cost(month.asked, month.latency_ms, k))
        full = found.least[k] = month.run(legs)
        at_random = month.legs(randomly(month.asked, month.latency_ms, k, np.random.default_rng((SEED, k))))
        found.chance[k] = month.run(at_random)
        found.rows_per_s["min", k], found.rows_per_s["random", k] = month.rows_per_s(legs), month.rows_per_s(at_random)
        if k == AT:
            found.difference_s = worst_difference_s(month, legs, steps // 2, HOUR)
        if k > 1:
            setting.say(f"{k} replicas: which legs are left out")
            found.discarded[k], found.revived[k] = month.discarded(full, (k + 1) // 2)
    found.longest_ms["min"].append(found.least[AT].longest_ms)
    found.longest_ms["random"].append(found.chance[AT].longest_ms)
    for seed in range(SEED + 1, SEED + months):
        setting.say(f"another month, of seed {seed}")
        other = Month.of(seed, steps)
        for name, deployed in (
            ("min", min_cost(other.asked, other.latency_ms, AT)),
            ("random", randomly(other.asked, other.latency_ms, AT, np.random.default_rng((seed, AT)))),
        ):
            found.longest_ms[name].append(other.run(other.legs(deployed)).longest_ms)
    setting.say("what a replica costs, by operator and number of replicas")
    prices = prices_us(*(QUICK_PRICED if setting.quick else PRICED))
    told = {**figures(found, late_s), **priced(prices)}
    return Measurement(told, {**targets(found), **PRICES_AT_MOST}, chart(found, late_s, prices), NOTES, PAPER)


def figures(found: Found, late_s: Mapping[str, Floats]) -> Figures:
    told: dict[str, float] = dict(failure.figures(late_s))
    alone = found.least[1]
    for k, ran in found.least.items():
        chance = found.chance[k]
        told |= {
            f"mean_ms_{k}": ran.mean_ms,
            f"deviation_ms_{k}": ran.deviation_ms,
            f"deviation_in_an_hour_ms_{k}": ran.hourly_deviation_ms,
            f"p999_ms_{k}": ran.quantile_ms(0.999),
            f"longest_ms_{k}": ran.longest_ms,
        }
        if k == 1:
            continue
        before = found.least[k - 1]
        told |= {
            f"mean_{k}_by_{k - 1}": ran.mean_ms / before.mean_ms,
            f"deviation_{k}_by_{k - 1}": ran.deviation_ms / before.deviation_ms,
            f"bandwidth_min_{k}": found.rows_per_s["min", k] / found.rows_per_s["min", 1],
            f"bandwidth_random_{k}": found.rows_per_s["random", k] / found.rows_per_s["random", 1],
            f"cost_min_{k}": ran.spent / alone.spent,
            f"cost_random_{k}": chance.spent / alone.spent,
            f"longest_random_ms_{k}": chance.longest_ms,
            f"cost_min_by_random_{k}": ran.spent / chance.spent,
            f"cost_discarded_{k}": found.discarded[k].spent / alone.spent,
            f"cost_revived_{k}": found.revived[k].spent / alone.spent,
            f"discarded_by_full_{k}": found.discarded[k].spent / ran.spent,
            f"revived_by_discarded_{k}": found.revived[k].spent / found.discarded[k].spent,
            f"p999_discarded_by_full_{k}": found.discarded[k].quantile_ms(0.999) / ran.quantile_ms(0.999),
            f"p999_revived_by_full_{k}": found.revived[k].quantile_ms(0.999) / ran.quantile_ms(0.999),
        }
    least, chances = found.longest_ms["min"], found.longest_ms["random"]
    told[f"deviation_{DEVIATION_AT}_by_1"] = found.least[DEVIATION_AT].deviation_ms / alone.deviation_ms
    hourly = found.least[DEVIATION_AT].hourly_deviation_ms / alone.hourly_deviation_ms
    told[f"deviation_in_an_hour_{DEVIATION_AT}_by_1"] = hourly
    told["longest_min_by_random"] = max(least) / max(chances)
    told["longest_min_by_random_median_month"] = float(np.median(np.divide(least, chances)))
    told["longest_min_ms_all_months"], told["longest_random_ms_all_months"] = max(least), max(chances)
    told["arithmetic_off_by_ms"] = 1000 * found.difference_s
    return told


def priced(prices: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    """CPU of a replica by that of an operator without any other, and what that takes for an epoch."""
    found = {f"cpu_us_{name}": prices[name][0] for name in OPERATORS}
    return found | {f"cpu_{name}_{k}_by_none": of[k] / of[0] for name, of in prices.items() for k in DEGREES if k}


def targets(found: Found) -> dict[str, Bound]:
    must = {
        "missing_race": Bound(at_most=0),
        "race_by_synchronized": Bound(at_most=1.0),
        "race_by_deterministic": Bound(at_most=1.0),
        f"deviation_{DEVIATION_AT}_by_1": Bound(at_most=0.5),
        f"deviation_in_an_hour_{DEVIATION_AT}_by_1": Bound(at_most=0.5),
        "longest_min_by_random": Bound(at_most=0.1),
        "arithmetic_off_by_ms": Bound(at_most=0.001),
    }
    for k in found.discarded:
        must |= {f"mean_{k}_by_{k - 1}": Bound(at_most=1.0), f"deviation_{k}_by_{k - 1}": Bound(at_most=1.0)}
        must |= {f"bandwidth_{name}_{k}": Bound(at_most=k * k) for name in ("min", "random")}
        must |= {f"cost_min_by_random_{k}": Bound(at_most=1.0), f"discarded_by_full_{k}": Bound(at_most=1.0)}
        must |= {f"p999_{name}_by_full_{k}": Bound(at_most=1.05) for name in ("discarded", "revived")}
        must[f"revived_by_discarded_{k}"] = Bound(at_most=1.0)
    return must


def chart(found: Found, late_s: Mapping[str, Floats], prices: Mapping[str, Mapping[int, float]]) -> Chart:
    due = [epoch * failure.WIDTH_S for epoch in range(len(late_s["none"]))]
    dies = Mark(failure.DIES_S, "a union's site dies")
    ways = tuple(Line(label, due, failure.curve(late_s[way])) for way, label in failure.WAYS.items())
    return Chart(
        "Replicas at distant sites (HW fig. 5.6 to 5.9, table 5.1); delays are drawn, not PlanetLab's",
        (
            Curves("What comes out of the join (fig. 5.6)", "seconds", "latency (ms)", ways, (dies,)),
            Curves("An application over an hour (fig. 5.7)", "minutes", "latency (ms)", hour(found)),
            Curves(
                "Replicas by chance (fig. 5.8a)", "latency (ms)", "share of epochs that are later", tails(found.chance, found), log=True
            ),
            Curves("Least cost (fig. 5.8b)", "latency (ms)", "share of epochs that are later", tails(found.least, found), log=True),
            spending(found),
            Curves("CPU of a replica (table 5.1)", "replicas", "by that without replicas", pricing(prices)),
        ),
        per_row=3,
    )


def hour(found: Found) -> tuple[Line, ...]:
    """The hour in which one replica alone is as uneven as in the median one."""
    alone = found.least[1].late_s[0]
    hours = alone[: alone.size - alone.size % HOUR].reshape(-1, HOUR)
    at = int(np.argsort(hours.std(axis=1))[len(hours) // 2]) * HOUR
    minutes = [epoch * EPOCH_S / 60 for epoch in range(HOUR)]
    return tuple(
        Line(f"{k} {'replica' if k == 1 else 'replicas'}", minutes, [1000 * float(s) for s in found.least[k].late_s[0, at : at + HOUR]])
        for k in sorted(found.least)
        if k <= DEVIATION_AT
    )


def tails(runs: Mapping[int, Ran], found: Found) -> tuple[Line, ...]:
    alone, few = found.least[1], found.least[1].late_s.size
    shares = SHARES[SHARES * few >= 1]
    lines = []
    for k, ran in runs.items():
        label = f"k {k}" if k == 1 else f"k {k} ({ran.spent / alone.spent:.1f} times the cost)"
        lines.append(Line(label, [1000 * float(s) for s in np.quantile(ran.late_s, 1 - shares)], [float(share) for share in shares]))
    return tuple(lines)


def pricing(prices: Mapping[str, Mapping[int, float]]) -> tuple[Line, ...]:
    degrees = [k for k in DEGREES if k]
    lines = []
    for name, of in prices.items():
        lines.append(Line(name, degrees, [of[k] / of[0] for k in degrees], points=True))
        lines.append(Line(f"{name}, paper", degrees, TABLE[name], "paper", points=True))
    return tuple(lines)


def spending(found: Found) -> Bars:
    alone = found.least[1].spent
    kinds = (("all legs", found.least), ("legs left out", found.discarded), ("left out until wanted", found.revived))
    return Bars(
        "What the network has to do (fig. 5.9)",
        "cost, by that of one replica",
        tuple(f"k {k}" for k in found.discarded),
        tuple((label, "ours", tuple(runs[k].spent / alone for k in found.discarded)) for label, runs in kinds),
    )


PAPER: Final[Figures] = {
    "missing_race": 0,
    "bandwidth_random_4": 11.37,
    "cost_random_4": 22.10,
    "cost_random_3": 13.39,
    "longest_random_ms_3": "over 16,000",
    "cost_min_3": 10.99,
    "longest_ms_3": "below 1,000",
    **{f"cpu_{name}_{k}_by_none": ratio for name, of in TABLE.items() for k, ratio in enumerate(of, 1)},
}

NOTES: Final = (
    "The thesis' trace of PlanetLab is not at hand. Delays are drawn from a seed: great circles between thirty places with detours, "
    "jitter, and paths that are congested for minutes or cut for up to twenty; how often is lognormal by site and by path. Sites "
    "themselves never fail, since the thesis chose those that communicate reliably. Absolute times say nothing about PlanetLab.",
    f"A month is arithmetic over epochs of {EPOCH_S:g} s: the first leg of each input, the last input of each replica. An hour of it is "
    "held against events hop by hop (`arithmetic_off_by_ms`).",
    "An epoch needs all thirty sources, as Evenflow's do; the thesis' unions and joins pass on single rows. So a path that is cut holds up "
    "whole epochs here, and only replicas help.",
    "The query has two unions, five joins, ten filters and ten applications, of which the thesis names only the last. That its "
    "13.39 and 10.99 times the cost are of three replicas is read from their size: its figure says it, its text does not.",
    f"Longest latencies are those of {AT} replicas over {MONTHS} months of different seeds together: that of one month is a single event, "
    "and in the median month the two placements are not far apart (`longest_min_by_random_median_month`).",
    "As good as all legs, where legs are left out, means p99.9 within 5% and nothing later than a second that was not. What is left out "
    "is chosen over the month that is shown, as in the thesis, by the weights of its first day. Half of the replicas stay at least. "
    "By p99.9 alone revival costs more than leaving out at four replicas as well (2.37 and 2.05).",
    "A leg that was left out is asked when its input is a tenth later than 99.9% of the first day's epochs, and stays ten minutes. "
    "Replicas that were given up do not come back.",
    "Figure 5.6: primaries are thought dead after 0.25 s; punctuations come every 100 ms; the three sites are the nearest of a region, "
    "and no path is in trouble meanwhile.",
    "Table 5.1 is CPU of this process for one operator behind and before real connections, a row per millisecond in epochs of 20 ms: the "
    "first leg's frame is decoded, the others' are dropped by their headers, the result is said once for each leg. What an epoch "
    "costs besides is left out.",
)

EXPERIMENT: Final = Experiment(
    name="wide-area",
    title="replicas at distant sites that never coordinate",
    source="HW fig. 5.6 to 5.9, table 5.1",
    worlds=("sim",),
    paper={},
    measure=measure,
)
