"""Rows that two streams have, and those that only the first one has: each once, or as often as it is left."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError, TypeMismatch
from evenflow.testing import run, source
from tests.oracle.running import left

NAN = float("nan")
ONE = pa.table({"a": pa.array([1, 1, 1, None, None, 2, 3, 3], pa.int64()), "b": ["x", "x", "x", None, None, "y", "z", "z"]})
OTHER = pa.table({"a": pa.array([1, None, None, None, 3, 3, 4], pa.int64()), "b": ["x", None, None, None, "z", "z", "w"]})
GIVEN: dict[str, list[tuple[Any, ...]]] = {
    "intersect": [(1, "x"), (None, None), (3, "z")],
    "intersect_all": [(1, "x"), (None, None), (None, None), (3, "z"), (3, "z")],
    "subtract": [(2, "y")],
    "except_all": [(1, "x"), (1, "x"), (2, "y")],
}
TEXTS = {"intersect": "INTERSECT", "intersect_all": "INTERSECT ALL", "subtract": "EXCEPT", "except_all": "EXCEPT ALL"}
CHANGES = pa.schema([("a", pa.int64()), ("b", pa.string()), ("_change", pa.string())])


def rows_of(flow: ef.Dataflow, tables: dict[str, pa.Table], sites: int = 2, epoch_rows: int = 2) -> list[tuple[Any, ...]]:
    found = left(run(flow, tables, epoch_rows=epoch_rows, sites=sites).table("out"))
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=str)


@pytest.mark.parametrize("how", GIVEN)
def test_of_streams(how: str) -> None:
    flow = ef.Dataflow("q")
    one, other = (flow.source(source(table.schema), name=name) for name, table in (("one", ONE), ("other", OTHER)))
    getattr(one, how)(other).to(ef.sinks.memory("out"), name="out")
    assert rows_of(flow, {"one": ONE, "other": OTHER}) == sorted(GIVEN[how], key=str)


def test_as_json() -> None:
    flow = ef.Dataflow("q")
    one, other = (flow.source(ef.sources.memory([table.to_batches()]), name=name) for name, table in (("one", ONE), ("other", OTHER)))
    one.exceptAll(other).to(ef.sinks.memory("out"), name="out")
    assert ef.Dataflow.from_json(flow.to_json()).to_json() == flow.to_json()


@pytest.mark.parametrize("how", GIVEN)
def test_of_texts(how: str) -> None:
    flow = ef.Dataflow("q")
    streams = {name: flow.source(source(table.schema), name=name) for name, table in (("one", ONE), ("other", OTHER))}
    made = ef.sql(
        f"SELECT a AS n, b FROM one {TEXTS[how]} SELECT b, a FROM (SELECT a AS b, b AS a FROM other)", streams, output_mode="changelog"
    )
    assert made.columns == ["n", "b", "_change"]
    made.to(ef.sinks.memory("out"), name="out")
    assert rows_of(flow, {"one": ONE, "other": OTHER}) == sorted(GIVEN[how], key=str)


@pytest.mark.parametrize("how", GIVEN)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_taken_back_on_either_side(how: str, seed: int) -> None:
    """The rows that are left are those of the two tables as they are at the end, wherever epochs end."""
    dice = random.Random(seed)
    tables, ends = {}, {}
    for name in ("one", "other"):
        there: list[tuple[int, str]] = []
        changes = []
        for _ in range(120):
            if there and dice.random() < 0.45:
                row, change = there.pop(dice.randrange(len(there))), "delete"
            else:
                row, change = (dice.randrange(3), dice.choice("xy")), "insert"
                there.append(row)
            changes.append({"a": row[0], "b": row[1], "_change": change})
        tables[name], ends[name] = pa.Table.from_pylist(changes, schema=CHANGES), Counter(there)
    one, other = ends["one"], ends["other"]
    wanted = {
        "intersect": Counter(set(one) & set(other)), "intersect_all": one & other,
        "subtract": Counter(set(one) - set(other)), "except_all": one - other,
    }[how]  # fmt: skip
    flow = ef.Dataflow("q")
    streams = [flow.source(source(CHANGES), name=name) for name in tables]
    getattr(streams[0], how)(streams[1]).to(ef.sinks.memory("out"), name="out")
    assert Counter(rows_of(flow, tables, sites=3, epoch_rows=7 + seed)) == wanted


def test_reals_are_those_that_are_equal() -> None:
    """-0.0 is 0.0 and NaN is NaN, and they come out as the groups of these do."""
    one, other = (
        pa.table({"x": pa.array(values, pa.float64())}) for values in ([-0.0, 0.0, NAN, NAN, None], [0.0, -0.0, -0.0, NAN, None, 1.0])
    )
    flow = ef.Dataflow("q")
    streams = [flow.source(source(table.schema), name=name) for name, table in (("one", one), ("other", other))]
    streams[0].intersectAll(streams[1]).to(ef.sinks.memory("out"), name="out")
    assert [str(row[0]) for row in rows_of(flow, {"one": one, "other": other})] == ["0.0", "0.0", "None", "nan"]


def test_what_cannot_be_is_said() -> None:
    flow = ef.Dataflow("q")
    one, other = (flow.source(source(table.schema), name=name) for name, table in (("one", ONE), ("other", OTHER)))
    with pytest.raises(TypeMismatch, match="select"):
        one.exceptAll(other.select("b", "a"))
    with pytest.raises(QueryError, match="streams"):
        one.intersect(ONE)  # type: ignore[arg-type]
    maps = flow.source(source(pa.schema([("m", pa.map_(pa.string(), pa.string()))])), name="maps")
    with pytest.raises(TypeMismatch, match="map"):
        maps.intersect_all(maps)
    with pytest.raises(QueryError, match="changelog"):
        ef.sql("SELECT a FROM one EXCEPT ALL SELECT a FROM other", {"one": one, "other": other})
