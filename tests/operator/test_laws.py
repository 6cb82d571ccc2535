"""One law over every operator (protocol E3, design style.md): how partitions are spread over sites, moved between them, and how
the input is cut into epochs where the operator does not depend on it, is invisible in the output of every partition.

To add an operator, add a line to `OPERATORS`: a name, a factory, a maker of input, and whether another cut into epochs must
give the same rows (rows that are put out per epoch, such as running totals, depend on the cut by meaning).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs as arrow_fs
from tests.drawn import MANY, but, examples, one_in
from tests.operator.aggregate_cases import ALL_CALLS, IGNORING_NULLS, SCHEMA, bits, call, make_batch, make_rows
from tests.operator.join_cases import OneInput
from tests.operator.law_cases import (
    AROUND,
    COUNTS,
    NAMES_OF,
    NEIGHBOURS,
    OF_TIMES,
    REPEATED,
    ROWS_OF,
    SO_FAR,
    SO_FAR_AHEAD,
    SPANS,
    SPANS_AHEAD,
    SPREAD,
    Gathering,
    InLists,
    Journal,
    Pairing,
    PickyJournal,
    PickyPrevious,
    PickyReminders,
    Previous,
    Quiet,
    QuietArrays,
    Ranking,
    Regrouping,
    Reminders,
    Subtracting,
    Watched,
    Whole,
    picky,
    twice_if_even,
)
from tests.operator.nested_cases import CALLS as NESTED_CALLS
from tests.operator.nested_cases import KEYS, Keeping, nested, put_together
from tests.operator.nested_cases import SCHEMA as NESTED

from evenflow.kernels.hash import partition_of, table_of_ranges
from evenflow.operator.bsort import BSort
from evenflow.operator.case import Case as CaseFilter
from evenflow.operator.dedup import Dedup
from evenflow.operator.explode import Explode
from evenflow.operator.filter import Filter
from evenflow.operator.guarded import Guarded, GuardedProcess
from evenflow.operator.join.table_join import TableJoin
from evenflow.operator.match import Match
from evenflow.operator.operator import Operator
from evenflow.operator.order import Order
from evenflow.operator.parquet import ParquetStage
from evenflow.operator.resample import Resample
from evenflow.operator.select import Select
from evenflow.operator.top import Top
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.totals.combine import Combine
from evenflow.operator.totals.ordered_totals import EventOrder
from evenflow.operator.totals.own_sessions import OwnSessionAggregate
from evenflow.operator.totals.row_window import RowWindowAggregate
from evenflow.operator.totals.session_window import SessionWindowAggregate
from evenflow.operator.totals.time_window import TimeWindowAggregate
from evenflow.operator.unpivot import Unpivot
from evenflow.operator.user.flat_map import FlatMap
from evenflow.operator.user.process import Process
from evenflow.operator.user.spanned import Spanned
from evenflow.query.aggregates import OwnSessions, RowWindow, SessionWindow, TimeWindow, combinable
from evenflow.query.join import Join
from evenflow.store.arrow import ArrowStore
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

pytestmark = [pytest.mark.laws, pytest.mark.one_in(3)]
DRAWN: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "derandomize": not MANY}

PARTITIONS = 6
EPOCHS = 6

Epochs = list[tuple[Rows, Tick]]
Output = dict[int, list[list[tuple[str, list[Any]]]]]
"""Per partition and port: the batches it put out, by their bits."""


@dataclass(frozen=True)
class Case:
    name: str
    factory: Callable[[], Operator]
    epochs: Callable[[int], Epochs]
    any_cut: bool = False


def plain_epochs(keys: Sequence[str]) -> Callable[[int], Epochs]:
    """Input without event time: random sizes, some epochs empty."""

    def make(seed: int) -> Epochs:
        rng = np.random.default_rng(seed)
        made = []
        for epoch in range(1, EPOCHS + 1):
            n = int(rng.choice([0, 1, 40, 120]))
            rows = make_rows(make_batch(rng, n, keys=12), keys, PARTITIONS)
            made.append((rows, Tick(epoch, 1000 * epoch, NO_WATERMARK, END_OF_STREAM if epoch == EPOCHS else NO_WATERMARK)))
        return made

    return make


def timed_epochs(keys: Sequence[str]) -> Callable[[int], Epochs]:
    """Input with event time that moves on; some rows are late."""

    def make(seed: int) -> Epochs:
        made, before = [], NO_WATERMARK
        for rows, tick in plain_epochs(keys)(seed):
            index = SCHEMA.get_field_index("ts")
            stamps = rows.batch.column("ts").cast(pa.int64())
            moved = pa.array([None if x is None else x // 8 + tick.epoch * 5_000_000 for x in stamps.to_pylist()], pa.int64())
            batch = rows.batch.set_column(index, SCHEMA.field("ts"), moved.view(pa.timestamp("us")))
            after = END_OF_STREAM if tick.epoch == EPOCHS else tick.epoch * 5_000_000
            made.append((Rows(batch, rows.partition, rows.hash), Tick(tick.epoch, tick.stamp, before, after)))
            before = after
        return made

    return make


def own_ends(keys: Sequence[str]) -> Callable[[int], Epochs]:
    """The same with a column `until`: each row's own end, some before its time, some none."""

    def make(seed: int) -> Epochs:
        made = []
        for rows, tick in timed_epochs(keys)(seed):
            gaps = pc.multiply(rows.batch.column("small").cast(pa.int64()), 60_000).cast(pa.duration("us"))
            columns = [*rows.batch.columns, pc.add(rows.batch.column("ts"), gaps)]
            made.append((Rows(pa.RecordBatch.from_arrays(columns, schema=WITH_ENDS), rows.partition, rows.hash), tick))
        return made

    return make


