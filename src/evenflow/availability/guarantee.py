"""What an output can promise through failures, and what boxes and modes let it promise (HW 3.1, 3.2; availability.md, M1).

Three things bound it. How a box depends on its past decides what a mode can bring back of it; the mode decides what is there to bring it
back from; and a sink that cannot remember an epoch may be given it twice. The worst of all that lies upstream of an output is what the
output has (HW 3.2.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from evenflow.availability.mode import Mode
from evenflow.availability.naming import named


class Guarantee(StrEnum):
    """What becomes of an output when sites are lost. The values are what users write, from the weakest on."""

    GAP = "gap"
    """Rows may be missing, and it is said which epochs and how many."""
    NO_LOSS = "no-loss"
    """No row is missing; some may come twice."""
    PRECISE = "precise"
    """The output is the one that there would have been without a failure."""


class OperatorClass(StrEnum):
    """How what a box puts out depends on what it has had (HW 3.2.2), from the tamest on."""

    REPEATABLE = "repeatable"
    """On the row alone: from an empty state, the same input gives the same output, row by row."""
    CONVERGENT = "convergent-capable"
    """On rows not older than some bound: begun anew from there, it soon gives what it would have given."""
    DETERMINISTIC = "deterministic"
    """On all that ever came: without its state it never gives the same again."""
    ARBITRARY = "arbitrary"
    """On more than its input: asked twice, it may answer otherwise."""


CHEAPEST_FIRST: Final = (Mode.AMNESIA, Mode.UPSTREAM, Mode.PASSIVE, Mode.PAIRS)
"""By what they cost while nothing fails."""

_GAP, _PRECISE = Guarantee.GAP, Guarantee.PRECISE
GIVES: Final[Mapping[OperatorClass, Mapping[Mode, Guarantee | None]]] = {
    OperatorClass.REPEATABLE: {Mode.AMNESIA: _GAP, Mode.UPSTREAM: _PRECISE, Mode.PASSIVE: _PRECISE, Mode.PAIRS: _PRECISE},
    OperatorClass.CONVERGENT: {Mode.AMNESIA: _GAP, Mode.UPSTREAM: _PRECISE, Mode.PASSIVE: _PRECISE, Mode.PAIRS: _PRECISE},
    OperatorClass.DETERMINISTIC: {Mode.AMNESIA: _GAP, Mode.UPSTREAM: None, Mode.PASSIVE: _PRECISE, Mode.PAIRS: _PRECISE},
    OperatorClass.ARBITRARY: {Mode.AMNESIA: _GAP, Mode.UPSTREAM: None, Mode.PASSIVE: None, Mode.PAIRS: _PRECISE},
}
"""What a box of a class can promise in a mode; None: it cannot have the mode, since nothing that is kept brings its state back. What is
arbitrary would make from a base on what nobody has been given, and go on from there, while others have what was given."""


def guarantee_named(given: Any, where: str) -> Guarantee:
    """The guarantee that a user has written. Raises AvailabilityError."""
    return named(list(reversed(Guarantee)), "guarantee", given, where)


def at_least(given: Guarantee | None, wanted: Guarantee) -> bool:
    """Whether what is given is no weaker than what is wanted."""
    order = list(Guarantee)
    return given is not None and order.index(given) >= order.index(wanted)


def cheapest(of: OperatorClass, wanted: Guarantee) -> Mode | None:
    """The mode that costs least of those in which a box of the class can promise so much; None if there is none."""
    return next((mode for mode in CHEAPEST_FIRST if at_least(GIVES[of][mode], wanted)), None)
