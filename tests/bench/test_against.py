"""What `bench cost --against` reports of the prices of two trees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evenflow.bench import against
from evenflow.errors import OptionError

NOW = {
    "cpu_ms_per_epoch_and_site.1": 0.2,
    "cpu_ms_per_epoch_and_site.2": 0.3,
    "cpu_ms_per_epoch_and_site.4": 0.5,
    "cpu_ms_per_epoch_and_site.8": 0.9,
    "pairs_cpu_ms_per_epoch_and_site": 1.5,
    "site_pss_mb": 70.0,
    "idle_cores": 0.01,
    "p50_ms": 6.0,
    "p99_ms": 30.0,
    "pairs_p50_ms": 8.0,
    "pairs_p99_ms": 40.0,
}
THEN = {
    **NOW,
    **{f"cpu_ms_per_epoch_and_site.{n}": 0.4 * n for n in (1, 2, 4, 8)},
    "idle_cores": 0.04,
    "p99_ms": 40.0,
    "pairs_p99_ms": 50.0,
}


def test_every_figure_is_this_trees_over_the_others() -> None:
    found = against.ratios(NOW, THEN)
    assert found["cpu_per_epoch_ratio"] == {"1": 0.5, "2": 0.375, "4": 0.312, "8": 0.281}
    assert found["peer_slope_ratio"] == 0.25, "0.1 ms a site now, 0.4 then"
    assert (found["pairs_cpu_ratio"], found["idle_ratio"], found["memory_ratio"]) == (1.0, 0.25, 1.0)
    assert [found[name] for name in ("p50_ratio", "p99_ratio", "pairs_p50_ratio", "pairs_p99_ratio")] == [1.0, 0.75, 1.0, 0.8]


def test_of_gaps_the_worst_linger_counts() -> None:
    seen = {
        5: ({"gap_ms_p95": 60.0, "copies_over_first_second": 1.1}, {"gap_ms_p95": 150.0}),
        20: ({"gap_ms_p95": 90.0}, {"gap_ms_p95": 150.0}),
    }
    found = against.gap_ratios(seen)
    assert (found["gap_p95_ratio"], found["gap_p95_ratio_by_linger"]) == (0.6, {"5": 0.4, "20": 0.6})
    assert found["copies_over_first_second"] == {"5": 1.1, "20": None}


def test_what_was_not_measured_has_no_ratio() -> None:
    found = against.ratios({"cpu_ms_per_epoch_and_site.2": 0.3}, {"cpu_ms_per_epoch_and_site.2": 0.6})
    assert found["cpu_per_epoch_ratio"] == {"2": 0.5}
    assert [found[key] for key in ("peer_slope_ratio", "pairs_cpu_ratio", "idle_ratio", "memory_ratio")] == [None] * 4


def test_medians_are_of_what_all_rounds_have() -> None:
    assert against.medians([{"a": 1.0, "b": 2.0}, {"a": 5.0}, {"a": 2.0, "b": 3.0}]) == {"a": 2.0}


def test_rounds_begin_with_either_tree_by_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measured(tree: Path, command: object) -> dict[str, float]:
        asked.append("other" if tree == tmp_path else "now")
        return {"n": float(len(asked))}

    monkeypatch.setattr(against, "measured", measured)
    now, then = against.by_turns(tmp_path, ["python"], 3, lambda text: None)
    assert asked == ["now", "other", "other", "now", "now", "other"]
    assert (against.medians(now)["n"], against.medians(then)["n"]) == (4.0, 3.0)


def test_there_has_to_be_such_a_commit() -> None:
    with pytest.raises(OptionError, match="no commit 'no-such-commit'"):
        against.tree_of("no-such-commit")


def test_the_price_is_asked_by_a_file_that_any_interpreter_can_run() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import runpy; found = runpy.run_path({str(against.PRICE)!r}); print(found['grouped'](5))"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "grouped" in done.stdout, done.stderr
