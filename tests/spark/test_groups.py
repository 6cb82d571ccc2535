"""Two engines run a dataflow as one run, with other numbers of sites and at other times: one subscriber reads both as one chain."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import evenflow as ef
from evenflow.bench.background import free_ports
from evenflow.errors import OperationRefused, OptionError
from evenflow.sinks.stream import SECRET_VARIABLE

pytestmark = [pytest.mark.spark, pytest.mark.conformance, pytest.mark.timeout(200)]
RATE, ROWS, KEYS = 2000, 12_000, 20


def flow_to(port: int) -> ef.Dataflow:
    flow = ef.Dataflow("grouped")
    rows = flow.source(ef.sources.generator(rate=RATE, rows=ROWS, keys=KEYS, seed=5, partitions=2), cut="content", width_ms=50)
    rows.group_by("key").agg(n="count(*)", s="sum(value)").to(ef.sinks.stream(port), name="out")
    return flow


def test_a_region_that_ends_is_not_missed_and_one_that_comes_late_says_the_same(
    spark: Any, engine: ef.Engine, named: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "of sixteen letters or more")
    east, west, late = free_ports(3)
    of = ef.group(named("group"), begin=time.time() + 1.0, sites=3)
    got: list[tuple[int, Any]] = []
    with ef.Engine(spark, sites=2) as second:
        one = engine.start(flow_to(east), group=of)
        other = second.start(flow_to(west), group=of)
        with pytest.raises(OptionError, match="already"):
            second.start(flow_to(late), group=of)
        with ef.subscribe([f"127.0.0.1:{east}", f"127.0.0.1:{west}"], of.name, after=0) as subscriber:
            for epoch, rows in subscriber:
                got.append((epoch, rows))
                if len(got) == 10:
                    box = next(box.name for box in flow_to(east).network if box.kind == "aggregate")
                    with pytest.raises(OperationRefused, match="region of a group"):
                        one.repartition(box, 8)
                if len(got) == 15:
                    with pytest.raises(OperationRefused, match=r"region of a group.*Stop it as it is \(drain=False\)"):
                        one.stop(drain=True)
                    assert one.is_active
                if len(got) == 20:
                    one.stop()
            progress = subscriber.progress()
        assert other.await_termination(60)
    epochs = [epoch for epoch, _ in got]
    assert epochs == sorted(set(epochs)) and len(epochs) > 40
    last = {row["key"]: (row["n"], row["s"]) for _, rows in got for row in rows.to_pylist()}
    assert sum(n for n, _ in last.values()) == ROWS
    assert progress["delivered"] == epochs[-1]
    # A region that begins when all is over reads from the group's begin, and says the same.
    again = engine.start(flow_to(late), group=of)
    with ef.subscribe(f"127.0.0.1:{late}", of.name, after=0) as subscriber:
        repeated = list(subscriber)
    assert again.await_termination(60)
    assert [epoch for epoch, _ in repeated] == epochs

    def rows_of(epoch: int, batch: Any) -> Counter[Any]:
        return Counter((epoch, *row.values()) for row in batch.to_pylist())

    assert [rows_of(*each) for each in repeated] == [rows_of(*each) for each in got]
