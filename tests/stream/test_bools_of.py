"""Bits of Arrow as NumPy's booleans."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from evenflow.stream.arrays import bools_of


@pytest.mark.parametrize("begin", [0, 1, 7, 8, 9, 64, 65])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
def test_any_part_of_an_array_is_what_arrow_says(begin: int, count: int) -> None:
    array = pa.array(np.random.default_rng(1).random(200) < 0.5).slice(begin, count)
    found = bools_of(array)
    assert found.dtype == np.bool_ and found.tolist() == array.to_pylist()


def test_an_empty_array_may_have_no_memory() -> None:
    assert bools_of(pa.array([], pa.bool_())).size == 0
    assert bools_of(pa.array([True, False])[2:]).size == 0
