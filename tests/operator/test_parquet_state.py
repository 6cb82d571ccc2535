"""The state of the two Parquet steps: what travels with a partition, and what must not be forgotten with another one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyarrow import fs as arrow_fs

from evenflow.operator.parquet import CHUNK_ROWS, ParquetCommit, ParquetStage
from evenflow.store.arrow import ArrowStore
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string())])


def store_in_memory() -> ArrowStore:
    return ArrowStore(arrow_fs._MockFileSystem(), "out")


def stage(store: ArrowStore) -> ParquetStage:
    return ParquetStage(SCHEMA, path="/out", run="r", store=store)


def commit(store: ArrowStore) -> ParquetCommit:
    return ParquetCommit(path="/out", run="r", store=store)


def rows(values: list[int | None], partitions: list[int]) -> Rows:
    """Rows whose nulls hide different values, as slices of larger batches do."""
    hidden = np.array([9 * i if value is None else value for i, value in enumerate(values)], np.int64)
    texts = [None if value is None else f"t{value}" for value in values]
    x = pa.array(hidden, mask=np.array([value is None for value in values], np.bool_))
    return Rows(pa.RecordBatch.from_arrays([x, pa.array(texts, pa.string())], schema=SCHEMA), np.array(partitions, np.int32))


def tick(epoch: int, last: bool = False) -> Tick:
    return Tick(epoch, epoch, NO_WATERMARK, END_OF_STREAM if last else NO_WATERMARK)


def test_equal_states_are_equal_bytes_whoever_else_was_there() -> None:
    alone, mixed = stage(store_in_memory()), stage(store_in_memory())
    for epoch, mine in enumerate(([1, None, 3], [4], [None, 6, 7]), 1):
        alone.process(rows(mine, [1] * len(mine)), tick(epoch))
        mixed.process(rows([0, None, *mine, 8], [0, 0, *[1] * len(mine), 2]), tick(epoch))
    one, two = alone.capture(1), mixed.capture(1)
    assert one is not None
    assert two is not None
    assert one.to_bytes() == two.to_bytes()


def test_any_number_of_held_rows_travels() -> None:
    values: list[int | None] = list(range(2 * CHUNK_ROWS + 3))
    source, target = stage(store_in_memory()), stage(store_in_memory())
    source.process(rows(values, [5] * len(values)), tick(1))
    snapshot = source.capture(5)
    assert snapshot is not None
    target.install(5, snapshot.to_bytes())
    again = target.capture(5)
    assert again is not None
    assert again.to_bytes() == snapshot.to_bytes()
    (records,) = target.process(rows([], []), tick(2, last=True))
    assert records.batch.column("rows").to_pylist() == [len(values)]


def committed(store: ArrowStore, epoch: int) -> Rows:
    """The records of one file of this epoch, staged."""
    (records,) = stage(store).process(rows([epoch], [3]), tick(epoch, last=True))
    return Rows(records.batch, np.zeros(records.count, np.int32))


def test_the_last_committed_epoch_stays_when_another_partition_is_dropped() -> None:
    store = store_in_memory()
    step = commit(store)
    step.process(committed(store, 4), tick(4))
    step.drop(7)
    snapshot = step.capture(0)
    assert snapshot is not None
    assert snapshot.to_bytes() == (4).to_bytes(8, "little")
    step.drop(0)
    assert step.capture(0) is None


def test_a_state_that_arrives_where_the_directory_is_known_already_counts() -> None:
    """Epochs that others have committed since this step looked at the directory are not committed again."""
    store = store_in_memory()
    leader, follower = commit(store), commit(store)
    follower.process(rows([], []), tick(1))
    records = committed(store, 2)
    leader.process(records, tick(2))
    snapshot = leader.capture(0)
    assert snapshot is not None
    follower.install(0, snapshot.to_bytes())
    (name,) = store.names("_evenflow")
    store.remove(f"_evenflow/{name}")
    follower.process(records, tick(2))
    assert store.names("_evenflow") == []
