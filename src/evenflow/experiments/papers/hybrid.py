"""`hybrid`: processors and memory are under pressure at once (FL fig. 15).

**medium**: a process on a quarter of the machines leaves them 43% of their speed and half of their memory. Who looks at memory alone
stops when all is in memory, and load stays uneven. **heavy**: the process is on all machines; half of them lose half of their memory and
the others just so much that one partition does not fit. There is not enough memory anywhere, and the best that can be done is to spread
what is on disk: the paper's hybrid halves the latency so; load balancing sees no difference in load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from evenflow.experiments.harness import balancing, pressure
from evenflow.experiments.harness.balancing import POINTS, Balanced, SetUp, Slow, Variant
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.pressure import WAITS, Machine, Pressed
from evenflow.experiments.harness.simulated import EMULATED, StartBalancing
from evenflow.experiments.result.chart import Bars, Chart
from evenflow.experiments.result.result import Bound, Figures, Measurement

LEFT: Final = 0.43
"""What the external process leaves of a machine's speed (FL 4)."""
POLICIES: Final = ("memory", "utilization", "hybrid", "evenflow")
SHORT: Final = ("memory", "load", "hybrid", "Evenflow's")
"""What the policies are called under a bar: the papers' three, and Evenflow's."""
WAITING: Final = tuple(f"{name}{WAITS}" for name in POLICIES if name != "evenflow")
"""The papers' three with time for their moves before a site writes, with the medium load: with the heavy one there is no room anywhere."""
LOADS: Final = ("medium", "heavy")
OURS: Final = ("hybrid", "evenflow")


