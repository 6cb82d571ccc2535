"""Rows of a Spark DataFrame, batch or streaming: Spark's tasks push them into the ingress (protocol I2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import OptionError, SourceError
from evenflow.sources.source import Reader, Source
from evenflow.stream.declared import Declared, May, anything
from evenflow.stream.schema import schema_of_spark


def schema_of_dataframe(dataframe: Any) -> pa.Schema:
    """The DataFrame's schema in Arrow's types, read from `dataframe.schema.json()`. Raises TypeMismatch, and OptionError if it is none."""
    if not hasattr(dataframe, "isStreaming") or not hasattr(getattr(dataframe, "schema", None), "json"):
        raise OptionError(
            f"a Spark source is made of a Spark DataFrame, not of {type(dataframe).__name__} {dataframe!r:.60}; "
            "give evenflow.sources.memory rows that are here already"
        )
    return schema_of_spark(json.loads(dataframe.schema.json()), "Spark source")


@dataclass(frozen=True)
class SparkSource(Declared, Source):
    """columns: the DataFrame's schema. endless: it is a streaming DataFrame. dataframe: lives in the driver only and is not
    sent or saved.
    """

    kind: ClassVar[str] = "spark"
    pushed: ClassVar[bool] = True
    uncut: ClassVar[str] = "Spark's tasks push its rows, so replicas cannot read them for themselves"
    columns: pa.Schema
    endless: bool
    dataframe: Any = field(default=None, compare=False, repr=False)
    MAY: ClassVar[Mapping[str, May]] = {"dataframe": anything()}
    option_owner: ClassVar[str] = "spark source"

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
        return Source.to_json(SparkSource(self.columns, self.endless))
