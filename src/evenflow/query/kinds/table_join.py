"""Join with a table: rows of a stream, and those of a table with the same key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.duration import duration_text
from evenflow.query.faults import about
from evenflow.query.join import Join, out_columns
from evenflow.query.kinds.join import joined_schema
from evenflow.query.kinds.judging import naming
from evenflow.query.kinds.kind import JOINING, Origins, Outcome, RowKind, StreamType
from evenflow.query.kinds.wording import (
    join_details,
)
from evenflow.query.tables import RefreshedTable

TABLE_BYTES: Final = 2**28
"""A table that is joined is sent to every site, and must not be larger."""


@dataclass(frozen=True, slots=True)
class TableJoin(RowKind):
    """join: what it compares, and what comes out. table: of Arrow, or one that is read again while the dataflow runs."""

    name: ClassVar = "table_join"
    colours: ClassVar = JOINING

    join: Join
    table: pa.Table | RefreshedTable

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        """Of a join of a stream with a table. Raises QueryError, UnknownColumn or TypeMismatch, naming the box."""
        join, table = self.join, self.table
        (given,) = inputs
        with about("join"):
            if join.keeps_right:
                raise QueryError(
                    f"box {box!r}: a {join.how} join would put out rows of the table that no row of the stream has matched, but the stream "
                    "may bring one for ever; use how='inner', 'left', 'semi' or 'anti'"
                )
        with about("table"):
            if isinstance(table, pa.Table) and table.nbytes > TABLE_BYTES:
                raise QueryError(
                    f"box {box!r}: the table has {table.nbytes:,} bytes and is sent to every site; leave out columns and rows until it has "
                    f"{TABLE_BYTES:,}, or join with it as a stream"
                )
        with about("join"), naming(box):
            schema = joined_schema(box, join, given.schema, table.schema)
        time = given.event_time
        return Outcome((schema,), time, None if time is None else given.watermark_delay_us)

    def step(self, schema: pa.Schema) -> tuple[Mapping[str, Any], bool]:
        if isinstance(self.table, RefreshedTable):
            return {"join": self.join, "table": self.table.content, "refreshed": self.table.name}, False
        return {"join": self.join, "table": self.table}, False

    def keys_behind(self, keys: tuple[str, ...] | None, schema: pa.Schema) -> tuple[str, ...] | None:
        kept = {column.left for column in out_columns(self.join, schema, self.table.schema)}
        return keys if keys is not None and kept >= set(keys) else None

    def origin(self, column: str, inputs: Sequence[pa.Schema]) -> Origins:
        taken = next((each for each in out_columns(self.join, inputs[0], self.table.schema) if each.field.name == column), None)
        return ((0, taken.left),) if taken is not None and taken.left is not None else ()

    def text(self) -> list[str]:
        if isinstance(self.table, RefreshedTable):
            often = "on demand" if self.table.every_us is None else f"every {duration_text(self.table.every_us)}"
            return join_details(self.join, [f"table {self.table.name}, refreshed {often}"])
        return join_details(self.join, [f"table of {self.table.num_rows:,} rows"])
