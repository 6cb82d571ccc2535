"""What a balancing policy proposes, and what the coordinator carries out with the copy verb (protocol C3, C5)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Move:
    """The replica of these partitions at site `source` goes to site `target`.

    partitions: of `segment`, ascending. reason: for the person who watches the run.
    """

    segment: int
    partitions: tuple[int, ...]
    source: int
    target: int
    reason: str
