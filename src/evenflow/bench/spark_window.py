"""The row-count window in PySpark: a function over one key's rows and its state, as a user would write it who cares about speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

RESULT: Final = "key bigint, average double"
STATE: Final = "prices binary, seen bigint"


def row_window(history: int, slide: int) -> Callable[[Any, Iterator[Any], Any], Iterator[Any]]:
    """A function for `applyInPandasWithState`: after every `slide` rows of a key, the average of its last `history` prices.

    Windows at the beginning of a key have fewer rows. One cumulative sum per call instead of one mean per window.
    """

    def averages(key: tuple[int], batches: Iterator[Any], state: Any) -> Iterator[Any]:
        import numpy
        import pandas

        kept, seen = state.get if state.exists else (b"", 0)
        old = numpy.frombuffer(kept, dtype=numpy.float64)
        prices = numpy.concatenate([old, *(batch["price"].to_numpy() for batch in batches)])
        total = seen + len(prices) - len(old)
        sums = numpy.concatenate([[0.0], numpy.cumsum(prices)])
        # Row counts of this key at which a window is due, and where they lie in `prices`.
        ends = numpy.arange(seen + slide - seen % slide, total + 1, slide) - (seen - len(old))
        starts = numpy.maximum(ends - history, 0)
        state.update((prices[-history:].tobytes(), total))
        if len(ends):
            yield pandas.DataFrame({"key": key[0], "average": (sums[ends] - sums[starts]) / (ends - starts)})

    return averages


def expected_averages(prices: np.ndarray[Any, np.dtype[np.float64]], history: int, slide: int) -> list[float]:
    """What the function must yield for the prices of one key, computed the plain way."""
    return [float(np.mean(prices[max(end - history, 0) : end])) for end in range(slide, len(prices) + 1, slide)]