def in_time_order(keys: Sequence[str]) -> Callable[[int], Epochs]:
    """Input as an `order` step releases it."""

    def make(seed: int) -> Epochs:
        order = Order("ts", tuple(name for name in SCHEMA.names if name != "ts"), SCHEMA)
        return [(order.process(rows, tick)[0], tick) for rows, tick in timed_epochs(keys)(seed)]

    return make


def stage(schema: pa.Schema = SCHEMA) -> Operator:
    """Writes its files nowhere: into a file system in memory."""
    return ParquetStage(schema, path="/out", run="r", commit_interval_ms=2, store=ArrowStore(arrow_fs._MockFileSystem(), "out"))


def joined(how: Any, within_us: int | None = 3_000_000) -> Operator:
    """Rows of one key with an even and an odd `small`, not far apart in time, the left with the greater `i`."""
    low_us = None if within_us is None else -within_us
    return OneInput(Join(how, ("k",), ("r_k",), low_us=low_us, high_us=within_us, condition="l.i > r.r_i", unbounded=True), SCHEMA)


def by_structure(how: Any) -> Operator:
    """As `joined`, by a structure."""
    return OneInput(Join(how, ("who",), ("r_who",), low_us=-3_000_000, high_us=3_000_000, condition="l.i > r.r_i"), NESTED)


ROW_BY_ROW = (("b", "i > prev(i) or prev(s) is null or f > prev(f)"), ("C", "C.small > 1 and prev(C.b)"))
OF_THE_MATCH = (
    ("b", "(i > prev(i) or prev(s) is null) and (s >= A.s or sum(B.small) < last(f, 1) or prev(f) < avg(f) or min(A.s) < s)"),
    ("C", "C.small > 1 and (count(B.s) > 1 or first(C.i, 1) is null or max(C.g) > prev(C.g) or sum(f) > 0)"),
)


def matching(
    keys: tuple[str, ...], pattern: str, skip: str, within_us: int, rows: str = "one", define: Any = ROW_BY_ROW
) -> Operator:  # fmt: skip
    """Rows of which some can be several variables, with measures of all kinds."""
    measures = [("bs", "count(B.i)"), ("total", "sum(B.f) + count(*)"), ("s0", "first(s)"), ("least", "min(B.s)"), ("apart", "C.ts")]
    if rows == "with unmatched":
        measures.append(("number", "match_number()"))
    return Match(SCHEMA, keys, "ts", pattern, define, measures, within_us, skip, rows)


NAMES = pa.table({"k": pa.array([3, 1, None, 3, 7], pa.int64()), "of": ["three", "one", "none", "drei", "seven"], "least": [0.0] * 5})
OWN, WITH_ENDS = OwnSessions("ts", ends="until"), SCHEMA.append(pa.field("until", pa.timestamp("us")))
COMBINABLE = [c for c in ALL_CALLS if combinable([c], SCHEMA)]
OF_USERS = [COUNTS, SPREAD, NAMES_OF]
DISTINCT = [call("approx_count_distinct", "i"), call("approx_count_distinct", "s")]
TUMBLING, SLIDING = TimeWindow("ts", 4_000_000, 4_000_000), TimeWindow("ts", 6_000_000, 2_000_000)
CHANGED = replace(SLIDING, mode="changelog", lateness_us=3_000_000, start_us=700_000)
IN_ORDER = EventOrder("ts", ("i", "f", "s"))
ENDS = [call("first", "f"), call("last", "s"), call("last", "g")]
UPDATED, LENIENT = replace(TUMBLING, mode="update"), replace(SLIDING, lateness_us=3_000_000)

