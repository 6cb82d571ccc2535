"""Tallies: what has been done for a segment at a site, whoever has done it. They only grow.

There is one tally per segment, so nothing is to be done when partitions come, go or change their cohort. Nothing here knows a clock: time
is passed to whoever measures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.counting import count_rows
from evenflow.plan.layout import Segment
from evenflow.stream.rows import Rows

NowNs = Callable[[], int]
"""A clock that never goes back, nanoseconds from any origin."""


def no_clock() -> int:
    """Where nobody measures time."""
    return 0


@dataclass(slots=True)
class Tally:
    """What has been done for a segment at a site so far. One thread at a time writes, any may read.

    rows: int64 (P,), processed, by partition. rows_in, rows_out, rows_failed, box_ns: by step. arc_rows: put on each output arc, in the
    segment's order. busy_ns: in its epochs, between the steps too.
    """

    rows: npt.NDArray[np.int64]
    rows_in: list[int]
    rows_out: list[int]
    rows_failed: list[int]
    box_ns: list[int]
    arc_rows: list[int]
    busy_ns: int = 0

    @staticmethod
    def of(segment: Segment) -> Tally:
        steps = len(segment.steps)
        return Tally(np.zeros(segment.partitions, np.int64), [0] * steps, [0] * steps, [0] * steps, [0] * steps, [0] * len(segment.outputs))

    def count(self, rows: Rows, arrived: Sequence[tuple[int, pa.RecordBatch]] = ()) -> None:
        """These rows enter the segment. arrived: the same ones by ingress partition, where they come from a source."""
        if arrived:
            for partition, batch in arrived:
                self.rows[partition] += batch.num_rows
        elif self.rows.size == 1:
            self.rows[0] += rows.partition.size
        elif rows.partition.size:
            count_rows(rows.partition, self.rows)

    def copy(self) -> Tally:
        return Tally(
            self.rows.copy(), self.rows_in.copy(), self.rows_out.copy(), self.rows_failed.copy(), self.box_ns.copy(), self.arc_rows.copy(),
            self.busy_ns,
        )  # fmt: skip


@dataclass(slots=True)
class SourceTally:
    """Rows of one partition of a source that came here. kept: that were taken in. dropped: by value class, that were not."""

    kept: int = 0
    dropped: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Counters:
    """What a part has done so far. taken: rows of sources that came, by ingress segment. Rows that several replicas put out are counted
    by the first of them."""

    taken: dict[int, int] = field(default_factory=dict)
    rows_out: int = 0
    rows_failed: int = 0
    sections_out: int = 0

    @property
    def rows_in(self) -> int:
        return sum(self.taken.values())


class Tallies:
    """Those of a part, by segment, and of the partitions of sources that came here."""

    def __init__(self) -> None:
        self.by_segment: dict[int, Tally] = {}
        self.sources: dict[tuple[int, int], SourceTally] = {}

    def source(self, key: tuple[int, int]) -> SourceTally:
        """That of a partition of a source. key: (segment, partition)."""
        found = self.sources.get(key)
        if found is None:
            found = self.sources[key] = SourceTally()
        return found

    def of(self, segment: Segment) -> Tally:
        """The one tally of the segment, for each cohort of it."""
        if segment.id not in self.by_segment:
            self.by_segment[segment.id] = Tally.of(segment)
        return self.by_segment[segment.id]
