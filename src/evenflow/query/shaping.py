"""The methods of a stream that draw boxes on it alone, besides those that every query has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evenflow.query.check import known
from evenflow.query.grouped import Order
from evenflow.query.handle import HandledStream

if TYPE_CHECKING:
    from evenflow.query.builder import Stream


class ShapedStream(HandledStream):
    """Rows left out, multiplied, sorted and sent different ways."""

    def drop_duplicates(
        self, columns: Sequence[str] | None = None, *, within_watermark: bool = False, order: Order | None = None,
        tie_break: Sequence[str] | None = None, name: str | None = None,
    ) -> Stream:  # fmt: skip
        """The first of the rows that are equal in these columns (default: in all), as Spark's dropDuplicates.

        within_watermark: only rows no further apart in event time than the watermark's delay are duplicates, so that keys are forgotten
        (dropDuplicatesWithinWatermark). Keys are forgotten too where the event time is among the columns; otherwise they are kept for
        ever. order: which row is the first: the one that came first ("arrival", the default, which waits for nothing), or the earliest
        in event time ("event_time", which waits for the watermark). tie_break: as in `process`.
        """
        if isinstance(columns, str):
            columns = [columns]
        keys = tuple(self.columns if columns is None else columns)
        for column in keys:
            known(name or self.flow.free("drop_duplicates"), column, self.schema)
        ordered = order or (None if set(keys) == set(self.columns) else "arrival")
        ties = None if tie_break is None else tuple(tie_break)
        params = {"keys": keys, "within": within_watermark, "order": ordered, "tie_break": ties}
        return self._then("dedup", params, name, "drop_duplicates")
