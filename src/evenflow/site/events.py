"""What can happen to a dataflow's part at a site, and what the part can ask its world to do.

Events are facts and carry the time at which they were seen; actions are instructions, which a world carries out and never makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import pyarrow as pa

from evenflow.availability.entries import Piece, StoredObject
from evenflow.exchange.portion import Portion
from evenflow.exchange.section import Section, Share
from evenflow.plan.membership import Membership
from evenflow.plan.plan import Copy, Plan
from evenflow.site.chains import Link
from evenflow.site.facts import Fact
from evenflow.site.given import Given
from evenflow.site.hosted import Work
from evenflow.site.images import BaseEvent, ImageOrder
from evenflow.site.kept_rows import ReadRows, RowsRead, RowsStored, RowsUnread, StoreRows
from evenflow.site.outcome import Outcome
from evenflow.state.snapshot import Snapshot
from evenflow.state.storing import StateToStore
from evenflow.state.transfer import Shipped
from evenflow.stream.ids import NO_COPY, CopyNumber, PlanNumber, SiteId


class Kept(Protocol):
    """State on a site's disk: a snapshot like any other, read when it is asked for. Its room on disk is free once nobody holds it."""

    @property
    def size(self) -> int:
        """Bytes on disk."""

    def to_bytes(self) -> bytes:
        """What was written, for any thread. Raises DiskError."""


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Started:
    """Every site can be reached: epochs may open. relief_us: moves have so long to take away state beyond the budget, before disks do."""

    relief_us: int = 0


@dataclass(frozen=True, slots=True)
class RowsArrived:
    """A source partition hosted here has rows. segment, partition: of the ingress. share: whose they are, if a task of Spark has pushed
    them. due_us: when the first of them was due, if somebody asks and the source can say. since_us: when it was there, if before."""

    segment: int
    partition: int
    batch: pa.RecordBatch
    share: Share | None = None
    due_us: int | None = None
    since_us: int | None = None


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A pushed source has delivered a whole Spark batch here: its event times may now advance the watermark. batch: its number."""

    segment: int
    partition: int
    batch: int = 0


@dataclass(frozen=True, slots=True)
class SourceEnded:
    """A source partition will have no more rows."""

    segment: int
    partition: int


@dataclass(frozen=True, slots=True)
class Heard:
    """A peer's section arrived. peer: index of the site that sent it."""

    peer: SiteId
    section: Section


@dataclass(frozen=True, slots=True)
class LinkUp:
    """The link to a peer is new: what was under way on the old one may be lost (V4: a broken link is not a dead site)."""

    peer: SiteId


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The link to a peer is gone, for how long nobody knows. Whether the peer is dead is the coordinator's to say (V4)."""

    peer: SiteId


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """The coordinator says who lives (V1). Acts on receipt."""

    membership: Membership


@dataclass(frozen=True, slots=True)
class StateArrived:
    """The state that a copy brings is here, whole (C3). state: what `Capture.to_bytes` made at the copy's source."""

    copy: CopyNumber
    state: bytes


