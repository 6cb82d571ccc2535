"""What the Nexmark benchmark reads, compares and reports, from runs that did not take place."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenflow import nexmark
from evenflow.bench.nexmark import QUICK, Ours, Setting, dataflow, row, setting_of, totals
from evenflow.bench.nexmark_files import PARTS, Events, events_for, newest_rows, same_rows
from evenflow.bench.spark_nexmark import Streamed
from evenflow.errors import QueryError
from evenflow.monitor.benchmark import benchmark_table
from evenflow.sinks import discard


def test_the_files_are_the_events_in_slices_of_time(tmp_path: Path) -> None:
    events = Events(10_000, slices=3)
    folder = events.write(tmp_path, "bid")
    files = sorted(folder.iterdir())
    assert len(files) == 3 * PARTS and folder == events.write(tmp_path, "bid")
    assert [file.stat().st_mtime for file in files] == sorted(file.stat().st_mtime for file in files)
    whole = pa.concat_tables([pq.read_table(file) for file in files])
    assert whole.num_rows == events.rows(["bid"]) == 9_200
    assert same_rows(whole, events.source("bid").table())
    newest = [np.max(pq.read_table(file)[nexmark.TIME_COLUMN].cast(pa.int64())) for file in files]
    first, second = max(newest[:PARTS]), min(newest[PARTS : 2 * PARTS])
    assert first < second


@pytest.mark.parametrize("streams", [("bid",), ("person", "auction"), ("auction", "bid")])
def test_every_query_reads_about_as_many_rows(streams: tuple[str, ...]) -> None:
    rows = Events(events_for(100_000, streams), slices=1).rows(streams)
    assert 100_000 <= rows < 100_050


def test_the_newest_row_of_an_identity_counts() -> None:
    table = pa.table({"k": [1, 2, 1, None, None], "v": [10, 20, 30, 40, 50]})
    assert newest_rows(table, ("k",)).to_pylist() == [{"k": 2, "v": 20}, {"k": 1, "v": 30}, {"k": None, "v": 50}]
    assert newest_rows(table, ()) == table


def columns(**values: Any) -> pa.Table:
    return pa.table(values)


SOME = columns(k=[1, 2, 2], x=[0.5, math.nan, None], t=pa.array([5, 6, 7], pa.timestamp("us")))


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (SOME.take([2, 0, 1]), True),
        (SOME.rename_columns(["K", "y", "T"]), True),
        (SOME.set_column(1, "x", pa.array([0.5 * (1 + 1e-12), math.nan, None])), True),
        (SOME.set_column(2, "t", SOME["t"].cast(pa.timestamp("us", "UTC"))), True),
        (SOME.set_column(0, "k", pa.array([1, 2, 2], pa.int32())), True),
        (SOME.slice(0, 2), False),
        (SOME.take([0, 0, 1]), False),
        (SOME.select(["k", "x"]), False),
        (SOME.set_column(1, "x", pa.array([0.5001, math.nan, None])), False),
        (SOME.set_column(1, "x", pa.array([0.5, None, None])), False),
        (SOME.set_column(2, "t", pa.array([5, 6, 8], pa.timestamp("us"))), False),
    ],
)
def test_answers_are_compared_row_by_row(other: pa.Table, same: bool) -> None:
    assert same_rows(SOME, other) is same


def test_doubles_that_differ_by_rounding_do_not_change_the_order() -> None:
    one = columns(x=[0.1 + 0.2, 0.3], k=["a", "b"])
    assert same_rows(one, columns(x=[0.3, 0.1 + 0.2], k=["a", "b"]))


def test_totals_are_of_what_both_systems_ran() -> None:
    queries = [
        row("q1", Ours(100, rows_per_s=50.0, p99_ms=9.0), True, Streamed(100.0, "update", 3)),
        row("q2", Ours(300, rows_per_s=300.0, p99_ms=20.0), True, Streamed(100.0, "append", 3)),
        row("q6", Ours(100, reason="no"), None, Streamed(None, reason="neither")),
        row("q9", Ours(100, rows_per_s=10.0), False, Streamed(None, reason="no")),
    ]
    assert [each["ratio"] for each in queries] == [0.5, 3.0, None, None]
    assert totals(queries) == {
        "ran": 3, "equal": 2, "ran_on_both": 2, "rows_per_s": 133, "spark_rows_per_s": 100, "ratio": 1.333, "least_ratio": 0.5,
        "least_ratio_of": "q1", "greatest_p99_ms": 20.0,
    }  # fmt: skip
    assert totals(queries[2:]) | {"ran": 0, "equal": 0, "ran_on_both": 0} == dict.fromkeys(totals(queries)) | {
        "ran": 0, "equal": 0, "ran_on_both": 0,
    }  # fmt: skip
    assert benchmark_table({"benchmark": "nexmark", "queries": queries}).row_count == 4


def test_queries_are_chosen_by_name() -> None:
    assert setting_of(None, quick=True) == QUICK and setting_of(None, quick=False).queries == nexmark.NAMES
    assert setting_of("q3, q7", quick=False) == replace(Setting(), queries=("q3", "q7"))
    with pytest.raises(QueryError, match="'q23'; they are q0 to q22"):
        setting_of("q3,q23", quick=True)


@pytest.mark.parametrize("setting", [Setting(), QUICK])
def test_every_query_can_be_measured(setting: Setting) -> None:
    for name in setting.queries:
        query = nexmark.query(name)
        flow = dataflow(query, setting.few.source, setting.few.delay, discard())
        assert {box.name for box in flow.network.boxes} >= set(query.inputs)
