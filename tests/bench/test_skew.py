"""What the skew benchmark reports, from runs that did not take place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evenflow.bench.delivered import Probe
from evenflow.bench.monitored import Output
from evenflow.bench.skew import QUICK, RAMP, Setting, beside, compared, dataflow, moves_of, ramped, rate_between
from evenflow.bench.spark_skew import await_batches, delivered
from evenflow.errors import ClusterError
from evenflow.monitor.benchmark import benchmark_table
from evenflow.query.planner import layout


def test_the_rate_lies_between() -> None:
    assert rate_between(3750.0, 6250.0, 7000.0) == 5000
    assert rate_between(3750.0, None, 7000.0) == 5375


def test_ratios_are_of_balanced_to_static() -> None:
    static, balanced = {"rows_per_s": 4000.0, "p99_ms": 5000.0}, {"rows_per_s": 6400.0, "p99_ms": 200.0}
    assert compared(static, balanced) == {"throughput_ratio": 1.6, "p99_ratio": 0.04}
    nothing = {"throughput_ratio": None, "p99_ratio": None}
    assert compared(static, None) == nothing and compared(static, balanced | {"p99_ms": None}) == nothing


def test_moves_are_told_by_the_time_of_the_first_answer() -> None:
    events: list[dict[str, Any]] = [
        {"at_s": 1.0, "kind": "copy_begun", "site": 2, "text": "a copy"},
        {"at_s": 4.0, "kind": "move_begun", "site": 2, "text": "it begins"},
        {"at_s": 4.25, "kind": "move_done", "site": 2, "text": "a move", "partitions": [7], "bytes": 900, "stall_ms": 1.5},
        {"at_s": 5.0, "kind": "move_done", "site": 3, "text": "another", "details": {"bytes": 50, "reason": "relief"}},
    ]
    one, other = moves_of(events, 1.25)
    assert one | {"partitions": [7], "reason": None} == one and other | {"partitions": None, "reason": "relief"} == other
    assert [(move["at_s"], move["bytes"], move["stall_ms"], move["text"]) for move in (one, other)] == [
        (3.0, 900, 1.5, "a move"),
        (3.75, 50, None, "another"),
    ]


def test_the_ramp_goes_around_what_the_closed_loop_gave() -> None:
    asked: list[int] = []

    def measure(rate: int) -> Probe:
        asked.append(rate)
        return Probe(rate, min(rate, 850.0), 10.0, 10.0)

    found = ramped(1000.0, measure)
    assert asked == [round(1000 * part) for part in RAMP if part <= 0.9]
    assert found["ramp_rows_per_s"] == 800 and [each["falls_behind"] for each in found["ramp"]] == [False, False, False, True]


@pytest.mark.parametrize("setting", [Setting(), QUICK])
def test_every_row_is_processed_where_its_key_is(setting: Setting) -> None:
    planned = layout(dataflow(setting, 100, Output()).network, sites=4, partitions=256, writers=None)
    assert [segment.partitions for segment in planned.segments if any(step.kind == "process" for step in segment.steps)] == [256]


def batch(begin: str, took_ms: int, rows: int, quantiles: list[float] | None) -> dict[str, Any]:
    return {"timestamp": begin, "durationMs": {"triggerExecution": took_ms}, "observedMetrics": {"answers": {"n": rows, "q": quantiles}}}


def test_micro_batches_are_delivered_at_their_end() -> None:
    seen = delivered(
        [
            batch("2026-01-01T00:00:00.000Z", 1500, 1000, [100.0, 200.0]),
            batch("2026-01-01T00:00:01.500Z", 500, 0, None),
            batch("2026-01-01T00:00:02.000Z", 2000, 3000, [400.0, 500.0]),
        ]
    )
    assert seen.at_s.tolist() == [0.0, 0.0, 2.5, 2.5] and seen.weight.tolist() == [500, 500, 1500, 1500]
    assert seen.rows_per_s == 1200.0 and seen.age_percentile_ms(100) == 500.0 and np.all(np.diff(seen.at_s) >= 0)


class Query:
    """A streaming query that has a batch more each time it is asked, and ends with its last."""

    def __init__(self, batches: int) -> None:
        self.asked, self._batches = 0, batches

    @property
    def isActive(self) -> bool:
        return self.asked < self._batches

    @property
    def recentProgress(self) -> list[int]:
        self.asked += 1
        return list(range(self.asked))


@pytest.mark.parametrize(("wanted", "asked"), [(3, 3), (100, 5)])
def test_batches_are_waited_for_as_long_as_the_query_runs(monkeypatch: pytest.MonkeyPatch, wanted: int, asked: int) -> None:
    monkeypatch.setattr("evenflow.bench.spark_skew.time.sleep", lambda seconds: None)
    query = Query(5)
    await_batches(query, wanted)
    assert query.asked == asked


def test_a_rival_that_fails_costs_only_its_own_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(setting: Setting, rate: int, say: Any) -> dict[str, Any]:
        raise ClusterError("it ended before its time")

    said: list[str] = []
    monkeypatch.setattr("evenflow.bench.skew.rival", fail)
    found = beside(QUICK, 5000, said.append)
    assert found == {"spark": None, "spark_failed": "ClusterError: it ended before its time"} and len(said) == 1


def test_no_micro_batch_at_all() -> None:
    with pytest.raises(ClusterError, match="no micro-batch was finished"):
        delivered([])


def test_the_table_has_a_row_for_each_system_that_ran() -> None:
    static = {"rows_per_s": 3750.0, "p99_ms": 5000.0, "rows_per_s_over_time": []}
    table = benchmark_table({"rate": 5000, "systems": ["static", "balanced", "spark"], "static": static, "balanced": None, "spark": static})
    assert [column.header for column in table.columns] == ["name", "rows_per_s", "p99_ms"]
    assert [list(column.cells) for column in table.columns] == [["static", "spark"], ["3,750"] * 2, ["5,000"] * 2]
