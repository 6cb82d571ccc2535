"""The modes of availability: what a part of a dataflow does so that a lost site costs as little as its user wants (availability.md, HW 3).

A mode belongs to a segment, since partitions of a segment are what is lost and brought back. It is a fact of the plan: everybody acts by
the same one from the same epoch on. What a mode costs and what it gives in return is a row of the table below; nobody else asks which
mode it is where one of the table's columns answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from evenflow.availability.naming import named


class Mode(StrEnum):
    """How a partition comes back. The values are what users write."""

    PAIRS = "pairs"
    """Two or more replicas consume: nothing comes back, another one has it all."""
    PASSIVE = "passive"
    """One replica consumes, and a backup elsewhere holds its state as of a little earlier."""
    UPSTREAM = "upstream"
    """One replica consumes, and its producers keep what its state follows from."""
    AMNESIA = "amnesia"
    """One replica consumes. What it had is gone with it, and that is said and counted."""


Base = Literal["live", "image", "replay", "void"]
"""From what a lost partition begins again (B1): a live replica; the image at its backup; what its producers kept; nothing."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a mode needs, and what becomes of a loss. replicates: as many replicas consume as the dataflow has; else one does. backup: of
    each site another one must hold something, so there are two at least. base: see `Base`. about: for people."""

    replicates: bool
    backup: bool
    base: Base
    about: str


MODES: Final[Mapping[Mode, Row]] = {
    Mode.PAIRS: Row(True, False, "live", "all replicas do all the work"),
    Mode.PASSIVE: Row(False, True, "image", "one replica works, and a backup holds its state"),
    Mode.UPSTREAM: Row(False, True, "replay", "one replica works, and its producers keep what its state follows from"),
    Mode.AMNESIA: Row(False, False, "void", "one replica works, and what is lost with it is counted"),
}

BASED: Final = (Mode.PASSIVE, Mode.UPSTREAM)
"""Modes with which what is lost begins again from a base, and its producers keep what came after that (B1, B2)."""

Modes = tuple[Mode, ...]
"""By segment; empty: all are pairs."""


def mode_named(given: Any, where: str) -> Mode:
    """The mode that a user has written. where: what it was written for, such as "box 'sum'". Raises AvailabilityError."""
    return named(list(Mode), "availability", given, where)


def of_segment(modes: Modes, segment: int) -> Mode:
    """The mode of a segment, from those of a plan."""
    return modes[segment] if modes else Mode.PAIRS


def shortened(modes: Sequence[Mode]) -> Modes:
    """As plans have them: nothing, where all are pairs."""
    return () if all(mode is Mode.PAIRS for mode in modes) else tuple(modes)


def replicas_of(mode: Mode, replicas: int) -> int:
    """How many replicas consume, of a dataflow that has so many."""
    return replicas if MODES[mode].replicates else 1