OPERATORS = [
    Case("running", lambda: Aggregate(SCHEMA, ("k",), [*ALL_CALLS, *DISTINCT]), plain_epochs(("k",))),
    Case("running, string key", lambda: Aggregate(SCHEMA, ("s", "f"), ALL_CALLS), plain_epochs(("s", "f"))),
    Case("combine", lambda: Combine(SCHEMA, ("name",), COMBINABLE), plain_epochs(("k",))),
    Case("combine, hot keys only", lambda: Combine(SCHEMA, ("s",), COMBINABLE, places=4), plain_epochs(("k",))),
    Case("combine, hot keys only, sliding", lambda: Combine(SCHEMA, ("name",), COMBINABLE, SLIDING, places=4), timed_epochs(("k",))),
    Case("combine, sliding", lambda: Combine(SCHEMA, ("name",), COMBINABLE, SLIDING), timed_epochs(("k",))),
    Case("tumbling", lambda: TimeWindowAggregate(SCHEMA, ("k",), ALL_CALLS, window=TUMBLING), timed_epochs(("k",))),
    Case("sliding", lambda: TimeWindowAggregate(SCHEMA, ("s", "b"), ALL_CALLS, window=SLIDING), timed_epochs(("s", "b"))),
    Case("update mode", lambda: TimeWindowAggregate(SCHEMA, ("k",), ALL_CALLS, window=UPDATED), timed_epochs(("k",))),
    Case("allowed lateness", lambda: TimeWindowAggregate(SCHEMA, ("s", "b"), ALL_CALLS, window=LENIENT), timed_epochs(("s", "b"))),
    Case(
        "tumbling, in order",
        lambda: TimeWindowAggregate(SCHEMA, ("k",), [*ALL_CALLS, *ROWS_OF, COUNTS], window=TUMBLING, order=IN_ORDER),
        timed_epochs(("k",)),
    ),
    Case("ignoring nulls", lambda: Aggregate(SCHEMA, ("k",), IGNORING_NULLS, changes=True), plain_epochs(("k",))),
    Case(
        "ignoring nulls, sessions",
        lambda: SessionWindowAggregate(SCHEMA, ("k",), IGNORING_NULLS, window=SessionWindow("ts", 300_000)),
        timed_epochs(("k",)),
    ),
    Case("ends, in order", lambda: TimeWindowAggregate(SCHEMA, ("b",), ENDS, window=SLIDING, order=IN_ORDER), timed_epochs(("b",))),
    Case("changes, in order", lambda: TimeWindowAggregate(SCHEMA, ("b",), ENDS, window=CHANGED, order=IN_ORDER), timed_epochs(("b",))),
    Case(
        "session, in order",
        lambda: SessionWindowAggregate(SCHEMA, ("s", "b"), ALL_CALLS, window=SessionWindow("ts", 3_000_000), order=IN_ORDER),
        timed_epochs(("s", "b")),
    ),
    Case("changelog", lambda: Aggregate(SCHEMA, ("s", "f"), [*ALL_CALLS, *DISTINCT], changes=True), plain_epochs(("s", "f"))),
    Case("changelog of windows", lambda: TimeWindowAggregate(SCHEMA, ("s", "b"), ALL_CALLS, window=CHANGED), timed_epochs(("s", "b"))),
    Case("totals that subtract", Subtracting, plain_epochs(("k",))),
    Case("places in an order", Ranking, plain_epochs(("k",))),
    Case("totals made anew", Regrouping, plain_epochs(("k",))),
    *(Case(f"{how} join of changes", lambda how=how: Pairing(how), plain_epochs(("k",))) for how in ("full", "inner", "anti")),
    Case("complete", Whole, plain_epochs(("k",))),
    Case("the user's, running", lambda: Aggregate(SCHEMA, ("s", "b"), [*OF_USERS, *ROWS_OF], changes=True), plain_epochs(("s", "b"))),
    Case("combine of the user's", lambda: Combine(SCHEMA, ("name",), [COUNTS, SPREAD], SLIDING, places=4), timed_epochs(("k",))),
    Case("the user's, sliding", lambda: TimeWindowAggregate(SCHEMA, ("k",), [*OF_USERS, *ROWS_OF], window=SLIDING), timed_epochs(("k",))),
    Case(
        "the user's, sessions",
        lambda: SessionWindowAggregate(SCHEMA, ("s", "b"), [COUNTS, SPREAD, *ROWS_OF], window=SessionWindow("ts", 3_000_000)),
        timed_epochs(("s", "b")),
    ),
    Case("the user's, of times", lambda: Aggregate(SCHEMA, ("s", "b"), OF_TIMES, changes=True), plain_epochs(("s", "b"))),
    Case("the user's, of times, sliding", lambda: TimeWindowAggregate(SCHEMA, ("b",), OF_TIMES, window=SLIDING), timed_epochs(("b",))),
    Case(
        "the user's, of times, sessions",
        lambda: SessionWindowAggregate(SCHEMA, ("s", "b"), OF_TIMES, window=SessionWindow("ts", 3_000_000)),
        timed_epochs(("s", "b")),
    ),
    Case(
        "the user's, of times, sessions with gaps of their own",
        # Its blank pieces have no state, and a structure that is null is other bytes of the same value when Parquet has had it.
        lambda: OwnSessionAggregate(WITH_ENDS, ("s", "b"), OF_TIMES[1:], window=OWN),
        own_ends(("s", "b")),
    ),
    Case("the user's, rows", lambda: RowWindowAggregate(SCHEMA, ("k",), ROWS_OF, window=RowWindow(5, 2)), plain_epochs(("k",)), True),
    Case(
        "sessions with gaps of their own",
        lambda: OwnSessionAggregate(WITH_ENDS, ("s", "b"), ALL_CALLS, window=OWN, order=IN_ORDER),
        own_ends(("s", "b")),
    ),
    Case("session", lambda: SessionWindowAggregate(SCHEMA, ("k",), ALL_CALLS, window=SessionWindow("ts", 300_000)), timed_epochs(("k",))),
    Case(
        "changelog of sessions",
        lambda: SessionWindowAggregate(SCHEMA, ("s", "b"), ALL_CALLS, window=SessionWindow("ts", 300_000, "changelog", 1_000_000)),
        timed_epochs(("s", "b")),
    ),
    Case(
        "long sessions, string key",
        lambda: SessionWindowAggregate(SCHEMA, ("s", "b"), [*ALL_CALLS, *DISTINCT], window=SessionWindow("ts", 3_000_000)),
        timed_epochs(("s", "b")),
    ),
    Case(
        "rows",
        lambda: RowWindowAggregate(SCHEMA, ("k",), [*ALL_CALLS, *DISTINCT], window=RowWindow(5, 2), time="ts"),
        plain_epochs(("k",)),
        any_cut=True,
    ),
    Case("every row", lambda: RowWindowAggregate(SCHEMA, ("name",), ALL_CALLS, window=RowWindow(3, 1)), plain_epochs(("name",)), True),
    Case("dedup", lambda: Dedup(SCHEMA, ("k", "b")), plain_epochs(("k", "b")), True),
    Case("dedup within the watermark", lambda: Dedup(SCHEMA, ("small",), time="ts", delay_us=4_000_000), timed_epochs(("small",))),
    Case("top", lambda: Top(SCHEMA, ("k",), TUMBLING, 3, [("small", True), ("s", False)]), timed_epochs(("k",))),
    Case("top of sliding windows", lambda: Top(SCHEMA, ("s", "b"), SLIDING, 1, [("f", False)]), timed_epochs(("s", "b"))),
    Case("explode", InLists, plain_epochs(("k",)), True),
    Case("unpivot", lambda: Unpivot(SCHEMA, ("k", "ts"), ("name", "s"), "which", "what"), plain_epochs(("k",)), True),
    Case("flat map", lambda: FlatMap(SCHEMA, twice_if_even, REPEATED), plain_epochs(("k",)), True),
    Case("case", lambda: CaseFilter(SCHEMA, ("i > 0", "b")), plain_epochs(("k",)), True),
    Case("resample", lambda: Resample(SCHEMA, ("k",), "ts", 700_000, ("i", "f"), "linear"), in_time_order(("k",)), True),
    Case("spans of time", lambda: Spanned(SCHEMA, ("k",), SPANS), in_time_order(("k",))),
    Case("spans of time, ahead", lambda: Spanned(SCHEMA, ("k",), SPANS_AHEAD), in_time_order(("k",))),
    Case("all rows so far", lambda: Spanned(SCHEMA, ("k",), SO_FAR), in_time_order(("k",))),
    Case("all rows so far, ahead", lambda: Spanned(SCHEMA, ("k",), SO_FAR_AHEAD), in_time_order(("k",))),
    Case("rows around, by number", lambda: Spanned(SCHEMA, ("k",), NEIGHBOURS), in_time_order(("k",))),
    Case("rows around, by number and time", lambda: Spanned(SCHEMA, ("k",), AROUND), in_time_order(("k",))),
    Case("parts of rows", Gathering, plain_epochs(("k",))),
    Case(
        "resample, forgetting keys",
        lambda: Resample(SCHEMA, ("small",), "ts", 700_000, ("g", "s"), "previous", 2_000_000),
        in_time_order(("small",)),
    ),
    Case("pattern, all rows", lambda: matching(("k",), "A B* C?", "past last row", 2_000_000, "all"), in_time_order(("k",)), True),
    Case(
        "pattern, rows in none", lambda: matching(("k",), "A B C?", "to next row", 2_000_000, "with unmatched"), in_time_order(("k",)), True
    ),
    Case("pattern", lambda: matching(("k",), "A B* C?", "past last row", 2_000_000), in_time_order(("k",)), True),
    Case(
        "pattern, conditions on the match so far",
        lambda: matching(("k",), "A (B | C)+ A?", "past last row", 2_000_000, "with unmatched", OF_THE_MATCH),
        in_time_order(("k",)),
        True,
    ),
    Case(
        "pattern, conditions on the match so far, overlapping",
        lambda: matching(("s", "b"), "A B{,3} C", "to next row", 40_000_000, "one", OF_THE_MATCH),
        in_time_order(("s", "b")),
        True,
    ),
    Case(
        "pattern, overlapping",
        lambda: matching(("s", "b"), "(C | A B) B{,2}", "to next row", 40_000_000),
        in_time_order(("s", "b")),
        True,
    ),
    Case(
        "pattern, from a row of the match before",
        lambda: matching(("k",), "(C | A) B+ A?", "to last B", 2_000_000),
        in_time_order(("k",)),
        True,
    ),
    Case("bsort", lambda: BSort(SCHEMA, ("k",), "small", 4), plain_epochs(("k",)), True),
    Case("bsort by text", lambda: BSort(SCHEMA, ("name", "b"), "s", 2), plain_epochs(("name", "b")), True),
    Case("filter", lambda: Filter("i > 0 or b", SCHEMA), plain_epochs(("k",)), True),
    Case("select", lambda: Select((("k", "k"), ("y", "f * 2"), ("s", lambda batch: batch["s"])), SCHEMA), plain_epochs(("k",)), True),
    Case("order, released at the end", lambda: Order("ts", ("name", "f"), SCHEMA), plain_epochs(("k",)), True),
    Case("order", lambda: Order("ts", tuple(name for name in SCHEMA.names if name != "ts"), SCHEMA), timed_epochs(("k",))),
    Case("process, a key at a time", lambda: Process(("k",), Journal(), SCHEMA), plain_epochs(("k",))),
    Case("process, all keys at once", lambda: Process(("k", "b"), Previous(), SCHEMA), plain_epochs(("k", "b")), True),
    Case(
        "select without poison rows",
        lambda: Guarded(Select((("k", "k"), ("y", picky)), SCHEMA), SCHEMA, wanted=True),
        plain_epochs(("k",)),
        True,
    ),
    Case(
        "process without poison rows, a key at a time",
        lambda: GuardedProcess(("k",), PickyJournal(), SCHEMA, "picky", None, wanted=True),
        plain_epochs(("k",)),
    ),
    Case(
        "process without poison rows, all keys at once",
        lambda: GuardedProcess(("k", "b"), PickyPrevious(), SCHEMA, "picky", None, wanted=True),
        plain_epochs(("k", "b")),
    ),
    Case("process with a timeout", lambda: Process(("f", "b"), Quiet(), SCHEMA, time="ts"), in_time_order(("f", "b")), True),
    Case("process with timeouts, all keys at once", lambda: Process(("s",), QuietArrays(), SCHEMA, time="ts"), in_time_order(("s",)), True),
    Case("process with timers", lambda: Process(("k",), Reminders(), SCHEMA, time="ts"), in_time_order(("k",))),
    Case(
        "process with timers, without poison rows",
        lambda: GuardedProcess(("k",), PickyReminders(), SCHEMA, "picky", None, wanted=True, time="ts"),
        in_time_order(("k",)),
    ),
    Case("watermark", lambda: Watched(SCHEMA), timed_epochs(("k",))),
    *(Case(f"{how} join", lambda how=how: joined(how), timed_epochs(("k",))) for how in ("inner", "left", "right", "full", "semi", "anti")),
    Case("join for ever", lambda: joined("inner", None), plain_epochs(("k",))),
    Case(
        "join with a table",
        lambda: TableJoin(Join("left", ("k",), ("k",), ("k",), condition="l.f > r.least"), SCHEMA, NAMES),
        plain_epochs(("k",)),
        True,
    ),
    Case("stage", stage, plain_epochs(("k",))),
]


