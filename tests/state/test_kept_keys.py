"""KeptKeys: columns are read as they were kept, however many there are, and the rows of old checkpoints mean what they meant."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.state.keys import KeptKeys

KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [-(2**63), 0, 2**63 - 1]), (pa.float64(), [1.5, float("-inf"), 0.0]), (pa.bool_(), [True, False]),
    (pa.timestamp("us"), [datetime(1960, 1, 1), datetime(2026, 1, 1)]), (pa.int8(), [-128, 127]), (pa.uint64(), [0, 2**64 - 1]),
    (pa.date32(), [date(1960, 1, 1)]), (pa.duration("us"), [timedelta(0), timedelta(-1)]), (pa.float32(), [-2.5]),
]  # fmt: skip
TEXT = (pa.string(), ["", "a"])
SLOTS, FIRST = 40, 5


def columns(rng: np.random.Generator, kinds: list[tuple[pa.DataType, list[Any]]], nulls: float, rows: int) -> list[pa.Array]:
    def value(values: list[Any]) -> Any:
        return None if rng.random() < nulls else values[rng.integers(len(values))]

    return [pa.array([value(values) for _ in range(rows)], kind) for kind, values in kinds]


@pytest.mark.parametrize("nulls", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("count", [0, 1, 9, 63, 64, 65, 66, 127, 128, 129, 200])
def test_columns_are_read_as_they_were_kept(count: int, nulls: float) -> None:
    rng = np.random.default_rng(count)
    kinds = [KINDS[at % len(KINDS)] for at in range(count)]
    for place in sorted(rng.integers(0, count + 1, 3).tolist()):
        kinds.insert(place, TEXT)
    schema = pa.schema([(f"c{at}", kind) for at, (kind, _) in enumerate(kinds)])
    kept = KeptKeys(schema, schema.names)
    words = rng.integers(-(2**63), 2**63 - 1, (SLOTS, FIRST + kept.words + 3))
    before = words.copy()
    objects = [np.full(SLOTS, "?", object) for _ in kept.object_types]
    slots = rng.permutation(SLOTS)[:30]
    first, second = columns(rng, kinds, nulls, 30), columns(rng, kinds, 0.4, 10)
    kept.keep(words, FIRST, objects, slots, first)
    assert kept.read(words, FIRST, objects, slots) == first
    kept.keep(words, FIRST, objects, slots[:10], second)
    assert kept.read(words, FIRST, objects, slots[:10]) == second
    assert kept.read(words, FIRST, objects, slots[10:]) == [column.slice(10) for column in first]
    rest = [*range(FIRST), *range(FIRST + kept.words, words.shape[1])]
    assert (words[:, rest] == before[:, rest]).all(), "words of others"


@pytest.mark.parametrize("count", [1, 8, 63, 64])
def test_rows_of_up_to_64_columns_are_laid_out_as_in_every_checkpoint(count: int) -> None:
    """A word for each column, 0 for null, and one of null bits behind them."""
    schema = pa.schema([(f"c{at}", pa.int64()) for at in range(count)])
    kept = KeptKeys(schema, schema.names)
    assert kept.words == count + 1
    words = np.full((2, FIRST + kept.words), 7)
    kept.keep(words, FIRST, [], np.array([1]), [pa.array([None if at % 3 == 0 else at], pa.int64()) for at in range(count)])
    null = sum(1 << at for at in range(0, count, 3))
    wanted = [7] * FIRST + [0 if at % 3 == 0 else at for at in range(count)] + [null - (1 << 64) if null >> 63 else null]
    assert words.tolist() == [[7] * (FIRST + count + 1), wanted]
