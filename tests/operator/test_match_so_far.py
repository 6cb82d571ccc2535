"""Conditions on the match so far, against the definition: all ways to match in order of preference, each row judged by the rows taken."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawn import examples, one_in
from tests.operator.test_match import SCHEMA, WITHIN, Tree, allowed, batch, by_start, empty, grow, run, text

import evenflow as ef
from evenflow.errors import ArithmeticOverflow, MatchTooWide
from evenflow.kernels.hash import hash_columns
from evenflow.operator.match import Match
from evenflow.query.pattern import compile_pattern
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

pytestmark = pytest.mark.one_in(2)

Row = tuple[int, int, int | None, bool, bool, bool]
Taken = tuple[tuple[str, int], ...]
"""The rows of a match so far: the variable and the number of each."""
Judge = Callable[[Sequence[Row], Taken], Any]
"""What an expression is of the last of the rows taken."""


# ---------------------------------------------------------------- random conditions, and what they mean


def chosen(rows: Sequence[Row], taken: Taken, of: str) -> list[int | None]:
    return [rows[at][2] for name, at in taken if of in ("", name)]


def place(of: str, function: str, offset: int) -> Judge:
    def judge(rows: Sequence[Row], taken: Taken) -> Any:
        values = chosen(rows, taken, of)
        if function == "LAST":
            values = values[::-1]
        return values[offset] if offset < len(values) else None

    return judge


def total(of: str, function: str) -> Judge:
    def judge(rows: Sequence[Row], taken: Taken) -> Any:
        values = [value for value in chosen(rows, taken, of) if value is not None]
        match function:
            case "COUNT":
                return len(values)
            case _ if not values:
                return None
            case "SUM":
                return sum(values)
            case "AVG":
                return sum(values) / len(values)
            case "MIN":
                return min(values)
        return max(values)

    return judge


def row_before(rows: Sequence[Row], taken: Taken) -> Any:
    at = taken[-1][1]
    return rows[at - 1][2] if at and rows[at][0] - rows[at - 1][0] <= WITHIN else None


def term(draw: random.Random, own: str, variables: Sequence[str]) -> tuple[str, Judge]:
    of = draw.choice(["", own, *variables])
    name = f"{of}.v" if of else "v"
    match draw.choice(["own", "const", "prev", "place", "place", "column", "total", "total", "rows"]):
        case "own":
            return draw.choice(["v", f"{own}.v"]), place("", "LAST", 0)
        case "const":
            number = draw.randint(-6, 6)
            return str(number), lambda rows, taken: number
        case "prev":
            return f"PREV({draw.choice(['v', f'{own}.v'])})", row_before
        case "place":
            function, offset = draw.choice(["FIRST", "LAST"]), draw.choice([0, 0, 1, 2])
            return f"{function}({name}{f', {offset}' if offset else ''})", place(of, function, offset)
        case "column":
            return name, place(of, "LAST", 0)
        case "total":
            function = draw.choice(["COUNT", "SUM", "AVG", "MIN", "MAX"])
            return f"{function}({name})", total(of, function)
    return f"COUNT({of + '.' if of else ''}*)", lambda rows, taken: sum(of in ("", label) for label, _ in taken)


def compared(draw: random.Random, own: str, variables: Sequence[str]) -> tuple[str, Judge]:
    """Two terms, with a sum if that is no average, and whether there is none."""
    (a, left), (b, right) = term(draw, own, variables), term(draw, own, variables)
    if draw.random() < 0.15:
        return f"{a} IS NULL", lambda rows, taken: left(rows, taken) is None
    sign = draw.choice(["<", ">", "<=", ">=", "<>"])
    more = draw.randint(0, 9)

    def judge(rows: Sequence[Row], taken: Taken) -> bool | None:
        x, y = left(rows, taken), right(rows, taken)
        if x is None or y is None:
            return None
        y = y + more
        return bool({"<": x < y, ">": x > y, "<=": x <= y, ">=": x >= y, "<>": x != y}[sign])

    return f"{a} {sign} {b} + {more}", judge


def condition(draw: random.Random, own: str, variables: Sequence[str]) -> tuple[str, Judge]:
    said, judge = compared(draw, own, variables)
    if draw.random() < 0.5:
        return said, judge
    other, other_judge = compared(draw, own, variables)
    flag = "abc".index(own.lower()) + 3
    if draw.random() < 0.4:
        return (
            f"{own.lower()} AND ({said}) and {other}",
            lambda rows, taken: rows[taken[-1][1]][flag] and judge(rows, taken) is True and other_judge(rows, taken) is True,
        )
    return f"({said}) OR {other}", lambda rows, taken: judge(rows, taken) is True or other_judge(rows, taken) is True


Define = dict[str, tuple[str, Judge]]


def ways(tree: Tree, rows: Sequence[Row], stop: int, at: int, taken: Taken, define: Define) -> Iterator[Taken]:
    """Every way to go on behind `taken`, best first."""
    match tree:
        case ("row", name):
            more = (*taken, (name, at))
            if at < stop and (name not in define or define[name][1](rows, more) is True):
                yield more
        case ("one of", parts):
            for part in parts:
                yield from ways(part, rows, stop, at, taken, define)
        case ("all", parts):
            if not parts:
                yield taken
                return
            for first in ways(parts[0], rows, stop, at, taken, define):
                yield from ways(("all", parts[1:]), rows, stop, at + len(first) - len(taken), first, define)
        case ("times", part, least, most):
            if most is None or most > 0:
                for first in ways(part, rows, stop, at, taken, define):
                    fewer = ("times", part, max(least - 1, 0), None if most is None else most - 1)
                    yield from ways(fewer, rows, stop, at + len(first) - len(taken), first, define)
            if least == 0:
                yield taken


def expected(tree: Tree, given_rows: Sequence[Row], skip: str, define: Define) -> list[dict[str, Any]]:
    """The matches of each key by their start: bounds, values and labels."""
    found = []
    for k in range(3):
        mine = [row for row in given_rows if row[1] == k]
        at = 0
        while at < len(mine):
            stop = sum(row[0] <= mine[at][0] + WITHIN for row in mine)
            best = next(ways(tree, mine, stop, at, (), define), None)
            if best is None:
                at += 1
                continue
            labels = "".join(name for name, _ in best)
            found.append(
                {"k": k, "match_start": mine[at][0], "match_end": mine[best[-1][1]][0], "labels": labels, "vs": chosen(mine, best, "")}
            )
            if skip == "past last row":
                at += len(best)
            elif skip == "to next row":
                at += 1
            else:
                at += max(1, labels.find(skip[-1]) if "first" in skip else labels.rfind(skip[-1]))
    return found


def make(draw: random.Random, count: int) -> list[Row]:
    ts, made = 0, []
    for _ in range(count):
        ts += draw.choice([0, 1, 1, 2, 2, 3, 20])
        v = None if draw.random() < 0.1 else draw.randint(-5, 5)
        made.append((ts, draw.randrange(3), v, *(draw.random() < share for share in (0.7, 0.7, 0.7))))
    return made


def drawn(seed: int) -> tuple[random.Random, Tree, str, Define]:
    """(the generator, a pattern, its text, conditions of some of its variables of which one reads the match so far)."""
    draw = random.Random(seed)
    while True:
        tree = grow(draw, 3)
        if empty(tree) or not allowed(tree):
            continue
        pattern = text(tree)
        variables = compile_pattern(pattern).variables
        define = {name: condition(draw, name, variables) for name in variables if draw.random() < 0.8}
        probe = Match(SCHEMA, ("k",), "ts", pattern, [(n, c) for n, (c, _) in define.items()], [("n", "count(*)")], WITHIN, "past last row")
        if probe._tries is not None:
            return draw, tree, pattern, define


def operator(pattern: str, define: Sequence[tuple[str, str]], skip: str, rows: str = "one", within: int = WITHIN) -> Match:
    calls = {
        "one": [("vs", "collect_list(coalesce(v, 99))"), ("n", "count(*)"), ("last", "classifier()")],
        "all": [("w", "classifier()")],
        "with unmatched": [("w", "classifier()"), ("nr", "match_number()")],
    }
    return Match(SCHEMA, ("k",), "ts", pattern, define, calls[rows], within, skip, rows)


SKIPS = ["past last row", "to next row", "to first ", "to last "]


@settings(max_examples=examples(20, 400), deadline=None, derandomize=True)
@given(seed=st.integers(0, 1 << 20), skip=st.sampled_from(SKIPS), cuts=st.lists(st.integers(1, 60), max_size=6))
def test_every_match_is_the_one_that_trying_all_ways_finds(seed: int, skip: str, cuts: list[int]) -> None:
    draw, tree, pattern, define = drawn(seed)
    rows = make(draw, draw.choice([3, 12, 30]))
    if skip.endswith(" "):
        skip += draw.choice(compile_pattern(pattern).variables)
    said = [(name, words) for name, (words, _) in define.items()]
    wanted = expected(tree, rows, skip, define)
    match = operator(pattern, said, skip)
    found = run(match, rows, sorted(cuts))
    assert match._table.count == 0
    assert found == run(operator(pattern, said, skip), rows, []), "in the same order however they come"
    ends = [
        {
            "k": m["k"], "match_start": m["match_start"], "match_end": m["match_end"],
            "vs": [99 if v is None else v for v in m["vs"]], "n": len(m["vs"]), "last": m["labels"][-1],
        }
        for m in wanted
    ]  # fmt: skip
    assert by_start(found) == ends
    every = run(operator(pattern, said, skip, "all"), rows, sorted(cuts))
    assert [(r["k"], r["match_start"], r["v"], r["w"]) for r in by_start(every)] == [
        (m["k"], m["match_start"], v, w) for m in wanted for v, w in zip(m["vs"], m["labels"], strict=True)
    ]
    both = run(operator(pattern, said, skip, "with unmatched"), rows, sorted(cuts))
    assert [{k: v for k, v in row.items() if k != "nr"} for row in both if row["w"] is not None] == every
    if skip == "past last row":
        assert len(both) == len(rows), "each row is in one match or in none"


def test_there_is_something_to_find() -> None:
    counts = []
    for seed in range(60):
        draw, tree, _, define = drawn(seed)
        counts.append(len(expected(tree, make(draw, 30), "past last row", define)))
    assert sum(count > 2 for count in counts) > 20
    assert sum(count > 0 for count in counts) > 30


MEANINGS = {
    "v": 32, "B.v": 32, "LAST(v)": 32, "LAST(B.v)": 32, "LAST(v, 0)": 32, "LAST(v, 1)": 16, "LAST(v, 4)": 2, "LAST(v, 5)": 1,
    "LAST(v, 6)": None, "FIRST(v)": 1, "FIRST(v, 2)": 4, "FIRST(v, 5)": 32, "FIRST(v, 6)": None, "PREV(v)": 16,
    "A.v": 8, "LAST(A.v)": 8, "LAST(A.v, 1)": 4,
    "LAST(A.v, 3)": 1, "LAST(A.v, 4)": None, "FIRST(A.v)": 1, "FIRST(A.v, 1)": 2, "FIRST(A.v, 3)": 8, "FIRST(A.v, 4)": None,
    "LAST(B.v, 1)": 16, "FIRST(B.v)": 16, "FIRST(B.v, 1)": 32, "LAST(B.v, 2)": None, "C.v": None, "FIRST(C.v)": None, "COUNT(C.*)": 0,
    "SUM(C.v)": None, "MAX(C.v)": None, "COUNT(*)": 6, "COUNT(1)": 6, "COUNT(A.*)": 4, "COUNT(B.v)": 2, "COUNT(v)": 6, "SUM(v)": 63,
    "SUM(A.v)": 15, "SUM(B.v)": 48, "SUM(A.v + 1)": 19, "AVG(B.v)": 24, "AVG(A.v)": 3.75, "MIN(v)": 1, "MAX(v)": 32, "MIN(B.v)": 16,
    "MAX(A.v)": 8, "MIN(A.v * A.v)": 1, "MAX(A.v) - LAST(A.v, 1) + SUM(B.v)": 52, "LAST(A.v * 3, 1)": 12,
}  # fmt: skip


@pytest.mark.parametrize(("call", "value"), one_in(3, MEANINGS.items(), spread=True), ids=list(MEANINGS))
def test_what_an_expression_is_in_the_condition_of_a_row(call: str, value: float | None) -> None:
    """Of the second B behind four A."""
    rows = [(at, 1, 1 << at, True, True, True) for at in range(6)]
    same, other = (f"{call} IS NULL", "IS NOT NULL") if value is None else (f"{call} = {value}", f"<> {value}")
    for cuts in ([], [1, 2, 3, 4, 5]):
        for condition, count in ((same, 1), (f"{call} {other}", 0)):
            define = [("B", f"COUNT(B.*) = 1 OR {condition}"), ("C", "C")]
            assert len(run(operator("A{4} B{2} | C{7}", define, "past last row"), rows, cuts)) == count, condition


@pytest.mark.parametrize("seed", one_in(3, range(12)))
def test_many_ways_that_conditions_tell_apart(seed: int) -> None:
    """Every row can be several variables, so that a start has far more partial matches than the program has states."""
    draw = random.Random(seed)
    tree = [
        ("all", (("times", ("row", "A"), 1, None), ("times", ("row", "B"), 1, None), ("row", "C"))),
        ("all", (("times", ("one of", (("row", "A"), ("row", "B"))), 1, None), ("row", "C"))),
        ("all", (("times", ("row", "A"), 1, None), ("times", ("row", "B"), 0, None), ("times", ("row", "A"), 1, None), ("row", "C"))),
    ][seed % 3]
    goal, least = draw.randint(2, 6), draw.randint(-6, 6)

    def ended(rows: Sequence[Row], taken: Taken) -> bool:
        values = chosen(rows, taken, "B")
        return len(values) == goal and sum(v for v in values if v is not None) > least

    define: Define = {"C": (f"COUNT(B.*) = {goal} AND COALESCE(SUM(B.v), 0) > {least}", ended)}
    rows = [(at, 0, draw.randint(-5, 5), True, True, True) for at in range(14)]
    for skip in SKIPS[:2]:
        found = run(operator(text(tree), [("C", define["C"][0])], skip, "all"), rows, [5, 9])
        wanted = expected(tree, rows, skip, define)
        assert [(r["match_start"], r["w"]) for r in by_start(found)] == [(m["match_start"], w) for m in wanted for w in m["labels"]]


def test_a_row_may_be_a_whole_bound_after_the_first() -> None:
    define = [("B", "v > LAST(A.v)")]
    for gap, count in ((WITHIN, 1), (WITHIN + 1, 0)):
        rows = [(5, 1, 1, True, True, True), (5 + gap, 1, 2, True, True, True)]
        for cuts in ([], [5 + gap], [6, 5 + gap]):
            assert len(run(operator("A B", define, "past last row"), rows, cuts)) == count


# ---------------------------------------------------------------- what others document

TICKER = pa.schema([("symbol", pa.string()), ("ts", pa.timestamp("us")), ("price", pa.int64()), ("tax", pa.int64())])


def ticked(query: str, prices: Sequence[tuple[int, int]], cuts: Sequence[int] = ()) -> list[dict[str, Any]]:
    """What MATCH_RECOGNIZE of a query puts out. prices: (time, price) of one symbol, in time order."""
    flow = ef.Dataflow("q")
    given = {"Ticker": flow.source(ef.sources.memory([], 1, schema=TICKER), name="ticker").with_watermark("ts", "1 second")}
    (box,) = ef.sql(query, given).flow.network.of_kind("pattern")
    params = box.params
    match = Match(
        TICKER, params["keys"], "ts", params["pattern"], params["define"], params["measures"], params["within_us"], params["skip"],
        params["rows"],
    )  # fmt: skip
    found, before = [], NO_WATERMARK
    for epoch, after in enumerate([*cuts, END_OF_STREAM], 1):
        some = [{"symbol": "ACME", "ts": ts, "price": price, "tax": 1} for ts, price in prices if before <= ts < after]
        made = pa.RecordBatch.from_pylist(some, schema=TICKER)
        hashes = hash_columns(made, ["symbol"])
        (out,) = match.process(Rows(made, np.zeros(len(some), np.int32), hashes), Tick(epoch, 0, before, after))
        found += out.batch.to_pylist()
        before = after
    return found


def every(seconds: int, *prices: int) -> list[tuple[int, int]]:
    return [(at * seconds * 1_000_000, price) for at, price in enumerate(prices)]


def bounds(found: Sequence[dict[str, Any]], seconds: int) -> list[tuple[float, float]]:
    epoch = datetime(1970, 1, 1)
    step = timedelta(seconds=seconds)
    return [((row["match_start"] - epoch) / step, (row["match_end"] - epoch) / step) for row in found]


FLINK = """
    SELECT * FROM Ticker MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY ts
        MEASURES {measures}
        ONE ROW PER MATCH
        {after}
        PATTERN ({pattern}) WITHIN INTERVAL '1' HOUR
        DEFINE {define}
    ) MR
