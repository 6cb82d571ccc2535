"""What the load-balancing experiments share: a group-by driven as fast as it goes, sites that become slow, and moves that are counted.

A slow site stands for the papers' external load: everything there takes so many times as long. Ingress and egress cost nothing per row,
since in the papers they have machines of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.simulated import Balancing, Deployment, StartBalancing, Watched, watch
from evenflow.experiments.harness.workload import SINK, grouped
from evenflow.experiments.result.chart import Curves, Line, Mark
from evenflow.policy.proposal import Parameters
from evenflow.query.builder import Dataflow
from evenflow.site.options import FlowOptions
from evenflow.sources import Source
from evenflow.stream.arrays import Floats

GROUP_BY: Final = 1
"""Segment of the operator, between ingress and egress. The papers balance one segment (FT 5.1.3.2), whose sites do nothing else: rows of
the ingress, which cost nothing here, would else count as load of the site."""
THESIS: Final = Parameters(th_imb=1.15, th_util=0.925, delta_min_us=250_000, segments=(GROUP_BY,))
"""FT 5.2.2.1."""
FLUX_2002: Final = Parameters(th_imb=1.2, th_util=0.9, delta_min_us=10_000, segments=(GROUP_BY,))
"""FL 5.4."""
POINTS: Final = 0.03
"""How far a figure may be from the paper's when its parameters are used, as a share of the rate before."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Who balances. partitions: P, of one copy. parameters: None for the policy's own."""

    name: str
    label: str
    policy: str
    partitions: int
    parameters: Parameters | None = None


@dataclass(frozen=True, slots=True)
class Slow:
    """A site that becomes `factor` times slower `at_s` seconds after the start; 1: as before."""

    at_s: float
    site: int
    factor: float


@dataclass(frozen=True, slots=True)
class SetUp:
    """Of FT 5.2.2.1, unless stated otherwise. row_us: makes the group-by the bottleneck at about the thesis' rate. epoch_rows: of each
    ingress partition; a source that is never empty fills every epoch, and this makes it some 25 ms of work. pipeline: epochs under way.
    settle_s: before a change, the steady state is what is seen in so many seconds. drawn: the dataflow, with a source of other keys than
    uniform ones if one is given.
    """

    sites: int = 4
    replicas: int = 2
    keys: int = 100_000
    row_us: float = 100.0
    link_mbit_per_s: float = 100.0
    every_s: float = 0.02
    epoch_rows: int = 43
    pipeline: int = 8
    settle_s: float = 3.0
    read_every_us: tuple[int, int] = (500, 3_000)
    drawn: Callable[[SetUp, Source | None], Dataflow] = lambda set_up, source: grouped(keys=set_up.keys, shown=1, source=source)


COARSE: Final = replace(SetUp(), epoch_rows=86)
"""With epochs of some 50 ms, where a run has to be long."""


def quick(set_up: SetUp) -> SetUp:
    """A fifth of the rate, in epochs of as many rows."""
    return replace(set_up, keys=set_up.keys // 20, row_us=set_up.row_us * 10, epoch_rows=max(set_up.epoch_rows // 5, 2), settle_s=1.0)


def deployment(set_up: SetUp, variant: Variant, flow: Dataflow | None = None) -> Deployment:
    return Deployment(
        flow or set_up.drawn(set_up, None),
        set_up.sites,
        variant.partitions,
        replicas=set_up.replicas,
        placement="chained",
        row_us=set_up.row_us,
        link_mbit_per_s=set_up.link_mbit_per_s,
        options=FlowOptions(partitions=variant.partitions, epoch_rows=set_up.epoch_rows, pipeline=set_up.pipeline),
        ends_free=True,
        policy=variant.policy,
        parameters=variant.parameters,
        read_every_us=set_up.read_every_us,
    )


@dataclass(frozen=True, slots=True)
class Balanced:
    """A run. moves: of a group of partitions each, (second at which it was over, partitions). given_s: by site, when the last one from
    there was over."""

    seen: Watched
    moves: tuple[tuple[float, int], ...]
    given_s: Mapping[int, float] = field(default_factory=dict)

    def share(self, first_s: float, last_s: float, before: float) -> float:
        """Rate of the output in that time, as a share of `before` (rows per second)."""
        return self.seen.rate(first_s, last_s) / before

    def moved(self, since_s: float = 0.0) -> int:
        """Partitions."""
        return sum(count for at_s, count in self.moves if at_s >= since_s)

    def balanced_s(self, since_s: float) -> float:
        """Seconds from then until the last move was over; 0 if there was none."""
        return max((at_s - since_s for at_s, _ in self.moves if at_s >= since_s), default=0.0)


def run(
    start: StartBalancing,
    set_up: SetUp,
    variant: Variant,
    seconds: float,
    slow: Iterable[Slow] = (),
    flow: Dataflow | None = None,
    adjust: Callable[[Deployment], Deployment] = lambda deployed: deployed,
    others: Callable[[Balancing], Sequence[tuple[float, Callable[[], None]]]] = lambda world: (),
) -> Balanced:
    """One run of so many seconds. others: what else happens to the world, and when."""
    world = start(adjust(deployment(set_up, variant, flow)))
    began_us = world.now_us
    acts = [(each.at_s, partial(world.slow_down, each.site, each.factor)) for each in slow]
    seen = watch(world, SINK, seconds, every_s=set_up.every_s, acts=[*acts, *others(world)])
    told = [((at_us - began_us) / 1e6, told.details) for at_us, told in world.happened if told.kind == "move_done"]
    done = tuple((at_s, len(details["partitions"])) for at_s, details in told)
    return Balanced(seen, done, {details["source"]: at_s for at_s, details in told})


def say(setting: Setting, variant: Variant, what: str) -> None:
    setting.say(f"{variant.label}: {what}")


def panel(
    title: str, lines: Sequence[tuple[Variant, Balanced, float]], law: float, at_s: float, mark: str, paper: Sequence[Line] = ()
) -> Curves:
    """Output over time. lines: variant, run, and the rate before, which is 1; law: what the remaining capacity allows from at_s on. paper:
    its lines, which stand beside that of its policy."""
    drawn = []
    end = 0.0
    for variant, found, before in lines:
        x, rate = rates(found.seen, 1.0)
        drawn.append(Line(variant.label, x.tolist(), (rate / before).tolist()))
        drawn += paper if variant.policy == "utilization" else ()
        end = max(end, float(x[-1]) + 0.5)
    drawn.append(Line("capacity left", [at_s, end], [law, law], "law"))
    return Curves(title, "s", "output, share of before", tuple(drawn), (Mark(at_s, mark),))


def rates(seen: Watched, width_s: float) -> tuple[Floats, Floats]:
    """Middles of the bins and their rates."""
    at_s, rate, _ = seen.bins(width_s)
    return at_s, rate
