"""What a seed draws, as far as it matters to who looks for a planted bug of a mode of availability; and what such bugs need."""

from __future__ import annotations

from dataclasses import dataclass

from evenflow.availability.mode import Mode


@dataclass(frozen=True, slots=True)
class Traits:
    """Of a seed. modes: all that its boxes have from the start; empty: it has no boxes with modes. located: it has a checkpoint location,
    which is the base of passive standby. deadly: sites die, or the run is lost. lasting: they
    die when what they have alone has a base behind the first epoch (`based_cases`)."""

    modes: frozenset[Mode] = frozenset()
    located: bool = False
    deadly: bool = False
    lasting: bool = False


def amnesia(of: Traits) -> bool:
    """Something is lost, and gone on without."""
    return Mode.AMNESIA in of.modes and of.deadly


def upstream(of: Traits) -> bool:
    """Something begins again from what its producers kept."""
    return Mode.UPSTREAM in of.modes and of.lasting


def stored(of: Traits) -> bool:
    """Something begins again from a checkpoint, in the same run."""
    return Mode.PASSIVE in of.modes and of.located and of.deadly


def images(of: Traits) -> bool:
    """Something begins again from an image at another site."""
    return Mode.PASSIVE in of.modes and not of.located and of.lasting
