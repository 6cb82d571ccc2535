"""BSort against a heap per key."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pytest
from tests.operator.aggregate_cases import SCHEMA, make_batch, make_rows, tick

from evenflow.operator.bsort import BSort
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK


@pytest.mark.parametrize("column", ["i", "name", "f"])
@pytest.mark.parametrize(("keys", "size"), [(("k",), 1), (("k",), 4), (("name", "b"), 3), ((), 30)])
def test_the_least_leaves_a_full_buffer(keys: tuple[str, ...], size: int, column: str) -> None:
    rng, operator, heaps = np.random.default_rng(8), BSort(SCHEMA, keys, column, size), {}
    came = 0
    for epoch in range(1, 7):
        batch, left = make_batch(rng, int(rng.choice([0, 3, 60])) if epoch < 6 else 50, keys=6), []
        for row in batch.to_pylist():
            row = {name: value + 0.0 if isinstance(value, float) else value for name, value in row.items()}
            heap: list[Any] = heaps.setdefault(tuple(row[k] for k in keys), [])
            value = row[column]
            nan = isinstance(value, float) and value != value
            heapq.heappush(heap, (value is not None, nan, 0 if value is None or nan else value, came, list(row.values())))
            came += 1
            if len(heap) == size:
                left.append(heapq.heappop(heap)[-1])
        (out,) = operator.process(make_rows(batch, keys), tick(epoch, NO_WATERMARK, NO_WATERMARK))
        assert repr([list(row.values()) for row in out.batch.to_pylist()]) == repr(left)
    (out,) = operator.process(make_rows(make_batch(rng, 0), keys), tick(7, NO_WATERMARK, END_OF_STREAM))
    rest: dict[Any, list[Any]] = {}
    for row in out.batch.to_pylist():
        rest.setdefault(tuple(row[k] for k in keys), []).append(list(row.values()))
    assert repr(sorted(rest.items(), key=repr)) == repr(sorted(((k, [r[-1] for r in sorted(h)]) for k, h in heaps.items() if h), key=repr))
    assert came > 100 and operator.capture(0) is None
