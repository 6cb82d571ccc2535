"""What of a plan a restart has to know: that on which the content of frames depends, and what a user has chosen meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from evenflow.availability.mode import Mode, Modes
from evenflow.plan.layout import Ranges
from evenflow.plan.plan import Newcomers, Plan


@dataclass(frozen=True, slots=True)
class Content:
    """What of a plan the content of frames depends on, from epoch `effective` on. ranges, weights: as in `Plan`. version: its number,
    0 for the dataflow as it was begun. program: names what is kept of the version at the location, once for ever; empty for none.
    newcomers: as in `Plan`; rows of theirs may be in epochs before, but in no entry before this one's. modes: as in `Plan`; no content
    depends on them, but a restart goes on with what a user has chosen meanwhile. keeps: as in `Plan`."""

    effective: int
    ranges: tuple[Ranges, ...] = ()
    weights: tuple[tuple[int, ...], ...] = ()
    version: int = 0
    newcomers: Newcomers = ()
    modes: Modes = ()
    keeps: tuple[tuple[float, ...], ...] = ()
    program: str = ""

    @staticmethod
    def of(plan: Plan) -> Content:
        version, program = (0, "") if plan.version is None else (plan.version.number, plan.version.program)
        return Content(plan.effective, plan.ranges, plan.weights, version, plan.newcomers, plan.modes, plan.settings.keeps, program)

    def same(self, other: Content) -> bool:
        """Whether they differ in no more than when they begin to act."""
        return replace(self, effective=other.effective) == other


def said_content(content: Content) -> list[Any]:
    """As an entry of the journal has it: what is not there is left out at the end."""
    ranges = [[list(pair) for pair in of] for of in content.ranges]
    newcomers = [[segment, list(names)] for segment, names in content.newcomers]
    later: list[Any] = [newcomers, [str(mode) for mode in content.modes], [list(of) for of in content.keeps], content.program]
    while later and not later[-1]:
        later.pop()
    return [content.effective, ranges, [list(of) for of in content.weights], content.version, *later]


def content_of(said: Sequence[Any]) -> Content:
    """What `said_content` said. Raises TypeError or ValueError for anything else."""
    effective, ranges, weights, version, *later = said
    left_out: tuple[Any, ...] = ((), (), (), "")
    came, modes, keeps, program = (*later, *left_out[len(later) :])
    return Content(
        as_int(effective),
        tuple(tuple((as_int(first), as_int(partition)) for first, partition in of) for of in ranges),
        tuple(tuple(as_int(weight) for weight in of) for of in weights),
        as_int(version),
        tuple((as_int(segment), tuple(as_text(name) for name in names)) for segment, names in came),
        tuple(Mode(as_text(mode)) for mode in modes),
        tuple(tuple(_share(share) for share in of) for of in keeps),
        as_text(program),
    )


def _share(said: Any) -> float:
    if type(said) not in (int, float) or not 0 <= said <= 1:
        raise ValueError(f"{said!r:.60} is no share")
    return float(said)


def as_int(value: Any) -> int:
    """What must be a whole number in what somebody else wrote. Raises TypeError."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def as_text(value: Any) -> str:
    """What must be a text there. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
