"""Types as they are written: in a cast, and as the schema of a text of JSON or CSV. A timestamp has a zone here, as in Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from evenflow.errors import ExpressionError, QueryError
from evenflow.query.sql.collated import REFUSED
from evenflow.query.sql.types import BOOL, DATE, DOUBLE, INT, LONG, STRING, TIMESTAMP, TIMESTAMP_NTZ
from evenflow.stream.schema import VARIANT, map_of, parse_type, spark_type, struct_of

CAST_TYPES: Final[Mapping[str, pa.DataType]] = MappingProxyType({
    "BOOLEAN": BOOL, "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": INT, "BIGINT": LONG, "FLOAT": pa.float32(),
    "DOUBLE": DOUBLE, "TEXT": STRING, "VARCHAR": STRING, "CHAR": STRING, "BINARY": pa.binary(), "DATE": DATE,
    "TIMESTAMP": TIMESTAMP, "TIMESTAMPTZ": TIMESTAMP, "TIMESTAMPLTZ": TIMESTAMP, "TIMESTAMPNTZ": TIMESTAMP_NTZ,
    "VARIANT": VARIANT,
})  # fmt: skip


def type_of(tree: exp.DataType) -> pa.DataType:
    _check_collation(tree)
    kind = tree.this.value if hasattr(tree.this, "value") else str(tree.this)
    if kind == "DECIMAL":
        return parse_type(f"decimal({','.join(size.name for size in tree.expressions)})" if tree.expressions else "decimal")
    if tree.args.get("nested"):
        return _nested(kind, tree)
    if isinstance(tree.this, exp.Interval):
        return parse_type(tree.this.sql(dialect="spark"))
    if kind not in CAST_TYPES:
        raise ExpressionError(f"there is no cast to {tree.sql()}; the types are {', '.join(t.lower() for t in CAST_TYPES)}, decimal")
    return CAST_TYPES[kind]


def _check_collation(tree: exp.DataType) -> None:
    """ExpressionError for a string, or a field of it, that is compared by something else than its bytes."""
    named = [tree.args.get("collate"), *(each.this for part in tree.expressions for each in part.find_all(exp.CollateColumnConstraint))]
    if any(each is not None and each.name.upper() != "UTF8_BINARY" for each in named):
        raise ExpressionError(f"the type {tree.sql(dialect='spark')!r}: {REFUSED}")


def _nested(kind: str, tree: exp.DataType) -> pa.DataType:
    """A list, a map or a structure of types that are read as any type of a cast: a timestamp inside has a zone, as in Spark."""
    inside = [type_of(part.args["kind"] if isinstance(part, exp.ColumnDef) else part) for part in tree.expressions]
    if kind == "STRUCT":
        if not tree.expressions or not all(isinstance(part, exp.ColumnDef) for part in tree.expressions):
            raise QueryError(f"{tree.sql(dialect='spark')!r} has a field without a type")
        return struct_of(zip([part.name for part in tree.expressions], inside, strict=True), tree.sql(dialect="spark"))
    if len(inside) != (2 if kind == "MAP" else 1):
        return parse_type(tree.sql(dialect="spark"))  # It says what is wrong.
    return map_of(inside[0], inside[1], tree.sql(dialect="spark")) if kind == "MAP" else pa.list_(inside[0])


def type_of_text(text: str, what: str) -> pa.DataType:
    """A type, the columns of a structure (`a int, b string`), or Spark's JSON of a type. ExpressionError for anything else."""
    if text.lstrip().startswith(("{", '"')):
        try:
            return spark_type(what, json.loads(text), what)
        except (ValueError, KeyError, TypeError) as error:
            raise ExpressionError(f"{what}: {text!r} is no schema in JSON: {error}") from None
    for given in (text, f"STRUCT<{text}>"):
        try:
            tree: Any = exp.DataType.build(given, dialect="spark")
            return type_of(tree)
        except (SqlglotError, QueryError, AttributeError, ValueError):
            continue
    raise ExpressionError(f"{what}: cannot read the schema {text!r}; write `name type, name type` or a type such as array<int>")
