"""Resampling against plain Python that interpolates between neighbours."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.operator.aggregate_cases import SCHEMA, make_batch, make_rows, same, tick
from tests.operator.test_session_window import SECOND, micros

from evenflow.operator.resample import Resample
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK


def wanted(rows: list[dict[str, Any]], step: int, columns: list[str], how: str, gap: int | None) -> list[tuple[Any, ...]]:
    """(time, values) of one key's rows, which are in order."""
    made = []
    for at, row in enumerate(rows):
        time, left = micros(row["ts"]), rows[at - 1] if at else None
        before = micros(left["ts"]) if left else time
        alone = left is None or (gap is not None and time - before > gap)
        first = time if alone else before + 1
        for grid in range(-(-first // step) * step, time + 1, step):
            values = []
            for c in columns:
                if grid == time or left is None:
                    values.append(row[c] if how == "previous" or row[c] is None else float(row[c]))
                elif how == "previous":
                    values.append(left[c])
                elif left[c] is None or row[c] is None:
                    values.append(None)
                else:
                    values.append(left[c] + (row[c] - left[c]) * (grid - before) / (time - before))
            made.append((grid, *values))
    return made


def in_order(rng: np.random.Generator, n: int, keys: int) -> list[dict[str, Any]]:
    """Rows by time with some times on the grid, some equal, some missing."""
    batch = make_batch(rng, n, keys=keys)
    stamps = [
        None if t is None else t // SECOND * SECOND if rng.random() < 0.3 else t for t in batch.column("ts").cast(pa.int64()).to_pylist()
    ]
    batch = batch.set_column(SCHEMA.get_field_index("ts"), SCHEMA.field("ts"), pa.array(stamps, pa.timestamp("us")))
    return sorted(batch.to_pylist(), key=lambda row: (row["ts"] is not None, row["ts"]))


@pytest.mark.parametrize(("how", "columns"), [("linear", ["i", "g"]), ("previous", ["s", "d", "small"])])
@pytest.mark.parametrize("gap", [None, 6 * SECOND])
def test_values_between_rows(how: str, columns: list[str], gap: int | None) -> None:
    rng = np.random.default_rng(7)
    rows = in_order(rng, 250, 8)
    operator = Resample(SCHEMA, ("k",), "ts", SECOND, columns, how, gap)
    found: dict[Any, list[tuple[Any, ...]]] = {}
    before, cuts = NO_WATERMARK, [0, 0, 30, 31, 100, 220, 250]
    for epoch, (start, stop) in enumerate(pairwise(cuts), 1):
        part = rows[start:stop]
        stamp = rows[stop]["ts"] if stop < len(rows) else None
        after = END_OF_STREAM if stop == len(rows) else NO_WATERMARK if stamp is None else micros(stamp)
        batch = pa.RecordBatch.from_pylist(part, SCHEMA)
        (out,) = operator.process(make_rows(batch, ("k",)), tick(epoch, before, after))
        for row in out.batch.to_pylist():
            found.setdefault(row["k"], []).append((micros(row["ts"]), *(row[c] for c in columns)))
        before = after
    of_key: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        if row["ts"] is not None:
            of_key.setdefault(row["k"], []).append(row)
    points = 0
    for key, mine in of_key.items():
        want = wanted(mine, SECOND, columns, how, gap)
        assert len(found.get(key, [])) == len(want)
        points += len(want)
        for got, expected in zip(found.get(key, []), want, strict=True):
            assert all(same(a, b) for a, b in zip(got, expected, strict=True)), (key, got, expected)
    assert points > (300 if gap is None else 100)
    assert (operator._table.count == 0) == (gap is not None), "silent keys are forgotten if rows that far apart do not matter"
