"""Unpivot: a row per column of some, with its name and its value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.aggregates import unpivoted_schema
from evenflow.query.faults import about
from evenflow.query.kinds.judging import check_distinct, check_printable, known
from evenflow.query.kinds.kind import Origins, Outcome, RowKind, StreamType
from evenflow.stream.schema import type_name


@dataclass(frozen=True, slots=True)
class Unpivot(RowKind):
    """ids: columns that every row keeps. values: those that become rows. variable, value: the columns with their names and values."""

    name: ClassVar = "unpivot"
    operator: ClassVar = "unpivot:Unpivot"

    ids: Sequence[str]
    values: Sequence[str]
    variable: str
    value: str

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given = inputs[0]
        with about("ids"):
            for column in self.ids:
                known(box, column, given.schema)
        with about("values"):
            fields = [known(box, column, given.schema) for column in self.values]
            if not fields:
                raise QueryError(f"box {box!r} makes rows of no column; name at least one in values=[...]")
            other = next((field for field in fields if field.type != fields[0].type), None)
            if other is not None:
                raise TypeMismatch(
                    f"box {box!r}: {fields[0].name!r} is {type_name(fields[0].type)} and {other.name!r} is {type_name(other.type)}, but "
                    "values share a column; cast them to one type in a select before"
                )
        schema = unpivoted_schema(given.schema, self.ids, self.values, self.variable, self.value)
        with about("variable"):
            check_distinct(box, schema.names, "name each column of ids once, and give variable= and value= other names")
            check_printable(box, schema)
        kept = given.event_time is not None and given.event_time in self.ids
        return Outcome((schema,), given.event_time if kept else None, given.watermark_delay_us if kept else None)

    def step(self, schema: pa.Schema) -> tuple[Mapping[str, Any], bool]:
        return {"ids": tuple(self.ids), "values": tuple(self.values), "variable": self.variable, "value": self.value}, False

    def keys_behind(self, keys: tuple[str, ...] | None, schema: pa.Schema) -> tuple[str, ...] | None:
        return keys if keys is not None and set(keys) <= set(self.ids) else None

    def origin(self, column: str, inputs: Sequence[pa.Schema]) -> Origins:
        return ((0, column),) if column in self.ids else ()

    def text(self) -> list[str]:
        return [f"{', '.join(self.values)} as {self.variable}, {self.value}"]
