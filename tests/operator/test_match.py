"""Patterns against two references that share nothing with them: Python's `re`, over a text with a letter for each row, and all ways to
match, tried one after the other in order of preference."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.errors import ArithmeticOverflow
from evenflow.kernels.hash import hash_columns
from evenflow.operator.match import Match
from evenflow.operator.measures import Measures
from evenflow.query.pattern import ACCEPT, compile_pattern
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema(
    [("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.int64()), ("a", pa.bool_()), ("b", pa.bool_()), ("c", pa.bool_())]
)
WITHIN = 12
Given = tuple[int, int, int, bool, bool, bool]
Tree = tuple[Any, ...]


# ---------------------------------------------------------------- random patterns, and what they mean


def grow(draw: random.Random, depth: int) -> Tree:
    """A pattern: ("row", name), ("all", parts), ("one of", parts), or ("times", part, least, most)."""
    kind = draw.choice(["row", "row", "all", "one of", "times"]) if depth else "row"
    if kind == "row":
        return "row", draw.choice("ABC")
    if kind == "times":
        return "times", grow(draw, depth - 1), *draw.choice([(0, 1), (0, None), (1, None), (0, 2), (2, 2), (1, 3), (2, None)])
    return kind, tuple(grow(draw, depth - 1) for _ in range(draw.randint(2, 3)))


def empty(tree: Tree) -> bool:
    match tree:
        case ("row", _):
            return False
        case ("times", part, least, _):
            return least == 0 or empty(part)
        case (kind, parts):
            return (all if kind == "all" else any)(map(empty, parts))
    raise AssertionError(tree)


def allowed(tree: Tree) -> bool:
    """What a pattern may repeat must take a row."""
    match tree:
        case ("row", _):
            return True
        case ("times", part, _, _):
            return allowed(part) and not empty(part)
        case (_, parts):
            return all(map(allowed, parts))
    raise AssertionError(tree)


def text(tree: Tree, row: Any = str, space: str = " ") -> str:
    """The pattern as it is written; with another `row` and no space, as `re` has it."""
    match tree:
        case ("row", name):
            return str(row(name))
        case ("all", parts):
            return "(" + space.join(text(part, row, space) for part in parts) + ")"
        case ("one of", parts):
            return "(" + "|".join(text(part, row, space) for part in parts) + ")"
        case ("times", part, least, most):
            sign = {(0, 1): "?", (0, None): "*", (1, None): "+", (2, 2): "{2}"}.get((least, most))
            return f"({text(part, row, space)})" + (sign or f"{{{least},{'' if most is None else most}}}")
    raise AssertionError(tree)


def ways(tree: Tree, rows: Sequence[set[str]], at: int) -> Iterator[str]:
    """Every way to match from `at` on, best first: the variable of each row."""
    match tree:
        case ("row", name):
            if at < len(rows) and name in rows[at]:
                yield name
        case ("one of", parts):
            for part in parts:
                yield from ways(part, rows, at)
        case ("all", parts):
            if not parts:
                yield ""
                return
            for first in ways(parts[0], rows, at):
                for rest in ways(("all", parts[1:]), rows, at + len(first)):
                    yield first + rest
        case ("times", part, least, most):
            if most is None or most > 0:
                for first in ways(part, rows, at):
                    fewer = ("times", part, max(least - 1, 0), None if most is None else most - 1)
                    for rest in ways(fewer, rows, at + len(first)):
                        yield first + rest
            if least == 0:
                yield ""


def make(draw: random.Random, count: int) -> list[Given]:
    """Rows by time, of which some are of equal time and some can be several variables or none."""
    ts, made = 0, []
    for _ in range(count):
        ts += draw.choice([0, 1, 1, 2, 2, 3, 20])
        made.append((ts, draw.randrange(3), draw.randint(-5, 5), *(draw.random() < share for share in (0.5, 0.6, 0.4))))
    return sorted(made)


def expected(tree: Tree, given_rows: Sequence[Given], skip: str) -> list[dict[str, Any]]:
    """The matches of each key by its start. B needs a value greater than the one before, if that is near enough."""
    found = []
    for k in range(3):
        mine = [row for row in given_rows if row[1] == k]
        rows = []
        for at, (ts, _, v, *flags) in enumerate(mine):
            rises = at > 0 and ts - mine[at - 1][0] <= WITHIN and v > mine[at - 1][2]
            rows.append({name for name, flag in zip("ABC", flags, strict=True) if flag and (name != "B" or rises)})
        coded = "".join(chr(ord("p") + sum(1 << "ABC".index(name) for name in row)) for row in rows)
        pattern = re.compile(
            text(tree, lambda name: "[" + "".join(c for c in "pqrstuvw" if ord(c) - ord("p") & 1 << "ABC".index(name)) + "]", "")
        )
        at = 0
        while at < len(mine):
            stop = sum(row[0] <= mine[at][0] + WITHIN for row in mine)
            best = next(ways(tree, rows[:stop], at), None)
            by_letters = pattern.match(coded, at, stop)
            assert (best is None) == (by_letters is None)
            if best is not None and by_letters is not None:
                assert by_letters.end() == at + len(best)
                of = {name: [row[2] for row, label in zip(mine[at:], best, strict=False) if label == name] for name in "ABC"}
                bounds = {"k": k, "match_start": mine[at][0], "match_end": mine[at + len(best) - 1][0], "n": len(best)}
                values = {"first_a": of["A"][0] if of["A"] else None, "last_b": of["B"][-1] if of["B"] else None}
                rest = {"c": sum(of["C"]) if of["C"] else None, "all": [row[2] for row in mine[at : at + len(best)]], "bs": len(of["B"])}
                found.append({**bounds, **values, **rest})
            if best is not None and skip[-1] in "ABC":
                at += max(1, best.find(skip[-1]) if "first" in skip else best.rfind(skip[-1]))
            else:
                at = at + len(best) if best is not None and skip == "past last row" else at + 1
    return found


MEASURES = (
    ("n", "count(*)"), ("first_a", "FIRST(A.v)"), ("last_b", "b.v"), ("c", "sum(C.v)"), ("all", "collect_list(v)"), ("bs", "count(B.*)"),
)  # fmt: skip
DEFINE = (("A", "a"), ("B", "B.b and v > PREV(B.v)"), ("C", "c"))


def operator(pattern: str, skip: str = "past last row", define: Any = DEFINE, measures: Any = MEASURES, within: int = WITHIN) -> Match:
    used = set(compile_pattern(pattern).variables)
    measured = [(name, call) for name, call in measures if used >= set(re.findall(r"\b([ABC])\.", call.upper()))]
    return Match(SCHEMA, ("k",), "ts", pattern, [(name, text) for name, text in define if name in used], measured, within, skip)


def batch(rows: Sequence[Given | tuple[Any, ...]]) -> Rows:
    columns = list(zip(*rows, strict=True)) or [[] for _ in SCHEMA]
    plain = [pa.array(column, pa.int64() if f.name == "ts" else f.type) for column, f in zip(columns, SCHEMA, strict=True)]
    made = pa.RecordBatch.from_arrays([column.cast(f.type) for column, f in zip(plain, SCHEMA, strict=True)], schema=SCHEMA)
    hashes = hash_columns(made, ["k"])
    return Rows(made, (hashes % np.uint64(4)).astype(np.int32), hashes)


def run(match: Match, given_rows: Sequence[Given], cuts: Sequence[int]) -> list[dict[str, Any]]:
    """What comes out, in order. cuts: the watermark of each epoch, ascending; rows come as soon as it has passed them."""
    found: list[dict[str, Any]] = []
    before = NO_WATERMARK
    for epoch, after in enumerate([*cuts, END_OF_STREAM], 1):
        (out,) = match.process(batch([row for row in given_rows if before <= row[0] < after]), Tick(epoch, 0, before, after))
        stamps = [out.batch.schema.get_field_index(name) for name in ("match_start", "match_end")]
        plain = pa.table([c.view(pa.int64()) if i in stamps else c for i, c in enumerate(out.batch.columns)], names=out.batch.schema.names)
        found += plain.to_pylist()
        before = after
    return found


def by_start(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of one key and start there may be several, in the order of their rows."""
    return sorted(rows, key=lambda row: (row["k"], row["match_start"]))