"""
AVERAGED = (12, 17, 13, 16, 25, 2, 4, 10, 15, 25, 25, 30)


@pytest.mark.parametrize("cuts", [(), (3_500_000,), tuple(range(500_000, 12_000_000, 1_000_000))])
def test_an_average_that_does_not_exceed_a_limit(cuts: Sequence[int]) -> None:
    """Flink's documentation, Pattern Recognition: Aggregations."""
    query = FLINK.format(
        measures="AVG(A.price) AS avgPrice", after="AFTER MATCH SKIP PAST LAST ROW", pattern="A+ B", define="A AS AVG(A.price) < 15"
    )
    found = ticked(query, every(1, *AVERAGED), cuts)
    # The rows of A, which Flink's table shows; the match has B's behind them.
    assert [row["avgPrice"] for row in found] == [14.5, 13.5]
    assert bounds(found, 1) == [(0, 4), (5, 11)]


def test_a_price_that_is_compared_with_the_last_of_its_variable() -> None:
    """Flink's documentation: Output Mode, and Pattern Navigation."""
    query = FLINK.format(
        measures="FIRST(A.price) AS startPrice, LAST(A.price) AS topPrice, B.price AS lastPrice", after="", pattern="A+ B",
        define="A AS LAST(A.price, 1) IS NULL OR A.price > LAST(A.price, 1), B AS B.price < LAST(A.price)",
    )  # fmt: skip
    (found,) = ticked(query, every(1, 10, 12, 13, 11))
    assert (found["startPrice"], found["topPrice"], found["lastPrice"]) == (10, 13, 11)


