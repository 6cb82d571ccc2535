"""Process: a box of the user, with state by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.built import Built
from evenflow.query.faults import about
from evenflow.query.kinds.judging import check_keys, check_order, processor_schema
from evenflow.query.kinds.kind import USERS, Fed, KeyedKind, KeyedStep, Need, Origins, Outcome, StreamType, of_keys
from evenflow.query.kinds.wording import (
    order_details,
)
from evenflow.query.timing import check_timers


@dataclass(frozen=True, slots=True)
class Process(KeyedKind):
    """processor: an `evenflow.Processor` or `BatchProcessor`. verify: how often its answers are made twice and compared, or None."""

    name: ClassVar = "process"
    guarded: ClassVar = True
    colours: ClassVar = USERS

    processor: Any
    verify: Any

    @property
    def repeats(self) -> bool:
        return bool(getattr(self.processor, "deterministic", True))

    def may_run_ahead(self, time: str, given: Sequence[str]) -> bool:
        return not isinstance(self.processor, Built)

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given = inputs[0]
        with about("keys"):
            if not self.keys and not isinstance(self.processor, Built):
                raise QueryError(f"box {box!r} processes rows without a key; write .key_by('column', ...).process(...)")
        check_keys(box, self.keys, given.schema, least=0 if isinstance(self.processor, Built) else 1)
        check_order(box, self.order, self.tie_break, given)
        with about("processor"):
            schema = processor_schema(box, self.processor)
            check_timers(box, self.processor, given, self.order)
        time = self.processor.event_time(given.event_time) if isinstance(self.processor, Built) else given.event_time
        keeps = time is not None and time in schema.names and pa.types.is_timestamp(schema.field(time).type)
        delay_us = given.watermark_delay_us
        return Outcome((schema, given.schema), time if keeps else None, delay_us + self._lag_us if keeps and delay_us is not None else None)

    @property
    def _lag_us(self) -> int:
        return self.processor.lag_us if isinstance(self.processor, Built) else 0

    def step(self, fed: Fed) -> KeyedStep:
        keys, time = tuple(self.keys), fed.given.event_time
        params = {"keys": keys, "processor": self.processor, "time": time, "verify": self.verify}
        # Whether the rows that it returns for a key carry that key, unchanged, it must say itself.
        kept = bool(getattr(self.processor, "keeps_key", False)) and all(key in fed.out.names for key in keys)
        users = not isinstance(self.processor, Built)
        return KeyedStep(params, cares=users, keeps_key=kept, lag_us=self._lag_us, user_code=users)

    def origin(self, column: str, inputs: Sequence[pa.Schema]) -> Origins:
        return ((0, column),) if column in self.keys and getattr(self.processor, "keeps_key", False) else ()

    def needs(self, number: int) -> Need | None:
        return of_keys(self.keys, "state of its own")

    def text(self) -> list[str]:
        return [f"by {', '.join(self.keys)}", type(self.processor).__name__, *order_details(self.order, self.tie_break)]
