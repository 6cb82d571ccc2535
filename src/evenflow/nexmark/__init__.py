"""Nexmark: 23 queries over the people, auctions and bids of an online auction, as SQL that both Evenflow and batch Spark understand.

It knows no engine: it is texts, and a source.

The events are made by `evenflow.sources.nexmark`; the queries are the files `queries/q0.sql` to `queries/q22.sql`, whose first lines
say what each one is about. Batch Spark gives the right answer to each of them, from the very same text.

Source: Tucker, Tufte, Papadimos, Maier (2008) for the model and q1 to q8; Apache Beam and Nexmark for Flink for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.sources.nexmark_events import STREAMS

NAMES: Final = tuple(f"q{number}" for number in range(23))

TIME_COLUMN: Final = "dateTime"
"""Event time of all three streams."""

SIDE_INPUT: Final = "side_input"
SIDE_ROWS: Final = 10_000

NEWEST: Final[Mapping[str, tuple[str, ...]]] = {
    "q4": ("category",),
    "q9": ("id",),
    "q17": ("auction", "day"),
    "q18": ("bidder", "auction"),
    "q19": ("auction", "place"),
}
"""Queries whose rows are the state so far: of these columns' equal values the newest row is the answer. Others put out each row once."""


@dataclass(frozen=True, slots=True)
class NexmarkQuery:
    """name: q0 .. q22. title: what it is about. sql: one SELECT. inputs: the streams and tables that it reads.

    newest: columns of whose equal values the newest row counts; empty if every row does.
    """

    name: str
    title: str
    sql: str
    inputs: tuple[str, ...]
    newest: tuple[str, ...] = ()


def query(name: str) -> NexmarkQuery:
    """The query of that name. Raises QueryError for a name that is none."""
    if name not in NAMES:
        raise QueryError(f"there is no Nexmark query {name!r}; they are {NAMES[0]} to {NAMES[-1]}")
    text = files(__name__).joinpath("queries", f"{name}.sql").read_text(encoding="utf-8")
    first, _, sql = text.partition("\n")
    inputs = tuple(table for table in (*STREAMS, SIDE_INPUT) if f" {table}\n" in sql or f" {table} AS " in sql)
    return NexmarkQuery(name, first.removeprefix("-- "), sql, inputs, NEWEST.get(name, ()))


def side_input() -> pa.Table:
    """The table of q13: key 0 .. 9999 and a text for each."""
    return pa.table({"key": pa.array(range(SIDE_ROWS), pa.int64()), "value": pa.array([f"value-{key}" for key in range(SIDE_ROWS)])})


__all__ = ["NAMES", "NEWEST", "SIDE_INPUT", "TIME_COLUMN", "NexmarkQuery", "query", "side_input"]