def test_sums_of_a_variable_and_of_all() -> None:
    """Flink's documentation: Pattern Variable Referencing. The row of 35 would make 111 and 101."""
    query = FLINK.format(
        measures="LAST(B.price) AS last, SUM(price) AS total", after="", pattern="A B+",
        define="A AS A.price >= 10, B AS B.price > A.price AND SUM(price) < 100 AND SUM(B.price) < 80",
    )  # fmt: skip
    (found,) = ticked(query, every(1, 10, 15, 20, 31, 35))
    assert (found["last"], found["total"]) == (31, 76)


def test_logical_offsets() -> None:
    """Flink's documentation: Logical Offsets. 35 is less than 2 * 20."""
    query = FLINK.format(
        measures="LAST(B.price) AS last", after="", pattern="A B+",
        define="""A AS A.price >= 10, B AS (LAST(B.price, 1) IS NULL OR B.price > LAST(B.price, 1))
            AND (LAST(B.price, 2) IS NULL OR B.price > 2 * LAST(B.price, 2))""",
    )  # fmt: skip
    (found,) = ticked(query, every(1, 10, 15, 20, 31, 35))
    assert found["last"] == 31


def test_a_drop_from_the_first_row_within_an_hour() -> None:
    """Flink's documentation: Time constraint. Another variable's column is that of its last row."""
    query = FLINK.format(
        measures="A.price - C.price AS dropDiff", after="AFTER MATCH SKIP PAST LAST ROW", pattern="A B* C",
        define="B AS B.price > A.price - 10, C AS C.price < A.price - 10",
    )  # fmt: skip
    found = ticked(query, every(20 * 60, 20, 17, 18, 11, 14, 9, 15, 14, 24, 1, 19))
    assert [row["dropDiff"] for row in found] == [14]
    assert bounds(found, 20 * 60) == [(6, 9)]


