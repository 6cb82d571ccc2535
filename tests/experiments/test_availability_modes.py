"""The modes of availability side by side: each keeps its guarantee, and costs what it says."""

from __future__ import annotations

import pytest

from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.simulator import start
from evenflow.experiments.papers import availability_modes

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
