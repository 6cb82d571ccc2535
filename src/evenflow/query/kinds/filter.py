"""Filter: the rows for which a condition is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.query.columns import is_user_code
from evenflow.query.faults import about
from evenflow.query.kinds.judging import expression_field
from evenflow.query.kinds.kind import Outcome, RowKind, StreamType
from evenflow.query.kinds.wording import (
    shown,
)


@dataclass(frozen=True, slots=True)
class Filter(RowKind):
    """condition: an expression, or a function of batches."""

    name: ClassVar = "filter"
    guarded: ClassVar = True

    condition: Any

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given, condition = inputs[0], self.condition
        with about("condition"):
            type_ = expression_field(box, "condition", condition, given.schema).type
            if not (pa.types.is_boolean(type_) or pa.types.is_null(type_)):
                raise TypeMismatch(
                    f"box {box!r}: the condition {_shown(condition)} is {type_}, not boolean; write a comparison such as x > 0"
                )
        return Outcome((given.schema,), given.event_time, given.watermark_delay_us)

    def step(self, schema: pa.Schema) -> tuple[Mapping[str, Any], bool]:
        return {"condition": self.condition}, is_user_code(self.condition)

    def text(self) -> list[str]:
        return [shown(self.condition)]


def _shown(expression: Any) -> str:
    return repr(expression) if isinstance(expression, str) else getattr(expression, "__name__", repr(expression))
