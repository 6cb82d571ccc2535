"""Segments, streams and the plan: the query network cut wherever data must be repartitioned.

A `Layout` says what runs: segments of steps joined by streams. It never changes while a dataflow runs. A `Plan` says where it
runs: which site hosts which partition; it is numbered, and acts from an epoch on (protocol V2).
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

KEY_GROUPS: Final = 4096
"""G of protocol E1. A partition is a range of key groups."""

Ranges = tuple[tuple[int, int], ...]
"""(first key group, partition), ascending from group 0; a range ends where the next begins. Each partition has one at most."""

HASH_COLUMN: Final = "_hash"
FROM_COLUMN: Final = "_from"
TO_COLUMN: Final = "_to"


@dataclass(frozen=True, slots=True)
class Port:
    """Where a step's rows come from: `step` >= 0 is an earlier step of the segment; -1 is the segment's input, -2 its right input.

    port: output port of that step (0 the result, 1 the late rows).
    """

    step: int
    port: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One operator inside a segment. box: name of the box in the query network, for messages and metrics.

    kind and params choose and configure the operator (see `evenflow.operator.catalogue.build`). schema: of its input.
    user_code: it calls functions that the user wrote, so it runs beside the event loop. other: where the right rows of a join come from.
    """

    box: str
    kind: str
    params: Mapping[str, Any]
    schema: pa.Schema
    source: Port
    user_code: bool = False
    other: Port | None = None


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows go to the partition that owns the hash of these columns."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Single:
    """All rows go to partition 0."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Rows of producer partition p go to partition p modulo the consumer's partitions."""


@dataclass(frozen=True, slots=True)
class Dealt:
    """Rows go to any partition, by the weights of the plan: which one follows from the row's address (River, FL 2.4)."""


Route = Keyed | Single | Spread | Dealt


@dataclass(frozen=True, slots=True)
class Arc:
    """A stream between two segments. id: its number in the layout. port: which step of the producer feeds it.

    lag_us: how far its event time may be behind its producer's watermark: a join puts out rows that it has kept.
    """

    id: int
    producer: int
    consumer: int
    port: Port
    schema: pa.Schema
    route: Route
    lag_us: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps that run together on the same partition of rows.

    kind: `ingress` (input 0 is a source), `inner`, or `egress` (a sink is at the end). partitions: P >= 1, how many numbers there are;
    in_use: so many of a keyed segment's own key groups at the start, the others are for when there are to be more; 0: all.
    sensitive: some step cares about row order within an epoch, so input is merged in frame-address order (E2).
    right: streams among `inputs` that are the right input of a join.
    schema: of its input; a source may have more columns, which are left out where rows enter.
    sink: index of the sink that the segment's last step feeds through the engine (`Release`), or None.
    """

    id: int
    name: str
    kind: Literal["ingress", "inner", "egress"]
    partitions: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[Step, ...]
    sensitive: bool = False
    source: str | None = None
    sink: str | None = None
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    right: tuple[int, ...] = ()
    in_use: int = 0

    @property
    def user_code(self) -> bool:
        return any(step.user_code for step in self.steps)

    def is_keyed(self, layout: Layout) -> bool:
        """All its rows come by their key, so that its key groups may change hands."""
        return bool(self.inputs) and all(isinstance(layout.arcs[stream].route, Keyed) for stream in self.inputs)


@dataclass(frozen=True, slots=True)
class Layout:
    """What runs. Segments are in topological order: a segment's producers come before it."""

    name: str
    segments: tuple[Segment, ...]
    arcs: tuple[Arc, ...]
    sources: Mapping[str, Any]
    sinks: Mapping[str, Any]

    def dealt(self) -> tuple[int, ...]:
        """Segments whose rows may go to any of their partitions."""
        return tuple(s.id for s in self.segments if s.inputs and all(isinstance(self.arcs[arc].route, Dealt) for arc in s.inputs))


@dataclass(frozen=True, slots=True)
class Copy:
    """State under way from a live replica to a new one (protocol C1-C3). number: never used twice in a run.

    partitions: of `segment`, ascending. source: site that has them, target: site that gets them, as of the end of the epoch before the
    effective one of the plan that begins the copy. replaces: site whose replica goes when the copy is live, if this is a move; until then
    the target has a rank of its own, the last. -1: the copy makes up for a lost replica, in its rank.
    """

    number: int
    segment: int
    partitions: tuple[int, ...]
    source: int
    target: int
    replaces: int = -1

    @property
    def moves(self) -> bool:
        return self.replaces >= 0


