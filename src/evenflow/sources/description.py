"""How the description of a source or a sink becomes JSON and comes back.

A description is a frozen dataclass of plain values, schemas and record batches. JSON keeps `kind` and the fields; an object that
only lives in this process (a DataFrame, a function) has no JSON form, and says so.
"""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.stream.ipc import batch_from_bytes, batch_to_bytes

PLAIN_TYPES: Final[Mapping[str, pa.DataType]] = {
    str(t): t
    for t in (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.date32(), pa.timestamp("us"),
        pa.timestamp("us", "UTC"), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("ns"), pa.duration("us"),
    )
}  # fmt: skip
LATER: Final = {"later": True}
"""Metadata of a field that came after programs had been written down: it is left out of what is compared while it says nothing."""
DECIMAL: Final = re.compile(r"decimal128\((\d+), (-?\d+)\)")
LIST: Final = re.compile(r"list<\w+: (.*)>")


def type_from_text(text: str) -> pa.DataType:
    """The Arrow type that `str(type)` printed as `text`. Raises QueryError for a type that Evenflow's columns cannot have."""
    if text in PLAIN_TYPES:
        return PLAIN_TYPES[text]
    if match := DECIMAL.fullmatch(text):
        return pa.decimal128(int(match[1]), int(match[2]))
    if match := LIST.fullmatch(text):
        return pa.list_(type_from_text(match[1]))
    raise QueryError(
        f"type {text!r} is not one that a column can have; known are {', '.join(PLAIN_TYPES)}, decimal128(p, s), list<item: t>"
    )


def type_to_json(type_: pa.DataType) -> Any:
    """A type as text, one with structures or maps in it as an object, since a field may have any name."""
    if pa.types.is_struct(type_):
        return {"struct": [[field.name, type_to_json(field.type)] for field in type_]}
    if pa.types.is_map(type_):
        return {"map": [type_to_json(type_.key_type), type_to_json(type_.item_type)]}
    if pa.types.is_list(type_) and not isinstance(inside := type_to_json(type_.value_type), str):
        return {"list": inside}
    return str(type_)


def type_from_json(data: Any) -> pa.DataType:
    """Inverse of `type_to_json`. Raises QueryError for what it has not written."""
    match data:
        case {"struct": [*fields]}:
            return pa.struct([pa.field(name, type_from_json(inside)) for name, inside in fields])
        case {"map": [key, item]}:
            return pa.map_(type_from_json(key), type_from_json(item))
        case {"list": inside}:
            return pa.list_(type_from_json(inside))
    return type_from_text(str(data))


def schema_to_json(schema: pa.Schema) -> list[dict[str, Any]]:
    """One object per column: name, type, nullable."""
    return [{"name": f.name, "type": type_to_json(f.type), "nullable": f.nullable} for f in schema]


def schema_from_json(columns: list[dict[str, Any]]) -> pa.Schema:
    """Inverse of `schema_to_json`. Raises QueryError for an unknown type."""
    return pa.schema([pa.field(c["name"], type_from_json(c["type"]), c.get("nullable", True)) for c in columns])


def value_to_json(value: Any) -> Any:
    """A field's value as JSON: schemas and batches are tagged objects, tuples become lists."""
    if isinstance(value, pa.Schema):
        return {"$schema": schema_to_json(value)}
    if isinstance(value, pa.RecordBatch):
        return {"$batch": base64.b64encode(batch_to_bytes(value)).decode()}
    if isinstance(value, tuple):
        return [value_to_json(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise QueryError(f"a {type(value).__name__} cannot be saved as JSON; build that part of the dataflow in Python after loading it")


def value_from_json(value: Any) -> Any:
    """Inverse of `value_to_json`."""
    if isinstance(value, list):
        return tuple(value_from_json(v) for v in value)
    if isinstance(value, dict):
        if "$schema" in value:
            return schema_from_json(value["$schema"])
        return batch_from_bytes(base64.b64decode(value["$batch"]))
    return value


def description_to_json(kind: str, description: Any) -> dict[str, Any]:
    """`kind` and every field of a description (a dataclass instance)."""
    fields = {f.name: value_to_json(getattr(description, f.name)) for f in dataclasses.fields(description)}
    return {"kind": kind, **fields}


def description_from_json(kinds: Mapping[str, type[Any]], data: Mapping[str, Any], what: str) -> Any:
    """The description that `description_to_json` wrote. kinds: class per kind. what: "source" or "sink", for the message."""
    kind = str(data.get("kind"))
    if kind not in kinds:
        raise QueryError(f"{what} of unknown kind {kind!r}; known are {', '.join(sorted(kinds))}")
    fields = {name: value_from_json(value) for name, value in data.items() if name != "kind"}
    try:
        return kinds[kind](**fields)
    except TypeError as error:
        raise QueryError(f"the saved {kind} {what} does not fit this version: {error}") from error
