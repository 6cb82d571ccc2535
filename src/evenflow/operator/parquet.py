"""The two steps that end a dataflow in a directory of Parquet files, or in a table that consists of such (protocol O2).

`ParquetStage` runs on every writer partition: it holds rows until the epochs' stamps cross a multiple of the commit interval, writes them
as one part that nobody reads yet, and emits a record of it. `ParquetCommit` (P = 1) receives the records of an epoch, decides that these
are the commit, and publishes them as one file. Time is the stamp, which is content (E6), so every replica cuts the same parts, and all
replicas of both steps do their work: whoever is first has done it. Both touch the directory only when they process, never when they are
built; where files live, what a failure means, and why replicas do not hurt each other is the business of `evenflow.sinks.committed`, and
of `evenflow.sinks.table_files` where the log of a table decides: then `into` is the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import SinkError
from evenflow.operator.operator import NEVER_US, End, Operator, Rows, Tick, Timed, Unkeyed
from evenflow.sinks.committed import RECORD_SCHEMA, TABLE_RECORD_SCHEMA, CommittedFiles
from evenflow.sinks.manifests import StagedFile
from evenflow.state.snapshot import Snapshot
from evenflow.store.arrow import open_file_store
from evenflow.store.files import FileStore
from evenflow.store.patience import Patience, no_wait

Options = tuple[tuple[str, str], ...]
CHUNK_ROWS: Final = 1 << 16
"""Held rows travel in batches of so many: no column of one grows too large."""


NONE: Final = 1 << 62
"""The number of no interval, above that of any."""


@dataclass(slots=True)
class Held:
    """Rows of one partition since its last part. slot: number of the commit interval in which the oldest of them came. epochs: in which
    they came, ascending.
    """

    slot: int
    batches: tuple[pa.RecordBatch, ...]
    epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeldSnapshot:
    """A frozen `Held`: batches are immutable, so it shares them."""

    slot: int
    batches: tuple[pa.RecordBatch, ...]
    epochs: tuple[int, ...]

    def to_bytes(self) -> bytes:
        held, out = pa.Table.from_batches(self.batches), pa.BufferOutputStream()
        with pa.ipc.new_stream(out, held.schema) as writer:
            for start in range(0, held.num_rows, CHUNK_ROWS):
                (chunk,) = held.slice(start, CHUNK_ROWS).combine_chunks().to_batches()
                # take() writes the same buffers whatever this is a slice of, so equal states are equal bytes.
                writer.write_batch(chunk.take(pa.array(np.arange(chunk.num_rows))))
        head = np.array([self.slot, len(self.epochs), *self.epochs], "<i8")
        return head.tobytes() + bytes(out.getvalue())


class Place(Protocol):
    """Where files are staged and committed: `CommittedFiles`, `TableFiles`."""

    last_epoch: int

    def prepare(self) -> None: ...
    def recover(self) -> None: ...
    def stage_parts(self, epoch: int, partition: int, table: pa.Table) -> list[StagedFile]: ...
    def commit(self, epoch: int, files: Sequence[StagedFile], slot: int | None = None) -> None: ...
    def close(self, before: int) -> None: ...


class Into(Protocol):
    """A description of a table that consists of files."""

    def files(self, run: str, patience: Patience, options: Options) -> Place: ...


def open_files(
    path: str, run: str, retries: int, backoff_ms: int, wait: Callable[[int], None], store: FileStore | None, into: Into | None,
    options: Options, partition_by: Sequence[str], joins: bool = False,
) -> Place:  # fmt: skip
    """The sink's directory or table for one run; touches nothing. store: instead of the one at `path`, for tests."""
    assert run, "the engine sets params['run'] of the steps stage and commit before a run starts"
    if into is not None:
        return into.files(run, Patience(path, retries, backoff_ms, wait, "a sink"), options)
    store = store if store is not None else open_file_store(path)
    return CommittedFiles(store, run, Patience(store.root, retries, backoff_ms, wait), partition_by, joins)


