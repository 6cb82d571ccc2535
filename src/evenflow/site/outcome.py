"""What comes of one epoch of one cohort: all of it, the output of its steps so far, or what its first step alone has answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from evenflow.exchange.routing import Pieces
from evenflow.exchange.section import NEVER_US
from evenflow.kernels.hash import Hashes
from evenflow.site.facts import PartFailed
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows

Effects = tuple[tuple[int, pa.RecordBatch], ...]
"""What a box has answered whose answers cannot be made again: the rows of records, by partition."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one epoch of one cohort.

    key: (segment, `born` of the cohort). pieces: what goes out, per output arc in the segment's order. released: rows for the segment's
    sink, or None if it has none. rows_in: how many went in. failed: the partition of each row that a box left out since it raised on it.
    digest: of what came out (see `digest_of`). error: what went wrong; then nothing else counts.
    asked: partitions of which this is only what their box has answered, which is to become a record; effects: that, by partition (N1).
    stored: epochs of which rows were stored by sinks here; ended: how many rows, (partition, rows). due_us: the least stamp at which
    a timer comes. others: pieces that other partitions of the cohort made, at another time: see `spilling`.
    """

    key: tuple[int, int]
    tick: Tick
    opened: int
    pieces: tuple[Pieces, ...] = ()
    released: pa.RecordBatch | None = None
    rows_in: int = 0
    failed: tuple[int, ...] = ()
    digest: Hashes | None = None
    error: PartFailed | None = None
    others: tuple[tuple[Pieces, ...], ...] = ()
    due_us: int = NEVER_US
    stored: tuple[int, ...] = ()
    ended: tuple[tuple[int, int], ...] = ()
    asked: tuple[int, ...] = ()
    effects: Effects = ()

    def made(self, output: int) -> list[Pieces]:
        """What goes out on one arc."""
        return [self.pieces[output], *(pieces[output] for pieces in self.others)]


@dataclass(slots=True)
class Results:
    """Output of the steps so far. Called with a step and a port; step -1 is the segment's input, -2 its right one (see `Port`).

    failed: the partition of each row that a box has left out.
    """

    inputs: Sequence[Rows]
    by_step: list[tuple[Rows, ...]] = field(default_factory=list)
    failed: tuple[int, ...] = ()

    def __call__(self, step: int, port: int) -> Rows:
        return self.inputs[-1 - step] if step < 0 else self.by_step[step][port]
