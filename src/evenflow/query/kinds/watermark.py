"""Watermark: which column is event time, and how late its rows may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.duration import duration_text
from evenflow.query.faults import about
from evenflow.query.kinds.judging import known
from evenflow.query.kinds.kind import BoxKind, Outcome, StreamType


@dataclass(frozen=True, slots=True)
class Watermark(BoxKind):
    """column: of event time. delay_us: how far the watermark stays behind. idle_us: when a silent partition holds it back no more."""

    name: ClassVar = "watermark"
    colours: ClassVar = ("#e8f3fb", "#2f7fb5")

    column: str
    delay_us: int
    idle_us: int | None = None

    @property
    def reach_us(self) -> int | None:
        """A row that is so late still comes into results."""
        return self.delay_us

    @classmethod
    def of_step(cls, params: Mapping[str, Any]) -> Watermark:
        return cls(params["time"], params["delay_us"], params.get("idle_us"))

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given, column, delay_us = inputs[0], self.column, self.delay_us
        with about("column"):
            type_ = known(box, column, given.schema).type
            if not (pa.types.is_timestamp(type_) and type_.unit == "us"):
                raise TypeMismatch(
                    f"box {box!r}: the watermark column {column!r} is {type_}; it must be a timestamp[us], cast it in a select before"
                )
        with about("delay_us"):
            if not isinstance(delay_us, int) or delay_us < 0:
                raise QueryError(f"box {box!r}: the watermark's delay is {delay_us!r}; it must be zero or more microseconds")
        idle_us = self.idle_us
        with about("idle_us"):
            if idle_us is not None and (not isinstance(idle_us, int) or idle_us < 1):
                raise QueryError(
                    f"box {box!r}: a source is idle after {idle_us!r}; it must be more than zero microseconds, or None for never"
                )
        if given.event_time is not None:
            raise QueryError(f"box {box!r}: the stream has a watermark on {given.event_time!r} already; declare it once")
        return Outcome((given.schema,), column, delay_us)

    def text(self) -> list[str]:
        idle = [f"idle after {duration_text(self.idle_us)}"] if self.idle_us else []
        return [f"{self.column} - {duration_text(self.delay_us)}", *idle]