# ---------------------------------------------------------------- the tests


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1 << 20), skip=st.sampled_from(["past last row", "to next row", "to first ", "to last "]),
    cuts=st.lists(st.integers(1, 60), max_size=6)
)  # fmt: skip
def test_every_match_is_the_one_that_trying_all_ways_finds(seed: int, skip: str, cuts: list[int]) -> None:
    draw = random.Random(seed)
    tree = grow(draw, 3)
    while empty(tree) or not allowed(tree):
        tree = grow(draw, 3)
    rows = make(draw, draw.choice([3, 12, 30]))
    if skip.endswith(" "):
        skip += draw.choice(compile_pattern(text(tree)).variables)
    match = operator(text(tree), skip)
    wanted = [{name: row[name] for name in match.schemas[0].names} for row in expected(tree, rows, skip)]
    assert by_start(run(match, rows, sorted(cuts))) == wanted
    assert match._table.count == 0


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1 << 20), skip=st.sampled_from(["past last row", "to next row"]), cuts=st.lists(st.integers(1, 60), max_size=4))
def test_all_rows_of_a_match_are_its_beginnings_one_by_one(seed: int, skip: str, cuts: list[int]) -> None:
    """What a measure is of a row is what it would be if the match ended there; behind FINAL it is the match's."""
    draw = random.Random(seed)
    tree = grow(draw, 3)
    while empty(tree) or not allowed(tree):
        tree = grow(draw, 3)
    rows, pattern = make(draw, draw.choice([3, 12, 30])), text(tree)
    used = compile_pattern(pattern).variables
    define = [(name, condition) for name, condition in DEFINE if name in used]
    one = used[draw.randrange(len(used))]
    running = [("n", "count(*)"), ("s", f"sum({one}.v)"), ("l", f"LAST({one}.v)"), ("m", "max(v) - min(v)"), ("w", "classifier()")]
    measures = [*running, *((f"f{name}", f"FINAL {call}") for name, call in running)]
    whole = run(Match(SCHEMA, ("k",), "ts", pattern, define, [*running, ("vs", "collect_list(v)")], WITHIN, skip), rows, sorted(cuts))
    found = run(Match(SCHEMA, ("k",), "ts", pattern, define, measures, WITHIN, skip, "all"), rows, sorted(cuts))
    at = 0
    for match in whole:
        mine, at = found[at : at + match["n"]], at + match["n"]
        assert [row["v"] for row in mine] == match["vs"] and {row["k"] for row in mine} == {match["k"]}
        labels = [row["w"] for row in mine]
        for upto, row in enumerate(mine, 1):
            values = match["vs"][:upto]
            own = [v for v, label in zip(values, labels, strict=False) if label == one]
            wanted = (upto, sum(own) if own else None, own[-1] if own else None, max(values) - min(values))
            assert (row["n"], row["s"], row["l"], row["m"]) == wanted
            assert [row[f"f{name}"] for name, _ in running] == [match[name] for name, _ in running]
            assert (row["match_start"], row["match_end"]) == (match["match_start"], match["match_end"])
    assert at == len(found)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1 << 20), skip=st.sampled_from(["past last row", "to next row", "to last "]),
    cuts=st.lists(st.integers(1, 60), max_size=5)
)  # fmt: skip
def test_rows_in_no_match_come_out_once_and_matches_are_numbered(seed: int, skip: str, cuts: list[int]) -> None:
    draw = random.Random(seed)
    tree = grow(draw, 3)
    while empty(tree) or not allowed(tree):
        tree = grow(draw, 3)
    pattern, rows = text(tree), list({row[:2]: row for row in make(draw, draw.choice([3, 12, 30]))}.values())
    skip += draw.choice(compile_pattern(pattern).variables) if skip.endswith(" ") else ""
    define = [(name, condition) for name, condition in DEFINE if name in compile_pattern(pattern).variables]
    measures = [("n", "match_number()"), ("count", "count(*)"), ("w", "classifier()")]
    matches, both, every = (
        run(Match(SCHEMA, ("k",), "ts", pattern, define, measures, WITHIN, skip, way), rows, sorted(cuts))
        for way in ("one", "all", "with unmatched")
    )
    for key in range(3):
        mine = [row for row in matches if row["k"] == key]
        assert [row["n"] for row in mine] == list(range(1, len(mine) + 1))
        assert [row["match_start"] for row in mine] == sorted(row["match_start"] for row in mine)
    starts = {(row["k"], row["n"]): row["match_start"] for row in matches}
    assert all(starts[row["k"], row["n"]] == row["match_start"] for row in both)
    assert [row for row in every if row["count"] is not None] == both
    left = [row for row in every if row["count"] is None]
    assert all((row["n"], row["w"], row["match_start"], row["match_end"]) == (None,) * 4 for row in left)
    in_some = {(row["ts"], row["k"]) for row in both}
    given_rows = [{name: row[name] for name in SCHEMA.names} for row in batch(rows).batch.to_pylist()]
    wanted = [row for row in given_rows if (row["ts"], row["k"]) not in in_some]
    found = [{name: row[name] for name in SCHEMA.names} for row in left]
    assert sorted(found, key=lambda row: (row["ts"], row["k"])) == sorted(wanted, key=lambda row: (row["ts"], row["k"]))


