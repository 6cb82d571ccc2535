"""Deadlines: which slots of a table fall due when event time moves on, without looking at the others.

A short list of runs, each sorted by time, merged eight at a time like those of `order`: setting and taking cost O(log held) per
slot, amortised, and an epoch in which nothing falls due costs nothing. A slot may be named that is free by now or holds another
row: who takes asks the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from evenflow.stream.arrays import Int64s

MERGE_RUNS: Final = 8
"""Runs of one level that become one run of the next."""


@dataclass(slots=True)
class _Run:
    """due: int64 (n,), ascending, microseconds. slots: int64 (n,). start: those before it have been taken."""

    due: Int64s
    slots: Int64s
    level: int
    start: int = 0


class Deadlines:
    """Slots by the event time at which they fall due."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def set(self, slots: Int64s, due: Int64s) -> None:
        """Add slots. due: int64 (n,), microseconds of event time."""
        if slots.size == 0:
            return
        order = np.argsort(due, kind="stable")
        self._runs.append(_Run(due[order], slots[order], 0))
        while len(self._runs) >= MERGE_RUNS and self._runs[-MERGE_RUNS].level == self._runs[-1].level:
            youngest = self._runs[-MERGE_RUNS:]
            due = np.concatenate([run.due[run.start :] for run in youngest])
            slots = np.concatenate([run.slots[run.start :] for run in youngest])
            order = np.argsort(due, kind="stable")
            self._runs[-MERGE_RUNS:] = [_Run(due[order], slots[order], self._runs[-1].level + 1)]

    def take(self, until: int) -> Int64s:
        """The slots due at or before `until`, each once, ascending; they are forgotten."""
        taken = []
        for run in self._runs:
            stop = int(np.searchsorted(run.due, until, side="right"))
            if stop > run.start:
                taken.append(run.slots[run.start : stop])
                run.start = stop
        if not taken:
            return np.empty(0, np.int64)
        self._runs = [run for run in self._runs if run.start < run.due.size]
        slots = np.sort(np.concatenate(taken))  # np.unique hashes, which takes ten times as long.
        once: Int64s = slots[np.append(True, slots[1:] != slots[:-1])]
        return once

    def clear(self) -> None:
        """Forget all."""
        self._runs = []

    def first_us(self, never: int) -> int:
        """The earliest time at which one falls due, `never` if there is none."""
        return min([int(run.due[run.start]) for run in self._runs], default=never)
