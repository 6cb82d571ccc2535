"""Case: each row goes to the output of the first condition that is true for it, or to the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.columns import is_user_code
from evenflow.query.faults import about
from evenflow.query.kinds.judging import expression_field
from evenflow.query.kinds.kind import Outcome, RowKind, StreamType
from evenflow.query.kinds.wording import (
    shown,
)


@dataclass(frozen=True, slots=True)
class Case(RowKind):
    """conditions: expressions or functions of batches, one for each output but the last."""

    name: ClassVar = "case"
    guarded: ClassVar = True

    conditions: Sequence[Any]

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given, conditions = inputs[0], self.conditions
        if not conditions:
            raise QueryError(f"box {box!r} has no condition; write .case('x > 1', 'x < 0')").about("conditions")
        for item, condition in enumerate(conditions):
            with about("conditions", item):
                kind = expression_field(box, "condition", condition, given.schema).type
                if not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
                    raise TypeMismatch(f"box {box!r}: the condition {condition!r} is {kind}, not boolean; write a comparison such as x > 0")
        return Outcome((given.schema,) * (len(conditions) + 1), given.event_time, given.watermark_delay_us)

    def ports(self) -> int:
        return len(self.conditions) + 1

    def step(self, schema: pa.Schema) -> tuple[Mapping[str, Any], bool]:
        return {"conditions": self.conditions}, any(is_user_code(condition) for condition in self.conditions)

    def text(self) -> list[str]:
        return [shown(condition) for condition in self.conditions]
