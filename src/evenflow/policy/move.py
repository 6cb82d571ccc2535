"""What a balancing policy proposes, and what the coordinator carries out with the copy verb (protocol C3, C5)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Move:
    """The replica of these partitions at site `source` goes to site `target`.

    partitions: of `segment`, ascending. reason: for the person who watches the run. asked: a person wants it, so a pin does not forbid it.
    """

    segment: int
    partitions: tuple[int, ...]
    source: int
    target: int
    reason: str
    asked: bool = False
