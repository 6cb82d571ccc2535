"""The rival's row window is the window it is compared with, however the rows are cut into micro-batches."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from evenflow.bench.spark_window import expected_averages, row_window


class KeyState:
    """What `applyInPandasWithState` passes as a key's state, as far as the window uses it."""

    def __init__(self) -> None:
        self.get: tuple[bytes, int] | None = None

    @property
    def exists(self) -> bool:
        return self.get is not None

    def update(self, value: tuple[bytes, int]) -> None:
        self.get = value


@pytest.mark.parametrize("cuts", [[], [1], [5, 9, 10, 11], [100, 101, 250], list(range(1, 333))])
def test_the_cut_into_batches_is_invisible(cuts: list[int]) -> None:
    prices = np.random.default_rng(1).random(333)
    average, state, seen = row_window(history=100, slide=10), KeyState(), []
    for part in np.split(prices, cuts):
        frames = list(average((7,), iter([pd.DataFrame({"price": part})]), state))
        seen += [row for frame in frames for row in frame["average"]]
    assert seen == pytest.approx(expected_averages(prices, 100, 10), abs=1e-9)
