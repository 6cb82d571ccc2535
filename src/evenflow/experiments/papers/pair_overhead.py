"""`pair-overhead`: what it costs to compute everything twice (FT fig. 3.17).

The thesis compares the greatest input rate of a dataflow on four machines without replicas, as cluster pairs (two copies on two machines
each, which do not know of each other inside), and as pairs of partitions. With the operators as the bottleneck, cluster pairs must be
half as fast as no replication; what pairs are below that is the cost of coordination: acknowledgements and retention.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.simulated import EMULATED, Deployment, Start
from evenflow.experiments.harness.workload import SHOWN, SINK, monitor
from evenflow.experiments.result.chart import Bars, Chart
from evenflow.experiments.result.result import Bound, Figures, Measurement
from evenflow.site.options import FlowOptions


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the dataflow on SITES sites. sets: copies of the whole dataflow, `sites` each, of which one is measured.

    paper_rows_per_s: input rate, as given in FH 5.4; the thesis has it only in the figure.
    """

    name: str
    sites: int
    replicas: int
    sets: int
    paper_rows_per_s: int


SITES: Final = 4
VARIANTS: Final = (
    Variant("none", sites=SITES, replicas=1, sets=1, paper_rows_per_s=82_000),
    Variant("cluster_pairs", sites=SITES // 2, replicas=1, sets=2, paper_rows_per_s=40_000),
    Variant("pairs", sites=SITES, replicas=2, sets=1, paper_rows_per_s=36_000),
)
KEYS: Final = 100_000
APPS: Final = 10_000
PARTITIONS: Final = 256
EPOCH_ROWS: Final = 2048
PIPELINE: Final = 8
"""Epochs under way: enough that no site waits for another."""
ROW_US: Final = 18.0
"""Per operator and row, so that operators are the bottleneck and no replication reaches about the paper's rate."""
WARM_S: Final = 6.0
"""Until every key has had rows enough, fewer than every second one ends a session."""
SECONDS: Final = 10.0
ROUNDS: Final = 5
MOST_TIMES_THE_CPU: Final = 2.1


@dataclass(frozen=True, slots=True)
class Load:
    """One run: input rows taken, in so many seconds, for so many CPU seconds of all sites (of all sets)."""

    rows: int
    seconds: float
    cpu_s: float


def measure(setting: Setting, load_of: Callable[[Variant, int], Load], rounds: int = ROUNDS, notes: tuple[str, ...] = ()) -> Measurement:
    """load_of(variant, round): run it once. The variants run in turn, so that what drifts drifts for all; medians count."""
    loads: dict[str, list[Load]] = {variant.name: [] for variant in VARIANTS}
    for number in range(rounds):
        for variant in VARIANTS:
            setting.say(f"round {number + 1} of {rounds}: {variant.name}")
            loads[variant.name].append(load_of(variant, number))
    measured = figures(loads)
    return Measurement(measured, {"pairs_by_none_cpu": Bound(at_most=MOST_TIMES_THE_CPU)}, chart(measured), notes, paper())


def figures(loads: Mapping[str, Sequence[Load]]) -> Figures:
    """Medians over the rounds of each variant; ratios are of rounds that ran next to each other."""
    found: dict[str, float] = {}
    for name, runs in loads.items():
        found[f"rows_per_s_{name}"] = statistics.median(run.rows / run.seconds for run in runs)
        found[f"cpu_s_per_million_rows_{name}"] = statistics.median(run.cpu_s / run.rows * 1e6 for run in runs)
    for name in ("cluster_pairs", "pairs"):
        both = zip(loads[name], loads["none"])
        found[f"{name}_by_none_cpu"] = statistics.median((run.cpu_s / run.rows) / (none.cpu_s / none.rows) for run, none in both)
    return found


def paper() -> Figures:
    """The paper's CPUs are busy at the greatest rate, so its CPU per row goes as the inverse of the rate."""
    rates = {variant.name: variant.paper_rows_per_s for variant in VARIANTS}
    ratios = {f"{name}_by_none_cpu": rates["none"] / rates[name] for name in ("cluster_pairs", "pairs")}
    return {**{f"rows_per_s_{name}": rate for name, rate in rates.items()}, **ratios}


def chart(measured: Figures) -> Chart:
    names = tuple(variant.name for variant in VARIANTS)
    none = measured["rows_per_s_none"]
    ours = tuple(measured[f"rows_per_s_{name}"] / none for name in names)
    theirs = tuple(variant.paper_rows_per_s / VARIANTS[0].paper_rows_per_s for variant in VARIANTS)
    labels = tuple(name.replace("_", " ") for name in names)
    bars = Bars("greatest input rate", "of no replication", labels, (("Evenflow", "ours", ours), ("paper", "paper", theirs)))
    return Chart("What pairs cost (FT fig. 3.17)", (bars,))


def load_in_simulator(start: Start, *, quick: bool) -> Callable[[Variant, int], Load]:
    """The sites always have something to do. Rows are counted where they come out: two in for one out, of
    which one in SHOWN is shown.

    Cluster pairs are two worlds without replicas that are fed the same: each has half of the sites, and is lost with one of them. Both
    must take a row before it counts.
    """
    warm_s, seconds, keys = (1.0, 2.0, KEYS // 20) if quick else (WARM_S, SECONDS, KEYS)

    def load_of(variant: Variant, number: int) -> Load:
        flow = monitor(keys=keys, apps=APPS, shown=SHOWN)
        # A source that is never empty fills every epoch: this makes it some 25 ms of work, and the same for all variants.
        options = FlowOptions(partitions=PARTITIONS, epoch_rows=EPOCH_ROWS // variant.sites, pipeline=PIPELINE)
        rows, cpu_us = [], 0
        for member in range(variant.sets):
            deployment = Deployment(flow, variant.sites, PARTITIONS, variant.replicas, row_us=ROW_US, options=options)
            world = start(replace(deployment, seed=variant.sets * number + member))
            world.run_for(warm_s)
            batches, before_us = len(world.released[SINK]), world.cpu_us()
            world.run_for(seconds)
            rows.append(2 * SHOWN * sum(batch.num_rows for _, batch in world.released[SINK][batches:]))
            cpu_us += world.cpu_us() - before_us
        return Load(min(rows), seconds, cpu_us / 1e6)

    return load_of


NOTES_IN_SIMULATOR: Final = (
    EMULATED,
    "Cluster pairs are two unreplicated dataflows on half of the sites each, fed the same rows.",
    "Rows are counted where they come out, one in 32, so a rate has some noise of its own.",
)
