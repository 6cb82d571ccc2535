"""Avro, Protobuf, schema registries and Debezium's envelopes: messages as rows, without a broker."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

import evenflow as ef
from evenflow.errors import QueryError, SourceError
from evenflow.sources import kafka
from evenflow.sources.debezium import Misfit, changes_of
from evenflow.sources.kafka_topics import Bounds
from evenflow.sources.protobuf import message_class
from evenflow.sources.registry import Registry

ORDER = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "item", "type": ["null", "string"], "default": None}, {"name": "price", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}  # fmt: skip
FIRST = {
    "id": 1, "item": "tea", "price": 2.5, "at": datetime(2026, 1, 2, 3, tzinfo=UTC), "day": date(2026, 1, 2), "kind": "B",
    "sum": Decimal("12.30"), "lines": [{"n": 1}, {"n": 2}], "tags": {"a": "b"},
}  # fmt: skip
SECOND = {**FIRST, "id": 2, "item": None, "day": None, "lines": [], "tags": {}}


def avro(schema: Mapping[str, Any], *rows: Mapping[str, Any], number: int | None = None) -> list[bytes | None]:
    head = b"" if number is None else b"\0" + number.to_bytes(4, "big")
    made: list[bytes | None] = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(dict(schema)), dict(row))
        made.append(head + out.getvalue())
    return made


class Message:
    def __init__(self, offset: int, value: bytes | None, key: bytes | None = b"key") -> None:
        self._offset, self._value, self._key = offset, value, key

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def headers(self) -> list[tuple[str, bytes]] | None:
        return [("trace", b"%d" % self._offset)] if self._offset else None


class Consumer:
    """Gives the messages from an offset on."""

    def __init__(self, values: list[bytes | None], start: int) -> None:
        self._left = [Message(at, value) for at, value in enumerate(values)][start:]

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        given, self._left = self._left[:num_messages], self._left[num_messages:]
        return given

    def close(self) -> None:
        return


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    """read(values, **arguments of the source) gives a reader of a topic with these values."""

    def made(values: list[bytes | None], *, position: int = 0, **arguments: Any) -> kafka.KafkaReader:
        monkeypatch.setattr(ef.sources, "bounds", lambda *_: Bounds(((0, 0),), ((0, len(values)),), (), "orders"))
        reader = ef.sources.kafka("here:1", "orders", **arguments).open(0, 1)
        if position:
            reader.skip(position)
        monkeypatch.setattr(reader, "_open", lambda: consumer)
        consumer = Consumer(values, reader._next)
        return reader

    return made


def rows(reader: kafka.KafkaReader, *, without: tuple[str, ...] = ("kafka_offset", "kafka_timestamp")) -> list[dict[str, Any]]:
    batch = reader.read(0, 100)
    assert batch is not None
    assert batch.schema.equals(reader._source.schema)
    return batch.drop_columns(list(without)).to_pylist()


# ---------------------------------------------------------------- Avro


def test_messages_of_avro_are_rows(read: Any) -> None:
    reader = read(avro(ORDER, FIRST, SECOND), avro_schema=json.dumps(ORDER), include="key, headers")
    found = rows(reader)
    behind = {"kafka_key": b"key", "kafka_headers": []}
    first = {**FIRST, "tags": [("a", "b")]}
    assert found == [{**first, **behind}, {**SECOND, "tags": [], **behind, "kafka_headers": [{"key": "trace", "value": b"1"}]}]
    assert reader.ended


@pytest.mark.parametrize("bad", [b"", b"\x02", b"garbage" * 9, None])
def test_a_message_that_is_not_of_the_schema_is_named_or_skipped(read: Any, bad: bytes | None) -> None:
    values = [*avro(ORDER, FIRST), bad, *avro(ORDER, SECOND)]
    with pytest.raises(SourceError, match="offset 1 of partition 0 is not avro of the declared schema"):
        read(values, avro_schema=json.dumps(ORDER)).read(0, 100)
    reader = read(values, avro_schema=json.dumps(ORDER), bad_messages="skip")
    assert [row["id"] for row in rows(reader)] == [1, 2] and reader.bad_messages == 1


def nested(depth: int) -> Any:
    type_: Any = "long"
    for _ in range(depth):
        type_ = ["null", {"type": "array", "items": type_}]
    return type_


def test_what_is_nested_as_deeply_as_a_column_may_be_is_read(read: Any) -> None:
    schema = written(nested(48), default=None)  # Each level is a union and an array.
    assert rows(read(avro(schema, {"t": [None]}), avro_schema=json.dumps(schema))) == [{"t": [None]}]


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (nested(50), "nested in each other more than 100 deep"),
        (nested(300), "nested in each other (more than 100|hundreds) deep"),
        (["int", "string"], "a union of 2 types is no column"),
        ({"type": "int", "logicalType": "time-millis"}, "a time of day"),
        ("nothing", "this is no schema of Avro"),
        (["null", "r"], "messages of this schema of Avro cannot be read: 'r' holds itself"),
        ({"type": "array", "items": {"type": "record", "name": "e", "fields": []}}, "items of an array take no bytes of a message"),
        (json.loads('{"type": "array", "items": ' * 120 + '"int"' + "}" * 120), "nested in each other more than 100 deep"),
    ],
)
def test_schemas_that_are_no_columns(read: Any, type_: Any, message: str) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": type_}]}
    with pytest.raises(QueryError, match=message):
        read([], avro_schema=json.dumps(schema))
    with pytest.raises(QueryError, match="is no record"):
        read([], avro_schema='"string"')
    with pytest.raises(QueryError, match="give avro_schema= or registry="):
        read([], format="avro")


# ---------------------------------------------------------------- a registry


class Schemas:
    """A server that speaks as Confluent's registry does. status: of all answers. asked: paths."""

    def __init__(self) -> None:
        self.by_number: dict[int, str] = {}
        self.newest: dict[str, str] = {}
        self.status, self.asked, self.url = 200, list[str](), ""

    def answer(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        parts = path.strip("/").split("/")
        found = self.by_number.get(int(parts[2])) if parts[0] == "schemas" else self.newest.get(parts[1])
        if self.status != 200 or found is None:
            return (404 if self.status == 200 else self.status), b'{"error_code": 40403, "message": "Schema not found"}'
        return 200, json.dumps({"schema": found, "id": 1}).encode()


@contextmanager
def served(schemas: Schemas) -> Iterator[Schemas]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = schemas.answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        schemas.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield schemas
        finally:
            server.shutdown()
            thread.join()


def test_a_registry_says_what_each_message_was_written_with(read: Any) -> None:
    """Goal: schemas drift. Method: older and newer ones in one topic; a column is new, one is gone, one is wider."""
    older = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}]}
    newer = {
        "type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}, {"name": "more", "type": "string", "default": "none"}],
    }  # fmt: skip
    strange = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "string"}]}
    schemas = Schemas()
    schemas.by_number = {7: json.dumps(older), 8: json.dumps(newer), 9: json.dumps(strange)}
    schemas.newest["orders-value"] = json.dumps(newer)
    values = [*avro(older, {"id": 1, "gone": "x"}, number=7), *avro(newer, {"id": 2, "more": "y"}, {"id": 3, "more": "z"}, number=8)]
    with served(schemas):
        reader = read(values, registry=schemas.url)
        assert rows(reader) == [{"id": 1, "more": "none"}, {"id": 2, "more": "y"}, {"id": 3, "more": "z"}]
        assert sorted(schemas.asked) == ["/schemas/ids/7", "/schemas/ids/8", "/subjects/orders-value/versions/latest"]
        assert reader._source.blocking
        drifted = [*values, *avro(strange, {"id": "four"}, number=9), b"no head"]
        with pytest.raises(SourceError, match="offset 3 of partition 0 is not avro of the declared schema"):
            read(drifted, registry=schemas.url).read(0, 100)
        skipping = read(drifted, registry=schemas.url, bad_messages="skip")
        assert len(rows(skipping)) == 3 and skipping.bad_messages == 2
        unknown = read([*avro(newer, {"id": 2, "more": "y"}, number=77)], registry=schemas.url)
        with pytest.raises(SourceError, match="has not a schema with the number 77"):
            unknown.read(0, 100)