@dataclass(frozen=True, slots=True)
class StatePartRead:
    """Some of the state of the partitions of a segment that are here from the start, as of the base that the run begins at (K9). states: by
    (partition, step), proven; all that there is of these partitions. rows: of all parts together, about, by step where it is a table's."""

    segment: int
    states: Mapping[tuple[int, int], bytes | memoryview]
    rows: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class StateRead:
    """That was all of it (K9). facts: what goes along with it, as in a `Capture`. links: by step, the objects that tables' rows were in."""

    segment: int
    facts: Mapping[str, Any]
    links: Mapping[int, Sequence[Link]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StateUnread:
    """What `RestoreState` asked for cannot be read, or is not what was written (K9)."""

    segment: int
    why: str


@dataclass(frozen=True, slots=True)
class TransferFailed:
    """The state of a copy cannot arrive whole."""

    copy: CopyNumber
    why: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that this part set has expired."""

    name: Literal["linger", "ack", "heartbeat", "spill", "wake", "install", "journal", "capture"]


@dataclass(frozen=True, slots=True)
class WorkDone:
    """Work that this part asked for has ended, well or with an exception."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class SinkCommitted:
    """A sink has safely stored all epochs up to and including `epoch` (O1)."""

    segment: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SinkTook:
    """A sink that reads by itself has planned to read all epochs up to and including `epoch`, and may read them again until it commits
    (O2). They hold no room any more, and are kept."""

    segment: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Durable:
    """The journal has all that the epochs up to this one depend on: a restart makes them again as they are, so ends may take them (J3)."""

    epoch: int


@dataclass(frozen=True, slots=True)
class PlanProposed:
    """The coordinator proposes a plan that acts from `plan.effective` on."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class PlanCommitted:
    """Everybody has promised: the plan acts from its effective epoch on."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class PlanAborted:
    """The proposed plan is off."""

    number: PlanNumber


@dataclass(frozen=True, slots=True)
class Spilled:
    """What `Spill` asked for is on disk. kept: (partition, step, the state there), as many as were to be written."""

    ticket: int
    kept: tuple[tuple[int, int, Kept], ...]


@dataclass(frozen=True, slots=True)
class SpillFailed:
    """It is not on disk: the disk is full, or fails."""

    ticket: int
    why: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """What `Load` asked for is in memory again, and is what was written. states: by (partition, step)."""

    ticket: int
    states: Mapping[tuple[int, int], bytes]


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """It cannot be read, or is not what was written."""

    ticket: int
    why: str


@dataclass(frozen=True, slots=True)
class StateMemoryChanged:
    """The site may hold this much state in memory from now on (`relinquish` and `donate` of FL 6.1). state_bytes: None for all of it."""

    state_bytes: int | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Capture these partitions at the end of `epoch`, and store them (K1). folder: of its objects. wanted: (segment, partitions), each
    segment once."""

    number: int
    epoch: int
    folder: str
    wanted: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Written:
    """What `StoreState` asked for is stored. links: of objects to which others can be added. rows: `objects.Written.held`, by step."""

    number: int
    segment: int
    objects: tuple[StoredObject, ...]
    links: tuple[Link, ...] = ()
    rows: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """It is not in the store, or not all of it."""

    number: int
    segment: int
    why: str


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Take no more input: treat every source as ended, finish what is under way, then finish."""


Event = (
    Started
    | RowsArrived
    | BatchDone
    | SourceEnded
    | Given
    | RowsStored
    | RowsRead
    | RowsUnread
    | Heard
    | LinkUp
    | LinkDown
    | MembershipChanged
    | StateArrived
    | StatePartRead
    | StateRead
    | StateUnread
    | TransferFailed
    | TimerFired
    | WorkDone
    | SinkCommitted
    | SinkTook
    | Durable
    | PlanProposed
    | PlanCommitted
    | PlanAborted
    | DrainRequested
    | Spilled
    | SpillFailed
    | Loaded
    | LoadFailed
    | StateMemoryChanged
    | Checkpoint
    | BaseEvent
    | Written
    | WriteFailed
)

# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class Say:
    """Send a section to a peer. Order to one peer must be kept. Never to oneself."""

    peer: SiteId
    section: Section


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Fire `name` at `at_us`. Replaces an earlier timer of that name."""

    name: Literal["linger", "ack", "heartbeat", "spill", "wake", "install", "journal", "capture"]
    at_us: int


@dataclass(frozen=True, slots=True)
class Run:
    """Call `work.run()`, beside the event loop if `work.beside`, then hand back `WorkDone`. Works of one part run in turn."""

    work: Work


@dataclass(frozen=True, slots=True)
class Release:
    """Hand a finished epoch to the sink that this egress segment feeds, then, when it is stored, say `SinkCommitted`.
    Epochs come in order. opened: for latency (see Mark). last: no epoch will follow.
    portion: of an `unordered` segment, what it is of an epoch that may not be whole yet; None, without rows: it is, and all is given."""

    segment: int
    sink: str
    epoch: int
    batch: pa.RecordBatch
    opened: int
    last: bool
    portion: Portion | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """Steps of a segment here have stored epochs for good. opened: when the first row of each of them was there."""

    segment: int
    opened: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpenSource:
    """Read this ingress partition here from now on: this site leads it (I1). rows: that its log has already; the reader skips them.
    through: up to there its rows were given before, by a reader of an earlier generation, and are needed again (K10). end: the log's."""

    segment: int
    partition: int
    rows: int
    through: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Meet:
    """More has come to the source of an ingress segment: its readers here are to know all of it (decision 101)."""

    segment: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CloseSource:
    """Read this ingress partition here no more: it has moved away (C3). Its new leader reads on from where its log ends."""

    segment: int
    partition: int


@dataclass(frozen=True, slots=True)
class Ship:
    """Make bytes of the capture, beside the event loop, and bring them to site `copy.target` as `StateArrived` (C2)."""

    copy: Copy
    capture: Shipped


@dataclass(frozen=True, slots=True)
class Spill:
    """Write these states to the site's disk, beside the event loop, then say `Spilled` or `SpillFailed`. One at a time, `Load` included."""

    ticket: int
    states: tuple[tuple[int, int, Snapshot], ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Read these states from the disk, beside the event loop, then say `Loaded` or `LoadFailed`."""

    ticket: int
    kept: tuple[tuple[int, int, Kept], ...]


@dataclass(frozen=True, slots=True)
class StoreState:
    """Make objects of this state, store them beside the loop; say `Written` or `WriteFailed` (K4). soon: most is in no checkpoint yet."""

    number: int
    folder: str
    state: StateToStore
    soon: bool = False

    @property
    def segment(self) -> int:
        return self.state.segment


@dataclass(frozen=True, slots=True)
class RestoreState:
    """Read the state of these partitions from the store, beside the event loop: say each `StatePartRead`, then `StateRead`, or
    `StateUnread` (K9). Who reads is not to be far ahead of who takes it in: see `PartTaken`.

    epoch: as of the end of which. pieces: that have any of the partitions. objects: of these pieces, each with the box whose state it has.
    copy: if it is for one, all comes as `StateArrived`, or `TransferFailed`.
    """

    segment: int
    segment_name: str
    epoch: int
    partitions: tuple[int, ...]
    pieces: tuple[Piece, ...]
    objects: tuple[tuple[StoredObject, str], ...]
    copy: CopyNumber = NO_COPY


@dataclass(frozen=True, slots=True)
class PartTaken:
    """A `StatePartRead` of this segment is taken in, or nobody wants it: its memory is free, and the next one may be read."""

    segment: int


@dataclass(frozen=True, slots=True)
class Leave:
    """This site can do its part no more, and every run outlives it: it is to end, as if it had died."""

    why: str


@dataclass(frozen=True, slots=True)
class TellCoordinator:
    """A fact for the coordinator."""

    fact: Fact


Action = (
    SetTimer
    | Run
    | Release
    | Stored
    | OpenSource
    | CloseSource
    | Meet
    | Ship
    | Spill
    | Load
    | StoreState
    | RestoreState
    | PartTaken
    | StoreRows
    | ReadRows
    | ImageOrder
    | Leave
    | TellCoordinator
)
