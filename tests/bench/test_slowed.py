"""The operator of the skew benchmark: what it costs where, and that its answers do not depend on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.bench.test_spark_window import KeyState

from evenflow.bench import slowed
from evenflow.bench.slowed import Debt, RowCost, RunningCounts
from evenflow.bench.spark_skew import running_counts
from evenflow.operator.user.process import Process
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("number", pa.int64()), ("key", pa.int64()), ("due_us", pa.int64())])
EPOCHS = ([7, 8, 7, 7], [8, 7])
ANSWERS = [[1, 1, 2, 3], [2, 4]]


def test_the_slow_executor_costs_more() -> None:
    cost = RowCost(row_us=500.0, slow_factor=2.0, slow_executor="3")
    assert cost.at_us("3") == 1000.0 and cost.at_us("30") == cost.at_us("0") == 500.0
    assert cost.capacity(4) == 7000.0


def test_debts_are_exact_in_the_long_run() -> None:
    """Sleeps are half a millisecond too long each, and what is small is put together."""
    now_us, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now_us[0] += seconds * 1e6 + 500

    debt = Debt(sleep, lambda: int(now_us[0] * 1000))
    for _ in range(10_000):
        debt.add(300.0)
    assert len(slept) < 2000 and now_us[0] == pytest.approx(3e6, abs=2 * slowed.LEAST_US)


def paid(monkeypatch: pytest.MonkeyPatch, executor: str) -> list[float]:
    """What is spent from now on, microseconds, without sleeping."""
    spent: list[float] = []
    monkeypatch.setattr(slowed, "executor_here", lambda: executor)
    monkeypatch.setattr(slowed.DEBT, "add", spent.append)
    return spent


@pytest.mark.parametrize(("executor", "row_us"), [("0", 1000.0), ("1", 500.0)])
def test_a_site_answers_each_row_with_the_count_of_its_key(monkeypatch: pytest.MonkeyPatch, executor: str, row_us: float) -> None:
    spent = paid(monkeypatch, executor)
    box = Process(["key"], RunningCounts(RowCost()), SCHEMA, verify=False)
    for epoch, (keys, expected) in enumerate(zip(EPOCHS, ANSWERS), 1):
        numbers = list(range(10 * epoch, 10 * epoch + len(keys)))
        batch = pa.record_batch([numbers, keys, [9] * len(keys)], schema=SCHEMA)
        answers = box.process(Rows(batch, np.zeros(len(keys), np.int32)), Tick(epoch, 0, NO_WATERMARK, NO_WATERMARK))[0].batch
        assert answers["number"].to_pylist() == numbers and answers["key"].to_pylist() == keys
        assert answers["rows"].to_pylist() == expected
    assert spent == [4 * row_us, 2 * row_us]


def test_the_rival_gives_the_same_answers_at_the_same_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = paid(monkeypatch, "0")
    function, states = running_counts(RowCost()), {7: KeyState(), 8: KeyState()}
    for keys, expected in zip(EPOCHS, ANSWERS):
        found: dict[int, Any] = {}
        for key, state in states.items():
            mine = [number for number, other in enumerate(keys) if other == key]
            rows = pd.DataFrame({"number": mine, "key": key, "due_us": 9})
            for answers in function((key,), iter([rows.iloc[:1], rows.iloc[1:]]), state):
                assert list(answers.columns) == ["number", "key", "due_us", "rows"] and (answers["key"] == key).all()
                found |= dict(zip(answers["number"], answers["rows"]))
        assert [found[number] for number in range(len(keys))] == expected
    assert sum(spent) == 6 * 1000.0
