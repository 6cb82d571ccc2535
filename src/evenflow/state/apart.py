"""Held rows taken apart by partition: where each partition's rows lie in the runs of an operator.

It is done some thousand rows at a time, with a rest between, since a checkpoint does it beside a loop that goes on. Nothing here holds
the interpreter for longer than it takes to sort one slice: `np.bincount`, `np.isin`, `np.unique` and `np.cumsum` of truth values do so for
all rows that they are given, so they are given new ones only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evenflow.stream.arrays import Bools, Int32s, Int64s

SLICE_ROWS: Final = 1 << 15
"""Rows that are looked at in one go."""
NOWHERE_AT_ALL: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Lying:
    """The rows of one run. partition: int32 (n,), of each. start: rows before it do not count. alive: bool (n,), which do; None: all from
    `start` on. dead: partitions whose rows do not."""

    partition: Int32s
    start: int = 0
    alive: Bools | None = None
    dead: Collection[int] = ()


class Apart:
    """places: by partition, int64, where its rows lie in all runs, one run after the other, ascending."""

    def __init__(self, runs: Iterable[Lying], rest: Callable[[], None]) -> None:
        found: dict[int, list[Int64s]] = {}
        starts = [0]
        for run in runs:
            before = starts[-1]
            for first in range(run.start, run.partition.size, SLICE_ROWS):
                _sort_slice(run, slice(first, first + SLICE_ROWS), before, found)
                rest()
            starts.append(before + run.partition.size)
        self._starts = np.array(starts)
        self.places = {partition: np.concatenate(found[partition]) for partition in sorted(found)}

    def of(self, partition: int) -> Int64s:
        return self.places.get(partition, NOWHERE_AT_ALL)

    def by_run(self, at: Int64s) -> list[tuple[int, Int64s]]:
        """(number of a run, places in it) for each run that has any of these, ascending."""
        bounds = np.searchsorted(at, self._starts).tolist()
        spans = zip(bounds[:-1], bounds[1:], self._starts.tolist(), strict=False)
        return [(number, at[a:b] - start) for number, (a, b, start) in enumerate(spans) if b > a]

    def gather(self, arrays: Sequence[npt.NDArray[Any]], at: Int64s) -> npt.NDArray[Any]:
        """What an array for each run has at these places, ascending."""
        found = [arrays[number][places] for number, places in self.by_run(at)]
        return np.concatenate(found) if found else NOWHERE_AT_ALL


def _sort_slice(run: Lying, here: slice, before: int, found: dict[int, list[Int64s]]) -> None:
    owners, at = run.partition[here], None
    if run.alive is not None:
        at = np.flatnonzero(run.alive[here])
        owners = owners[at]
    order = np.argsort(owners, kind="stable")
    owners = owners[order]
    places = (order if at is None else at[order]) + (before + here.start)
    for partition, (start, stop) in ranges(owners).items():
        if partition not in run.dead:
            found.setdefault(partition, []).append(places[start:stop])


def ranges(partition: Int32s) -> dict[int, tuple[int, int]]:
    """Where each partition's rows begin and end. partition: int32 (n,), of each row, ascending."""
    if not partition.size:
        return {}
    first = [0, *(np.flatnonzero(partition[1:] != partition[:-1]) + 1).tolist()]
    return {int(partition[a]): (a, b) for a, b in zip(first, [*first[1:], partition.size], strict=True)}


def among(some: Int64s, others: Int64s) -> Bools:
    """bool (n,): which of some are among others. Sorted numbers are found fast; others are sorted first."""
    if not others.size:
        return np.zeros(some.size, np.bool_)
    if not (others[1:] >= others[:-1]).all():
        others = np.sort(others)
    at = np.searchsorted(others, some)
    at[at == others.size] = 0
    found: Bools = others[at] == some
    return found


def summed(counts: Iterable[Int64s]) -> Int64s:
    """int64: rows of each partition in all of these together, which may be of different lengths."""
    each = list(counts)
    found = np.zeros(max([one.size for one in each], default=0), np.int64)
    for one in each:
        found[: one.size] += one
    return found


def less(counts: Int64s, partition: Int32s) -> Int64s:
    """Rows of each partition without these. partition: int32 (n,), of each row that goes. Cost: O(rows that go)."""
    return counts - np.bincount(partition, minlength=counts.size) if partition.size else counts


def without(counts: Int64s, dead: Sequence[int]) -> Int64s:
    """Rows of each partition, of those that have left none."""
    if not dead:
        return counts
    counts = counts.copy()
    counts[[partition for partition in dead if partition < counts.size]] = 0
    return counts


def counts_for(counts: Int64s, partitions: Int64s) -> Int64s:
    """int64 (p,): those of these partitions; 0 where there is none."""
    found = np.zeros(partitions.size, np.int64)
    here = partitions < counts.size
    found[here] = counts[partitions[here]]
    return found
