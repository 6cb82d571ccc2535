"""`failover` on real executors: the demo's query under fire, with a warm spare and without, by the harness of `evenflow bench failover`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evenflow.bench import failover as bench
from evenflow.bench.failing import Setting as Fire
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.papers import failover
from evenflow.experiments.result.chart import Chart, Curves, Line
from evenflow.experiments.result.result import Bound, Figures, Measurement

KILLS: Final = 10
RATE: Final = 20_000
"""Packets per second: about a quarter of what two cores can do with everything computed twice."""
SPARES: Final = {"": 1, "_no_spare": 0}
"""By the end of a figure's name."""


def measure(setting: Setting) -> Measurement:
    """Both set-ups, one after the other, each on a cluster of its own."""
    kills = 2 if setting.quick else KILLS
    reports = {end: _under_fire(setting, kills, spares) for end, spares in SPARES.items()}
    found: dict[str, Any] = {"rows_per_s": RATE}
    for end, report in reports.items():
        found |= {f"{name}{end}": value for name, value in figures(report).items()}
    return Measurement(
        found, targets(kills), chart(reports), NOTES, {"copy_s": failover.PAPER["copy_s"], "rows_lost": 0, "rows_repeated": 0}
    )


def _under_fire(setting: Setting, kills: int, spares: int) -> Mapping[str, Any]:
    assert setting.example is not None
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    fire = Fire(kills=kills, rate=RATE, spares=spares, spark_kills=0, calm_s=5.0 if setting.quick else 20.0)
    setting.say(f"{fire.kills} kills, {spares} spares")
    spark = embedded_session(fire.master)
    try:
        return bench.evenflow_failover(spark, setting.example(), fire, setting.say)
    finally:
        stop_session(spark)


def figures(report: Mapping[str, Any]) -> Figures:
    """longest_gap_ms: from any kill until everything was whole again, so also while Spark starts a JVM on these cores.

    take_over_gap_ms: the longest that began within a second of a kill.
    """
    gaps = [each["gap_ms"] for each in report["each"]]
    return {
        "kills": report["kills"] if report["failed"] is None else report["kills"] - 1,
        "longest_gap_ms": report["gap_ms_max"],
        "median_gap_ms": report["gap_ms_p50"],
        "take_over_gap_ms": report["first_second_gap_ms_max"],
        "longest_gap_ms_before": report["usual_gap_ms_max"],
        "seconds_without_output": None if None in gaps else sum(int(gap // 1000) for gap in gaps),
        "copy_s": report["redundancy_s"],
        "p99_ms_before": report["p99_ms_before"],
        "p99_ms_during": report["p99_ms_during"],
        "rows_compared": report["rows_compared"],
        "rows_lost": report["rows_lost"] + report["rows_wrong"],
        "rows_repeated": report["rows_repeated"],
        "failed": report["failed"],
    }


def targets(kills: int) -> dict[str, Bound]:
    """Both set-ups must come through all kills and lose nothing; gaps are judged with a spare. A run that died has no longest gap."""
    whole = {f"{name}{end}": Bound(at_most=0) for name in ("rows_lost", "rows_repeated") for end in SPARES}
    whole |= {f"kills{end}": Bound(at_least=kills) for end in SPARES}
    return {"longest_gap_ms": Bound(at_most=failover.LONGEST_GAP_MS), "seconds_without_output": Bound(at_most=0), **whole}


def chart(reports: Mapping[str, Mapping[str, Any]]) -> Chart:
    panels = []
    for end, report in reports.items():
        number = list(range(1, len(report["each"]) + 1))
        lines = tuple(
            Line(label, number, [float("nan") if each[name] is None else each[name] for each in report["each"]], points=True)
            for name, label in (("gap_ms", "until whole again"), ("first_second_gap_ms", "of the take-over"))
        )
        aim = Line("aim", number, [failover.LONGEST_GAP_MS] * len(number), "law")
        title = f"longest gap in output, {'no spare' if end else 'a spare'}"
        panels.append(Curves(title, "kill", "ms", (*lines, aim)))
    return Chart("Executors die under load (FT fig. 3.16)", tuple(panels))


NOTES: Final = (
    "By turns an executor with all its processes, its JVM alone, and the site's Python process alone are killed. Both clusters share these "
    "cores with the JVM that Spark starts anew after a kill, which a cluster would not feel; `take_over_gap_ms` leaves that out.",
    "Lost and repeated rows are against what the query must put out, computed from the packets without Evenflow. `copy_s` is the median "
    "time until redundancy was full.",
)
