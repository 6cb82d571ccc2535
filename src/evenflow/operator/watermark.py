"""Watermark: how far event time has come at an ingress, from the rows that have entered epochs so far (protocol E6, E8).

The watermark of an ingress partition is the greatest event time seen minus the declared delay, as in Spark. It never goes back. Rows
pass unchanged. A partition that is fed by whole Spark batches is *held*: its event times count only once their batch is complete,
because the tasks of a batch deliver in any order.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.operator.operator import Shown, Unkeyed
from evenflow.state.keys import to_array
from evenflow.state.snapshot import Snapshot
from evenflow.stream.epoch import IDLE, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

STATE: Final = struct.Struct("<qqq?")
"""One partition's state as bytes: counted, waiting, silent_since, held."""

HEARD: Final = -(2**63)
"""In place of a stamp: rows have come in this epoch."""


@dataclass(slots=True)
class _Progress:
    """Greatest event time of one ingress partition, microseconds: what counts, and what waits for its batch to be complete.

    silent_since: stamp of the last epoch in which it had rows, of its first one if it had none yet.
    """

    counted: int = NO_WATERMARK
    waiting: int = NO_WATERMARK
    silent_since: int = HEARD


@dataclass(frozen=True, slots=True)
class _Captured:
    """One partition's progress as of the end of an epoch."""

    counted: int
    waiting: int
    silent_since: int
    held: bool

    def to_bytes(self) -> bytes:
        return STATE.pack(self.counted, self.waiting, self.silent_since, self.held)


class Watermark(Unkeyed, Shown):
    """Tracks event time per ingress partition. time: a timestamp column; delay_us: allowed disorder. idle_us: a partition without rows for
    so long, by the stamps of its epochs, is idle; None: never.

    held: partitions whose event times wait for the end of their batch.
    """

    def __init__(self, schema: pa.Schema, time: str, delay_us: int, idle_us: int | None = None) -> None:
        self.schemas = (schema,)
        self._time = schema.get_field_index(time)
        self._delay_us, self._idle_us = delay_us, idle_us
        self._progress: dict[int, _Progress] = {}
        self._entered: dict[int, int] = {}
        self.held: set[int] = set()

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        self._entered.clear()
        if rows.count:
            times = rows.batch.column(self._time).cast(pa.timestamp("us")).view(pa.int64())
            only = rows.partition[0]
            if bool((rows.partition == only).all()):
                self._see(int(only), times)
            else:
                for partition in np.unique(rows.partition).tolist():
                    self._see(partition, times.filter(pa.array(rows.partition == partition)))
        return (rows,)

    def _see(self, partition: int, times: pa.Array) -> None:
        newest = pc.max(times).as_py()
        progress = self._progress.setdefault(partition, _Progress())
        progress.silent_since = HEARD
        if newest is None:
            return
        self._entered[partition] = newest
        progress.waiting = max(progress.waiting, newest)
        if partition not in self.held:
            progress.counted = max(progress.counted, progress.waiting)

    def batch_done(self, partition: int) -> None:
        """All rows of a Spark batch have been processed: their event times count from now on."""
        progress = self._progress.get(partition)
        if progress is not None:
            progress.counted = max(progress.counted, progress.waiting)

    def newest(self, partition: int) -> int:
        """The greatest event time that the partition has had, microseconds."""
        progress = self._progress.get(partition)
        return NO_WATERMARK if progress is None else progress.waiting

    def entered(self, partition: int) -> int:
        """The greatest event time of its rows in the epoch that was processed last, microseconds. It is in no snapshot: what is captured is
        of the end of an epoch."""
        return self._entered.get(partition, NO_WATERMARK)

    def current(self, partition: int) -> int:
        """The partition's watermark, microseconds of event time: never END_OF_STREAM or IDLE, whatever times rows have."""
        progress = self._progress.get(partition)
        if progress is None or progress.counted == NO_WATERMARK:
            return NO_WATERMARK
        return min(max(progress.counted - self._delay_us, NO_WATERMARK), IDLE - 1)

    def advance(self, partition: int, stamp: int) -> int:
        """The partition's watermark after an epoch, or IDLE. stamp: of its record of the epoch. Once per epoch, behind `process`."""
        if self._idle_us is None:
            return self.current(partition)
        progress = self._progress.setdefault(partition, _Progress())
        if progress.silent_since == HEARD:
            progress.silent_since = stamp
        return IDLE if stamp - progress.silent_since >= self._idle_us else self.current(partition)

    def capture(self, partition: int) -> Snapshot | None:
        progress, held = self._progress.get(partition), partition in self.held
        if progress is None:
            return _Captured(NO_WATERMARK, NO_WATERMARK, HEARD, held) if held else None
        return _Captured(progress.counted, progress.waiting, progress.silent_since, held)

    def install(self, partition: int, state: bytes) -> None:
        assert partition not in self._progress, f"partition {partition} is here already"
        counted, waiting, silent_since, held = STATE.unpack(state)
        self._progress[partition] = _Progress(counted, waiting, silent_since)
        if held:
            self.held.add(partition)

    @property
    def shown(self) -> pa.Schema:
        """How far each partition of the source is. _newest: the greatest event time that counts. _waiting: of a batch that is not whole."""
        return pa.schema(
            [pa.field("_partition", pa.int32(), False), *(pa.field(name, pa.timestamp("us")) for name in ("_newest", "_waiting"))]
        )

    def show(self, partition: int) -> pa.RecordBatch:
        found = self._progress.get(partition)
        if found is None:
            return pa.RecordBatch.from_pylist([], schema=self.shown)
        waiting = found.waiting if found.waiting > found.counted else NO_WATERMARK
        times = np.array([found.counted, waiting])
        arrays = [to_array(times[i : i + 1], pa.timestamp("us"), times[i : i + 1] == NO_WATERMARK) for i in (0, 1)]
        return pa.RecordBatch.from_arrays([pa.array([partition], pa.int32()), *arrays], schema=self.shown)

    def drop(self, partition: int) -> None:
        self._progress.pop(partition, None)
        self.held.discard(partition)

    def state_bytes(self) -> int:
        return len(self._progress) * STATE.size

    def partition_bytes(self, partitions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.array([STATE.size * (p in self._progress or p in self.held) for p in partitions.tolist()], np.int64)
