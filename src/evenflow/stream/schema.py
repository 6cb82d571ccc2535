"""Schemas written as Spark DDL: `app string, src string, dur double, ts timestamp`.

Spark's type names and no Spark. `timestamp` and `timestamp_ntz` are both int64 microseconds without a zone here; `timestamp_ltz`
is the same number labelled UTC.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import OptionError, QueryError, TypeMismatch

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
}
_SYNONYMS: Final[dict[str, str]] = {
    "bool": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ntz": "timestamp",
}
_SPARK_TYPES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
"""By the names that types have in Spark's JSON schemas."""
_SPARK_DECIMAL: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")
_SIZED_TEXT: Final = re.compile(r"(char|varchar)\(\d+\)")
_NAMES: Final[dict[pa.DataType, str]] = {type_: name for name, type_ in _SIMPLE.items()}
_COLUMN: Final = re.compile(r"^\s*(?:`((?:[^`]|``)+)`|(\w+))\s*:?\s*(.*?)(\s+not\s+null)?\s*$", re.IGNORECASE | re.DOTALL)
_DECIMAL: Final = re.compile(r"^(?:decimal|dec|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?$")
_ARRAY: Final = re.compile(r"^array\s*<(.*)>$", re.DOTALL)


def parse_ddl(text: str) -> pa.Schema:
    """The schema that `text` declares, as `name type [not null], ...` with Spark's type names.

    A name that is not a plain word is written in backticks. Raises QueryError for anything else, and for a name used twice.
    """
    fields: list[pa.Field] = []
    for part in _split(text):
        found = _COLUMN.match(part)
        if found is None or not found[3]:
            raise QueryError(f"cannot read {part.strip()!r} in the schema {text!r}: write `name type`, such as `dur double`")
        name = found[1].replace("``", "`") if found[1] is not None else found[2]
        fields.append(pa.field(name, parse_type(found[3]), nullable=found[4] is None))
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise QueryError(f"the schema {text!r} declares the column {name!r} more than once")
    return pa.schema(fields)


def parse_type(text: str) -> pa.DataType:
    """The Arrow type of a Spark type name, such as `bigint`, `decimal(10,2)` or `array<string>`. Raises QueryError if unknown."""
    word = text.strip().lower()
    word = _SYNONYMS.get(word, word)
    if word in _SIMPLE:
        return _SIMPLE[word]
    if found := _DECIMAL.match(word):
        precision, scale = int(found[1] or 10), int(found[2] or 0)
        if not 1 <= precision <= 38 or scale > precision:
            raise QueryError(f"{text.strip()} is not a decimal type: 1 <= precision <= 38 and scale <= precision")
        return pa.decimal128(precision, scale)
    if found := _ARRAY.match(word):
        return pa.list_(parse_type(found[1]))
    known = ", ".join([*_SIMPLE, "decimal(p,s)", "array<type>"])
    raise QueryError(f"unknown type {text.strip()!r}: use one of {known}")


def as_schema(given: Any) -> pa.Schema:
    """The columns that a user gives as PySpark takes them, DDL or a StructType, or as a schema of pyarrow.

    Raises QueryError for DDL that cannot be read, TypeMismatch, naming the column, for a type that columns cannot have, and OptionError
    for anything else.
    """
    if isinstance(given, pa.Schema):
        return given
    if isinstance(given, str):
        found = parse_ddl(given)
        if not found.names:
            raise OptionError("the schema is an empty text; write columns and their types, such as 'id bigint, name string'")
        return found
    if (described := getattr(given, "jsonValue", None)) is not None and callable(getattr(given, "fieldNames", None)):
        return schema_of_spark(described(), "the schema")
    raise OptionError(
        f"a schema is DDL such as 'id bigint, name string', a StructType or a pyarrow schema, not {type(given).__name__} {given!r:.60}"
    )


def schema_of_spark(described: Any, what: str) -> pa.Schema:
    """Spark's JSON form of a StructType in Arrow's types. what: whose it is. Raises TypeMismatch, naming the column."""
    fields = described["fields"]
    names = [field["name"] for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TypeMismatch(f"{what}: column {twice[0]!r} is there more than once; rename one of them before")
    return pa.schema([pa.field(f["name"], spark_type(f["name"], f["type"], what), f["nullable"]) for f in fields])


def spark_type(column: str, spark: Any, what: str) -> pa.DataType:
    """The Arrow type of a type in Spark's JSON schema. Raises TypeMismatch, naming the column."""
    if isinstance(spark, str):
        if spark in _SPARK_TYPES:
            return _SPARK_TYPES[spark]
        if match := _SPARK_DECIMAL.fullmatch(spark):
            return pa.decimal128(int(match[1]), int(match[2]))
        if _SIZED_TEXT.fullmatch(spark):
            return pa.string()
    elif isinstance(spark, dict) and spark.get("type") == "array":
        return pa.list_(spark_type(column, spark["elementType"], what))
    shown = spark if isinstance(spark, str) else spark.get("type")
    raise TypeMismatch(
        f"{what}: column {column!r} has type {shown}, which Evenflow's columns cannot have; "
        "cast it, take its fields out, or drop it in Spark before"
    )


def ddl_of(schema: pa.Schema) -> str:
    """The DDL text that `parse_ddl` reads back as `schema`. Raises QueryError for a type that Evenflow does not have."""
    names = (f.name if re.fullmatch(r"\w+", f.name) else quoted(f.name) for f in schema)
    return ", ".join(f"{name} {type_name(f.type)}{'' if f.nullable else ' not null'}" for name, f in zip(names, schema, strict=True))


def dead_letter_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of rows on which a box raised: those of its input, and `error`, or `_error` where that is taken, and so on."""
    name = "error"
    while name in schema.names:
        name = f"_{name}"
    return pa.schema([*schema, pa.field(name, pa.string())])


def type_name(type_: pa.DataType) -> str:
    """Spark's name of an Arrow type. Raises QueryError for a type that Evenflow does not have."""
    if type_ in _NAMES:
        return _NAMES[type_]
    if pa.types.is_decimal128(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_list(type_):
        return f"array<{type_name(type_.value_type)}>"
    raise QueryError(f"Evenflow has no columns of the type {type_}: cast it to one of {', '.join(_SIMPLE)}, decimal or array")


def quoted(name: str) -> str:
    """A column's name as Spark SQL takes any."""
    return f"`{name.replace('`', '``')}`"


def _split(text: str) -> list[str]:
    """Split at commas that are inside no bracket and no backticks."""
    parts, depth, quoted, start = [], 0, False, 0
    for i, c in enumerate(text):
        if c == "`":
            quoted = not quoted
        elif not quoted and c in "(<":
            depth += 1
        elif not quoted and c in ")>":
            depth -= 1
        elif c == "," and depth == 0 and not quoted:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [] if parts == [""] or text.isspace() else parts
