"""The rows of a box's state as a DataFrame: the chains of a checkpoint's objects are read by executors, a task for each.

The driver reads the journal and what is written down of the dataflow; no object. What an object has goes from the store to the executor
that folds it, and from there to whatever Spark does with the rows. So a state may be larger than the driver's memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from evenflow.errors import OptionError
from evenflow.state.keys import IDENTITY
from evenflow.store.opening import open_store
from evenflow.stream.schema import quoted
from evenflow.world.locations.checkpoints import Checkpoints, checkpoints
from evenflow.world.locations.kept import Which
from evenflow.world.locations.reading import BoxRows, identified, keys_demanded
from evenflow.world.spark.bridge.stream_source import spark_type
from evenflow.world.spark.cluster.ship import on_executor, ship

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_state(
    spark: SparkSession,
    location: str | Checkpoints,
    box: str,
    *,
    checkpoint: Which = None,
    kind: str | None = None,
    keys: DataFrame | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The state of a box as a checkpoint has it: a row per key, window, or row that waits, as docs/durability.md lists them by kind of box.

    location: of checkpoints, or a savepoint; a directory or URL that driver and executors can read. checkpoint: its number, or
    "GENERATION.NUMBER"; None: the newest that is whole. kind: of which of the box's steps, where several have state. keys: a DataFrame that
    has the box's key columns, such as what one of its sinks has written: where a state has keys as `_key_hash` and `_key_check` only, the
    rows of these keys come, with the key columns in their place. options: of the store's client.

    Nothing is read before the DataFrame is. Raises LocationError if there is no location, or one of another format; CheckpointCorrupt if an
    object is missing; OperationRefused if there is no such checkpoint or box, or the box has no state. An object that was altered is a
    CheckpointCorrupt in the task that reads it.
    """
    if isinstance(location, Checkpoints) and options is not None:
        raise OptionError("the store's options were given to ef.checkpoints(location, options) already")
    found = location if isinstance(location, Checkpoints) else checkpoints(location, options)
    rows = found.rows_of(box, checkpoint, kind=kind)
    archive = ship(spark.sparkContext)
    task = on_executor(archive, __name__, "read", rows, found.url, dict(found.options))
    count = len(rows.chains)
    frame = spark.range(0, count, 1, max(1, count)).mapInArrow(lambda batches: task(batches), ddl(rows.schema))
    return frame if keys is None else _of_keys(frame, rows, keys, archive)


def _of_keys(frame: DataFrame, rows: BoxRows, keys: DataFrame, archive: str) -> DataFrame:
    """Those rows whose keys are given, with the key columns."""
    wanted = keys_demanded(rows, keys.columns)
    given = keys.select(*(keys[quoted(each.name)].cast(spark_type(each.type)).alias(each.name) for each in wanted)).distinct()
    task = on_executor(archive, __name__, "identify", wanted)
    made = given.mapInArrow(lambda batches: task(batches), ddl(pa.schema([*wanted, *IDENTITY])))
    identity = [each.name for each in IDENTITY]
    rest = [name for name in rows.schema.names if name not in identity]
    return frame.join(made, identity).select(*map(quoted, [*wanted.names, *rest]))


def ddl(schema: pa.Schema) -> str:
    """For Spark."""
    return ", ".join(f"{quoted(each.name)} {state_type(each.type)}" for each in schema)


def state_type(kind: pa.DataType) -> str:
    """Spark's name of a type that a state's column can have: those of columns, and what is made of them."""
    if pa.types.is_map(kind):
        return f"map<{state_type(kind.key_type)}, {state_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{quoted(each.name)}: {state_type(each.type)}' for each in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{state_type(kind.value_type)}>"
    return "binary" if pa.types.is_large_binary(kind) else spark_type(kind)


# ---------------------------------------------------------------- in a task


def read(rows: BoxRows, url: str, options: Mapping[str, Any], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of the chains with these numbers. Raises CheckpointCorrupt, LocationError."""
    store = open_store(url, options)
    for numbers in batches:
        for number in numbers.column(0).to_pylist():
            yield from rows.batches(store, number)


def identify(keys: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keys with their identity."""
    for batch in batches:
        yield identified(batch, keys)
