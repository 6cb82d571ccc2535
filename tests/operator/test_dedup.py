"""Dedup against plain Python that remembers keys in a dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.operator.aggregate_cases import SCHEMA, make_batch, make_rows, tick
from tests.operator.test_session_window import epochs, micros

from evenflow.operator.dedup import Dedup
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK

SECOND = 1_000_000


def key_of(row: dict[str, Any], keys: tuple[str, ...]) -> str:
    """repr tells -0.0 from 0.0, which are one key."""
    return repr([row[k] + 0.0 if isinstance(row[k], float) else row[k] for k in keys])


@pytest.mark.parametrize("keys", [("k",), ("name", "b"), ("f",)])
def test_keys_are_kept_for_ever(keys: tuple[str, ...]) -> None:
    rng, operator, seen = np.random.default_rng(1), Dedup(SCHEMA, keys), set()
    for epoch in range(1, 6):
        batch, wanted = make_batch(rng, 80, keys=200), []
        for row in batch.to_pylist():
            if key_of(row, keys) not in seen:
                seen.add(key_of(row, keys))
                wanted.append(row)
        out, late = operator.process(make_rows(batch, keys), tick(epoch, epoch * SECOND, (epoch + 1) * SECOND))
        assert repr(out.batch.to_pylist()) == repr(wanted)
        assert late.count == 0
    assert operator.state_bytes() > 0


@pytest.mark.parametrize(("keys", "delay_us"), [(("k", "b"), 9 * SECOND), (("small",), 2 * SECOND), (("k", "ts"), 0)])
def test_keys_are_forgotten_behind_the_watermark(keys: tuple[str, ...], delay_us: int) -> None:
    operator = Dedup(SCHEMA, keys, time="ts", delay_us=delay_us)
    seen: dict[str, int] = {}
    passed_again, late_rows, ever = 0, 0, set()
    for epoch, (batch, before, after) in enumerate(epochs(np.random.default_rng(2), 7, 150), 1):
        wanted, wanted_late = [], []
        for row in batch.to_pylist():
            time = NO_WATERMARK if row["ts"] is None else micros(row["ts"])
            key = key_of(row, keys)
            stays = row["ts"] is None and "ts" in keys  # What equals it may always come.
            if time < before and not stays:
                wanted_late.append(row)
            elif key not in seen:
                passed_again += key in ever
                seen[key] = END_OF_STREAM - 1 if stays else time
                ever.add(key)
                wanted.append(row)
        out, late = operator.process(make_rows(batch, keys), tick(epoch, before, after))
        assert repr(out.batch.to_pylist()) == repr(wanted)
        assert repr(late.batch.to_pylist()) == repr(wanted_late)
        late_rows += late.count
        seen = {key: time for key, time in seen.items() if time + delay_us >= after}
        assert operator._table.count == len(seen)
    assert operator.late_rows == late_rows > 10
    assert passed_again > 10 or "ts" in keys
    assert [operator.capture(p) for p in range(8)] == [None] * 8


def test_a_duplicate_at_the_watermark_is_still_one() -> None:
    """What is not late and no further from the first than the delay never passes."""
    operator = Dedup(SCHEMA, ("k",), time="ts", delay_us=10)
    rows = make_rows(make_batch(np.random.default_rng(3), 1, span_us=1, nulls=False), ("k",))  # at time 0
    assert operator.process(rows, tick(1, NO_WATERMARK, 0))[0].count == 1
    assert [port.count for port in operator.process(rows, tick(2, 0, 0))] == [0, 0]
    assert [port.count for port in operator.process(rows, tick(3, 1, 10))] == [0, 1]
    assert operator._table.count == 1
    operator.process(rows.take(np.empty(0, np.int64)), tick(4, 10, 11))
    assert operator._table.count == 0
    operator.process(rows, tick(5, NO_WATERMARK, END_OF_STREAM))
    assert operator._table.count == 0
