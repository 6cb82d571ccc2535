"""A source that a test feeds while the dataflow runs, in the place of the one that production reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.sources.source import Reader, Source
from evenflow.stream.schema import as_schema


@dataclass(slots=True)
class Given:
    """What a test has given so far, by partition. Readers of any site look at it. read: how many of its batches somebody has read whole.
    over: nothing more will come."""

    batches: list[list[pa.RecordBatch]]
    read: list[int]
    over: bool = False

    @staticmethod
    def of(partitions: int) -> Given:
        return Given([[] for _ in range(partitions)], [0] * partitions)

    @property
    def is_read(self) -> bool:
        return self.read == list(map(len, self.batches))


class FeedReader(Reader):
    """Reads on in what there is, and never joins two batches."""

    def __init__(self, given: Given, partition: int) -> None:
        self._given, self._partition, self._batches = given, partition, given.batches[partition]
        self._batch, self._row = 0, 0

    @property
    def ended(self) -> bool:  # type: ignore[override]
        return self._given.over and self._batch >= len(self._batches)

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        if self._batch >= len(self._batches):
            return None
        found = self._batches[self._batch].slice(self._row, max_rows)
        self._row += found.num_rows
        if self._row >= self._batches[self._batch].num_rows:
            self._batch, self._row = self._batch + 1, 0
            self._given.read[self._partition] = max(self._given.read[self._partition], self._batch)
        return found


@dataclass(frozen=True)
class Feed(Source):
    """columns: those of the source that it stands for. given: what readers find."""

    kind: ClassVar[str] = "feed"
    columns: pa.Schema
    given: Given = field(compare=False)

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    def partitions(self, sites: int) -> int:
        return len(self.given.batches)

    def open(self, partition: int, of: int) -> Reader:
        return FeedReader(self.given, partition)

    def to_json(self) -> dict[str, Any]:
        """Its columns only: rows of a test are in no other process."""
        return {"kind": self.kind, "columns": self.columns.names}


def source(schema: Any) -> Feed:
    """Stands for a source in a test: of these columns, and a test gives its rows. schema: DDL, or an Arrow or Spark schema."""
    return Feed(as_schema(schema), Given.of(1))
