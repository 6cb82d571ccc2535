"""Methods of PySpark's DataFrames that streams have: each gives what it gives there, which the oracle asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError, UnknownColumn
from evenflow.testing import run, source
from tests.oracle.running import left

NAN = float("nan")
ROWS = pa.table({
    "id": pa.array([1, 2, 3, 4, 5], pa.int64()), "who": pa.array(["ann", "bob", "ann", None, "ann"]),
    "qty": pa.array([3, None, 3, 0, 3], pa.int32()), "x": pa.array([0.5, NAN, None, -1.0, 0.5]),
    "ok": pa.array([True, None, True, False, True]),
})  # fmt: skip
TAGS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "tags": pa.array([["a", None], [], None], pa.list_(pa.string()))})
OTHERS = pa.table({"name": ["ann", "zoe", "ann"], "town": ["Rom", "Oslo", None]})

Draw = Callable[[Any, Any, Any], Any]
GIVEN: dict[str, tuple[Draw, list[tuple[Any, ...]]]] = {
    "distinct": (lambda t, _, __: t.select("who", "qty").distinct(), [("ann", 3), ("bob", None), (None, 0)]),
    "fillna": (lambda t, _, __: t.fillna(7), [
        (1, "ann", 3, 0.5, True), (2, "bob", 7, 7.0, None), (3, "ann", 3, 7.0, True), (4, None, 0, -1.0, False), (5, "ann", 3, 0.5, True)]),
    "fillna, texts": (lambda t, _, __: t.na.fill("it's", ["who", "qty"]).select("who"), [
        ("ann",), ("ann",), ("ann",), ("bob",), ("it's",)]),
    "fillna, by name": (lambda t, _, __: t.fillna({"who": "?", "qty": 1.9, "ok": False}).drop("x").where("id IN (2, 4)"), [
        (2, "bob", 1, False), (4, "?", 0, False)]),
    "dropna": (lambda t, _, __: t.dropna().select("id"), [(1,), (5,)]),
    "dropna, all": (lambda t, _, __: t.select("id", "qty", "x").dropna("all", subset=["qty", "x"]).select("id"), [(1,), (3,), (4,), (5,)]),
    "dropna, at least": (lambda t, _, __: t.na.drop(thresh=4).select("id"), [(1,), (3,), (4,), (5,)]),
    "replace": (lambda t, _, __: t.replace("ann", "eve").replace([3, 0], [4, 3], ["qty"]).select("id", "who", "qty"), [
        (1, "eve", 4), (2, "bob", None), (3, "eve", 4), (4, None, 3), (5, "eve", 4)]),
    "replace, of several": (lambda t, _, __: t.na.replace({"ann": None, "bob": "b"}).select("who").distinct(), [("b",), (None,)]),
    "renamed": (lambda t, _, __: t.withColumnsRenamed({"id": "n", "x": "y"}).select("n", "y").where("n = 1"), [(1, 0.5)]),
    "to_df": (lambda t, _, __: t.select("id", "who").toDF("a", "b").where("a < 3"), [(1, "ann"), (2, "bob")]),
    "transform": (lambda t, _, __: t.transform(lambda s, least: s.where(f"id > {least}"), 4).select("id"), [(5,)]),
    "by name": (lambda t, _, o: o.unionByName(o.select("town", "name")).where("name = 'zoe'"), [("zoe", "Oslo"), ("zoe", "Oslo")]),
    "by name, some": (lambda t, _, o: o.unionByName(t.selectExpr("who as name", "id as n"), True).where("n = 1 OR town = 'Rom'"), [
        ("ann", "Rom", None), ("ann", None, 1)]),
    "explode": (lambda _, t, __: t.selectExpr("explode(tags) as tag", "id"), [("a", 1), (None, 1)]),
    "explode, outer": (lambda _, t, __: t.selectExpr("id", "explode_outer(tags) as tag"), [(1, "a"), (1, None), (2, None), (3, None)]),
    # Names are found whatever the case of their letters, as Spark's are by default.
    "renamed, another case": (lambda t, _, __: t.withColumnRenamed("ID", "n").withColumnsRenamed({"X": "y"}).where("n = 1").select("y"), [
        (0.5,)]),
    "drop, another case": (lambda t, _, __: t.drop("WHO", "Qty", "X"), [(1, True), (2, None), (3, True), (4, False), (5, True)]),
    "duplicates, another case": (lambda t, _, __: t.select("who").dropDuplicates(["WHO"]), [("ann",), ("bob",), (None,)]),
    "fillna, another case": (lambda t, _, __: t.fillna({"WHO": "?"}).fillna(1, ["QTY"]).where("id IN (2, 4)").select("who", "qty"), [
        ("bob", 1), ("?", 0)]),
    "dropna, another case": (lambda t, _, __: t.dropna(subset=["WHO", "Qty"]).select("id"), [(1,), (3,), (5,)]),
    "dropna, of no columns": (lambda t, _, __: t.dropna(subset=[]).select("id"), [(1,), (2,), (3,), (4,), (5,)]),
    "by name, another case": (lambda t, _, o: o.unionByName(o.selectExpr("town as TOWN", "name as Name")).where("name = 'zoe'"), [
        ("zoe", "Oslo"), ("zoe", "Oslo")]),
    "melt, another case": (lambda t, _, __: t.where("id = 1").melt(["ID"], ["WHO"], "what", "v").select("v"), [("ann",)]),
    "melt": (lambda t, _, __: t.where("id = 1").melt(["id"], ["who"], "what", "v"), [(1, "who", "ann")]),
}  # fmt: skip


def drawn(draw: Draw) -> tuple[list[str], list[tuple[Any, ...]]]:
    """(columns, the rows that are left) of one of these."""
    flow = ef.Dataflow("q")
    tables = {"rows": ROWS, "tags": TAGS, "others": OTHERS}
    streams = [flow.source(source(table.schema), name=name) for name, table in tables.items()]
    made = draw(*streams)
    made.to(ef.sinks.memory("out"), name="out")
    for stream in streams:
        stream.to(ef.sinks.discard())
    rows = left(run(flow, tables, epoch_rows=2, sites=2).table("out")).to_pylist()
    return [name for name in made.columns if name != "_change"], sorted((tuple(row.values()) for row in rows), key=str)


@pytest.mark.parametrize("name", GIVEN)
def test_it_gives_what_pyspark_gives(name: str) -> None:
    draw, wanted = GIVEN[name]
    assert drawn(draw)[1] == sorted(wanted, key=str)


def test_values_are_replaced_in_a_column_whatever_the_case_of_its_name() -> None:
    """Spark's replace says nothing there, and leaves them."""
    assert drawn(lambda t, _, __: t.replace("ann", "eve", ["WHO"]).where("id < 3").select("who"))[1] == [("bob",), ("eve",)]


