"""More small dataflows with the answers of plain Python: one for each operator on one stream, and for what goes wrong with single rows."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any, Final

import pyarrow as pa

import evenflow as ef
from evenflow.swarm.cases import (
    Case,
    Complaint,
    Numbers,
    Parts,
    Row,
    Tables,
    counts_of,
    differ,
    every_row,
    every_row_in,
    make_rows,
    newest,
    rows_of,
    source,
    too_much,
)


def stamp(micros: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(microseconds=micros)


def by_key(parts: Parts) -> dict[int, list[Row]]:
    """Each key's rows by time."""
    found: dict[int, list[Row]] = defaultdict(list)
    for row in sorted(row for part in parts for row in part):
        found[row[1]].append(row)
    return found


def drawn(name: str, parts: Parts, random: Random, delay: str = "1 second") -> tuple[ef.Dataflow, ef.Stream]:
    flow = ef.Dataflow(name)
    return flow, flow.source(source(parts, random), name="in").with_watermark("ts", delay)


def sessions(random: Random, rows: int) -> Case:
    """Sessions of a key, and those of all rows, which are few and long."""
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    flow, stream = drawn("sessions", parts, random)
    gap = random.choice([30, 200])
    made = stream.group_by("k").session(timedelta(microseconds=gap)).agg(n="count(*)", total="sum(v)", last="last(v)")
    made.to(ef.sinks.memory("out"), name="out")
    answer = []
    for k, mine in by_key(parts).items():
        cuts = [0, *(at + 1 for at, (one, other) in enumerate(pairwise(mine)) if other[0] - one[0] > gap), len(mine)]
        for start, stop in pairwise(cuts):
            session = mine[start:stop]
            bounds = stamp(session[0][0]), stamp(session[-1][0] + gap)
            answer.append((k, *bounds, len(session), sum(v for _, _, v in session), session[-1][2]))
    return Case(flow, {"in": counts_of(parts)}, **every_row(answer))


