"""What a replica costs that hears and feeds k others (HW table 5.1): CPU of this process, for one operator, on real connections.

A replica takes an epoch from whichever leg brings it first, drops what the others bring by its header, undecoded, runs the operator and
says the result once over each of its legs. What Evenflow does besides for an epoch, whatever runs in it, is left out: with it the operators
would cost more, and legs, relative to them, less.
"""

from __future__ import annotations

import socket
import statistics
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.exchange.section import Bundle, Mark, Section
from evenflow.kernels.hash import hash_columns
from evenflow.operator.catalogue import build
from evenflow.query.planner import layout
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.ids import FeedNumber, PlanNumber
from evenflow.stream.rows import Rows
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import Unsealed
from evenflow.world.spark.net.wire import COUNT, HEAD, RunSchemas, encode_sections, read_sections

OPERATORS: Final = ("union", "filter", "aggregate", "join")
DEGREES: Final = (0, 1, 2, 3, 4)
"""0: no replication; nothing has to be dropped."""
WIDTH_MS: Final = 20
"""Of an epoch, with a row per millisecond and input (HW 5.5.4)."""
KIND: Final = 1
SCHEMA: Final = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("n", pa.int64())])
BUNDLE: Final = struct.Struct("<qiqiq")

Process = Callable[[Sequence[Rows], Tick], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Priced:
    """sides: inputs of its own. process: fold one epoch."""

    sides: int
    process: Process


def operator(name: str) -> Priced:
    """As in HW 5.5.4: the filter lets everything pass, the aggregate counts over 10 ms that slide by 1 ms, the join tries each row with a
    hundred and puts out one."""
    if name == "union":
        # Rows of two streams go on as they are, in one frame.
        return Priced(2, lambda sides, tick: pa.Table.from_batches([side.batch for side in sides]).combine_chunks().to_batches()[0])
    box: Any = _box(name)
    if name == "join":
        return Priced(2, lambda sides, tick: box.process_sides(sides[0], sides[1], tick)[0].batch)
    return Priced(1, lambda sides, tick: box.process(sides[0], tick)[0].batch)


def _box(name: str) -> Any:
    import evenflow as ef

    flow = ef.Dataflow(name)
    rows = flow.source(ef.sources.memory([_rows(1)]), name="rows").with_watermark("ts", "0 seconds")
    if name == "filter":
        made, kind = rows.where("n >= 0"), "filter"
    elif name == "aggregate":
        made, kind = rows.group_by("k").window("10 milliseconds", "1 millisecond").agg(count="count(*)", combine=False), "aggregate"
    else:
        other = flow.source(ef.sources.memory([_rows(1)]), name="others").with_watermark("ts", "0 seconds")
        made, kind = rows.join(other, "k", within="50 milliseconds", condition="l.n = r.n", suffix="_r"), "join"
    made.to(ef.sinks.discard())
    step = next(step for segment in layout(flow.network, sites=1).segments for step in segment.steps if step.kind == kind)
    return build(step)


def _rows(epoch: int) -> pa.RecordBatch:
    numbers = np.arange((epoch - 1) * WIDTH_MS, epoch * WIDTH_MS, dtype=np.int64)
    return pa.record_batch([pa.array(numbers * 1000).cast(pa.timestamp("us")), pa.array(np.zeros_like(numbers)), numbers], schema=SCHEMA)


def _said(epoch: int, batch: pa.RecordBatch) -> list[Any]:
    feed, plan, stamp = FeedNumber(1), PlanNumber(0), epoch * WIDTH_MS * 1000
    return encode_sections([(1, Section([Bundle(feed, 0, epoch, plan, batch)], [Mark(feed, 0, epoch, plan, stamp, stamp, stamp)]))])


def cpu_us(name: str, degree: int, epochs: int) -> float:
    """CPU of the replica for one epoch, microseconds."""
    priced, legs = operator(name), max(1, degree)
    schemas = {1: RunSchemas([SCHEMA], [])}
    ins = [[socket.socketpair() for _ in range(legs)] for _ in range(priced.sides)]
    outs = [socket.socketpair() for _ in range(legs)]
    feeding = [[Connection(pair[0], Unsealed()) for pair in side] for side in ins]
    hearing = [[Connection(pair[1], Unsealed()) for pair in side] for side in ins]
    saying = [Connection(pair[0], Unsealed()) for pair in outs]
    taking = [Connection(pair[1], Unsealed()) for pair in outs]
    spent_ns = 0
    try:
        for epoch in range(1, epochs + 1):
            body = _said(epoch, _rows(epoch))
            for side in feeding:
                for leg in side:
                    leg.send(KIND, body)
            began_ns = time.thread_time_ns()
            sides = [_heard(side, epoch, schemas, degree) for side in hearing]
            edge = epoch * WIDTH_MS * 1000
            before = NO_WATERMARK if epoch == 1 else edge - WIDTH_MS * 1000
            out = _said(epoch, priced.process(sides, Tick(epoch, edge, before, edge)))
            for leg in saying:
                leg.send(KIND, out)
            if epoch > epochs // 4:
                spent_ns += time.thread_time_ns() - began_ns
            for leg in taking:
                leg.receive()
    finally:
        for pair in (*(pair for side in ins for pair in side), *outs):
            for end in pair:
                end.close()
    return spent_ns / 1000 / (epochs - epochs // 4)


def _heard(legs: Sequence[Connection], epoch: int, schemas: Mapping[int, RunSchemas], degree: int) -> Rows:
    taken: pa.RecordBatch | None = None
    for leg in legs:
        _, body = leg.receive()
        if degree and BUNDLE.unpack_from(body, COUNT.size + HEAD.size)[2] <= (epoch if taken is not None else epoch - 1):
            continue  # It has come by another leg.
        taken = read_sections(body, schemas)[0][1].bundles[0].rows
    assert taken is not None, "the first leg brings it"
    return Rows(taken, np.zeros(taken.num_rows, np.int32), hash_columns(taken, ["k"]))


def prices_us(rounds: int, epochs: int) -> dict[str, dict[int, float]]:
    """By operator and degree, the median of so many rounds, in each of which all have their turn."""
    found: dict[str, dict[int, list[float]]] = {name: {degree: [] for degree in DEGREES} for name in OPERATORS}
    for _ in range(rounds):
        for name in OPERATORS:
            for degree in DEGREES:
                found[name][degree].append(cpu_us(name, degree, epochs))
    return {name: {degree: statistics.median(each) for degree, each in of.items()} for name, of in found.items()}