def test_a_schema_that_anybody_may_have_registered_ends_no_run(read: Any) -> None:
    """Goal: whoever writes to a topic may name any schema of the registry. Method: none of Avro, and such as bound nothing."""
    schema = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    nothings = {"type": "array", "items": "null"}
    schemas = Schemas()
    schemas.by_number = {
        1: json.dumps(schema), 10: "message Order {}", 11: '{"type": "record"}', 12: '"no type"', 13: "[" * 100_000,
        14: json.dumps({**schema, "fields": [*schema["fields"], {"name": "x", "type": node}]}),
        15: json.dumps({**schema, "fields": [*schema["fields"], {"name": "x", "type": nothings}]}),
    }  # fmt: skip
    why = {
        10: "is none of Avro",
        11: "is none of Avro",
        12: "is none of Avro",
        13: "cannot be read",
        14: "'Node' holds itself",
        15: "take no bytes",
    }
    good = avro(schema, {"id": 2}, number=1)
    with served(schemas):
        given: dict[str, Any] = {"avro_schema": json.dumps(schema), "registry": schemas.url}
        for number, words in why.items():
            bad = avro(schema, {"id": 1}, number=number)
            with pytest.raises(
                SourceError, match=rf"at offset 1 .* not avro of the declared schema \(.* the schema with the number {number} .*{words}"
            ):
                read([*good, *bad], **given).read(0, 100)
            reader = read([*good, *bad, *good], **given, bad_messages="skip")
            assert [row["id"] for row in rows(reader)] == [2, 2] and reader.bad_messages == 1


