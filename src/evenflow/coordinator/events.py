"""What the coordinator of a run is told, and what it can ask its world to do. Events are facts; actions are instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from evenflow.availability.entries import Completed, Entry
from evenflow.availability.mode import Modes
from evenflow.coordinator.kinds import Kind as Kind
from evenflow.errors import EvenflowError
from evenflow.plan.plan import Placement, Version
from evenflow.policy.move import Move
from evenflow.site.bases import OfBases
from evenflow.site.events import (
    Checkpoint,
    DrainRequested,
    Durable,
    MembershipChanged,
    PlanAborted,
    PlanCommitted,
    PlanProposed,
    Started,
)
from evenflow.site.facts import Fact
from evenflow.site.given import SourceLeft
from evenflow.statistics.statistics import Statistics
from evenflow.stream.ids import SiteId

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class SiteReady:
    """A site has built its part of the dataflow and is connected to its peers; at the start of the run or any time later.

    host: the machine that it is on, as far as the world knows: copies go to another one if they can.
    """

    site: SiteId
    host: str = ""


@dataclass(frozen=True, slots=True)
class SiteSaid:
    """A fact that a site's part told."""

    site: SiteId
    fact: Fact


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """A site reported that it closed `epoch`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Absence:
    """The driver did nothing for so long: it was stopped, or its machine slept. lease_s: how long sites live without it."""

    away_s: float
    lease_s: float


@dataclass(frozen=True, slots=True)
class SiteLost:
    """A site is dead (V1). why: what the user should know about it. planned: it had been emptied before, and has ended in good order.

    doing: (segment, epoch) of the user code that it was running, as far as it has said: before it began, since it cannot say so after.
    absence: the driver's own, just before, if that was longer than sites live without it.
    """

    site: SiteId
    why: str
    planned: bool = False
    doing: tuple[tuple[int, int], ...] = ()
    absence: Absence | None = None


@dataclass(frozen=True, slots=True)
class PairPause:
    """Copies between these sites have failed so often, and are not tried for a while. forget: instead, so long that they count no more."""

    source: SiteId
    target: SiteId
    failures: int
    forget: bool = False


class RunPause(Enum):
    """What a run waits for as a whole."""

    NEW_SITE = "a new site may come, and take what was lost"
    DUST = "the dust of a death settles"
    CHECKPOINT = "the next checkpoint is due"
    STORE = "the journal's store is asked again"
    STOP = "a run that is to stop has not been able to say so"


@dataclass(frozen=True, slots=True)
class CheckpointPause:
    """A checkpoint is not whole yet. number: which."""

    number: int


Pause = RunPause | PairPause | CheckpointPause


@dataclass(frozen=True, slots=True)
class Waited:
    """The time that the machine asked for with `Wake` has passed. pause: which."""

    pause: Pause = RunPause.NEW_SITE


@dataclass(frozen=True, slots=True)
class PlanChangeRequested:
    """Somebody wants a new plan. placement: None leaves it as it is."""

    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class MovesRequested:
    """A policy or a person wants replicas to go to other sites (C3, C5)."""

    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class Collected:
    """Statistics of the time from begun_us to ended_us, which the machine asked for with `Collect`. Microseconds of one clock."""

    statistics: Statistics
    begun_us: int
    ended_us: int


@dataclass(frozen=True, slots=True)
class RebalanceRequested:
    """A person wants the load balanced now, once, whatever the run's policy is. statistics: of the last while. request: see `Done`."""

    statistics: Statistics
    request: int = 0


@dataclass(frozen=True, slots=True)
class Pin:
    """These partitions are to stay where they are, or may move again."""

    partitions: frozenset[tuple[int, int]]
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class RepartitionRequested:
    """These keyed segments are to have so many partitions from some epoch on; 0: that is not wanted any more. request: see `Done`."""

    segments: tuple[int, ...]
    partitions: int
    request: int = 0


@dataclass(frozen=True, slots=True)
class ReplaceRequested:
    """The run is to go on as this version of its dataflow; one that no plan has had is wanted no more. request: see `Done`."""

    version: Version | None
    request: int = 0


@dataclass(frozen=True, slots=True)
class AvailabilityRequested:
    """The segments are to have these modes from some epoch on; the same ones as now: nothing else is wanted any more. replicas: of what is
    replicated. boxes: whose modes they are, for people. request: see `Done`."""

    modes: Modes
    replicas: int
    boxes: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class NewcomersSeen:
    """These have come to the source of an ingress segment, and have or get places there, in this order."""

    segment: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SparesChanged:
    """So many idle sites are to be left alone from now on."""

    spares: int


