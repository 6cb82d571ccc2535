"""Rows and an oracle for the tests of joins, and joins as the laws run an operator: with one input whose rows say their side."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.hash import hash_columns, partition_of, table_of_ranges
from evenflow.operator.holding import Holding
from evenflow.operator.join.join import StreamJoin
from evenflow.operator.operator import Shown
from evenflow.query.join import Join
from evenflow.state.snapshot import Snapshot
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

LEFT = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("x", pa.int64()), ("note", pa.string())])
RIGHT = pa.schema([("rts", pa.timestamp("us")), ("rk", pa.int64()), ("y", pa.int64()), ("tag", pa.string())])
Row = tuple[Any, ...]


def join(how: Any, low_us: int | None = -30, high_us: int | None = 10, condition: str | None = None, **more: Any) -> Join:
    return Join(how, ("k",), ("rk",), low_us=low_us, high_us=high_us, condition=condition, **more)


def operator(made: Join) -> StreamJoin:
    return StreamJoin(made, LEFT, RIGHT, "ts", "rts")


def rows(schema: pa.Schema, data: Sequence[Row], partitions: int = 6) -> Rows:
    columns = zip(*data, strict=True) if data else [()] * len(schema)
    batch = pa.record_batch([pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)], schema=schema)
    hashes = hash_columns(batch, [schema.names[1]])
    return Rows(batch, partition_of(hashes, table_of_ranges(partitions)), hashes)


def values(batch: pa.RecordBatch) -> list[Row]:
    """The rows, timestamps as integers."""
    plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns]
    return list(zip(*(c.to_pylist() for c in plain), strict=True)) if plain else []


Epoch = tuple[list[Row], list[Row]]


def drawn(seed: int, epochs: int = 30, keys: int = 5, late: bool = False) -> list[Epoch]:
    """Left and right rows of each epoch; from `NO_WATERMARK` the watermark goes ten microseconds an epoch."""
    rng = random.Random(seed)

    def side(epoch: int) -> list[Row]:
        made = []
        for _ in range(rng.choice([0, 1, 12])):
            time: int | None = epoch * 10 + rng.randrange(-30 if late else 0, 40)
            if rng.random() < 0.05:
                time = None
            made.append((time, rng.choice([None, *range(keys)]), rng.randrange(10), rng.choice(["", "é", None])))
        return made

    return [(side(epoch), side(epoch)) for epoch in range(1, epochs + 1)]


def ticks(epochs: Sequence[Epoch]) -> list[Tick]:
    marks = [NO_WATERMARK, *(10 * epoch for epoch in range(1, len(epochs))), END_OF_STREAM]
    return [Tick(number + 1, 0, before, after) for number, (before, after) in enumerate(pairwise(marks))]


def run(made: StreamJoin, epochs: Sequence[Epoch], when: Sequence[Tick] | None = None) -> list[list[Row]]:
    """What comes out of each epoch."""
    when = ticks(epochs) if when is None else when
    return [
        values(made.process_sides(rows(LEFT, left), rows(RIGHT, right), tick)[0].batch)
        for (left, right), tick in zip(epochs, when, strict=True)
    ]


def expected(made: Join, epochs: Sequence[Epoch]) -> list[Row]:
    """What a nested loop over all rows gives; `condition` may only be l.x > r.y."""
    left, right = [row for some, _ in epochs for row in some], [row for _, some in epochs for row in some]

    def match(a: Row, b: Row) -> bool:
        if None in (a[0], b[0], a[1], b[1]) or a[1] != b[1]:
            return False
        near = (made.low_us is None or b[0] - a[0] >= made.low_us) and (made.high_us is None or b[0] - a[0] <= made.high_us)
        return near and (made.condition is None or a[2] > b[2])

    pairs = [(*a, *b) for a in left for b in right if match(a, b)]
    lonely_left = [a for a in left if not any(match(a, b) for b in right)]
    lonely_right = [b for b in right if not any(match(a, b) for a in left)]
    none: Row = (None,) * 4
    match made.how:
        case "semi":
            return [a for a in left if any(match(a, b) for b in right)]
        case "anti":
            return lonely_left
        case how:
            pairs += [(*a, *none) for a in lonely_left] if how in ("left", "full") else []
            return pairs + ([(*none, *b) for b in lonely_right] if how in ("right", "full") else [])


def in_order(found: Sequence[Row]) -> list[Row]:
    return sorted(found, key=str)


class OneInput(Shown, Holding):
    """A join whose two inputs come as one, over rows of `schema`: those with an even `small` are of the left, the others of the right."""

    def __init__(self, made: Join, schema: pa.Schema) -> None:
        right = pa.schema([f.with_name(f"r_{f.name}") for f in schema])
        self._right_schema = right
        self._join = StreamJoin(made, schema, right, "ts", "r_ts")
        self.schemas = self._join.schemas
        self._changes = self._join.changes

    def process(self, given: Rows, tick: Tick) -> tuple[Rows, ...]:
        small = given.batch.column("small").fill_null(1).to_numpy(zero_copy_only=False)
        left, right = given.take(np.flatnonzero(small % 2 == 0)), given.take(np.flatnonzero(small % 2 == 1))
        renamed = pa.RecordBatch.from_arrays(right.batch.columns, schema=self._right_schema)
        return self._join.process_sides(left, Rows(renamed, right.partition, right.hash), tick)

    def capture(self, partition: int) -> Snapshot | None:
        return self._join.capture(partition)

    @property
    def shown(self) -> pa.Schema:
        return self._join.shown

    def show(self, partition: int) -> pa.RecordBatch:
        return self._join.show(partition)

    def install(self, partition: int, state: bytes) -> None:
        self._join.install(partition, state)

    def divide(self, states: Sequence[bytes], groups: np.ndarray) -> dict[int, bytes]:
        return self._join.divide(states, groups)

    def drop(self, partition: int) -> None:
        self._join.drop(partition)

    def state_bytes(self) -> int:
        return self._join.state_bytes()

    def partition_bytes(self, partitions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._join.partition_bytes(partitions)
