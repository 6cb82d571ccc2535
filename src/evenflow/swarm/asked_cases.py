"""A small dataflow with boxes that answer otherwise each time they are asked: replicas, successors and copies go by one answer (N1).

Whatever was answered, each row has come out once, with one answer or as a dead letter, and totals are of exactly these answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from random import Random
from typing import Any, Final

import evenflow as ef
from evenflow.availability.mode import Mode
from evenflow.swarm.cases import Case, Complaint, Tables, counts_of, differ, make_rows, rows_of, source, too_much
from evenflow.swarm.mode_cases import Declared

Asked = Callable[[int, int], Awaitable[int]]
REMODED_SINCE: Final = 11_090_000
"""From this seed on their modes change."""


def answering(random: Random, failing: float) -> Asked:
    """Gives no answer twice, and sometimes none."""
    numbers = count(1)

    async def answer(k: int, v: int) -> int:
        number = next(numbers)
        if random.random() < failing:
            raise LookupError(f"answer {number} was not found")
        return number

    return answer


def asked(random: Random, rows: int, *, remoded: bool = False) -> Case:
    """Rows with their answers, those that have none, and totals of the answers, perhaps asked for twice. remoded: all may have
    amnesia for a while."""
    declared = Declared()
    parts = make_rows(random, random.randint(1, 4), rows, 14)
    failing, twice = random.choice([0.0, 0.1]), random.random() < 0.4
    answers = Random(f"answers {random.random()}")
    flow = ef.Dataflow("asked")
    stream = flow.source(source(parts, random), name="in")
    if random.random() < 0.3:
        stream = stream.repartition()
    given: dict[str, Any] = {"on": ("k", "v"), "concurrency": 1, "retries": 0}
    found = stream.lookup(answering(answers, failing), "first bigint", on_error="skip", **given, name="ask")
    if twice:
        found = found.where("v >= 0 or v < 0").lookup(answering(answers, 0.0), "second bigint", **given, name="ask_again")
    else:
        found = found.with_columns(second="first + 1")
    found.to(ef.sinks.memory("rows"), name="rows")
    found.group_by("k").agg(n="count(*)", first="sum(first)", second="sum(second)").to(ef.sinks.memory("totals"), name="totals")
    stream.flow.stream("ask", 1).to(ef.sinks.memory("dead"), name="dead")
    wanted = [(k, v) for part in parts for _, k, v in part]

    def outputs(tables: Tables) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        return [(k, v, first, second) for _, k, v, first, second in rows_of(tables["rows"])], rows_of(tables["dead"])

    def judge(tables: Tables) -> Complaint:
        if remoded and declared.anything:
            return judge_part(tables)
        found, dead = outputs(tables)
        if complaint := differ([*[row[:2] for row in found], *[(k, v) for _, k, v, _ in dead]], wanted):
            return complaint
        sums: dict[int, Counter[str]] = {}
        for k, _, first, second in found:
            sums.setdefault(k, Counter()).update(n=1, first=first, second=second)
        newest = {k: totals for k, *totals in rows_of(tables["totals"])}
        complaint = differ([(k, *totals) for k, totals in newest.items()], [(k, s["n"], s["first"], s["second"]) for k, s in sums.items()])
        return f"totals: {complaint}" if complaint else judge_part(tables)

    def judge_part(tables: Tables) -> Complaint:
        found, dead = outputs(tables)
        if complaint := too_much([*[row[:2] for row in found], *[(k, v) for _, k, v, _ in dead]], wanted):
            return complaint
        of: dict[int, tuple[int, int]] = {}
        for k, v, first, _ in found:  # Equal keys of an epoch are asked once.
            if of.setdefault(first, (k, v)) != (k, v):
                return f"answer {first} was given to {(k, v)} and to {of[first]}"
        return None

    modes = {"*": (Mode.PAIRS, Mode.AMNESIA)} if remoded else {}
    return Case(flow, {"in": counts_of(parts)}, judge, judge_part, cut=False, watch=declared.watch, modes=modes)
