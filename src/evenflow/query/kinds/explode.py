"""Explode: a row per element of a list column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.query.aggregates import exploded_schema
from evenflow.query.kinds.judging import (
    check_distinct,
    check_printable,
    known,
)
from evenflow.query.kinds.kind import Outcome, RowKind, StreamType


@dataclass(frozen=True, slots=True)
class Explode(RowKind):
    """column: the list. into: the element's column. position: that of its place, or None. outer: an empty list gives a row too."""

    name: ClassVar = "explode"
    operator: ClassVar = "explode:Explode"

    column: str
    into: str
    position: str | None
    outer: bool

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given, column = inputs[0], self.column
        kind = known(box, column, given.schema).type
        if not pa.types.is_list(kind):
            raise TypeMismatch(f"box {box!r}: {column!r} is {kind}, not a list; explode a column such as collect_list or split gives")
        schema = exploded_schema(given.schema, column, self.into, self.position)
        check_distinct(box, schema.names, "call the element something else with into='...'")
        check_printable(box, schema)
        return Outcome((schema,), given.event_time, given.watermark_delay_us)

    def step(self, schema: pa.Schema) -> tuple[Mapping[str, Any], bool]:
        return {"column": self.column, "into": self.into, "position": self.position, "outer": self.outer}, False

    def text(self) -> list[str]:
        return [f"{self.column} into {self.into}", *(["empty lists too"] if self.outer else [])]