# ---------------------------------------------------------------- bounds


def test_a_long_partial_match_goes_on_through_epochs() -> None:
    rows = [(at, 1, 1, True, True, True) for at in range(400)]
    match = operator("A+ B", [("A", "SUM(A.v) <= 150")], "past last row", within=1000)
    found = run(match, rows, list(range(10, 400, 10)))
    assert [(row["match_start"], row["match_end"]) for row in found] == [(0, 150), (151, 301), (302, 399)]


def test_ways_that_no_condition_tells_apart_are_one() -> None:
    """2 to the power of 60 ways, of which each row leaves two."""
    rows = [(at, 1, 1, True, True, True) for at in range(60)]
    found = run(operator("(A | B)+ C", [("C", "COUNT(*) > 59")], "past last row", within=100), rows, [])
    assert [(row["match_start"], row["match_end"]) for row in found] == [(0, 59)]


def test_too_many_ways_are_an_error_that_says_what_to_do() -> None:
    rows = [(at, 1, 1 << at, True, True, True) for at in range(40)]
    match = operator("(A | B)+ C", [("C", "SUM(A.v) < 0")], "past last row", within=100)
    with pytest.raises(MatchTooWide, match="box 'pattern': there are more than 10000 ways to match from one row.*fewer of its variables"):
        run(match, rows, [])


