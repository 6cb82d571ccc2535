"""What the operators of a segment are beyond what every operator owes the engine: found once, when they are built.

Who has one of these facts says so by a mixin (`Timeless`, `Timed`, `Late`, `Failing`, `End`, `Tabled`), so nobody asks an object for an
attribute by its name, and an epoch pays for the operators only that have something to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from evenflow.operator.operator import Changing, End, Failing, Late, Partitioned, Timed, Timeless
from evenflow.operator.tabled import Tabled


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
        )

    @property
    def late_rows(self) -> Counter[int]:
        """Rows that came too late so far, by step."""
        return Counter({step: each.late_rows for step, each in self.late})
