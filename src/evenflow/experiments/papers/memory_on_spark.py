"""`memory` on real executors: half of one site's memory for state is taken while the query runs, with the simulator's measures.

Nothing is scaled: state, disk and network are those of this machine. Only the operator's cost is slept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from evenflow.experiments.harness import balancing
from evenflow.experiments.harness.balancing import Balanced
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.pressure import Machine
from evenflow.experiments.harness.simulated import Balancing, Deployment, StartBalancing
from evenflow.experiments.harness.slow import EMULATED_BY_SLEEP
from evenflow.experiments.harness.workload import INGRESS
from evenflow.experiments.papers import memory
from evenflow.experiments.papers.balancing_on_spark import SET_UP, clusters
from evenflow.experiments.papers.memory import VICTIM, Times
from evenflow.experiments.result.result import Bound, Figures, Measurement
from evenflow.sources.generator import GeneratorSource

HISTORY: Final = 1_000
"""Rows of each key that are kept, of eight bytes each: 34 MB at each site."""
RATE: Final = 3_600
"""Rows per second that come, three quarters of what the sites can do: who takes in a third of another one's partitions has that much more
to do, with eight sites or 32 next to nothing, with four a seventh."""
MB: Final = 44.0
"""Memory of a site: a quarter is free, and half of it is not enough for a third of what the site has, as in the paper."""
BACK: Final = 0.9
"""Of two seconds' output: what else happens on a machine of few cores shows in those."""
TIMES: Final = Times(
    20.0,
    {"none": 60.0, "evenflow": 60.0},
    20.0,
    replace(SET_UP, keys=16_384, replicas=1, row_us=800.0, pipeline=2),
    Machine(64, MB),
    scale=1.0,
    back=BACK,
)
QUICK: Final = replace(TIMES, at_s=8.0, seconds={"none": 20.0, "evenflow": 20.0}, steady_s=6.0, set_up=replace(TIMES.set_up, settle_s=3.0))


def memory_on_spark(setting: Setting) -> Measurement:
    times = QUICK if setting.quick else TIMES
    with clusters(times.set_up, history=HISTORY) as (start, set_up):
        seen = compare(setting, start, replace(times, set_up=set_up))
    return Measurement(memory.figures(times, seen), targets(), memory.chart(times, seen), (EMULATED_BY_SLEEP, *NOTES), PAPER)


def compare(setting: Setting, start: StartBalancing, times: Times) -> dict[str, Balanced]:
    """Nothing, and Evenflow's policy."""

    def limited(deployed: Deployment) -> Deployment:
        return replace(deployed, options=replace(deployed.options, state_memory_bytes=size(times.machine.mb)))

    def taken(world: Balancing) -> list[tuple[float, Callable[[], None]]]:
        return [(times.at_s, partial(world.limit_memory, VICTIM, size(times.machine.mb / 2)))]

    seen = {}
    for variant in times.variants:
        balancing.say(setting, variant, f"site {VICTIM} of {times.set_up.sites} has half of its memory after {times.at_s:g} s")
        seconds = times.seconds[variant.name]
        flow = times.set_up.drawn(times.set_up, GeneratorSource(rate=RATE, keys=times.set_up.keys, count=INGRESS))
        seen[variant.name] = balancing.run(start, times.set_up, variant, seconds, flow=flow, adjust=limited, others=taken)
    return seen


def size(mb: float) -> int:
    """10^6 bytes each."""
    return int(mb * 1e6)


def targets() -> dict[str, Bound]:
    """How much longer latency is without a policy is the disk's, here one that mostly is memory."""
    return {
        "share_evenflow": Bound(at_least=memory.BACK),
        "back_s_evenflow": Bound(at_most=memory.WITHIN_S),
        "relieved_s_evenflow": Bound(at_most=memory.WITHIN_S),
        "latency_none_by_evenflow": Bound(at_least=1.0),
    }


PAPER: Final[Figures] = {name: memory.PAPER[name] for name in ("back_s_memory", "transfer_s")}
NOTES: Final = (
    "4 sites instead of 32, each with 34 MB of state in 64 partitions. Nothing is scaled: disk and network are this machine's, and its "
    "disk is mostly memory.",
    "The input comes at three quarters of what the sites can do. Without a policy the site with too little memory cannot keep up: rows "
    "wait in the source, which latencies do not count, since an epoch's begins when it is opened.",
    "Latencies are medians over ten seconds, one each second. The full rate is no less than 90% in two seconds.",
    "With Evenflow's policy a site waits for moves before it writes: until it is relieved it holds more than it may.",
)
