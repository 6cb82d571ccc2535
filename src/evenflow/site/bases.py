"""What the coordinator says of bases: up to where one is safe, and from which one lost partitions begin again (availability.md, B1, B2).

A base is a checkpoint in the store, or an image at a site that backs up another one (P1 to P5).
"""

from __future__ import annotations

from dataclasses import dataclass

from evenflow.availability.entries import Piece
from evenflow.stream.ids import CopyNumber, SiteId


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """The checkpoint is whole, and in the journal (K5). epoch: that it is of: what came up to then is never asked for again (B2)."""

    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class BaseMoved:
    """What a segment's partitions put out from now on follows from rows after this epoch (B2): what came up to then is never asked for
    again."""

    segment: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Revive:
    """Read the state of a copy to here that has a base (B1), whose plan is committed. pieces: of the checkpoint at the end of `epoch` that
    have any of its partitions; none at epoch 0, where there is no state. unit: whose image here has it; 0: none has. watermark: at the end
    of `epoch`, where it begins with an empty state, since all that it needs is said again; None: it does not."""

    copy: CopyNumber
    segment: int
    partitions: tuple[int, ...]
    epoch: int
    pieces: tuple[Piece, ...]
    unit: int = 0
    watermark: int | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """A checkpoint unit: partitions of a segment at a site that are captured at once, and the site that backs them up (P1). number: never
    used twice in a run."""

    number: int
    segment: int
    partitions: tuple[int, ...]
    backup: SiteId


@dataclass(frozen=True, slots=True)
class BackUp:
    """From now on these are the units of this site, and no others: each is captured now and then, and sent to its backup (P6)."""

    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class ImagePasted:
    """The image of a unit is as of the end of `epoch` (P3). stable: by segment, up to where what it receives is never asked for again."""

    unit: int
    epoch: int
    stable: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReportImages:
    """The site that had these units is dead: paste what is pending of them, take no more, and say of which epoch their images are (P4)."""

    units: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DropImages:
    """Nobody begins again from the images of these units (P5)."""

    units: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Every run outlives this site, whose state is no good any more: it is to end (M1)."""

    why: str


OfBases = CheckpointCompleted | BaseMoved | Revive | BackUp | ImagePasted | ReportImages | DropImages | GiveUp