def even(partitions: int) -> Ranges:
    """Ranges of nearly equal width for partitions 0, 1, ...: what a segment begins with."""
    return tuple((-(-p * KEY_GROUPS // partitions), p) for p in range(partitions))


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a dataflow: what its boxes do (V2). number: 1 is the first after the layout's own.

    steps: by segment, those that are not the layout's any more, by their index. since: by segment, number of the version that changed it
    last, 0 if none has. boxes: that this version changes, for a person. packed: all of it for `unpack`, where users' functions cannot be
    pickled as they are. tables: (name, rows) of the refreshed tables that have been read anew, if that is all that is new.
    """

    number: int
    steps: tuple[Mapping[int, Step], ...] = field(compare=False, repr=False)
    since: tuple[int, ...]
    boxes: tuple[str, ...]
    packed: bytes = field(default=b"", compare=False, repr=False)
    tables: tuple[tuple[str, int], ...] = ()

    def __reduce__(self) -> Any:
        if not self.packed:
            return Version, (self.number, self.steps, self.since, self.boxes, b"", self.tables)
        return Version.unpack, (self.packed,)

    @staticmethod
    def unpack(packed: bytes) -> Version:
        version: Version = pickle.loads(packed)
        return replace(version, packed=packed)


Placement = tuple[tuple[tuple[int, ...], ...], ...]
"""placement[segment][partition]: the sites of its replicas, by rank."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where it runs (V2). number: from 0; effective: first epoch it governs. copies: those that begin with this plan.

    ranges: of each segment, where they are no longer those of the layout; none for any if none are. A plan that changes them places
    everything as the one before it, and begins no copies. weights: of each segment whose rows are dealt out, how many of them each of its
    partitions gets, relative to the others; none where all get the same. version: what boxes do, if it is not what
    the layout says. A site in the placement may have died since, or may still be
    getting its state: that is the membership's business.
    """

    number: int
    effective: int
    placement: Placement
    copies: tuple[Copy, ...] = ()
    ranges: tuple[Ranges, ...] = ()
    weights: tuple[tuple[int, ...], ...] = ()
    version: Version | None = None

    def runs(self, segment: Segment) -> tuple[int, Segment]:
        """(number of the version that changed the segment last, 0 if none has; the segment with the steps that it runs)."""
        if self.version is None or not self.version.steps[segment.id]:
            return 0, segment
        changed = self.version.steps[segment.id]
        steps = tuple(changed.get(at, step) for at, step in enumerate(segment.steps))
        return self.version.since[segment.id], replace(segment, steps=steps)

    def ranges_of(self, segment: Segment) -> Ranges:
        """Which of a keyed segment's partitions owns which key groups."""
        return (self.ranges[segment.id] if self.ranges else ()) or even(segment.in_use or segment.partitions)

    def hosts(self, segment: int) -> tuple[int, ...]:
        """Sites that host a replica of a partition of the segment, ascending."""
        return tuple(sorted({site for replicas in self.placement[segment] for site in replicas}))

    @property
    def sites(self) -> tuple[int, ...]:
        """Sites that host anything, ascending."""
        return tuple(sorted({site for segment in self.placement for replicas in segment for site in replicas}))


class Leader(NamedTuple):
    """The site that cuts the epochs of an ingress partition (I1). since: number of the membership that made it so: its term."""

    site: int
    since: int


@dataclass(frozen=True, slots=True)
class Membership:
    """Who lives (V1). number: from 0; acts on receipt. sites: of the run that are not dead, ascending, spares included.

    joining: copies whose target does not count as a replica yet. dropped: numbers of the newest plan's copies that were given up, so that
    their targets never will. retired: numbers of its moves that are done, so that the replicas they replace count no more.
    leaders[segment][partition]: of the ingress partitions; an empty tuple
    for the other segments.
    """

    number: int
    sites: tuple[int, ...]
    joining: tuple[Copy, ...]
    dropped: tuple[int, ...]
    leaders: tuple[tuple[Leader, ...], ...]
    retired: tuple[int, ...] = ()

    def live(self, plan: Plan, segment: int, partition: int) -> tuple[int, ...]:
        """Sites of the partition's replicas that count, by rank."""
        copied = [c for c in (*self.joining, *plan.copies) if c.segment == segment and partition in c.partitions]
        pending = {c.target for c in copied if c in self.joining or c.number in self.dropped}
        pending |= {c.replaces for c in copied if c.number in self.retired}
        return tuple(s for s in plan.placement[segment][partition] if s in self.sites and s not in pending)
