"""The demo's query as `evenflow bench failover` runs it, and the watch over its output.

The session monitor alone puts out some hundred rows a second, in clusters: a gap of 20 ms in them means nothing. So the packets are also
counted per protocol and window of 10 ms of event time, and both results leave by sinks of their own. The counts come a hundred times a
second, whatever the traffic is; gaps and ages are measured on them. Every result is a function of the packets alone, since windows
and order are by event time: where epochs are cut does not show in them.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.bench.expected import Compared, Row, compare, expected_statistics, expected_traffic
from evenflow.bench.gaps import Times
from evenflow.bench.scheduled import ScheduledPackets
from evenflow.sources.pace import FIRST_US

if TYPE_CHECKING:
    from evenflow.query.builder import Dataflow
    from evenflow.sources.source import Source

WINDOW_US: Final = 10_000
DELAY_US: Final = 1_000_000
"""The demo's watermark delay. It is in no age: what a result waits for its watermark is no slowness."""
AFTER_US: Final = 1_000_000
"""By so much of event time one sink may be behind another when the run ends."""
NOTHING: Final = Compared(0, 0, 0, 0, 0)


class Pack(NamedTuple):
    """Some output: a moment for each batch, a wall clock, microseconds since 1970, for each row, and the rows."""

    moments: Times
    clocks: npt.NDArray[np.int64]
    rows: pa.Table


