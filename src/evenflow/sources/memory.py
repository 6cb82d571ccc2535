"""Rows given as batches: for tests, for the simulator, and for small tables in examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

import pyarrow as pa

from evenflow.errors import OptionError, QueryError, SourceError
from evenflow.sources.source import Reader, Source
from evenflow.stream.declared import Declared, May, a, each, row_schema

Given: TypeAlias = pa.RecordBatch | pa.Table
_NO_BATCH: Final = "memory source: rows are record batches or tables of pyarrow, or lists of them, not {}; make one with pa.table(...)"
BATCH: Final = a("a record batch", lambda value: isinstance(value, pa.RecordBatch))


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
class MemorySource(Declared, Source):
    """per_partition: the batches of each partition. ends: the stream ends after them, else it goes silent."""

    kind: ClassVar[str] = "memory"
    columns: pa.Schema
    per_partition: tuple[tuple[pa.RecordBatch, ...], ...]
    ends: bool = True
    cuts: ClassVar[tuple[str, ...]] = ("place",)
    MAY: ClassVar[Mapping[str, May]] = {
        "columns": row_schema().called("schema"), "per_partition": each(each(BATCH, "record batches"), "batches for each partition"),
    }  # fmt: skip
    option_owner: ClassVar[str] = "memory source"

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
    parts = [given] if isinstance(given, (pa.RecordBatch, pa.Table)) else list(_iterated(given))
    if any(isinstance(part, (list, tuple)) for part in parts):
        lists = [[b for item in part for b in record_batches(item)] for part in parts]
        if partitions not in (None, len(lists)):
            raise QueryError(f"memory source: {len(lists)} lists of batches were given for {partitions} partitions; give one list for each")
        return lists
    flat = [b for item in parts for b in record_batches(item)]
    count = partitions or 1
    return [flat[p::count] for p in range(count)]


def record_batches(item: Given) -> list[pa.RecordBatch]:
    """The batches of a batch or a table. Raises OptionError for anything else."""
    if isinstance(item, pa.Table):
        return item.to_batches() or [pa.RecordBatch.from_pylist([], schema=item.schema)]
    if not isinstance(item, pa.RecordBatch):
        raise OptionError(_NO_BATCH.format(f"{type(item).__name__} {item!r:.60}"))
    return [item]


def _iterated(given: Any) -> Iterable[Any]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise OptionError(_NO_BATCH.format(f"{type(given).__name__} {given!r:.60}"))
    return given
