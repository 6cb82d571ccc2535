"""Rows at places: the same as Arrow's own `take`, whatever the type, the offset and the nulls."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.stream.taking import rows_taken, taken

N = 12
SOME = [3, 3, 0, 11, 7]
COLUMNS: dict[str, pa.Array] = {
    **{str(kind): pa.array(range(N), kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64())},
    "float16": pa.array(np.arange(N).astype(np.float16)),
    "float32": pa.array(np.linspace(-1, 1, N), pa.float32()),
    "double": pa.array([-0.0, float("nan"), *range(N - 2)], pa.float64()),
    "date": pa.array([dt.date(2026, 1, 1 + i) for i in range(N)]),
    "time": pa.array([dt.time(i) for i in range(N)], pa.time64("us")),
    "timestamp": pa.array(range(N), pa.timestamp("ms", "Europe/Vienna")),
    "duration": pa.array(range(N), pa.duration("ns")),
    "bool": pa.array([i % 3 == 0 for i in range(N)]),
    "string": pa.array([f"text {i}" for i in range(N)]),
    "decimal": pa.array([Decimal(i) / 4 for i in range(N)], pa.decimal128(10, 2)),
    "nulls": pa.array([None if i % 4 == 3 else i for i in range(N)]),
    "all null": pa.nulls(N),
    "list": pa.array([[i] * (i % 3) for i in range(N)]),
    "struct": pa.array([{"a": i} for i in range(N)]),
    "dictionary": pa.array([f"{i % 3}" for i in range(N)]).dictionary_encode(),
}


def same(left: pa.Array, right: pa.Array) -> bool:
    """Types and values, NaN as itself and -0.0 as itself."""
    left.validate(full=True)
    return bool(left.type == right.type and repr(left.to_pylist()) == repr(right.to_pylist()))


@pytest.mark.parametrize("places", [SOME, [], list(range(N))], ids=["some", "none", "all"])
@pytest.mark.parametrize("cut", [(0, N), (2, 9)], ids=["whole", "slice"])
def test_as_arrow_takes(places: list[int], cut: tuple[int, int]) -> None:
    for name, column in COLUMNS.items():
        array = column.slice(cut[0], cut[1] - cut[0])
        at = np.array([place for place in places if place < len(array)], np.int64)
        assert same(taken(array, at), array.take(pa.array(at))), name


def test_rows_keep_their_schema() -> None:
    fields = [pa.field(name, array.type, metadata={"of": name}) for name, array in COLUMNS.items()]
    batch = pa.RecordBatch.from_arrays(list(COLUMNS.values()), schema=pa.schema(fields, metadata={"a": "batch"}))
    at = np.array(SOME, np.int64)
    found, wanted = rows_taken(batch, at), batch.take(pa.array(at))
    assert found.schema.equals(batch.schema, check_metadata=True)
    assert all(same(mine, its) for mine, its in zip(found.columns, wanted.columns, strict=True))


@pytest.mark.parametrize("array", [COLUMNS["int64"], COLUMNS["int64"].slice(0, 4), COLUMNS["string"], COLUMNS["int64"].slice(0, 0)])
def test_nothing_is_taken_from_beyond_the_end(array: Any) -> None:
    with pytest.raises(IndexError):
        taken(array, np.array([len(array)], np.int64))
