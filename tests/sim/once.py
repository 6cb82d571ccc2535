"""A source of which every row is given once, to whoever reads: like lines over a connection, whose sender never sends them again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from evenflow.sources.source import Reader, Source

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64())])


class OnceReader(Reader):
    def __init__(self, source: Once) -> None:
        self._source = source

    def skip(self, rows: int) -> None:
        """What comes is what has not been given."""

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        left = self._source.left
        given = [left.popleft() for _ in range(min(max_rows, len(left)))]
        self.ended = not left and self._source.ends
        return pa.record_batch([given, [number % 7 for number in given]], schema=SCHEMA) if given else None


@dataclass(frozen=True)
class Once(Source):
    """left: numbers of the rows that nobody has been given."""

    kind: ClassVar[str] = "once"
    replayable: ClassVar[bool] = False
    left: deque[int] = field(default_factory=deque)
    ends: bool = True

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def partitions(self, sites: int) -> int:
        return 1

    def open(self, partition: int, of: int) -> OnceReader:
        return OnceReader(self)
