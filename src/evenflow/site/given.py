"""What is said of a source's partition besides its rows: by the source, and by the site that has led it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpochsGiven:
    """All rows that a source partition has for the epochs up to this one have arrived (E10). segment, partition: of the ingress."""

    segment: int
    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SourceLeft:
    """A source partition has moved away from the site that led it (C3), which had taken in its rows up to position `taken`, whether an
    epoch has them or not. Said to the coordinator, and by that to who leads it now."""

    segment: int
    partition: int
    taken: int


Given = EpochsGiven | SourceLeft
