"""Tables of databases as streams: each row once, in order, also after another reader's death; types there and back."""

from __future__ import annotations

import sqlite3
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from evenflow import sources
from evenflow.errors import QueryError, SourceError, UnknownColumn
from evenflow.sources.database import POSTGRES, SQLITE, batch_of, column_type, rows_for
from evenflow.sources.source import place

COLUMNS = "id bigint, name string, price double"


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE items (id INTEGER, name TEXT, price REAL, other TEXT)")
    add(path, [(3, "c", 0.5), (1, "a", 1.5), (None, "lost", 0.0), (2, None, None)])
    return path


def add(path: str, rows: list[tuple[Any, ...]]) -> None:
    with sqlite3.connect(path) as connection:
        connection.executemany("INSERT INTO items (id, name, price) VALUES (?, ?, ?)", rows)


def values(batch: pa.RecordBatch | None) -> list[tuple[Any, ...]]:
    assert batch is not None
    return [tuple(row.values()) for row in batch.to_pylist()]


def test_rows_come_in_order_and_those_that_are_added_follow(database: str) -> None:
    reader = sources.table(database, "items", COLUMNS, "id", poll_ms=20).open(0, 1)
    assert values(reader.read(0, 2)) == [(1, "a", 1.5), (2, None, None)]
    assert values(reader.read(0, 2)) == [(3, "c", 0.5)]
    assert reader.read(5_000, 2) is None and reader.wake_us == 25_000 and not reader.ended
    add(database, [(9, "z", 9.0), (7, "y", 7.0)])
    assert values(reader.read(25_000, 10)) == [(7, "y", 7.0), (9, "z", 9.0)]
    reader.close()


def test_without_follow_the_stream_ends_with_the_table(database: str) -> None:
    reader = sources.table(database, "items", COLUMNS, "id", follow=False).open(0, 1)
    assert len(values(reader.read(0, 100))) == 3 and not reader.ended
    assert reader.read(0, 100) is None and reader.ended


@pytest.mark.parametrize("had", [0, 1, 3])
def test_another_reader_goes_on_where_the_last_one_was(database: str, had: int) -> None:
    """By what whole numbers say, whatever has been deleted before; in any other order by counting."""
    numbered = sources.table(database, "items", COLUMNS, "id")
    assert numbered.position == "id"
    reader = numbered.open(0, 1)
    reader.skip(had + 1 if had else 0)  # The last one had id `had`.
    add(database, [(4, "d", 4.0)])
    if had:
        with sqlite3.connect(database) as connection:
            connection.execute("DELETE FROM items WHERE id = 1")
    assert [row[0] for row in values(reader.read(0, 100))] == [1, 2, 3, 4][had:]


@pytest.mark.parametrize("had", [0, 1, 2])
def test_rows_in_an_order_of_another_type_are_counted(database: str, had: int) -> None:
    counted = sources.table(database, "items", COLUMNS, "name")
    assert counted.position is None
    reader = counted.open(0, 1)
    reader.skip(had)
    add(database, [(4, "d", 4.0)])
    assert [row[1] for row in values(reader.read(0, 100))] == ["a", "c", "d", "lost"][had:]


def test_a_table_that_has_become_smaller_is_an_error(database: str) -> None:
    reader = sources.table(database, "items", COLUMNS, "name").open(0, 1)
    reader.skip(9)
    with pytest.raises(SourceError, match="table 'items' of .*shop.db has lost rows: 9 had been read"):
        reader.read(0, 10)


@pytest.mark.parametrize(
    ("order", "had", "through", "said"),
    [
        ("id", 0, 4, None),
        ("id", 2, 4, None),
        ("id", 2, 9, "those with id from 2 to 8 had been read"),
        ("name", 1, 2, None),
        ("name", 0, 7, "7 had"),
    ],
)
def test_rows_that_were_given_before_must_be_there(database: str, order: str, had: int, through: int, said: str | None) -> None:
    """Otherwise who needs them again would wait for ever."""
    reader = sources.table(database, "items", COLUMNS, order).open(0, 1)
    place(reader, had, through)
    if said is None:
        assert reader.read(0, 10) is not None
        return
    with pytest.raises(SourceError, match=f"has lost rows: {said}"):
        reader.read(0, 10)


def test_places_in_a_table_are_not_negative(database: str) -> None:
    add(database, [(-2, "before", 0.0)])
    with pytest.raises(
        SourceError, match="a row has id = -2, and places in it are numbers from 0 on; .* another type in the schema, such as"
    ):
        sources.table(database, "items", COLUMNS, "id").open(0, 1).read(0, 10)
    floats = sources.table(database, "items", "id double, name string", "id").open(0, 1)
    assert [row[0] for row in values(floats.read(0, 10))] == [-2.0, 1.0, 2.0, 3.0]


def test_an_order_that_is_not_unique_is_an_error(database: str) -> None:
    add(database, [(3, "twice", 0.0)])
    with pytest.raises(SourceError, match="two rows have id = 3; order it by a column that each row has another value of"):
        sources.table(database, "items", COLUMNS, "id").open(0, 1).read(0, 10)


