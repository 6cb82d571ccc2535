"""What came out of a query and when: rates, ages over time, and whether it was all that there must be. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from evenflow.bench.gaps import weighted_percentile
from evenflow.stream.arrays import Floats, Int64s

KEEPS_UP: Final = 0.95
"""A query that puts out less than this part of what comes in falls behind."""
GROWN: Final = 2.0
"""So does one whose rows are this many times as old at the end as at the beginning,"""
GROWN_MS: Final = 200.0
"""and older by more than this."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Rows that came out, in order. at_s: when, seconds since any moment. age_ms: since they were due. weight: rows that an entry stands
    for. All of shape (n,)."""

    at_s: Floats
    age_ms: Floats
    weight: Floats

    def between(self, first_s: float, last_s: float) -> Delivered:
        """What came out from first_s to before last_s."""
        chosen = (self.at_s >= first_s) & (self.at_s < last_s)
        return Delivered(self.at_s[chosen], self.age_ms[chosen], self.weight[chosen])

    @property
    def rows_per_s(self) -> float | None:
        """From the first moment at which something came out, whose rows do not count, to the last one. None: there are not two moments."""
        if not len(self.at_s) or self.at_s[-1] == self.at_s[0]:
            return None
        return float(self.weight[self.at_s > self.at_s[0]].sum() / (self.at_s[-1] - self.at_s[0]))

    def age_percentile_ms(self, percent: float) -> float | None:
        """The least age that so many per cent of the rows do not exceed. None: there are no rows."""
        return weighted_percentile(self.age_ms, self.weight, percent) if len(self.age_ms) else None

    def over_time(self, end_s: float, width_s: float = 1.0) -> list[dict[str, float | None]]:
        """at_s (the middle), rows_per_s and p99_ms of each piece of `width_s` from 0 on that ends by end_s. p99_ms None: nothing came."""
        pieces = [(number * width_s, self.between(number * width_s, (number + 1) * width_s)) for number in range(int(end_s / width_s))]
        return [
            {
                "at_s": round(begin_s + width_s / 2, 3),
                "rows_per_s": round(float(piece.weight.sum()) / width_s, 1),
                "p99_ms": rounded(piece.age_percentile_ms(99)),
            }
            for begin_s, piece in pieces
        ]


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


@dataclass(frozen=True, slots=True)
class Probe:
    """A query at a set rate. rows_per_s: what it put out. p99_first_ms, p99_last_ms: age in the first and the last third of the time."""

    rate: int
    rows_per_s: float | None
    p99_first_ms: float | None
    p99_last_ms: float | None

    @property
    def falls_behind(self) -> bool:
        """It puts out less than comes in, or what it puts out gets older and older."""
        if self.rows_per_s is None or self.p99_first_ms is None or self.p99_last_ms is None or self.rows_per_s < KEEPS_UP * self.rate:
            return True
        return self.p99_last_ms > GROWN * self.p99_first_ms and self.p99_last_ms > self.p99_first_ms + GROWN_MS


def probed(rate: int, seen: Delivered, first_s: float, last_s: float) -> Probe:
    """What a query at `rate` did between two moments."""
    third_s = (last_s - first_s) / 3
    first, last = seen.between(first_s, first_s + third_s), seen.between(last_s - third_s, last_s)
    return Probe(
        rate,
        rounded(seen.between(first_s, last_s).rows_per_s),
        rounded(first.age_percentile_ms(99)),
        rounded(last.age_percentile_ms(99)),
    )


def ramp(rates: Iterable[int], measure: Callable[[int], Probe]) -> tuple[int | None, list[Probe]]:
    """Try the rates, ascending, until one is too much. Returns the last that was not, None if the first was, and all probes."""
    sustained, probes = None, []
    for rate in rates:
        probes.append(measure(rate))
        if probes[-1].falls_behind:
            break
        sustained = rate
    return sustained, probes


@dataclass(frozen=True, slots=True)
class Audit:
    """Answers to numbered rows against what they must be. rows: answered. lost: rows of a source partition that were not answered although
    a later one was. repeated: answered again. wrong: answers that do not count the rows of their key one by one."""

    rows: int
    lost: int
    repeated: int
    wrong: int

    def to_json(self) -> dict[str, Any]:
        return {"rows_compared": self.rows, "rows_lost": self.lost, "rows_repeated": self.repeated, "rows_wrong": self.wrong}


def audit(numbers: Int64s, keys: Int64s, counts: Int64s, partitions: int) -> Audit:
    """Check answers, in the order in which they came. All of shape (n,). Row `number` is of source partition `number % partitions`.

    counts: how many rows of its key there were up to this one. Cost: O(n log n).
    """
    if not len(numbers):
        return Audit(0, 0, 0, 0)
    distinct = np.unique(numbers)
    # The newest answered row of each partition says how many there must be.
    newest = np.full(partitions, -1, np.int64)
    np.maximum.at(newest, distinct % partitions, distinct // partitions)
    order = np.argsort(keys, kind="stable")
    of_key, counted = keys[order], counts[order]
    starts = np.flatnonzero(np.concatenate(([True], of_key[1:] != of_key[:-1])))
    expected = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order)))) + 1
    return Audit(
        rows=len(numbers),
        lost=int((newest + 1).sum()) - len(distinct),
        repeated=len(numbers) - len(distinct),
        wrong=int((counted != expected).sum()),
    )
