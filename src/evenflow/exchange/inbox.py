"""The consumer's half of the exchange: frames wait here until their epoch is complete, then leave in address order.

One `Inbox` per input stream of a hosted segment. It answers one question: do I have every frame of epoch e yet (E2)? Duplicates are
dropped by their address (A4); a mark beyond the next one is ignored, because a link was lost in between and the resume that this site
has asked for brings it again (A3).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from evenflow.exchange.section import Bundle, Mark
from evenflow.query.plan import FROM_COLUMN


@dataclass(slots=True)
class _Gathered:
    """Marks of one epoch so far: how many, and what they say together."""

    marks: int = 0
    watermark: int = 2**63 - 1
    stamp: int = 0
    opened: int = 2**63 - 1


@dataclass(frozen=True, slots=True)
class EpochInput:
    """One complete epoch of one stream. batches: non-empty bundles in order of their sender's index."""

    batches: tuple[pa.RecordBatch, ...]
    watermark: int
    stamp: int
    opened: int


class Inbox:
    """Frames of one stream at one consumer site.

    producers: the sites that host producer partitions. through: last complete epoch. frame_bytes: memory held by waiting frames.
    """

    __slots__ = ("_frames", "_gathered", "_marked", "duplicates", "frame_bytes", "stream", "through")

    def __init__(self, stream: int, producers: Iterable[int]) -> None:
        self.stream = stream
        self.through = 0
        self.frame_bytes = 0
        self.duplicates = 0
        self._marked = dict.fromkeys(producers, 0)
        self._gathered: dict[int, _Gathered] = {}
        self._frames: dict[int, dict[int, Bundle]] = {}

    def hears(self, site: int) -> bool:
        """Whether `site` hosts producer partitions."""
        return site in self._marked

    def marked(self, site: int) -> int:
        """Last epoch of which every frame from `site` is here: what is acked as received (A2), 0 if it produces nothing for us."""
        return self._marked.get(site, 0)

    def put(self, site: int, bundle: Bundle) -> None:
        """Keep a bundle unless it is here already (A4)."""
        frames = self._frames.setdefault(bundle.epoch, {}) if bundle.epoch > self._marked[site] else None
        if frames is None or site in frames:
            self.duplicates += 1
            return
        frames[site] = bundle
        self.frame_bytes += bundle.size

    def mark(self, site: int, mark: Mark) -> bool:
        """Note that `site` has sent all of an epoch. True if the epoch is now complete."""
        if mark.epoch != self._marked[site] + 1:
            self.duplicates += mark.epoch <= self._marked[site]
            return False
        self._marked[site] = mark.epoch
        gathered = self._gathered.setdefault(mark.epoch, _Gathered())
        gathered.marks += 1
        gathered.watermark = min(gathered.watermark, mark.watermark)
        gathered.stamp = max(gathered.stamp, mark.stamp)
        gathered.opened = min(gathered.opened, mark.opened)
        if gathered.marks < len(self._marked):
            return False
        self.through = mark.epoch
        return True

    def pop(self, epoch: int) -> EpochInput:
        """Take a complete epoch out."""
        gathered = self._gathered.pop(epoch)
        frames = self._frames.pop(epoch, {})
        batches = tuple([frames[site].rows for site in sorted(frames)])
        for bundle in frames.values():
            self.frame_bytes -= bundle.size
        return EpochInput(batches, gathered.watermark, gathered.stamp, gathered.opened)


def merge(batches: tuple[pa.RecordBatch, ...]) -> pa.RecordBatch:
    """One batch of all bundles of a stream and epoch. Where `_from` is carried, rows leave in order of producer partition (E2).

    The sort is stable and skipped where the rows are in order already; rows of one producer partition never change places.
    """
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    at = whole.schema.get_field_index(FROM_COLUMN)
    if at < 0:
        return whole
    producer = whole.column(at).to_numpy(zero_copy_only=True)
    if bool((producer[1:] >= producer[:-1]).all()):
        return whole
    return whole.take(pa.array(np.argsort(producer.astype(np.uint16), kind="stable")))
