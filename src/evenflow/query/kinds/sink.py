"""Sink: where rows go to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from evenflow.availability.guarantee import guarantee_named
from evenflow.errors import QueryError
from evenflow.query.duration import duration_text
from evenflow.query.faults import about
from evenflow.query.kinds.judging import naming
from evenflow.query.kinds.kind import BoxKind, Outcome, StreamType
from evenflow.query.kinds.wording import (
    described,
)
from evenflow.query.qos import Qos, check_qos

EVERY_MOST_US: Final = 3_600_000_000
_WHOLE: Final = {
    "none": "puts nothing out",
    "driver": "hands on whole epochs",
    "site": "commits whole epochs",
    "spark": "is read by whole epochs, which are the offsets of Spark's query",
}
"""Why a sink takes whole epochs only, by where it is."""


@dataclass(frozen=True, slots=True)
class Sink(BoxKind):
    """sink: one of `evenflow.sinks`. qos: what its results are worth under overload; None: it is protected. guarantee: what it must have
    through failures; None: whatever its modes of availability give. unordered: it takes first come, first served (O1). every_us:
    who reads it wants rows no more often; None: as soon as they are there."""

    name: ClassVar = "sink"
    colours: ClassVar = ("#fce9ec", "#c2415a")

    sink: Any
    qos: Qos | None = None
    guarantee: str | None = None
    unordered: bool = False
    every_us: int | None = None

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        with about("sink"):
            sink = self.sink
            if getattr(sink, "where", None) not in ("none", "driver", "site", "spark"):
                raise QueryError(f"box {box!r}: {sink!r} is not a sink; use one of evenflow.sinks, such as evenflow.sinks.console()")
            with naming(box):
                sink.check(inputs[0].schema)
        if self.unordered is not False:
            with about("unordered"):
                self._check_unordered(box)
        if self.every_us is not None and (not isinstance(self.every_us, int) or not 1 <= self.every_us <= EVERY_MOST_US):
            with about("every_us"):
                raise QueryError(
                    f"box {box!r}: rows are wanted every {self.every_us!r} microseconds; give up to an hour, as in every='1 second'"
                )
        if self.qos is not None:
            with about("qos"):
                check_qos(box, self.qos, inputs[0].schema)
        if self.guarantee is not None:
            with about("guarantee"):
                guarantee_named(self.guarantee, f"box {box!r}")
        return Outcome(())

    def _check_unordered(self, box: str) -> None:
        if self.unordered is not True:
            raise QueryError(f"box {box!r}: unordered is {self.unordered!r}; give True, or leave it out for whole epochs in order")
        if not self.sink.takes_portions:
            raise QueryError(
                f"box {box!r}: a {self.sink.kind} sink {_WHOLE[self.sink.where]}, so its rows cannot come first come, first served; leave "
                "unordered out, or use sinks.callback, sinks.console or sinks.memory"
            )

    def text(self) -> list[str]:
        return [
            described(self.sink),
            *(["first come, first served"] if self.unordered else []),
            *([f"every {duration_text(self.every_us)}"] if self.every_us is not None else []),
            *([] if self.qos is None else self.qos.text()),
            *([] if self.guarantee is None else [f"{self.guarantee} through failures"]),
        ]
