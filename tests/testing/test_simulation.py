"""The testing helper: dataflows of production over rows of a test, with time, epochs and failures."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import BoxFailed, OperationRefused, OptionError, PartitionsLost
from evenflow.testing import run, simulate, source

SCHEMA = "user string, amount bigint, at timestamp_ntz"
PAID = [("ann", 5, "2026-01-01 10:00:05"), ("bob", 7, "2026-01-01 10:00:10"), ("ann", 1, "2026-01-01 10:01:02")]


def windows() -> ef.Dataflow:
    """As for production: a host that nobody can reach here, and a table that nobody may write."""
    flow = ef.Dataflow("paid")
    payments = flow.source(ef.sources.tcp_lines("nowhere.invalid", 9092, schema=SCHEMA), name="payments")
    counted = payments.with_watermark("at", "10 seconds").group_by("user").window("1 minute").agg(total="sum(amount)")
    counted.to(ef.sinks.parquet("/nobody/may/write/here"), name="totals")
    return flow


def totals(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return sorted((row["user"], row["window_start"].minute, row["total"]) for row in rows)


def test_a_flow_of_production_over_the_rows_of_a_test() -> None:
    result = run(windows(), {"payments": PAID})
    assert totals(result.rows()) == [("ann", 0, 5), ("ann", 1, 1), ("bob", 0, 7)]
    assert result.rows("totals") == result.rows()
    assert result.table().column_names == ["user", "window_start", "window_end", "total"]
    assert sum(len(rows) for _, rows in result.epochs()) == 3


def test_windows_close_when_the_watermark_passes_and_not_before() -> None:
    test = simulate(windows())
    assert test.give("payments", PAID[:2]).settle().rows() == []
    assert test.give("payments", [("cid", 0, "2026-01-01 10:01:09")]).settle().rows() == []
    test.give("payments", [("cid", 0, "2026-01-01 10:01:10")]).settle()
    assert totals(test.new_rows()) == [("ann", 0, 5), ("bob", 0, 7)]
    assert test.new_rows() == []
    test.finish()
    assert totals(test.new_rows()) == [("cid", 1, 0)]
    with pytest.raises(OperationRefused, match="payments"):
        test.give("payments", PAID)


@pytest.mark.parametrize("rows", [
    [{"user": "ann", "amount": 5, "at": datetime(2026, 1, 1)}, {"user": "bob", "at": "2026-01-01"}],
    [("ann", 5, datetime(2026, 1, 1)), ["bob", None, "2026-01-01"]],
    pa.table({"at": [datetime(2026, 1, 1)] * 2, "user": ["ann", "bob"], "amount": pa.array([5, None], pa.int32())}),
])  # fmt: skip
def test_rows_are_dicts_tuples_or_tables(rows: Any) -> None:
    assert totals(run(windows(), {"payments": rows}).rows()) == [("ann", 0, 5), ("bob", 0, None)]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([{"usr": "ann"}], "row 0 of source 'payments' has 'usr'.*user string"),
        ([("ann", 5)], "row 0 of source 'payments' has 2 values.*3 columns"),
        ([("ann", "five", "2026-01-01")], "column 'amount'.*bigint"),
        ([("ann", 5, "soon")], "column 'at'.*'soon' is none"),
        ([5], "row 0 of source 'payments' is 5"),
        ("ann", "a list of dicts or tuples"),
        (pa.table({"user": ["ann"]}), "have the columns user; it has user string"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows: Any, text: str) -> None:
    test = simulate(windows())
    with pytest.raises(OptionError, match=text):
        test.give("payments", rows)
    assert test.finish().rows() == [], "nothing of them was given"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: simulate(windows(), {"payment": []}), "no source 'payment'; it has 'payments'"),
        (lambda: simulate(windows(), sites=0), "sites is 0"),
        (lambda: simulate(windows(), source_partitions={"clicks": 2}), "no source 'clicks'"),
        (lambda: simulate(windows()).rows("out"), "the sinks 'totals': there is no 'out'"),
        (lambda: simulate(windows()).give("payments", PAID, partition=1), "1 partitions"),
        (lambda: simulate(windows()).kill(9), "site 9 does not live"),
    ],
)
def test_names_and_numbers_that_do_not_fit_are_refused(call: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        call()


def test_a_site_is_killed_and_a_replica_goes_on() -> None:
    test = simulate(windows(), sites=3, replicas=2, source_partitions=2)
    test.give("payments", PAID[:2]).give("payments", PAID[2:], partition=1).settle()
    before = test.sites
    test.kill().settle()
    assert len(test.sites) == len(before) - 1
    assert totals(test.finish().rows()) == [("ann", 0, 5), ("ann", 1, 1), ("bob", 0, 7)]


def test_more_is_lost_than_replicas_cover() -> None:
    test = simulate(windows(), sites=2)
    test.give("payments", PAID).settle().kill()
    with pytest.raises(PartitionsLost):
        test.finish()
    assert totals(test.restart(sites=1).finish().rows()) == [("ann", 0, 5), ("ann", 1, 1), ("bob", 0, 7)]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_everything_is_lost_and_the_run_goes_on(checkpoint: bool) -> None:
    test = simulate(windows(), sites=2)
    test.give("payments", PAID).settle()
    if checkpoint:
        test.checkpoint()
    test.lose_everything()
    with pytest.raises(OperationRefused, match="restart"):
        test.settle()
    test.restart(sites=3).give("payments", [("ann", 1, "2026-01-01 10:01:03")])
    assert totals(test.finish().rows()) == [("ann", 0, 5), ("ann", 1, 2), ("bob", 0, 7)]


def divided(batch: pa.RecordBatch) -> Any:
    return {"a": [row["a"] // row["b"] for row in batch.to_pylist()]}


def test_a_box_that_raises_ends_the_test_with_its_error() -> None:
    flow = ef.Dataflow("ratios")
    numbers = flow.source(ef.sources.tcp_lines("localhost", 9, schema="a bigint, b bigint"), name="numbers")
    numbers.flat_map(divided, output="a bigint", name="ratio").to(ef.sinks.discard(), name="out")
    with pytest.raises(BoxFailed, match="ratio"):
        run(flow, {"numbers": [(1, 0)]})


def test_time_of_the_machines_passes_when_it_is_said() -> None:
    """A source that is silent holds the watermark back until it counts as idle."""
    flow = ef.Dataflow("two")
    schema = "k string, at timestamp_ntz"
    one, two = (
        flow.source(source(schema), name=name).with_watermark("at", "0 seconds", idle=idle)
        for name, idle in (("one", None), ("two", "5 seconds"))
    )
    one.union(two).group_by("k").window("1 minute").agg(n="count(*)").to(ef.sinks.discard(), name="out")
    test = simulate(flow)
    test.give("one", [("a", "2026-01-01 10:00"), ("a", "2026-01-01 10:05")]).give("two", [("a", "2026-01-01 10:00")]).settle()
    assert test.rows() == []
    test.advance("6 seconds").settle()
    assert [row["n"] for row in test.rows()] == [2]
