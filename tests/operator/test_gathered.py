"""Rows whose parts come apart come out when all are there, once, and nothing is left of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.operator.user.gathered import MOST_WORDS, Gathered
from evenflow.query.spanned import Gathered as Described
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows
from evenflow.stream.schema import ddl_of

KINDS = {"n": pa.int64(), "s": pa.string(), "x": pa.float64(), "t": pa.timestamp("us", "UTC"), "l": pa.list_(pa.int64())}


@pytest.mark.parametrize("more", [0, MOST_WORDS])
def test_parts_make_a_row(more: int) -> None:
    """more: further columns, with which rows are too wide for a field each."""
    kinds = KINDS | {f"m{at}": pa.int32() for at in range(more)}
    columns = pa.schema([("k", pa.string()), *kinds.items()])
    parts = ("k", "n", "t", "l"), ("k", "s", *(name for name in kinds if name[0] == "m")), ("k", "x")
    schema = columns.append(pa.field("part", pa.int32()))
    gathered = Gathered(schema, ("k",), Described(ddl_of(columns), "part", parts))
    values: dict[str, Any] = {"n": 7, "s": "seven", "x": -0.0, "t": None, "l": [1, None]} | {f"m{at}": at for at in range(more)}

    def came(epoch: int, *given: tuple[str, int]) -> list[Any]:
        rows = [{"k": key, "part": part, **{name: values[name] for name in parts[part][1:]}} for key, part in given]
        batch = pa.RecordBatch.from_pylist(rows, schema)
        out, _ = gathered.process(Rows(batch, np.zeros(len(rows), np.int32)), Tick(epoch, epoch, NO_WATERMARK, NO_WATERMARK))
        assert out.batch.schema.equals(columns)
        return [repr(row) for row in out.batch.to_pylist()]

    def whole(key: str) -> str:
        batch = pa.RecordBatch.from_pylist([{"k": key, **values}], columns)
        return repr(batch.to_pylist()[0])

    def held() -> int:
        return int(gathered.partition_bytes(np.array([0]))[0])

    assert came(1, ("a", 0), ("b", 2), ("c", 1), ("c", 0), ("c", 2)) == [whole("c")]
    two = held()
    assert came(2, ("b", 0), ("d", 1)) == []
    assert came(3, ("a", 1), ("a", 2), ("b", 1)) == [whole("a"), whole("b")]
    assert 2 * held() == two
    assert came(4, ("d", 0), ("d", 2), ("e", 0), ("e", 1), ("e", 2)) == [whole("d"), whole("e")]
    assert held() == 0 < two
