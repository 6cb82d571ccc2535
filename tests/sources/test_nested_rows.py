"""Structures, maps and lists on their way from files, lines and Spark's tasks, and to messages and tables."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow.errors import SchemaChanged, SourceError, TypeMismatch
from evenflow.sinks.kafka import KafkaSink
from evenflow.sources.messages import parse_lines
from evenflow.stream.schema import parse_ddl
from evenflow.world.spark.bridge.pushing import conform

from .reading import read_all

DDL = "id bigint, s struct<at: timestamp, tags: array<string>, d: decimal(10,2)>, m map<string, struct<n: bigint, x: double>>"
SCHEMA = parse_ddl(DDL)
AT = datetime(2024, 5, 1, 10, 30)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "s": {"at": AT, "tags": ["a", None], "d": Decimal("1.50")}, "m": [("k", {"n": 1, "x": 2.0}), ("l", None)]},
    {"id": 2, "s": None, "m": []},
    {"id": 3, "s": {"at": None, "tags": None, "d": None}, "m": None},
]
OTHER = pa.schema([
    ("id", pa.uint32()),
    ("s", pa.struct([("at", pa.timestamp("ns")), ("tags", pa.large_list(pa.large_string())), ("d", pa.decimal128(10, 2))])),
    ("m", pa.map_(pa.large_string(), pa.struct([("n", pa.uint32()), ("x", pa.float64())]))),
])  # fmt: skip
"""The same in types that Evenflow's columns do not have."""


def rows_at(path: Path, **options: Any) -> list[dict[str, Any]]:
    source = ef.sources.replay(str(path), speed=None, **options)
    assert source.schema == SCHEMA
    rows: list[dict[str, Any]] = read_all(source).to_pylist()
    return rows


def test_types_inside_of_types_are_brought_to_evenflows(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS, OTHER)
    pq.write_table(table, tmp_path / "rows.parquet")
    with pa.ipc.new_file(tmp_path / "rows.arrow", OTHER) as file:
        file.write_table(table)
    assert rows_at(tmp_path / "rows.parquet") == ROWS
    assert rows_at(tmp_path / "rows.arrow") == ROWS
    assert rows_at(tmp_path / "rows.parquet", schema=DDL) == ROWS


def test_a_time_inside_that_microseconds_cannot_hold_is_named(tmp_path: Path) -> None:
    table = pa.table({"s": pa.array([{"at": 2**62}], pa.struct([("at", pa.timestamp("s"))]))})
    with pa.ipc.new_file(tmp_path / "rows.arrow", table.schema) as file:
        file.write_table(table)
    with pytest.raises(SourceError, match="column 's'"):
        read_all(ef.sources.replay(str(tmp_path), speed=None))


def as_json(row: dict[str, Any]) -> str:
    return json.dumps({**row, "m": None if row["m"] is None else dict(row["m"])}, default=str)


def test_objects_of_json_are_structures_and_maps(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text("\n".join(map(as_json, ROWS)) + "\n\n")
    assert rows_at(tmp_path, schema=DDL) == ROWS
    (tmp_path / "rows.json").write_text('{"id": 1, "other": 2}\n')
    with pytest.raises((SourceError, SchemaChanged), match="other"):
        rows_at(tmp_path, schema=DDL)


@pytest.mark.parametrize(
    "bad",
    ['{"id": 1', "7", '{"id": "x"}', '{"m": [1]}', '{"s": 3}', '{"s": {"tags": "a"}}', '{"m": {"k": {"n": 1.5}}}', '{"s": {"at": 1.5}}'],
)
def test_a_line_that_does_not_fit_is_an_error_of_arrows(bad: str) -> None:
    assert parse_lines(b'{"id": 7, "more": 1, "m": {"k": {"n": 2}}}\n', SCHEMA, "json").to_pylist() == [
        {"id": 7, "s": None, "m": [("k", {"n": 2, "x": None})]}
    ]
    with pytest.raises(pa.ArrowInvalid):
        parse_lines(bad.encode() + b"\n", SCHEMA, "json")


def test_messages_have_maps_as_objects() -> None:
    batch = pa.RecordBatch.from_pylist([*ROWS, {"m": [("k", {"x": float("nan")})]}], SCHEMA)
    made = [json.loads(value or b"") for _, value in KafkaSink("here:1", "topic", "out").messages(batch)]
    assert made[0] == {"id": 1, "s": {"at": AT.isoformat(), "tags": ["a", None], "d": "1.50"}, "m": {"k": {"n": 1, "x": 2.0}, "l": None}}
    assert made[2]["m"] is None and made[3]["m"] == {"k": {"n": None, "x": "NaN"}}


def test_rows_of_a_task_are_the_same_under_other_names() -> None:
    same = pa.schema([
        ("id", pa.int64()),
        ("s", pa.struct([("at", pa.timestamp("us")), ("tags", pa.large_list(pa.large_string())), ("d", pa.decimal128(10, 2))])),
        ("m", pa.map_(pa.large_string(), pa.struct([("n", pa.int64()), ("x", pa.float64())]))),
    ])  # fmt: skip
    assert conform(pa.RecordBatch.from_pylist(ROWS, same), SCHEMA, "t").to_pylist() == ROWS
    for other in (pa.struct([("n", pa.int32()), ("x", pa.float64())]), pa.struct([("o", pa.int64()), ("x", pa.float64())])):
        given = pa.RecordBatch.from_pylist([], same.set(2, pa.field("m", pa.map_(pa.string(), other))))
        with pytest.raises(SchemaChanged, match="'m' is now"):
            conform(given, SCHEMA, "t")


def test_columns_of_a_view_and_a_parquet_table_are_nested(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text("\n".join(map(as_json, ROWS)))
    stream = ef.sql(
        f"CREATE TEMPORARY VIEW t ({DDL}) USING json OPTIONS (path '{tmp_path / 'in.json'}');"
        f"CREATE TABLE o USING parquet OPTIONS (path '{tmp_path / 'out'}'); INSERT INTO o SELECT id, s.d AS d, m['k'].n AS n, m FROM t"
    )
    source = stream.flow.network.of_kind("source")[0]
    assert source.schemas[0] == SCHEMA


def test_a_table_of_a_database_refuses_them_by_name(tmp_path: Path) -> None:
    rows = ef.Dataflow("t").source(ef.sources.memory(pa.RecordBatch.from_pylist(ROWS, SCHEMA)))
    with pytest.raises(TypeMismatch, match="'s' is struct<at: timestamp, "):
        rows.to(ef.sinks.table(str(tmp_path / "a.db"), "t"))
    with pytest.raises(TypeMismatch, match="'m' is map<string, "):
        rows.select("id", "m").to(ef.sinks.table(str(tmp_path / "a.db"), "t"))
