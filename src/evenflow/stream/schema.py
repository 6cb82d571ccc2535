"""Schemas written as Spark DDL: `app string, src string, dur double, ts timestamp`.

Spark's type names and no Spark. `timestamp` and `timestamp_ntz` are both int64 microseconds without a zone here; `timestamp_ltz`
is the same number labelled UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import OptionError, QueryError, TypeMismatch
from evenflow.stream.collations import check_collations

VARIANT: Final = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])
"""A value of any type, in Spark's bytes. No structure that a user declares is of this type, since its fields are never null."""
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
    "interval day to second": pa.duration("us"),
    "variant": VARIANT,
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
    "timestamp_ntz": pa.timestamp("us"), "variant": VARIANT,
}  # fmt: skip
"""By the names that types have in Spark's JSON schemas."""
_SPAN: Final = re.compile(r"interval\s+(?:day|hour|minute|second)(?:\s+to\s+(?:hour|minute|second))?")
"""Of intervals of days to seconds Spark has a type for each pair of units; they differ in how they are shown."""
_SPARK_DECIMAL: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")
_SIZED_TEXT: Final = re.compile(r"(char|varchar)\(\d+\)")
_NAMES: Final[dict[pa.DataType, str]] = {type_: name for name, type_ in _SIMPLE.items()}
_COLUMN: Final = re.compile(r"^\s*(?:`((?:[^`]|``)+)`|(\w+))\s*:?\s*(.*?)(\s+not\s+null)?\s*$", re.IGNORECASE | re.DOTALL)
_DECIMAL: Final = re.compile(r"^(?:decimal|dec|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?$")
_NESTED: Final = re.compile(r"^(array|map|struct)\s*<(.*)>$", re.DOTALL | re.IGNORECASE)


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
    """The Arrow type of a Spark type name, such as `bigint` or `map<string, struct<a: int>>`. Raises QueryError if unknown.

    What is inside a type may always be null: `not null` in it is read and says nothing.
    """
    if found := _NESTED.match(text.strip()):
        return _nested(found[1].lower(), found[2], text.strip())
    word = text.strip().lower()
    word = _SYNONYMS.get(word, word)
    if word in _SIMPLE:
        return _SIMPLE[word]
    if found := _DECIMAL.match(word):
        precision, scale = int(found[1] or 10), int(found[2] or 0)
        if not 1 <= precision <= 38 or scale > precision:
            raise QueryError(f"{text.strip()} is not a decimal type: 1 <= precision <= 38 and scale <= precision")
        return pa.decimal128(precision, scale)
    if _SPAN.fullmatch(word):
        return pa.duration("us")
    known = ", ".join([*_SIMPLE, "decimal(p,s)", "array<type>", "map<type, type>", "struct<name: type>"])
    raise QueryError(f"unknown type {text.strip()!r}: use one of {known}")


def _nested(word: str, inside: str, text: str) -> pa.DataType:
    """The type of a list, a map or a structure. inside: what is between its angle brackets."""
    if word == "struct":
        return struct_of([(field.name, field.type) for field in parse_ddl(inside)], text)
    parts = [parse_type(part) for part in _split(inside)]
    if len(parts) != (1 if word == "array" else 2):
        raise QueryError(f"cannot read {text!r}: write array<type>, map<key type, value type> or struct<name: type, ...>")
    return pa.list_(parts[0]) if word == "array" else map_of(parts[0], parts[1], text)


def struct_of(fields: Iterable[tuple[str, pa.DataType]], text: str) -> pa.DataType:
    """A structure of these fields. Raises QueryError for a name that is there twice, whatever the case of its letters."""
    fields = list(fields)
    names = [name.lower() for name, _ in fields]
    for name, _ in fields:
        if names.count(name.lower()) > 1:
            raise QueryError(f"{text[:200]}: the field {name!r} is there more than once; rename one of them")
    return pa.struct([pa.field(name, type_) for name, type_ in fields])


def map_of(key: pa.DataType, item: pa.DataType, text: str) -> pa.DataType:
    """A map. Raises QueryError where its keys could not be told apart, as Spark does."""
    if has_map(key):
        raise QueryError(f"{text[:200]}: the key of a map cannot be, or have in it, a map")
    return pa.map_(key, item)


def is_number(type_: pa.DataType) -> bool:
    """Whether values of a type are added up: whole numbers, floating point and decimals."""
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def has_map(type_: pa.DataType) -> bool:
    """Whether a type is a map or a variant, or has one in it, so that its values are neither compared nor keys, as in Spark."""
    if pa.types.is_map(type_) or type_ == VARIANT:
        return True
    return any(has_map(type_.field(at).type) for at in range(type_.num_fields)) if pa.types.is_nested(type_) else False


def holds_fields(type_: pa.DataType) -> bool:
    """Whether a type is a map or a structure, or a list with such in it."""
    if pa.types.is_list(type_):
        return holds_fields(type_.value_type)
    return bool(pa.types.is_nested(type_))


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
    check_collations(described, what)
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
        if _SPAN.fullmatch(spark):
            return pa.duration("us")
    elif isinstance(spark, dict):
        if spark.get("type") == "array":
            return pa.list_(spark_type(column, spark["elementType"], what))
        if spark.get("type") == "map":
            return pa.map_(spark_type(column, spark["keyType"], what), spark_type(column, spark["valueType"], what))
        if spark.get("type") == "struct" and spark["fields"]:  # Files have no columns without anything in them.
            return pa.struct([pa.field(f["name"], spark_type(f"{column}.{f['name']}", f["type"], what)) for f in spark["fields"]])
    shown = spark if isinstance(spark, str) else spark.get("type")
    raise TypeMismatch(
        f"{what}: column {column!r} has type {shown}, which Evenflow's columns cannot have; cast it or drop it in Spark before"
    )


def ddl_of(schema: pa.Schema) -> str:
    """The DDL text that `parse_ddl` reads back as `schema`. Raises QueryError for a type that Evenflow does not have."""
    return ", ".join(f"{_word(f.name)} {type_name(f.type)}{'' if f.nullable else ' not null'}" for f in schema)


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
    if pa.types.is_map(type_):
        return f"map<{type_name(type_.key_type)}, {type_name(type_.item_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(f'{_word(field.name)}: {type_name(field.type)}' for field in type_)}>"
    raise QueryError(f"Evenflow has no columns of the type {type_}: cast it to one of {', '.join(_SIMPLE)}, decimal, array, map or struct")


def _word(name: str) -> str:
    """A name as DDL takes it: in backticks where it is no plain word."""
    return name if re.fullmatch(r"\w+", name) else quoted(name)


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