class ParquetStage(Unkeyed, Timed, Operator):
    """Cuts each partition's rows into parts by commit interval. Port 0: one record per part written in this epoch.

    Input must be in order within a partition (the segment is `sensitive`), or two replicas would write the same rows in different order.
    A part is written in the first epoch whose stamp lies in a later interval than the oldest held row. It has the rows of the epochs
    before that one: so all partitions cut at the end of the same epoch, also those that had no rows for a while, and together their
    parts are whole epochs. The last epoch writes all that is left. When no rows come, an epoch closes for what is held when the interval
    ends. Raises SinkError if the directory cannot be written: the state is then what it was before the epoch, and nothing of the epoch
    has been acknowledged.
    """

    def __init__(
        self, schema: pa.Schema, *, path: str, run: str, commit_interval_ms: int = 1000, retries: int = 5, backoff_ms: int = 100,
        wait: Callable[[int], None] = no_wait, store: FileStore | None = None, into: Into | None = None, options: Options = (),
        partition_by: Sequence[str] = (), file_interval_ms: int = 0,
    ) -> None:  # fmt: skip
        self.schemas: tuple[pa.Schema, ...] = (TABLE_RECORD_SCHEMA if into is not None or partition_by else RECORD_SCHEMA,)
        self._schema = schema
        self._interval_us = commit_interval_ms * 1000
        self._open = partial(open_files, path, run, retries, backoff_ms, wait, store, into, options, partition_by)
        self._files: Place | None = None
        self._held: dict[int, Held] = {}

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if self._files is None:
            files = self._open()
            files.prepare()
            self._files = files
        before, slot = dict(self._held), tick.stamp // self._interval_us
        if tick.last:
            self._hold(rows, slot, tick.epoch)
        due = [p for p in sorted(self._held) if tick.last or self._held[p].slot < slot]
        try:
            staged = [self._files.stage_parts(tick.epoch, p, pa.Table.from_batches(self._held[p].batches)) for p in due]
        except SinkError:
            self._held = before  # As if the epoch had not been offered: it may be offered again, and no row is held twice.
            raise
        records, epochs = list[StagedFile](), list[bytes]()
        for partition, parts in zip(due, staged, strict=True):
            records += parts
            epochs += [np.array(self._held.pop(partition).epochs, "<i8").tobytes()] * len(parts)
        if not tick.last:
            self._hold(rows, slot, tick.epoch)
        return (record_rows(records, epochs, self.schemas[0]),)

    def next_us(self, stamp: int) -> int:
        return min([(held.slot + 1) * self._interval_us for held in self._held.values()], default=NEVER_US)

    def _hold(self, rows: Rows, slot: int, epoch: int) -> None:
        if not rows.count:
            return
        order = np.argsort(rows.partition, kind="stable")
        owners = rows.partition[order]
        batch = rows.batch if bool((owners[0] == rows.partition).all()) else rows.batch.take(pa.array(order))
        starts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(owners)], strict=True):
            partition = int(owners[start])
            part = batch.slice(start, end - start)
            held = self._held.get(partition)
            if held is None:
                self._held[partition] = Held(slot, (part,), (epoch,))
            else:
                self._held[partition] = Held(held.slot, (*held.batches, part), (*held.epochs, epoch))

    def capture(self, partition: int) -> Snapshot | None:
        held = self._held.get(partition)
        return None if held is None else HeldSnapshot(held.slot, held.batches, held.epochs)

    def install(self, partition: int, state: bytes) -> None:
        assert partition not in self._held, f"partition {partition} is here already"
        slot, count = np.frombuffer(state, "<i8", 2).tolist()
        epochs = np.frombuffer(state, "<i8", count, 16).tolist()
        with pa.ipc.open_stream(state[16 + 8 * count :]) as reader:
            self._held[partition] = Held(slot, tuple(reader), tuple(epochs))

    def drop(self, partition: int) -> None:
        self._held.pop(partition, None)

    def state_bytes(self) -> int:
        return sum(batch.nbytes for held in list(self._held.values()) for batch in list(held.batches))

    def partition_bytes(self, partitions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        held = dict(self._held)
        return np.array([sum(batch.nbytes for batch in held[p].batches) if p in held else 0 for p in partitions.tolist()], np.int64)


def record_rows(records: list[StagedFile], epochs: list[bytes], schema: pa.Schema) -> Rows:
    """Records as rows, each owned by the partition that wrote the part. epochs: int64, with rows in each part."""
    rows = [{**asdict(record), "epochs": numbers} for record, numbers in zip(records, epochs, strict=True)]
    arrays = [pa.array([row[f.name] for row in rows], f.type) for f in schema]
    return Rows(pa.RecordBatch.from_arrays(arrays, schema=schema), np.array([r.partition for r in records], np.int32))


@dataclass(frozen=True, slots=True)
class LastEpoch:
    """State of the commit step: the last epoch it committed, and the interval of the oldest commit that is in no file yet; NONE: there is
    no such commit."""

    epoch: int
    waits: int

    def to_bytes(self) -> bytes:
        return self.epoch.to_bytes(8, "little") + (b"" if self.waits == NONE else self.waits.to_bytes(8, "little"))


class ParquetCommit(End, Unkeyed, Timed, Operator):
    """Commits the parts staged in an epoch: decides by a manifest, then publishes them as one file. Port 0: the records it committed.

    Takes the same parameters as `ParquetStage`. With `file_interval_ms` commits wait, and those of one such interval are one file: that is
    put into place with the first epoch whose stamp is beyond the interval, or with the last one. An epoch at or below the last committed
    one changes nothing. A replica that has just got its state looks at the directory before its first epoch: the others may have gone on
    meanwhile. Raises SinkError.
    """

    def __init__(
        self, schema: pa.Schema = RECORD_SCHEMA, *, path: str, run: str, commit_interval_ms: int = 1000, retries: int = 5,
        backoff_ms: int = 100, wait: Callable[[int], None] = no_wait, store: FileStore | None = None, into: Into | None = None,
        options: Options = (), partition_by: Sequence[str] = (), file_interval_ms: int = 0,
    ) -> None:  # fmt: skip
        self.schemas: tuple[pa.Schema, ...] = (schema,)
        self._interval_us, self._file_us = commit_interval_ms * 1000, file_interval_ms * 1000
        joins = bool(file_interval_ms)
        self._open = partial(open_files, path, run, retries, backoff_ms, wait, store, into, options, partition_by, joins)
        self._files: Place | None = None
        self._last_epoch, self._waits = 0, NONE

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if self._files is None:
            files = self._open()
            files.prepare()
            files.recover()
            files.last_epoch = max(files.last_epoch, self._last_epoch)
            if not self._file_us:
                files.close(NONE)  # Commits of before may have waited to be one file.
                self._waits = NONE
            self._files = files
        given = rows.batch.to_pylist()
        epochs = {epoch for record in given for epoch in np.frombuffer(record.pop("epochs"), "<i8").tolist()}
        parts = [StagedFile(**record) for record in given]
        if self._file_us:
            self._join(self._files, parts, tick)
        else:
            self._files.commit(tick.epoch, parts)
        self.stored = tuple(sorted(epochs))
        self.ended = ((0, sum(record["rows"] for record in given)),) if given else ()
        if rows.count:
            self._last_epoch = max(self._last_epoch, tick.epoch)
        return (Rows(rows.batch, rows.partition),)

    def _join(self, files: Place, parts: Sequence[StagedFile], tick: Tick) -> None:
        """What is committed at a stamp came before it, in the commit interval that is over."""
        slot = max(0, tick.stamp - self._interval_us) // self._file_us
        if self._waits < slot:
            files.close(slot)
            self._waits = NONE
        if parts:
            files.commit(tick.epoch, parts, slot)
            self._waits = min(self._waits, slot)
        if tick.last and self._waits != NONE:
            files.close(NONE)
            self._waits = NONE

    def next_us(self, stamp: int) -> int:
        return NEVER_US if self._waits == NONE else (self._waits + 1) * self._file_us + self._interval_us

    def capture(self, partition: int) -> Snapshot | None:
        return LastEpoch(self._last_epoch, self._waits) if partition == 0 and self._last_epoch else None

    def install(self, partition: int, state: bytes) -> None:
        self._last_epoch, self._files = int.from_bytes(state[:8], "little"), None
        self._waits = int.from_bytes(state[8:], "little") if len(state) > 8 else NONE

    def drop(self, partition: int) -> None:
        if partition == 0:
            self._last_epoch, self._waits, self._files = 0, NONE, None

    def state_bytes(self) -> int:
        return 16

    def partition_bytes(self, partitions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.where((partitions == 0) & (self._last_epoch > 0), 16, 0).astype(np.int64)
