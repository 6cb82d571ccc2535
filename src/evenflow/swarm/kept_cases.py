"""A small dataflow whose rows are given once, to whoever reads them, as lines over a connection are: they go to the store first (J5).

What is on its way when a run is lost is nobody's; what has come out has come out once, and totals are of exactly these rows.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Final

import pyarrow as pa

import evenflow as ef
from evenflow.coordinator.events import Kind
from evenflow.sources.source import Reader, Source
from evenflow.swarm.cases import Case, Complaint, Tables, rows_of

SCHEMA: Final = pa.schema([("id", pa.int64()), ("k", pa.int64())])
KEYS: Final = 7
UNKEPT: Final = 0.35
"""So often nobody keeps them."""


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
    durability: str = "kept"

    @property
    def kept(self) -> bool:
        return self.durability == "kept"

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def partitions(self, sites: int) -> int:
        return 1

    def open(self, partition: int, of: int) -> OnceReader:
        return OnceReader(self)


class Declared:
    """What the generations of a run have said that they went on without."""

    def __init__(self) -> None:
        self._worlds: list[Any] = []

    def watch(self, world: Any) -> None:
        self._worlds.append(world)

    def judge(self, out: int, counted: int) -> Complaint:
        """out: rows that have come out. counted: that totals have. One sink may have been given rows before the other was that were lost
        then: they differ by such ones, and by no others."""
        said = [happened for world in self._worlds for _, happened in world.happened if happened.kind is Kind.ROWS_LOST]
        lost = sum(happened.details["rows"] for happened in said)
        if abs(out - counted) <= lost:
            return None
        return f"{out} rows have come out, totals have {counted} of them, and {lost} were declared lost"


def kept(random: Random, rows: int) -> Case:
    """Rows as they are, and their totals. In some runs nobody keeps them: then those are lost that came after the newest checkpoint, totals
    are without them, and the run says how many they are."""
    given = random.randint(rows, 4 * rows)
    lossy = random.random() < UNKEPT
    flow = ef.Dataflow("unkept" if lossy else "kept")
    stream = flow.source(Once(deque(range(given)), durability="none" if lossy else "kept"), name="in").where("id >= 0")
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
        if lossy:
            return judge_part(tables) or declared.judge(len(found), sum(n for n, _ in newest.values()))
        wanted = {k: (n, sums[k]) for k, n in counts.items()}
        return judge_part(tables) or (None if newest == wanted else f"totals are {newest}, and those of the rows that came out {wanted}")

    declared = Declared()
    return Case(flow, {"in": [given]}, judge, judge_part, cut=False, watch=declared.watch)
