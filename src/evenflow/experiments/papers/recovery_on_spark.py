"""`large-state` on real executors, with the simulator's measures."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np

from evenflow.bench.events import ScheduledEvents
from evenflow.errors import ClusterError
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.on_spark import Sessions, SparkWorld
from evenflow.experiments.harness.recovery import REPLICAS, VICTIM
from evenflow.experiments.harness.simulated import Deployment, Watched, watch
from evenflow.experiments.harness.workload import SINK, filled
from evenflow.experiments.papers import large_state
from evenflow.experiments.result.chart import Chart, Curves, Line, Mark
from evenflow.experiments.result.result import Bound, Figures, Measurement

PATIENCE_S: Final = 1.0
"""A cluster's manager needs time to give a new machine; here it never does."""


@dataclass(frozen=True, slots=True)
class Large:
    """keys: each with some 75 bytes of state. rate: rows/s once the state is there. Seconds count from then."""

    keys: int = 2_000_000
    rate: int = 20_000
    sites: int = 4
    spares: int = 1
    partitions: int = 256
    kill_at_s: float = 20.0
    seconds: float = 80.0
    every_s: float = 0.005
    filled_within_s: float = 240.0


LARGE: Final = Large()
LARGE_QUICK: Final = Large(keys=200_000, kill_at_s=5.0, seconds=30.0)
YOUNG_S: Final = 0.5
"""The state is there when no more than so many seconds of rows wait."""
LEAD_S: Final = 3.0


def large_state_on_spark(setting: Setting) -> Measurement:
    """With a warm spare, so that a slot is free at once: the state's way there is measured, and what the output shows of it."""
    large = LARGE_QUICK if setting.quick else LARGE
    begin_us = time.time_ns() // 1000
    with Sessions(SparkWorld, replaced=True, patience_s=PATIENCE_S) as start:
        setting.say(f"{large.keys:,} keys are filled in")
        source = ScheduledEvents(large.rate, 2**50, large.keys, count=large.sites, begin_us=begin_us, at_once=large.keys)
        world = start(Deployment(filled(source), large.sites, large.partitions, replicas=REPLICAS, spares=large.spares))
        fill(world, source, large)
        setting.say(f"site {VICTIM} of {large.sites} dies after {large.kill_at_s:g} of {large.seconds:g} s")
        state = [0, 0]

        def kill() -> None:
            sites = {site.site: site.state_bytes for site in world.run.numbers().sites}
            state[:] = sum(sites.values()), sites[VICTIM]
            world.kill(VICTIM)

        world.restart_clock()
        seen = watch(world, SINK, large.seconds, every_s=large.every_s, acts=[(large.kill_at_s, kill)])
    return Measurement(large_figures(large, seen, state[0], state[1]), large_targets(large), large_chart(large, seen), LARGE_NOTES, PAPER)


def fill(world: SparkWorld, source: ScheduledEvents, large: Large) -> None:
    """Wait until every key is there and no rows are waiting. Raises ClusterError if that takes too long."""
    deadline = time.monotonic() + large.filled_within_s
    while True:
        world.run_for(0.5)
        waiting = source.due(time.time_ns() // 1000) - world.run.numbers().rows_in
        if waiting < YOUNG_S * source.rate:
            return
        if time.monotonic() > deadline:
            raise ClusterError(f"{waiting} rows still wait after {large.filled_within_s:.0f} s: this machine is too slow for the rate")


def large_figures(large: Large, seen: Watched, state_bytes: int, lost_bytes: int) -> Figures:
    """state_bytes, lost_bytes: of all replicas, and of those that died with the site."""
    kill, end = large.kill_at_s, large.seconds
    _, rates, _ = seen.bins(1.0)
    return {
        "state_mb": state_bytes / REPLICAS / 1e6,
        "lost_mb": lost_bytes / 1e6,
        "rows_per_s": large.rate,
        "recovery_s": seen.whole_after_s(kill, REPLICAS),
        "longest_stall_ms_before": seen.longest_gap_ms(kill / 2, kill),
        "longest_stall_ms": seen.longest_gap_ms(kill, end),
        "seconds_without_output": int((rates[int(kill) :] == 0).sum()),
        "share_after": seen.rate(end - kill / 2, end) / seen.rate(kill / 2, kill),
    }


def large_targets(large: Large) -> dict[str, Bound]:
    """A run that never became whole has not recovered anything, however smooth its output was."""
    return {
        "longest_stall_ms": Bound(at_most=large_state.LONGEST_STALL_MS),
        "recovery_s": Bound(at_most=large.seconds - large.kill_at_s),
        "seconds_without_output": Bound(at_most=0),
    }


def large_chart(large: Large, seen: Watched) -> Chart:
    at_s, rate, _ = seen.bins(0.25)
    whole_s = large.kill_at_s + seen.whole_after_s(large.kill_at_s, REPLICAS)
    marks = [Mark(large.kill_at_s, "site dies")] + ([Mark(whole_s, "all replicas are back")] if np.isfinite(whole_s) else [])
    lines = (Line("Evenflow", at_s.tolist(), rate.tolist()),)
    return Chart("A site with much state dies (FT fig. 5.5)", (Curves("output", "s", "rows/s", lines, tuple(marks)),))


PAPER: Final[Figures] = {
    "lost_mb": large_state.PAPER["copied_mb_32_partitions"],
    "recovery_s": large_state.PAPER["recovery_s_32_partitions"],
    "seconds_without_output": large_state.PAPER["seconds_without_output_32_partitions"],
}
LARGE_NOTES: Final = (
    "A warm spare takes the state, so the time to full redundancy is that of detection, transfer and catching up; the thesis' figures are "
    "of its 64 small partitions, moved over a network of 100 Mbit/s.",
    "The input is paced, so the share of the rate that is left says only whether the rest keep up.",
)
