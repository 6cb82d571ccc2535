"""The plan: which site hosts which partition, how rows are routed, and what boxes do. Numbered; acts from an epoch on (protocol V2)."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from evenflow.availability.mode import Mode, Modes
from evenflow.availability.mode import of_segment as mode_of
from evenflow.plan.layout import Ranges, Segment, Step
from evenflow.plan.ranges import of_segment
from evenflow.stream.epoch import NO_WATERMARK
from evenflow.stream.ids import NO_SITE, CopyNumber, PlanNumber, SiteId


class Begins(NamedTuple):
    """Where an ingress partition stands that was lost with its log, as far as anybody has heard of it: what its epochs up to `epoch` have
    taken of the source, whether that has ended, and the stamp of the last."""

    segment: int
    partition: int
    epoch: int = 0
    taken: int = 0
    ended: bool = False
    stamp: int = NO_WATERMARK


@dataclass(frozen=True, slots=True)
class Copy:
    """State under way from a live replica to a new one (protocol C1-C3). number: never used twice in a run.

    partitions: of `segment`, ascending. source: site that has them, target: site that gets them, as of the end of the epoch before the
    effective one of the plan that begins the copy. replaces: site whose replica goes when the copy is live, if this is a move; until then
    the target has a rank of its own, the last. -1: the copy makes up for a lost replica, in its rank. source -1: nobody has the state, and
    the partitions begin again from a base, or anew with nothing (B1, void). begins: of ingress partitions that do, where their sources go
    on. base: the epoch at whose end the state is that the target gets from the store; -1: none.
    """

    number: CopyNumber
    segment: int
    partitions: tuple[int, ...]
    source: SiteId
    target: SiteId
    replaces: SiteId = NO_SITE
    begins: tuple[Begins, ...] = ()
    base: int = -1

    @property
    def revives(self) -> bool:
        """Its partitions begin again from what the store has of them."""
        return self.base >= 0

    @property
    def void(self) -> bool:
        """Its partitions begin anew: nobody has what they had."""
        return self.source == NO_SITE and self.base < 0

    @property
    def moves(self) -> bool:
        return self.replaces >= 0


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a dataflow: what its boxes do (V2). number: 1 is the first after the layout's own.

    steps: by segment, those that are not the layout's any more, by their index. since: by segment, number of the version that changed it
    last, 0 if none has, below 0 for what was so before a restart. boxes: that this version changes, for a person. packed: all of it for
    `unpack`, where users' functions cannot be pickled as they are. tables: (name, rows) of the refreshed tables that have been read anew,
    if that is all that is new. program: what is kept of it at the checkpoint location is called so, for who goes on there.
    """

    number: int
    steps: tuple[Mapping[int, Step], ...] = field(compare=False, repr=False)
    since: tuple[int, ...]
    boxes: tuple[str, ...]
    packed: bytes = field(default=b"", compare=False, repr=False)
    tables: tuple[tuple[str, int], ...] = ()
    program: str = field(default="", compare=False)

    def __reduce__(self) -> Any:
        if not self.packed:
            return Version, (self.number, self.steps, self.since, self.boxes, b"", self.tables)
        return Version.unpack, (self.packed,)

    @staticmethod
    def unpack(packed: bytes) -> Version:
        version: Version = pickle.loads(packed)
        return replace(version, packed=packed)


Newcomers = tuple[tuple[int, tuple[str, ...]], ...]
"""(ingress segment, the names of what has come to its source since the run began, in the order of their places); none without names."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the rows of an epoch depend on, apart from where it is processed (V2). Every later plan carries it on.

    ranges: of each segment, where they are no longer those of the layout; empty if no segment's are.
    weights: of each segment whose rows are dealt out, how many of them each of its partitions gets, relative to the others; empty where
    all get the same.
    version: what boxes do, if that is not what the layout says.
    keeps: of each arc, by value class, which share of its rows passes, in [0, 1]; empty where all do.
    newcomers: what sources read at places that waited for it. It only grows, and acts when it is heard.
    modes: of availability, by segment; empty where all are pairs. ends: the last epoch that has rows, where sources are cut by content and
    the run is drained; 0: it is not.
    """

    ranges: tuple[Ranges, ...] = ()
    weights: tuple[tuple[int, ...], ...] = ()
    version: Version | None = None
    keeps: tuple[tuple[float, ...], ...] = ()
    newcomers: Newcomers = ()
    modes: Modes = ()
    ends: int = 0


AS_LAID_OUT: Final = Settings()
"""What the layout says, and nothing is dropped."""

Placement = tuple[tuple[tuple[SiteId, ...], ...], ...]
"""placement[segment][partition]: the sites of its replicas, by rank."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where it runs (V2). A site in the placement may have died since, or its state may still be on the way: the membership knows.

    number: from 0. effective: the first epoch that the plan governs. copies: those that begin with this plan. settings: what its rows
    depend on besides. A plan that changes ranges places everything as the plan before it did, and begins no copies.
    """

    number: PlanNumber
    effective: int
    placement: Placement
    copies: tuple[Copy, ...] = ()
    settings: Settings = AS_LAID_OUT

    @property
    def ranges(self) -> tuple[Ranges, ...]:
        return self.settings.ranges

    @property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        return self.settings.weights

    @property
    def version(self) -> Version | None:
        return self.settings.version

    @property
    def newcomers(self) -> Newcomers:
        return self.settings.newcomers

    @property
    def modes(self) -> Modes:
        return self.settings.modes

    def mode(self, segment: int) -> Mode:
        """How a lost partition of the segment comes back."""
        return mode_of(self.settings.modes, segment)

    def with_settings(self, **changes: Any) -> Plan:
        """The same, with other values of these fields of its settings."""
        return replace(self, settings=replace(self.settings, **changes))

    def runs(self, segment: Segment) -> tuple[int, Segment]:
        """(number of the version that changed the segment last, 0 if none has; the segment with the steps that it runs)."""
        if self.version is None or not self.version.steps[segment.id]:
            return 0, segment
        changed = self.version.steps[segment.id]
        steps = tuple(changed.get(at, step) for at, step in enumerate(segment.steps))
        return self.version.since[segment.id], replace(segment, steps=steps)

    def ranges_of(self, segment: Segment) -> Ranges:
        """Which of a keyed segment's partitions owns which key groups."""
        return of_segment(self.ranges, segment)

    def came(self, segment: int) -> tuple[str, ...]:
        """What has come to the source of an ingress segment, in the order of its places."""
        return dict(self.newcomers).get(segment, ())

    def hosts(self, segment: int) -> tuple[SiteId, ...]:
        """Sites that host a replica of a partition of the segment, ascending."""
        return tuple(sorted({site for replicas in self.placement[segment] for site in replicas}))

    @property
    def sites(self) -> tuple[SiteId, ...]:
        """Sites that host anything, ascending."""
        return tuple(sorted({site for segment in self.placement for replicas in segment for site in replicas}))