def written(type_: Any, name: str = "t", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "O", "fields": [{"name": name, "type": type_, **more}]}


def logical(name: str, type_: str = "long") -> dict[str, Any]:
    return {"type": type_, "logicalType": name}


T = datetime(2026, 9, 21, 13, 33, 20, 123_000, tzinfo=UTC)
MILLIS = 1_789_997_600_123
assert T.timestamp() * 1000 == MILLIS


@pytest.mark.parametrize("declared", ["timestamp-millis", "timestamp-micros"])
@pytest.mark.parametrize("null", [False, True])
def test_a_time_has_the_unit_that_it_was_written_with(read: Any, declared: str, null: bool) -> None:
    """Goal: a producer that moves to another unit moves no time. Method: both units, and none, mixed in one batch and alone."""
    schemas, own = Schemas(), MILLIS if declared == "timestamp-millis" else MILLIS * 1000

    def given(type_: Any) -> Any:
        return ["null", type_] if null else type_

    of = {
        1: (written(given(logical("timestamp-millis"))), MILLIS), 2: (written(given(logical("timestamp-micros"))), MILLIS * 1000),
        3: (written(given("long")), own), 4: (written("long", "gone"), 9),
    }  # fmt: skip
    schemas.by_number = {number: json.dumps(schema) for number, (schema, _) in of.items()}
    plain = {number: written("long", schema["fields"][0]["name"]) for number, (schema, _) in of.items()}
    head = b"\x02" if null else b""

    def message(number: int) -> bytes:
        (value,) = avro(plain[number], {plain[number]["fields"][0]["name"]: of[number][1]}, number=number)
        assert value is not None
        return value if number == 4 else value[:5] + head + value[5:]

    default = {"default": None} if null else {"default": own}
    reader_schema = json.dumps(written(given(logical(declared)), **default))
    with served(schemas):
        for numbers in ([1], [2], [2, 2], [1, 2, 3, 2, 1], [4, 2], [4]):
            found = rows(read([message(number) for number in numbers], avro_schema=reader_schema, registry=schemas.url))
            assert [row["t"] for row in found] == [None if null and number == 4 else T for number in numbers], numbers


@pytest.mark.parametrize(
    ("type_", "declared"),
    [
        (logical("date", "int"), logical("timestamp-millis")),
        (logical("local-timestamp-millis"), logical("timestamp-millis")),
        (logical("timestamp-nanos"), logical("timestamp-micros")),
        (logical("time-micros"), ["null", logical("timestamp-micros")]),
        ([logical("timestamp-micros"), "int", "null"], logical("timestamp-millis")),
    ],
)
def test_a_time_of_another_kind_is_a_bad_message(read: Any, type_: Any, declared: Any) -> None:
    schemas = Schemas()
    schemas.by_number = {1: json.dumps(written(type_)), 2: json.dumps(written(logical("timestamp-micros")))}
    (number,) = avro(written("long"), {"t": 20_000})
    assert number is not None
    bad = b"\0\0\0\0\x01" + (b"\0" if isinstance(type_, list) else b"") + number
    with served(schemas):
        reader = read([bad, b"\0\0\0\0\x02" + number], avro_schema=json.dumps(written(declared)), registry=schemas.url, bad_messages="skip")
        assert [row["t"] for row in rows(reader)] == [datetime(1970, 1, 1, 0, 0, 0, 20_000, tzinfo=UTC)] and reader.bad_messages == 1


