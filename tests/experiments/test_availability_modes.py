"""The modes of availability side by side: each keeps its guarantee, and costs what it says."""

from __future__ import annotations

from typing import Any

import pytest

from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.simulator import start
from evenflow.experiments.papers import availability_modes, availability_modes_on_spark
from evenflow.experiments.result.chart import Bars

ONE_SEED = {"cpu_by_none_upstream": 1.1, "recovery_ms_pairs": 13.0, "out_of_order": 1, "bytes_more_upstream": 0.015}
"""At most, where one run, without medians of three, misses the target, or all do (docs/experiments.md)."""


@pytest.mark.conformance
def test_each_mode_keeps_its_guarantee() -> None:
    """Goal: what a mode promises holds and could not: only amnesia loses, and passive standby goes on sooner than upstream backup."""
    found = availability_modes.measure(Setting("sim", quick=True, say=lambda line: None), start)
    broken = {name: found.measured[name] for name, bound in found.target.items() if not bound.holds(found.measured[name])}
    assert not {name for name, value in broken.items() if value > ONE_SEED.get(name.rpartition("_")[0], -1)}
    assert found.measured["cpu_by_none_pairs_aggregate"] > 1.5 > found.measured["cpu_by_none_amnesia_aggregate"]
    assert found.measured["rows_lost_amnesia_filter"] > 0 == found.measured["rows_lost_pairs_filter"]
    assert found.measured["gap_ms_pairs_filter"] < found.measured["gap_ms_amnesia_filter"]
    assert found.measured["recovery_ms_passive_aggregate"] < found.measured["recovery_ms_upstream_aggregate"]


def told(cores: float, gap_ms: float | None, lost: int = 0, failed: str | None = None) -> dict[str, Any]:
    """As `bench failover` says it."""
    return {
        "kills": 2, "failed": failed, "cores": cores, "outputs_per_s": 40.0, "bytes_per_s": 1_000 * cores, "gap_ms_p50": gap_ms,
        "gap_ms_max": gap_ms, "first_second_gap_ms_p50": gap_ms, "redundancy_s": 1.0, "rows_compared": 100, "rows_lost": lost,
        "rows_wrong": 0, "rows_repeated": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "misses"),
    [
        ({}, set()),
        ({"passive": told(0.75, 400.0)}, {"cpu_by_none_passive"}),
        ({"passive": told(0.65, 760.0)}, {"gap_ms_passive"}),
        ({"pairs": told(1.0, 160.0), "passive": told(0.65, 760.0)}, set()),
        ({"upstream": told(0.5, 300.0, lost=1)}, {"rows_lost_upstream"}),
        ({"amnesia": told(0.52, 300.0, lost=9)}, {"cpu_by_none_amnesia"}),
        ({"pairs": told(1.0, None, failed="PartitionsLost: gone")}, {"kills_pairs"}),
    ],
)
def test_modes_on_executors_are_judged_by_one_replica_before_and_after(changed: dict[str, Any], misses: set[str]) -> None:
    """Two cores' half is what no protection takes, first 0.45 and last 0.55 of one."""
    modes = {"amnesia": told(0.5, 300.0, lost=9), "upstream": told(0.5, 300.0), "passive": told(0.65, 400.0), "pairs": told(1.0, 80.0)}
    reports = {"none": [told(0.45, None), told(0.55, None)], **{mode: [said] for mode, said in (modes | changed).items()}}
    found = availability_modes_on_spark.figures(reports)
    targets = availability_modes_on_spark.targets(found, 2)
    assert {name for name, bound in targets.items() if not bound.holds(found[name])} == misses
    assert found["bytes_by_none_pairs"] == found["cpu_by_none_pairs"] == pytest.approx(2.0)
    panels = availability_modes_on_spark.chart(found).panels
    assert [len(panel.values[0][2]) for panel in panels if isinstance(panel, Bars)] == [4, 4, 4]
    survived = [mode for mode in modes if found[f"gap_ms_{mode}"] is not None]
    cpu, traded = ([line for line in panel.lines if line.whose == "ours"] for panel in panels if not isinstance(panel, Bars))
    assert [line.label for line in cpu] == [line.label for line in traded] == survived
    assert [(*line.x, *line.y) for line in cpu] == [(found[f"cpu_by_none_{mode}"], found[f"gap_ms_{mode}"]) for mode in survived]
