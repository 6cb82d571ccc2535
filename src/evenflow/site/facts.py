"""What a site tells the coordinator of a run. Values: nothing here knows who says it, when, or what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evenflow.availability.entries import Cut, Key, Piece
from evenflow.plan.plan import Begins
from evenflow.site.given import SourceLeft
from evenflow.stream.ids import FIRST_TERM, CopyNumber, PlanNumber, Term


@dataclass(frozen=True, slots=True)
class Promised:
    """This site holds the plan and will not open an epoch at or after its effective one before commit or abort (V2)."""

    number: PlanNumber
    heard: tuple[Begins, ...] = ()
    """Of ingress partitions that begin anew with the plan, what this site has heard of them; and where those stand that it leads and that
    have amnesia with it, and had not."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Too late for that epoch: this site has closed `closed` already."""

    number: PlanNumber
    closed: int


@dataclass(frozen=True, slots=True)
class PlanMissing:
    """A frame of plan `number` arrived, which this site does not have."""

    number: PlanNumber


@dataclass(frozen=True, slots=True)
class PartFinished:
    """Every segment here has processed its last epoch and every sink here has committed it. membership: the newest that the site knew."""

    epoch: int
    membership: Term = FIRST_TERM


@dataclass(frozen=True, slots=True)
class Voided:
    """A site reads as empty what nobody has (B4): the frames of these producer partitions of `stream`, from epoch `first` to `last`.
    plan: which says so."""

    plan: PlanNumber
    stream: int
    partitions: tuple[int, ...]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SourcesStand:
    """Rows go from here to a sink, among them what was read here of sources that have no followers, up to there (B4)."""

    heard: tuple[Begins, ...]


@dataclass(frozen=True, slots=True)
class Depends:
    """All that a segment's partitions here put out behind what everybody holds follows from rows after epoch `base` (B2): who loses them
    begins there again, with nothing. watermark: at its end. plan: the newest that the site knows."""

    plan: PlanNumber
    segment: int
    base: int
    watermark: int


@dataclass(frozen=True, slots=True)
class Unread:
    """Partitions began anew behind `stream`, and of what this site has sent them, or would have, nobody has received so many rows (B4)."""

    stream: int
    rows: int


@dataclass(frozen=True, slots=True)
class PartFailed:
    """A box raised. box, epoch, user_traceback, reason: see errors.BoxFailed. kind: the error's class name."""

    box: str
    epoch: int
    user_traceback: str
    reason: str
    kind: str


@dataclass(frozen=True, slots=True)
class CopyLive:
    """The partitions of a copy have come level at its target (C3): they can count as replicas. bytes: of state that came with it."""

    number: CopyNumber
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class TookOver:
    """The target of a copy has heard that it counts, and its partitions are one with those that it had (C3)."""

    number: CopyNumber


@dataclass(frozen=True, slots=True)
class CopyFailed:
    """A copy cannot be finished at this site."""

    number: CopyNumber
    why: str


@dataclass(frozen=True, slots=True)
class Lacking:
    """Partitions of a segment here have what feeds them up to `through` only, and the copy with which that begins again makes what follows
    only from its base on (B3)."""

    number: CopyNumber
    segment: int
    partitions: tuple[int, ...]
    through: int


@dataclass(frozen=True, slots=True)
class Digests:
    """What the partitions of a segment here have put out up to and including `epoch`. values: uint64, little-endian, one each (E3)."""

    segment: int
    epoch: int
    partitions: tuple[int, ...]
    values: bytes


@dataclass(frozen=True, slots=True)
class DiskTrouble:
    """State that should have gone to disk stays in memory, beyond the budget; it is tried again."""

    why: str


@dataclass(frozen=True, slots=True)
class UserCodeSlow:
    """User code has not returned for a while. seconds: since it began on the epoch. where: the stack that it is at. over: it has returned
    now, after all."""

    box: str
    epoch: int
    seconds: float
    where: str
    over: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    """All that the checkpoint wants from this site is in the store, and the sinks here have stored its epoch (K5)."""

    number: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class CheckpointLate:
    """This site is beyond the checkpoint's epoch (K6). done: the last one that it has begun."""

    number: int
    done: int


@dataclass(frozen=True, slots=True)
class CheckpointUnable:
    """This site cannot give the checkpoint what it wants from here (K6)."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Logged:
    """Cuts of ingress partitions that this site leads, which all live members hold (J2): for each, ascending and without gaps. A successor
    tells again what may not be durable."""

    cuts: Mapping[Key, tuple[Cut, ...]]


@dataclass(frozen=True, slots=True)
class StateUnreadable:
    """State with which this site is to begin is not in the store, or is not what was written (K9)."""

    why: str


@dataclass(frozen=True, slots=True)
class DiskLost:
    """State of a box that is on the site's disk cannot be read any more (M1). epoch: that it is wanted for."""

    box: str
    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class RowsShed:
    """An epoch of an ingress partition was processed here, and rows of its source had been left out: of those from position `first` to
    before `taken`. keep, dropped, stamp: as in `Record`. kept: rows that it has. Every replica says so (D5)."""

    segment: int
    partition: int
    epoch: int
    first: int
    taken: int
    keep: tuple[int, ...]
    kept: int
    dropped: tuple[int, ...]
    stamp: int


@dataclass(frozen=True, slots=True)
class Pasted:
    """A capture was pasted into the image of a unit here, which is as of the end of `epoch` now (P3); -1: there is no image. bytes:
    memory that it takes. own: (segment, partitions) of consumers, frames for which are in it, too."""

    unit: int
    epoch: int
    bytes: int = 0
    own: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Imaged:
    """What was asked with `ReportImages`: how far the images are, and will be (P4)."""

    images: tuple[Pasted, ...]


@dataclass(frozen=True, slots=True)
class NoRoom:
    """This site has no memory for the image of a unit, which takes about so many bytes: another one is to back it up (P1)."""

    unit: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ArcThinned:
    """An epoch of producer partitions of an arc was processed here, and the plan kept less than all of their rows. keep: by class, in
    parts of 2^32. partitions: ascending, those that had rows. offered, dropped: rows, int64 (partitions, classes), packed. stamp: of the
    epoch. Every replica says so (D5)."""

    arc: int
    epoch: int
    keep: tuple[int, ...]
    partitions: tuple[int, ...]
    offered: bytes
    dropped: bytes
    stamp: int


Fact = (
    Promised
    | Refused
    | PlanMissing
    | PartFinished
    | PartFailed
    | CopyLive
    | TookOver
    | CopyFailed
    | Lacking
    | Digests
    | DiskTrouble
    | UserCodeSlow
    | CheckpointStored
    | CheckpointLate
    | CheckpointUnable
    | Logged
    | RowsShed
    | ArcThinned
    | Voided
    | SourcesStand
    | SourceLeft
    | Depends
    | Unread
    | StateUnreadable
    | Pasted
    | Imaged
    | NoRoom
    | DiskLost
)
