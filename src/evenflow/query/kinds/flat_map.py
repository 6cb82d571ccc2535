"""FlatMap: any number of rows of each row, by a function of the user."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.faults import about
from evenflow.query.kinds.judging import check_flag, naming
from evenflow.query.kinds.kind import USERS, Origins, Outcome, RowKind, StreamType
from evenflow.query.kinds.wording import (
    shown,
)
from evenflow.stream.schema import parse_ddl


@dataclass(frozen=True, slots=True)
class FlatMap(RowKind):
    """function: of a batch, returns one. output: its columns, as DDL. deterministic: it returns the same for the same rows."""

    name: ClassVar = "flat_map"
    guarded: ClassVar = True
    colours: ClassVar = USERS

    function: Any
    output: str
    deterministic: bool = True

    @property
    def repeats(self) -> bool:
        return self.deterministic

    def may_run_ahead(self, time: str, given: Sequence[str]) -> bool:
        return True

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given, output = inputs[0], self.output
        with about("function"):
            if not callable(self.function):
                raise QueryError(f"box {box!r}: flat_map takes a function of a batch, not {self.function!r}")
            if inspect.iscoroutinefunction(self.function):
                raise QueryError(
                    f"box {box!r}: flat_map takes a function, and {shown(self.function)} is async; .lookup(...) awaits answers"
                )
        with about("output"):
            if not isinstance(output, str) or not output.strip():
                raise QueryError(f"box {box!r} does not say what it puts out; add output='app string, dur double'")
            with naming(box):
                schema = parse_ddl(output)
        check_flag(box, "deterministic", self.deterministic)
        time = given.event_time
        keeps = time is not None and time in schema.names and pa.types.is_timestamp(schema.field(time).type)
        return Outcome((schema,), time if keeps else None, given.watermark_delay_us if keeps else None)

    def step(self, schema: pa.Schema) -> tuple[Mapping[str, Any], bool]:
        return {"function": self.function, "output": self.output}, True

    def keys_behind(self, keys: tuple[str, ...] | None, schema: pa.Schema) -> tuple[str, ...] | None:
        return None

    def origin(self, column: str, inputs: Sequence[pa.Schema]) -> Origins:
        return ()

    def text(self) -> list[str]:
        return [shown(self.function), *([] if self.deterministic else ["called once for all replicas"])]