def test_a_time_inside_of_a_record_is_as_it_was_written(read: Any) -> None:
    def nested(unit: str) -> dict[str, Any]:
        return written({"type": "record", "name": "In", "fields": [{"name": "at", "type": ["null", logical(unit)]}]})

    schemas = Schemas()
    schemas.by_number = {1: json.dumps(nested("timestamp-millis")), 2: json.dumps(nested("timestamp-micros"))}
    values = [*avro(nested("timestamp-millis"), {"t": {"at": T}}, number=1), *avro(nested("timestamp-micros"), {"t": {"at": T}}, number=2)]
    with served(schemas):
        assert [row["t"] for row in rows(read(values, avro_schema=schemas.by_number[1], registry=schemas.url))] == [{"at": T}] * 2


def test_uuids_are_texts(read: Any) -> None:
    text = "12345678-1234-5678-1234-567812345678"
    uuid = logical("uuid", "string")
    fields = [{"name": "u", "type": uuid}, {"name": "all", "type": {"type": "array", "items": ["null", uuid]}},
              {"name": "in", "type": {"type": "record", "name": "In", "fields": [{"name": "m", "type": {"type": "map", "values": uuid}}]}},
              {"name": "raw", "type": {"type": "fixed", "name": "F", "size": 2, "logicalType": "uuid"}}]  # fmt: skip
    schema = {"type": "record", "name": "O", "fields": fields}
    value = {"u": text, "all": [None, text], "in": {"m": {"a": text}}, "raw": b"ab"}
    schemas = Schemas()
    schemas.by_number = {1: json.dumps(schema), 2: json.dumps({**schema, "doc": "other"})}
    bare = json.loads(json.dumps(schema).replace(', "logicalType": "uuid"', ""))
    with served(schemas):
        values = [*avro(bare, value, number=1), *avro(bare, value, number=2)]
        found = rows(read(values, avro_schema=json.dumps(schema), registry=schemas.url))
        assert found == [{**value, "in": {"m": [("a", text)]}}] * 2
    assert len(rows(read(avro(bare, value), avro_schema=json.dumps(schema)))) == 1


def test_a_registry_that_is_down_is_waited_for(read: Any) -> None:
    schema = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}
    schemas = Schemas()
    schemas.by_number, schemas.newest["orders-value"] = {1: json.dumps(schema)}, json.dumps(schema)
    with served(schemas):
        reader = read(avro(schema, {"id": 5}, number=1), registry=schemas.url)
        schemas.status = 503
        assert reader.read(1_000_000, 100) is None and not reader.ended
        asked = len(schemas.asked)
        assert reader.read(1_500_000, 100) is None and len(schemas.asked) == asked, "not before a second is over"
        schemas.status = 200
        assert reader.read(2_000_001, 100).column("id").to_pylist() == [5] and reader.ended
        schemas.status = 503
        away = read(avro(schema, {"id": 5}, number=1), avro_schema=json.dumps(schema), registry=schemas.url)
        assert away.read(0, 100) is None
        with pytest.raises(SourceError, match="the schema registry has not answered for 300 s: it answers 503"):
            away.read(400_000_000, 100)
        with pytest.raises(SourceError, match="does not answer: it answers 503"):
            read([], registry=schemas.url)
    with pytest.raises(SourceError, match="does not answer"):
        read([], registry=schemas.url)


def test_a_server_that_is_no_registry() -> None:
    schemas = Schemas()
    with served(schemas):
        for answer, message in ((b"<html>", "is not JSON"), (b'{"x": 1}', "is no schema")):
            schemas.answer = lambda path, answer=answer: (200, answer)  # type: ignore[method-assign, misc]
            with pytest.raises(SourceError, match=message):
                Registry(schemas.url).schema(1)
        schemas.answer = lambda path: (401, b"")  # type: ignore[method-assign]
        with pytest.raises(SourceError, match=r"refuses the user: give schema\.registry\.basic\.auth\.user\.info"):
            Registry(schemas.url, {"schema.registry.basic.auth.user.info": "a:b"}).schema(1)


