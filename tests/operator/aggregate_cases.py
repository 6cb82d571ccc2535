"""Rows for the tests of aggregates, and an oracle in plain Python that knows nothing of the operators."""

from __future__ import annotations

import math
import statistics
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.kernels.hash import hash_columns, partition_of, table_of_ranges
from evenflow.query.aggregates import AggCall, result_type
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("name", pa.string()),
        ("i", pa.int64()),
        ("small", pa.int16()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("s", pa.string()),
    ]
)


def make_batch(rng: np.random.Generator, n: int, keys: int = 20, *, span_us: int = 100_000_000, nulls: bool = True) -> pa.RecordBatch:
    """Random rows of SCHEMA with nulls, NaN, infinities and both zeros."""
    special = np.array([0.0, -0.0, math.nan, math.inf, 1.5])
    f = np.where(rng.random(n) < 0.15, special[rng.integers(0, 5, n)], rng.normal(size=n) * 1e3)
    missing = [rng.random(n) < (0.15 if nulls else 0.0) for _ in range(10)]
    key = rng.integers(0, keys, n)
    columns = [
        pa.array(key, mask=missing[0]),
        pa.array([f"n{x % 7}" for x in key], mask=missing[1]),
        pa.array(rng.integers(-(10**12), 10**12, n), mask=missing[2]),
        pa.array(rng.integers(-100, 100, n).astype(np.int16), mask=missing[3]),
        pa.array(f, mask=missing[4]),
        pa.array(rng.integers(-50, 50, n).astype(np.float32), mask=missing[5]),
        pa.array(rng.random(n) < 0.5, mask=missing[6]),
        pa.array(rng.integers(0, 20_000, n).astype(np.int32), mask=missing[7]).view(pa.date32()),
        pa.array(rng.integers(0, span_us, n), mask=missing[8]).view(pa.timestamp("us")),
        pa.array([f"é{x}" for x in rng.integers(0, 1000, n)], mask=missing[9]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def make_rows(batch: pa.RecordBatch, keys: Sequence[str], partitions: int = 8) -> Rows:
    hashes = hash_columns(batch, keys)
    return Rows(batch, partition_of(hashes, table_of_ranges(partitions)), hashes)


def tick(epoch: int, before: int = NO_WATERMARK, watermark: int = NO_WATERMARK) -> Tick:
    return Tick(epoch, epoch * 1000, before, watermark)


def call(function: str, column: str | None = None) -> AggCall:
    kind = None if column is None else SCHEMA.field(column).type
    return AggCall(f"{function}_{column or 'all'}", function, column, result_type(function, kind))


def _greater(a: Any, b: Any) -> bool:
    """Spark's order: NaN is the greatest."""
    if isinstance(a, float):
        return (not math.isnan(b)) and (math.isnan(a) or a > b)
    return bool(a > b)


def expected(c: AggCall, rows: Sequence[dict[str, Any]]) -> Any:
    """What Spark SQL gives for a call over rows in this order."""
    if c.column is None:
        return len(rows)
    values = [row[c.column] for row in rows]
    known = [v for v in values if v is not None]
    if c.function == "count":
        return len(known)
    if c.function in ("first", "last"):
        return values[0 if c.function == "first" else -1]
    if c.function == "collect_list":
        return known
    if c.function in ("first_known", "last_known"):
        return known[0 if c.function == "first_known" else -1] if known else None
    if c.function == "approx_count_distinct":
        return len(set(known))
    if not known:
        return None
    if c.function in ("min", "max"):
        best = known[0]
        for v in known[1:]:
            if _greater(v, best) if c.function == "max" else _greater(best, v):
                best = v
        return best
    if c.function == "sum":
        return sum(known[1:], known[0])
    if c.function == "avg":
        return sum(known) / len(known)
    if len(known) < 2:
        return None
    return math.nan if any(not math.isfinite(v) for v in known) else statistics.stdev(map(float, known))


def by_key(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """The rows of each key, keys in order of first appearance."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[k] for k in keys), []).append(row)
    return groups


def same(found: Any, wanted: Any, *, tolerance: float = 1e-9) -> bool:
    """Equal, floats within a relative tolerance, NaN equal to itself."""
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, float) and isinstance(found, float):
        if math.isnan(wanted):
            return math.isnan(found)
        return found == wanted or math.isclose(found, wanted, rel_tol=tolerance, abs_tol=1e-6)
    return bool(found == wanted and type(found) is type(wanted))


def moving_epochs(rng: np.random.Generator, count: int, n: int, *, back: float) -> Iterator[tuple[pa.RecordBatch, int, int]]:
    """Batches whose times move on, each with the watermark before and after, drawn one by one. back: share of rows that are late."""
    before, second = NO_WATERMARK, 1_000_000
    for epoch in range(count):
        batch = make_batch(rng, n, keys=12, span_us=30 * second)
        late = np.where(rng.random(n) < back, 25 * second, 0).tolist()
        times = batch.column("ts").cast(pa.int64()).to_pylist()
        stamps = [None if x is None else x - b + epoch * 20 * second for x, b in zip(times, late, strict=True)]
        batch = batch.set_column(SCHEMA.get_field_index("ts"), SCHEMA.field("ts"), pa.array(stamps, pa.timestamp("us")))
        after = END_OF_STREAM if epoch == count - 1 else max([before, *(s - 9 * second for s in stamps if s is not None)])
        yield batch, before, after
        before = after


ALL_CALLS = [
    call("count"),
    *(call("count", c) for c in ("i", "s", "b")),
    *(call("sum", c) for c in ("i", "small", "f", "g")),
    *(call("avg", c) for c in ("i", "small", "f", "g")),
    *(call("stddev", c) for c in ("i", "f", "g")),
    *(call(f, c) for f in ("min", "max", "first", "last") for c in ("i", "small", "f", "g", "b", "d", "ts", "s")),
    *(call("collect_list", c) for c in ("i", "f", "d", "s")),
]


IGNORING_NULLS = [call(function, column) for function in ("first_known", "last_known") for column in ("i", "g", "s")]


def bits(batch: pa.RecordBatch) -> list[tuple[str, list[Any]]]:
    """Content of a batch such that == means bitwise equality: floats by their bits, also inside others."""

    def exact(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [exact(v) for v in value]
        if isinstance(value, dict):
            return {name: exact(v) for name, v in value.items()}
        return struct.pack("d", value) if isinstance(value, float) else value

    return [(field.name, [exact(v) for v in batch.column(i).to_pylist()]) for i, field in enumerate(batch.schema)]
