"""Rows given as batches: for tests, for the simulator, and for small tables in examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import pyarrow as pa

from evenflow.errors import QueryError, SourceError
from evenflow.sources.source import Reader, Source

Given: TypeAlias = pa.RecordBatch | pa.Table


class MemoryReader(Reader):
    """Returns the batches of one partition one after the other, cut to the size asked for; never joins two."""

    def __init__(self, batches: Sequence[pa.RecordBatch], ends: bool) -> None:
        self._batches = [b for b in batches if b.num_rows]
        self._ends = ends
        self.ended = ends and not self._batches

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        if not self._batches:
            return None
        batch = self._batches[0]
        if batch.num_rows > max_rows:
            self._batches[0] = batch.slice(max_rows)
            return batch.slice(0, max_rows)
        del self._batches[0]
        self.ended = self._ends and not self._batches
        return batch


@dataclass(frozen=True)
class MemorySource(Source):
    """per_partition: the batches of each partition. ends: the stream ends after them, else it goes silent."""

    kind: ClassVar[str] = "memory"
    columns: pa.Schema
    per_partition: tuple[tuple[pa.RecordBatch, ...], ...]
    ends: bool = True

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    @property
    def streaming(self) -> bool:
        return not self.ends

    def partitions(self, sites: int) -> int:
        return len(self.per_partition)

    def open(self, partition: int, of: int) -> Reader:
        if of != len(self.per_partition):
            raise SourceError(f"a memory source of {len(self.per_partition)} partitions cannot be read with {of}")
        return MemoryReader(self.per_partition[partition], self.ends)


def split_batches(given: Given | Iterable[Given] | Iterable[Iterable[Given]], partitions: int | None) -> list[list[pa.RecordBatch]]:
    """One list of batches per partition: lists in `given` are partitions already; else batch i goes to partition i modulo
    `partitions`.
    """
    parts = [given] if isinstance(given, (pa.RecordBatch, pa.Table)) else list(given)
    if any(isinstance(part, (list, tuple)) for part in parts):
        lists = [[b for item in part for b in record_batches(item)] for part in parts]
        if partitions not in (None, len(lists)):
            raise QueryError(f"memory source: {len(lists)} lists of batches were given for {partitions} partitions; give one list for each")
        return lists
    flat = [b for item in parts for b in record_batches(item)]
    count = partitions or 1
    return [flat[p::count] for p in range(count)]


def record_batches(item: Given) -> list[pa.RecordBatch]:
    """The batches of a batch or a table."""
    if isinstance(item, pa.Table):
        return item.to_batches() or [pa.RecordBatch.from_pylist([], schema=item.schema)]
    return [item]
