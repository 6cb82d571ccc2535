"""How a run goes as JSON and back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from evenflow.errors import StatisticsError
from evenflow.plan.moved_whole import MovedWhole
from evenflow.statistics.progress import (
    Behind,
    BoxProgress,
    CheckpointProgress,
    JournalProgress,
    OutputProgress,
    Progress,
    SlowCode,
    TableProgress,
)
from tests.statistics.numbers import progress, site_progress

WHOLE = progress(
    epoch=7,
    p50_ms=1.5,
    moved_whole=(MovedWhole(1, "track", ("src",), "a process box needs every row itself"),),
    slow=(SlowCode(2, "track", 8, 5.5),),
    sites=(site_progress(0, role="live", utilization=0.25), site_progress(1)),
    boxes=(BoxProgress("rows", "filter", 2_000.0, 2.0, 0.25, 0.004), BoxProgress("rows", "count", 0.0, None, None, 0.0)),
    tables=(TableProgress("names", 3, 24, 1, 6, 1.25, 1, "no such file"),),
    journal=JournalProgress("/there", 2, 41, 0.0, 1.5, 1.75, 12, 3456),
    behind=(Behind("orders", "shop.orders", 12),),
    outputs=(OutputProgress("alerts", False, 120, 0.875, 12.5, 0.9), OutputProgress("bills", True, 0, 1.0)),
    checkpoint=CheckpointProgress(12, 340, 3456, 4.25, 0.75, 1, 13),
)
KEYS = [
    "run", "dataflow", "active", "epoch", "epochs_in_flight", "rows_in", "rows_out", "rows_in_per_s", "rows_out_per_s", "p50_ms", "p99_ms",
    "total_p50_ms", "total_p99_ms", "late_rows", "failed_rows", "replicas", "redundancy", "membership", "moved_whole", "slow", "sites",
    "boxes", "seconds", "tables", "journal", "checkpoint", "behind", "outputs",
    "protected", "lost",
]  # fmt: skip
SITE_KEYS = [
    "site", "executor", "host", "pid", "rss_bytes", "pss_bytes", "refused", "leaving", "role", "partitions", "coming", "cpu_share",
    "rows_in_per_s", "state_bytes", "spilled_bytes", "buffered_bytes", "messages", "epoch", "utilization",
]  # fmt: skip


def test_it_is_the_documented_object() -> None:
    told = WHOLE.to_json()
    assert list(told) == KEYS and [list(site) for site in told["sites"]] == [SITE_KEYS, SITE_KEYS]
    assert told["moved_whole"] == [{"segment": 1, "box": "track", "keys": ["src"], "reason": "a process box needs every row itself"}]
    assert told["slow"] == [{"site": 2, "box": "track", "epoch": 8, "seconds": 5.5}]
    assert told["boxes"][1] == {
        "segment": "rows", "box": "count", "rows_in_per_s": 0.0, "cost_us": None, "selectivity": None, "busy_share": 0.0,
    }  # fmt: skip
    assert told["tables"] == [
        {
            "table": "names",
            "rows": 3,
            "bytes": 24,
            "version": 1,
            "epoch": 6,
            "read_s": 1.25,
            "failures": 1,
            "error": "no such file",
        }
    ]
    assert told["journal"] == {
        "location": "/there", "generation": 2, "durable": 41, "age_s": 0.0, "append_ms": 1.5, "append_mean_ms": 1.75, "appends": 12,
        "bytes": 3456, "clock_behind_s": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("made", [WHOLE, progress(), replace(WHOLE, seconds=0)])
def test_it_comes_back_from_json_as_it_was(made: Progress) -> None:
    assert Progress.from_json(json.loads(json.dumps(made.to_json(), allow_nan=False))) == made


def test_a_later_version_may_say_more() -> None:
    assert Progress.from_json({**WHOLE.to_json(), "watermark_s": 1.5}) == WHOLE


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda told: told.pop(name)


def put(value: Any, *path: Any) -> Callable[[dict[str, Any]], None]:
    def change(told: Any) -> None:
        for step in path[:-1]:
            told = told[step]
        told[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without("epoch"), "progress has no field 'epoch'"),
        (put("7", "epoch"), "progress.epoch must be a whole number, not '7'"),
        (put(True, "epoch"), "progress.epoch must be a whole number, not True"),
        (put(7.5, "epoch"), "progress.epoch must be a whole number, not 7.5"),
        (put(1, "active"), "progress.active must be true or false, not 1"),
        (put(None, "run"), "progress.run must be a text, not None"),
        (put("fast", "p50_ms"), "progress.p50_ms must be a finite number, not 'fast'"),
        (put(math.nan, "p50_ms"), "progress.p50_ms must be a finite number, not nan"),
        (put({}, "sites"), r"progress.sites must be a list, not \{\}"),
        (put(3, "sites", 1), r"progress.sites\[1\] must be an object, not 3"),
        (put("king", "sites", 0, "role"), r"progress.sites\[0\].role must be one of live, joining, spare, not 'king'"),
        (put([3], "sites", 0, "role"), r"progress.sites\[0\].role must be one of"),
        (put([1], "moved_whole", 0, "keys"), r"progress.moved_whole\[0\].keys\[0\] must be a text, not 1"),
        (put("x", "boxes", 0, "cost_us"), r"progress.boxes\[0\].cost_us must be a finite number"),
    ],
)
def test_what_is_no_progress_is_refused_by_the_field(spoil: Callable[[dict[str, Any]], None], said: str) -> None:
    told = WHOLE.to_json()
    spoil(told)
    with pytest.raises(StatisticsError, match=said):
        Progress.from_json(told)


@pytest.mark.parametrize("data", [None, [], "run", 7])
def test_what_is_no_object_is_refused(data: Any) -> None:
    with pytest.raises(StatisticsError, match=r"progress must be an object.*run.progress\(\) makes what is expected"):
        Progress.from_json(data)
