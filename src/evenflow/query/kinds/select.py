"""Select: exactly these columns, each computed from the input row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.columns import WindowTime, is_user_code
from evenflow.query.faults import about
from evenflow.query.kinds.judging import check_distinct, check_printable, expression_field, known
from evenflow.query.kinds.kind import Origins, Outcome, RowKind, StreamType
from evenflow.query.kinds.wording import (
    select_details,
)


@dataclass(frozen=True, slots=True)
class Select(RowKind):
    """columns: (name, expression or function of batches) of each. event_time: the column that carries time on, if not the same."""

    name: ClassVar = "select"
    guarded: ClassVar = True

    columns: Sequence[tuple[str, Any]]
    event_time: str | None = None

    def may_run_ahead(self, time: str, given: Sequence[str]) -> bool:
        """Unless it is the column that it was, or in the window that had its end there."""
        made = dict(self.columns)[time]
        taken = made.column if isinstance(made, WindowTime) else made
        return not isinstance(taken, str) or taken not in given

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given, columns = inputs[0], self.columns
        with about("columns"):
            if not columns:
                raise QueryError(f"box {box!r} selects no columns; name at least one")
            check_distinct(box, [column for column, _ in columns], "rename one with 'expression as name'")
            schema = pa.schema([self._field(box, item, given.schema) for item in range(len(columns))])
            check_printable(box, schema)
        time = self.event_time
        with about("event_time"):
            if time is not None and not pa.types.is_timestamp(known(box, time, schema).type):
                raise TypeMismatch(f"box {box!r}: event time {time!r} is not a timestamp; name a column that is")
        if time is None and given.event_time is not None and (given.event_time, given.event_time) in tuple(columns):
            time = given.event_time
        return Outcome((schema,), time, None if time is None else given.watermark_delay_us)

    def _field(self, box: str, item: int, given: pa.Schema) -> pa.Field:
        column, made = self.columns[item]
        with about("columns", item):
            return expression_field(box, column, made, given)

    def step(self, schema: pa.Schema) -> tuple[Mapping[str, Any], bool]:
        columns = tuple(self.columns)
        return {"columns": columns}, any(is_user_code(made) for _, made in columns)

    def keys_behind(self, keys: tuple[str, ...] | None, schema: pa.Schema) -> tuple[str, ...] | None:
        return keys if keys is not None and all((key, key) in tuple(self.columns) for key in keys) else None

    def origin(self, column: str, inputs: Sequence[pa.Schema]) -> Origins:
        made = dict(self.columns).get(column)
        return ((0, made),) if isinstance(made, str) and made in inputs[0].names else ()

    def text(self) -> list[str]:
        return select_details(self.columns)
