"""Run a dataflow over a table in the simulator, and compare tables as sets of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld


@dataclass(frozen=True)
class Cut:
    """How a run is cut up; no result may depend on it. inputs: source partitions; the table's rows go to them in turn."""

    sites: int
    partitions: int
    epoch_rows: int
    inputs: int
    seed: int = 0


CUTS = (Cut(1, 1, 131_072, 1), Cut(4, 64, 1_000, 3), Cut(3, 7, 20_000, 2, seed=1))


def run(build: Callable[[Any], ef.Dataflow], table: pa.Table, cut: Cut) -> pa.Table:
    """The rows of sink `out` when `build(source)` runs over the table, in the order in which they came."""
    parts = [table.take(list(range(i, table.num_rows, cut.inputs))) for i in range(cut.inputs)]
    source = ef.sources.memory([part.combine_chunks().to_batches() for part in parts])
    planned = layout(build(source).network, sites=cut.sites, partitions=cut.partitions)
    options = FlowOptions(epoch_rows=cut.epoch_rows, linger_ms=1)
    world = SimWorld(planned, sites=cut.sites, seed=cut.seed, options=options, read_rows=min(cut.epoch_rows, 30_000))
    world.run_until_quiet()
    return world.output("out")


def left(changes: pa.Table) -> pa.Table:
    """The rows that changes leave; none takes back what is not there."""
    there: dict[tuple[Any, ...], int] = {}
    for row in changes.to_pylist():
        change = row.pop("_change", "insert")
        key = tuple(row.values())
        there[key] = there.get(key, 0) + (-1 if change in ("update_before", "delete") else 1)
        assert there[key] >= 0
    rows = [key for key, times in there.items() for _ in range(times)]
    schema = pa.schema([field for field in changes.schema if field.name != "_change"])
    return pa.table([pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)], schema=schema)


def newest_per_key(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Update mode to final result: the last row of each key."""
    newest = {tuple(row[key] for key in keys): row for row in table.to_pylist()}
    return pa.Table.from_pylist(list(newest.values()), schema=table.schema)


@dataclass(frozen=True)
class Answer:
    """What batch Spark has given, for who compares it more than once: a DataFrame asks again each time."""

    columns: list[str]
    rows: list[Any]

    @staticmethod
    def of(asked: Any) -> Answer:
        return Answer(asked.columns, asked.collect())

    def collect(self) -> list[Any]:
        return self.rows


def assert_same_rows(got: pa.Table, expected: Any) -> None:
    """Both have the same rows, in any order; floats within 1e-9, relative. expected: a Spark DataFrame, or an `Answer`."""
    rows = sorted((tuple(row.values()) for row in got.to_pylist()), key=sort_key)
    wanted = sorted((tuple(map(_plain, row)) for row in expected.collect()), key=sort_key)
    assert [name.lower() for name in got.schema.names] == [name.lower() for name in expected.columns]
    assert len(rows) == len(wanted), f"{len(rows)} rows instead of {len(wanted)}"
    for row, want in zip(rows, wanted, strict=True):
        assert all(same(a, b) for a, b in zip(row, want, strict=True)), f"{row} instead of {want}"


def _plain(value: Any) -> Any:
    """A structure as a dict, as Arrow gives it."""
    return value.asDict(recursive=True) if hasattr(value, "asDict") else value


def sort_key(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(f"{v:.6g}" if isinstance(v, float) else str(v) for v in row)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return bool(a == b)
