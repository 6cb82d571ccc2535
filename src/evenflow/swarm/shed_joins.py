"""Two sources that bring more than sites can do, into an inner join: of both sides whole keys are left out (decision 205).

What comes out must be pairs that there are, each once, and what does not come must be of a key that some epoch left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

import evenflow as ef
from evenflow.operator.units import key_hashes
from evenflow.stream.epoch import ALL_KEPT
from evenflow.swarm.cases import Case, Complaint, Tables, rows_of, too_much
from evenflow.swarm.shed_cases import BEGIN_US, SECONDS, read_whole


@dataclass
class ToldPairs:
    """parts: all rows of the left and of the right source, by partition. within_us: for so long a left row may come behind a right one.
    worlds: generations of the run, in order."""

    parts: Sequence[Sequence[pa.RecordBatch]]
    within_us: int
    worlds: list[Any] = field(default_factory=list)

    def pairs(self) -> Iterator[tuple[int, int, int]]:
        """(key, value of the left row, value of the right row) of all that there are."""
        left, right = (self._by_key(parts) for parts in self.parts)
        for key, rows in left.items():
            for time, value in rows:
                yield from ((key, value, other) for at, other in right.get(key, ()) if at <= time <= at + self.within_us)

    @staticmethod
    def _by_key(parts: Sequence[pa.RecordBatch]) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for part in parts:
            times = part.column("ts").cast(pa.timestamp("us")).view(pa.int64()).to_pylist()
            for key, time, value in zip(part.column("key").to_pylist(), times, part.column("value").to_pylist(), strict=True):
                found.setdefault(key, []).append((time, value))
        return found

    def judge(self, tables: Tables) -> Complaint:
        came, whole = rows_of(tables["out"]) if tables["out"].num_rows else [], list(self.pairs())
        if said := too_much(came, whole):
            return said
        missing = pa.array(sorted({each[0] for each in whole if whole.count(each) > came.count(each)}), pa.int64())
        kept = min((min(each.keep) for world in self.worlds for each in world.coordinator.ledger), default=ALL_KEPT)
        hashes = key_hashes(pa.RecordBatch.from_arrays([missing], ["key"]), ("key",))
        stay = [key for key, hash in zip(missing.to_pylist(), hashes.tolist(), strict=True) if hash < kept]
        return f"pairs of keys {stay[:3]} are missing, of which no epoch left anything out" if stay else None

    def judge_part(self, tables: Tables) -> Complaint:
        return too_much(rows_of(tables["out"]) if tables["out"].num_rows else [], list(self.pairs()))


def shed_joins(random: Random) -> Case:
    """Pairs of rows of a key that are near each other in time."""
    partitions, rows, within_ms = random.randint(1, 3), random.randint(200, 700), random.choice([2, 8])
    seeds, names = [random.randrange(1_000) for _ in range(2)], ("in", "other")
    made = [ef.sources.generator(int(rows / SECONDS), 40, rows=rows, partitions=partitions, seed=seed).begun(BEGIN_US) for seed in seeds]
    patience_ms = random.choice([4, 12, 40])
    qos = ef.qos(latency=[(f"{patience_ms} ms", 1), (f"{4 * patience_ms} ms", 0)])
    flow = ef.Dataflow("shed joins")
    left, right = (
        flow.source(source, name=name).select("key", "value", "ts").with_watermark("ts", "0 seconds")
        for name, source in zip(names, made, strict=True)
    )
    near = f"l.key = r.key and l.ts between r.ts and r.ts + interval {within_ms} milliseconds"
    pairs = left.join(right, condition=near, suffix="_r").select("key", "value", "value_r")
    pairs.to(ef.sinks.memory("out"), name="out", qos=qos)
    parts = [[read_whole(source.open(p, partitions)) for p in range(partitions)] for source in made]
    told = ToldPairs(parts, 1000 * within_ms)
    counts = {name: [part.num_rows for part in of] for name, of in zip(names, parts, strict=True)}
    return Case(flow, counts, told.judge, told.judge_part, cut=False, watch=told.worlds.append)
