"""Totals over changelogs that cannot be subtracted. Their operator is `operator.changes.regroup`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa

from evenflow.query.aggregates import ORDERED, AggCall, result_schema
from evenflow.query.built import Built
from evenflow.stream.change import CHANGE_FIELD
from evenflow.stream.schema import ddl_of, parse_ddl

SUBTRACTED: Final = ("count", "sum", "avg")
"""Functions whose totals take rows back by themselves."""

ANY_ORDER: Final = ("collect_list",)
"""Functions of the order of rows that are worth something of rows that have none: Spark's answer is one of many, too."""


@dataclass
class Regrouped(Built):
    """calls: the totals. columns: of the input, as DDL, that are the keys and what the calls read.

    keys: how many of these are keys. State: the distinct rows of each group, in these columns.
    """

    operator: ClassVar[str] = "changes.regroup:Regroup"
    keeps_key: ClassVar[bool] = True

    calls: tuple[AggCall, ...]
    keys: tuple[str, ...]
    columns: str

    @property
    def output(self) -> pa.Schema:  # type: ignore[override]
        return result_schema(parse_ddl(self.columns), self.keys, self.calls, None, None).append(CHANGE_FIELD)


def regrouped(schema: pa.Schema, keys: Sequence[str], calls: Sequence[AggCall]) -> Regrouped | None:
    """The description of totals of a changelog; None if they can be subtracted, or not be made of rows without an order at all."""
    if all(call.made is None and call.function in SUBTRACTED for call in calls):
        return None
    if any(call.made is not None or (call.function in ORDERED and call.function not in ANY_ORDER) for call in calls):
        return None
    names = dict.fromkeys([*keys, *(column for call in calls for column in call.columns)])
    return Regrouped(tuple(calls), tuple(keys), ddl_of(pa.schema([schema.field(name) for name in names])))
