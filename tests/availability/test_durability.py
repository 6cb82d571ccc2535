"""What cannot be had where only checkpoints are journalled, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.availability.durability import Durability, check_durability
from evenflow.errors import AvailabilityError
from evenflow.plan.layout import Layout
from evenflow.query.planner import layout
from evenflow.stream.change import CHANGE

ROWS = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("v", pa.int64())])
CHANGES = pa.schema([*ROWS, (CHANGE, pa.string())])


def planned(build: Callable[[Any], Any], sink: Any, schema: pa.Schema = ROWS) -> Layout:
    flow = ef.Dataflow("refused")
    rows = flow.source(ef.sources.memory([], schema=schema), name="rows").with_watermark("ts", "1 second")
    build(rows).to(sink, name="out")
    return layout(flow.network, sites=2, partitions=4)


def table(*key: str, **options: Any) -> Any:
    return ef.sinks.table("results.sqlite", "results", key=key, **options)


def totals(rows: Any, mode: str = "changelog") -> Any:
    return rows.group_by("k").agg(n="count(*)", total="sum(v)", mode=mode)


NETTED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "totals": (totals, table("k")),
    "behind a condition": (lambda rows: totals(rows).where("n < 3"), table("k")),
    "windows": (lambda rows: rows.group_by("k").window("1 minute", mode="changelog").agg(n="count(*)"), table("k", "window_start")),
    "plain rows of changes": (lambda rows: totals(rows).select("k", "n"), table("k")),
    "totals of totals": (lambda rows: totals(totals(rows).select(CHANGE, k="n", v="total")).select("k", "n"), table("k")),
    "whole tables": (lambda rows: totals(rows, "complete"), table(overwrite=True)),
    "some of a table": (lambda rows: totals(rows).where("n > 1").complete("1 second"), table(overwrite=True)),
}


@pytest.mark.parametrize("case", NETTED)
def test_a_table_of_what_epochs_have_changed_is_refused(case: str) -> None:
    """What an epoch changes in all depends on which rows it has, and after a loss they are others."""
    found = planned(*NETTED[case])
    check_durability(found, Durability.PRECISE, 10.0)
    with pytest.raises(AvailabilityError, match="sink 'out' keeps a table of results that change.* Use durability 'precise', or write"):
        check_durability(found, Durability.NO_LOSS, 10.0)


NOT_NETTED: dict[str, tuple[Callable[[Any], Any], Any, pa.Schema]] = {
    "running totals": (lambda rows: totals(rows, "update"), table("k"), ROWS),
    "windows": (lambda rows: rows.group_by("k").window("1 minute").agg(n="count(*)"), table("k", "window_start"), ROWS),
    "rows": (lambda rows: rows, table(), ROWS),
    "changes of a source": (lambda rows: rows.where("v > 0").select("k", "v", CHANGE), table("k"), CHANGES),
    "changes in files": (totals, ef.sinks.parquet("changes"), ROWS),
    "changes in a topic": (totals, ef.sinks.kafka("127.0.0.1:9", "changes"), ROWS),
}


@pytest.mark.parametrize("case", NOT_NETTED)
def test_what_comes_again_whole_is_not_refused(case: str) -> None:
    check_durability(planned(*NOT_NETTED[case]), Durability.NO_LOSS, 10.0)


def test_another_branch_is_nobodys_business() -> None:
    """Changes go to files, and rows of the same segment into the table."""
    flow = ef.Dataflow("two")
    rows = flow.source(ef.sources.memory([], schema=ROWS), name="rows")
    counts = totals(rows)
    counts.to(ef.sinks.parquet("changes"))
    rows.where("v > 0").to(table(), name="out")
    check_durability(layout(flow.network, sites=2, partitions=4), Durability.NO_LOSS, 10.0)


def test_what_is_subscribed_to_is_refused() -> None:
    """A subscriber goes on behind the epoch that it has, of one run."""
    found = planned(lambda rows: rows, ef.sinks.stream(4001))
    check_durability(found, Durability.PRECISE, 10.0)
    with pytest.raises(AvailabilityError, match="who subscribes to sink 'out' goes on behind the last epoch"):
        check_durability(found, Durability.NO_LOSS, 10.0)