def test_a_number_outlives_all_rows_of_its_key() -> None:
    match = Match(SCHEMA, ("k",), "ts", "A B", [("A", "a"), ("B", "b")], [("n", "match_number()")], WITHIN, "past last row")
    numbers: list[int] = []
    for epoch in range(1, 40):
        at = epoch * 100
        rows = [] if epoch % 3 else [(at, 1, 0, True, False, False), (at + 1, 1, 0, False, True, False)]
        (out,) = match.process(batch(rows), Tick(epoch, 0, at, at + 100))
        numbers += out.batch.column("n").to_pylist()
        assert match._table.count == (epoch >= 3)
        assert match._deadlines.take(at - 100).size == 0
    assert numbers == list(range(1, 14))


def test_long_matches_are_folded_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [(at, 1, at % 7, True, False, False) for at in range(WITHIN)]
    measures = [("s", "size(collect_list(v))"), ("n", "FINAL count(*)")]
    found = []
    for most in (1, 20, 1 << 18):
        monkeypatch.setattr("evenflow.operator.measures.FOLDED_ROWS", most)
        found.append(run(Match(SCHEMA, ("k",), "ts", "A+", [("A", "a")], measures, WITHIN, "past last row", "all"), made, []))
    assert found[0] == found[1] == found[2]
    assert [row["s"] for row in found[0]] == [at + 1 for at in range(WITHIN)]


