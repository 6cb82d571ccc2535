"""Messages of Avro: which columns a schema means, and rows of what was written with the same schema or with another one.

Times and dates at the top of a record are read as the numbers that they are, and become columns at once: to make Python's objects of
them costs as much as all the rest.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.sources.avro_bounds import Shape, Unreadable, shape_of
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
MICROS: Final[Mapping[str, int]] = {"ms": 1000, "us": 1}
EXACT_DECIMAL: Final = "evenflow-decimal"
"""The logical type of decimals that fastavro is told: its own reader takes seconds for one of 100 kB, and any scale."""
MOST_DECIMAL_BYTES: Final = 64
MOST_DIGITS: Final = 38
NAMED: Final = "__named_schemas"
MARKS: Final = ("__fastavro_parsed", NAMED)
"""What fastavro writes into a schema that it has parsed: one that comes with them is taken unread, with the types that they say."""


def client() -> Any:
    """The module `fastavro`. Raises QueryError if it is not installed."""
    module = extra("fastavro", "Avro", "fastavro", "avro")
    module.read.LOGICAL_READERS |= {f"bytes-{EXACT_DECIMAL}": _decimal, f"fixed-{EXACT_DECIMAL}": _decimal}
    return module


def _decimal(data: bytes, written: Mapping[str, Any], read: Any = None) -> Decimal:
    """Raises ValueError for one that no column has room for."""
    scale = written.get("scale", 0)
    if len(data) > MOST_DECIMAL_BYTES or not isinstance(scale, int) or not 0 <= scale <= MOST_DIGITS:
        raise ValueError(f"a decimal of {len(data)} bytes and scale {scale}")
    return Context(prec=3 * MOST_DECIMAL_BYTES).scaleb(Decimal(int.from_bytes(data, "big", signed=True)), -scale)


def record_of(text: str, what: str) -> dict[str, Any]:
    """The schema of a record. Raises QueryError if it is none."""
    try:
        said = json.loads(text)
        _parsed(said)
        client().parse_schema(said)  # With all of its logical types.
    except QueryError:
        raise
    except (Unreadable, RecursionError) as error:
        why = "types are nested in each other hundreds deep" if isinstance(error, RecursionError) else error
        raise QueryError(f"{what}: messages of this schema of Avro cannot be read: {why}") from error
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


class Named(dict[str, Any]):
    """Types by their names. fastavro writes them down for each message whose schema does not fit, and again in those that hold them."""

    def __repr__(self) -> str:
        return f"{len(self)} types"


def _parsed(said: Any) -> tuple[Any, Shape]:
    """(A schema as fastavro has it, its shape.) Raises Unreadable, and whatever comes of what is no schema."""
    schema = client().parse_schema(_plain(said))
    shape = shape_of(schema)
    for each in _branches(schema):
        if isinstance(each, dict) and NAMED in each:
            each[NAMED] = Named(each[NAMED])
    return schema, shape


@dataclass(frozen=True, slots=True, eq=False)
class Writer:
    """What some messages were written with. schema: as fastavro has it. times: what the numbers of columns with times and dates are; None
    if they are of another kind than the column, such as days or local times, so that they mean no time of it. stream: what fastavro is
    given a message as.
    """

    schema: Any
    times: Mapping[str, pa.DataType | None]
    stream: Callable[[bytes], io.BytesIO] = io.BytesIO


class Ending(io.BytesIO):
    """A message of which nothing is read behind its end. There fastavro skips numbers, and what else has a fixed size, as many as the
    message says. To read from this takes two thirds more time, so it is for messages that may have such.
    """

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        if len(found) != size:
            raise EOFError(f"{size} bytes are read where {len(found)} are left")
        return found


class AvroDecoder:
    """record: the schema that rows have. registry: where the schema of each message is looked up; None: all were written with `record`."""

    def __init__(self, text: str, columns: pa.Schema, registry: Registry | None) -> None:
        self._columns, self._registry = columns, registry
        self._record = record_of(text, "messages of Avro")
        raw = {each["name"]: _raw_type(each["type"]) for each in self._record["fields"]}
        self._raw = {name: type_ for name, type_ in raw.items() if type_ is not None}
        self._own = Writer(_parsed(self._record)[0], self._raw)
        self._writers: dict[int, Writer | None] = {}
        self._refused: dict[int, str] = {}
        self._read: Callable[..., Any] = client().schemaless_reader

    def rows(self, values: Sequence[bytes | None]) -> pa.RecordBatch | None:
        """A row per message; None if one of them is none. Raises RegistryAway, SourceError."""
        registered = [self._writer(value) for value in values]
        try:
            found, own = [], self._own.schema
            for value, writer in zip(values, registered, strict=True):
                if value is None or writer is None:
                    return None
                message = writer.stream(value)
                if self._registry is not None:
                    message.seek(HEAD_BYTES)
                if writer is self._own:
                    found.append(self._read(message, own))
                else:
                    found.append(self._read(message, writer.schema, own))
                if message.tell() != len(value):
                    return None
            arrays = [self._column(column, [row[column.name] for row in found], registered) for column in self._columns]
        except Exception:  # fastavro raises whatever comes of bytes that are something else.
            return None
        return pa.RecordBatch.from_arrays(arrays, schema=self._columns)

    def why(self, value: bytes | None) -> str:
        """What is wrong with a message that is no row, if that is its schema."""
        number = None if value is None or self._registry is None else number_of(value)
        return "" if number is None else self._refused.get(number, "")

    def _column(self, column: pa.Field, values: list[Any], writers: Sequence[Writer | None]) -> pa.Array:
        """Raises TypeError if one of the values is a number of another kind."""
        if column.name not in self._raw:
            return pa.array(values, column.type)
        raws = {writer: writer.times[column.name] for writer in set(writers) if writer is not None}
        if None in raws.values():
            raise TypeError(f"{column.name} was written as another kind of time")
        if len(set(raws.values())) == 1:
            return pa.array(values, raws.popitem()[1]).cast(column.type)
        micros = {writer: MICROS[raw.unit] for writer, raw in raws.items() if raw is not None}
        return pa.array([None if v is None else v * micros[w] for v, w in zip(values, writers, strict=True) if w is not None], column.type)

    def _writer(self, value: bytes | None) -> Writer | None:
        """What a message was written with; None if it has no number, or that of a schema that is none. Raises RegistryAway, SourceError."""
        if self._registry is None:
            return self._own
        number = None if value is None else number_of(value)
        if number is None:
            return None
        if number not in self._writers:
            text = self._registry.schema(number)
            try:
                self._writers[number] = self._written_with(json.loads(text))
            except Exception as error:  # Of whatever is wrong with it.
                wrong = f"is none of Avro: {error!r:.200}; is the topic written with Avro? {text!r:.100}"
                if isinstance(error, Unreadable | RecursionError):
                    wrong = f"cannot be read: {error}"
                self._refused[number] = f"schema registry {self._registry.url}: the schema with the number {number} {wrong}"
                self._writers[number] = None
        return self._writers[number]

    def _written_with(self, said: Any) -> Writer:
        """Raises Unreadable, and whatever comes of what is no schema."""
        if said == self._record:
            return self._own
        schema, shape = _parsed(said)
        return Writer(schema, self._times(said), Ending if shape.counted else io.BytesIO)

    def _times(self, said: Any) -> dict[str, pa.DataType | None]:
        """What the numbers in a writer's fields are, for the columns that have times. A column that it lacks has its default."""
        fields = {each["name"]: each["type"] for each in said["fields"]} if isinstance(said, dict) and "fields" in said else {}
        times: dict[str, pa.DataType | None] = {}
        for each in self._record["fields"]:
            if (raw := self._raw.get(each["name"])) is not None:
                names = [name for name in (each["name"], *each.get("aliases", ())) if name in fields]
                times[each["name"]] = _written(fields[names[0]], raw) if names else raw
        return times


