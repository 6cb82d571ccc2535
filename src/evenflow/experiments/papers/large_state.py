"""`large-state`: does the output stall while much state is recovered (FT fig. 5.5, table 5.3)?

As `after-failure`, with ten times the state: 144 MB are lost with the machine. The thesis' Flux-HA stops for 1 to 3 s for each of two large
partitions; Flux moves small ones, does not stop, and takes five times as long.
"""

from __future__ import annotations

from typing import Final

from evenflow.experiments.harness import recovery
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.recovery import REPLICAS, VARIANTS, Levels, SetUp
from evenflow.experiments.harness.simulated import EMULATED, Start
from evenflow.experiments.result.result import Bound, Figures, Measurement

PAPER_SET_UP: Final = SetUp(keys=1_000_000, kill_at_s=120.0, seconds=230.0)
LONGEST_STALL_MS: Final = 200.0

PAPER: Final[Figures] = {
    "copied_mb_4_partitions": 144,
    "copied_mb_32_partitions": 145.2,
    # With balanced recovery. Stalls are counted in whole seconds without output, 2.3 for each partition on average.
    "recovery_s_4_partitions": 13.3,
    "recovery_s_32_partitions": 64,
    "seconds_without_output_4_partitions": 2 * 2.3,
    "seconds_without_output_32_partitions": 0,
    "share_after_4_partitions": 12.69 / 19.00,
    "share_after_32_partitions": 13.78 / 19.14,
}
PAPER_LEVELS: Final[Levels] = {
    "4_partitions": ((133.3, 12.69 / 19.00),),
    "32_partitions": ((217.0, 13.78 / 19.14),),
}


def measure(setting: Setting, start: Start) -> Measurement:
    """All variants, one after the other."""
    set_up = recovery.quick(PAPER_SET_UP) if setting.quick else PAPER_SET_UP
    seen = recovery.run(setting, set_up, start)
    found: dict[str, float] = {}
    for variant in VARIANTS:
        watched = seen[variant.name]
        _, rates, _ = watched.bins(1.0)
        found[f"copied_mb_{variant.name}"] = watched.copied_mb(set_up.kill_at_s, set_up.seconds)
        found[f"recovery_s_{variant.name}"] = watched.whole_after_s(set_up.kill_at_s, REPLICAS)
        found[f"longest_stall_ms_{variant.name}"] = watched.longest_gap_ms(set_up.kill_at_s, set_up.seconds)
        found[f"seconds_without_output_{variant.name}"] = int((rates[int(set_up.kill_at_s) :] == 0).sum())
        found[f"share_after_{variant.name}"] = recovery.share_after(set_up, watched)
    # A run that never became whole has not recovered anything, however smooth its output was.
    target = {
        "longest_stall_ms_256_partitions": Bound(at_most=LONGEST_STALL_MS),
        "recovery_s_256_partitions": Bound(at_most=set_up.seconds - set_up.kill_at_s),
    }
    chart = recovery.chart("A site with much state dies (FT fig. 5.5)", set_up, seen, 1.0, {} if setting.quick else PAPER_LEVELS)
    return Measurement(found, target, chart, (EMULATED, NOTE), PAPER)


NOTE: Final = (
    "P = 4 and P = 32 are the thesis' 8 and 64 partitions, which count both replicas; targets are for P = 256, Evenflow's default. "
    "Recovery is balanced, and load balancing does not run."
)
