"""Sink: where rows go to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from evenflow.availability.guarantee import guarantee_named
from evenflow.errors import QueryError
from evenflow.query.faults import about
from evenflow.query.kinds.judging import naming
from evenflow.query.kinds.kind import BoxKind, Outcome, StreamType
from evenflow.query.kinds.wording import (
    described,
)
from evenflow.query.qos import Qos, check_qos


@dataclass(frozen=True, slots=True)
class Sink(BoxKind):
    """sink: one of `evenflow.sinks`. qos: what its results are worth under overload; None: it is protected. guarantee: what it must have
    through failures; None: whatever its modes of availability give."""

    name: ClassVar = "sink"
    colours: ClassVar = ("#fce9ec", "#c2415a")

    sink: Any
    qos: Qos | None = None
    guarantee: str | None = None

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        with about("sink"):
            sink = self.sink
            if getattr(sink, "where", None) not in ("none", "driver", "site", "spark"):
                raise QueryError(f"box {box!r}: {sink!r} is not a sink; use one of evenflow.sinks, such as evenflow.sinks.console()")
            with naming(box):
                sink.check(inputs[0].schema)
        if self.qos is not None:
            with about("qos"):
                check_qos(box, self.qos, inputs[0].schema)
        if self.guarantee is not None:
            with about("guarantee"):
                guarantee_named(self.guarantee, f"box {box!r}")
        return Outcome(())

    def text(self) -> list[str]:
        return [
            described(self.sink),
            *([] if self.qos is None else self.qos.text()),
            *([] if self.guarantee is None else [f"{self.guarantee} through failures"]),
        ]
