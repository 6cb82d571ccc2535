"""Whoever writes a method of PySpark's that is not there is told what to write in its place."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import ExpressionError, QueryError
from evenflow.query.absent import METHODS
from evenflow.query.builder import GroupedStream, Stream
from evenflow.testing import run, source


@pytest.fixture
def rows() -> Stream:
    return ef.Dataflow("absent").source(source("id bigint, kind string, ts timestamp"), name="rows")


def test_what_is_listed_is_not_there() -> None:
    assert not [name for name in METHODS if name in dir(Stream)]
    assert not [name for name in ("pivot", "applyInPandas", "cogroup") if name in dir(GroupedStream)]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("limit", "top"),
        ("orderBy", "complete mode"),
        ("cache", "leave it out"),
        ("writeStream", "engine.start"),
        ("rollup", "GROUP BY ROLLUP"),
        ("show", "evenflow.testing.run"),
        ("mapInPandas", "flat_map"),
        ("isStreaming", "every stream is"),
        ("kind", r"F\.col\('kind'\)"),
        ("nothing", "nothing"),
    ],
)
def test_a_stream_says_what_to_write(rows: Any, name: str, says: str) -> None:
    with pytest.raises(AttributeError, match=says):
        getattr(rows, name)
    assert not hasattr(rows, name)


def test_a_column_of_a_stream_is_said_by_its_name(rows: Any) -> None:
    with pytest.raises(TypeError, match=r"write the column as text, 'kind', or as F\.col\('kind'\)"):
        rows["kind"]
    for columns in ((4, "kind"), ("kind",)):
        with pytest.raises(QueryError, match="leave the columns out"):
            rows.repartition(*columns)


def test_groups_say_it_too(rows: Any) -> None:
    for name, says in (("pivot", "PIVOT"), ("applyInPandas", "process"), ("nothing", "nothing")):
        with pytest.raises(AttributeError, match=says):
            getattr(rows.group_by("kind"), name)


def test_columns_have_no_qualifier(rows: Any) -> None:
    with pytest.raises(ExpressionError, match="write `kind`"):
        rows.select("rows.kind as s")


def test_a_stream_is_copied_as_before(rows: Any) -> None:
    assert copy.copy(rows).columns == rows.columns == ["id", "kind", "ts"]
    for name in ("__nothing__", "nothing"):
        with pytest.raises(AttributeError, match=name):
            getattr(object.__new__(Stream), name)
    assert pickle.loads(pickle.dumps(rows.group_by("kind").keys)) == ("kind",)


def test_duplicates_by_the_names_of_pyspark() -> None:
    for draw in (
        lambda rows: rows.dropDuplicates(subset=["kind"]),
        lambda rows: rows.dropDuplicates(["kind"]),
        lambda rows: rows.dropDuplicates("kind"),
        lambda rows: rows.with_watermark("ts", "1 minute").dropDuplicatesWithinWatermark(["kind"]),
        lambda rows: rows.groupby("kind").agg(id="min(id)"),
    ):
        flow = ef.Dataflow("twice")
        draw(flow.source(source("id bigint, kind string, ts timestamp"), name="rows")).to(ef.sinks.discard(), name="out")
        found = run(flow, {"rows": [(1, "a", "2026-01-01 10:00:00"), (2, "a", "2026-01-01 10:00:01")]}).rows()
        assert [(row["id"], row["kind"]) for row in found] == [(1, "a")]