def of_nested(name: str, factory: Callable[[], Operator], keys: Sequence[str] = KEYS, timed: bool = False, any_cut: bool = False) -> Case:
    """A law's case over rows with structures, lists and maps, which are distributed by some of them."""
    return Case(f"nested: {name}", factory, nested((timed_epochs if timed else plain_epochs)(("k",)), keys, PARTITIONS), any_cut)


OF_ITEMS = (("k", "who.k"), ("name", "who.home.name"), ("first", "get(items, 0).f"), ("n", "size(tags)"), ("pair", "struct(who, items)"))
HOMES = pa.Table.from_batches([put_together(make_batch(np.random.default_rng(8), 30, keys=12)).select(["who", "items"])])
HOMES = HOMES.rename_columns(["who", "of"])
NESTED_OPERATORS = [
    of_nested("process", lambda: Process(("who",), Keeping(), NESTED), ("who",)),
    of_nested("running", lambda: Aggregate(NESTED, KEYS, NESTED_CALLS)),
    of_nested("changelog", lambda: Aggregate(NESTED, ("path",), NESTED_CALLS, changes=True), ("path",)),
    of_nested("tumbling", lambda: TimeWindowAggregate(NESTED, ("who",), NESTED_CALLS, window=TUMBLING), ("who",), timed=True),
    of_nested("sliding, lenient", lambda: TimeWindowAggregate(NESTED, KEYS, NESTED_CALLS, window=LENIENT), timed=True),
    of_nested("rows", lambda: RowWindowAggregate(NESTED, ("path",), NESTED_CALLS, window=RowWindow(5, 2)), ("path",), any_cut=True),
    of_nested("dedup", lambda: Dedup(NESTED, KEYS), any_cut=True),
    of_nested("dedup within the watermark", lambda: Dedup(NESTED, ("who",), time="ts", delay_us=4_000_000), ("who",), timed=True),
    of_nested("explode", lambda: Explode(NESTED, "items", "item", "at", outer=True), any_cut=True),
    of_nested("explode a map", lambda: Explode(NESTED, "tags", ("tag", "n")), any_cut=True),
    of_nested("filter", lambda: Filter("who.home.b or get(items, 0).f > 0 or tags['n1'] > 0", NESTED), any_cut=True),
    of_nested(
        "session", lambda: SessionWindowAggregate(NESTED, ("who",), NESTED_CALLS, window=SessionWindow("ts", 300_000)), ("who",), True
    ),
    of_nested("top", lambda: Top(NESTED, ("path",), TUMBLING, 3, [("small", True)]), ("path",), timed=True),
    of_nested("select", lambda: Select(OF_ITEMS, NESTED), any_cut=True),
    of_nested("order", lambda: Order("ts", tuple(name for name in NESTED.names if name != "ts"), NESTED), timed=True),
    *(of_nested(f"{how} join", lambda how=how: by_structure(how), ("who",), timed=True) for how in ("inner", "full", "anti")),
    of_nested("stage", lambda: stage(NESTED)),
    of_nested("join with a table", lambda: TableJoin(Join("left", ("who",), ("who",), ("who",)), NESTED, HOMES), ("who",), any_cut=True),
    of_nested("bsort", lambda: BSort(NESTED, ("who",), "small", 4), ("who",), any_cut=True),
]
OF_CHANGES = [case for case in OPERATORS if case.name.endswith("join of changes")]
MANY_CALLS = {"process without poison rows, all keys at once", "process with timers", "changelog of sessions"}
"""They call Python for each key and are like others that do."""
CASES = [
    *but(MANY_CALLS, [case for case in OPERATORS if case not in OF_CHANGES]), *one_in(3, OF_CHANGES), *one_in(11, NESTED_OPERATORS)
]  # fmt: skip
FEWER = one_in(3, CASES)
"""For laws that say the same of state as `test_where_a_partition_lives_is_invisible`, of another way there."""
ANY_CUT = [case for case in OPERATORS if case.any_cut] + one_in(11, [case for case in NESTED_OPERATORS if case.any_cut])


