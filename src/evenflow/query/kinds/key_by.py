"""Key: by which columns the next box keeps its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evenflow.query.kinds.judging import (
    check_keys,
)
from evenflow.query.kinds.kind import BoxKind, Outcome, StreamType


@dataclass(frozen=True, slots=True)
class KeyBy(BoxKind):
    """columns: the key. It runs nothing: the box behind it asks for the exchange."""

    name: ClassVar = "key_by"

    columns: Sequence[str]

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given = inputs[0]
        check_keys(box, self.columns, given.schema, least=1, parameter="columns")
        return Outcome((given.schema,), given.event_time, given.watermark_delay_us)

    def text(self) -> list[str]:
        return [f"by {', '.join(self.columns)}"]