def test_what_cannot_be_read_is_named(database: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot read table 'goods' of .*no such table"):
        sources.table(database, "goods", COLUMNS, "id").open(0, 1).read(0, 1)
    with pytest.raises(SourceError, match="give a database that every site reaches"):
        sources.table(str(tmp_path / "no" / "where.db"), "items", COLUMNS, "id").open(0, 1).read(0, 1)
    with pytest.raises(SourceError, match="rows up to id = 3 are not"):
        sources.table(database, "items", "id bigint, name bigint", "id").open(0, 1).read(0, 10)
    with pytest.raises(UnknownColumn, match="there is no column 'no'; order_by is one of id, name, price"):
        sources.table(database, "items", COLUMNS, "no")
    with pytest.raises(QueryError, match="poll_ms is 0"):
        sources.table(database, "items", COLUMNS, "id", poll_ms=0)


def test_a_description_survives_json(database: str) -> None:
    source = sources.table(database, "items", COLUMNS, "id", follow=False, poll_ms=7)
    assert sources.from_json(source.to_json()) == source
    with pytest.raises(QueryError, match="cannot be saved as JSON"):
        sources.table(lambda: sqlite3.connect(database), "items", COLUMNS, "id").to_json()


EVERY_TYPE = pa.record_batch(
    {
        "b": pa.array([True, None]), "i": pa.array([2**40, -1]), "f": pa.array([0.1, None]), "s": pa.array(["it's", "ü"]),
        "raw": pa.array([b"\x00\xff", None], pa.binary()), "day": pa.array([date(2026, 1, 31), None]),
        "at": pa.array([datetime(2026, 1, 1, 12, 0, 0, 123456), None], pa.timestamp("us")),
        "d": pa.array([Decimal("12.50"), None], pa.decimal128(10, 2)), "list": pa.array([[1, None], None], pa.list_(pa.int64())),
        "took": pa.array([-1_500_000, None], pa.duration("us")),
    }
)  # fmt: skip


def test_every_type_goes_into_sqlite_and_comes_back() -> None:
    connection = sqlite3.connect(":memory:")
    columns = ", ".join(f'"{f.name}" {column_type(f.type, SQLITE)}' for f in EVERY_TYPE.schema)
    connection.execute(f"CREATE TABLE t ({columns})")
    connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(EVERY_TYPE.schema))})", rows_for(EVERY_TYPE, SQLITE))
    assert batch_of(connection.execute("SELECT * FROM t").fetchall(), EVERY_TYPE.schema).equals(EVERY_TYPE)
    assert batch_of([], EVERY_TYPE.schema).num_rows == 0


def test_other_databases_get_pythons_own_values_and_have_types_of_their_own() -> None:
    assert batch_of(rows_for(EVERY_TYPE, POSTGRES), EVERY_TYPE.schema).equals(EVERY_TYPE)
    assert [column_type(f.type, POSTGRES) for f in EVERY_TYPE.schema] == [
        "BOOLEAN", "BIGINT", "DOUBLE PRECISION", "TEXT", "BYTEA", "DATE", "TIMESTAMP", "NUMERIC(10, 2)", "BIGINT[]", "INTERVAL",
    ]  # fmt: skip


@pytest.mark.parametrize("value", ["1e-999999999", "1E+999999999", Decimal("1e-999999999"), "NaN", "no number"])
def test_a_decimal_that_arrow_must_not_be_given_is_an_error(database: str, value: Any) -> None:
    """Arrow ends the process of some of these."""
    schema = pa.schema([("x", pa.decimal128(10, 2))])
    with pytest.raises(pa.ArrowInvalid, match="'x'"):
        batch_of([("1.50",), (value,)], schema)
    assert batch_of([("1.50",), (Decimal("1E1"),), (2,), (None,)], schema)["x"].to_pylist() == [Decimal("1.50"), 10, 2, None]
    if isinstance(value, str):
        with sqlite3.connect(database) as connection:
            connection.execute("UPDATE items SET other = ?", [value])
        with pytest.raises(SourceError, match="rows up to id = 3 are not"):
            sources.table(database, "items", "id bigint, other decimal(10,2)", "id").open(0, 1).read(0, 9)


@pytest.mark.parametrize(
    ("type_", "value"), [("interval second", "a day"), ("map<string, int>", "{}"), ("tinyint", 300), ("array<int>", "[1"), ("date", "9999")]
)
def test_a_value_that_is_not_of_its_columns_type_is_named(database: str, type_: str, value: Any) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE items SET other = ?", [value])
    with pytest.raises(SourceError, match=r"table 'items' of .*: rows up to id = 3 are not"):
        sources.table(database, "items", f"id bigint, other {type_}", "id").open(0, 1).read(0, 9)


def test_texts_of_truth_are_what_they_say() -> None:
    schema = pa.schema([("x", pa.bool_())])
    given = [("false",), ("True",), ("0",), ("1",), (0,), (2,), (True,), (None,)]
    assert batch_of(given, schema)["x"].to_pylist() == [False, True, False, True, False, True, True, None]
    with pytest.raises(pa.ArrowInvalid, match="'x'.*perhaps"):
        batch_of([("perhaps",)], schema)
