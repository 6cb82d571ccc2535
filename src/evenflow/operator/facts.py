"""What the operators of a segment are beyond what every operator owes the engine: found once, when they are built.

Who has one of these facts says so by a mixin (`Timeless`, `Timed`, `Late`, `Failing`, `End`, `Tabled`), so nobody asks an object for an
attribute by its name, and an epoch pays for the operators only that have something to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evenflow.operator.operator import Changing, End, Failing, Gated, Late, Partitioned, Reaching, Timed, Timeless
from evenflow.operator.tabled import Tabled
from evenflow.plan.layout import Keys, Windows
from evenflow.stream.epoch import ALL_KEPT, NO_WATERMARK, Lost

SPANS: Final = 64
"""So many spans of time in which keys lost rows are told apart. Those that are older are one, of which the least was kept."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Of the operators of a segment, in the order of its steps."""

    timeless: bool
    """An epoch without rows changes nothing in any of them."""
    timed: tuple[Timed, ...]
    """Those that have something to do at some stamp."""
    shares: tuple[Tabled | None, ...]
    """By step: the operator whose state is a table, which two cohorts may share; None where it is none."""
    changing: tuple[Changing | None, ...]
    """By step: the operator of whose state a checkpoint may have the changes only; None where it has all of it, if there is any."""
    late: tuple[tuple[int, Late], ...]
    """Those that leave out rows that come too late, each with its step."""
    failed: tuple[Failing | None, ...]
    """By step: the operator that goes on without the rows on which it raises; None where it does not."""
    ends: tuple[End, ...]
    """Those in which rows end."""
    reaching: tuple[Reaching, ...] = ()
    """Those whose state closes."""
    gates: tuple[Windows | Keys, ...] = ()
    """What is whole behind those that hold back what has become a part."""
    around_us: int = 0
    """The most that a row may be before such a result and count for it."""

    @staticmethod
    def of(operators: Sequence[Partitioned]) -> Facts:
        return Facts(
            timeless=all(isinstance(each, Timeless) and each.timeless for each in operators),
            timed=tuple(each for each in operators if isinstance(each, Timed)),
            shares=tuple(each if isinstance(each, Tabled) else None for each in operators),
            changing=tuple(each if isinstance(each, Changing) else None for each in operators),
            late=tuple((step, each) for step, each in enumerate(operators) if isinstance(each, Late)),
            failed=tuple(each if isinstance(each, Failing) else None for each in operators),
            ends=tuple(each for each in operators if isinstance(each, End)),
            reaching=tuple(each for each in operators if isinstance(each, Reaching)),
            gates=tuple({each.whole: None for each in operators if isinstance(each, Gated)}),
            around_us=max([each.around_us for each in operators if isinstance(each, Gated)], default=0),
        )

    def losing(self, lost: tuple[Lost, ...], before: int, missed: int, kept: int) -> tuple[Lost, ...]:
        """What may be missing behind an epoch (D4). lost: behind the one before it; before: the watermark there. missed, kept: of the
        epoch. Forgets what is over. How far event time has come does not matter: one row that is years ahead would have all lost for years.

        Windows are told apart by where they begin and end only, so what an epoch adds to such a step of the one before is one with it.
        """
        if not self.gates or not (lost or kept < ALL_KEPT):
            return ()
        windows = [each for each in self.gates if isinstance(each, Windows)]
        if len(windows) < len(self.gates):
            return _since(lost, before, missed, kept)
        if lost and before > lost[0].before:
            reach_us = max(each.size_us for each in windows)
            lost = tuple(each for each in lost if each.newest > before - reach_us)
        if kept == ALL_KEPT:
            return lost
        if len(windows) == 1:
            slide_us, start_us = windows[0].slide_us, windows[0].start_us
            if windows[0].size_us % slide_us == 0:  # Then they end where others begin.
                before = max(NO_WATERMARK, (before - start_us) // slide_us * slide_us + start_us)
            missed = max(NO_WATERMARK, (missed - start_us) // slide_us * slide_us + start_us)
        if lost and (lost[-1].before, lost[-1].newest) == (before, missed):
            return (*lost[:-1], Lost(before, missed, min(kept, lost[-1].kept)))
        return (*lost, Lost(before, missed, kept))

    @property
    def late_rows(self) -> Counter[int]:
        """Rows that came too late so far, by step."""
        return Counter({step: each.late_rows for step, each in self.late})


def _since(lost: tuple[Lost, ...], before: int, missed: int, kept: int) -> tuple[Lost, ...]:
    """What keys may have lost behind an epoch. Nothing is ever over: a session may be as long as it likes. But where as much was kept of
    two epochs in a row, nothing ends before the second that begins behind the first, so they are one span."""
    if kept == ALL_KEPT:
        return lost
    if lost and lost[-1].kept == kept and before <= lost[-1].newest:
        return (*lost[:-1], Lost(lost[-1].before, max(missed, lost[-1].newest), kept))
    lost = (*lost, Lost(before, missed, kept))
    while len(lost) > SPANS:
        lost = (Lost(lost[0].before, max(lost[0].newest, lost[1].newest), min(lost[0].kept, lost[1].kept)), *lost[2:])
    return lost


def together(one: tuple[Lost, ...], other: tuple[Lost, ...]) -> tuple[Lost, ...]:
    """What may be missing of partitions that go on together, behind the same epoch. All who have seen the same epochs know the same, and
    who has begun with nothing since knows less. What is there twice does no harm: the least counts."""
    if set(other) <= set(one):
        return one
    return other if set(one) <= set(other) else tuple(sorted({*one, *other}, key=lambda each: (each.before, each.newest, each.kept)))
