"""Sort: rows in the order of event time, behind the watermark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evenflow.availability.guarantee import OperatorClass
from evenflow.errors import QueryError
from evenflow.query.faults import about
from evenflow.query.kinds.judging import check_keys, check_order
from evenflow.query.kinds.kind import KeyedKind, Outcome, StreamType
from evenflow.query.kinds.wording import (
    keys_text,
    order_details,
)


@dataclass(frozen=True, slots=True)
class Sort(KeyedKind):
    """It has no parameters of its own: the step that orders its input is all of it."""

    name: ClassVar = "sort"
    refuses_changes: ClassVar = "would part a row from the one that replaces it"

    @property
    def depends(self) -> OperatorClass:
        """It keeps what the watermark has not passed."""
        return OperatorClass.CONVERGENT

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given = inputs[0]
        check_keys(box, self.keys, given.schema, least=0)
        check_order(box, self.order, self.tie_break, given)
        with about("order"):
            if given.event_time is None or self.order != "event_time":
                raise QueryError(f"box {box!r}: sort needs event time; add .with_watermark('ts', '10 seconds') before, or use bsort(...)")
        return Outcome((given.schema, given.schema), given.event_time, given.watermark_delay_us)

    def text(self) -> list[str]:
        return [keys_text(self.keys), *order_details(self.order, self.tie_break)]
