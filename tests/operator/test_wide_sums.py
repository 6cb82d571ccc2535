"""Sums of numbers of 128 bits are those of Python's numbers."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest

from evenflow.errors import ArithmeticOverflow
from evenflow.operator.totals.wide_sums import mean_of, sums, total_of, wide_of

RANDOM = np.random.default_rng(8)
COUNT, WIDE = 300, Context(prec=40)
BEGIN = RANDOM.integers(0, COUNT, COUNT)
END = np.minimum(COUNT, BEGIN + RANDOM.integers(0, 9, COUNT))


def digits(most: int) -> list[int]:
    """Numbers of any length up to that, of both signs."""
    return [
        int("".join(map(str, RANDOM.integers(0, 10, RANDOM.integers(1, most + 1))))) * sign
        for sign in RANDOM.choice([-1, 1], COUNT).tolist()
    ]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.decimal128(9, 2), pa.decimal128(20, 0), pa.decimal128(37, 12)], ids=str)
def test_sums_and_averages_are_exact(kind: pa.DataType) -> None:
    scale = getattr(kind, "scale", 0)
    most = {pa.int8(): 2, pa.int64(): 18}.get(kind) or kind.precision
    plain = [None if none else value for value, none in zip(digits(most), RANDOM.random(COUNT) < 0.2)]
    given = [value if value is None or not scale else Decimal(value).scaleb(-scale, WIDE) for value in plain]
    values = pa.concat_arrays([pa.nulls(3, kind), pa.array(given, kind)]).slice(3)  # With an offset.
    of = [[value for value in plain[begin:end] if value is not None] for begin, end in zip(BEGIN, END, strict=True)]
    found, counts = sums(wide_of(values), BEGIN, END), np.array([len(rows) for rows in of])
    totals = total_of(found, pa.decimal128(38, scale), counts == 0).to_pylist()
    assert totals == [Decimal(sum(rows)).scaleb(-scale, WIDE) if rows else None for rows in of]
    means = mean_of(found, counts, pa.float64()).to_pylist()
    assert [mean is None for mean in means] == [not rows for rows in of]
    assert [mean for mean in means if mean is not None] == pytest.approx([sum(rows) / len(rows) for rows in of if rows], rel=1e-15)


def test_halves_of_an_average_go_away_from_zero() -> None:
    values = pa.array([Decimal("0.01"), Decimal("-0.01")], pa.decimal128(5, 2))
    found = sums(wide_of(values), np.array([0, 1, 0]), np.array([1, 2, 2]))
    assert mean_of(found, np.array([160, 160, 2]), pa.decimal128(9, 6), 2).to_pylist() == [
        Decimal("0.000063"), Decimal("-0.000063"), Decimal("0.000000"),
    ]  # fmt: skip


def test_what_has_no_room_says_so() -> None:
    most = pa.array([Decimal(10**38 - 1)] * 2, pa.decimal128(38, 0))
    whole = sums(wide_of(most), np.array([0, 1]), np.array([1, 2]))
    assert total_of(whole, most.type, np.zeros(2, np.bool_)).to_pylist() == most.to_pylist()
    with pytest.raises(ArithmeticOverflow, match="more than 38 digits"):
        sums(wide_of(most), np.array([0]), np.array([2]))
    with pytest.raises(ArithmeticOverflow, match=r"more digits than decimal\(20,0\)"):
        total_of(whole, pa.decimal128(20, 0), np.zeros(2, np.bool_))
    halves = pa.array([Decimal(6 * 10**37)] * 2, pa.decimal128(38, 0))  # 128 bits have room for more than 38 digits.
    with pytest.raises(ArithmeticOverflow, match=r"more digits than decimal\(38,0\)"):
        total_of(sums(wide_of(halves), np.array([0]), np.array([2])), halves.type, np.zeros(1, np.bool_))
    with pytest.raises(ArithmeticOverflow, match="bigint"):
        total_of(sums(wide_of(pa.array([2**62, 2**62])), np.array([0]), np.array([2])), pa.int64(), np.zeros(1, np.bool_))
