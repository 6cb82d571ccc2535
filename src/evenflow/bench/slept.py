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
    """For how long after from_s some answer was older than that, until none was any more before to_s."""
    return lateness(seen, from_s, to_s, most_ms, math.inf, width_s)[0]


def lateness(seen: Delivered, from_s: float, to_s: float, most_ms: float, calm_s: float, width_s: float = 0.25) -> tuple[float, float]:
    """(for how long after from_s some answer was older than most_ms, until none was for calm_s, or until to_s; how long in all some was
    behind that calm), both in whole pieces of width_s, seconds.

    An answer is too old from most_ms behind its due time on until it comes: when nothing comes for a while, what comes next says whether
    that was too long. Behind the last answer of all it was. Cost: O(n).
    """
    count = max(0, math.ceil((to_s - from_s) / width_s - 0.5))
    old = seen.age_ms > most_ms
    until = np.floor((seen.at_s[old] - from_s) / width_s)
    since = np.floor((seen.at_s[old] - (seen.age_ms[old] - most_ms) / 1e3 - from_s) / width_s)
    within = (until >= 0) & (since < count)
    edges = np.zeros(count + 1, np.int64)
    np.add.at(edges, np.clip(since[within], 0, count).astype(np.int64), 1)
    np.add.at(edges, np.clip(until[within] + 1, 0, count).astype(np.int64), -1)
    late = np.cumsum(edges[:count]) > 0
    late |= from_s + width_s * np.arange(count) > seen.at_s.max(initial=-math.inf)
    # The first piece from which on there is a calm; the end counts as one.
    bad = np.flatnonzero(late)
    gaps = np.diff(bad, append=math.inf)
    settled = 0
    if len(bad) and bad[0] * width_s < calm_s:
        settled = int(bad[int(np.argmax((gaps - 1) * width_s >= calm_s))]) + 1
    return settled * width_s, int(late[settled:].sum()) * width_s


def of_report(**found: Any) -> dict[str, Any]:
    """Numbers with four digits behind the point; None for what could not be measured."""
    return {name: (None if math.isnan(value) else round(value, 4)) if isinstance(value, float) else value for name, value in found.items()}
