"""What combining before the exchange costs and saves: `python bench/hot_keys.py [--quick]`.

Four producer partitions and the sites behind the exchange, in one process: count(*), sum and avg per key, uniform keys and keys of Zipf
1.2. Compared: no combining; a table of every key (what Evenflow did before decision 20); hot keys only. Per variant: CPU of the
producers (combining, hashing, splitting by site) and of the hottest site (merging into its totals), both per row of the source, and how
many rows the hottest site and the hottest partition get. CPU time of this process, median of rounds in which the variants take turns.
Prints a table and writes bench/results/hot_keys.json.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.hash import hash_columns, partition_of, scatter, table_of_ranges
from evenflow.kernels.table import HEADER, gather
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.totals.combine import Combine
from evenflow.operator.totals.totals import Totals
from evenflow.query.aggregates import AggCall, partial_schema
from evenflow.state.keys import identity, key_columns
from evenflow.state.pages import PagedTable
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("price", pa.float64())])
KEYS = ("key",)
CALLS = [
    AggCall("n", "count", None, pa.int64()),
    AggCall("total", "sum", "value", pa.int64()),
    AggCall("mean", "avg", "price", pa.float64()),
]
PRODUCERS, SITES, PARTITIONS = 4, 4, 64
TICK = Tick(2, 0, NO_WATERMARK, NO_WATERMARK)
RESULT = Path(__file__).parent / "results" / "hot_keys.json"
Keys = npt.NDArray[np.int64]


class Before(Protocol):
    """What stands before the exchange."""

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]: ...


class Nothing:
    """Rows go as they are."""

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        return (Rows(rows.batch, rows.partition, hash_columns(rows.batch, KEYS)),)


class EveryKey:
    """A table of every key of the epoch, as `Combine` was before."""

    def __init__(self) -> None:
        self._totals = Totals(CALLS, SCHEMA, first=HEADER, every_cell=True)
        self._table = PagedTable(self._totals.template)
        self._schema = partial_schema(SCHEMA, KEYS, CALLS, None)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        rows = Rows(rows.batch, rows.partition, hash_columns(rows.batch, KEYS))
        hashes, checks = identity(rows, KEYS)
        bound = self._totals.bind(rows.batch)
        apart = hashes + rows.partition.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        self._table.clear()
        one = np.zeros(rows.count, np.int32)
        touched = self._table.fold(one, apart, checks, epoch=0, ops=bound.ops, values=bound.values, nulls=bound.nulls)
        arrays = key_columns(rows.batch, KEYS, touched.rows)
        arrays += self._totals.partials(gather(self._table.words, touched.slots, self._totals.columns))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return (Rows(batch, rows.partition[touched.rows], hashes[touched.rows]),)


VARIANTS: dict[str, Callable[[], Before]] = {
    "none": Nothing,
    "every key": EveryKey,
    "hot keys": lambda: Combine(SCHEMA, KEYS, CALLS),
}


def uniform(keys: int) -> Callable[[np.random.Generator, int], Keys]:
    return lambda rng, n: rng.integers(0, keys, n)


def zipf(keys: int, exponent: float) -> Callable[[np.random.Generator, int], Keys]:
    """Zipf's law over a bounded number of keys; key k has rank k + 1."""
    weights = np.cumsum(1 / np.arange(1, keys + 1) ** exponent)
    return lambda rng, n: np.searchsorted(weights / weights[-1], rng.random(n)).astype(np.int64)


CASES: dict[str, Callable[[np.random.Generator, int], Keys]] = {
    "uniform, 1,000,000 keys": uniform(1_000_000),
    "uniform, 10,000 keys": uniform(10_000),
    "Zipf 1.2, 1,000,000 keys": zipf(1_000_000, 1.2),
}


def epoch_of(rng: np.random.Generator, keys: Keys) -> pa.RecordBatch:
    columns = [pa.array(keys), pa.array(rng.integers(0, 1000, keys.size)), pa.array(rng.random(keys.size))]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def split(rows: Rows, groups: npt.NDArray[np.int32]) -> list[tuple[pa.RecordBatch, npt.NDArray[np.uint64]]]:
    """Rows and hashes per site, as an exchange makes them. Partition p is at site p modulo SITES."""
    assert rows.hash is not None
    order, counts = scatter(partition_of(rows.hash, groups) % np.int32(SITES), SITES)
    whole, hashes = rows.batch.take(pa.array(order)), rows.hash[order]
    bounds = [0, *np.cumsum(counts).tolist()]
    return [(whole.slice(a, b - a), hashes[a:b]) for a, b in pairwise(bounds)]