def test_starts_of_which_there_are_too_many_ways_wait_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(at, at % 3, at % 7, True, True, True) for at in range(90)]
    define = [("A", "SUM(A.v) < 30"), ("B", "v >= FIRST(A.v)")]

    def found(skip: str) -> list[dict[str, Any]]:
        return run(operator("A+ B+ (A | B) C", define, skip, within=40), rows, [20, 50])

    whole = {skip: found(skip) for skip in SKIPS[:2]}
    monkeypatch.setattr("evenflow.operator.match_tries.MOST_AT_ONCE", 20)
    assert {skip: found(skip) for skip in SKIPS[:2]} == whole
    assert min(map(len, whole.values())) > 3


def test_a_start_that_is_known_behind_one_that_is_not_has_its_own_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts wait for others of which there are too many ways; of those behind them some end at once; then fewer are tried."""
    true = {"a": {0, 1, 2, 10, 13}, "b": {*range(2, 9), 11, 14}, "c": {12, 15}}
    v = {**{at: 1 << (at - 2) for at in range(2, 9)}, 11: -1, 14: -1}
    rows = [(at, 1, v.get(at, 0), *(at in true[name] for name in "abc")) for at in range(16)]
    define = [("A", "a"), ("B", "b"), ("C", "b"), ("D", "c AND SUM(B.v) < 0")]
    monkeypatch.setattr("evenflow.operator.match_tries.MOST_AT_ONCE", 30)
    monkeypatch.setattr("evenflow.operator.match_tries.WASTE", 1)
    found = run(operator("A (B | C)+ D", define, "past last row", "all", within=100), rows, [])
    assert [(row["ts"].microsecond, row["w"]) for row in found] == list(zip((10, 11, 12, 13, 14, 15), "ABDABD", strict=True))


@pytest.mark.parametrize("seed", range(examples(4, 60)))
def test_how_many_starts_are_tried_at_once_is_not_seen(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, _, pattern, define = drawn(seed)
    rows, said = make(draw, 60), [(name, words) for name, (words, _) in define.items()]
    skip = draw.choice(["past last row", "to next row"])
    whole = run(operator(pattern, said, skip, "all", within=40), rows, [])
    monkeypatch.setattr("evenflow.operator.match_tries.MOST_AT_ONCE", draw.choice([1, 9, 30]))
    monkeypatch.setattr("evenflow.operator.match_tries.WASTE", draw.choice([1, 4]))
    assert run(operator(pattern, said, skip, "all", within=40), rows, []) == whole


def test_what_is_tried_in_advance_raises_nothing() -> None:
    """A sum leaves its range from a row where no match begins. It must not matter how many starts are tried with it, in which epoch."""
    v = [5, -(2**62), 2**62, 2**62, 1]
    rows = [(at, key, value, True, True, True) for at, value in enumerate(v) for key in (1, 2)]
    for cuts in ([], [1], [2], [3], [1, 2, 3, 4]):
        found = run(operator("A{3}", [("A", "SUM(A.v) <> 5")], "past last row"), rows, cuts)
        assert [(row["match_start"], row["match_end"]) for row in found] == [(1, 3)] * 2, cuts


def test_what_raises_where_a_match_could_begin_raises_however_rows_come() -> None:
    v = [0, 1, 2**62, 2**62, 1]
    rows = [(at, 1, value, True, True, True) for at, value in enumerate(v)]
    for cuts in ([], [1], [2], [3], [1, 2, 3, 4]):
        with pytest.raises(ArithmeticOverflow):
            run(operator("A{3}", [("A", "SUM(A.v) <> 0")], "past last row"), rows, cuts)


def test_a_start_with_too_many_ways_is_no_error_where_no_match_begins() -> None:
    """The match of the second row ends behind all the rows from which there would be too many."""
    rows = [(at, 1, 1 << at if at else 0, True, True, at == 40) for at in range(41)]
    rows[1:2] = [(1, 1, 1, True, True, False)]
    define = [("X", "v = 1"), ("A", "v <> 1"), ("B", "v <> 1"), ("C", "c AND SUM(A.v) < 0")]
    found = run(operator("X Y{39} | (A | B)+ C", define, "past last row", within=100), rows, [])
    assert [(row["match_start"], row["match_end"]) for row in found] == [(1, 40)]


def test_a_sum_out_of_range_says_so() -> None:
    rows = [(at, 1, 2**62, True, True, True) for at in range(3)]
    with pytest.raises(ArithmeticOverflow, match="a sum of a match so far left the range of bigint"):
        run(operator("A+ B", [("A", "SUM(A.v) > 0")], "past last row"), rows, [])
    found = run(operator("A+ B", [("A", f"AVG(A.v) = {2**62}")], "past last row"), rows, [])
    assert [row["match_end"] for row in found] == [2], "an average has no range to leave"


VALUES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), False, True), (pa.date32(), date(1960, 1, 1), date(2020, 1, 1)), (pa.string(), "a", "b"), (pa.binary(), b"a", b"b"),
    (pa.decimal128(10, 2), Decimal("-2.25"), Decimal("1.50")), (pa.float32(), 1.5, float("nan")), (pa.int8(), -4, 3),
    (pa.uint64(), 3, 2**64 - 1), (pa.list_(pa.int64()), [0, 5], [1]), (pa.struct([("a", pa.int64())]), {"a": 0}, {"a": 1}),
    (pa.duration("us"), timedelta(0), timedelta(1)), (pa.timestamp("us"), datetime(2019, 1, 1), datetime(2020, 1, 1)),
]  # fmt: skip


def of_type(kind: pa.DataType, values: Sequence[Any], condition: str) -> list[Any]:
    """How many rows of each match of A+ are A. The rows come in two epochs."""
    schema = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("x", kind)])
    stamps = pa.array(range(len(values)), pa.int64()).view(pa.timestamp("us"))
    whole = pa.RecordBatch.from_arrays([stamps, pa.array([1] * len(values)), pa.array(values, kind)], schema=schema)
    match = Match(schema, ("k",), "ts", "A+", [("A", condition)], [("n", "count(*)")], WITHIN, "past last row")
    found = []
    for epoch, (begin, before, after) in enumerate(((0, NO_WATERMARK, 4), (4, 4, END_OF_STREAM)), 1):
        some = whole.slice(begin, 4 if epoch == 1 else len(values))
        rows = Rows(some, np.zeros(some.num_rows, np.int32), hash_columns(some, ["k"]))
        found += match.process(rows, Tick(epoch, 0, before, after))[0].batch.column("n").to_pylist()
    return found


@pytest.mark.parametrize(("kind", "low", "high"), VALUES, ids=[str(kind) for kind, _, _ in VALUES])
def test_columns_of_any_type(kind: pa.DataType, low: Any, high: Any) -> None:
    values = [high, low, None] * 3
    ordered = "MIN(A.x) <= MAX(x) AND (x IS NULL OR MIN(A.x) <= x AND MAX(x) >= x AND x = LAST(A.x))"
    assert of_type(kind, values, f"{ordered} AND COUNT(A.x) > 0 AND FIRST(A.x) IS NOT NULL") == [9]
    assert of_type(kind, values, "MIN(A.x) = LAST(A.x) OR COUNT(*) = 1") == [2, 3, 3, 1]
    assert of_type(kind, values, "COUNT(*) < 4 OR LAST(x, 3) = LAST(A.x) OR LAST(A.x, 3) IS NULL") == [9]
    assert of_type(kind, values, "COUNT(A.x) = 1") == [1, 2, 1, 2, 1, 2]


def test_a_sum_of_numbers_without_a_sign_has_its_range() -> None:
    assert of_type(pa.uint64(), [3, 2**63 - 4, None], "SUM(A.x) > 0") == [3]
    assert of_type(pa.uint64(), [2**64 - 1], f"AVG(A.x) > {2**63}") == [1]
    with pytest.raises(ArithmeticOverflow):
        of_type(pa.uint64(), [3, 2**64 - 1], "SUM(A.x) > 0")


def test_what_conditions_read_of_waiting_rows_is_held_and_shown() -> None:
    match = operator("A B", [("B", "v > PREV(v) + LAST(A.v) + COUNT(A.*)")], "past last row")
    match.process(batch([(0, 1, 5, True, True, True)]), Tick(1, 0, NO_WATERMARK, 1))
    assert match.shown.names == ["k", "v", "_prev_v", "_time", "_can_be"]
    assert match._table.count == 2
    found = run(operator("A B", [("B", "v > PREV(v) + LAST(A.v) + COUNT(A.*)")], "past last row"), [
        (0, 1, 5, True, True, True), (1, 1, 11, True, True, True), (2, 1, 24, True, True, True),
    ], [1, 2])  # fmt: skip
    assert [(row["match_start"], row["match_end"]) for row in found] == [(1, 2)]
