"""Rows of a Spark DataFrame, batch or streaming: Spark's tasks push them into the ingress (protocol I2)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import pyarrow as pa

from evenflow.errors import SourceError, TypeMismatch
from evenflow.sources.source import Reader, Source

SPARK_TYPES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
DECIMAL: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")
SIZED_TEXT: Final = re.compile(r"(char|varchar)\(\d+\)")


def arrow_type(column: str, spark: Any) -> pa.DataType:
    """The Arrow type of a type in Spark's JSON schema. Raises TypeMismatch, naming the column."""
    if isinstance(spark, str):
        if spark in SPARK_TYPES:
            return SPARK_TYPES[spark]
        if match := DECIMAL.fullmatch(spark):
            return pa.decimal128(int(match[1]), int(match[2]))
        if SIZED_TEXT.fullmatch(spark):
            return pa.string()
    elif isinstance(spark, dict) and spark.get("type") == "array":
        return pa.list_(arrow_type(column, spark["elementType"]))
    shown = spark if isinstance(spark, str) else spark.get("type")
    raise TypeMismatch(
        f"Spark source: column {column!r} has type {shown}, which Evenflow's columns cannot have; "
        "cast it, take its fields out, or drop it in Spark before"
    )


def schema_of_dataframe(dataframe: Any) -> pa.Schema:
    """The DataFrame's schema in Arrow's types, read from `dataframe.schema.json()`. Raises TypeMismatch."""
    fields = json.loads(dataframe.schema.json())["fields"]
    names = [f["name"] for f in fields]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise TypeMismatch(f"Spark source: column {twice[0]!r} is there more than once; rename one of them in Spark before")
    return pa.schema([pa.field(f["name"], arrow_type(f["name"], f["type"]), f["nullable"]) for f in fields])


@dataclass(frozen=True)
class SparkSource(Source):
    """columns: the DataFrame's schema. endless: it is a streaming DataFrame. dataframe: lives in the driver only and is not
    sent or saved.
    """

    kind: ClassVar[str] = "spark"
    pushed: ClassVar[bool] = True
    columns: pa.Schema
    endless: bool
    dataframe: Any = field(default=None, compare=False, repr=False)

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    @property
    def streaming(self) -> bool:
        return self.endless

    def partitions(self, sites: int) -> int:
        """A batch DataFrame enters at every site. A streaming one enters at one: its watermark is that of a whole micro-batch, as in
        Spark, and a site that gets no rows of a batch must not hold it back."""
        return 1 if self.streaming else sites

    def open(self, partition: int, of: int) -> Reader:
        raise SourceError("a Spark source has no reader: Spark's tasks push its rows into the ingress")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "dataframe": None}

    def to_json(self) -> dict[str, Any]:
        return SparkSource(self.columns, self.endless)._plain_json()

    def _plain_json(self) -> dict[str, Any]:
        return super().to_json()
