"""Dedup: of rows that are equal in some columns only the first passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from evenflow.errors import QueryError
from evenflow.query.faults import about
from evenflow.query.kinds.judging import check_keys, check_order
from evenflow.query.kinds.kind import Fed, KeyedKind, KeyedStep, Need, Outcome, StreamType, of_keys
from evenflow.query.kinds.wording import (
    order_details,
)


@dataclass(frozen=True, slots=True)
class Dedup(KeyedKind):
    """within: keys are forgotten when the watermark has passed them."""

    name: ClassVar = "dedup"
    refuses_changes: ClassVar = "would have to know what is left when the first of equal rows is taken back"
    operator: ClassVar = "dedup:Dedup"

    within: bool

    @classmethod
    def of_step(cls, params: Mapping[str, Any]) -> Dedup:
        return cls(params["keys"], None, None, within=bool(params["time"]))

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given = inputs[0]
        check_keys(box, self.keys, given.schema, least=1)
        check_order(box, self.order, self.tie_break, given)
        with about("within"):
            if not isinstance(self.within, bool):
                raise QueryError(f"box {box!r}: within_watermark is {self.within!r}; it must be True or False")
            if self.within and given.event_time is None:
                raise QueryError(
                    f"box {box!r}: within_watermark needs event time; add .with_watermark('ts', '10 seconds') before, or leave it out "
                    "to remember keys for ever"
                )
        return Outcome((given.schema, given.schema), given.event_time, given.watermark_delay_us)

    def forgets_by(self, event_time: str | None) -> str | None:
        """The column by which it forgets keys, or None: it remembers them for ever."""
        return event_time if self.within or event_time in self.keys else None

    def judges_late(self, event_time: str | None) -> bool:
        return self.order == "event_time" or self.forgets_by(event_time) is not None

    def step(self, fed: Fed) -> KeyedStep:
        keys, time = tuple(self.keys), self.forgets_by(fed.given.event_time)
        delay_us = fed.given.watermark_delay_us or 0 if self.within else 0
        cares = set(keys) != set(fed.given.schema.names)
        return KeyedStep({"keys": keys, "time": time, "delay_us": delay_us}, cares=cares)

    def needs(self, number: int) -> Need | None:
        return of_keys(self.keys, "the first of equal rows") if self.within else Need("none", (), "keys that it remembers for ever")

    def text(self) -> list[str]:
        kept = ["within the watermark"] if self.within else []
        return [f"by {', '.join(self.keys)}", *kept, *order_details(self.order, self.tie_break)]