@dataclass(frozen=True, slots=True)
class Times:
    """at_s: when the load comes, after all groups have state. seconds: of a run, of which the last steady_s are seen. one_less_mb: memory
    of a machine that one partition does not fit into."""

    at_s: float
    seconds: float
    steady_s: float
    one_less_mb: float
    set_up: SetUp
    machine: Machine

    @property
    def variants(self) -> tuple[Variant, ...]:
        return pressure.variants(self.set_up, self.machine, *POLICIES)

    @property
    def waiting(self) -> tuple[Variant, ...]:
        return pressure.variants(self.set_up, self.machine, *WAITING)

    def pressed(self, load: str) -> list[Pressed]:
        sites, half = self.set_up.sites, self.machine.mb / 2
        if load == "medium":
            return [Pressed(self.at_s, site, half) for site in range(sites // 4)]
        return [Pressed(self.at_s, site, half if site < sites // 2 else self.one_less_mb) for site in range(sites)]

    def slow(self, load: str) -> list[Slow]:
        count = self.set_up.sites // (4 if load == "medium" else 1)
        return [Slow(self.at_s, site, 1 / LEFT) for site in range(count)]


TIMES: Final = Times(3.0, 103.0, 40.0, 762.0, pressure.SET_UP, Machine())
QUICK: Final = Times(2.0, 10.0, 4.0, 46.0, replace(pressure.SET_UP, sites=4, row_us=2_000.0, epoch_rows=10, settle_s=1.0), Machine(8, 64.0))

PAPER: Final[Figures] = {"latency_heavy_utilization_by_hybrid": 2.0, "steady_s_medium_hybrid": 55, "steady_s_medium_utilization": 63}


def measure(setting: Setting, start: StartBalancing) -> Measurement:
    """Each load with each policy."""
    times = QUICK if setting.quick else TIMES
    seen = {}
    for load in LOADS:
        for variant in times.variants:
            balancing.say(setting, variant, f"{load} load on processors and memory after {times.at_s:g} s")
            seen[load, variant.name] = pressure.run(
                start, times.set_up, times.machine, variant, times.seconds, times.pressed(load), times.slow(load)
            )
    short = replace(times.set_up, pipeline=2)  # A plan acts behind what is under way; in the paper's buffers that is a tenth of a second.
    for variant in times.waiting:
        balancing.say(setting, variant, f"medium load on processors and memory after {times.at_s:g} s, moves before the disk")
        seen["medium", variant.name] = pressure.run(
            start, short, times.machine, variant, times.seconds, times.pressed("medium"), times.slow("medium")
        )
    return Measurement(figures(times, seen), targets(), chart(times, seen), (EMULATED, *pressure.NOTES, *NOTES), PAPER)


Seen = Mapping[tuple[str, str], Balanced]


def rate(times: Times, run: Balanced) -> float:
    """Rows per second, at the end."""
    return run.seen.rate(times.seconds - times.steady_s, times.seconds)


def latency_ms(times: Times, run: Balanced) -> float:
    return run.seen.latency_ms(times.seconds - times.steady_s, times.seconds)


def figures(times: Times, seen: Seen) -> Figures:
    """Rates and latencies at the end; and those of who uses both by the best of who uses one."""
    found: dict[str, float] = {}
    for load in LOADS:
        for name in POLICIES:
            run = seen[load, name]
            found[f"rows_per_s_{load}_{name}"] = rate(times, run)
            found[f"latency_ms_{load}_{name}"] = latency_ms(times, run)
            found[f"balanced_s_{load}_{name}"] = run.balanced_s(times.at_s)
            found[f"partitions_moved_{load}_{name}"] = run.moved(times.at_s)
        single = max(rate(times, seen[load, name]) for name in POLICIES if name not in OURS)
        for name in OURS:
            found[f"rate_{load}_{name}_by_best_single"] = rate(times, seen[load, name]) / single if single else float("inf")
    for name in OURS:
        found[f"latency_heavy_utilization_by_{name}"] = _ratio(times, seen, name)
    for name in WAITING:
        found[f"rows_per_s_medium_{name}"] = rate(times, seen["medium", name])
        found[f"latency_ms_medium_{name}"] = latency_ms(times, seen["medium", name])
        found[f"partitions_moved_medium_{name}"] = seen["medium", name].moved(times.at_s)
    *singles, both = (rate(times, seen["medium", name]) for name in WAITING)
    found[f"rate_medium_hybrid{WAITS}_by_best_single"] = both / max(singles) if max(singles) else float("inf")
    return found


def _ratio(times: Times, seen: Seen, name: str) -> float:
    return latency_ms(times, seen["heavy", "utilization"]) / latency_ms(times, seen["heavy", name])


def targets() -> dict[str, Bound]:
    """Match or beat both, in the rate and, where memory is short everywhere, in latency too."""
    rates = {f"rate_{load}_{name}_by_best_single": Bound(at_least=1 - POINTS) for load in LOADS for name in OURS}
    rates[f"rate_medium_hybrid{WAITS}_by_best_single"] = Bound(at_least=1 - POINTS)
    return rates | {f"latency_heavy_utilization_by_{name}": Bound(at_least=1 - POINTS) for name in OURS}


def chart(times: Times, seen: Seen) -> Chart:
    """As in FL fig. 15: throughput with the medium load, throughput and latency with the heavy one. Bars of the policies, in one colour."""

    def bars(title: str, unit: str, values: Sequence[float]) -> Bars:
        return Bars(title, unit, SHORT, (("measured, by policy: three of Flux 2002, and Evenflow's", "ours", tuple(values)),))

    return Chart(
        "Processors and memory under pressure (FL fig. 15)",
        (
            bars("medium: throughput", "rows/s", [rate(times, seen["medium", name]) for name in POLICIES]),
            bars("heavy: throughput", "rows/s", [rate(times, seen["heavy", name]) for name in POLICIES]),
            bars("heavy: latency", "mean latency, s", [latency_ms(times, seen["heavy", name]) / 1e3 for name in POLICIES]),
        ),
    )


NOTES: Final = (
    "The rounds of the papers' policies with time for their moves before the disk is used have two epochs under way, and nothing else is "
    "different: each is a plan, which waits neither for turns of the disk nor for eight epochs of slow machines.",
    "Runs last 100 s, as in the paper. A round waits for a plan, and a plan for a turn of all partitions on disk, up to 26 s (decision "
    "23): the rounds of the paper's policies have not ended by then, and the end of a run holds one or two turns.",
)
