"""Resample: values at regular times, between the rows of each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.aggregates import How, resampled_schema, ways_of
from evenflow.query.duration import duration_text
from evenflow.query.faults import about
from evenflow.query.kinds.judging import check_count, check_distinct, check_keys, check_order, known
from evenflow.query.kinds.kind import Fed, KeyedKind, KeyedStep, Need, Origins, Outcome, StreamType, of_keys
from evenflow.query.kinds.wording import (
    keys_text,
)


@dataclass(frozen=True, slots=True)
class Resample(KeyedKind):
    """step_us: from one value to the next. columns: that have values. how: "linear" or "previous", of all or
    of each. gap_us: the longest gap, or None."""

    name: ClassVar = "resample"
    refuses_changes: ClassVar = "has put out values between rows that may be taken back"
    operator: ClassVar = "resample:Resample"

    step_us: int
    columns: Sequence[str]
    how: How
    gap_us: int | None

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given, columns, how, gap_us = inputs[0], self.columns, self.how, self.gap_us
        check_keys(box, self.keys, given.schema, least=0)
        check_order(box, self.order, self.tie_break, given)
        with about("order"):
            if given.event_time is None or self.order != "event_time":
                raise QueryError(f"box {box!r}: resample needs event time; add .with_watermark('ts', '10 seconds') before")
        with about("how"):
            ways = ways_of(how, columns)
            wrong = next((way for way in ways if way not in ("linear", "previous")), None if columns else how)
            if wrong is not None and wrong not in ("linear", "previous"):
                raise QueryError(f"box {box!r}: how is {wrong!r}; it must be 'linear' or 'previous'")
            if len(ways) != len(columns):
                raise QueryError(f"box {box!r} has {len(ways)} ways for {len(columns)} columns; say one of each")
        with about("columns"):
            if not columns:
                raise QueryError(f"box {box!r} resamples no column; name at least one")
        with about("step_us"):
            check_count(box, "a step of resample in microseconds", self.step_us, 1)
        with about("gap_us"):
            if gap_us is not None:
                check_count(box, "max_gap in microseconds", gap_us, 1)
        for item, column in enumerate(columns):
            with about("columns", item):
                kind = known(box, column, given.schema).type
                if ways[item] == "linear" and not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                    raise TypeMismatch(
                        f"box {box!r}: {column!r} is {kind} and has no values in between; use how='previous', or cast it to double"
                    )
        schema = resampled_schema(given.schema, self.keys, given.event_time, columns, how)
        check_distinct(box, schema.names, "name neither keys nor the event time, and each column once")
        if gap_us is None:
            # A value may be as old as a key has been silent, so no watermark holds for what comes out.
            return Outcome((schema, given.schema))
        return Outcome((schema, given.schema), given.event_time, (given.watermark_delay_us or 0) + gap_us)

    def step(self, fed: Fed) -> KeyedStep:
        params: dict[str, Any] = {
            "keys": tuple(self.keys),
            "time": fed.given.event_time,
            "step_us": self.step_us,
            "columns": tuple(self.columns),
        }
        # What comes out may be older than the watermark here, so what goes by that may not stay in the same segment.
        params |= {"how": self.how, "gap_us": self.gap_us}
        return KeyedStep(params, cares=True, keeps_key=False, lag_us=self.gap_us or 0)

    def origin(self, column: str, inputs: Sequence[pa.Schema]) -> Origins:
        return ((0, column),) if column in self.keys else ()

    def needs(self, number: int) -> Need | None:
        return of_keys(self.keys, "values between rows")

    def text(self) -> list[str]:
        gap = [] if self.gap_us is None else [f"gaps up to {duration_text(self.gap_us)}"]
        ways = ways_of(self.how, self.columns)
        made = {way: ", ".join(column for column, its in zip(self.columns, ways, strict=True) if its == way) for way in ways}
        return [keys_text(self.keys), f"every {duration_text(self.step_us)}", *(f"{way}: {names}" for way, names in made.items()), *gap]
