"""A small dataflow whose branches have modes of availability of their own, each output judged by its guarantee (availability.md, M1).

A branch that is precise has every row, once. One that may have gaps has nothing that the rows do not give, and lacks nothing where no loss
was declared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pyarrow as pa

import evenflow as ef
from evenflow.availability.mode import Mode
from evenflow.query.builder import Stream
from evenflow.swarm.cases import Case, Complaint, Parts, Tables, counts_of, differ, make_rows, micros_of, rows_of, source

MODED: Final = 1 / 3
"""So many seeds have modes."""
MIXED_SINCE, MIXED = 11_000_000, 0.5
"""From that seed on so many of those with a checkpoint location have passive standby and upstream backup together, one before the other."""
BRANCHES: Final = ("rows", "windows", "totals", "sums", "sessions")
NEVER_CLOSE: Final = ("totals", "sums")
"""Branches with a state that follows from all rows."""


def is_moded(seed: int) -> bool:
    """Its boxes have modes of availability."""
    return Random(f"modes of seed {seed}").random() < MODED


def is_mixed(seed: int) -> bool:
    """If it has modes and a checkpoint location, boxes that begin again from a checkpoint feed others that are fed anew, or get fed."""
    return seed >= MIXED_SINCE and Random(f"both modes of seed {seed}").random() < MIXED


@dataclass
class Declared:
    """What the run's coordinator has said of losses. world: the newest generation's."""

    world: Any = field(default=None)

    def watch(self, world: Any) -> None:
        self.world = world

    @property
    def anything(self) -> bool:
        losses = self.world.coordinator.losses
        return bool(losses.anew or losses.voided or losses.rows)


@dataclass(frozen=True)
class Branch:
    """name: of its sink. boxes: that have its modes. modes: that they may have. answer: what it puts out where nothing is lost, by key.
    all_of: (key, value) of each row that it has put out. newest: the last one of a key counts, else all together."""

    name: str
    modes: tuple[Mode, ...]
    answer: dict[Any, int]
    all_of: Callable[[pa.Table], list[tuple[Any, int]]]
    newest: bool
    boxes: tuple[str, ...]

    @property
    def precise(self) -> bool:
        return Mode.AMNESIA not in self.modes

    def found(self, table: pa.Table) -> dict[Any, int]:
        found: Counter[Any] = Counter()
        for key, value in self.all_of(table):
            found[key] = value if self.newest else found[key] + value
        return dict(found)

    def judge(self, table: pa.Table, declared: Declared) -> Complaint:
        if self.precise or not declared.anything:
            complaint = differ(self.found(table).items(), self.answer.items())
            return complaint and f"{self.name}: {complaint}{'' if self.precise else ', and no loss was declared'}"
        return self.judge_part(table)

    def judge_part(self, table: pa.Table) -> Complaint:
        """Nothing that the rows do not give: a row counts once at most."""
        if self.name == "sessions":  # Where a row is missing, one session may be two.
            found = Counter({k: sum(n for key, n in self.all_of(table) if key[0] == k) for k in {key[0] for key, _ in self.all_of(table)}})
            most = Counter({k: sum(n for key, n in self.answer.items() if key[0] == k) for k in found})
            return f"{self.name}: beyond what was put in: {found - most}" if found - most else None
        wrong = [(key, n) for key, n in self.found(table).items() if n > self.answer.get(key, 0)]
        wrong += [(key, n) for key, n in self.all_of(table) if n > self.answer.get(key, 0)]
        return f"{self.name}: beyond what was put in: {wrong[:3]}" if wrong else None


def among(*, located: bool) -> tuple[Mode, ...]:
    """The modes of which one is drawn beside pairs. With a checkpoint location there is passive standby; without there is amnesia. Upstream
    backup needs none."""
    return (Mode.PASSIVE if located else Mode.AMNESIA, Mode.UPSTREAM)


def moded(random: Random, rows: int, modes: Sequence[Mode], delay: str = "1 second", alike: float = 0.3) -> Case:
    """Branches of one source. modes: of which one is drawn beside pairs. Upstream backup is for branches whose states close. delay: of the
    watermark; with a long one states close at the end only. alike: so often all branches have it, if it is not upstream backup."""
    parts = make_rows(random, random.randint(1, 4), rows, 14)
    cheaper = random.choice(modes)
    whole = random.random() < alike and cheaper is not Mode.UPSTREAM
    flow = ef.Dataflow("modes")
    named = flow.source(source(parts, random), name="in").with_watermark("ts", delay)
    given: Any = str(cheaper)
    stream = named.availability(given) if whole else named
    branches = []
    for name in random.sample(BRANCHES, random.randint(2, len(BRANCHES))):
        mode = cheaper if whole else random.choice([Mode.PAIRS, cheaper, cheaper])
        if cheaper is Mode.UPSTREAM and name in NEVER_CLOSE:
            mode = Mode.PAIRS
        either = (Mode.PAIRS, cheaper) if mode is cheaper and not whole else (mode,)
        branches.append(branch_of(stream, name, mode, either, parts))
    declared = Declared()

    def judge_by(ask: Callable[[Branch, pa.Table], Complaint]) -> Callable[[Tables], Complaint]:
        return lambda tables: next((said for each in branches if (said := ask(each, tables[each.name])) is not None), None)

    return Case(
        flow, {"in": counts_of(parts)}, judge_by(lambda branch, table: branch.judge(table, declared)), judge_by(Branch.judge_part),
        cut=False, watch=declared.watch, modes={box: branch.modes for branch in branches if len(branch.modes) > 1 for box in branch.boxes},
    )  # fmt: skip


def mixed(random: Random, rows: int) -> Case:
    """Branches of one source, in which what has passive standby feeds what has upstream backup, or is fed by it."""
    parts = make_rows(random, random.randint(1, 4), rows, 14)
    flow = ef.Dataflow("modes")
    delay = random.choice(["1 microsecond", "1 second"])
    stream = flow.source(source(parts, random), name="in").with_watermark("ts", delay)
    branches = [_of_both(stream, name, parts) for name in random.sample(("firsts", "sums"), random.randint(1, 2))]
    branches += [branch_of(stream, "rows", Mode.UPSTREAM, (Mode.PAIRS, Mode.UPSTREAM), parts)] if random.random() < 0.5 else []

    def judge(tables: Tables) -> Complaint:
        return next((said for each in branches if (said := each.judge(tables[each.name], Declared())) is not None), None)

    def judge_part(tables: Tables) -> Complaint:
        return next((said for each in branches if (said := each.judge_part(tables[each.name])) is not None), None)

    return Case(flow, {"in": counts_of(parts)}, judge, judge_part, cut=False)


def _of_both(stream: Stream, name: str, parts: Parts) -> Branch:
    """Keys that came before, which have a checkpoint, before windows; or windows before sums."""
    every = [row for part in parts for row in part]
    modes = (Mode.PASSIVE, Mode.UPSTREAM)
    if name == "firsts":
        once = stream.drop_duplicates(["k", "v", "ts"]).name(f"{name}_once").availability("passive")
        made = once.group_by("k").window("500 microseconds").agg(n="count(*)").name(f"{name}_counted").availability("upstream")
        made.select("k", "n", "window_start").to(ef.sinks.memory(name), name=name, availability="upstream")
        counts = Counter((k, ts // 500 * 500) for ts, k, _ in every)
        return Branch(name, modes, counts, lambda table: [((k, micros_of(at)), n) for k, n, at in rows_of(table)], False, ())
    first = stream.where("v >= 0").group_by("k").window("1 millisecond").agg(n="count(*)").name(f"{name}_counted").availability("upstream")
    second = first.select("k % 5 as g", "n").group_by("g").agg(n="sum(n)").name(f"{name}_summed").availability("passive")
    second.to(ef.sinks.memory(name), name=name, availability="passive")
    sums: Counter[int] = Counter()
    for _, k, v in every:
        sums[k % 5] += v >= 0
    answer = {g: n for g, n in sums.items() if n}
    return Branch(name, modes, answer, lambda table: [(key, n) for key, n in rows_of(table)], True, ())


def branch_of(stream: Stream, name: str, mode: Mode, modes: tuple[Mode, ...], parts: Parts) -> Branch:
    """From the source to a sink of this name."""
    every = [row for part in parts for row in part]
    said: Any = str(mode)
    sink: dict[str, Any] = {"name": name, "availability": said}
    counted, summed = f"{name}_counted", f"{name}_summed"
    counts: Counter[Any] = Counter()
    if name == "rows":
        stream.select("k", "v", "ts").to(ef.sinks.memory(name), **sink)
        counts.update((k, v, ts) for ts, k, v in every)
        return Branch(name, modes, counts, lambda table: [((k, v, micros_of(ts)), 1) for k, v, ts in rows_of(table)], False, (name,))
    if name == "windows":
        made = stream.group_by("k").window("500 microseconds").agg(n="count(*)").name(counted).availability(said)
        made.select("k", "n", "window_start").to(ef.sinks.memory(name), **sink)
        counts.update((k, ts // 500 * 500) for ts, k, _ in every)
        return Branch(name, modes, counts, lambda table: [((k, micros_of(at)), n) for k, n, at in rows_of(table)], False, (name, counted))
    if name == "sessions":
        made = stream.group_by("k").session("20 microseconds").agg(n="count(*)").name(counted).availability(said)
        made.select("k", "n", "window_start").to(ef.sinks.memory(name), **sink)
        before: dict[int, tuple[int, int]] = {}
        for ts, k, _ in sorted(every):
            start, last = before.get(k, (ts, ts))
            before[k] = (start if ts - last <= 20 else ts, ts)
            counts[k, before[k][0]] += 1
        return Branch(name, modes, counts, lambda table: [((k, micros_of(at)), n) for k, n, at in rows_of(table)], False, (name, counted))
    if name == "totals":
        stream.group_by("k").agg(n="count(*)").name(counted).availability(said).to(ef.sinks.memory(name), **sink)
        counts.update(k for _, k, _ in every)
        return Branch(name, modes, counts, lambda table: [(key, n) for key, n in rows_of(table)], True, (name, counted))
    first = stream.where("v >= 0").group_by("k").window("1 millisecond").agg(n="count(*)").name(counted).availability(said)
    second = first.select("k % 5 as g", "n").group_by("g").agg(n="sum(n)").name(summed).availability(said)
    second.to(ef.sinks.memory(name), **sink)
    sums: defaultdict[int, int] = defaultdict(int)
    for _, k, v in every:
        sums[k % 5] += v >= 0
    answer = {g: n for g, n in sums.items() if n}
    return Branch(name, modes, answer, lambda table: [(key, n) for key, n in rows_of(table)], True, (name, counted, summed))
