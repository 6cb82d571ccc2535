"""One stream of the Nexmark auction, person, auction or bid, as fast as it is taken or at a set rate (`nexmark_events`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.sources.nexmark_events import GROUP, SCHEMAS, SHARES, STREAMS, Clock, make_events, numbers_of, rows_of
from evenflow.sources.pace import FIRST_US, MadeReader, Pace
from evenflow.sources.source import Reader, Source

EVENT_RATE: Final = 10_000
"""Events per second of event time where nothing else is said."""


BLOCK_ROWS: Final = 1024


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
class NexmarkSource(Source):
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

    def __post_init__(self) -> None:
        """Raises QueryError for an unknown stream, and for numbers that make no sense."""
        if self.stream not in SCHEMAS:
            raise QueryError(f"nexmark source: there is no stream {self.stream!r}; the streams are {', '.join(STREAMS)}")
        if self.rate is not None and self.rate < GROUP:
            raise QueryError(
                f"nexmark source: rate is {self.rate} events/s; it must be at least {GROUP}, so that there is a person a second"
            )
        for name, number, least in (("events", self.events, 0), ("event_rate", self.event_rate, 1), ("partitions", self.count, 1)):
            if number is not None and number < least:
                raise QueryError(f"nexmark source: {name} is {number}; it must be at least {least}, or left out")
        if not 1 <= self.disorder <= 1 << 20 or self.disorder % 953 == 0:
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
