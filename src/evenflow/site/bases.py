"""What the coordinator says of bases: up to where one is safe, and from which one lost partitions begin again (availability.md, B1, B2)."""

from __future__ import annotations

from dataclasses import dataclass

from evenflow.availability.entries import Piece
from evenflow.stream.ids import CopyNumber


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """The checkpoint is whole, and in the journal (K5). epoch: that it is of: what came up to then is never asked for again (B2)."""

    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Revive:
    """Read the state of a copy to here that has a base (B1), whose plan is committed. pieces: of the checkpoint at the end of `epoch` that
    have any of its partitions; none at epoch 0, where there is no state."""

    copy: CopyNumber
    segment: int
    partitions: tuple[int, ...]
    epoch: int
    pieces: tuple[Piece, ...]


OfBases = CheckpointCompleted | Revive