def collect(output: Output, ports: Sequence[Rows]) -> None:
    for port, rows in enumerate(ports):
        for partition in np.unique(rows.partition).tolist():
            mine = rows.take(np.flatnonzero(rows.partition == partition))
            hashes = [None] * mine.count if mine.hash is None else mine.hash.tolist()
            output.setdefault(partition * 10 + port, []).append([*bits(mine.batch), ("hash", hashes)])


def run(case: Case, epochs: Epochs, placement: Sequence[int], moves: Sequence[tuple[int, int, int]], slow: bool = False) -> Output:
    """Run with partition p at site placement[p]; moves: (after which epoch, partition, to which site). slow: ship late."""
    sites = [case.factory() for _ in range(3)]
    at, output = list(placement), {}
    for number, (rows, tick) in enumerate(epochs):
        for site, operator in enumerate(sites):
            here = np.flatnonzero(np.array(at)[rows.partition] == site)
            collect(output, operator.process(rows.take(here), tick))
        for after, partition, to in moves:
            if after == number and to != at[partition]:
                snapshot = sites[at[partition]].capture(partition)
                if slow:
                    sites[at[partition]].drop(partition)
                state = None if snapshot is None else snapshot.to_bytes()
                if not slow:
                    sites[at[partition]].drop(partition)
                if state is not None:
                    sites[to].install(partition, state)
                at[partition] = to
    return output


