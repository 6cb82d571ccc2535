"""Small dataflows over generated rows, each with the answer that plain Python gives.

What a run is given is (ts, k, v), ts strictly rising within a source partition and unique overall. `judge` compares what the sinks got with
what they must have; `judge_part` says what is wrong with what a run released that had to stop: everything must be right as far as it goes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

import pyarrow as pa

import evenflow as ef
from evenflow.availability.mode import Mode

SCHEMA: Final = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.int64())])
Row = tuple[int, int, int]
Parts = list[list[Row]]
Tables = Mapping[str, pa.Table]
Complaint = str | None


def nothing_to_say(tables: Tables) -> Complaint:
    return None


def nobody_watches(world: Any) -> None:
    return None


@dataclass(frozen=True)
class Case:
    """counts: rows of each source partition, by source. judge, judge_part: what is wrong with the tables by sink, or None. cut: it can be
    drawn again as if its sources had fewer rows. watch: is told each generation's world, where the judges need to know more than tables.
    modes: of availability, among which boxes may change while the run goes on, by name; changes: so often some do.
    deadly: sites die soon after some of these changes are asked for."""

    flow: ef.Dataflow
    counts: Mapping[str, list[int]]
    judge: Callable[[Tables], Complaint]
    judge_part: Callable[[Tables], Complaint] = field(default=nothing_to_say)
    cut: bool = True
    watch: Callable[[Any], None] = field(default=nobody_watches)
    modes: Mapping[str, tuple[Mode, ...]] = field(default_factory=dict)
    changes: float = 0.4
    deadly: bool = False


def make_rows(random: Random, partitions: int, rows: int, keys: int) -> Parts:
    parts: Parts = []
    for partition in range(partitions):
        ts, part = 0, []
        for _ in range(random.randint(0, rows)):
            ts += random.randint(1, 20)
            part.append((ts * partitions + partition, random.randrange(keys), random.randint(-100, 100)))
        parts.append(part)
    return parts


def batches(part: list[Row], random: Random) -> list[pa.RecordBatch]:
    cut, out = 0, []
    while cut < len(part):
        size = random.randint(1, 400)
        out.append(pa.record_batch([list(column) for column in zip(*part[cut : cut + size], strict=True)], schema=SCHEMA))
        cut += size
    return out or [pa.record_batch([[], [], []], schema=SCHEMA)]


class Cutting(Random):
    """Draws the same case, whose sources then had no more rows than these: what a run must put out that took in those only.

    taken: rows of each source partition, in the order of the case's counts.
    """

    def __init__(self, seed: int, taken: Iterable[int]) -> None:
        super().__init__(seed)
        self._taken = iter(list(taken))

    def cut(self, parts: Parts) -> None:
        for part in parts:
            del part[next(self._taken) :]


def source(parts: Parts, random: Random) -> Any:
    made = ef.sources.memory([batches(part, random) for part in parts])
    if isinstance(random, Cutting):
        random.cut(parts)
    return made


def counts_of(parts: Parts) -> list[int]:
    return [len(part) for part in parts]


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def differ(found: Iterable[Any], wanted: Iterable[Any]) -> Complaint:
    """What is missing and what is too much, a few of each."""
    have, want = Counter(found), Counter(wanted)
    if have == want:
        return None
    missing, surplus = list((want - have).elements()), list((have - want).elements())
    return f"{len(missing)} rows are missing, such as {missing[:3]}; {len(surplus)} are wrong or repeated, such as {surplus[:3]}"


def too_much(found: Iterable[Any], wanted: Iterable[Any]) -> Complaint:
    surplus = list((Counter(found) - Counter(wanted)).elements())
    return f"{len(surplus)} rows are wrong or repeated, such as {surplus[:3]}" if surplus else None


def newest(table: pa.Table, key: str = "k") -> dict[Any, tuple[Any, ...]]:
    """Update mode: the last row of a key is its result."""
    return {row[key]: tuple(row.values()) for row in table.to_pylist()}


def every_row(answer: list[tuple[Any, ...]], drop: str | None = None) -> dict[str, Any]:
    """Append mode into sink `out`: each row once."""

    def found(tables: Tables) -> list[tuple[Any, ...]]:
        table = tables["out"]
        return rows_of(table.drop_columns([drop]) if drop and table.num_columns else table)

    return {"judge": lambda tables: differ(found(tables), answer), "judge_part": lambda tables: too_much(found(tables), answer)}


def every_row_in(answers: Mapping[str, list[tuple[Any, ...]]]) -> dict[str, Any]:
    """Append mode into several sinks: each row once. answers: by sink."""

    def judge_by(compare: Callable[[Iterable[Any], Iterable[Any]], Complaint]) -> Callable[[Tables], Complaint]:
        return lambda tables: next((said for sink, rows in answers.items() if (said := compare(rows_of(tables[sink]), rows))), None)

    return {"judge": judge_by(differ), "judge_part": judge_by(too_much)}


def running(random: Random, rows: int) -> Case:
    """A filter and running aggregates."""
    parts = make_rows(random, random.randint(1, 4), rows, 40)
    flow = ef.Dataflow("running")
    stream = flow.source(source(parts, random), name="in").where("v >= -50")
    stream.group_by("k").agg(n="count(*)", total="sum(v)", low="min(v)").to(ef.sinks.memory("out"), name="out")
    groups = defaultdict(list)
    for _, k, v in (row for part in parts for row in part):
        if v >= -50:
            groups[k].append(v)
    answer = [(k, len(vs), sum(vs), min(vs)) for k, vs in groups.items()]

    def judge_part(tables: Tables) -> Complaint:
        wrong = [row for k, row in newest(tables["out"]).items() if row[1] > len(groups[k]) or row[3] < min(groups[k])]
        return f"counts beyond the input: {wrong[:3]}" if wrong else None

    return Case(flow, {"in": counts_of(parts)}, lambda tables: differ(newest(tables["out"]).values(), answer), judge_part)


def windows(random: Random, rows: int) -> Case:
    """Time windows, no row late."""
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    flow = ef.Dataflow("windows")
    stream = flow.source(source(parts, random), name="in").with_watermark("ts", "1 second")
    made = stream.group_by("k").window("500 microseconds").agg(n="count(*)", total="sum(v)")
    made.select("k", "n", "total").to(ef.sinks.memory("out"), name="out")
    sums: dict[tuple[int, int], list[int]] = defaultdict(list)
    for ts, k, v in (row for part in parts for row in part):
        sums[k, ts // 500].append(v)
    return Case(flow, {"in": counts_of(parts)}, **every_row([(k, len(vs), sum(vs)) for (k, _), vs in sums.items()]))


def two_stages(random: Random, rows: int) -> Case:
    """Windows, then running aggregates of them."""
    parts = make_rows(random, random.randint(1, 4), rows, 40)
    flow = ef.Dataflow("two-stages")
    made = flow.source(source(parts, random), name="in").with_watermark("ts", "1 second").group_by("k").window("500 microseconds")
    first = made.agg(total="sum(v)")
    first.select("k % 7 as k", "total").group_by("k").agg(n="count(*)", total="sum(total)").to(ef.sinks.memory("out"), name="out")
    sums: dict[tuple[int, int], int] = defaultdict(int)
    for ts, k, v in (row for part in parts for row in part):
        sums[k, ts // 500] += v
    groups = defaultdict(list)
    for (k, _), total in sums.items():
        groups[k % 7].append(total)
    answer = [(k, len(ts), sum(ts)) for k, ts in groups.items()]
    return Case(flow, {"in": counts_of(parts)}, lambda tables: differ(newest(tables["out"]).values(), answer))


def row_windows(random: Random, rows: int) -> Case:
    """Two sources, their union, windows of rows in event-time order."""
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    half = len(parts) // 2 or 1
    ours, theirs = parts[:half], parts[half:] or [[]]
    flow = ef.Dataflow("row-windows")
    left = flow.source(source(ours, random), name="left").with_watermark("ts", "0 seconds")
    right = flow.source(source(theirs, random), name="right").with_watermark("ts", "0 seconds")
    left.union(right).group_by("k").rows(5, slide=3).agg(total="sum(v)", first="first(v)").to(ef.sinks.memory("out"), name="out")
    history = defaultdict(list)
    answer = []
    for _, k, v in sorted(row for part in parts for row in part):
        history[k].append(v)
        if len(history[k]) % 3 == 0:
            answer.append((k, sum(history[k][-5:]), history[k][-5:][0]))
    return Case(flow, {"left": counts_of(ours), "right": counts_of(theirs)}, **every_row(answer, drop="ts"))


class Numbers(ef.Processor):
    """Each row of a key with its number and the sum so far: no row may be missing, twice, or out of order."""

    output = "k bigint, number bigint, total bigint"

    def open(self, store: Any) -> None:
        store.value("number", "bigint", default=0)
        store.value("total", "bigint", default=0)

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        made = []
        for v in rows.column("v").to_pylist():
            state.number += 1
            state.total += v
            made.append((key[0], state.number, state.total))
        return made


def boxes(random: Random, rows: int) -> Case:
    """The user's code, which sees the rows of a key in event-time order."""
    parts = make_rows(random, random.randint(1, 3), max(1, rows // 3), 12)
    flow = ef.Dataflow("boxes")
    stream = flow.source(source(parts, random), name="in").with_watermark("ts", "0 seconds")
    stream.key_by("k").process(Numbers()).name("numbers").to(ef.sinks.memory("out"), name="out")
    counts: Counter[int] = Counter()
    totals: Counter[int] = Counter()
    answer = []
    for _, k, v in sorted(row for part in parts for row in part):
        counts[k] += 1
        totals[k] += v
        answer.append((k, counts[k], totals[k]))
    return Case(flow, {"in": counts_of(parts)}, **every_row(answer))


def late(random: Random, rows: int) -> Case:
    """Windows whose watermark leaves no time: every row is either in a window or among the late ones. Two sinks."""
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    for part in parts:
        for at in range(0, len(part) - 8, 5):
            if random.random() < 0.3:
                part[at], part[at + 7] = part[at + 7], part[at]
    flow = ef.Dataflow("late")
    made = flow.source(source(parts, random), name="in").with_watermark("ts", "0 seconds").group_by("k").window("100 microseconds")
    counted = made.agg(n="count(*)")
    counted.select("k", "n").to(ef.sinks.memory("out"), name="out")
    counted.late().select("k", "v", "ts").to(ef.sinks.memory("late"), name="late")
    inputs = Counter(k for part in parts for _, k, _ in part)
    every = Counter(row for part in parts for row in part)

    def found(tables: Tables) -> Counter[int]:
        seen: Counter[int] = Counter()
        for k, n in rows_of(tables["out"]):
            seen[k] += n
        for k, _, _ in rows_of(tables["late"]):
            seen[k] += 1
        return seen

    def judge_part(tables: Tables) -> Complaint:
        known = [(micros_of(ts), k, v) for k, v, ts in rows_of(tables["late"])]
        return too_much(known, every.elements()) or (
            None if found(tables) <= inputs else f"more rows than there were: {found(tables) - inputs}"
        )

    def judge(tables: Tables) -> Complaint:
        return judge_part(tables) or differ(found(tables).elements(), inputs.elements())

    return Case(flow, {"in": counts_of(parts)}, judge, judge_part)


def micros_of(ts: Any) -> int:
    """A datetime without a zone as microseconds since 1970."""
    since: timedelta = ts - datetime(1970, 1, 1)
    return since // timedelta(microseconds=1)


def several(random: Random, rows: int) -> Case:
    """One source, three sinks: the rows themselves, windows, running counts."""
    parts = make_rows(random, random.randint(1, 4), rows, 20)
    flow = ef.Dataflow("several")
    stream = flow.source(source(parts, random), name="in").with_watermark("ts", "1 second")
    stream.where("v > 90").select("k", "v").to(ef.sinks.memory("rows"), name="rows")
    stream.group_by("k").window("1 millisecond").agg(n="count(*)").select("k", "n").to(ef.sinks.memory("windows"), name="windows")
    stream.group_by("k").agg(n="count(*)").to(ef.sinks.memory("out"), name="out")
    every = [row for part in parts for row in part]
    high = [(k, v) for _, k, v in every if v > 90]
    in_windows = Counter((k, ts // 1000) for ts, k, _ in every)
    windowed = [(k, n) for (k, _), n in in_windows.items()]
    counted = Counter(k for _, k, _ in every)

    def judge(tables: Tables) -> Complaint:
        return (
            differ(rows_of(tables["rows"]), high)
            or differ(rows_of(tables["windows"]), windowed)
            or differ(newest(tables["out"]).values(), counted.items())
        )

    def judge_part(tables: Tables) -> Complaint:
        return too_much(rows_of(tables["rows"]), high) or too_much(rows_of(tables["windows"]), windowed)

    return Case(flow, {"in": counts_of(parts)}, judge, judge_part)


def joins(random: Random, rows: int) -> Case:
    """Two sources joined by key and time, the joined rows as they are and in windows of their own event time. No row is late."""
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    half = len(parts) // 2 or 1
    ours, theirs = parts[:half], parts[half:] or [[]]
    how = random.choice(["inner", "left", "right", "full", "semi", "anti"])
    flow = ef.Dataflow("joins")
    left = flow.source(source(ours, random), name="left").with_watermark("ts", "0 seconds")
    right = flow.source(source(theirs, random), name="right").with_watermark("ts", "0 seconds")
    nearby = "r.ts between l.ts - interval 100 microseconds and l.ts + interval 200 microseconds and l.k = r.k and l.v > r.v"
    joined = left.join(right, how=how, condition=nearby, suffix="_r", name="joined")
    joined.to(ef.sinks.memory("out"), name="out")
    joined.group_by("k_r" if how == "right" else "k").window("500 microseconds").agg(n="count(*)").to(
        ef.sinks.memory("counts"), name="counts"
    )
    answer = _joined(how, [row for part in ours for row in part], [row for part in theirs for row in part])
    timed = [(row[4], row[3]) if how == "right" else (row[1], row[0]) for row in answer]
    windows = Counter((k, ts // 500 * 500) for k, ts in timed if ts is not None)
    counts = [(k, start, n) for (k, start), n in windows.items()]

    def found(tables: Tables) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        pairs = [tuple(micros_of(v) if isinstance(v, datetime) else v for v in row) for row in rows_of(tables["out"])]
        return pairs, [(k, micros_of(start), n) for k, start, _, n in rows_of(tables["counts"])]

    def judge(tables: Tables) -> Complaint:
        pairs, windowed = found(tables)
        return differ(pairs, answer) or differ(windowed, counts)

    def judge_part(tables: Tables) -> Complaint:
        pairs, windowed = found(tables)
        return too_much(pairs, answer) or too_much(windowed, counts)

    return Case(flow, {"left": counts_of(ours), "right": counts_of(theirs)}, judge, judge_part)


def _joined(how: str, left: list[Row], right: list[Row]) -> list[tuple[Any, ...]]:
    """What a nested loop over the rows of each key gives."""
    by_key: dict[int, list[Row]] = defaultdict(list)
    for row in right:
        by_key[row[1]].append(row)
    pairs: list[tuple[Row, Row]] = []
    for a in left:
        pairs += [(a, b) for b in by_key[a[1]] if -100 <= b[0] - a[0] <= 200 and a[2] > b[2]]
    met = {row for pair in pairs for row in pair}
    if how in ("semi", "anti"):
        return [a for a in left if (a in met) == (how == "semi")]
    none = (None, None, None)
    made: list[tuple[Any, ...]] = [(*a, *b) for a, b in pairs]
    made += [(*a, *none) for a in left if a not in met] if how in ("left", "full") else []
    return made + ([(*none, *b) for b in right if b not in met] if how in ("right", "full") else [])


CASES: Final[Mapping[str, Callable[[Random, int], Case]]] = {
    "boxes": boxes, "joins": joins, "late": late, "row_windows": row_windows, "running": running, "several": several,
    "two_stages": two_stages, "windows": windows,
}  # fmt: skip
