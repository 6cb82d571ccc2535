"""Pattern: rows of a key that follow one another as a pattern says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.duration import duration_text
from evenflow.query.faults import about
from evenflow.query.kinds.judging import check_distinct, check_keys, check_order, check_printable, naming
from evenflow.query.kinds.kind import Fed, KeyedKind, KeyedStep, Need, Origins, Outcome, StreamType, of_keys
from evenflow.query.kinds.wording import (
    keys_text,
)
from evenflow.query.matching import LONGEST_WITHIN_US, MATCH_END, MATCH_START, ONE_ROW, UNMATCHED_TOO, match_schema, skip_to, understood


@dataclass(frozen=True, slots=True)
class Pattern(KeyedKind):
    """define: (variable, condition) of each. measures: (name, expression) of what is put out of a match. within_us: how long it may take.

    skip: where the search goes on, "past last row", "to next row", "to first B" or "to last B". rows: what comes out of a match, "one" row
    or "all" of its own, or these and rows in none, "with unmatched".
    """

    name: ClassVar = "pattern"
    refuses_changes: ClassVar = "has found matches with rows that may be taken back"

    pattern: str
    define: Sequence[tuple[str, str]]
    measures: Sequence[tuple[str, str]]
    within_us: int
    skip: str
    rows: str = ONE_ROW

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given, within_us = inputs[0], self.within_us
        check_keys(box, self.keys, given.schema, least=0)
        check_order(box, self.order, self.tie_break, given)
        with about("order"):
            if given.event_time is None or self.order != "event_time":
                raise QueryError(f"box {box!r}: a pattern needs event time; add .with_watermark('ts', '10 seconds') before")
        with about("within_us"):
            if isinstance(within_us, bool) or not isinstance(within_us, int) or not 0 < within_us <= LONGEST_WITHIN_US:
                raise QueryError(f"box {box!r}: within is {within_us!r} microseconds; say how long a match may take, such as '10 minutes'")
        with naming(box):
            matching = understood(given.schema, self.pattern, self.define, self.measures, self.rows)
            with about("skip"):
                skip_to(self.skip, matching.program.variables)
        schema = match_schema(matching, self.keys, given.event_time)
        with about("measures"):
            check_distinct(
                box, schema.names, f"{MATCH_START} and {MATCH_END} are the bounds of the match: rename the other in measures or before"
            )
            check_printable(box, schema)
        time = MATCH_END if self.rows == ONE_ROW else given.event_time
        return Outcome((schema, given.schema), time, (given.watermark_delay_us or 0) + within_us)

    def step(self, fed: Fed) -> KeyedStep:
        params = {
            "pattern": self.pattern, "within_us": self.within_us, "skip": self.skip, "rows": self.rows,
            "define": tuple((one, text) for one, text in self.define), "measures": tuple((one, text) for one, text in self.measures),
            "keys": tuple(self.keys), "time": fed.given.event_time,
        }  # fmt: skip
        # A match is put out when nothing better can come, so it is behind the watermark by as much as it may take.
        return KeyedStep(params, cares=True, keeps_key=False, lag_us=self.within_us)

    def origin(self, column: str, inputs: Sequence[pa.Schema]) -> Origins:
        own = self.keys if self.rows == ONE_ROW else inputs[0].names
        return ((0, column),) if column in own else ()

    def needs(self, number: int) -> Need | None:
        return of_keys(self.keys, "patterns")

    def text(self) -> list[str]:
        defined = [f"{variable} as {condition}" for variable, condition in self.define]
        measures = [f"{name} = {text}" for name, text in self.measures]
        what = f"{self.pattern} within {duration_text(self.within_us)}"
        all_rows = [] if self.rows == ONE_ROW else ["all rows of a match" + (", and rows in none" if self.rows == UNMATCHED_TOO else "")]
        return [keys_text(self.keys), what, f"skip {self.skip}", *all_rows, *defined, *measures]
