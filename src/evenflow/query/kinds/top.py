"""Top: the first rows of each key and window, in a given order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evenflow.errors import QueryError
from evenflow.query.aggregates import TimeWindow, top_schema
from evenflow.query.faults import about
from evenflow.query.kinds.judging import check_count, check_distinct, check_keys, check_plain, check_time_window, known
from evenflow.query.kinds.kind import Fed, KeyedKind, KeyedStep, Need, Outcome, StreamType, of_keys
from evenflow.query.kinds.wording import (
    by_details,
    keys_text,
    window_details,
)


@dataclass(frozen=True, slots=True)
class Top(KeyedKind):
    """window: of event time. count: how many rows. by: (column, whether it descends) of each that orders them."""

    name: ClassVar = "top"
    refuses_changes: ClassVar = "would have to know the next best row when one is taken back"
    operator: ClassVar = "top:Top"

    window: TimeWindow
    count: int
    by: Sequence[tuple[str, bool]]

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given, window = inputs[0], self.window
        check_keys(box, self.keys, given.schema, least=0)
        with about("window"):
            check_time_window(box, window.size_us, window.slide_us, window.column, given)
            if not window.final:
                raise QueryError(f"box {box!r}: the rows of top come once; leave out mode and allowed_lateness of its window")
        with about("count"):
            check_count(box, "top", self.count, 1)
        with about("by"):
            if not self.by:
                raise QueryError(f"box {box!r}: top of what order? name a column, such as order_by='length desc'")
            for column, descending in self.by:
                check_plain(box, known(box, column, given.schema), "order rows")
                if not isinstance(descending, bool):
                    raise QueryError(f"box {box!r}: {column!r} is ordered {descending!r}; write '{column} desc' or '{column} asc'")
        schema = top_schema(given.schema, self.keys, window)
        check_distinct(box, schema.names, "top adds window_start, window_end and rank: rename the input's column in a select before")
        return Outcome((schema, given.schema), "window_end", given.watermark_delay_us)

    def judges_late(self, event_time: str | None) -> bool:
        return True

    def step(self, fed: Fed) -> KeyedStep:
        by = tuple((column, descending) for column, descending in self.by)
        return KeyedStep({"keys": tuple(self.keys), "window": self.window, "count": self.count, "by": by}, cares=False)

    def needs(self, number: int) -> Need | None:
        return of_keys(self.keys, "the first rows of a key")

    def text(self) -> list[str]:
        (order,) = by_details(self.by)
        return [keys_text(self.keys), *window_details(self.window), f"first {self.count} {order}"]
