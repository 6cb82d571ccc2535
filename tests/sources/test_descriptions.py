"""Descriptions travel: JSON, pickle, and what cannot be described."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from evenflow import sources
from evenflow.errors import QueryError, SourceError, TypeMismatch
from evenflow.sources.description import schema_from_json, schema_to_json

BATCH = pa.record_batch({"ts": pa.array([1, 2, 3], pa.timestamp("us")), "a": [1, None, 3]})


class Frame:
    """What is asked of a DataFrame: its schema as Spark's JSON, and whether it streams."""

    isStreaming = True

    def __init__(self, *fields: tuple[str, Any]) -> None:
        self._fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields]
        self.schema = self

    def json(self) -> str:
        return json.dumps({"type": "struct", "fields": self._fields})


def every_source(path: Path) -> list[sources.Source]:
    pq.write_table(pa.Table.from_batches([BATCH]), path / "x.parquet")
    return [
        sources.generator(rate=5, keys=7, distribution="zipf", s=1.3, rows=9, seed=2, partitions=3),
        sources.packets(rate=None, hosts=5, seed=1, rows=4),
        sources.replay(str(path), speed=2.5),
        sources.tcp_lines("h", 1, BATCH.schema, "json", True, bad_lines="skip", on_close="end"),
        sources.spark(Frame(("a", "long"))),
        sources.memory([[BATCH], [BATCH, BATCH]], ended=False),
        sources.nexmark("person", 100, events=9, seed=2, event_rate=50, disorder=4, start_us=7, partitions=3),
        sources.group(["localhost:1", "localhost:2?listens=1"], "g", "out", BATCH.schema, after=5, race=True, secret_file="/s"),
    ]


@pytest.mark.parametrize("number", range(8))
def test_a_description_survives_json_and_pickle(tmp_path: Path, number: int) -> None:
    source = every_source(tmp_path)[number]
    assert sources.from_json(json.loads(json.dumps(source.to_json()))) == source
    assert pickle.loads(pickle.dumps(source)) == source
    assert source.partitions(4) >= 1
    assert isinstance(source.streaming, bool)