def _raw_type(said: Any) -> pa.DataType | None:
    """What the number of a time or a date at the top of a record is."""
    if isinstance(said, list):
        found = [raw for each in said if (raw := _raw_type(each)) is not None]
        return found[0] if found else None
    return LOGICAL[said["logicalType"]][0] if isinstance(said, dict) and said.get("logicalType") in LOGICAL else None


def _written(said: Any, raw: pa.DataType) -> pa.DataType | None:
    """What the number in a field of a writer is, for a column whose own numbers are `raw`: a plain number the same, else what the field
    says if it is of that kind. None: of another kind, or of several."""
    found = {_raw_type(each) if isinstance(each, dict) and "logicalType" in each else raw for each in _branches(said)}
    if len(found) != 1 or (written := found.pop()) is None:
        return None
    times = pa.types.is_timestamp(raw) and pa.types.is_timestamp(written) and written.tz == raw.tz
    return written if times or written == raw else None


def _branches(said: Any) -> list[Any]:
    return [each for each in said if each != "null"] if isinstance(said, list) else [said]


def _plain(said: Any, level: int = 0) -> Any:
    """The schema of a record without the logical types of times and dates at its top, and without those of UUIDs, which are texts here.
    Decimals have the reader of this module, and nothing that fastavro would take for its own is left.

    level: 0 of the record, 1 of its fields, 2 of what is inside of these.
    """
    if isinstance(said, list):
        return [_plain(each, level) for each in said]
    if not isinstance(said, dict):
        return said
    kind, logical = said.get("type"), said.get("logicalType")
    if isinstance(kind, str) and (logical == "uuid" or (logical in LOGICAL and level < 2)):
        return kind if kind != "fixed" else {name: each for name, each in said.items() if name != "logicalType"}
    made = {name: _plain(each, 2) if name in ("type", "items", "values") else each for name, each in said.items() if name not in MARKS}
    if logical == "decimal":
        made["logicalType"] = EXACT_DECIMAL
    if kind in ("record", "error"):
        made["fields"] = [{**each, "type": _plain(each["type"], level + 1)} for each in said["fields"]]
    return made


__all__ = ["AvroDecoder", "columns_of", "record_of"]
