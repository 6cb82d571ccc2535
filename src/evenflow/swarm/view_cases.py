"""Small dataflows over results that change, each box above another one, with the answers of plain Python: joins of totals, the greatest and
the exact sum of what is left, and places in an order. What a site has lost, moved or read back of their rows shows in what is left."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from random import Random
from typing import Any

import evenflow as ef
from evenflow.swarm.cases import Case, Complaint, Tables, counts_of, differ, make_rows, rows_of, source

TOTALS = "(SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k)"
VIEWS = {
    "joined": f"""SELECT a.k, a.n, a.s, b.low, b.high FROM {TOTALS} AS a LEFT JOIN
        (SELECT k % 5 AS side, min(s) AS low, max(n) AS high FROM {TOTALS} GROUP BY k % 5) AS b ON a.k % 7 = b.side AND a.n <= b.high""",
    "alone": f"""SELECT a.k, a.n FROM {TOTALS} AS a LEFT ANTI JOIN
        (SELECT k % 3 AS side, max(s) AS high FROM {TOTALS} GROUP BY k % 3) AS b ON a.k % 3 = b.side AND a.s = b.high""",
    "sums": f"SELECT k % 3 AS side, sum(s / 3.0D) AS total, count(DISTINCT n) AS sizes FROM {TOTALS} GROUP BY k % 3",
    "best": f"SELECT k, n, rank() OVER (PARTITION BY k % 2 ORDER BY n DESC) AS place FROM {TOTALS}",
    "cut": f"SELECT k, s FROM {TOTALS} ORDER BY s DESC, k LIMIT 3 OFFSET 1",
}


def views(random: Random, rows: int) -> Case:
    """Some views over the totals of keys. A sink for each."""
    parts = make_rows(random, random.randint(1, 3), rows, 14)
    flow = ef.Dataflow("views")
    stream = flow.source(source(parts, random), name="in")
    chosen = sorted(random.sample(sorted(VIEWS), random.choice([1, 2, 3])))
    for name in chosen:
        ef.sql(VIEWS[name], {"t": stream}, output_mode="changelog").to(ef.sinks.memory(name), name=name)
    of_key: dict[int, list[int]] = defaultdict(list)
    for _, k, v in (row for part in parts for row in part):
        of_key[k].append(v)
    answers = _answers([(k, len(vs), sum(vs)) for k, vs in sorted(of_key.items())])

    def judge(tables: Tables) -> Complaint:
        for name in chosen:
            if complaint := differ(_left(tables[name]).elements(), answers[name]):
                return f"{name}: {complaint}"
        return None

    def judge_part(tables: Tables) -> Complaint:
        for name in chosen:
            left = _left(tables[name])
            if wrong := [row for row, times in left.items() if times not in (0, 1)]:
                return f"{name}: {wrong[0]} is there {left[wrong[0]]} times"
        return None

    return Case(flow, {"in": counts_of(parts)}, judge, judge_part, cut=False)


def _answers(totals: list[tuple[int, int, int]]) -> dict[str, list[tuple[Any, ...]]]:
    def of(parts: int) -> dict[int, list[tuple[int, int, int]]]:
        return {side: mine for side in range(parts) if (mine := [row for row in totals if row[0] % parts == side])}

    fives = {side: (min(s for *_, s in mine), max(n for _, n, _ in mine)) for side, mine in of(5).items()}
    joined: list[tuple[Any, ...]] = []
    for k, n, s in totals:
        found = fives.get(k % 7)
        joined.append((k, n, s, *(found if found is not None and n <= found[1] else (None, None))))
    highs = {side: max(s for *_, s in mine) for side, mine in of(3).items()}
    places = sorted(totals, key=lambda row: (-row[2], row[0]))
    return {
        "joined": joined,
        "alone": [(k, n) for k, n, s in totals if s != highs[k % 3]],
        "sums": [(side, math.fsum(s / 3.0 for *_, s in mine), len({n for _, n, _ in mine})) for side, mine in of(3).items()],
        "best": [(k, n, 1 + sum(m > n for j, m, _ in totals if j % 2 == k % 2)) for k, n, _ in totals],
        "cut": [(k, s) for k, _, s in places[1:4]],
    }


def _left(table: Any) -> Counter[tuple[Any, ...]]:
    """How often each row is left by a changelog whose last column says what rows do."""
    left: Counter[tuple[Any, ...]] = Counter()
    for *row, change in rows_of(table):
        left[tuple(row)] += -1 if change in ("update_before", "delete") else 1
    return left
