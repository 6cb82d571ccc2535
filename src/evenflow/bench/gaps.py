"""Gaps in a query's output, and the ages of its results, from a list of moments at which something came out; percentiles. All pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]
FIRST_MOMENT_S: Final = 1.0
"""Gaps that begin within this of a kill are those of the take-over; a later one has another cause, such as a JVM that starts."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time without output within a span. begin_s: when it began, on the clock of the moments."""

    begin_s: float
    seconds: float


def longest_gap(moments: Times, begin_s: float, end_s: float) -> Gap:
    """The longest time between two moments of output, of those that lie at least partly in [begin_s, end_s].

    moments: sorted, seconds. A gap is whole: it counts from the last output before `begin_s`, and to the first one after `end_s`. Where
    there is no output before or after, it is cut at the edge of the span.
    """
    first = int(np.searchsorted(moments, begin_s, side="right")) - 1
    last = int(np.searchsorted(moments, end_s, side="left"))
    edges = moments[max(first, 0) : last + 1]
    if first < 0:
        edges = np.concatenate(([begin_s], edges))
    if last >= len(moments):
        edges = np.concatenate((edges, [max(end_s, float(edges[-1]))]))
    if len(edges) < 2:
        return Gap(begin_s, 0.0)
    gaps = np.diff(edges)
    at = int(np.argmax(gaps))
    return Gap(float(edges[at]), float(gaps[at]))


def usual_gaps(moments: Times, spans: Sequence[tuple[float, float]], width_s: float) -> list[float]:
    """The longest gap in each piece of `width_s` of the spans, in which nobody was killed. Pieces that do not fit are left out.

    A gap is cut at the ends of its span: what lies behind is a kill's.
    """
    found = []
    every = moments
    for begin_s, end_s in spans:
        moments = every[np.searchsorted(every, begin_s) : np.searchsorted(every, end_s, side="right")]
        for piece in range(int((end_s - begin_s) / width_s)):
            start_s = begin_s + piece * width_s
            found.append(longest_gap(moments, start_s, start_s + width_s).seconds)
    return found


def percentile_ms(seconds: Sequence[float] | Times, percent: float) -> float | None:
    """By nearest rank: the least value that at least so many per cent of them do not exceed, so always one that was seen.

    None if there are none, or if it is endless.
    """
    if len(seconds) == 0:
        return None
    found = float(np.percentile(np.asarray(seconds), percent, method="inverted_cdf"))
    return round(found * 1000, 2) if isfinite(found) else None


def weighted_percentile(values: npt.NDArray[Any], weights: npt.NDArray[Any], percent: float) -> float:
    """The least value that at least so much of the weight, in per cent, does not exceed, so always one of them. There is at least one."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order])
    at = int(np.searchsorted(share, percent / 100 * share[-1]))
    return float(values[order][min(at, len(order) - 1)])


def within(moments: Times, values: Times, spans: Sequence[tuple[float, float]]) -> Times:
    """Those of `values` whose moment lies in one of the spans. moments: sorted, one per value."""
    parts = [values[np.searchsorted(moments, begin_s) : np.searchsorted(moments, end_s)] for begin_s, end_s in spans]
    return np.concatenate(parts) if parts else np.empty(0)
