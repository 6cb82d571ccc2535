"""Joins of a stream with a table."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.operator.join_cases import LEFT, Row, rows, values

from evenflow.operator.join.table_join import TableJoin
from evenflow.query.join import How, Join
from evenflow.stream.epoch import NO_WATERMARK, Tick

TABLE = pa.table({"k": pa.array([2, 1, None, 2], pa.int64()), "name": ["two", "one", "none", "zwei"], "least": [0, 0, 0, 5]})
STREAM: list[Row] = [(1, 1, 5, "a"), (2, 2, 5, "b"), (3, 3, 5, "c"), (4, None, 5, "d"), (5, 2, 0, "e")]
NOW = Tick(1, 0, NO_WATERMARK, NO_WATERMARK)


def found(how: How, condition: str | None = None) -> list[Row]:
    made = TableJoin(Join(how, ("k",), ("k",), using=("k",), condition=condition), LEFT, TABLE)
    given = rows(LEFT, STREAM)
    (out,) = made.process(given, NOW)
    assert len(out.partition) == out.count and out.hash is not None and len(out.hash) == out.count
    assert made.process(given.take(given.partition[:0].astype("int64")), NOW)[0].count == 0
    return [(row[2], row[3], *row[4:]) if how in ("inner", "left") else (row[2], row[3]) for row in values(out.batch)]


def test_rows_come_in_the_streams_order_then_the_tables() -> None:
    pairs = [(5, "a", "one", 0), (5, "b", "two", 0), (5, "b", "zwei", 5), (0, "e", "two", 0), (0, "e", "zwei", 5)]
    assert found("inner") == pairs
    assert found("left") == [*pairs[:3], (5, "c", None, None), (5, "d", None, None), *pairs[3:]]


@pytest.mark.parametrize(("how", "notes"), [("semi", "ab"), ("anti", "cde")])
def test_a_condition_decides_what_is_a_partner(how: How, notes: str) -> None:
    assert [note for _, note in found(how, "l.x > r.least")] == list(notes)
    assert [note for _, note in found(how)] == list({"semi": "abe", "anti": "cd"}[how])


def test_an_empty_table_has_no_partner() -> None:
    made = TableJoin(Join("left", ("k",), ("k",), using=("k",)), LEFT, TABLE.slice(0, 0))
    assert [row[4] for row in values(made.process(rows(LEFT, STREAM), NOW)[0].batch)] == [None] * 5


def test_the_tables_key_need_not_be_the_one_that_brought_the_rows_here() -> None:
    """Rows come with the hash of `k`; the table is joined by `note`."""
    made = TableJoin(Join("inner", ("note",), ("of",)), LEFT, pa.table({"of": ["b", "e"], "found": [1, 2]}))
    (out,) = made.process(rows(LEFT, STREAM), NOW)
    assert [(row[3], row[5]) for row in values(out.batch)] == [("b", 1), ("e", 2)]
