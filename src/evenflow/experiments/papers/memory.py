"""`memory`: another process takes half of the memory of one machine (FL fig. 11, 12).

A third of its partitions go to disk, where each must be fetched for its rows, and all machines wait for the one. The paper's policy moves
one partition a round to where there is memory, and has the full rate again after 36 s, in which the transfer itself would take 8 s;
without it latency is longer by orders of magnitude for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from evenflow.experiments.harness import balancing, pressure
from evenflow.experiments.harness.balancing import POINTS, Balanced, SetUp, Variant
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.pressure import Machine, Pressed
from evenflow.experiments.harness.simulated import EMULATED, StartBalancing
from evenflow.experiments.result.chart import Chart, Curves, Line, Mark
from evenflow.experiments.result.result import Bound, Figures, Measurement

VICTIM: Final = 1
BACK: Final = 1 - POINTS
"""The full rate is there again when no less than this share of it comes out."""
WITHIN_S: Final = 12.0
ORDERS: Final = 100.0
"""How many times longer latency is without a policy, at least: orders of magnitude."""
BIN_S: Final = 2.0


SET_UP: Final = replace(pressure.SET_UP, pipeline=2)
"""A fifth of a second of work is under way. In the paper a buffer of 2,048 tuples per producer holds a tenth: its latency in memory."""


@dataclass(frozen=True, slots=True)
class Times:
    """at_s: when memory is taken. seconds: of a run, by policy. steady_s: at its end, in which the steady state is seen. scale: by which
    bytes are smaller than in the paper. back: the share of the rate before that is the full one again."""

    at_s: float = 6.0
    seconds: Mapping[str, float] = field(default_factory=lambda: {"none": 130.0, "memory": 130.0, "memory_waits": 80.0, "evenflow": 80.0})
    steady_s: float = 60.0
    set_up: SetUp = SET_UP
    machine: Machine = field(default_factory=Machine)
    scale: float = pressure.SCALE
    back: float = BACK

    @property
    def variants(self) -> tuple[Variant, ...]:
        return pressure.variants(self.set_up, self.machine, *self.seconds)


TIMES: Final = Times()
QUICK: Final = Times(
    2.0,
    {"none": 8.0, "memory": 12.0, "memory_waits": 12.0, "evenflow": 12.0},
    4.0,
    replace(pressure.SET_UP, sites=3, row_us=2_000.0, epoch_rows=10, settle_s=1.0),
    Machine(8, 64.0),
)

PAPER: Final[Figures] = {"share_memory": 1.0, "back_s_memory": 36.0, "transfer_s": 7.9, "partitions_on_disk_none": 42}


def measure(setting: Setting, start: StartBalancing) -> Measurement:
    """Nothing, the paper's policy, the same with time for its moves before the disk is used, and Evenflow's."""
    times = QUICK if setting.quick else TIMES
    pressed = [Pressed(times.at_s, VICTIM, times.machine.mb / 2)]
    seen = {}
    for variant in times.variants:
        balancing.say(setting, variant, f"site {VICTIM} of {times.set_up.sites} has half of its memory after {times.at_s:g} s")
        seconds = times.seconds[variant.name]
        seen[variant.name] = pressure.run(start, times.set_up, times.machine, variant, seconds, pressed)
    return Measurement(figures(times, seen), targets(), chart(times, seen), (EMULATED, *pressure.NOTES, *NOTES), PAPER)


def before(times: Times, run: Balanced) -> float:
    """Rows per second."""
    return run.seen.rate(times.at_s - times.set_up.settle_s, times.at_s)


def back_s(times: Times, run: Balanced, end_s: float) -> float:
    """Seconds after which the rate was the full one for good; NaN if that did not come about."""
    at_s, rate, _ = run.seen.bins(BIN_S)
    low = np.flatnonzero((rate < times.back * before(times, run)) & (at_s > times.at_s))
    last = float(at_s[low[-1]]) + BIN_S / 2 if len(low) else times.at_s
    return last - times.at_s if last < end_s - BIN_S / 2 else float("nan")


def figures(times: Times, seen: Mapping[str, Balanced]) -> Figures:
    """Rates are shares of each run's own rate before. relieved_s: when the last partition had left, and the site held what it may again."""
    found: dict[str, float] = {"rows_per_s_before": before(times, seen["none"])}
    found["latency_ms_before"] = seen["none"].seen.latency_ms(times.at_s - times.set_up.settle_s, times.at_s)
    for name, run in seen.items():
        end = times.seconds[name]
        found[f"share_{name}"] = run.share(end - times.steady_s, end, before(times, run))
        found[f"latency_ms_{name}"] = run.seen.latency_ms(end - times.steady_s, end)
        if name != "none":
            found[f"back_s_{name}"] = back_s(times, run, end)
            found[f"relieved_s_{name}"] = run.given_s.get(VICTIM, float("nan")) - times.at_s
            found[f"partitions_moved_{name}"] = run.moved(times.at_s)
            found[f"moved_mb_{name}"] = run.seen.copied_mb(times.at_s, end) * times.scale
    found["latency_none_by_evenflow"] = found["latency_ms_none"] / found["latency_ms_evenflow"]
    return found


def targets() -> dict[str, Bound]:
    return {
        "share_memory": Bound(at_least=BACK),
        "share_memory_waits": Bound(at_least=BACK),
        "back_s_memory_waits": Bound(at_most=float(PAPER["back_s_memory"])),
        "share_evenflow": Bound(at_least=BACK),
        "back_s_evenflow": Bound(at_most=WITHIN_S),
        "relieved_s_evenflow": Bound(at_most=WITHIN_S),
        "latency_none_by_evenflow": Bound(at_least=ORDERS),
    }


def chart(times: Times, seen: Mapping[str, Balanced]) -> Chart:
    """Throughput (FL fig. 11) and latency (FL fig. 12) over time."""
    rates, latencies = [], []
    for variant in times.variants:
        at_s, rate, late_ms = seen[variant.name].seen.bins(BIN_S)
        rates.append(Line(variant.label, at_s.tolist(), (rate / before(times, seen[variant.name])).tolist()))
        latencies.append(Line(variant.label, at_s.tolist(), np.log10(late_ms).tolist(), points=True))
    back, end = times.at_s + float(PAPER["back_s_memory"]), max(times.seconds.values())
    rates.append(Line("paper: its policy", [0, times.at_s, times.at_s, back, back, end], [1, 1, float("nan"), float("nan"), 1, 1], "paper"))
    mark = (Mark(times.at_s, "half of the memory"),)
    return Chart(
        "One machine loses half of its memory (FL fig. 11, 12)",
        (
            Curves("throughput", "s", "output, share of before", tuple(rates), mark),
            Curves("latency", "s", "mean latency, log10 of ms", tuple(latencies), mark),
        ),
    )


NOTES: Final = (
    "The paper's policy moves one partition a round, and a round is a plan, which acts at the end of an epoch. Where partitions are on "
    "disk an epoch takes a turn of all of them; in the paper one can leave while others wait. With time for its moves before the disk is "
    "used nothing else is different.",
    "With Evenflow's policy a site waits for moves before it writes: until it is relieved it holds more than it may, as it would while its "
    "disk is written.",
    "Two epochs are under way, a fifth of a second of work; the paper's buffers hold a tenth.",
)