# ---------------------------------------------------------------- Protobuf


def descriptors() -> bytes:
    """message Order {int64 id; optional string item; Timestamp at; Kind kind; repeated Line lines; map<string, int32> tags; bytes raw;}"""
    own, times = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(times)
    own.name, own.package, own.syntax = "shop.proto", "shop", "proto3"
    own.dependency.append(times.name)
    kind = own.enum_type.add(name="Kind")
    for number, name in enumerate(("NONE", "SOLD")):
        kind.value.add(name=name, number=number)
    line = own.message_type.add(name="Line")
    order = own.message_type.add(name="Order")
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    many, one, of = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto
    order.oneof_decl.add(name="_item")
    told = [
        (line, "n", of.TYPE_UINT32, one, ""), (entry, "key", of.TYPE_STRING, one, ""), (entry, "value", of.TYPE_INT32, one, ""),
        (order, "id", of.TYPE_INT64, one, ""), (order, "item", of.TYPE_STRING, one, ""),
        (order, "at", of.TYPE_MESSAGE, one, ".google.protobuf.Timestamp"), (order, "kind", of.TYPE_ENUM, one, ".shop.Kind"),
        (order, "lines", of.TYPE_MESSAGE, many, ".shop.Line"), (order, "tags", of.TYPE_MESSAGE, many, ".shop.Order.TagsEntry"),
        (order, "raw", of.TYPE_BYTES, one, ""),
    ]  # fmt: skip
    for message, name, type_, label, type_name in told:
        field = message.field.add(name=name, number=len(message.field) + 1, type=type_, label=label, type_name=type_name or None)
        if name == "item":
            field.proto3_optional, field.oneof_index = True, 0
    return descriptor_pb2.FileDescriptorSet(file=[times, own]).SerializeToString()


@pytest.mark.parametrize("head", [b"", b"\0\0\0\0\7\0", b"\0\0\0\0\7\4\2\0"])
def test_messages_of_protobuf_are_rows(read: Any, head: bytes) -> None:
    order = message_class(descriptors(), "shop.Order")
    full = order(id=1, item="tea", kind=1, lines=[{"n": 3}], tags={"b": 2, "a": 1}, raw=b"x")
    full.at.FromDatetime(datetime(2026, 1, 2, 3, 4, 5, 6000))
    more = {"registry": "http://nobody"} if head else {}
    values = [head + full.SerializeToString(), head + order(id=2).SerializeToString()]
    reader = read(values, format="protobuf", descriptors=descriptors(), message="shop.Order", **more)
    assert rows(reader) == [
        {"id": 1, "item": "tea", "at": datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC), "kind": "SOLD", "lines": [{"n": 3}],
         "tags": [("a", 1), ("b", 2)], "raw": b"x"},
        {"id": 2, "item": None, "at": None, "kind": "NONE", "lines": [], "tags": [], "raw": b""},
    ]  # fmt: skip
    bad = read([b"\xff\xff"], format="protobuf", descriptors=descriptors(), message="shop.Order", **more)
    with pytest.raises(SourceError, match="is not protobuf of the declared schema"):
        bad.read(0, 100)


def test_descriptors_that_do_not_have_the_message(read: Any) -> None:
    for given, message in (
        ({"descriptors": b"\xff"}, "have no message"),
        ({"descriptors": "/nowhere"}, "cannot be read"),
        ({}, "give desc"),
    ):
        with pytest.raises(QueryError, match=message):
            read([], format="protobuf", message="shop.Nothing", **given)
    with pytest.raises(QueryError, match="avro_schema is for messages of avro or protobuf"):
        read([], format="text", avro_schema="{}")


# ---------------------------------------------------------------- Debezium


def envelope(op: str, before: Any = None, after: Any = None, types: Mapping[str, str] | None = None) -> bytes:
    payload = {"op": op, "before": before, "after": after, "ts_ms": 1}
    if types is None:
        return json.dumps(payload).encode()
    fields = [{"field": name, "name": semantic} for name, semantic in types.items()]
    return json.dumps({"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": payload}).encode()


def row(id_: int, name: str) -> dict[str, Any]:
    return {"id": id_, "name": name, "ignored": 1}


