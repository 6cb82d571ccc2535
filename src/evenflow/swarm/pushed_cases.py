"""A small dataflow whose rows Spark's tasks push, batch by batch, with the answer of plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import pyarrow as pa

import evenflow as ef
from evenflow.sources.pushed import SparkSource
from evenflow.swarm.cases import SCHEMA, Case, Complaint, Row, Tables, differ, newest, rows_of

Batches = list[list[list[pa.RecordBatch]]]
"""By batch and task."""


def pushed(random: Random, rows: int, made: Callable[[Batches], Any] | None = None) -> Case:
    """Windows without delay, and running totals. Event time rises from batch to batch, and within none: no row is late as long as the times
    of a batch count only when it is whole. Two sinks. made: another source of these rows than one that Spark's tasks push."""
    every: list[Row] = []
    batches: Batches = []
    ts = 0
    for _ in range(random.randint(1, 6)):
        tasks: list[list[Row]] = [[] for _ in range(random.randint(0, 5))]
        for _ in range(random.randint(0, rows // 2) if tasks else 0):
            ts += random.randint(1, 20)
            row = (ts, random.randrange(12), random.randint(-100, 100))
            every.append(row)
            random.choice(tasks).append(row)
        for task in tasks:
            random.shuffle(task)
        batches.append([cut(task, random) for task in tasks])
    flow = ef.Dataflow("pushed")
    streaming = random.random() < 0.3
    source = SparkSource(SCHEMA, streaming, batches) if made is None else made(batches)
    stream = flow.source(source, name="in").with_watermark("ts", "0 seconds")
    counted = stream.group_by("k").window("300 microseconds").agg(n="count(*)", total="sum(v)")
    counted.select("k", "n", "total").to(ef.sinks.memory("windows"), name="windows")
    stream.group_by("k").agg(n="count(*)", total="sum(v)").to(ef.sinks.memory("out"), name="out")
    sums: dict[tuple[int, int], list[int]] = defaultdict(list)
    groups: dict[int, list[int]] = defaultdict(list)
    for at, k, v in every:
        sums[k, at // 300].append(v)
        groups[k].append(v)
    windows = [(k, len(vs), sum(vs)) for (k, _), vs in sums.items()]
    totals = [(k, len(vs), sum(vs)) for k, vs in groups.items()]

    def judge(tables: Tables) -> Complaint:
        return differ(rows_of(tables["windows"]), windows) or differ(newest(tables["out"]).values(), totals)

    def judge_part(tables: Tables) -> Complaint:
        """A drained run puts out the windows of what it has taken in."""
        counted: dict[int, int] = defaultdict(int)
        for k, n, _ in rows_of(tables["windows"]):
            counted[k] += n
        latest = {k: row[1] for k, row in newest(tables["out"]).items()}
        wrong = [k for seen in (counted, latest) for k, n in seen.items() if n > len(groups[k])]
        return f"keys that were counted too often: {wrong[:3]}" if wrong else None

    return Case(flow, {"in": [len(every)]}, judge, judge_part, cut=False)


def cut(task: list[Row], random: Random) -> list[pa.RecordBatch]:
    """The rows of a task as Spark gives them: in pieces of any size."""
    at, pieces = 0, []
    while at < len(task):
        size = random.randint(1, 60)
        pieces.append(pa.record_batch([list(column) for column in zip(*task[at : at + size], strict=True)], schema=SCHEMA))
        at += size
    return pieces


PUSHED: Final[Mapping[str, Callable[[Random, int], Any]]] = {"pushed": pushed, "pushed_more": pushed}
"""Twice, since so much happens to them that happens to no other."""
