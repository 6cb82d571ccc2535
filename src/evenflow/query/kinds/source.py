"""Source: where rows come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.faults import about
from evenflow.query.kinds.judging import check_distinct, check_printable
from evenflow.query.kinds.kind import BoxKind, Outcome, StreamType
from evenflow.query.kinds.wording import (
    described,
)
from evenflow.stream.weight import WEIGHT_FIELD


@dataclass(frozen=True, slots=True)
class Source(BoxKind):
    """source: what is read, one of `evenflow.sources`. weights: with a column `_w`, how many rows of it each stands for."""

    name: ClassVar = "source"
    inputs: ClassVar = (0, 0)
    colours: ClassVar = ("#e9f4ec", "#2f855a")

    source: Any
    weights: bool = False

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        with about("source"):
            schema = self.source.schema
            if not isinstance(schema, pa.Schema) or not len(schema):
                raise QueryError(f"box {box!r}: the source has no columns; give it a schema")
            if self.weights:
                schema = schema.append(WEIGHT_FIELD)
            check_distinct(box, schema.names, "give the source's columns different names")
            check_printable(box, schema)
        return Outcome((schema,))

    def text(self) -> list[str]:
        return [described(self.source), *(["with weights"] if self.weights else [])]
