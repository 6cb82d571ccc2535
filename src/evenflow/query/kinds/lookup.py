"""Lookup: columns that a service knows of each row's key, asked by a function of the user."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.duration import duration_text
from evenflow.query.faults import about
from evenflow.query.kinds.judging import check_distinct, check_flag, check_printable, known, naming
from evenflow.query.kinds.kind import USERS, Origins, Outcome, RowKind, StreamType
from evenflow.query.kinds.wording import shown
from evenflow.stream.schema import parse_ddl

MOST_CALLS: Final = 10_000
"""At a time, of one box at one site."""
MOST: Final = 10_000_000
"""Keys of one call, tries, and answers that are remembered."""


@dataclass(frozen=True, slots=True)
class Lookup(RowKind):
    """function: of a row's values in the columns `on`, gives its answer. output: the columns of an answer, as DDL.

    concurrency: calls at a time, at each site. timeout_us: for each try. retries: of a call that failed, with pauses of backoff_us, then
    twice that, and so on. batch: the function takes a list of so many keys at most and gives a list of answers; None: one key. cache_us:
    for so long an answer is good for other rows of its key, by the stamps of the epochs; 0: within its epoch. cache_size: answers that are
    kept. nulls: rows for which there is no answer have nulls; otherwise they end the run, or `on_error` puts them aside. deterministic: the
    answer for a key is always the same.
    """

    name: ClassVar = "lookup"
    guarded: ClassVar = True
    colours: ClassVar = USERS
    refuses_changes: ClassVar = "would ask again for a row that is taken back, and may get another answer"

    function: Any
    output: str
    on: Sequence[str]
    concurrency: int = 16
    timeout_us: int = 10_000_000
    retries: int = 2
    backoff_us: int = 100_000
    batch: int | None = None
    cache_us: int = 0
    cache_size: int = 10_000
    nulls: bool = False
    deterministic: bool = False

    @property
    def repeats(self) -> bool:
        return self.deterministic

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given = inputs[0]
        self._check_function(box)
        with about("output"):
            if not isinstance(self.output, str) or not self.output.strip():
                raise QueryError(f"box {box!r} does not say what an answer has; add output='name string, age int'")
            with naming(box):
                answer = parse_ddl(self.output)
            schema = looked_up_schema(given.schema, answer)
            check_distinct(box, schema.names, "call a column of the answer something else in output=")
            check_printable(box, schema)
        with about("on"):
            if not self.on:
                raise QueryError(f"box {box!r} does not say what is looked up; add on='customer_id'")
            check_distinct(box, list(self.on), "name each column once")
            for column in self.on:
                kind = known(box, column, given.schema).type
                if pa.types.is_nested(kind):
                    raise TypeMismatch(f"box {box!r} cannot look up by {column!r}, which is {kind}: take a part of it with .with_columns")
        self._check_numbers(box)
        return Outcome((schema,), given.event_time, given.watermark_delay_us)

    def _check_function(self, box: str) -> None:
        with about("function"):
            if inspect.iscoroutine(self.function):
                self.function.close()
                name = self.function.__name__
                raise QueryError(f"box {box!r}: lookup was given what calling {name}(...) returned; give the function itself, {name}")
            if not callable(self.function):
                raise QueryError(f"box {box!r}: lookup takes a function of a key, not {self.function!r:.60}")
            if inspect.isasyncgenfunction(self.function) or inspect.isgeneratorfunction(self.function):
                raise QueryError(f"box {box!r}: {shown(self.function)} yields; a function that looks up returns one answer")

    def _check_numbers(self, box: str) -> None:
        for name, least, most in (
            ("concurrency", 1, MOST_CALLS), ("timeout_us", 1, None), ("retries", 0, MOST), ("backoff_us", 0, None), ("batch", 1, MOST),
            ("cache_us", 0, None), ("cache_size", 1, MOST),
        ):  # fmt: skip
            given = getattr(self, name)
            if name == "batch" and given is None:
                continue
            if isinstance(given, bool) or not isinstance(given, int) or given < least or (most is not None and given > most):
                said = name.removesuffix("_us")
                wanted = f"a whole number from {least} to {most:,}" if most is not None else "a time that is more than nothing"
                raise QueryError(f"box {box!r}: {said} is {wanted}, not {given!r:.60}").about(name)
        check_flag(box, "nulls", self.nulls)
        check_flag(box, "deterministic", self.deterministic)

    def step(self, schema: pa.Schema) -> tuple[Mapping[str, Any], bool]:
        given = {name: getattr(self, name) for name in ("function", "output", "concurrency", "timeout_us", "retries", "backoff_us")}
        kept = {name: getattr(self, name) for name in ("batch", "cache_us", "cache_size", "nulls")}
        return {**given, **kept, "on": tuple(self.on)}, True

    def origin(self, column: str, inputs: Sequence[pa.Schema]) -> Origins:
        return ((0, column),) if column in inputs[0].names else ()

    def text(self) -> list[str]:
        parts = [f"{shown(self.function)} of {', '.join(self.on)}", f"{self.concurrency} at a time, {duration_text(self.timeout_us)} each"]
        batch = [f"{self.batch} keys a call"] if self.batch is not None else []
        kept = [f"answers kept for {duration_text(self.cache_us)}"] if self.cache_us else []
        return [*parts, *batch, *kept, *(["nulls where there is no answer"] if self.nulls else [])]


def looked_up_schema(schema: pa.Schema, answer: pa.Schema) -> pa.Schema:
    """The columns of a row, and behind them those of its answer, which may be null: there may be none."""
    return pa.schema([*schema, *[field.with_nullable(True) for field in answer]])
