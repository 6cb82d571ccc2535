"""A small dataflow whose rows are given once, to whoever reads them, as lines over a connection are: they go to the store first (J5).

What is on its way when a run is lost is nobody's; what has come out has come out once, and totals are of exactly these rows.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Final

import pyarrow as pa

import evenflow as ef
from evenflow.sources.source import Reader, Source
from evenflow.swarm.cases import Case, Complaint, Tables, rows_of

SCHEMA: Final = pa.schema([("id", pa.int64()), ("k", pa.int64())])
KEYS: Final = 7


class OnceReader(Reader):
    def __init__(self, source: Once) -> None:
        self._source = source

    def skip(self, rows: int) -> None:
        """What comes is what has not been given."""

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        left = self._source.left
        given = [left.popleft() for _ in range(min(max_rows, len(left)))]
        self.ended = not left and self._source.ends
        return pa.record_batch([given, [number % KEYS for number in given]], schema=SCHEMA) if given else None


@dataclass(frozen=True)
class Once(Source):
    """left: numbers of the rows that nobody has been given."""

    kind: ClassVar[str] = "once"
    replayable: ClassVar[bool] = False
    left: deque[int] = field(default_factory=deque)
    ends: bool = True

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def partitions(self, sites: int) -> int:
        return 1

    def open(self, partition: int, of: int) -> OnceReader:
        return OnceReader(self)


def kept(random: Random, rows: int) -> Case:
    """Rows as they are, and their totals."""
    given = random.randint(rows, 4 * rows)
    flow = ef.Dataflow("kept")
    stream = flow.source(Once(deque(range(given))), name="in").where("id >= 0")
    stream.select("id", "k").to(ef.sinks.memory("rows"), name="rows")
    stream.group_by("k").agg(n="count(*)", total="sum(id)").to(ef.sinks.memory("totals"), name="totals")

    def judge_part(tables: Tables) -> Complaint:
        found = [int(number) for number, _ in rows_of(tables["rows"])]
        return "a row is there twice, or was never given" if len(set(found)) < len(found) or not set(found) <= set(range(given)) else None

    def judge(tables: Tables) -> Complaint:
        found = [int(number) for number, _ in rows_of(tables["rows"])]
        counts, sums = Counter(number % KEYS for number in found), Counter[int]()
        for number in found:
            sums[number % KEYS] += number
        newest = {k: (n, total) for k, n, total in rows_of(tables["totals"])}
        wanted = {k: (n, sums[k]) for k, n in counts.items()}
        return judge_part(tables) or (None if newest == wanted else f"totals are {newest}, and those of the rows that came out {wanted}")

    return Case(flow, {"in": [given]}, judge, judge_part, cut=False)
