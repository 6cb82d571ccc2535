"""A function of rows that takes a known time, and what came out of it when: what the measurements of overload and of scaling share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from evenflow.bench.delivered import Delivered
from evenflow.bench.monitored import Output, micros
from evenflow.bench.slowed import DEBT

if TYPE_CHECKING:
    from evenflow.query.builder import Dataflow, Stream
    from evenflow.sources.source import Source

ROW_US: Final = 500.0
CAN: Final = 1e6 / ROW_US
"""Rows per second of one site."""


def slowly(batch: pa.RecordBatch) -> pa.Array:
    """The rows' values, half a millisecond of an executor's time each, slept."""
    DEBT.add(batch.num_rows * ROW_US)
    return batch.column("value")


def costly(flow: Dataflow, source: Source, name: str = "in") -> Stream:
    """Every row of the source, at that cost."""
    return flow.source(source, name=name).select("ts", "value", done=slowly)


def delivered(answers: Output, begin_us: int) -> Delivered:
    """What came out, by seconds since begin_us, a wall clock; ages are those of rows since they were due."""
    table, clocks = answers.rows()
    if table is None:
        return Delivered(np.empty(0), np.empty(0), np.empty(0))
    ages = (clocks - micros(table, "ts")) / 1e3
    return Delivered((clocks - begin_us) / 1e6, ages, np.ones(len(ages)))


def late_s(seen: Delivered, from_s: float, to_s: float, most_ms: float, width_s: float = 0.25) -> float:
    """For how long after from_s some answer was older than that, until none was any more before to_s; also while nothing came at all."""
    last = from_s
    for at in np.arange(from_s, to_s - width_s / 2, width_s):
        piece = seen.between(float(at), float(at) + width_s)
        if not len(piece.age_ms) or float(piece.age_ms.max()) > most_ms:
            last = float(at) + width_s
    return last - from_s


def of_report(**found: Any) -> dict[str, Any]:
    """Numbers with four digits behind the point; None for what could not be measured."""
    return {name: (None if math.isnan(value) else round(value, 4)) if isinstance(value, float) else value for name, value in found.items()}
