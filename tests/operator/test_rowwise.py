"""Explode, flat map and case: operators that treat each row by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.operator.aggregate_cases import SCHEMA, make_batch, make_rows, tick

from evenflow.errors import TypeMismatch
from evenflow.operator.case import Case
from evenflow.operator.explode import Explode
from evenflow.operator.user.flat_map import FlatMap
from evenflow.stream.rows import Rows

LISTS = pa.schema([("k", pa.int64()), ("tags", pa.list_(pa.string())), ("n", pa.int64())])
GIVEN = [(1, ["a", None, "b"], 10), (2, [], 20), (3, None, 30), (4, ["c"], 40)]


def lists() -> Rows:
    """The rows, sliced out of longer ones."""
    columns = [list(column) for column in zip((9, ["x", "y"], 90), *GIVEN, (9, ["z"], 90), strict=True)]
    batch = pa.record_batch([pa.array(column, field.type) for column, field in zip(columns, LISTS, strict=True)], schema=LISTS)
    return make_rows(batch.slice(1, len(GIVEN)), ("k",))


def rows_of(rows: Rows) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows.batch.to_pylist()]


def test_a_row_per_element() -> None:
    given = lists()
    (out,) = Explode(LISTS, "tags", "tag").process(given, tick(1))
    assert out.batch.schema.names == ["k", "tag", "n"]
    assert rows_of(out) == [(1, "a", 10), (1, None, 10), (1, "b", 10), (4, "c", 40)]
    assert out.partition.tolist() == given.partition[[0, 0, 0, 3]].tolist()
    assert given.hash is not None and out.hash is not None and out.hash.tolist() == given.hash[[0, 0, 0, 3]].tolist()


def test_empty_lists_come_out_once_if_wanted() -> None:
    (out,) = Explode(LISTS, "tags", "tag", "at", outer=True).process(lists(), tick(1))
    assert out.batch.schema.names == ["k", "at", "tag", "n"]
    assert rows_of(out) == [(1, 0, "a", 10), (1, 1, None, 10), (1, 2, "b", 10), (2, None, None, 20), (3, None, None, 30), (4, 0, "c", 40)]


def test_nothing_explodes_into_nothing() -> None:
    assert Explode(LISTS, "tags", "tag", outer=True).process(Rows.empty(LISTS, keyed=True), tick(1))[0].count == 0


def test_made_rows_stay_with_the_row_they_were_made_of() -> None:
    def words(batch: pa.RecordBatch) -> Any:
        made = [(word, at) for at, tags in enumerate(batch.column("tags").to_pylist()) for word in reversed(tags or [])]
        return [(word,) for word, _ in reversed(made)], [at for _, at in reversed(made)]

    given = lists()
    (out,) = FlatMap(LISTS, words, "word string").process(given, tick(1))
    assert rows_of(out) == [("a",), (None,), ("b",), ("c",)]
    assert out.partition.tolist() == given.partition[[0, 0, 0, 3]].tolist()
    assert FlatMap(LISTS, words, "word string").process(Rows.empty(LISTS), tick(1))[0].batch.schema.names == ["word"]


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ([("a",)], "returned list, not a pair: return .rows, index."),
        (([("a",)], [4]), "one number from 0 to 3 for each row"),
        (([("a",)], [-1]), "one number from 0 to 3"),
        (([("a",)], [0, 1]), r"returned 1 rows and an index of shape \(2,\)"),
        (([("a",)], [0.5]), "type float64"),
        (([(7,)], [0]), "column 'word' came as Python values, but is declared string"),
        (({"world": ["a"]}, [0]), "returned the columns world, but declares output = 'word string'"),
    ],
)
def test_what_a_function_must_not_return(returned: Any, says: str) -> None:
    with pytest.raises(TypeMismatch, match=f"box 'words'.*{says}"):
        FlatMap(LISTS, lambda batch: returned, "word string", "words").process(lists(), tick(1))


def test_each_row_goes_where_its_first_true_condition_says() -> None:
    given = make_rows(make_batch(np.random.default_rng(9), 200), ("k",))
    ports = Case(SCHEMA, ["i > 0", lambda batch: batch["b"], "k = 3"]).process(given, tick(1))
    wanted: list[list[Any]] = [[], [], [], []]
    for at, row in enumerate(given.batch.to_pylist()):
        wanted[0 if row["i"] is not None and row["i"] > 0 else 1 if row["b"] else 2 if row["k"] == 3 else 3].append(at)
    assert all(wanted)
    for port, index in zip(ports, wanted, strict=True):
        expected = given.take(np.array(index))
        assert repr(rows_of(port)) == repr(rows_of(expected))
        assert port.partition.tolist() == expected.partition.tolist()
        assert port.hash is not None and expected.hash is not None and port.hash.tolist() == expected.hash.tolist()
    assert [port.count for port in Case(SCHEMA, ["b"]).process(Rows.empty(SCHEMA, keyed=True), tick(1))] == [0, 0]
