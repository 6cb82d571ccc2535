"""What estimates must be of the rows that stayed, as `query.estimates` defines them, and how far sums of doubles may be from it.

The engine adds up what it needs in one pass, some of it before the exchange, and an average's error is a difference of such sums; here it
takes a second pass. Both are right, and differ in their last bits. Of a sum of m doubles, in whatever order, these are less than m 2^-53 of
the sum of what is added, without its signs (Higham, Accuracy and Stability of Numerical Algorithms, 4.2): nothing more is let pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

ESTIMATES: Final = ("n", "n_error", "total", "total_error", "mean", "mean_error")
Z: Final = 1.96
STEPS: Final = 8
"""Roundings for each row in an average's error, in units of 2^-52: some 7 of 2^-53 here, and as many in the engine. The mean is a quotient
of two sums and goes in squared, what it is multiplied with is a third, and n divides it twice. Other estimates have fewer."""


class Expected:
    """The estimates of a window. of: what each row stands for, and its value."""

    def __init__(self, of: Sequence[tuple[float, float]]) -> None:
        w, x = np.array(of, float).T
        n, total, v = w.sum(), (w * x).sum(), w * (w - 1)
        mean, size = total / n, (w * np.abs(x)).sum() / n
        ones = np.ones_like(x)
        variances = [float((v * each * each).sum()) for each in (ones, x, (x - mean) / n)]
        errors = [float(Z * np.sqrt(each)) for each in variances]
        self.row = (float(n), errors[0], float(total), errors[1], float(mean), errors[2])
        added = [Z * Z * float((v * each * each).sum()) for each in (ones, np.abs(x), (np.abs(x) + size) / n)]
        self._slack = STEPS * (len(w) + 4) * 2.0**-52 * np.array([n, added[0], n * size, added[1], size, added[2]])

    def holds(self, found: Mapping[str, Any]) -> bool:
        """Whether a result differs from these by no more than rounding. Errors are roots: their squares are compared, which are sums."""
        got, want = np.array([found[name] for name in ESTIMATES], float), np.array(self.row)
        for each in (got, want):
            each[1::2] *= np.abs(each[1::2])
        return bool((np.abs(got - want) <= self._slack).all())
