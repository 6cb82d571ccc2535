"""min and max of frames: against a look at every row of every frame."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.operator.changes.framed import framed

FLOATS = [1.5, None, math.nan, -0.0, 0.0, -math.inf, 7.0, None, math.inf, -2.0]
COLUMNS = {
    "floats": pa.array(FLOATS * 13, pa.float64()),
    "integers": pa.array([3, None, -(2**63), 2**63 - 1, 0, 3, None] * 18, pa.int64()),
    "texts": pa.array(["b", None, "", "aa", "z", "é"] * 21),
    "no value": pa.array([None] * 120, pa.int32()),
}


def naive(function: str, held: list[Any]) -> Any:
    """Spark's order: nulls left out, NaN the greatest."""
    known = [value for value in held if value is not None]
    return (max if function == "max" else min)(known, key=lambda value: (value != value, value)) if known else None


@pytest.mark.parametrize("function", ["min", "max"])
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("shape", ["sliding", "behind", "shared low", "shared high", "any", "ties"])
def test_extremes_of_frames(function: str, name: str, shape: str) -> None:
    values = COLUMNS[name]
    n, here = len(values), np.arange(len(values))
    drawn = np.random.default_rng(7).integers(0, n + 1, (2, n))
    low, high = {
        "sliding": (np.maximum(here - 5, 0), np.minimum(here + 3, n)),
        "behind": (np.minimum(here + 2, n), np.minimum(here + 9, n)),
        "shared low": (here // 40 * 40, here),
        "shared high": (here, np.full(n, n)),
        "any": (drawn.min(axis=0), drawn.max(axis=0)),
        "ties": (np.maximum(here // 10 * 10 - 60, 0), here // 10 * 10 + 10),
    }[shape]
    high = np.minimum(high, n)
    got = framed(function, values, low, np.maximum(low, high), values.type).to_pylist()
    held = values.to_pylist()
    wanted = [naive(function, held[a:b]) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    assert [repr(v) if v != 0 else "0" for v in got] == [repr(v) if v != 0 else "0" for v in wanted]


@pytest.mark.parametrize("shape", ["sliding", "shared low", "shared high", "any"])
def test_deviations_of_frames(shape: str) -> None:
    held = [None if value is None or not math.isfinite(value) else value for value in FLOATS * 13]
    values, n = pa.array(held, pa.float64()), len(held)
    here, drawn = np.arange(n), np.random.default_rng(7).integers(0, n + 1, (2, n))
    low, high = {
        "sliding": (np.maximum(here - 5, 0), np.minimum(here + 3, n)),
        "shared low": (here // 40 * 40, here),
        "shared high": (here, np.full(n, n)),
        "any": (drawn.min(axis=0), drawn.max(axis=0)),
    }[shape]
    anchor: Any = {"shared low": "low", "shared high": "high"}.get(shape)
    got = framed("stddev", values, low, np.maximum(low, high), pa.float64(), anchor=anchor).to_pylist()
    for found, a, b in zip(got, low.tolist(), high.tolist(), strict=True):
        known = [value for value in held[a:b] if value is not None]
        assert found == (pytest.approx(np.std(known, ddof=1), rel=1e-12, abs=1e-15) if len(known) > 1 else None)
