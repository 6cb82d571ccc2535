"""Complete: the rows that a changelog leaves, all of them, now and then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evenflow.query.duration import duration_text
from evenflow.query.faults import about
from evenflow.query.kinds.changes import check_complete
from evenflow.query.kinds.judging import check_count, known
from evenflow.query.kinds.kind import Fed, KeyedKind, KeyedStep, Need, Outcome, StreamType
from evenflow.query.kinds.wording import (
    by_details,
)


@dataclass(frozen=True, slots=True)
class Complete(KeyedKind):
    """every_us: from one table to the next. by: (column, whether it descends) of each that orders it. limit: of rows, or None."""

    name: ClassVar = "complete"
    operator: ClassVar = "complete:Complete"

    every_us: int
    by: Sequence[tuple[str, bool]]
    limit: int | None

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        schema = check_complete(box, inputs[0].schema)
        with about("every_us"):
            check_count(box, "every in microseconds", self.every_us, 1)
        with about("limit"):
            if self.limit is not None:
                check_count(box, "the limit of a table", self.limit, 1)
        for item, (column, _) in enumerate(self.by):
            with about("by", item):
                known(box, column, schema)
        return Outcome((schema, inputs[0].schema))

    def step(self, fed: Fed) -> KeyedStep:
        by = tuple((column, descending) for column, descending in self.by)
        return KeyedStep({"every_us": self.every_us, "by": by, "limit": self.limit}, cares=False, keeps_key=False)

    def needs(self, number: int) -> Need | None:
        return Need("none", (), "the table that changes leave")

    def text(self) -> list[str]:
        limit = [] if self.limit is None else [f"first {self.limit}"]
        return [f"every {duration_text(self.every_us)}", *by_details(self.by), *limit]
