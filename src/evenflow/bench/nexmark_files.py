"""Nexmark's events as Parquet files, so that two systems can read the same ones, and the answers of one compared with the other's.

A stream's files are slices of event time, and every slice is PARTS files, to which rows go in turn: whoever reads PARTS files at a time
reads in order of time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from evenflow.sources.nexmark import NexmarkSource
from evenflow.sources.nexmark_events import GROUP, SHARES, make_events, numbers_of, rows_of

PARTS: Final = 4
EVENT_RATE: Final = 10_000
"""Events per second of event time, as Nexmark has it."""
DISORDER: Final = 1000
"""Events whose times are shuffled: a row may be a tenth of a second late."""
FIRST_MTIME_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Events:
    """The first `count` events of a seed. slices: of equal size, in order of time."""

    count: int
    slices: int
    seed: int = 1

    def source(self, stream: str) -> NexmarkSource:
        return NexmarkSource(stream, events=self.count, seed=self.seed, event_rate=EVENT_RATE, disorder=DISORDER)

    @property
    def delay(self) -> str:
        """What a watermark has to wait so that no row is late."""
        return f"{self.source('bid').delay_us} microseconds"

    def rows(self, streams: Sequence[str]) -> int:
        """Of these streams together."""
        return sum(rows_of(stream, self.count) for stream in streams)

    def write(self, path: Path, stream: str) -> Path:
        """The stream's files below `path`, unless they are there already; returns their directory."""
        folder = path / f"{self.count}-{self.seed}" / stream
        if folder.exists():
            return folder
        folder.mkdir(parents=True)
        clock = self.source(stream).clock
        bounds = [rows_of(stream, self.count) * number // self.slices for number in range(self.slices + 1)]
        for number, (first, last) in enumerate(pairwise(bounds)):
            for part in range(PARTS):
                rows = numbers_of(stream, np.arange(first + part, last, PARTS))
                file = folder / f"{number:04d}-{part}.parquet"
                pq.write_table(pa.Table.from_batches([make_events(stream, self.seed, rows, clock)]), file)
                # Structured Streaming takes files by their age.
                os.utime(file, (FIRST_MTIME_S + number, FIRST_MTIME_S + number))
        return folder


def events_for(rows: int, streams: Sequence[str]) -> int:
    """Events of which about so many rows belong to these streams."""
    share = sum(SHARES[stream][1] for stream in streams)
    return -(-rows // share) * GROUP


def newest_rows(table: pa.Table, identity: Sequence[str]) -> pa.Table:
    """The last row of each identity; all rows if there is none."""
    if not identity or not table.num_rows:
        return table
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.unique(identity, keep="last", maintain_order=True).to_arrow().cast(table.schema)


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether both have the same rows, in any order, columns by position; floats within 1e-9, relative."""
    if (one.num_rows, one.num_columns) != (other.num_rows, other.num_columns):
        return False
    ordered = [_ordered(table) for table in (one, other)]
    return all(_same_values(a, b) for a, b in zip(ordered[0].columns, ordered[1].columns, strict=True))


def _ordered(table: pa.Table) -> pa.Table:
    """Rows sorted by all columns, floats last, since they may differ by rounding. Columns are named by their places."""
    numbered = table.rename_columns([str(number) for number in range(table.num_columns)])
    exact = [field.name for field in numbered.schema if not pa.types.is_floating(field.type)]
    names = [*exact, *(name for name in numbered.column_names if name not in exact)]
    return numbered.sort_by([(name, "ascending") for name in names])


def _same_values(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(one.type) and pa.types.is_floating(other.type):
        a, b = (np.asarray(column.to_numpy(), np.float64) for column in (one, other))
        return one.is_null().equals(other.is_null()) and bool(np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True))
    if pa.types.is_timestamp(one.type) and pa.types.is_timestamp(other.type):
        # Whether a type has a zone is not the question: both count from 1970 in UTC.
        one, other = (column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()) for column in (one, other))
    return bool(one.equals(other if other.type == one.type else other.cast(one.type)))
