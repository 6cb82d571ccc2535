"""What a source says of its epochs, where it is cut by content."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpochsGiven:
    """All rows that a source partition has for the epochs up to this one have arrived (E10). segment, partition: of the ingress."""

    segment: int
    partition: int
    epoch: int
