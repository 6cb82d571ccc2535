"""Join: pairs of rows of two streams with equal keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from evenflow.availability.guarantee import OperatorClass
from evenflow.errors import QueryError
from evenflow.query.faults import about
from evenflow.query.join import Join as Joined
from evenflow.query.join import check_bounds, compile_condition, joined_time, out_columns
from evenflow.query.join import check_keys as check_join_keys
from evenflow.query.kinds.judging import check_key_type, known, naming
from evenflow.query.kinds.kind import JOINING, BoxKind, Need, Origins, Outcome, StreamType, of_keys
from evenflow.query.kinds.wording import (
    join_details,
)


@dataclass(frozen=True, slots=True)
class Join(BoxKind):
    """join: what it compares, and what comes out. Its two inputs are the left and the right."""

    name: ClassVar = "join"
    inputs: ClassVar = (2, 2)
    stateful: ClassVar = True
    refuses_changes: ClassVar = "would pair a row again that is taken back"
    colours: ClassVar = JOINING

    join: Joined

    @property
    def depends(self) -> OperatorClass:
        """A pair depends on rows within its bounds. That a row has had no partner depends on all that it has met."""
        bounded = self.join.low_us is not None and self.join.high_us is not None
        return OperatorClass.CONVERGENT if bounded and self.join.how == "inner" else OperatorClass.DETERMINISTIC

    @property
    def reach_us(self) -> int | None:
        low_us, high_us = self.join.low_us, self.join.high_us
        if low_us is None or high_us is None or self.depends is not OperatorClass.CONVERGENT:
            return None
        return max(abs(low_us), abs(high_us))

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        """Of a join of two streams. Raises QueryError, UnknownColumn or TypeMismatch, naming the box."""
        join = self.join
        left, right = inputs
        with about("join"), naming(box):
            schema = joined_schema(box, join, left.schema, right.schema)
            check_bounds(join, left.event_time, right.event_time)
            time = joined_time(join, out_columns(join, left.schema, right.schema), left.event_time, right.event_time)
        schemas = (schema, left.schema, right.schema)
        if time is None:
            return Outcome(schemas)
        column, lag_us = time
        return Outcome(schemas, column, max(left.watermark_delay_us or 0, right.watermark_delay_us or 0) + lag_us)

    def ports(self) -> int:
        return 2

    def origin(self, column: str, inputs: Sequence[pa.Schema]) -> Origins:
        taken = next((each for each in out_columns(self.join, *inputs) if each.field.name == column), None)
        sides = () if taken is None else (taken.left, taken.right)
        return tuple((number, of) for number, of in enumerate(sides) if of is not None)

    def needs(self, number: int) -> Need | None:
        if self.join.unbounded:
            return Need("none", (), "a join that keeps rows for ever")
        return of_keys(self.join.right_keys if number else self.join.left_keys, "a join")

    def text(self) -> list[str]:
        return join_details(self.join)


def joined_schema(name: str, join: Joined, left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """The columns that come out, if the join is possible."""
    if not join.left_keys or len(join.left_keys) != len(join.right_keys):
        raise QueryError(f"box {name!r} joins by no key; name columns that must be equal: on=['id'], or 'l.id = r.id' in the condition")
    for schema, keys in ((left, join.left_keys), (right, join.right_keys)):
        for key in keys:
            check_key_type(name, key, known(name, key, schema).type)
    check_join_keys(join, left, right)
    if join.condition is not None:
        compile_condition(join.condition, left, right)
    return pa.schema([column.field for column in out_columns(join, left, right)])
