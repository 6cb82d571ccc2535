"""Messages of Protobuf: columns and rows of a message type, by the descriptors that protoc writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.sources.extras import extra
from evenflow.sources.registry import HEAD_BYTES, number_of

TIMESTAMP: Final = "google.protobuf.Timestamp"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MOST_VARINT_BYTES: Final = 10
"""Of a number of 64 bits. Without a bound one of n bytes takes a time of n squared."""
MOST_INDEXES: Final = 100
"""Of a message inside of messages: so deep Protobuf reads them."""


def message_class(descriptors: bytes, name: str) -> Any:
    """The class of a message type. Raises QueryError if there is none."""
    pb2 = extra("google.protobuf.descriptor_pb2", "Protobuf", "protobuf", "protobuf")
    pool_module = extra("google.protobuf.descriptor_pool", "Protobuf", "protobuf", "protobuf")
    factory = extra("google.protobuf.message_factory", "Protobuf", "protobuf", "protobuf")
    pool = pool_module.DescriptorPool()
    try:
        for file in pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        return factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except Exception as error:  # Of whatever is wrong with them.
        advice = "write them with protoc --include_imports --descriptor_set_out=FILE, and give the full name, with its package"
        raise QueryError(f"protobuf: the descriptors have no message {name!r}: {error}; {advice}") from error


def columns_of(class_: Any) -> pa.Schema:
    return pa.schema(list(_struct(class_.DESCRIPTOR, ())))


def _struct(descriptor: Any, above: tuple[str, ...]) -> pa.DataType:
    if descriptor.full_name in above:
        raise QueryError(f"protobuf: {descriptor.full_name} holds itself, which no column can")
    return pa.struct([pa.field(field.name, _type(field, (*above, descriptor.full_name))) for field in descriptor.fields])


def _type(field: Any, above: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(_single(entry["key"], above), _single(entry["value"], above))
    single = _single(field, above)
    return pa.list_(single) if field.is_repeated else single


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _single(field: Any, above: tuple[str, ...]) -> pa.DataType:
    if field.message_type is not None:
        return pa.timestamp("us", "UTC") if field.message_type.full_name == TIMESTAMP else _struct(field.message_type, above)
    kinds = {
        field.CPPTYPE_INT32: pa.int32(), field.CPPTYPE_INT64: pa.int64(), field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.decimal128(20, 0), field.CPPTYPE_DOUBLE: pa.float64(), field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(), field.CPPTYPE_ENUM: pa.string(),
        field.CPPTYPE_STRING: pa.binary() if field.type == field.TYPE_BYTES else pa.string(),
    }  # fmt: skip
    return kinds[field.cpp_type]


def _taker(field: Any) -> Callable[[Any], Any]:
    """What makes a value of a row of a message's field."""
    name, single = field.name, _value(field)
    if _is_map(field):
        value = _value(field.message_type.fields_by_name["value"])
        return lambda message: [(key, value(each)) for key, each in sorted(getattr(message, name).items())]
    if field.is_repeated:
        return lambda message: [single(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: single(getattr(message, name)) if message.HasField(name) else None
    return lambda message: single(getattr(message, name))


def _value(field: Any) -> Callable[[Any], Any]:
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda value: names.get(value, str(value))
    if field.message_type is None:
        return lambda value: value
    if field.message_type.full_name == TIMESTAMP:
        return lambda value: EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    takers = [(each.name, _taker(each)) for each in field.message_type.fields]
    return lambda value: {name: take(value) for name, take in takers}


class ProtobufDecoder:
    """registered: messages have the head of a schema registry, with the number of the schema, and which message of it they are."""

    def __init__(self, class_: Any, columns: pa.Schema, registered: bool) -> None:
        self._class, self._columns, self._registered = class_, columns, registered
        fields = class_.DESCRIPTOR.fields_by_name
        self._takers = [_taker(fields[name]) for name in columns.names]

    def rows(self, values: Sequence[bytes | None]) -> pa.RecordBatch | None:
        """A row per message; None if one of them is none."""
        try:
            messages = []
            for value in values:
                body = value if value is None or not self._registered else _body(value)
                if body is None:
                    return None
                messages.append(self._class.FromString(body))
            arrays = [pa.array([take(each) for each in messages], column.type) for take, column in zip(self._takers, self._columns)]
        except Exception:  # The library raises whatever comes of bytes that are something else.
            return None
        return pa.RecordBatch.from_arrays(arrays, schema=self._columns)

    def why(self, value: bytes | None) -> str:
        """Nothing more than that it is no row."""
        return ""


def _body(value: bytes) -> bytes | None:
    """A message without its head: the number, then how many indexes follow, then these, as zigzag varints; 0 is the first message.

    None if there is no number. Raises ValueError if what follows it is no list of at most MOST_INDEXES.
    """
    if number_of(value) is None:
        return None
    count, at = _varint(value, HEAD_BYTES)
    if not 0 <= count <= MOST_INDEXES:
        raise ValueError(f"there are no {count} indexes of a message")
    for _ in range(count):
        _, at = _varint(value, at)
    return value[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(The number, where it ends.) Raises ValueError if it does not end within the bytes that one has."""
    found = 0
    for place, byte in enumerate(data[at : at + MOST_VARINT_BYTES]):
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at + place + 1
    raise ValueError(f"no number ends within the {MOST_VARINT_BYTES} bytes at {at}")


__all__ = ["ProtobufDecoder", "columns_of", "message_class"]