@dataclass(frozen=True, slots=True)
class DrainSite:
    """Everything is to leave this site, for its planned end. stays: no longer; it may host again."""

    site: SiteId
    stays: bool = False


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The user wants the run to end. drain: finish what has been taken in first. willed: he does, and it is no program that ends by an
    error of its own: then nobody else goes on by himself."""

    drain: bool
    willed: bool = True


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """A person wants a checkpoint now. request: see `Done`. last: nothing after its epoch is given out any more, so that whoever goes on
    from it goes on exactly where the sinks stand; the run is to be stopped when it is there."""

    request: int = 0
    last: bool = False


@dataclass(frozen=True, slots=True)
class LastWithdrawn:
    """Who has asked for the last checkpoint will not stop the run, be it whole or not. request: that with which it was asked for."""

    request: int


@dataclass(frozen=True, slots=True)
class Appended:
    """Entry `number`, as it was to be appended, is in the journal for good."""

    number: int


@dataclass(frozen=True, slots=True)
class AppendRefused:
    """There is an entry `number` already: perhaps this very one, if it was asked for before."""

    number: int


@dataclass(frozen=True, slots=True)
class AppendUnknown:
    """The store failed, or did not answer: entry `number` may be in the journal, now or later, or not. why: for people."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class EntryRead:
    """What is in the journal at `number`. entry: None if there is nothing now."""

    number: int
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """Entry `number` could not be read. error: JournalCorrupt if it can be, and is none; else what the store said."""

    number: int
    error: EvenflowError


@dataclass(frozen=True, slots=True)
class RunBroken:
    """Something outside the sites failed for good: a driver-side sink, an ingest job."""

    error: EvenflowError


CoordinatorEvent = (
    SiteReady
    | SiteSaid
    | EpochSeen
    | SiteLost
    | Waited
    | PlanChangeRequested
    | MovesRequested
    | DrainSite
    | Collected
    | RebalanceRequested
    | Pin
    | RepartitionRequested
    | ReplaceRequested
    | AvailabilityRequested
    | NewcomersSeen
    | SparesChanged
    | StopRequested
    | CheckpointRequested
    | LastWithdrawn
    | Appended
    | AppendRefused
    | AppendUnknown
    | EntryRead
    | ReadFailed
    | RunBroken
)

# ---------------------------------------------------------------- actions

Message = (
    Started | MembershipChanged | PlanProposed | PlanCommitted | PlanAborted | DrainRequested | Durable | Checkpoint | SourceLeft | OfBases
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a message to a site's part."""

    site: SiteId
    message: Message


@dataclass(frozen=True, slots=True)
class Wake:
    """Say `Waited` after a while. pause: to be said with it; worlds do not look at it."""

    after_ms: float
    pause: Pause = RunPause.NEW_SITE


@dataclass(frozen=True, slots=True)
class Collect:
    """Collect statistics for so long from now on, then say `Collected`."""

    for_us: int


@dataclass(frozen=True, slots=True)
class Append:
    """Create the journal's object of this entry, whole and only if there is none of its name, beside the loop. Then say, once, `Appended`,
    `AppendRefused`, or, whatever else became of it, `AppendUnknown`. One at a time, `ReadEntry` included."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """Read what is in the journal at this number, beside the loop; then say `EntryRead` or `ReadFailed`."""

    number: int


@dataclass(frozen=True, slots=True)
class OpenEnds:
    """Sinks in the driver may take the epochs up to this one (J3); those after it wait. Before it is said for the first time, they may take
    what `RunMachine.durable` says, which is None if nothing waits: without a journal."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Happened:
    """Something that a person who watches the run should see. site: the one that it is about, or -1.

    details: of a move `number` (of its copy), `segment` (name), `partitions`, `source`, `target`, `reason`, and `bytes` of state that have
    travelled, 0 until it is live; of a round `moves`, how many it proposed; of a segment that was repartitioned its name, how many
    `partitions` it has and had `before`, and the `epoch` from which on; of user code that does not return `box`, `epoch`,
    `seconds`, and the stack that it is at, `where`.
    """

    kind: Kind
    site: int
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """What was asked for with this request is so. Who asks gives the request a number that is not 0, and waits for its answer.

    details: of a balancing `moves`, how many are wanted now; of a version its number (`version`), its first `epoch`, its new `boxes`, and,
    if it brings a table, the `table` and its `rows`; of a checkpoint its `number`, `epoch` and `bytes`.
    """

    request: int
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Denied:
    """What was asked for with this request cannot be. why: for the person who asked. busy: only because of what is under way just now."""

    request: int
    why: str
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """Delete what nobody needs any more of the objects of checkpoints, beside the loop (K8): see `availability.retained.garbage`. If some
    stay, they go another time. retained: the checkpoints that are kept. generation, needed, gone: see `garbage_rows`. snapshot: of the
    oldest one's entry, None if that is to be read from the journal. programs: what is kept of versions, needed and gone: see
    `garbage_programs`."""

    retained: tuple[Completed, ...]
    generation: int = 0
    needed: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    snapshot: Entry | None = None
    programs: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class EndRun:
    """Tell every site to forget the run. error: None if it ended as it should."""

    error: EvenflowError | None


CoordinatorAction = Tell | Wake | Collect | Happened | Done | Denied | Append | ReadEntry | OpenEnds | Sweep | EndRun
