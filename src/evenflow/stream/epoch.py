"""Epochs and the facts that travel with them.

An epoch is the unit of everything: input, exchange, processing, acknowledgement, plan change (protocol E1-E8).
This file knows no clock: stamps arrive from the ingress and are content (E6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NO_WATERMARK: Final = -(2**63)
"""Event-time watermark before anything is known, in microseconds."""

END_OF_STREAM: Final = 2**63 - 1
"""Event-time watermark of a stream that has ended (E6)."""


IDLE: Final = END_OF_STREAM - 1
"""In place of the watermark of a producer that is idle: it says nothing of event time, and holds nobody back."""


ALL_KEPT: Final = 2**32
"""Kept of an epoch of which nothing is left out (D4)."""


@dataclass(frozen=True, slots=True)
class Lost:
    """What rows may be missing since some were left out under overload: of units whose hash is `kept` or more, rows of event time `newest`
    at most, see `Tick.missed`. before: windows that end later than this could get them."""

    before: int
    newest: int
    kept: int


def behind(watermark: int, lag_us: int) -> int:
    """The watermark of rows that may be `lag_us` older than it, microseconds. What is not known or over stays so."""
    if lag_us == 0 or watermark >= IDLE:
        return watermark
    return max(NO_WATERMARK, watermark - lag_us)


@dataclass(frozen=True, slots=True)
class Tick:
    """What an operator may know about the epoch it processes, besides its rows.

    epoch: number, from 1. stamp: wall clock of the ingress at the epoch's close, microseconds (E6; content).
    before: watermark at the epoch's start, against which lateness is judged (E8), event-time microseconds.
    watermark: watermark at the epoch's end; results up to it are final. END_OF_STREAM in the last epoch. idle: all who could say more about
    event time are idle. kept: the least that any source's partition has kept of the epoch. newest: the greatest event time that a source
    has given so far. missed: no row of the epoch that was left out is newer than this. lost: what may be missing of windows that are not
    over, this epoch's included, where somebody asks for that.
    """

    epoch: int
    stamp: int
    before: int
    watermark: int
    idle: bool = False
    kept: int = ALL_KEPT
    newest: int = NO_WATERMARK
    missed: int = NO_WATERMARK
    lost: tuple[Lost, ...] = ()

    @property
    def mark(self) -> int:
        """What a segment tells its consumers of event time at the epoch's end."""
        return IDLE if self.idle else self.watermark

    @property
    def last(self) -> bool:
        """Whether the sources have ended. Epochs follow in which they still have, while others of the dataflow go on."""
        return self.watermark == END_OF_STREAM

    @property
    def ends(self) -> bool:
        """Whether it is the epoch with which they have."""
        return self.last and self.before != END_OF_STREAM
