"""Explode: a row per element of a list or a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.aggregates import exploded_schema
from evenflow.query.faults import about
from evenflow.query.kinds.judging import check_distinct, check_printable, known
from evenflow.query.kinds.kind import Origins, Outcome, RowKind, StreamType


@dataclass(frozen=True, slots=True)
class Explode(RowKind):
    """column: the list or map. into: the element's column; several: of a map's key and value, or of the fields of structures. position:
    that of its place, or None. outer: an empty list gives a row too."""

    name: ClassVar = "explode"
    operator: ClassVar = "explode:Explode"

    column: str
    into: str | Sequence[str]
    position: str | None
    outer: bool

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given, column = inputs[0], self.column
        with about("column"):
            kind = known(box, column, given.schema).type
            if not (pa.types.is_list(kind) or pa.types.is_map(kind)):
                raise TypeMismatch(
                    f"box {box!r}: {column!r} is {kind}, not a list and not a map; explode a column such as collect_list or split gives"
                )
        with about("into"):
            self._check_names(box, kind)
            schema = exploded_schema(given.schema, column, self.into, self.position)
            check_distinct(box, schema.names, "call the element something else with into='...'")
            check_printable(box, schema)
        return Outcome((schema,), given.event_time, given.watermark_delay_us)

    def _check_names(self, box: str, kind: pa.DataType) -> None:
        """Whether an element has as many parts as there are names for them."""
        if pa.types.is_map(kind):
            parts, what = 2, "a map, whose key and value"
        elif not isinstance(self.into, str) and pa.types.is_struct(kind.value_type):
            parts, what = kind.value_type.num_fields, "a list of structures, whose fields"
        else:
            parts, what = None, "a list, whose elements"
        given = None if isinstance(self.into, str) else len(self.into)
        if given != parts:
            wanted = "one name, as text" if parts is None else f"{parts} names"
            raise QueryError(f"box {box!r}: {self.column!r} is {what} become columns: give {wanted} in into=, not {self.into!r}")

    def step(self, schema: pa.Schema) -> tuple[Mapping[str, Any], bool]:
        into = self.into if isinstance(self.into, str) else tuple(self.into)
        return {"column": self.column, "into": into, "position": self.position, "outer": self.outer}, False

    def origin(self, column: str, inputs: Sequence[pa.Schema]) -> Origins:
        made = {self.position, *((self.into,) if isinstance(self.into, str) else self.into)}
        return ((0, column),) if column in inputs[0].names and column not in made else ()

    def text(self) -> list[str]:
        into = self.into if isinstance(self.into, str) else ", ".join(self.into)
        return [f"{self.column} into {into}", *(["empty lists too"] if self.outer else [])]
