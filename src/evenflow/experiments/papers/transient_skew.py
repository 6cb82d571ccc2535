"""`transient-skew`: a short load goes round the machines (FT fig. 5.2, FL fig. 3).

Only one of four machines is at half speed at a time, for half a second. With no room between producers and consumers all go at its pace;
with enough they have 7/8 of the unloaded rate, which is all that is left. A pool that is shared needs less of it than one that is
divided, and the more so the more machines there are. Evenflow's room is the window of epochs in flight: what others have taken is free
again, so memory is held for the slow one alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from evenflow.experiments.harness import balancing
from evenflow.experiments.harness.balancing import Balanced, SetUp, Slow, Variant
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.pools import Pool, rotating, throughput
from evenflow.experiments.harness.simulated import EMULATED, StartBalancing
from evenflow.experiments.result.chart import Chart, Curves, Line
from evenflow.experiments.result.result import Bound, Figures, Measurement

VARIANT: Final = Variant("evenflow", "Evenflow's window of epochs", "none", 256)
LEFT: Final = 0.5
TURN_S: Final = 0.5
IDEAL: Final = 1 - (1 - LEFT) / 4
LEAST_OF_IDEAL: Final = 0.98
FL_SITES, FL_LEFT, FL_ROWS_PER_S, FL_ENTRIES = 32, 0.43, 6.9e5 / 32, 2048
"""FL 4 and 5.4: machines, what the load leaves, rows per second of one producer, and the buffer that the paper then uses."""
POOLS: Final[tuple[Pool, ...]] = ("divided", "shared")


@dataclass(frozen=True, slots=True)
class Times:
    """windows: epochs in flight, one run each; the last one is the paper's buffer. warm_s: before the load begins; turns: of it.

    entries: buffers of one producer, for the papers' pools."""

    windows: tuple[int, ...]
    warm_s: float
    turns: int
    entries: tuple[int, ...]
    set_up: SetUp

    @property
    def end_s(self) -> float:
        return self.warm_s + self.turns * TURN_S

    @property
    def slow(self) -> list[Slow]:
        sites = self.set_up.sites
        begin = [Slow(self.warm_s + n * TURN_S, n % sites, 1 / LEFT) for n in range(self.turns)]
        end = [Slow(self.warm_s + (n + 1) * TURN_S, n % sites, 1.0) for n in range(self.turns)]
        return [*end, *begin]


ENTRIES: Final = (0, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SET_UP: Final = replace(SetUp(), every_s=0.02)
TIMES: Final = Times((1, 4, 8, 16, 32), 3.0, 12, ENTRIES, SET_UP)
QUICK: Final = Times((1, 8), 1.0, 4, (0, 256), balancing.quick(SET_UP))

PAPER: Final[Figures] = {"share_without_buffer": 0.5, "share_with_enough": 0.875}


def measure(setting: Setting, start: StartBalancing) -> Measurement:
    """Evenflow with each window; the papers' pools with each buffer."""
    times = QUICK if setting.quick else TIMES
    seen = {}
    for window in times.windows:
        balancing.say(setting, VARIANT, f"{window} in flight; each of {times.set_up.sites} sites is at half speed for {TURN_S:g} s in turn")
        set_up = replace(times.set_up, pipeline=window)
        seen[window] = balancing.run(start, set_up, VARIANT, times.end_s, times.slow)
    setting.say("the papers' pools, as queues")
    seconds = min(FL_SITES, times.turns) * TURN_S
    speed = rotating(FL_SITES, TURN_S, FL_LEFT)
    pools = {(pool, n): throughput(pool, n, FL_SITES, FL_ROWS_PER_S, speed, seconds) for pool in POOLS for n in times.entries}
    return Measurement(figures(times, seen, pools), targets(), chart(times, seen, pools), (EMULATED, *NOTES), PAPER)


Pools = Mapping[tuple[Pool, int], float]


def figures(times: Times, seen: Mapping[int, Balanced], pools: Pools) -> Figures:
    """Shares of the rate without a load, which the widest window has before it."""
    full = unloaded(times, seen)
    found: dict[str, float] = {f"share_{window}_epochs": share(times, run, full) for window, run in seen.items()}
    narrow, wide = min(seen), max(seen)
    found["share_without_buffer"] = found[f"share_{narrow}_epochs"]
    found["share_with_enough"] = found[f"share_{wide}_epochs"]
    found["share_of_ideal_with_enough"] = found["share_with_enough"] / IDEAL
    for pool in POOLS:
        best = max(pools[pool, n] for n in times.entries)
        found[f"{pool}_pool_share_without_buffer"] = pools[pool, times.entries[0]]
        found[f"{pool}_pool_entries_for_98_percent"] = min(n for n in times.entries if pools[pool, n] >= LEAST_OF_IDEAL * best)
        if (pool, FL_ENTRIES) in pools:
            found[f"{pool}_pool_share_at_{FL_ENTRIES}"] = pools[pool, FL_ENTRIES]
    return found


def unloaded(times: Times, seen: Mapping[int, Balanced]) -> float:
    """Rows per second."""
    return seen[max(seen)].seen.rate(times.warm_s / 2, times.warm_s)


def share(times: Times, run: Balanced, full: float) -> float:
    """What comes out while the load goes round, without its first round, in which the window fills."""
    turns = times.set_up.sites if times.turns > times.set_up.sites else 0
    return run.share(times.warm_s + turns * TURN_S, times.end_s, full)


def targets() -> dict[str, Bound]:
    return {"share_of_ideal_with_enough": Bound(at_least=LEAST_OF_IDEAL)}


def chart(times: Times, seen: Mapping[int, Balanced], pools: Pools) -> Chart:
    full = unloaded(times, seen)
    x = [float(window) for window in seen]
    ours = Line(VARIANT.label, x, [share(times, run, full) for run in seen.values()], points=True)
    paper = Line("paper: none, enough", [x[0], x[0], x[-1], x[-1]], [0.5, 0.5, float("nan"), 0.875], "paper", points=True)
    left = Line("capacity left", [x[0], x[-1]], [IDEAL, IDEAL], "law")
    entries = [float(n) for n in times.entries]
    lines = tuple(Line(f"{pool} pool", entries, [pools[pool, n] for n in times.entries], points=True) for pool in POOLS)
    law = Line("capacity left", [entries[0], entries[-1]], [1 - (1 - FL_LEFT) / FL_SITES] * 2, "law")
    return Chart(
        "A load that goes round (FT fig. 5.2, FL fig. 3)",
        (
            Curves("4 sites, Evenflow", "epochs in flight", "output, share of unloaded", (ours, paper, left)),
            Curves("32 sites, the papers' pools as queues", "rows of a producer's buffer", "taken, share of unloaded", (*lines, law)),
        ),
    )


NOTES: Final = (
    "The papers' pools are queues of one producer (`harness.pools`) with the set-up of FL 4, not dataflows in the simulator.",
    "Evenflow's window is set by `pipeline`, in epochs of 25 ms; all that is in flight is in it. There is no drift bound beside it.",
    "The thesis' text has no figures but the two levels. Its ingress holds 16,384 rows, 0.85 s of input, as 32 epochs are.",
)
