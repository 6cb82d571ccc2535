"""A source that brings more than sites can do, into windows of time: whole windows of a group are left out (decision 121);
or into sessions, before which whole keys are (decision 205).

What comes out must be windows and sessions as batch has them, and what does not come must be of a unit that some epoch left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa

import evenflow as ef
from evenflow.kernels.hash import Hashes
from evenflow.operator.units import key_hashes, unit_hashes
from evenflow.plan.layout import Keys, Shed, Windows
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import ALL_KEPT
from evenflow.swarm.cases import Case, Complaint, Tables, rows_of, too_much
from evenflow.swarm.shed_cases import BEGIN_US, SECONDS, Told, read_whole
from evenflow.swarm.taken import taken_in

RESULT: Final = ["key", "window_start", "n", "total"]


@dataclass
class ToldWindows(Told):
    """size_us, slide_us: of the windows."""

    size_us: int = 0
    slide_us: int = 0

    def whole(self, parts: Sequence[pa.RecordBatch] | None = None) -> list[tuple[Any, ...]]:
        """All results, of all rows of the source, as `RESULT`; windows by their begin in microseconds. parts: of these rows only."""
        found: dict[tuple[int, int], list[int]] = {}
        for part in self.parts if parts is None else parts:
            times = part.column("ts").cast(pa.timestamp("us")).view(pa.int64()).to_pylist()
            for key, time, value in zip(part.column("key").to_pylist(), times, part.column("value").to_pylist(), strict=True):
                start = time // self.slide_us * self.slide_us
                while start > time - self.size_us:
                    totals = found.setdefault((key, start), [0, 0])
                    totals[0], totals[1] = totals[0] + 1, totals[1] + value
                    start -= self.slide_us
        return [(*at, *totals) for at, totals in found.items()]

    def judge(self, tables: Tables) -> Complaint:
        came, whole = _came(tables), self.whole()
        if said := too_much(came, whole):
            return said
        missing = sorted(set(whole) - set(came))
        left_out = [least for each in self.said().values() if (least := min(each.keep)) < ALL_KEPT]
        shed = self.worlds[-1].layout.sheds.get("in")
        if not missing:
            return None
        if shed is None or not left_out:
            return f"{len(missing)} windows are missing, and nothing was left out"
        keys = pa.array([each[0] for each in missing], self.parts[0].schema.field("key").type)
        starts = np.array([each[1] for each in missing], np.int64)
        hashes = self.hashes(shed, pa.RecordBatch.from_arrays([keys], ["key"]), starts)
        wrong = [each for each, hash in zip(missing, hashes.tolist(), strict=True) if hash < min(left_out)]
        return f"{len(wrong)} windows are missing of which no epoch left anything out, such as {wrong[:3]}" if wrong else None

    def hashes(self, shed: Shed, keys: pa.RecordBatch, starts: Int64s) -> Hashes:
        """Of the units of results. keys: their column `key`; starts: when they begin."""
        assert isinstance(shed.whole, Windows)
        return unit_hashes(shed.whole, keys, ("key",), starts)

    def judge_part(self, tables: Tables) -> Complaint:
        """Who drains ends the windows that are open with the rows that have entered by then."""
        whole = set(self.whole())
        return too_much([each for each in _came(tables) if each not in whole], self.whole(self._taken()))

    def _taken(self) -> list[pa.RecordBatch]:
        """The rows of the source that have been taken in."""
        world = self.worlds[-1]
        [segment] = [each.id for each in world.layout.segments if each.source == "in"]
        return [part.slice(0, taken_in(world, segment, partition)) for partition, part in enumerate(self.parts)]


@dataclass
class ToldSessions(ToldWindows):
    """gap_us: of the sessions."""

    gap_us: int = 0

    def whole(self, parts: Sequence[pa.RecordBatch] | None = None) -> list[tuple[Any, ...]]:
        came: dict[int, list[tuple[int, int]]] = {}
        for part in self.parts if parts is None else parts:
            times = part.column("ts").cast(pa.timestamp("us")).view(pa.int64()).to_pylist()
            for key, time, value in zip(part.column("key").to_pylist(), times, part.column("value").to_pylist(), strict=True):
                came.setdefault(key, []).append((time, value))
        found: list[tuple[Any, ...]] = []
        for key, rows in came.items():
            rows.sort()
            begins = [0, *(at for at in range(1, len(rows)) if rows[at][0] - rows[at - 1][0] > self.gap_us), len(rows)]
            found += [(key, rows[one][0], two - one, sum(value for _, value in rows[one:two])) for one, two in pairwise(begins)]
        return found

    def hashes(self, shed: Shed, keys: pa.RecordBatch, starts: Int64s) -> Hashes:
        assert isinstance(shed.whole, Keys)
        return key_hashes(keys, shed.whole.columns)


def shed_windows(random: Random) -> Case:
    """Windows of a key, tumbling or sliding, longer and shorter than an overload."""
    return _case(random, ToldWindows)


def shed_sessions(random: Random) -> Case:
    """Sessions of a key, longer and shorter than an overload."""
    return _case(random, ToldSessions)


def _case(random: Random, kind: type[ToldWindows]) -> Case:
    partitions, rows = random.randint(1, 4), random.randint(400, 1_500)
    made = ef.sources.generator(int(rows / SECONDS), 20, rows=rows, partitions=partitions, seed=random.randrange(1_000)).begun(BEGIN_US)
    patience_ms, size_ms = random.choice([4, 12, 40]), random.choice([4, 20, 60])
    slide_ms = random.choice([size_ms, size_ms, size_ms // 2])
    qos = ef.qos(latency=[(f"{patience_ms} ms", 1), (f"{4 * patience_ms} ms", 0)])
    flow = ef.Dataflow("shed windows")
    stream = flow.source(made, name="in").select("key", "value", "ts").with_watermark("ts", "0 seconds")
    grouped, gap_ms = stream.group_by("key"), random.choice([2, 5, 12]) if kind is ToldSessions else 0
    windows = grouped.session(f"{gap_ms} milliseconds") if gap_ms else grouped.window(f"{size_ms} milliseconds", f"{slide_ms} milliseconds")
    windows.agg(n="count(*)", total="sum(value)").to(ef.sinks.memory("out"), name="out", qos=qos)
    parts = [read_whole(made.open(p, partitions)) for p in range(partitions)]
    told = kind(parts, False, size_us=1000 * size_ms, slide_us=1000 * slide_ms)
    if isinstance(told, ToldSessions):
        told.gap_us = 1000 * gap_ms
    return Case(flow, {"in": [part.num_rows for part in parts]}, told.judge, told.judge_part, cut=False, watch=told.watch)


def _came(tables: Tables) -> list[tuple[Any, ...]]:
    if not tables["out"].num_rows:
        return []
    table = tables["out"].select(RESULT)
    starts = table.column("window_start").cast(pa.timestamp("us")).cast(pa.int64())
    return rows_of(table.set_column(1, "window_start", starts))
