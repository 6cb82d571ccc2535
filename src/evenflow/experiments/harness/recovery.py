"""What `after-failure` and `large-state` share: a group-by driven as fast as it goes, a site killed, its partitions recovered elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.simulated import Deployment, Start, Watched, watch
from evenflow.experiments.harness.workload import SINK, grouped
from evenflow.experiments.result.chart import Chart, Curves, Line, Mark
from evenflow.query.builder import Dataflow
from evenflow.site.options import FlowOptions

REPLICAS: Final = 2
PIPELINE: Final = 8
"""Epochs under way: enough that no site waits for another."""
Levels = Mapping[str, tuple[tuple[float, float], ...]]
"""By variant: what the thesis' output settled at after the failure, as (second, share of the rate before)."""
VICTIM: Final = 3


@dataclass(frozen=True, slots=True)
class Variant:
    """partitions: P. The thesis counts both replicas: its 8 partitions are P = 4, its 64 are P = 32."""

    name: str
    label: str
    partitions: int


VARIANTS: Final = (
    Variant("4_partitions", "P = 4, as Flux-HA", 4),
    Variant("32_partitions", "P = 32, as Flux", 32),
    Variant("256_partitions", "P = 256", 256),
)


@dataclass(frozen=True, slots=True)
class SetUp:
    """FT 5.2.2.1 and 5.3. keys: distinct groups of some 290 bytes. row_us: makes the group-by the bottleneck at about the thesis' rate.

    settle_s: the steady state after the failure is what is seen in so many seconds at the end. epoch_rows: of each ingress partition; a
    source that is never empty fills every epoch, and this makes it some 25 ms of work.
    """

    keys: int
    kill_at_s: float
    seconds: float
    sites: int = 4
    row_us: float = 48.0
    link_mbit_per_s: float = 100.0
    settle_s: float = 10.0
    every_s: float = 0.01
    epoch_rows: int = 43


def quick(set_up: SetUp) -> SetUp:
    return replace(set_up, keys=set_up.keys // 20, kill_at_s=4.0, seconds=16.0, settle_s=3.0, row_us=480.0, epoch_rows=5)


def group_by(set_up: SetUp) -> Dataflow:
    return grouped(keys=set_up.keys)


def run(setting: Setting, set_up: SetUp, start: Start, flow_of: Callable[[SetUp], Dataflow] = group_by) -> dict[str, Watched]:
    """Every variant once: it takes what it can, and one of its sites dies. No spare: the others must do."""
    seen = {}
    for variant in VARIANTS:
        setting.say(f"{variant.label}: site {VICTIM} of {set_up.sites} dies after {set_up.kill_at_s:g} of {set_up.seconds:g} s")
        world = start(
            Deployment(
                flow_of(set_up),
                set_up.sites,
                variant.partitions,
                replicas=REPLICAS,
                placement="chained",
                row_us=set_up.row_us,
                link_mbit_per_s=set_up.link_mbit_per_s,
                options=FlowOptions(partitions=variant.partitions, epoch_rows=set_up.epoch_rows, pipeline=PIPELINE),
            )
        )
        kill = world.kill
        seen[variant.name] = watch(world, SINK, set_up.seconds, every_s=set_up.every_s, acts=[(set_up.kill_at_s, lambda k=kill: k(VICTIM))])  # type: ignore[misc]
    return seen


def before(set_up: SetUp, seen: Watched) -> float:
    """Rows per second of the steady state before the failure."""
    return seen.rate(set_up.kill_at_s / 2, set_up.kill_at_s)


def share_after(set_up: SetUp, seen: Watched) -> float:
    """Of the rate before; NaN if the partitions were not recovered by then."""
    whole = set_up.kill_at_s + seen.whole_after_s(set_up.kill_at_s, REPLICAS)
    settled = set_up.seconds - set_up.settle_s
    return seen.rate(settled, set_up.seconds) / before(set_up, seen) if whole <= settled else float("nan")


def chart(title: str, set_up: SetUp, seen: Mapping[str, Watched], bin_s: float, paper: Levels) -> Chart:
    """One panel per variant."""
    panels = []
    for variant in VARIANTS:
        watched = seen[variant.name]
        at_s, rate, _ = watched.bins(bin_s)
        lines = [Line("Evenflow", at_s.tolist(), (rate / before(set_up, watched)).tolist())]
        if levels := paper.get(variant.name):
            # What lies between is in the thesis' figure only; NaN breaks the line.
            x = [0.0, set_up.kill_at_s, set_up.kill_at_s, *(at for at, _ in levels), set_up.seconds]
            y = [1.0, 1.0, float("nan"), *(share for _, share in levels), levels[-1][1]]
            lines.append(Line("paper: levels in its tables", x, y, "paper"))
        lines.append(Line("capacity left", [set_up.kill_at_s, set_up.seconds], [1 - 1 / set_up.sites] * 2, "law"))
        panels.append(Curves(variant.label, "s", "output, share of before", tuple(lines), (Mark(set_up.kill_at_s, "site dies"),)))
    return Chart(title, tuple(panels))
