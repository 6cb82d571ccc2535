"""Rows whose keys are Zipf distributed and whose popular keys change: what `evenflow bench skew` feeds every system with.

A row's key is a function of (seed, the row's number), so that all systems see the same rows however they read them. After every
`drift_rows` rows each key takes the place of the next more popular one, and the most popular key becomes the least popular: the load of
a partition rises slowly and falls at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.sources.generator import GOLDEN, mix, stream_of, zipf_ranks, zipf_tables
from evenflow.sources.pace import MadeReader, MadeSource
from evenflow.stream.arrays import Int64s, arrow_of

SCHEMA: Final = pa.schema([("number", pa.int64()), ("key", pa.int64()), ("due_us", pa.int64())])
"""number: of the row. due_us: when it was due, microseconds since 1970; of no meaning in rows that are read as fast as they are taken."""
BLOCK_ROWS: Final = 1 << 13


@dataclass(frozen=True, slots=True)
class Popularity:
    """keys: how many. exponent: of the Zipf distribution. drift_rows: rows of the whole source after which every key's rank changes.

    Raises QueryError for numbers that make no sense.
    """

    keys: int = 2048
    exponent: float = 0.8
    drift_rows: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.keys < 1 or self.exponent < 0 or self.drift_rows < 1:
            raise QueryError("drifting keys: keys and drift_rows must be at least 1, and the exponent at least 0")

    def keys_of(self, numbers: Int64s) -> Int64s:
        """The keys of the rows with these numbers, 0 to keys - 1, int64, same shape. Costs some 20 ns per row."""
        bits = mix(numbers.astype(np.uint64) * np.uint64(GOLDEN) + np.uint64(stream_of(self.seed, 0, 0)))
        keys: Int64s = (zipf_ranks(bits, self.keys, self.exponent) + numbers // self.drift_rows) % self.keys
        return keys

    def share(self, rank: int) -> float:
        """The part of all rows that have the key of this rank, which counts from 0."""
        weights = np.arange(1, self.keys + 1) ** -self.exponent
        return float(weights[rank] / weights.sum())


class DriftingReader(MadeReader):
    """One partition: of n, partition p has the rows p, p + n, p + 2n, ..."""

    most_rows = BLOCK_ROWS

    def __init__(self, source: DriftingRows, partition: int, of: int) -> None:
        super().__init__(source, partition, of)
        self._popularity, self._partition, self._of = source.popularity, partition, of

    def _rows(self, first: int, count: int) -> pa.RecordBatch:
        numbers = np.arange(first, first + count, dtype=np.int64) * self._of + self._partition
        columns = (numbers, self._popularity.keys_of(numbers), self._pace.take(count))
        return pa.RecordBatch.from_arrays([arrow_of(column, pa.int64()) for column in columns], schema=SCHEMA)


@dataclass(frozen=True)
class DriftingRows(MadeSource):
    """rate: rows/s of the whole source, None: as fast as they are taken. rows: None: endless. count: partitions, None: one per site."""

    kind: ClassVar[str] = "drifting_rows"
    columns: ClassVar[pa.Schema] = SCHEMA
    reader: ClassVar[type[MadeReader]] = DriftingReader
    popularity: Popularity = Popularity()
    rate: int | None = None
    rows: int | None = None
    count: int | None = None
    begin_us: int | None = field(default=None, kw_only=True)

    def warm_up(self) -> None:
        zipf_tables(self.popularity.keys, self.popularity.exponent)
