"""What one site says to another about one dataflow in one message.

Messages are per pair of sites and loop tick, not per partition (protocol E4): everything that the sender's partitions have for the
receiver's since the last message, with closes and acknowledgements on the same paper. Only non-empty runs appear; a `Mark` says that
nothing more of an epoch will come, so an empty epoch costs a few bytes. The small records are named tuples: thousands a second are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from evenflow.stream.epoch import ALL_KEPT, NO_WATERMARK
from evenflow.stream.ids import NO_FEED, FeedNumber, PlanNumber, SiteId, Term

new_tuple: Final[Any] = tuple.__new__
"""Makes a named tuple of as many values as it has fields, without the function in between that its class has for defaults."""

NEVER_US: Final = 2**63 - 1
"""In place of a stamp: no timer is set."""


class Mark(NamedTuple):
    """The sender has sent all frames of `stream` that belong to `feed`, up to and including `epoch`.

    feed: the receiver's number for what it has asked for (see Resume). plan: number of the plan that governs the epoch. watermark: least
    event-time watermark of the sender's producer partitions at the epoch's end, microseconds. stamp: ingress wall clock at the close
    (E6). opened: ingress wall clock at the first row of the epoch, or `stamp` if it has none; for measuring latency only, never content.
    kept, newest, missed: see Tick (D4).
    """

    feed: FeedNumber
    stream: int
    epoch: int
    plan: PlanNumber
    watermark: int
    stamp: int
    opened: int
    kept: int = ALL_KEPT
    newest: int = NO_WATERMARK
    missed: int = NO_WATERMARK


CLOSES: Final = 65_535
"""Stream number of a mark that only says which epoch its sender's ingress has closed, for ingress peers that get nothing else of it."""


def close_mark(epoch: int, plan: PlanNumber, stamp: int) -> Mark:
    return Mark(NO_FEED, CLOSES, epoch, plan, 0, stamp, stamp)


class Bundle(NamedTuple):
    """Non-empty frames of one stream and epoch, from producer partitions at one site to consumer partitions at another.

    feed: as in Mark. rows: the arc's columns, then `_hash` (uint64) if the route is keyed, or `_to` (int32, consumer partition) if rows are
    dealt out, then `_from` (int32, producer partition) if the consumer cares about order. Rows of one producer partition are in order;
    producer partitions may interleave. size: about how many bytes they take.
    """

    feed: FeedNumber
    stream: int
    epoch: int
    plan: PlanNumber
    rows: pa.RecordBatch
    size: int = 0


SHARES: Final = 2**16
"""Parts of a whole in which sites say which share of what comes they keep."""


class Ack(NamedTuple):
    """Cumulative acknowledgement (A2) and grant of room (A5). It goes to all live replicas of the producers, whoever feeds.

    received: per stream of the layout, the last epoch of which the sender of this ack holds every frame. processed: last epoch that every
    inner segment at the sender has finished. finished: the same with its sinks' commits. granted: last epoch for which the sender has
    room; only ingress waits for it. due_us: the least stamp at which a timer of processing time comes at the sender: an epoch has to close
    then, even without rows (E5). share: that the sender keeps of what comes to the sources it leads, in parts of SHARES; 0: it leaves
    nothing out.
    """

    received: tuple[int, ...]
    processed: int
    finished: int
    granted: int
    due_us: int = NEVER_US
    share: int = 0


class Resume(NamedTuple):
    """Feed me (A3): from epoch `start` on, the frames of `stream` from the producer partitions to the consumer partitions, all ascending.

    Replaces what the sender has asked of this stream for this cohort before. feed: a number that the sender never uses again. cohort:
    0 for its live partitions, else the number of the copy that they come from. No producers: feed me no longer.
    """

    stream: int
    cohort: int
    feed: FeedNumber
    start: int
    producers: tuple[int, ...]
    consumers: tuple[int, ...]


WHOLE_BATCH: Final = -1
"""In a `Share`: not the rows of a task, but the end of its batch."""


ROWS: Final = "rows/"
"""Below it are the objects with rows, in the store."""


class Share(NamedTuple):
    """The next `rows` rows of a record are of this task of a Spark batch (I2). whole: they are its last ones."""

    batch: int
    task: int
    rows: int
    whole: bool


class RowsObject(NamedTuple):
    """An object of the store with rows of an ingress partition that no source gives again (J5). generation, site, number: who made it, and
    the how manieth that was, so that no name is used twice. first: position of its first row. rows: how many. digest: of its bytes, in 32
    hexadecimal digits."""

    generation: int
    site: SiteId
    number: int
    first: int
    rows: int
    digest: str

    @property
    def name(self) -> str:
        """Below the location."""
        return f"{ROWS}{self.generation:06d}/{self.site:04d}-{self.number:09d}.arrow"


class Record(NamedTuple):
    """What an epoch of one ingress partition consists of, from its leader to a follower (I1).

    term: of the leader that sends it, NO_TERM where it only says where the source stands; origin: of the one that cut it. taken: rows of
    the source in all epochs up to this one, or its position after them, which is where a successor goes on reading. batch_done: a whole
    Spark batch has come. ended: no row will come after it. shares: whose the rows are, if Spark's tasks have pushed them; the successor
    compares with it what tasks push again. objects: that the rows are in, if nobody gives them again, in order. keep: by value class, how
    much of 2^32 was kept of what the source gave, where rows were left out under overload (see `shedding`); dropped: how many were not.
    Empty where none was.
    """

    segment: int
    partition: int
    epoch: int
    term: Term
    origin: int
    stamp: int
    opened: int
    taken: int
    batch_done: bool
    ended: bool
    rows: pa.RecordBatch | None
    shares: tuple[Share, ...] = ()
    objects: tuple[RowsObject, ...] = ()
    keep: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()

    def by(self, term: Term) -> Record:
        """The same, cut and sent by the leader of a term."""
        return new_tuple(Record, (*self[:3], term, term, *self[5:]))  # type: ignore[no-any-return]


class Held(NamedTuple):
    """A follower's word: I hold your records of this ingress partition up to `epoch`. asks: send me those after it, and all later ones."""

    segment: int
    partition: int
    term: Term
    epoch: int
    asks: bool


class Settled(NamedTuple):
    """A leader's word: all live members hold the records of this ingress partition up to `epoch`, so it may be emitted."""

    segment: int
    partition: int
    term: Term
    epoch: int


@dataclass(slots=True)
class Section:
    """One dataflow's part of a message between two sites. Bundles precede the marks that cover them."""

    bundles: list[Bundle] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    resumes: list[Resume] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    ack: Ack | None = None

    def __bool__(self) -> bool:
        return bool(self.bundles or self.marks or self.resumes or self.records or self.held or self.settled or self.ack is not None)
