"""Cuts by content: which epoch a row belongs to, as a function of the row's number and of those before it in its partition (E9).

A row's number is a log time or a place. Its epoch is counted by the greatest number so far, so epochs never fall: a number that comes late
enters the current epoch. Readers need no word between them for that, whatever their clocks are and however many rows they read at once; and
whoever begins behind an epoch's last row needs to know nothing of what came before (`Running`).

This file knows no source, reader or site.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

NO_NUMBER: Final = -(2**63)
"""Of a row that has none: it enters the current epoch."""
WHOLE: Final = 2**62
"""All rows of epochs up to this one are known: no row comes any more."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Where epochs begin and end. origin: number at which epoch 1 begins; whatever is smaller is in it too. width: of an epoch, in numbers.
    begin_us, step_us: time at which epoch 1 begins, and the time that an epoch takes: where numbers are times, the same as those.
    """

    origin: int
    width: int
    begin_us: int
    step_us: int

    def epoch(self, greatest: int) -> int:
        """Of a row, by the greatest number of its partition so far."""
        return 1 + max(0, greatest - self.origin) // self.width

    def first(self, epoch: int) -> int:
        """The least number of an epoch."""
        return self.origin + (epoch - 1) * self.width

    def closed_by(self, promise: int) -> int:
        """The last epoch that is whole when no number smaller than this one comes any more; 0: none (E10)."""
        return max(0, promise - self.origin) // self.width

    def stamp(self, epoch: int) -> int:
        """The stamp of an epoch: the time at which it ends, by the grid and not by anybody's clock (E11)."""
        return self.begin_us + epoch * self.step_us


class TooFarAhead(ValueError):
    """A number is further ahead of those before it than they may be. number, before: of that row, and the greatest before it."""

    def __init__(self, number: int, before: int) -> None:
        super().__init__(f"number {number} is {number - before} ahead of what came before it")
        self.number, self.before = number, before


class Running:
    """The running maximum of one partition.

    ahead: most that a number may be ahead of it; None: as much as it likes. greatest: so far. Whoever begins behind the last row of an
    epoch needs no more than its number: the first row behind it is of a later epoch by its own number, since those before it are not.
    """

    __slots__ = ("_ahead", "greatest", "grid")

    def __init__(self, grid: Grid, ahead: int | None = None) -> None:
        self.grid, self.greatest, self._ahead = grid, grid.origin, ahead

    def begin_behind(self, epoch: int) -> None:
        """What is behind the last row of this epoch comes next. The greatest number is not known then, and is taken for the last one of the
        epoch, which it may be. So a number is let pass that is in order, and none that is not: those up to the first that is beyond the
        epoch passed where the epoch was closed, by who knew the greatest, and from there on it is known here too.
        """
        self.greatest = max(self.grid.origin, self.grid.first(epoch + 1) - 1)

    def epochs(self, numbers: Numbers) -> Numbers:
        """int64 (n,), n > 0: the epoch of each of the next rows, which never falls. Raises TooFarAhead, and changes nothing then."""
        greatest = np.maximum.accumulate(np.maximum(numbers, self.greatest))
        if self._ahead is not None:
            before = np.concatenate([[self.greatest], greatest[:-1]])
            far = np.flatnonzero(greatest - before > self._ahead)
            if far.size:
                raise TooFarAhead(int(numbers[far[0]]), int(before[far[0]]))
        self.greatest = int(greatest[-1])
        epochs: Numbers = 1 + (greatest - self.grid.origin) // self.grid.width
        return epochs

    @property
    def whole(self) -> int:
        """The last epoch that a row of a later one has closed."""
        return self.grid.epoch(self.greatest) - 1


def runs_of(epochs: Numbers) -> list[tuple[int, int, int]]:
    """(epoch, first, rows) of each epoch among rows whose epochs never fall."""
    if epochs[0] == epochs[-1]:
        return [(int(epochs[0]), 0, epochs.size)]
    begins = np.concatenate([[0], np.flatnonzero(np.diff(epochs)) + 1])
    rows = np.diff(np.append(begins, epochs.size))
    return [(int(epochs[at]), int(at), int(count)) for at, count in zip(begins, rows, strict=True)]
