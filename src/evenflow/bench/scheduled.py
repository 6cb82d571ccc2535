"""Packets that are the same in every run and come at a set pace: what `evenflow bench failover` feeds its query with.

The built-in generator stamps rows with the time at which its reader was opened, so no two runs see the same rows. Here a packet, its
time included, is a function of (seed, rate, number), and only when it may be read depends on the clock: packet `n` of all is due
`n / rate` seconds after a fixed moment, whoever reads it. A reader that is opened later, in place of one that died, finds what has
become due meanwhile waiting, as it would at a log or a network card.

Packet n belongs to partition n modulo the number of partitions. All partitions read one cycle of traffic from places far apart: drawing
the first one takes a new process a quarter of a second, which a site that takes over another partition need not wait for again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.sources.pace import FIRST_US, REST_US
from evenflow.sources.packets import CYCLE_ROWS, SCHEMA, Cycle, draw_cycle
from evenflow.sources.source import Reader, Source

READ_ROWS_MAX: Final = CYCLE_ROWS // 2


@lru_cache(maxsize=2)
def cycle_of(seed: int, hosts: int) -> Cycle:
    return draw_cycle(seed, 0, hosts)


@dataclass(frozen=True)
class ScheduledPackets(Source):
    """rate: packets/s of the whole source. begin_us: when packet 0 is due, wall clock, microseconds since 1970. count: partitions."""

    kind: ClassVar[str] = "scheduled_packets"
    rate: int
    begin_us: int
    count: int = 4
    hosts: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rate < 1 or self.count < 1:
            raise QueryError("scheduled packets: rate (packets/s) and partitions must be at least 1")

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def partitions(self, sites: int) -> int:
        return self.count

    def warm_up(self) -> None:
        cycle_of(self.seed, self.hosts)

    def open(self, partition: int, of: int) -> Reader:
        return ScheduledReader(self, partition)

    def offset_us(self, packet: int) -> int:
        """Microseconds from packet 0 to this one."""
        return packet * 1_000_000 // self.rate

    def rows(self, partition: int, first: int, count: int) -> pa.RecordBatch:
        """`count` rows of a partition, at most READ_ROWS_MAX, from its row `first` on. Costs some 20 ns per row."""
        start = partition * CYCLE_ROWS // self.count
        return cycle_of(self.seed, self.hosts).packets(start + first, self._times(partition, first, count))

    def _times(self, partition: int, first: int, count: int) -> npt.NDArray[np.int64]:
        # Whole intervals in Python's integers, the rest in small ones: nothing overflows.
        whole, rest = divmod((first * self.count + partition) * 1_000_000, self.rate)
        return (np.arange(count) * (self.count * 1_000_000) + rest) // self.rate + (FIRST_US + whole)


class ScheduledReader(Reader):
    """One partition, from its row 0 on or from where `skip` puts it."""

    def __init__(self, source: ScheduledPackets, partition: int) -> None:
        self._source, self._partition, self._next = source, partition, 0

    def skip(self, rows: int) -> None:
        """Leave out the next `rows` rows, at once."""
        self._next += rows

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        source = self._source
        due = (now_us - source.begin_us) * source.rate // 1_000_000  # Packets 0..due are due.
        count = min((due - self._partition) // source.count + 1 - self._next, max_rows, READ_ROWS_MAX)
        batch = None
        if count > 0:
            batch = source.rows(self._partition, self._next, count)
            self._next += count
        intervals = self._next * source.count + self._partition
        self.wake_us = max(source.begin_us - (-intervals * 1_000_000 // source.rate), now_us + REST_US)
        return batch
