"""One stream of the Nexmark auction, person, auction or bid, as fast as it is taken or at a set rate (`nexmark_events`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.sources.nexmark_events import GROUP, SCHEMAS, SHARES, STREAMS, Clock, make_events, numbers_of, rows_of
from evenflow.sources.pace import FIRST_US, MOST_A_SECOND, MOST_PARTITIONS, MOST_ROWS, MadeReader, Pace
from evenflow.sources.source import Reader, Source
from evenflow.stream.declared import WIDEST, Declared, May, optional, whole

EVENT_RATE: Final = 10_000
"""Events per second of event time where nothing else is said."""


BLOCK_ROWS: Final = 1024
LATEST_US: Final = 4_102_444_800_000_000
"""The year 2100: the events of a source may go on for long from there."""


class NexmarkReader(MadeReader):
    """One partition: every `of`-th row of the stream, made in blocks, because it costs as much to make one row as a hundred."""

    most_rows = 1 << 16

    def __init__(self, source: NexmarkSource, partition: int, of: int) -> None:
        share = SHARES[source.stream][1]
        rate = None if source.rate is None else source.rate * share // GROUP
        rows = None if source.events is None else rows_of(source.stream, source.events)
        self._source, self._partition, self._of = source, partition, of
        self._pace = Pace(rate, rows, partition, of)
        self.ended = self._pace.ended
        self._block: tuple[int, pa.RecordBatch] | None = None

    def _rows(self, first: int, count: int) -> pa.RecordBatch:
        self._pace.take(count)
        if self._block is None or not self._block[0] <= first <= first + count <= self._block[0] + self._block[1].num_rows:
            rows = np.arange(first, first + max(count, BLOCK_ROWS)) * self._of + self._partition
            source = self._source
            self._block = (first, make_events(source.stream, source.seed, numbers_of(source.stream, rows), source.clock))
        return self._block[1].slice(first - self._block[0], count)


@dataclass(frozen=True)
class NexmarkSource(Declared, Source):
    """See `evenflow.sources.nexmark`."""

    kind: ClassVar[str] = "nexmark"
    stream: str = "bid"
    rate: int | None = None
    events: int | None = None
    seed: int = 0
    event_rate: int | None = None
    disorder: int = 1
    start_us: int = FIRST_US
    count: int | None = None
    MAY: ClassVar[Mapping[str, May]] = {
        "rate": optional(whole(GROUP, MOST_A_SECOND)), "events": optional(whole(0, MOST_ROWS)), "seed": whole(-WIDEST, WIDEST),
        "event_rate": optional(whole(1, MOST_A_SECOND)), "disorder": whole(1, 1 << 20), "start_us": whole(0, LATEST_US),
        "count": optional(whole(1, MOST_PARTITIONS)).called("partitions"),
    }  # fmt: skip
    option_owner: ClassVar[str] = "nexmark source"
    cuts: ClassVar[tuple[str, ...]] = ("place",)

    def __post_init__(self) -> None:
        """Raises QueryError for an unknown stream, and for numbers that make no sense."""
        super().__post_init__()
        if self.stream not in SCHEMAS:
            raise QueryError(f"nexmark source: there is no stream {self.stream!r}; the streams are {', '.join(STREAMS)}")
        if self.disorder % 953 == 0:
            raise QueryError(f"nexmark source: disorder is {self.disorder} events; it must be 1 to 2^20 and no multiple of 953")

    @property
    def clock(self) -> Clock:
        """When its events happen."""
        return Clock(self.start_us, self.event_rate or self.rate or EVENT_RATE, self.disorder)

    @property
    def delay_us(self) -> int:
        """What a watermark on `dateTime` has to wait so that no row is late."""
        return self.clock.delay_us

    @property
    def tells_due(self) -> bool:
        return self.rate is not None

    @property
    def schema(self) -> pa.Schema:
        return SCHEMAS[self.stream]

    @property
    def streaming(self) -> bool:
        return self.events is None

    def partitions(self, sites: int) -> int:
        return self.count or sites

    def open(self, partition: int, of: int) -> Reader:
        return NexmarkReader(self, partition, of)

    def table(self) -> pa.Table:
        """All rows, in the order of their events: the same that partitions read. Raises QueryError if they do not end."""
        if self.events is None:
            raise QueryError("nexmark source: a table has an end; say how many events= there are")
        rows = np.arange(rows_of(self.stream, self.events))
        return pa.Table.from_batches([make_events(self.stream, self.seed, numbers_of(self.stream, rows), self.clock)])