def run_once(
    variant: str, epochs: list[list[pa.RecordBatch]], hottest: int, groups: npt.NDArray[np.int32]
) -> tuple[float, float, int, int]:
    """CPU seconds of the producers and of the hottest site; rows that reached that site, and the hottest partition."""
    before = [VARIANTS[variant]() for _ in range(PRODUCERS)]
    schema = SCHEMA if variant == "none" else partial_schema(SCHEMA, KEYS, CALLS, None)
    totals = Aggregate(schema, KEYS, CALLS, partial=variant != "none")
    produced = consumed = 0.0
    came = np.zeros(PARTITIONS, np.int64)
    for epoch in epochs:
        began = time.process_time()
        sent = [
            split(op.process(Rows(batch, np.zeros(batch.num_rows, np.int32), None), TICK)[0], groups) for op, batch in zip(before, epoch)
        ]
        half = time.process_time()
        mine = [pieces[hottest] for pieces in sent]
        batch, hashes = pa.concat_batches([piece for piece, _ in mine]), np.concatenate([hashed for _, hashed in mine])
        partition = partition_of(hashes, groups)
        totals.process(Rows(batch, partition, hashes), TICK)
        consumed += time.process_time() - half
        produced += half - began
        came += np.bincount(partition, minlength=PARTITIONS)
    return produced, consumed, int(came.sum()), int(came.max())


def measure(name: str, epoch_rows: int, epochs: int, rounds: int) -> dict[str, Any]:
    rng = np.random.default_rng(20)
    groups = table_of_ranges(PARTITIONS)
    made = [[epoch_of(rng, CASES[name](rng, epoch_rows)) for _ in range(PRODUCERS)] for _ in range(epochs)]
    partition = np.concatenate([partition_of(hash_columns(batch, KEYS), groups) for batch in made[0]])
    hottest = int(np.bincount(partition % SITES, minlength=SITES).argmax())
    rows = epoch_rows * epochs * PRODUCERS
    seen: dict[str, list[tuple[float, float, int, int]]] = {variant: [] for variant in VARIANTS}
    for _ in range(rounds + 1):
        for variant in VARIANTS:
            seen[variant].append(run_once(variant, made, hottest, groups))
    found: dict[str, Any] = {}
    for variant, results in seen.items():
        produced, consumed = (statistics.median(result[i] for result in results[1:]) for i in (0, 1))
        found[variant] = {
            "producer_ns_per_row": round(produced / rows * 1e9, 1),
            "hottest_site_ns_per_row": round(consumed / rows * 1e9, 1),
            "hottest_site_rows_share": round(results[0][2] / rows, 4),
            "hottest_partition_rows_share": round(results[0][3] / rows, 4),
        }
    return found


def main() -> None:
    quick = "--quick" in sys.argv
    sizes = (2_000,) if quick else (1_000, 10_000, 50_000)
    results: dict[str, dict[str, Any]] = {}
    for epoch_rows in sizes:
        epochs = max(4, (40_000 if quick else 400_000) // (epoch_rows * PRODUCERS))
        for name in CASES:
            found = measure(name, epoch_rows, epochs, 1 if quick else 7)
            results[f"{name}; {epoch_rows:,} rows"] = found
            print(f"\n{name}; {epoch_rows:,} rows per producer and epoch")
            print(f"  {'combined':<10} {'producers':>12} {'hottest site':>14} {'its rows':>9} {'hottest partition':>18}")
            for variant, row in found.items():
                print(
                    f"  {variant:<10} {row['producer_ns_per_row']:>7.1f} ns/r {row['hottest_site_ns_per_row']:>9.1f} ns/r "
                    f"{row['hottest_site_rows_share']:>9.1%} {row['hottest_partition_rows_share']:>18.2%}"
                )
    if not quick:
        about = {
            "command": "python bench/hot_keys.py",
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pyarrow": pa.__version__,
        }
        RESULT.write_text(
            json.dumps({**about, "producers": PRODUCERS, "sites": SITES, "partitions": PARTITIONS, "results": results}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