def test_totals_by_their_names() -> None:
    columns, rows = drawn(lambda t, _, __: t.group_by("who").sum("qty", "id", mode="changelog"))
    assert columns == ["who", "sum(qty)", "sum(id)"]
    assert rows == [("ann", 9, 9), ("bob", None, 2), (None, 0, 4)]
    columns, rows = drawn(lambda t, _, __: t.select("id", "qty", "who").group_by("who").max(mode="changelog"))
    assert (columns, rows) == (["who", "max(id)", "max(qty)"], [("ann", 5, 3), ("bob", 2, None), (None, 4, 0)])
    columns, rows = drawn(lambda t, _, __: t.group_by().agg({"*": "count", "x": "min"}, mode="changelog"))
    assert (columns, rows) == (["count(1)", "min(x)"], [(5, -1.0)])


def test_distinct_rows_of_what_changes() -> None:
    assert drawn(lambda t, _, __: t.group_by("who").agg(n="count(*)", mode="changelog").select("n", "_change").distinct())[1] == [
        (1,),
        (3,),
    ]


@pytest.mark.parametrize(
    ("draw", "error", "says"),
    [
        (lambda t, _, o: t.unionByName(o), QueryError, "only one of the streams has"),
        (lambda t, _, __: t.fillna({"nope": 1}), UnknownColumn, "nope"),
        (lambda t, _, __: t.fillna([1]), QueryError, "no number, text or boolean"),
        (lambda t, _, __: t.dropna("some"), QueryError, "'any' or 'all'"),
        (lambda t, _, __: t.replace([1, 2], [3]), QueryError, "as many"),
        (lambda t, _, __: t.toDF("a"), QueryError, "1 names for 5"),
        (lambda t, _, __: t.select("who").group_by("who").avg(), QueryError, "there are none"),
        (lambda _, t, __: t.select("explode(tags) as a", "explode(tags) as b"), QueryError, "two columns make rows"),
    ],
)
def test_what_cannot_be_is_said(draw: Draw, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        drawn(draw)
