"""Small dataflows for the simulator, each with the answer that plain Python gives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

import evenflow as ef

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.int64())])
Row = tuple[int, int, int]
Answer = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """A dataflow over generated rows. answer: the rows that must come out, sorted. result: what to make of the sink's rows to compare."""

    flow: ef.Dataflow
    answer: Answer
    result: Callable[[pa.Table], Answer]


def make_rows(random: Random, partitions: int, rows: int, keys: int) -> list[list[Row]]:
    """Rows (ts, k, v) per source partition, ts strictly rising within a partition and unique overall."""
    parts: list[list[Row]] = []
    for partition in range(partitions):
        ts, part = 0, []
        for _ in range(random.randint(0, rows)):
            ts += random.randint(1, 20)
            part.append((ts * partitions + partition, random.randrange(keys), random.randint(-100, 100)))
        parts.append(part)
    return parts


def batches(part: list[Row], random: Random) -> list[pa.RecordBatch]:
    cut, out = 0, []
    while cut < len(part):
        size = random.randint(1, 400)
        out.append(pa.record_batch([list(column) for column in zip(*part[cut : cut + size])], schema=SCHEMA))
        cut += size
    return out


def source(parts: list[list[Row]], random: Random) -> Any:
    return ef.sources.memory([batches(part, random) or [pa.record_batch([[], [], []], schema=SCHEMA)] for part in parts])


def last_per_key(table: pa.Table) -> Answer:
    """Update mode: the last row of a key is its result."""
    final = {row["k"]: tuple(row.values()) for row in table.to_pylist()}
    return sorted(final.values())


def every_row(table: pa.Table) -> Answer:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def running(random: Random, rows: int) -> Case:
    parts = make_rows(random, random.randint(1, 4), rows, 40)
    flow = ef.Dataflow("running")
    stream = flow.source(source(parts, random)).where("v >= -50")
    stream.group_by("k").agg(n="count(*)", total="sum(v)", low="min(v)").to(ef.sinks.memory("out"), name="out")
    groups = defaultdict(list)
    for _, k, v in (row for part in parts for row in part):
        if v >= -50:
            groups[k].append(v)
    return Case(flow, sorted((k, len(vs), sum(vs), min(vs)) for k, vs in groups.items()), last_per_key)


def two_stages(random: Random, rows: int) -> Case:
    parts = make_rows(random, random.randint(1, 4), rows, 40)
    flow = ef.Dataflow("two-stages")
    windows = flow.source(source(parts, random)).with_watermark("ts", "1 second").group_by("k").window("500 microseconds")
    first = windows.agg(total="sum(v)")
    first.select("k % 7 as k", "total").group_by("k").agg(n="count(*)", total="sum(total)").to(ef.sinks.memory("out"), name="out")
    sums: dict[tuple[int, int], int] = defaultdict(int)
    for ts, k, v in (row for part in parts for row in part):
        sums[k, ts // 500] += v
    groups = defaultdict(list)
    for (k, _), total in sums.items():
        groups[k % 7].append(total)
    return Case(flow, sorted((k, len(ts), sum(ts)) for k, ts in groups.items()), last_per_key)


def row_windows(random: Random, rows: int) -> Case:
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    half = len(parts) // 2 or 1
    flow = ef.Dataflow("row-windows")
    left = flow.source(source(parts[:half], random), name="left").with_watermark("ts", "0 seconds")
    right = flow.source(source(parts[half:] or [[]], random), name="right").with_watermark("ts", "0 seconds")
    left.union(right).group_by("k").rows(5, slide=3).agg(total="sum(v)", first="first(v)").to(ef.sinks.memory("out"), name="out")
    history = defaultdict(list)
    answer = []
    for _, k, v in sorted(row for part in parts for row in part):
        history[k].append(v)
        if len(history[k]) % 3 == 0:
            answer.append((k, sum(history[k][-5:]), history[k][-5:][0]))
    return Case(flow, sorted(answer), lambda table: every_row(table.drop_columns(["ts"])) if table.num_columns else [])


CASES: dict[str, Callable[[Random, int], Case]] = {"running": running, "two_stages": two_stages, "row_windows": row_windows}
