"""`availability-modes` on real executors: the demo's counts under fire in each mode, by the harness of `evenflow bench failover`.

All modes run the same boxes, those whose state closes by event time, since upstream backup takes no others. What nobody's death costs is
over one replica of everything, which is measured before and behind all modes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from evenflow.bench import failover as bench
from evenflow.bench.failing import Setting as Fire
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.papers.availability_modes import PAPER
from evenflow.experiments.result.chart import Bars, Chart, Curves, Line
from evenflow.experiments.result.result import Bound, Figures, Measurement

MODES: Final = ("amnesia", "upstream", "passive", "pairs")
PLAIN: Final = "none"
KILLS: Final = 6
"""In each mode."""
RATE: Final = 5_000
PASSIVE_CPU: Final = 1.4
PASSIVE_GAP: Final = 5.0
"""Times that of pairs in the same run; or half a second."""
PASSIVE_GAP_MS: Final = 500.0
AMNESIA_CPU: Final = 1.02

Reports = Mapping[str, Sequence[Mapping[str, Any]]]
"""What `bench failover` says, by mode."""


def measure(setting: Setting) -> Measurement:
    """One cluster for all; the run without protection comes first and last."""
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    assert setting.example is not None
    example = setting.example()
    fire = Fire(kills=1 if setting.quick else KILLS, rate=RATE, spark_kills=0, calm_s=5.0 if setting.quick else 20.0, closing=True)
    spark, reports = embedded_session(fire.master), dict[str, list[Mapping[str, Any]]]()
    try:
        for mode in (PLAIN, *MODES, PLAIN):
            setting.say(f"{mode}: {0 if mode == PLAIN else fire.kills} kills")
            protected = fire.plain if mode == PLAIN else replace(fire, availability=mode)
            reports.setdefault(mode, []).append(bench.evenflow_failover(spark, example, protected, setting.say))
    finally:
        stop_session(spark)
    found = figures(reports)
    return Measurement(found, targets(found, fire.kills), chart(found), NOTES, {name: PAPER[name] for name in PAPER if "aggregate" in name})


def figures(reports: Reports) -> Figures:
    """cpu_by_none: CPU of the sites for each output, and bytes_by_none: bytes over the loopback interface, while nobody is killed, over
    those of one replica. gap_ms: from any kill until everything was whole again, so also while Spark starts a JVM on these cores."""
    plain, found = reports[PLAIN], dict[str, Any](rows_per_s=RATE)
    for mode in MODES:
        (report,) = reports[mode]
        failed = report["failed"] is not None
        found |= {
            f"kills_{mode}": report["kills"] - 1 if failed else report["kills"],
            f"failed_{mode}": report["failed"],
            f"cpu_by_none_{mode}": _by(report, plain, lambda each: each["cores"] / each["outputs_per_s"]),
            f"bytes_by_none_{mode}": _by(report, plain, lambda each: each["bytes_per_s"]),
            f"gap_ms_{mode}": report["gap_ms_p50"],
            f"gap_ms_max_{mode}": report["gap_ms_max"],
            f"first_second_gap_ms_{mode}": report["first_second_gap_ms_p50"],
            f"whole_s_{mode}": report["redundancy_s"],
            f"rows_compared_{mode}": report["rows_compared"],
            f"rows_lost_{mode}": report["rows_lost"],
            f"rows_wrong_{mode}": report["rows_wrong"],
            f"rows_repeated_{mode}": report["rows_repeated"],
        }
    return found


def _by(report: Mapping[str, Any], plain: Sequence[Mapping[str, Any]], of: Callable[[Mapping[str, Any]], float]) -> float:
    return round(of(report) / statistics.mean(of(each) for each in plain), 3)


def targets(found: Figures, kills: int) -> dict[str, Bound]:
    """What amnesia loses is counted and no more; a window that has lost some of its rows is a wrong one. The gap of passive standby is
    judged by that of pairs in the same run."""
    bounds = {f"kills_{mode}": Bound(at_least=kills) for mode in MODES}
    for mode in MODES:
        bounds[f"rows_repeated_{mode}"] = Bound(at_most=0)
        if mode != "amnesia":
            bounds[f"rows_lost_{mode}"] = bounds[f"rows_wrong_{mode}"] = Bound(at_most=0)
    gap_ms = max(PASSIVE_GAP_MS, PASSIVE_GAP * float(found["gap_ms_pairs"] or 0.0))
    return bounds | {
        "gap_ms_passive": Bound(at_most=round(gap_ms, 2)),
        "cpu_by_none_passive": Bound(at_most=PASSIVE_CPU),
        "cpu_by_none_amnesia": Bound(at_most=AMNESIA_CPU),
    }


def chart(found: Figures) -> Chart:
    def bars(title: str, unit: str, figure: str) -> Bars:
        values = tuple(float("nan") if found[f"{figure}_{mode}"] is None else float(found[f"{figure}_{mode}"]) for mode in MODES)
        return Bars(title, unit, MODES, (("executors", "ours", values),))

    panels = (
        bars("CPU for each output", "of no protection", "cpu_by_none"),
        bars("bytes", "of no protection's", "bytes_by_none"),
        bars("gap after a kill, median", "ms", "gap_ms"),
        Curves("what is paid in CPU", "of no protection", "gap after a kill, ms", tuple(_points(found, "cpu_by_none"))),
        Curves("what is paid in bytes", "of no protection's", "gap after a kill, ms", tuple(_traded(found))),
    )
    return Chart("What a mode costs, and what a killed executor costs then (HW 3.6)", panels, 3)


def _points(found: Figures, paid: str) -> Iterator[Line]:
    """A point for each mode: what it costs all the time, and what a death costs then."""
    for mode in MODES:
        if found[f"gap_ms_{mode}"] is not None:
            yield Line(mode, [float(found[f"{paid}_{mode}"])], [float(found[f"gap_ms_{mode}"])], points=True)


def _traded(found: Figures) -> Iterator[Line]:
    """The thesis' point beside each of ours; its recovery is behind the detection, and it has none for amnesia."""
    for line in _points(found, "bytes_by_none"):
        yield line
        if (more := PAPER.get(f"bytes_more_{line.label}_aggregate")) is not None:
            yield Line(f"{line.label}, thesis", [1.0 + more], [PAPER[f"recovery_ms_{line.label}_aggregate"]], "paper", points=True)


NOTES: Final = (
    "By turns an executor with all its processes, its JVM alone, and the site's Python process alone are killed with kill -9. A gap lasts "
    "from the last output before it to the first one after it, with the detection, and counts until everything is whole again, also while "
    "Spark starts a JVM on the same cores. The thesis' recovery is behind the detection, on machines that do nothing else.",
    "Lost, repeated and wrong rows are against what the query must put out, computed from the packets without Evenflow.",
)
