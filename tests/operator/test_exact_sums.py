"""Sums of doubles of which rows are taken back: to the last bit what is left, whatever came in between."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa

from evenflow.kernels.exact import EXACT_WORDS, negated, rounded
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.totals.combine import Combine
from evenflow.query import aggregates
from evenflow.query.aggregates import AggCall
from evenflow.stream.change import CHANGE
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), (CHANGE, pa.string())])
CALLS = [AggCall("s", "sum", "x", pa.float64()), AggCall("a", "avg", "x", pa.float64()), AggCall("n", "count", "x", pa.int64())]


def nearest(values: list[float]) -> float:
    whole = sum(map(Fraction, values))
    try:
        return float(whole)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


class Sums:
    """One aggregate with the combining step before it."""

    def __init__(self) -> None:
        self._combine = Combine(SCHEMA, ("k",), CALLS)
        self._totals = Aggregate(self._combine.schemas[0], ("k",), CALLS, partial=True, changes=True, retracts=True)
        self._epoch = 0

    def take(self, keys: list[int], values: list[float | None], changes: list[str]) -> dict[int, tuple[float | None, float | None, int]]:
        """The totals that an epoch leaves of the keys that it changes."""
        self._epoch += 1
        batch = pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), pa.array(values, pa.float64()), pa.array(changes)], schema=SCHEMA)
        tick = Tick(self._epoch, self._epoch, NO_WATERMARK, NO_WATERMARK)
        (partial,) = self._combine.process(Rows(batch, np.zeros(len(keys), np.int32)), tick)
        (out,) = self._totals.process(partial, tick)
        rows = out.batch.to_pylist()
        return {row["k"]: (row["s"], row["a"], row["n"]) for row in rows if row[CHANGE] in ("insert", "update_after")}


def test_what_is_left_is_summed_to_the_last_bit() -> None:
    random = np.random.default_rng(5)
    values = (random.standard_normal(400) * 10.0 ** random.integers(-300, 300, 400)).tolist()
    values += [5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308, 0.1, -0.0]
    sums = Sums()
    sums.take([1] * len(values), values, ["insert"] * len(values))
    order = random.permutation(len(values)).tolist()
    while len(order) > 1:
        gone, order = order[: len(order) // 3 + 1], order[len(order) // 3 + 1 :]
        left = [values[at] for at in order]
        if not left:
            break
        total = nearest(left)
        found = sums.take([1] * len(gone), [values[at] for at in gone], ["delete"] * len(gone))
        assert found.get(1, (total, None, 0))[0] == total
        if 1 in found:
            assert found[1] == (total, total / len(left), len(left))


def test_what_is_not_finite_goes_as_it_came() -> None:
    sums = Sums()
    assert sums.take([1, 1], [math.inf, 1.5], ["insert"] * 2)[1][0] == math.inf
    assert math.isnan(sums.take([1], [-math.inf], ["insert"])[1][0] or 0.0)
    assert sums.take([1], [math.inf], ["delete"])[1][0] == -math.inf
    assert math.isnan(sums.take([1], [math.nan], ["insert"])[1][0] or 0.0)
    assert sums.take([1, 1, 1], [math.nan, -math.inf, None], ["delete", "update_before", "update_after"])[1] == (1.5, 1.5, 1)
    assert sums.take([1], [1.5], ["delete"])[1] == (None, None, 0)


def test_the_negative_of_a_sum_takes_it_back() -> None:
    random = np.random.default_rng(6)
    words = random.integers(-(2**63), 2**63 - 1, (EXACT_WORDS, 20))
    words[:20, 3] = 0
    back = negated(words)
    whole = [[int.from_bytes(each[:34, at].tobytes(), "little", signed=True) for at in range(20)] for each in (words, back)]
    assert [-one for one in whole[0]] == whole[1]
    assert aggregates.EXACT_WORDS == EXACT_WORDS
    assert rounded(np.zeros((EXACT_WORDS, 2), np.int64)).tolist() == [0.0, 0.0]
