"""Repartition: rows are dealt out to partitions of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evenflow.errors import QueryError
from evenflow.plan.layout import KEY_GROUPS
from evenflow.query.kinds.kind import BoxKind, Outcome, StreamType


@dataclass(frozen=True, slots=True)
class Repartition(BoxKind):
    """partitions: how many; None: one for each site."""

    name: ClassVar = "repartition"
    refuses_changes: ClassVar = "would part a row from the one that replaces it"

    partitions: int | None

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given, count = inputs[0], self.partitions
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= KEY_GROUPS):
            raise QueryError(
                f"box {box!r}: a number of partitions is a whole number from 1 to {KEY_GROUPS}, or left out, not {count!r}"
            ).about("partitions")
        return Outcome((given.schema,), given.event_time, given.watermark_delay_us)

    def text(self) -> list[str]:
        return [f"{self.partitions} partitions"] if self.partitions is not None else []
