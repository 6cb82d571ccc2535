"""What runs in the scenarios: rows that are functions of their number, counted by key, and what must come of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

import evenflow as ef
from evenflow.sources.source import Reader, Source

PARTITIONS = 2
KEYS = 25
ROWS = 24_000
RATE = 8_000
TRICKLE = 400
SCHEMA = pa.schema([("part", pa.int64()), ("key", pa.int64()), ("value", pa.int64())])


def rows_of(partition: int, first: int, count: int) -> pa.RecordBatch:
    """Rows first .. first + count - 1 of an ingress partition."""
    i = np.arange(first, first + count, dtype=np.int64)
    return pa.record_batch([np.full(count, partition), (i * 7919 + i // 31) % KEYS, (i * 2_654_435_761 + partition * 97) % 1_000], SCHEMA)


class GatedReader(Reader):
    """At the source's rate up to three quarters of the rows, then a trickle; when the gate opens, the rest as fast as it is taken."""

    def __init__(self, source: Gated, partition: int, of: int) -> None:
        self._source, self._partition, self._of = source, partition, of
        self._total = source.rows // of
        self._at, self._budget, self._last_us = 0, 0.0, 0
        self._gate: Path | None = Path(source.gate)

    def skip(self, rows: int) -> None:
        self._at = rows

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        left = self._total - self._at
        if self._gate is not None and self._gate.exists():
            self._gate = None
        if self._gate is not None:
            rate = self._source.rate if self._at < self._total * 3 // 4 else TRICKLE
            self._budget = min(self._budget + (now_us - (self._last_us or now_us)) * rate / self._of / 1e6, left - 1.0)
            self._last_us = now_us
            max_rows = min(max_rows, int(self._budget))
        count = max(0, min(left, max_rows))
        self._budget -= count
        self.wake_us = now_us + 2_000
        self.ended = count == left
        batch = rows_of(self._partition, self._at, count) if count else None
        self._at += count
        return batch


@dataclass(frozen=True)
class Gated(Source):
    """rate: rows/s until the gate opens, which is when a file of this name exists; there are enough rows for some time until then."""

    kind: ClassVar[str] = "gated"
    gate: str
    rows: int = ROWS
    rate: int = RATE

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def partitions(self, sites: int) -> int:
        return PARTITIONS

    def open(self, partition: int, of: int) -> Reader:
        return GatedReader(self, partition, of)


def counted(gate: Path, sink: Any, rows: int = ROWS, rate: int = RATE, *, unordered: bool = False) -> ef.Dataflow:
    """Running counts and totals of a third of the rows, by ingress partition and key, so that what each row adds is known."""
    flow = ef.Dataflow("counted")
    source = flow.source(Gated(str(gate), rows, rate), name="rows").where("value % 3 = 0")
    source.group_by("part", "key").agg(n="count(*)", total="sum(value)").to(sink, unordered=unordered, name="out")
    return flow


class Totals:
    """The same query in plain Python: for every group its running total after each of its rows."""

    def __init__(self, rows: int = ROWS) -> None:
        values: dict[tuple[int, int], list[int]] = {}
        for partition in range(PARTITIONS):
            for row in rows_of(partition, 0, rows // PARTITIONS).to_pylist():
                if row["value"] % 3 == 0:
                    values.setdefault((partition, row["key"]), []).append(row["value"])
        self._totals = {group: list(accumulate(these)) for group, these in values.items()}

    def check(self, table: pa.Table, *, whole: bool = True) -> None:
        """Every row that came out is right and none came twice. whole: and nothing is missing at the end."""
        counts = dict.fromkeys(self._totals, 0)
        for part, key, n, total in rows_in_order(table, "part", "key", "n", "total"):
            assert n > counts[part, key], f"group {part, key} goes back from {counts[part, key]} rows to {n}"
            assert total == self._totals[part, key][n - 1], f"group {part, key} has {total} after {n} rows"
            counts[part, key] = n
        if whole:
            assert counts == {group: len(totals) for group, totals in self._totals.items()}

    def check_sums(self, table: pa.Table) -> None:
        """Every row is in one of the sums of its group."""
        sums = {group: [0, 0] for group in self._totals}
        for part, key, n, total in rows_in_order(table, "part", "key", "n", "total"):
            sums[part, key][0] += n
            sums[part, key][1] += total
        assert sums == {group: [len(totals), totals[-1]] for group, totals in self._totals.items()}


def rows_in_order(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in names), strict=True) if table.num_columns else iter(())


# ---------------------------------------------------------------- boxes of users


class Fragile(ef.Processor):
    """Counts a key's rows, and breaks in the middle of the run, at the 300th of key 7."""

    output = "key bigint, n bigint"

    def open(self, store: Any) -> None:
        store.value("n", "bigint", default=0)

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        state.n += rows.num_rows
        if key == (7,) and state.n >= 300:
            raise RuntimeError("seven is too many")
        return [(key[0], state.n)]


class Personal(ef.Processor):
    """Tells who has computed it: the same for every call on one replica, so that only a comparison of replicas can find it."""

    output = "key bigint, who string"

    def open(self, store: Any) -> None:
        import uuid

        self.who = uuid.uuid4().hex

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        return [(key[0], self.who)]


class Slow(ef.Processor):
    """Counts a key's rows, and needs long for it: half of the time it waits, half of it nobody else gets the interpreter."""

    output = "part bigint, key bigint, n bigint, total bigint"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def open(self, store: Any) -> None:
        store.value("n", "bigint", default=0)
        store.value("total", "bigint", default=0)

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        if self.seconds and key == (0, 0):
            time.sleep(self.seconds / 2)
            hold_interpreter(self.seconds / 2)
        state.n += rows.num_rows
        state.total += sum(rows.column("value").to_pylist())
        return [(*key, state.n, state.total)]


def hold_interpreter(seconds: float) -> None:
    """Some work in one bytecode after the other of which no thread may run, until the time is over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1_000_000))


def slowly_counted(gate: Path, sink: Any, seconds: float, rows: int, rate: int) -> ef.Dataflow:
    flow = ef.Dataflow("slow")
    source = flow.source(Gated(str(gate), rows, rate), name="rows").where("value % 3 = 0")
    source.key_by("part", "key").process(Slow(seconds)).name("snail").to(sink, name="out")
    return flow


class Silences(ef.Processor):
    """How many rows of a key came, and their sum, whenever none has come for 20 ms by the stamps of epochs."""

    output = "part bigint, key bigint, n bigint, total bigint, at timestamp, now timestamp"

    def open(self, store: Any) -> None:
        store.timeout("silent", "20 ms", time="processing")
        store.value("n", "bigint", default=0)
        store.value("total", "bigint", default=0)

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> None:
        state.n += rows.num_rows
        state.total += sum(rows.column("value").to_pylist())

    def expired(self, key: tuple[Any, ...], timer: ef.Timer, state: Any) -> Any:
        yield *key, state.n, state.total, timer.time, state.now
        state.n = state.total = None


class Numbered(ef.Processor):
    """The how-manieth row of its key each row is, and which version says so."""

    output = "k bigint, n bigint, version bigint"

    def __init__(self, version: int) -> None:
        self.version = version

    def open(self, store: Any) -> None:
        store.value("seen", "bigint")

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Iterator[tuple[int, int, int]]:
        for _ in range(rows.num_rows):
            state.seen = (state.seen or 0) + 1
            yield key[0], state.seen, self.version