def test_a_long_match_costs_what_its_rows_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass, however long it is: beginnings are not folded one by one."""
    monkeypatch.setattr(Measures, "_beginnings", None)
    count = 40_000
    made = [(at, 1, at % 7, True, False, False) for at in range(count)]
    measures = [("s", "sum(v)"), ("m", "max(A.v)"), ("w", "classifier()"), ("f", "FINAL stddev(v)"), ("a", "avg(v)"), ("x", "first(v)")]
    found = run(Match(SCHEMA, ("k",), "ts", "A+", [("A", "a")], measures, count, "past last row", "all"), made, [])
    assert [row["s"] for row in found] == np.cumsum([row[2] for row in made]).tolist()
    assert [row["m"] for row in found[:9]] == [0, 1, 2, 3, 4, 5, 6, 6, 6]
    assert found[-1]["a"] == found[-1]["s"] / count


def test_there_is_something_to_find() -> None:
    """The random test above would pass with nothing but patterns that never match."""
    draw, counts = random.Random(7), []
    for _ in range(40):
        tree = grow(draw, 3)
        if not empty(tree) and allowed(tree):
            counts.append(len(expected(tree, make(draw, 30), "past last row")))
    assert sum(count > 2 for count in counts) > 10


def test_the_next_match_begins_at_a_row_of_this_one() -> None:
    """At the next row if the variable has none, or if it is the first row, from which the same match would be found for ever."""
    made = [(ts, 1, v, False, True, True) for ts, v in enumerate([0, 1, 2, 3, 2, 3, 4])]

    def starts(pattern: str, skip: str) -> list[tuple[int, int]]:
        return [(row["match_start"], row["match_end"]) for row in run(operator(pattern, skip), made, [])]

    assert starts("C B B B?", "past last row") == [(0, 3), (4, 6)]
    assert starts("C B B B?", "to last B") == [(0, 3), (4, 6)]
    assert starts("C B B", "to first b") == starts("C B B", "to next row") == [(0, 2), (1, 3), (4, 6)]
    assert starts("C B B", "to last B") == [(0, 2), (4, 6)]
    assert starts("C B", "to last B") == [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6)]
    assert starts("C B | B", "to first B") == starts("C B | B", "to next row")


ROWS: list[tuple[Any, ...]] = [(0, 1, 1, True, False, False), (2, 1, 2, False, True, False), (4, 1, 3, False, True, False)]


def outs(match: Match, epochs: Sequence[tuple[Sequence[tuple[Any, ...]], int]]) -> list[int]:
    """Rows out of each epoch. epochs: (rows, watermark)."""
    found, before = [], NO_WATERMARK
    for number, (rows, after) in enumerate(epochs, 1):
        found.append(match.process(batch(rows), Tick(number, 0, before, after))[0].count)
        before = after
    return found


def test_a_match_is_put_out_as_soon_as_no_row_can_change_it() -> None:
    closed = outs(operator("A B B"), [(ROWS[:2], 3), (ROWS[2:], 5), ([], 100)])
    assert closed == [0, 1, 0], "with its last row, where nothing may follow"
    ended = outs(operator("A B+"), [(ROWS, 5), ([(6, 1, 9, False, False, True)], 7), ([], 100)])
    assert ended == [0, 1, 0], "with the first row that does not belong to it"
    waited = outs(operator("A B+"), [(ROWS, 5), ([], WITHIN), ([], WITHIN + 1), ([], 100)])
    assert waited == [0, 0, 1, 0], "or when the watermark has passed the longest that it may take"
    last = outs(operator("A B+"), [(ROWS, 5), ([], END_OF_STREAM)])
    assert last == [0, 1]


def test_what_waits_is_held_and_then_forgotten() -> None:
    plain = operator("A C", define=(("A", "a"), ("C", "c")))
    assert outs(plain, [([ROWS[1]], 3)]) == [0]
    assert plain._table.count == 0, "no match begins with it, and nobody asks for the row before"
    outs(plain, [([ROWS[0]], 1)])
    assert plain._table.count == 2, "the key and its row"
    outs(plain, [([], WITHIN + 1)])
    assert plain._table.count == 0
    asks = operator("A B")
    outs(asks, [([ROWS[1]], 3)])
    assert asks._table.count == 1, "the key with its last row, for PREV"
    outs(asks, [([], 2 + WITHIN)])
    assert asks._table.count == 1
    outs(asks, [([], 2 + WITHIN + 1)])
    assert asks._table.count == 0


def test_the_row_before_counts_as_long_as_a_match_may_take() -> None:
    for gap, found in ((WITHIN, 1), (WITHIN + 1, 0)):
        rows = [(0, 1, 1, True, True, False), (gap, 1, 2, False, True, False)]
        assert [len(run(operator("B"), rows, cuts)) for cuts in ([], [gap], [1, gap - 1])] == [found] * 3


def test_the_row_before_may_have_come_in_another_epoch() -> None:
    rows = [(0, 1, 5, True, False, False), (2, 1, 3, False, True, False), (4, 1, 4, False, True, False), (6, 1, 2, False, True, False)]
    for cuts in ([], [1, 3, 5], [5]):
        assert [row["match_start"] for row in run(operator("B"), rows, cuts)] == [4]


def test_a_row_may_be_a_whole_bound_after_the_first() -> None:
    for gap, found in ((WITHIN, 1), (WITHIN + 1, 0)):
        rows = [(5, 1, 1, True, False, False), (5 + gap, 1, 2, False, False, True)]
        assert sum(outs(operator("A C"), [(rows, END_OF_STREAM)])) == found


def test_rows_without_a_time_are_left_out() -> None:
    rows = [(None, 1, 0, True, False, False), *ROWS[:2]]
    assert run(operator("A B"), [], []) == []
    (found,) = operator("A B").process(batch(rows), Tick(1, 0, NO_WATERMARK, END_OF_STREAM))
    assert found.batch.column("n").to_pylist() == [2]


def test_measures_are_expressions_over_aggregates() -> None:
    measures = (
        ("span", "last(ts) - first(ts)"),
        ("mean", "sum(v) / count(*)"),
        ("text", "concat('k', k, '-', A.v)"),
        ("none", "max(B.v + A.v - A.v)"),
    )
    with pytest.raises(ValueError, match="mixes rows of different variables"):
        operator("A B+", measures=measures)
    (found,) = operator("A B+", measures=measures[:3]).process(batch(ROWS), Tick(1, 0, NO_WATERMARK, END_OF_STREAM))
    assert found.batch.column("mean").to_pylist() == [2.0]
    assert found.batch.column("text").to_pylist() == ["k1-1"]


def test_a_sum_out_of_range_says_so() -> None:
    rows = [(at, 1, 2**62, False, False, True) for at in range(3)]
    with pytest.raises(ArithmeticOverflow, match="sum"):
        operator("C+").process(batch(rows), Tick(1, 0, NO_WATERMARK, END_OF_STREAM))


def test_programs_are_written_out() -> None:
    program = compile_pattern("a (B | C)? a{2}")
    assert program.variables == ("A", "B", "C")
    assert len(program.variable) == 5
    ends = [state for state, follow in enumerate(program.follow) if ACCEPT in follow]
    assert [program.variables[program.variable[state]] for state in ends] == ["A"]