def changing(random: Random, rows: int) -> Case:
    """Windows that are put out more than once: whenever rows have come, and again for rows that are late but not too late. Three sinks."""
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    for part in parts:
        for at in range(0, len(part) - 8, 5):
            part[at], part[at + 7] = part[at + 7], part[at]
    flow, stream = drawn("changing", parts, random, "0 seconds")
    groups = stream.group_by("k")
    updated = groups.window("300 microseconds", mode="update", allowed_lateness="1 second").agg(n="count(*)", total="sum(v)")
    again = groups.window("400 microseconds", "200 microseconds", allowed_lateness="1 second").agg(n="count(*)", low="min(v)")
    updated.to(ef.sinks.memory("updated"), name="updated")
    again.to(ef.sinks.memory("again"), name="again")
    updated.late().union(again.late()).to(ef.sinks.memory("late"), name="late")
    windows: dict[str, dict[tuple[int, datetime], list[int]]] = {"updated": defaultdict(list), "again": defaultdict(list)}
    for ts, k, v in (row for part in parts for row in part):
        windows["updated"][k, stamp(ts // 300 * 300)].append(v)
        for start in (ts // 200 * 200, ts // 200 * 200 - 200):
            windows["again"][k, stamp(start)].append(v)
    answer = {
        "updated": {key: (len(vs), sum(vs)) for key, vs in windows["updated"].items()},
        "again": {key: (len(vs), min(vs)) for key, vs in windows["again"].items()},
    }

    def judge(tables: Tables) -> Complaint:
        for sink, wanted in answer.items():
            found = {(row[0], row[1]): row[3:] for row in rows_of(tables[sink])}
            if complaint := differ(found.items(), wanted.items()):
                return f"{sink}: {complaint}"
        return judge_part(tables)

    def judge_part(tables: Tables) -> Complaint:
        for sink, wanted in answer.items():
            counts: dict[tuple[Any, ...], int] = {}
            for k, start, _, n, _ in rows_of(tables[sink]):
                if not counts.get((k, start), 0) < n <= wanted[k, start][0]:
                    return f"{sink}: window {start} of key {k} goes from {counts.get((k, start), 0)} to {n} rows"
                counts[k, start] = n
        return too_much(rows_of(tables["late"]), [])

    return Case(flow, {"in": counts_of(parts)}, judge, judge_part)


def changelogs(random: Random, rows: int) -> Case:
    """What is left of changes: of totals per key and window, of those that a condition lets pass, of totals of these, which subtract, and
    the whole tables that they make. Four sinks."""
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    flow, stream = drawn("changelogs", parts, random, "0 seconds")
    windows = stream.group_by("k").window("300 microseconds", mode="changelog", allowed_lateness="forever")
    windows.agg(n="count(*)", low="min(v)").to(ef.sinks.memory("windows"), name="windows")
    positive = stream.group_by("k").agg(n="count(*)", total="sum(v)", mode="changelog").where("total > 0")
    sides = positive.with_columns(odd="n % 2 = 1").group_by("odd")
    totals = sides.agg(keys="count(*)", total="sum(total)", mean="avg(n)", mode="changelog")
    positive.to(ef.sinks.memory("positive"), name="positive")
    totals.to(ef.sinks.memory("totals"), name="totals")
    every = timedelta(milliseconds=random.choice([1, 20, 1000]))
    positive.complete(every, order_by="total desc").to(ef.sinks.memory("table"), name="table")
    of_window: dict[tuple[int, int], list[int]] = defaultdict(list)
    of_key: dict[int, list[int]] = defaultdict(list)
    for ts, k, v in (row for part in parts for row in part):
        of_window[k, ts // 300 * 300].append(v)
        of_key[k].append(v)
    kept = [(k, len(vs), sum(vs)) for k, vs in of_key.items() if sum(vs) > 0]
    of_side = {odd: [(n, total) for _, n, total in kept if n % 2 == odd] for odd in (False, True)}
    wanted: dict[str, list[tuple[Any, ...]]] = {
        "windows": [(k, stamp(start), stamp(start + 300), len(vs), min(vs)) for (k, start), vs in of_window.items()],
        "positive": kept,
        "totals": [
            (odd, len(side), sum(total for _, total in side), sum(n for n, _ in side) / len(side)) for odd, side in of_side.items() if side
        ],
    }

    def judge(tables: Tables) -> Complaint:
        for sink, answer in wanted.items():
            if complaint := differ(_left(tables[sink]).elements(), answer):
                return f"{sink}: {complaint}"
        whole = sorted(kept, key=lambda row: (-row[2], row[0]))
        found = rows_of(tables["table"])
        return None if found[len(found) - len(whole) :] == whole else f"the last table is not {whole}"

    def judge_part(tables: Tables) -> Complaint:
        for sink in wanted:
            left = _left(tables[sink])
            if wrong := [row for row, times in left.items() if times not in (0, 1)]:
                return f"{sink}: {wrong[0]} is there {left[wrong[0]]} times"
        return None

    return Case(flow, {"in": counts_of(parts)}, judge, judge_part)


def _left(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """How often each row is left by a changelog whose last column says what rows do."""
    left: Counter[tuple[Any, ...]] = Counter()
    for *row, change in rows_of(table):
        left[tuple(row)] += -1 if change in ("update_before", "delete") else 1
    return left


def duplicates(random: Random, rows: int) -> Case:
    """The earliest row of each key, and which keys there are. Two sinks."""
    parts = make_rows(random, random.randint(1, 4), rows, 60)
    flow, stream = drawn("duplicates", parts, random, "0 seconds")
    stream.drop_duplicates("k", order="event_time").select("ts", "k", "v").to(ef.sinks.memory("out"), name="out")
    stream.select("k").drop_duplicates().to(ef.sinks.memory("keys"), name="keys")
    earliest = [(stamp(mine[0][0]), *mine[0][1:]) for mine in by_key(parts).values()]
    return Case(flow, {"in": counts_of(parts)}, **every_row_in({"out": earliest, "keys": [(k,) for k in by_key(parts)]}))


def top_rows(random: Random, rows: int) -> Case:
    """The greatest rows of each key and window, and of those the greatest of all keys."""
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    flow, stream = drawn("top", parts, random)
    best = stream.group_by("k").window("400 microseconds").top(2, order_by="v desc")
    greatest = best.drop("rank").group_by().window("400 microseconds").top(3, order_by=["v desc", "k"])
    greatest.to(ef.sinks.memory("out"), name="out")
    of_window: dict[int, list[Row]] = defaultdict(list)
    for row in (row for part in parts for row in part):
        of_window[row[0] // 400].append(row)
    answer = []
    for number, mine in of_window.items():
        start = stamp(number * 400), stamp(number * 400 + 400)
        kept = [row for k in range(12) for row in sorted((r for r in mine if r[1] == k), key=lambda r: (-r[2], r[0]))[:2]]
        ranked = sorted(kept, key=lambda r: (-r[2], r[1], r[0]))[:3]
        answer += [(*start, rank, k, stamp(ts), v) for rank, (ts, k, v) in enumerate(ranked, 1)]
    return Case(flow, {"in": counts_of(parts)}, **every_row(answer))


def idle(random: Random, rows: int) -> Case:
    """Two sources that are idle after little silence: event time goes on without them, and each row is in a window or late. Two sinks."""
    parts = make_rows(random, random.randint(2, 4), rows, 12)
    half = len(parts) // 2
    shares = {"left": parts[:half], "right": parts[half:]}
    flow = ef.Dataflow("idle")
    silence = timedelta(milliseconds=random.choice([2, 20, 200]))
    left, right = (
        flow.source(source(share, random), name=name).with_watermark("ts", "0 seconds", idle=silence) for name, share in shares.items()
    )
    counted = left.union(right).group_by("k").window("100 microseconds").agg(n="count(*)")
    counted.select("k", "n").to(ef.sinks.memory("out"), name="out")
    counted.late().select("k").to(ef.sinks.memory("late"), name="late")
    inputs = Counter(k for part in parts for _, k, _ in part)

    def found(tables: Tables) -> Counter[int]:
        seen = Counter(k for (k,) in rows_of(tables["late"]))
        for k, n in rows_of(tables["out"]):
            seen[k] += n
        return seen

    return Case(
        flow,
        {name: counts_of(share) for name, share in shares.items()},
        lambda tables: differ(found(tables).elements(), inputs.elements()),
        lambda tables: too_much(found(tables).elements(), inputs.elements()),
    )


def latest(random: Random, rows: int) -> Case:
    """Each row with the newest one of its key of another source, whose rows come and go."""
    parts = make_rows(random, random.randint(2, 4), rows, 12)
    half = len(parts) // 2
    ours, theirs = parts[:half], parts[half:]
    flow = ef.Dataflow("latest")
    left = flow.source(source(ours, random), name="left").with_watermark("ts", "0 seconds")
    right = flow.source(source(theirs, random), name="right").with_watermark("ts", "0 seconds").select("ts", "k", "v as seen")
    how: Any = random.choice(["left", "inner"])
    left.join_latest(right, "k", how, deleted="seen > 60", suffix="_r").to(ef.sinks.memory("out"), name="out")
    changes = by_key(theirs)
    answer: list[tuple[Any, ...]] = []
    for k, mine in by_key(ours).items():
        for ts, _, v in mine:
            before = [row for row in changes.get(k, []) if row[0] <= ts]
            if before and before[-1][2] <= 60:
                answer.append((stamp(ts), k, v, stamp(before[-1][0]), before[-1][2]))
            elif how == "left":
                answer.append((stamp(ts), k, v, None, None))
    return Case(flow, {"left": counts_of(ours), "right": counts_of(theirs)}, **every_row(answer))


def resampled(random: Random, rows: int) -> Case:
    """Values at regular times, none across long gaps, counted in windows, which have to wait for them."""
    parts = make_rows(random, random.randint(1, 4), rows, 6)
    flow, stream = drawn("resampled", parts, random, random.choice(["0 seconds", "1 second"]))
    values = stream.group_by("k").resample("20 microseconds", "v", how="previous", max_gap="150 microseconds")
    made = values.group_by("k").window("100 microseconds").agg(n="count(*)", total="sum(v)")
    made.select("k", "n", "total").to(ef.sinks.memory("out"), name="out")
    windows: dict[tuple[int, int], list[int]] = defaultdict(list)
    for k, mine in by_key(parts).items():
        for at, (ts, _, v) in enumerate(mine):
            alone = at == 0 or ts - mine[at - 1][0] > 150
            first = ts if alone else mine[at - 1][0] + 1
            for grid in range(-(-first // 20) * 20, ts + 1, 20):
                windows[k, grid // 100].append(v if grid == ts else mine[at - 1][2])
    answer = [(k, len(found), sum(found)) for (k, _), found in windows.items()]
    return Case(flow, {"in": counts_of(parts)}, **every_row(answer))


def patterns(random: Random, rows: int) -> Case:
    """Rows of a key that rise, after a low one and before a high one, if that takes not too long; wherever they begin, one after the
    other, or from a row of the one before. Python's regular expressions find the same in a text with a letter for each row."""
    parts = make_rows(random, random.randint(1, 4), rows, 6)
    flow, stream = drawn("patterns", parts, random)
    within = random.choice([60, 400, 5_000])
    skip = random.choice(["past last row", "to next row"])
    skip = {3: "to last R", 4: "to first H"}.get(len(parts), skip)
    rising = stream.group_by("k").pattern(
        "L (R | S{,2} H)+ H?",
        define={"L": "v < -30", "R": "v >= -30 and v <= 50 and v > prev(v)", "S": "v >= -30 and v <= 50 and v <= prev(v)", "H": "v > 50"},
        measures={"n": "count(*)", "low": "L.v", "total": "sum(R.v)", "high": "first(H.v)"},
        within=timedelta(microseconds=within),
        skip=skip,
    )
    rising.to(ef.sinks.memory("out"), name="out")
    answer: list[tuple[Any, ...]] = []
    for k, mine in by_key(parts).items():
        times, values = [ts for ts, _, _ in mine], [v for _, _, v in mine]
        letters = "".join(
            letter_of(v, values[at - 1] if at and times[at] - times[at - 1] <= within else None) for at, v in enumerate(values)
        )
        at = 0
        while at < len(mine):
            found = re.compile("L(?:R|S{0,2}H)+H?").match(letters, at, bisect_right(times, times[at] + within))
            if found is not None:
                of: dict[str, list[int]] = {letter: [v for v, x in zip(values[at:], found[0]) if x == letter] for letter in "LRH"}
                total, high = sum(of["R"]) if of["R"] else None, of["H"][0] if of["H"] else None
                answer.append((k, stamp(times[at]), stamp(times[found.end() - 1]), len(found[0]), values[at], total, high))
            ends = found.end() if found is not None and skip == "past last row" else at + 1
            if found is not None and len(parts) > 2:
                ends = at + max(1, found[0].rfind("R") if len(parts) == 3 else found[0].find("H"))
            at = ends
    return Case(flow, {"in": counts_of(parts)}, **every_row(answer))


def letter_of(v: int, before: int | None) -> str:
    """What the row is in `patterns`."""
    if v < -30:
        return "L"
    if v > 50:
        return "H"
    return "x" if before is None else "R" if v > before else "S"


def sorted_rows(random: Random, rows: int) -> Case:
    """Every row comes out of a sort once and in order; out of a buffer, once. Two sinks."""
    parts = make_rows(random, random.randint(1, 4), rows, 8)
    flow, stream = drawn("sorted", parts, random)
    stream.sort().to(ef.sinks.memory("out"), name="out")
    stream.key_by("k").bsort("v", random.choice([1, 3, 20])).to(ef.sinks.memory("nearly"), name="nearly")
    answer = [(stamp(ts), k, v) for ts, k, v in sorted(row for part in parts for row in part)]

    def judge(tables: Tables) -> Complaint:
        return judge_part(tables) or differ(rows_of(tables["out"]), answer) or differ(rows_of(tables["nearly"]), answer)

    def judge_part(tables: Tables) -> Complaint:
        found = rows_of(tables["out"])
        if found != answer[: len(found)]:
            return f"the sorted rows are not the first {len(found)} in order"
        return too_much(rows_of(tables["nearly"]), answer)

    return Case(flow, {"in": counts_of(parts)}, judge, judge_part)


def repeated(batch: pa.RecordBatch) -> Any:
    """Each row as often as its v has tens."""
    made = [
        (k, v, at) for at, (k, v) in enumerate(zip(batch["k"].to_pylist(), batch["v"].to_pylist(), strict=True)) for _ in range(v // 10)
    ]
    return {"k": [k for k, _, _ in made], "v": [v for _, v, _ in made]}, [at for _, _, at in made]


def branches(random: Random, rows: int) -> Case:
    """A case with three outputs: one multiplied by a function, one put into lists and taken out again, one counted. Three sinks."""
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    flow, stream = drawn("branches", parts, random)
    high, low, rest = stream.case("v > 50", "v < -50", name="case")
    high.flat_map(repeated, "k bigint, v bigint", name="repeat").to(ef.sinks.memory("many"), name="many")
    lists = low.group_by("k").window("300 microseconds").agg(vs="collect_list(v)")
    lists.select("k", "vs").explode("vs", into="v", position="at").to(ef.sinks.memory("elements"), name="elements")
    rest.group_by("k").agg(n="count(*)").to(ef.sinks.memory("out"), name="out")
    every = [row for part in parts for row in part]
    many = [(k, v) for _, k, v in every if v > 50 for _ in range(v // 10)]
    counts = Counter(k for _, k, v in every if -50 <= v <= 50)
    elements, places = [], Counter[tuple[int, int]]()
    for ts, k, v in sorted(every):
        if v < -50:
            elements.append((k, places[k, ts // 300], v))
            places[k, ts // 300] += 1

    final = every_row_in({"many": many, "elements": elements})

    def judge(tables: Tables) -> Complaint:
        return final["judge"](tables) or differ(newest(tables["out"]).values(), counts.items())

    return Case(flow, {"in": counts_of(parts)}, judge, final["judge_part"])


BY_ZERO: Final = "DivideByZero: division by zero in '1 / (v - 7) <= 1'; guard it with nullif(divisor, 0) or CASE WHEN"


def fractions(batch: pa.RecordBatch) -> pa.Array:
    """1000 / v, rounded down; v must not be a multiple of ten."""
    values = batch["v"].to_pylist()
    if any(v % 10 == 0 for v in values):
        raise ZeroDivisionError("a multiple of ten")
    return pa.array([1000 // v for v in values], pa.int64())


class Accepting(Numbers):
    """Numbers rows as its parent does; of a row with v below -80 it says so when it has written its state already."""

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        made = super().process(key, rows, state)
        if min(rows["v"].to_pylist()) < -80:
            raise LookupError(f"key {key[0]} does not take that")
        return made


def poison(random: Random, rows: int) -> Case:
    """Rows on which a function, an expression, and a processor raise, are put aside; everything else is as if they were not there."""
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    flow, stream = drawn("poison", parts, random, "0 seconds")
    divided = stream.with_columns(f=fractions).name("divide")
    asked = divided.where("1 / (v - 7) <= 1").name("ask")
    numbered = asked.key_by("k").process(Accepting()).name("accept")
    numbered.to(ef.sinks.memory("out"), name="out")
    for failing in (divided, asked, numbered):
        letters = failing.dead_letters().select("ts", "k", "v", "error")
        letters.to(ef.sinks.memory(f"{failing.box.name}_dead"), name=f"{failing.box.name}_dead")
    taken: dict[str, list[tuple[Any, ...]]] = {"out": [], "divide_dead": [], "ask_dead": [], "accept_dead": []}
    for k, mine in by_key(parts).items():
        number, total = 0, 0
        for ts, _, v in mine:
            if v % 10 == 0:
                taken["divide_dead"].append((stamp(ts), k, v, "ZeroDivisionError: a multiple of ten"))
            elif v == 7:
                taken["ask_dead"].append((stamp(ts), k, v, BY_ZERO))
            elif v < -80:
                taken["accept_dead"].append((stamp(ts), k, v, f"LookupError: key {k} does not take that"))
            else:
                number, total = number + 1, total + v
                taken["out"].append((k, number, total))
    return Case(flow, {"in": counts_of(parts)}, **every_row_in(taken))


def dealt(random: Random, rows: int) -> Case:
    """Rows that go to any partition, are changed there, counted by key behind it, and their totals dealt out again. Three sinks."""
    parts = make_rows(random, random.randint(1, 4), rows, 12)
    flow, stream = drawn("dealt", parts, random)
    there = stream.repartition(random.choice([None, 1, 3, 8])).where("v >= -50").select("ts", "k", "v * 2 as w")
    there.select("k", "w").to(ef.sinks.memory("out"), name="out")
    counted = there.group_by("k").window("500 microseconds").agg(n="count(*)", total="sum(w)")
    counted.select("k", "n", "total").to(ef.sinks.memory("windows"), name="windows")
    totals = there.group_by("k").agg(n="count(*)").repartition()
    totals.select("k", "n").to(ef.sinks.memory("totals"), name="totals")
    kept = [(ts, k, 2 * v) for part in parts for ts, k, v in part if v >= -50]
    answer = [(k, w) for _, k, w in kept]
    sums: dict[tuple[int, int], list[int]] = defaultdict(list)
    for ts, k, w in kept:
        sums[k, ts // 500].append(w)
    windows = [(k, len(ws), sum(ws)) for (k, _), ws in sums.items()]
    counts = Counter(k for _, k, _ in kept)
    so_far = [(k, n) for k, count in counts.items() for n in range(1, count + 1)]

    def judge(tables: Tables) -> Complaint:
        newest_totals = [(k, n) for k, n in rows_of(tables["totals"]) if n == counts[k]]
        of_rows = differ(rows_of(tables["out"]), answer) or differ(rows_of(tables["windows"]), windows)
        return of_rows or differ(newest_totals, list(counts.items())) or too_much(rows_of(tables["totals"]), so_far)

    def judge_part(tables: Tables) -> Complaint:
        of_rows = too_much(rows_of(tables["out"]), answer) or too_much(rows_of(tables["windows"]), windows)
        return of_rows or too_much(rows_of(tables["totals"]), so_far)

    return Case(flow, {"in": counts_of(parts)}, judge, judge_part)


SHAPED: Final[Mapping[str, Callable[[Random, int], Case]]] = {
    "branches": branches, "changelogs": changelogs, "changing": changing, "dealt": dealt, "duplicates": duplicates, "idle": idle,
    "latest": latest, "patterns": patterns, "poison": poison, "resampled": resampled, "sessions": sessions, "sorted": sorted_rows,
    "top": top_rows,
}  # fmt: skip