ENVELOPES: list[bytes | None] = [
    envelope("r", after=row(1, "a")), envelope("c", after=row(2, "b")), envelope("u", row(1, "a"), row(1, "c")), envelope("d", row(2, "b")),
    None, envelope("m"), envelope("u", row(1, "c"), row(1, "d")),
]  # fmt: skip
CHANGES = [
    (1, "a", "insert", 1), (2, "b", "insert", 3), (1, "a", "update_before", 4), (1, "c", "update_after", 5), (2, "b", "delete", 7),
    (1, "c", "update_before", 12), (1, "d", "update_after", 13),
]  # fmt: skip


def test_envelopes_of_debezium_are_a_changelog(read: Any) -> None:
    reader = read(ENVELOPES, schema="id bigint, name string", format="debezium")
    assert reader._source.position == "kafka_position"
    assert [tuple(each.values()) for each in rows(reader)] == CHANGES


@pytest.mark.parametrize("given", range(8))
def test_who_goes_on_with_changes_goes_on_between_the_rows_of_a_message(read: Any, given: int) -> None:
    position = CHANGES[given - 1][3] + 1 if given else 0
    reader = read(ENVELOPES, schema="id bigint, name string", format="debezium", position=position)
    batch = None if reader.ended else reader.read(0, 100)
    found = [] if batch is None else batch.column("kafka_position").to_pylist()
    assert found == [change[3] for change in CHANGES[given:]]


def test_values_of_envelopes(read: Any) -> None:
    types = {
        "at": "io.debezium.time.MicroTimestamp", "ms": "io.debezium.time.Timestamp", "day": "io.debezium.time.Date",
    }  # fmt: skip
    after = {"at": 1_700_000_000_000_001, "ms": 1_700_000_000_001, "day": 19_000, "sum": "12.30", "raw": "eA==", "x": 1.5, "z": None}
    schema = "at timestamp_ntz, ms timestamp, day date, sum decimal(9, 2), raw binary, x double, z string"
    (found,) = rows(read([envelope("c", after=after, types=types)], schema=schema, format="debezium"))
    assert found["at"] == datetime(2023, 11, 14, 22, 13, 20, 1) and found["ms"] == datetime(2023, 11, 14, 22, 13, 20, 1000)
    assert (found["day"], found["sum"], found["raw"], found["x"], found["z"]) == (date(2022, 1, 8), Decimal("12.30"), b"x", 1.5, None)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"no JSON", "it is not JSON"),
        (b"[1]", "it is no object"),
        (b'{"id": 1}', "no envelope of Debezium"),
        (envelope("u", None, row(1, "a")), "REPLICA IDENTITY FULL"),
        (envelope("t"), "its op is 't'"),
        (envelope("c", after={"id": 1}), "there is no column 'name'; there are id"),
        (envelope("c", after={"id": "x", "name": "a"}), "column 'id' is not int64"),
        (envelope("c", after={"id": 1, "name": 2}), "column 'name' is not string"),
        (envelope("c", after={"id": 1, "name": "\ud83d"}), "column 'name' is not string"),
        (envelope("c", after={"id": 1.5, "name": "a"}), "column 'id' is not int64: a number with a fraction or an exponent is no int64"),
        (b'{"op": "c", "after": {"id": 1e3, "name": "a"}}', "column 'id' is not int64: a number with a fraction"),
        (b'{"op": "c", "after": {"id": 1, "name": "a", "x": 1e9999999999999999999}}', "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b'{"schema": "x", "payload": {}}', "its 'schema' is none"),
        (b'{"schema": {"fields": [1]}, "payload": {}}', "its 'schema' is none"),
        (
            b'{"schema": {"fields": [{"field": "after", "fields": [{"name": "io.debezium.time.Date"}]}]}, "payload": {}}',
            "its 'schema' is none",
        ),
    ],
)
def test_envelopes_that_do_not_fit_are_named_or_skipped(read: Any, value: bytes, why: str) -> None:
    with pytest.raises(SourceError, match=f"no change of rows of the declared schema: .*{why}"):
        read([value], schema="id bigint, name string", format="debezium").read(0, 10)
    reader = read([value, ENVELOPES[0]], schema="id bigint, name string", format="debezium", bad_messages="skip")
    assert len(rows(reader)) == 1 and reader.bad_messages == 1


