"""Union: the rows of several streams with the same columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.query.kinds.kind import BoxKind, Outcome, StreamType
from evenflow.stream.schema import ddl_of


@dataclass(frozen=True, slots=True)
class Union(BoxKind):
    """It has no parameters. Where it runs is where its inputs are."""

    name: ClassVar = "union"
    inputs: ClassVar = (2, None)

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        first = inputs[0]
        for other in inputs[1:]:
            if [(f.name, f.type) for f in other.schema] != [(f.name, f.type) for f in first.schema]:
                raise TypeMismatch(
                    f"box {box!r} joins streams of different columns, ({ddl_of(first.schema)}) and ({ddl_of(other.schema)}); "
                    "make them equal in names, types and order with .select(...)"
                )
        nullable = [any(given.schema.field(i).nullable for given in inputs) for i in range(len(first.schema))]
        schema = pa.schema([f.with_nullable(n) for f, n in zip(first.schema, nullable, strict=True)])
        times = {given.event_time for given in inputs}
        if len(times) > 1:
            return Outcome((schema,))  # One of them knows no time, so nobody can say how far both have come.
        delays = [given.watermark_delay_us for given in inputs if given.watermark_delay_us is not None]
        return Outcome((schema,), first.event_time, max(delays, default=None))
