"""Which of the epochs that are ready at a site goes first, when it has too much (distribution.md, order at a site; Aurora's scheduling).

    urgency   weight * |latency'(age)| * rows / cost          what is lost for each second that this waits, for each second that it takes
    in turn   what only protected outputs need; else the greatest urgency; of equal ones the oldest; each eighth time the oldest of all

An output without a latency is worth the same whenever it comes, so it waits for those that are not; nothing waits for ever. Which epoch
goes first changes no answer: each box has its epochs in order, whoever is before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from evenflow.plan.layout import Worth

EVERY: Final = 8
"""Each time in so many the oldest goes first."""
PROTECTED: Final = float("inf")


class Ready(NamedTuple):
    """An epoch of a box that could go now. since_us: when it was opened. cost_us: what its rows will take, above 0."""

    worths: tuple[Worth, ...]
    since_us: int
    rows: int
    cost_us: float


def urgency(ready: Ready, now_us: int) -> float:
    """Utility per second that is lost while it waits, by the seconds that it takes. Infinite where an output that it feeds is protected."""
    found = 0.0
    for worth in ready.worths:
        if worth.protected:
            return PROTECTED
        found += worth.weight * steepness(worth, now_us - ready.since_us)
    return found * ready.rows / ready.cost_us


def steepness(worth: Worth, age_us: int) -> float:
    """How fast an answer of this age loses worth, per microsecond. At a corner what comes after it counts."""
    for (at, high), (until, low) in pairwise(worth.latency):
        if at <= age_us < until:
            return (high - low) / (until - at)
    return 0.0


def first(ready: Sequence[Ready], now_us: int, number: int) -> int:
    """The place of what goes first. number: of choices before. Deterministic; the first of equal ones."""
    if len(ready) < 2:
        return 0
    if number % EVERY == EVERY - 1:
        return min(range(len(ready)), key=lambda at: ready[at].since_us)
    return min(range(len(ready)), key=lambda at: (-urgency(ready[at], now_us), ready[at].since_us))