@pytest.mark.parametrize(
    ("type_", "given", "found"),
    [
        ("decimal(9, 2)", "1.50", Decimal("1.50")), ("decimal(9, 2)", '"-1e2"', Decimal(-100)), ("decimal(9, 2)", "7", Decimal(7)),
        ("decimal(38, 38)", "1e-38", Decimal("1e-38")), ("decimal(38, 0)", "1e37", Decimal("1e37")), ("double", "1e999", float("inf")),
        ("double", '"-Infinity"', float("-inf")), ("double", "2e-3", 0.002), ("array<bigint>", "[1, null]", [1, None]),
        ("array<decimal(9, 2)>", "[1.5]", [Decimal("1.50")]), ("map<string, date>", '{"a": 1}', [("a", date(1970, 1, 2))]),
    ],
)  # fmt: skip
def test_numbers_of_envelopes(read: Any, type_: str, given: str, found: Any) -> None:
    value = b'{"op": "c", "after": {"v": %s}}' % given.encode()
    assert [row["v"] for row in rows(read([value], schema=f"v {type_}", format="debezium"))] == [found]


def test_a_number_without_a_unit_is_no_time() -> None:
    assert changes_of(None) == ([], {})
    with pytest.raises(Misfit, match="is not JSON"):
        changes_of(b"{")


# ---------------------------------------------------------------- JSON and CSV, parsed together


@pytest.mark.parametrize(
    "value",
    [b'{"m": {}, "s": "\\ud83d"}', b'{"m": {"\\ud83d": 1}}', b'{"m": {}, "x": 1e9999999999999999999}',
     b'{"m": ' + b"[" * 100_000, b"[" * 100_000],
    ids=["half an emoji", "as a name", "a huge number", "deep", "deep alone"],
)  # fmt: skip
def test_json_that_python_cannot_hold_is_a_bad_message(read: Any, value: bytes) -> None:
    said: dict[str, Any] = {"schema": "m map<string, bigint>, s string", "format": "json"}
    good = b'{"m": {"a": 1}, "s": "b"}'
    with pytest.raises(SourceError, match="offset 1 of partition 0 is not json of the declared schema"):
        read([good, value], **said).read(0, 100)
    reader = read([good, value, good], **said, bad_messages="skip")
    assert len(rows(reader)) == 2 and reader.bad_messages == 1


@pytest.mark.parametrize(
    ("format_", "values", "good"),
    [
        ("json", [b'{"a":1', b'}{"a":2}'], 0),
        ("json", [b'{"a":1}{"a":2', b"}"], 0),
        ("json", [b'{"a":1}{"a":2}', b" "], 0),
        ("json", [b'{"a":', b'7}{"a":2}{"a":3}', b"\n"], 0),
        ("json", [b'\xef\xbb\xbf{"a":1}', b'\xef\xbb\xbf{"a":2}', b'{\n"a":3}\n'], 3),
        ("csv", [b'"x', b'y"', b"1\n2"], 2),
        ("csv", [b'"x\ny"', b'"1', b'"'], 3),
        ("csv", [b'"x ""y"""', b'x"y', b'x"'], 3),
        ("csv", [b"\xef\xbb\xbfx", b"\xef\xbb\xbfy", b"z\r\n"], 3),
    ],
)
def test_a_message_is_what_it_is_by_itself(read: Any, format_: str, values: list[bytes | None], good: int) -> None:
    """Goal: the same offsets give the same rows, whatever the broker gives at once. Method: together, and one by one."""
    said = {"schema": "a bigint" if format_ == "json" else "a string", "format": format_, "bad_messages": "skip"}
    together, single = read(values, **said), read(values, **said)
    found = [row for _ in values for batch in [single.read(0, 1)] if batch is not None for row in batch.to_pylist()]
    batch = together.read(0, 100)
    assert ([] if batch is None else batch.to_pylist()) == found and len(found) == good
    assert together.bad_messages == single.bad_messages == len(values) - good


# ---------------------------------------------------------------- descriptions


def test_what_came_later_does_not_make_another_program_of_one_from_before() -> None:
    from evenflow.query.structure import _end

    old = ef.sources.KafkaSource("here:1", "t", pa.schema([("x", pa.int64())]), "json", ((0, 0),))
    said = _end(old)
    assert "decoding" not in said and "include" not in said
    assert ef.sources.from_json(old.to_json()) == old
