"""Kernels of keyed aggregation, measured: `python bench/kernels.py [--quick]`.

count(*), sum and avg per key. Three questions: which library folds an epoch fastest (one thread); what a row costs when the state
grows, with and without an open snapshot; what partitions cost. Times are CPU time of this process, the median and the least of
many epochs. Prints tables and writes bench/results/kernels.json.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["POLARS_MAX_THREADS"] = "1"

import numba
import numpy as np
import polars as pl
import pyarrow as pa

from evenflow.kernels.hash import hash_columns, partition_of, table_of_ranges
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.totals.row_window import RowWindowAggregate
from evenflow.query.aggregates import AggCall, RowWindow
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64())])
CALLS = [
    AggCall("n", "count", None, pa.int64()),
    AggCall("total", "sum", "x", pa.int64()),
    AggCall("mean", "avg", "x", pa.float64()),
]
TICK = Tick(2, 0, NO_WATERMARK, NO_WATERMARK)
RESULTS = Path(__file__).parent / "results" / "kernels.json"


def make(rng: np.random.Generator, keys: np.ndarray, partitions: int) -> Rows:
    batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(rng.integers(0, 1000, keys.size))], schema=SCHEMA)
    hashes = hash_columns(batch, ["k"])
    return Rows(batch, partition_of(hashes, table_of_ranges(partitions)), hashes)


def measure(run: Callable[[int], object], n: int, repeats: int) -> dict[str, float]:
    """CPU nanoseconds per row: median and least over the repeats, and the mean."""
    times = []
    for repeat in range(repeats):
        start = time.process_time_ns()
        run(repeat)
        times.append((time.process_time_ns() - start) / n)
    return {"median": round(float(np.median(times)), 1), "least": round(min(times), 1), "mean": round(float(np.mean(times)), 1)}


def loaded(rng: np.random.Generator, keys: int, partitions: int) -> Aggregate:
    """An operator that knows all the keys."""
    operator = Aggregate(SCHEMA, ("k",), CALLS)
    for start in range(0, keys, 65536):
        operator.process(make(rng, np.arange(start, min(keys, start + 65536)), partitions), Tick(1, 0, NO_WATERMARK, NO_WATERMARK))
    return operator


def distinct(rng: np.random.Generator, keys: int, n: int) -> np.ndarray:
    """n keys, practically all different whatever their number, so that every state puts out as many rows."""
    return rng.permutation(keys)[:n] if keys < 4 * n else rng.integers(0, keys, n)


def with_numpy(keys: int) -> Callable[[Rows], object]:
    """NumPy: keys are found by binary search among all known ones, totals are scattered with bincount."""
    known, count, total = np.arange(keys), np.zeros(keys, np.int64), np.zeros(keys, np.int64)

    def fold(rows: Rows) -> object:
        slots = np.searchsorted(known, rows.batch.column(0).to_numpy())
        touched, ordinals = np.unique(slots, return_inverse=True)
        count[touched] += np.bincount(ordinals)
        total[touched] += np.bincount(ordinals, weights=rows.batch.column(1).to_numpy()).astype(np.int64)
        return known[touched], count[touched], total[touched], total[touched] / count[touched]

    return fold


def with_arrow(rows: Rows) -> object:
    table = pa.Table.from_batches([rows.batch])
    return table.group_by("k", use_threads=False).aggregate([([], "count_all"), ("x", "sum"), ("x", "mean")])


def with_polars(rows: Rows) -> object:
    frame = pl.from_arrow(rows.batch)
    assert isinstance(frame, pl.DataFrame)
    return frame.group_by("k").agg(n=pl.len(), total=pl.col("x").sum(), mean=pl.col("x").mean())


def compare_libraries(rng: np.random.Generator, repeats: int) -> list[dict[str, Any]]:
    found = []
    for keys in (16_384, 1_000_000):
        operator, numpy_fold = loaded(rng, keys, 64), with_numpy(keys)
        for n in (10_000, 100_000):
            epochs = [make(rng, rng.integers(0, keys, n), 64) for _ in range(8)]
            contenders: dict[str, Callable[[int], object]] = {
                "paged table (Numba), into state": lambda i, o=operator, e=epochs: o.process(e[i % 8], TICK),
                "NumPy, into state": lambda i, f=numpy_fold, e=epochs: f(e[i % 8]),
                "pyarrow group_by, batch only": lambda i, e=epochs: with_arrow(e[i % 8]),
                "Polars group_by, batch only": lambda i, e=epochs: with_polars(e[i % 8]),
            }
            for name, run in contenders.items():
                run(0)
                found.append({"how": name, "keys": keys, "rows": n, **measure(run, n, repeats if n < 50_000 else repeats // 4)})
    return found


def grow_state(rng: np.random.Generator, repeats: int, most: int) -> list[dict[str, Any]]:
    found = []
    for keys in (16_384, 1_000_000, most):
        operator = loaded(rng, keys, 64)
        epochs = [make(rng, distinct(rng, keys, 10_000), 64) for _ in range(repeats)]
        for snapshot in (False, True):
            start = time.perf_counter()
            held = [operator.capture(p) for p in range(64)] if snapshot else []
            capture_ms = (time.perf_counter() - start) * 1e3

            def run(i: int, operator: Aggregate = operator, epochs: list[Rows] = epochs) -> object:
                return operator.process(epochs[i], Tick(2 + i, 0, NO_WATERMARK, NO_WATERMARK))

            row = {"keys": keys, "snapshot": snapshot, "capture_ms": round(capture_ms, 2), **measure(run, 10_000, repeats)}
            if snapshot:
                start = time.perf_counter()
                size = sum(len(s.to_bytes()) for s in held if s is not None)
                row["read_ms_per_mb"] = round((time.perf_counter() - start) * 1e3 / (size / 1e6), 2)
            found.append({**row, "state_mb": operator.state_bytes() >> 20})
        del operator
    return found


def add_partitions(rng: np.random.Generator, repeats: int) -> list[dict[str, Any]]:
    found = []
    for keys in (16_384, 1_000_000):
        sides = {}
        for partitions in (64, 1024):
            sides[partitions] = loaded(rng, keys, partitions), [make(rng, rng.integers(0, keys, 10_000), partitions) for _ in range(8)]
        # Turn and turn about, so that both see the same noise.
        times: dict[int, list[float]] = {64: [], 1024: []}
        for i in range(repeats):
            for partitions, (operator, epochs) in sides.items():
                start = time.process_time_ns()
                operator.process(epochs[i % 8], Tick(2, 0, NO_WATERMARK, NO_WATERMARK))
                times[partitions].append((time.process_time_ns() - start) / 10_000)
        for partitions, each in times.items():
            row = {"median": round(float(np.median(each)), 1), "least": round(min(each), 1)}
            found.append({"partitions": partitions, "keys": keys, **row})
    return found


def row_windows(rng: np.random.Generator, repeats: int) -> list[dict[str, Any]]:
    found = []
    for history, slide in ((32, 1), (100, 10)):
        calls = [AggCall("mean", "avg", "x", pa.float64()), AggCall("most", "max", "x", pa.int64())]
        operator = RowWindowAggregate(SCHEMA, ("k",), calls, window=RowWindow(history, slide))
        epochs = [make(rng, rng.integers(0, 16_384, 10_000), 64) for _ in range(8)]

        def run(i: int, operator: RowWindowAggregate = operator, epochs: list[Rows] = epochs) -> object:
            return operator.process(epochs[i % 8], Tick(2 + i, 0, NO_WATERMARK, NO_WATERMARK))

        for i in range(history):
            run(i)
        found.append({"history": history, "slide": slide, **measure(run, 10_000, repeats)})
    return found


def show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}")
    names = list(rows[-1])
    widths = [max(len(name), *(len(str(row.get(name, ""))) for row in rows)) for name in names]
    print("  ".join(name.ljust(width) for name, width in zip(names, widths, strict=True)))
    for row in rows:
        print("  ".join(str(row.get(name, "")).ljust(width) for name, width in zip(names, widths, strict=True)))


def machine() -> dict[str, Any]:
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    versions = {m.__name__: m.__version__ for m in (np, pa, pl, numba)}
    load = round(os.getloadavg()[0], 1)
    return {"cpu": model, "cores": os.cpu_count(), "load": load, "python": platform.python_version(), **versions, "commit": commit}


def main() -> None:
    quick = "--quick" in sys.argv
    rng, repeats = np.random.default_rng(0), 40 if quick else 200
    report: dict[str, Any] = {"command": "python bench/kernels.py", "unit": "CPU ns per row", "machine": machine()}
    report["libraries"] = compare_libraries(rng, repeats)
    show("An epoch of count, sum, avg per key (CPU ns per row)", report["libraries"])
    report["state"] = grow_state(rng, repeats, 1_000_000 if quick else 10_000_000)
    show("The state grows: epochs of 10,000 rows of different keys", report["state"])
    report["partitions"] = add_partitions(rng, repeats)
    show("Partitions: epochs of 10,000 rows", report["partitions"])
    report["row_windows"] = row_windows(rng, repeats)
    show("avg and max over the last rows of a key, 16,384 keys, epochs of 10,000 rows", report["row_windows"])
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