def test_every_type_of_a_column_survives_json() -> None:
    types = [pa.bool_(), pa.int8(), pa.float32(), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")]
    types += [pa.decimal128(10, 2), pa.list_(pa.int64()), pa.list_(pa.list_(pa.timestamp("us", "UTC")))]
    schema = pa.schema([pa.field(f"c{i}", t, i % 2 == 0) for i, t in enumerate(types)])
    assert schema_from_json(json.loads(json.dumps(schema_to_json(schema)))).equals(schema)
    with pytest.raises(QueryError, match="time64"):
        schema_from_json(schema_to_json(pa.schema([("s", pa.struct([("x", pa.time64("us"))]))])))


def test_memory_deals_batches_cuts_them_and_ends() -> None:
    source = sources.memory([BATCH, BATCH.slice(0, 0), BATCH.slice(1)], 2)
    assert [len(part) for part in source.per_partition] == [2, 1]
    reader = source.open(0, 2)
    assert [(reader.read(0, 2).num_rows, reader.ended) for _ in range(3)] == [(2, False), (1, False), (2, True)]
    assert reader.read(0, 2) is None
    silent = sources.memory(BATCH, ended=False).open(0, 1)
    assert silent.read(0, 9).num_rows == 3
    assert silent.read(0, 9) is None
    assert not silent.ended
    assert sources.memory([], schema=BATCH.schema).open(0, 1).ended


def test_memory_refuses_what_does_not_fit() -> None:
    with pytest.raises(QueryError, match="give schema="):
        sources.memory([])
    with pytest.raises(QueryError, match="different schemas"):
        sources.memory([BATCH, BATCH.select(["a"])])
    with pytest.raises(SourceError, match="of 1 partitions"):
        sources.memory(BATCH).open(0, 2)


def test_a_spark_schema_is_read_from_its_json() -> None:
    plain = ["boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz"]
    frame = Frame(*((t, t) for t in plain), ("d", "decimal(10,2)"), ("v", "varchar(5)"), ("l", {"type": "array", "elementType": "long"}))
    source = sources.spark(frame)
    assert source.pushed
    assert source.streaming
    assert source.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    assert source.schema.field("timestamp_ntz").type == pa.timestamp("us")
    assert source.schema.field("d").type == pa.decimal128(10, 2)
    assert source.schema.field("l").type == pa.list_(pa.int64())
    assert source.dataframe is frame
    assert pickle.loads(pickle.dumps(source)).dataframe is None


@pytest.mark.parametrize(
    "bad", [{"type": "map", "keyType": "string", "valueType": "geometry"}, {"type": "struct", "fields": []}, "interval", "geometry"]
)
def test_a_spark_type_that_is_not_a_columns_names_the_column(bad: Any) -> None:
    with pytest.raises(TypeMismatch, match="column 'odd' has type"):
        sources.spark(Frame(("a", "long"), ("odd", bad)))


def test_a_spark_column_that_is_there_twice_is_named() -> None:
    with pytest.raises(TypeMismatch, match="'a' is there more than once"):
        sources.spark(Frame(("a", "long"), ("a", "string")))


@pytest.mark.parametrize(
    "make",
    [
        lambda: sources.generator(rate=0),
        lambda: sources.generator(keys=0),
        lambda: sources.generator(distribution="normal"),  # type: ignore[arg-type]
        lambda: sources.packets(hosts=0),
        lambda: sources.packets(rows=-1),
        lambda: sources.tcp_lines("h", 0),
        lambda: sources.tcp_lines("h", 5, BATCH.schema, "text"),
        lambda: sources.tcp_lines("h", 5, format="csv"),
        lambda: sources.from_json({"kind": "odd"}),
        lambda: sources.from_json({"kind": "packets", "colour": 3}),
    ],
)
def test_wrong_arguments_are_refused_when_built(make: Any) -> None:
    with pytest.raises(QueryError):
        make()


def test_a_streaming_frame_enters_at_one_site_and_a_batch_at_all() -> None:
    frame = Frame(("a", "long"))
    assert sources.spark(frame).partitions(4) == 1
    frame.isStreaming = False
    assert sources.spark(frame).partitions(4) == 4


@pytest.mark.parametrize(
    "type_",
    [
        T.StringType("UTF8_LCASE"), T.ArrayType(T.StringType("UNICODE_CI")), T.MapType(T.LongType(), T.StringType("UTF8_LCASE")),
        T.ArrayType(T.StructType([T.StructField("a", T.StringType("UNICODE"))])),
    ],
    ids=repr,
)  # fmt: skip
def test_a_column_with_a_collation_is_refused_by_its_name(type_: Any) -> None:
    """Spark's JSON of it says string, and has the collation aside."""
    frame = Frame()
    frame._fields = T.StructType([T.StructField("id", T.LongType()), T.StructField("k", type_)]).jsonValue()["fields"]
    with pytest.raises(TypeMismatch, match=r"Spark source: column 'k' is a string collate U\w+.*lower\(x\)"):
        sources.spark(frame)


def test_what_a_comment_says_is_no_collation() -> None:
    frame = Frame()
    fields = [T.StructField("k", T.StringType("UTF8_BINARY"), metadata={"comment": "collate by name"})]
    frame._fields = T.StructType(fields).jsonValue()["fields"]
    assert sources.spark(frame).schema == pa.schema([("k", pa.string())])


def test_nested_columns_are_saved() -> None:
    columns = pa.schema([
        ("s", pa.struct([("a, b: c>", pa.list_(pa.struct([("x", pa.decimal128(5, 2))]))), ("t", pa.timestamp("us", "UTC"))])),
        ("m", pa.map_(pa.string(), pa.list_(pa.int64()))), ("d", pa.duration("us")), pa.field("l", pa.list_(pa.string()), nullable=False),
    ])  # fmt: skip
    assert schema_from_json(json.loads(json.dumps(schema_to_json(columns)))) == columns
    with pytest.raises(QueryError, match="is not one that a column can have"):
        schema_from_json([{"name": "a", "type": {"union": []}}])