def recut(epochs: Epochs, joined: Sequence[bool]) -> Epochs:
    """Join epochs with their successors where told to."""
    made: Epochs = []
    for (rows, tick), join in zip(epochs, joined, strict=True):
        if join and made:
            before, _ = made[-1]
            batch = pa.Table.from_batches([before.batch, rows.batch]).combine_chunks().to_batches()
            whole = batch[0] if batch else rows.batch
            assert before.hash is not None
            assert rows.hash is not None
            hashes = np.concatenate([before.hash, rows.hash])
            made[-1] = (Rows(whole, np.concatenate([before.partition, rows.partition]), hashes), tick)
        else:
            made.append((rows, tick))
    return made


def flat(output: Output) -> dict[int, list[Any]]:
    """Rows of each partition and port, without the epochs they came in."""
    return {place: [list(zip(*(v for _, v in batch), strict=True)) for batch in batches] for place, batches in output.items()}


def as_one(output: Output) -> dict[int, list[Any]]:
    return {place: [row for batch in batches for row in batch] for place, batches in flat(output).items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@settings(max_examples=examples(1, 20), **DRAWN)
@given(
    seed=st.integers(0, 1 << 20),
    placement=st.lists(st.integers(0, 2), min_size=PARTITIONS, max_size=PARTITIONS),
    moves=st.lists(st.tuples(st.integers(0, EPOCHS - 1), st.integers(0, PARTITIONS - 1), st.integers(0, 2)), max_size=8),
    slow=st.booleans(),
)
def test_where_a_partition_lives_is_invisible(
    case: Case, seed: int, placement: list[int], moves: list[tuple[int, int, int]], slow: bool
) -> None:
    epochs = case.epochs(seed)
    together = run(case, epochs, [0] * PARTITIONS, [])
    assert run(case, epochs, placement, moves, slow) == together
    alone = case.factory()
    output: Output = {}
    for rows, tick in epochs:
        collect(output, alone.process(rows.take(np.flatnonzero(rows.partition == 2)), tick))
    assert output == {place: batches for place, batches in together.items() if place // 10 == 2}


@pytest.mark.parametrize("case", ANY_CUT, ids=lambda case: case.name)
@settings(max_examples=examples(1, 20), **DRAWN)
@given(seed=st.integers(0, 1 << 20), joined=st.lists(st.booleans(), min_size=EPOCHS, max_size=EPOCHS))
def test_how_the_input_is_cut_is_invisible(case: Case, seed: int, joined: list[bool]) -> None:
    epochs = case.epochs(seed)
    placement = [0] * PARTITIONS
    assert as_one(run(case, recut(epochs, joined), placement, [])) == as_one(run(case, epochs, placement, []))


def test_time_windows_do_not_depend_on_the_cut_either() -> None:
    """Joining two epochs changes what is late (judged at an epoch's start), so only rows in time are compared."""
    case = next(case for case in OPERATORS if case.name == "tumbling")
    epochs = [(rows, Tick(t.epoch, t.stamp, NO_WATERMARK, END_OF_STREAM if t.last else NO_WATERMARK)) for rows, t in case.epochs(5)]
    whole = as_one(run(case, recut(epochs, [True] * EPOCHS), [0] * PARTITIONS, []))
    assert whole == as_one(run(case, epochs, [0] * PARTITIONS, []))
    assert whole


@pytest.mark.parametrize("case", FEWER, ids=lambda case: case.name)
def test_the_interleaving_of_partitions_is_invisible(case: Case) -> None:
    epochs = case.epochs(77)
    sorted_epochs = [(rows.take(np.argsort(rows.partition, kind="stable")), tick) for rows, tick in epochs]
    assert run(case, sorted_epochs, [0] * PARTITIONS, []) == run(case, epochs, [0] * PARTITIONS, [])


@pytest.mark.parametrize("case", FEWER, ids=lambda case: case.name)
def test_equal_states_have_equal_bytes(case: Case) -> None:
    """A replica that got its partition by a copy holds the same bytes as one that saw every row."""
    epochs = case.epochs(78)
    origin, copy = case.factory(), case.factory()
    for rows, tick in epochs[:3]:
        origin.process(rows, tick)
    states = [origin.capture(p) for p in range(PARTITIONS)]
    for partition, state in enumerate(states):
        if state is not None:
            copy.install(partition, state.to_bytes())
    for rows, tick in epochs[3:-1]:
        origin.process(rows, tick)
        copy.process(rows, tick)
    for partition in range(PARTITIONS):
        one, other = origin.capture(partition), copy.capture(partition)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one.to_bytes() == other.to_bytes()


@pytest.mark.parametrize("case", FEWER, ids=lambda case: case.name)
@settings(max_examples=examples(1, 20), **DRAWN)
@given(seed=st.integers(0, 1 << 20), cut=st.integers(1, EPOCHS - 2), moved=st.integers(0, PARTITIONS - 1))
def test_a_partition_is_at_home_where_others_were_and_are_dropped(case: Case, seed: int, cut: int, moved: int) -> None:
    """One partition is installed beside the others, which then leave; one of those comes back later. Nobody leaves a trace."""
    epochs = case.epochs(seed)
    together, (back, *gone) = run(case, epochs, [0] * PARTITIONS, []), [p for p in range(PARTITIONS) if p != moved]
    origin, target, lender, output = case.factory(), case.factory(), case.factory(), {}
    for number, (rows, tick) in enumerate(epochs):
        if number == cut:
            move(origin, target, moved)
            move(target, lender, back)
            for partition in gone:
                target.drop(partition)
                assert target.capture(partition) is None
                target.drop(partition)
        if number == cut + 1:
            move(lender, target, back)
            assert lender.capture(back) is None
        homes = {moved: origin if number < cut else target, back: lender if number == cut else target}
        if number < cut:
            homes |= dict.fromkeys(gone, target)
        for site in (origin, target, lender):
            here = np.isin(rows.partition, [partition for partition, home in homes.items() if home is site])
            collect(output, site.process(rows.take(np.flatnonzero(here)), tick))
        assert [p for p in gone if number >= cut and target.capture(p) is not None] == []
    whole = {place: batches for place, batches in together.items() if place // 10 in (moved, back)}
    assert {place: batches for place, batches in output.items() if place // 10 in (moved, back)} == whole


def redivided(rows: Rows, groups: np.ndarray) -> Rows:
    assert rows.hash is not None
    return Rows(rows.batch, partition_of(rows.hash, groups), rows.hash)


BY_KEY = [case for case in OPERATORS if not case.name.startswith(("combine", "complete", "stage", "watermark"))]
BY_KEY = one_in(2, BY_KEY) + one_in(11, [case for case in NESTED_OPERATORS if not case.name.endswith("stage")])
"""Those whose results do not depend on what else is in a row's partition."""


@pytest.mark.parametrize("case", one_in(2, BY_KEY), ids=lambda case: case.name)
@settings(max_examples=examples(1, 20), **DRAWN)
@given(seed=st.integers(0, 1 << 20), cut=st.integers(1, EPOCHS - 1), before=st.integers(1, PARTITIONS), after=st.integers(1, PARTITIONS))
def test_how_many_partitions_there_are_is_invisible(case: Case, seed: int, cut: int, before: int, after: int) -> None:
    """Their ranges change after an epoch; each key's rows stay as they are. Whoever gets the state by a copy afterwards has the same."""
    old, new = (table_of_ranges(count, 4096) for count in (before, after))
    epochs = [(redivided(rows, old), tick) for rows, tick in case.epochs(seed)]
    kept, changed = case.factory(), case.factory()
    for number, (rows, tick) in enumerate(epochs):
        if number == cut:
            divide(changed, range(before), new)
            copy = case.factory()
            for partition in range(after):
                snapshot = changed.capture(partition)
                if snapshot is not None:
                    copy.install(partition, snapshot.to_bytes())
        stay: Output = {}
        collect(stay, kept.process(rows, tick))
        now: Output = {}
        mine = rows if number < cut else redivided(rows, new)
        collect(now, changed.process(mine, tick))
        assert by_port(now) == by_port(stay)
        if number >= cut:
            again: Output = {}
            collect(again, copy.process(mine, tick))
            assert again == now


def by_port(output: Output) -> dict[int, list[str]]:
    """The rows of each port, of all partitions together, in any order."""
    found: dict[int, list[str]] = {}
    for place, batches in flat(output).items():
        found.setdefault(place % 10, []).extend(str(row) for batch in batches for row in batch)
    return {port: sorted(rows) for port, rows in found.items()}


def divide(operator: Operator, partitions: Sequence[int], groups: np.ndarray) -> None:
    states = [snapshot.to_bytes() for partition in partitions if (snapshot := operator.capture(partition)) is not None]
    for partition in partitions:
        operator.drop(partition)
    for partition, state in (operator.divide(states, groups) if states else {}).items():
        operator.install(partition, state)


def move(source: Operator, target: Operator, partition: int) -> None:
    snapshot = source.capture(partition)
    source.drop(partition)
    if snapshot is not None:
        target.install(partition, snapshot.to_bytes())


@pytest.mark.parametrize("case", FEWER, ids=lambda case: case.name)
def test_who_has_dropped_everything_holds_nothing(case: Case) -> None:
    """An operator that dropped its last partition is like a new one, after an epoch also in memory."""
    epochs = case.epochs(79)
    used, new = case.factory(), case.factory()
    for rows, tick in epochs[:3]:
        used.process(rows, tick)
    for partition in range(PARTITIONS):
        used.drop(partition)
        assert used.capture(partition) is None
    rows, tick = epochs[2]
    assert [rows.count for rows in used.process(rows.take(np.empty(0, np.int64)), tick)] == [0] * len(used.schemas)
    assert used.state_bytes() == new.state_bytes()
    outputs: list[Output] = [{}, {}]
    for rows, tick in epochs[3:]:
        for operator, output in zip((used, new), outputs, strict=True):
            collect(output, operator.process(rows, tick))
    assert outputs[0] == outputs[1]
