"""Files replayed in the order and at the pace of their time column, or as fast as they can be read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import SourceError, TypeMismatch, UnknownColumn
from evenflow.sources.files import LAST_US, Format, Skip, file_batches
from evenflow.sources.pace import REST_US
from evenflow.sources.source import Reader, Source
from evenflow.stream.arrays import arrow_of
from evenflow.stream.declared import Declared, May, each, number, one_of, optional, path, row_schema, whole
from evenflow.stream.waiting import Waiting

UNIT_US = {"s": 1_000_000, "ms": 1000, "us": 1}


def times_us(batch: pa.RecordBatch, column: str, unit: str) -> npt.NDArray[np.int64]:
    """When each row of a batch happened, microseconds; a null, or NaN, is as old as can be. SourceError if microseconds cannot hold it."""
    values = batch.column(column)
    if pa.types.is_timestamp(values.type):
        return np.asarray(values.cast(pa.int64()).fill_null(-(2**62)))
    scale = UNIT_US[unit]
    if pa.types.is_floating(values.type):
        numbers = np.nan_to_num(np.asarray(values.cast(pa.float64()).fill_null(np.nan)), nan=-(2.0**40), posinf=np.inf, neginf=-np.inf)
    else:
        numbers = np.asarray(values.cast(pa.int64()).fill_null(-(2**40)))
    beyond = (numbers > LAST_US // scale - 1) | (numbers < -(LAST_US // scale))
    if beyond.any():
        raise SourceError(
            f"column {column!r}: {numbers[beyond][0]} in {unit!r} is no time in microseconds, which end in the years -290308 and 294247; "
            f"is time_unit={unit!r} right?"
        )
    micros: npt.NDArray[np.int64] = (numbers * scale).astype(np.int64)
    return micros


class ReplayReader(Reader):
    """One partition: files one after the other; a row is due when its time, and that of every row before it, has come."""

    def __init__(self, source: ReplaySource, partition: int, of: int, only: Collection[str] | None = None) -> None:
        """only: columns that are wanted; without them all."""
        self._source = source
        self._skip = Skip()
        self._batches = source.batches(partition, of, self._skip, only)
        self._origin_us: int | None = None
        self._start_us: int | None = None
        self._latest_us = -(2**62)
        self._batch: pa.RecordBatch | None = None
        self._due: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._at = 0

    def skip(self, rows: int) -> None:
        """Is done by the first `read`, which may wait for a disk. Row groups of Parquet files are left out unread, other formats
        have to be read. A pace goes on from the newest of the rows left out that were read with the last of them.
        """
        self._skip.left = rows

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        if self._start_us is None:
            self._start_us = now_us
        batch = self._current()
        if batch is None:
            return None
        count = min(batch.num_rows - self._at, max_rows)
        if self._source.speed is not None:
            count = min(count, int(np.searchsorted(self._due, now_us, side="right")) - self._at)
        if count <= 0:
            self.wake_us = max(int(self._due[self._at]), now_us + REST_US)
            return None
        part = batch.slice(self._at, count)
        due = self._due[self._at : self._at + count]
        self._at += count
        self._current()  # Learns now whether that was the last row, so that the end is not a read later.
        return part if self._source.keep_time else self._shifted(part, due)

    def times(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        return times_us(batch, self._source.time_column, self._source.time_unit)

    def waiting(self, now_us: int) -> Waiting | None:
        """Of the rows that have been read from the disk: files are as fast as they are asked."""
        if self._source.speed is None or self._start_us is None:
            return None
        due, at = self._due, self._at
        rows = int(np.searchsorted(due, now_us, side="right")) - at
        return Waiting(rows, int(due[at])) if rows > 0 else Waiting(0)

    def _current(self) -> pa.RecordBatch | None:
        """The batch that has the next row, or None at the end."""
        while self._batch is None or self._at >= self._batch.num_rows:
            self._batch, self._at = next(self._batches, None), 0
            if self._batch is None:
                self.ended = True
                return None
            if self._source.speed is not None and self._batch.num_rows:
                self._due = self._schedule(self._batch, self._source.speed)
        return self._batch

    def _schedule(self, batch: pa.RecordBatch, speed: float) -> npt.NDArray[np.int64]:
        """Wall clock at which each row is due: never earlier than the row before it."""
        assert self._start_us is not None
        times = times_us(batch, self._source.time_column, self._source.time_unit)
        if self._origin_us is None:
            self._origin_us = self._source.origin_us()
            if self._skip.last is not None:
                skipped = times_us(self._skip.last, self._source.time_column, self._source.time_unit)
                self._latest_us = max(int(skipped.max()), self._origin_us)
                self._start_us -= int((self._latest_us - self._origin_us) / speed)
        times = np.maximum.accumulate(np.maximum(times, max(self._latest_us, self._origin_us)))
        self._latest_us = int(times[-1])
        return self._start_us + ((times - self._origin_us) / speed).astype(np.int64)

    def _shifted(self, batch: pa.RecordBatch, due: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """The rows with the time at which they were due in place of the time they had."""
        index = batch.schema.get_field_index(self._source.time_column)
        times = arrow_of(np.ascontiguousarray(due), batch.schema.field(index).type)
        return batch.set_column(index, batch.schema.field(index), times)


@dataclass(frozen=True)
class ReplaySource(Declared, Source):
    """See `evenflow.sources.replay`. files: absolute paths in order. groups: row groups, if there is one Parquet file."""

    kind: ClassVar[str] = "replay"
    blocking: ClassVar[bool] = True
    files: tuple[str, ...]
    format: Format
    columns: pa.Schema
    time_column: str
    speed: float | None = 1.0
    time_unit: str = "us"
    keep_time: bool = True
    groups: int = 1
    MAY: ClassVar[Mapping[str, May]] = {
        "files": each(path(), "the paths of files", least=1), "columns": row_schema().called("schema"),
        "speed": optional(number(None, 1e9)),
        "time_unit": one_of(*UNIT_US), "groups": whole(0),
    }  # fmt: skip
    option_owner: ClassVar[str] = "replay source"

    def __post_init__(self) -> None:
        super().__post_init__()
        name = f"replay source of {self.files[0]}"
        if self.speed is None and self.keep_time:
            return
        if self.time_column not in self.columns.names:
            raise UnknownColumn(f"{name} has no column {self.time_column!r}; it has {', '.join(self.columns.names)}")
        type_ = self.columns.field(self.time_column).type
        if not (pa.types.is_timestamp(type_) or pa.types.is_integer(type_) or pa.types.is_floating(type_)):
            raise TypeMismatch(
                f"{name}: column {self.time_column!r} is {type_}; a time is a timestamp or a number in time_unit 's', 'ms' or 'us'"
            )
        if not self.keep_time and (self.speed is None or not pa.types.is_timestamp(type_)):
            raise TypeMismatch(
                f"{name}: keep_time=False needs a speed and a time column of type timestamp, which {self.time_column!r} is not"
            )

    @property
    def tells_due(self) -> bool:
        return self.speed is not None

    @property
    def cuts(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("time", "place") if self.time_column in self.columns.names else ("place",)

    def first_time(self, begin_us: int) -> int:
        return self.origin_us()

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    @property
    def streaming(self) -> bool:
        return False

    @property
    def repeats(self) -> bool:
        return self.keep_time  # Else rows have the times at which they were due, which are others the next time.

    def partitions(self, sites: int) -> int:
        if len(self.files) == 1 and self.format == "parquet" and self.speed is None:
            return max(1, min(sites, self.groups))
        return min(sites, len(self.files))

    def open(self, partition: int, of: int) -> Reader:
        return ReplayReader(self, partition, of)

    def open_for(self, partition: int, of: int, columns: Sequence[str]) -> Reader:
        paced = set() if self.speed is None else {self.time_column}
        return ReplayReader(self, partition, of, paced.union(columns))

    def batches(self, partition: int, of: int, skip: Skip, only: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The batches of one partition: files dealt round-robin, or the row groups of a single Parquet file. skip: rows to leave out. only:
        columns that are wanted; without them all."""
        if len(self.files) == 1 and self.format == "parquet" and self.speed is None:
            yield from file_batches(self.files[0], self.format, self.columns, lambda group: group % of == partition, skip, only)
            return
        for file in self.files[partition::of]:
            yield from file_batches(file, self.format, self.columns, skip=skip, only=only)

    def origin_us(self) -> int:
        """Time of the first row of the first file: all partitions count from it, so they stay in step."""
        for batch in file_batches(self.files[0], self.format, self.columns):
            if batch.num_rows:
                return int(times_us(batch, self.time_column, self.time_unit)[0])
        return 0
