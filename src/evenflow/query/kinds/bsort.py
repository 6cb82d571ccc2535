"""BSort: an approximate sort with a buffer of so many rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from evenflow.query.faults import about
from evenflow.query.kinds.judging import check_count, check_keys, check_order, check_plain, known
from evenflow.query.kinds.kind import Fed, KeyedKind, KeyedStep, Need, Outcome, StreamType, of_keys
from evenflow.query.kinds.wording import (
    keys_text,
)

LARGEST_BUFFER: Final = 65_536
"""Rows of a bsort's buffer, at most: each key that has rows in an epoch reads and writes its own."""


@dataclass(frozen=True, slots=True)
class BSort(KeyedKind):
    """column: by which rows are sorted. size: of the buffer, in rows."""

    name: ClassVar = "bsort"
    refuses_changes: ClassVar = "would part a row from the one that replaces it"
    operator: ClassVar = "bsort:BSort"

    column: str
    size: int

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given = inputs[0]
        check_keys(box, self.keys, given.schema, least=0)
        check_order(box, self.order, self.tie_break, given)
        with about("column"):
            check_plain(box, known(box, self.column, given.schema), "order rows")
        with about("size"):
            check_count(box, "the buffer of bsort", self.size, 1, LARGEST_BUFFER)
        return Outcome((given.schema,))  # Rows are held back by number, not by time, so no watermark holds for them.

    def step(self, fed: Fed) -> KeyedStep:
        return KeyedStep({"keys": tuple(self.keys), "column": self.column, "size": self.size}, cares=True)

    def needs(self, number: int) -> Need | None:
        return of_keys(self.keys, "a buffer of so many rows")

    def text(self) -> list[str]:
        return [keys_text(self.keys), f"by {self.column} in a buffer of {self.size} rows"]