class Output:
    """What one sink was given. Called in the sink's thread, asked in another.

    moments: when something came out, monotonic seconds. repeated_epochs: epochs that were not later than the one before.
    """

    def __init__(self) -> None:
        self.repeated_epochs = 0
        self._epoch = 0
        self._lock = threading.Lock()
        self._new: list[tuple[float, int, pa.RecordBatch]] = []
        self._packs: list[Pack] = []

    def __call__(self, epoch: int, batch: pa.RecordBatch) -> None:
        if epoch <= self._epoch:
            self.repeated_epochs += 1
        self._epoch = max(self._epoch, epoch)
        if batch.num_rows:
            with self._lock:
                self._new.append((time.monotonic(), time.time_ns() // 1000, batch))

    def _pack(self) -> list[Pack]:
        """Put what came since the last call into columns: thousands of small batches would cost more than their rows. Returns all."""
        with self._lock:
            new, self._new = self._new, []
        if new:
            clocks = np.repeat([clock for _, clock, _ in new], [batch.num_rows for _, _, batch in new])
            rows = pa.Table.from_batches([batch for _, _, batch in new]).combine_chunks()
            self._packs.append(Pack(np.array([moment for moment, _, _ in new]), clocks, rows))
        return self._packs

    @property
    def moments(self) -> Times:
        packs = self._pack()
        return np.concatenate([pack.moments for pack in packs]) if packs else np.empty(0)

    @property
    def last(self) -> float | None:
        """The newest moment."""
        packs = self._pack()
        return float(packs[-1].moments[-1]) if packs else None

    def rows(self, since_s: float = -math.inf) -> tuple[pa.Table | None, npt.NDArray[np.int64]]:
        """All rows in order, and the wall clock at which each came, microseconds since 1970. since_s: about from this moment on."""
        packs = self._pack()
        first = len(packs)
        while first and packs[first - 1].moments[-1] >= since_s:
            first -= 1
        if first == len(packs):
            return None, np.empty(0, np.int64)
        return pa.concat_tables([pack.rows for pack in packs[first:]]), np.concatenate([pack.clocks for pack in packs[first:]])


class Monitored:
    """One run's source, dataflow and output. example: the module of the demo's query. rate: packets/s; the first is due at begin_us.
    unordered: the counts go first come, first served to a second sink, `first_come`, too. sessions: the session monitor, too."""

    def __init__(self, example: Any, rate: int, begin_us: int, *, unordered: bool = False, sessions: bool = True) -> None:
        self.example, self.sessions = example, sessions
        self.source = ScheduledPackets(rate, begin_us)
        self.traffic, self.statistics = Output(), Output()
        self.first_come = Output() if unordered else None
        # Both clocks of this process at one moment, so that an age can be found at its moment.
        self._monotonic_us = time.time_ns() // 1000 - time.monotonic_ns() // 1000

    def dataflow(self, source: Source | None = None) -> Dataflow:
        """source: the same packets, delivered in another way."""
        import evenflow as ef

        flow = ef.Dataflow("monitored_sessions")
        packets = flow.source(source or self.source, name="packets").with_watermark("ts", "1 second")
        counts = packets.group_by("proto").window("10 milliseconds").agg(packets="count(*)", bytes="sum(length)").name("counts")
        counts.to(ef.sinks.callback(self.traffic), name="traffic")
        if self.first_come is not None:
            counts.to(ef.sinks.callback(self.first_come), unordered=True, name="first come")
        if not self.sessions:
            return flow
        # From here on as in the example, whose own `build` would put a second watermark on the packets.
        sessions = packets.where("proto = 6").key_by("src", "dst").process(self.example.SessionTracker()).name("sessions")
        recent = sessions.group_by("app", "src").rows(100, slide=10)
        statistics = recent.agg(max_dur="max(dur)", avg_dur="avg(dur)").name("statistics")
        statistics.to(ef.sinks.callback(self.statistics), name="view")
        return flow

    def ages(self, since_s: float = -math.inf) -> tuple[Times, Times]:
        """(moment, age), both in seconds, of every count that came out, in order. since_s: about from this moment on.

        Its age is the time since the packet that closed its window was due: when that was late itself, that counts too.
        """
        table, clocks = self.traffic.rows(since_s)
        if table is None:
            return np.empty(0), np.empty(0)
        due = self.source.begin_us + micros(table, "window_end") - FIRST_US + DELAY_US
        return (clocks - self._monotonic_us) / 1e6, (clocks - due) / 1e6

    def compare(self) -> Compared:
        """All output against what it must be, up to the newest result of each sink, and of all at least up to AFTER_US before the newest
        count: what is older must be there, once. A sink that has stopped, or was never given anything, has lost what it should have had.
        """
        return self._compare_traffic(self.traffic) + (self._compare_statistics() if self.sessions else NOTHING)

    def compare_first_come(self) -> Compared:
        """The counts that came first come, first served, as above."""
        return NOTHING if self.first_come is None else self._compare_traffic(self.first_come)

    def _newest_us(self, output: Output, column: str) -> int:
        """Up to which event time an output is compared."""
        (table, _), (counts, _) = output.rows(), self.traffic.rows()
        own = 0 if table is None else int(micros(table, column).max())
        return max(own, 0 if counts is None else int(micros(counts, "window_end").max()) - AFTER_US)

    def _compare_traffic(self, output: Output) -> Compared:
        table, _ = output.rows()

        def rows() -> Iterator[tuple[Hashable, Row]]:
            if table is not None:
                proto, packets, size = (table.column(name).to_pylist() for name in ("proto", "packets", "bytes"))
                yield from zip(zip(proto, micros(table, "window_start").tolist()), zip(packets, size))

        return compare(expected_traffic(self.source, WINDOW_US, self._newest_us(output, "window_end")), rows())

    def _compare_statistics(self) -> Compared:
        table, _ = self.statistics.rows()

        def rows() -> Iterator[tuple[Hashable, Row]]:
            if table is not None:
                app, src, longest, average = (table.column(name).to_pylist() for name in ("app", "src", "max_dur", "avg_dur"))
                yield from zip(zip(app, src, micros(table, "ts").tolist()), zip(longest, average))

        return compare(expected_statistics(self.source, self.example, self._newest_us(self.statistics, "ts")), rows())


def micros(table: pa.Table, column: str) -> npt.NDArray[np.int64]:
    """A timestamp column as microseconds since 1970."""
    return np.asarray(table.column(column).cast(pa.timestamp("us")).cast(pa.int64()).to_numpy())
