"""Messages of Avro: which columns a schema means, and rows of what was written with the same schema or with another one.

Times and dates at the top of a record are read as the numbers that they are, and become columns at once: to make Python's objects of
them costs as much as all the rest.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.sources.extras import extra
from evenflow.sources.registry import HEAD_BYTES, Registry, number_of

PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(), "bytes": pa.binary(),
    "string": pa.string(), "enum": pa.string(), "fixed": pa.binary(),
}  # fmt: skip
LOGICAL: Final[Mapping[str, tuple[pa.DataType, pa.DataType]]] = {
    "date": (pa.int32(), pa.date32()),
    "timestamp-millis": (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
    "timestamp-micros": (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
    "local-timestamp-millis": (pa.timestamp("ms"), pa.timestamp("us")),
    "local-timestamp-micros": (pa.timestamp("us"), pa.timestamp("us")),
}
"""What the number of a logical type is, and what it is in a row."""


def client() -> Any:
    """The module `fastavro`. Raises QueryError if it is not installed."""
    return extra("fastavro", "Avro", "fastavro", "avro")


def record_of(text: str, what: str) -> dict[str, Any]:
    """The schema of a record. Raises QueryError if it is none."""
    try:
        said = json.loads(text)
        client().parse_schema(said)
    except QueryError:
        raise
    except Exception as error:  # Of whatever is wrong with it.
        raise QueryError(f"{what}: this is no schema of Avro: {error}") from error
    if not isinstance(said, dict) or said.get("type") != "record":
        raise QueryError(f"{what}: the schema of Avro is no record, so it has no columns")
    return said


def columns_of(record: Mapping[str, Any], what: str) -> pa.Schema:
    """The columns of a record. Raises QueryError for what no column can have."""
    names: dict[str, Any] = {}
    type_ = _type(record, names, what)
    return pa.schema(list(type_))


def _type(said: Any, names: dict[str, Any], what: str, above: tuple[str, ...] = ()) -> pa.DataType:
    if isinstance(said, list):
        rest = [each for each in said if each != "null"]
        if len(rest) != 1:
            raise QueryError(f"{what}: a union of {len(rest)} types is no column; write null and one type")
        return _type(rest[0], names, what, above)
    if isinstance(said, str):
        if said in PLAIN:
            return PLAIN[said]
        if said in names and said.rpartition(".")[2] not in above:
            return _type(names[said], names, what, above)
        raise QueryError(f"{what}: {said!r} is no type of a column; what holds itself cannot be one")
    kind = said["type"]
    if kind in ("record", "enum", "fixed"):
        names[said["name"]] = said
        names[f"{said.get('namespace', '')}.{said['name']}"] = said
    if said.get("logicalType") in LOGICAL:
        return LOGICAL[said["logicalType"]][1]
    if said.get("logicalType") == "decimal":
        return pa.decimal128(said["precision"], said.get("scale", 0))
    if said.get("logicalType", "").startswith("time-"):
        raise QueryError(f"{what}: a time of day ({said['logicalType']}) is no column's type; write a timestamp or a number")
    if kind == "record":
        inside = (*above, said["name"].rpartition(".")[2])
        return pa.struct([pa.field(each["name"], _type(each["type"], names, what, inside)) for each in said["fields"]])
    if kind == "array":
        return pa.list_(_type(said["items"], names, what, above))
    if kind == "map":
        return pa.map_(pa.string(), _type(said["values"], names, what, above))
    return _type(kind, names, what, above)


class AvroDecoder:
    """record: the schema that rows have. registry: where the schema of each message is looked up; None: all were written with `record`."""

    def __init__(self, text: str, columns: pa.Schema, registry: Registry | None) -> None:
        self._columns, self._registry = columns, registry
        record = json.loads(text)
        self._raw = {each["name"]: raw for each in record["fields"] if (raw := _raw_type(each["type"])) is not None}
        self._reader = client().parse_schema(_plain(record))
        self._writers: dict[int, Any] = {}
        self._read: Callable[..., Any] = client().schemaless_reader
        self._text = text

    def rows(self, values: Sequence[bytes | None]) -> pa.RecordBatch | None:
        """A row per message; None if one of them is none. Raises RegistryAway, SourceError."""
        registered = [self._writer(value) for value in values]
        try:
            found = []
            for value, writer in zip(values, registered, strict=True):
                if value is None or writer is None:
                    return None
                message = io.BytesIO(value)
                if self._registry is not None:
                    message.seek(HEAD_BYTES)
                if writer is self._reader:
                    found.append(self._read(message, self._reader))
                else:
                    found.append(self._read(message, writer, self._reader))
                if message.read(1):
                    return None
            arrays = [self._column(column, [row[column.name] for row in found]) for column in self._columns]
        except Exception:  # fastavro raises whatever comes of bytes that are something else.
            return None
        return pa.RecordBatch.from_arrays(arrays, schema=self._columns)

    def _column(self, column: pa.Field, values: list[Any]) -> pa.Array:
        raw = self._raw.get(column.name)
        return pa.array(values, column.type) if raw is None else pa.array(values, raw).cast(column.type)

    def _writer(self, value: bytes | None) -> Any:
        """The schema that a message was written with; None if it has none."""
        if self._registry is None:
            return self._reader
        number = None if value is None else number_of(value)
        if number is None:
            return None
        if number not in self._writers:
            text = self._registry.schema(number)
            same = json.loads(text) == json.loads(self._text)
            self._writers[number] = self._reader if same else client().parse_schema(_plain(json.loads(text)))
        return self._writers[number]


def _raw_type(said: Any) -> pa.DataType | None:
    """What the number of a time or a date at the top of a record is."""
    if isinstance(said, list):
        found = [raw for each in said if (raw := _raw_type(each)) is not None]
        return found[0] if found else None
    return LOGICAL[said["logicalType"]][0] if isinstance(said, dict) and said.get("logicalType") in LOGICAL else None


def _plain(record: Any) -> Any:
    """The schema of a record without logical types of times and dates at its top."""
    if not isinstance(record, dict) or record.get("type") != "record":
        return record

    def bare(said: Any) -> Any:
        if isinstance(said, list):
            return [bare(each) for each in said]
        return said["type"] if isinstance(said, dict) and said.get("logicalType") in LOGICAL else said

    return {**record, "fields": [{**each, "type": bare(each["type"])} for each in record["fields"]]}


__all__ = ["AvroDecoder", "columns_of", "record_of"]
