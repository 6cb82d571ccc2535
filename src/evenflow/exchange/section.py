"""What one site says to another about one dataflow in one message.

Messages are per pair of sites and loop tick, not per partition (protocol E4): everything that the sender's partitions have for the
receiver's since the last message, with closes and acknowledgements on the same paper. Only non-empty runs appear; a `Mark` says that
nothing more of an epoch will come, so an empty epoch costs a few bytes. The small records are named tuples: thousands a second are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa


class Mark(NamedTuple):
    """The sender has sent all its partitions' frames of `stream` up to and including `epoch`.

    plan: number of the plan that governs the epoch. watermark: least event-time watermark of the sender's producer partitions at the
    epoch's end, microseconds. stamp: ingress wall clock at the close (E6). opened: ingress wall clock at the first row of the epoch,
    or `stamp` if it has none; for measuring latency only, never content.
    """

    stream: int
    epoch: int
    plan: int
    watermark: int
    stamp: int
    opened: int


CLOSES: Final = 65_535
"""Stream number of a mark that only says which epoch its sender's ingress has closed, for ingress peers that consume nothing of it."""


def close_mark(epoch: int, plan: int, stamp: int) -> Mark:
    return Mark(CLOSES, epoch, plan, 0, stamp, stamp)


class Bundle(NamedTuple):
    """The non-empty frames of one stream and epoch from all producer partitions at one site to all consumer partitions at another.

    rows: the arc's columns, then `_hash` (uint64) if the route is keyed, then `_from` (int32, producer partition) if the consumer cares
    about order. Rows of one producer partition are in order; producer partitions may interleave. size: about how many bytes they take.
    """

    stream: int
    epoch: int
    plan: int
    rows: pa.RecordBatch
    size: int = 0


class Ack(NamedTuple):
    """Cumulative acknowledgement (A2) and grant of room (A5).

    received: per stream of the layout, the last epoch of which the sender of this ack holds every frame from the addressee.
    processed: last epoch that every inner segment at the sender has finished. finished: the same with its sinks' commits.
    granted: last epoch for which the sender has room; only ingress waits for it.
    """

    received: tuple[int, ...]
    processed: int
    finished: int
    granted: int


class Resume(NamedTuple):
    """Send `stream` again from epoch `start` on (A3)."""

    stream: int
    start: int


@dataclass(slots=True)
class Section:
    """One dataflow's part of a message between two sites. Bundles precede the marks that cover them."""

    bundles: list[Bundle] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    resumes: list[Resume] = field(default_factory=list)
    ack: Ack | None = None

    def __bool__(self) -> bool:
        return bool(self.bundles or self.marks or self.resumes or self.ack is not None)
