"""Rows of more than 64 columns, with nulls in all of them, of each operator that keeps rows or keys as they came: nothing is lost, however
long they are kept and wherever they go meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.operator.aggregate_cases import make_rows

import evenflow as ef
from evenflow.operator.bsort import BSort
from evenflow.operator.complete import Complete
from evenflow.operator.match import Match
from evenflow.operator.operator import Operator
from evenflow.operator.resample import Resample
from evenflow.operator.totals.session_window import SessionWindowAggregate
from evenflow.operator.totals.time_window import TimeWindowAggregate
from evenflow.operator.user.process import Process
from evenflow.query.aggregates import AggCall, SessionWindow, TimeWindow
from evenflow.stream.change import CHANGE_FIELD, INSERT, all_say
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick

pytestmark = pytest.mark.one_in(2)

TYPES = [pa.int64(), pa.float64(), pa.bool_(), pa.int16(), pa.string(), pa.date32()]
COLUMNS = [f"c{at}" for at in range(160)]
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), *((name, TYPES[at % 6]) for at, name in enumerate(COLUMNS))])
EPOCHS, ROWS = 5, 12
COUNT = [AggCall("n", "count", None, pa.int64())]
Row = dict[str, Any]


def epochs(rng: np.random.Generator) -> list[pa.RecordBatch]:
    """Row by row a microsecond later. A third of all values is null."""
    made = []
    for epoch in range(EPOCHS):
        columns = [pa.array(rng.integers(0, 3, ROWS)), pa.array(range(epoch * ROWS, (epoch + 1) * ROWS), pa.timestamp("us"))]
        for name in COLUMNS:
            kind, mask = SCHEMA.field(name).type, rng.random(ROWS) < 0.33
            values = pa.array(rng.integers(0, 2, ROWS), mask=mask)
            columns.append(values.cast(pa.int32()).cast(kind) if pa.types.is_date(kind) else values.cast(kind))
        made.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return made


def put_out(factory: Callable[[], Operator], keys: Sequence[str], batches: Sequence[pa.RecordBatch]) -> list[Row]:
    """All rows of the first port. After each epoch the state goes to another operator."""
    operator, found, before = factory(), [], NO_WATERMARK
    for epoch, batch in enumerate(batches, 1):
        after = END_OF_STREAM if epoch == len(batches) else epoch * ROWS
        found += operator.process(make_rows(batch, keys), Tick(epoch, epoch * 1000, before, after))[0].batch.to_pylist()
        states = {partition: operator.capture(partition) for partition in range(8)}
        operator, before = factory(), after
        for partition, state in states.items():
            if state is not None:
                operator.install(partition, state.to_bytes())
    return found


def counted(rows: Iterable[Row], names: Sequence[str]) -> Counter[str]:
    return Counter(repr([row[name] for name in names]) for row in rows)


@pytest.fixture(params=range(2))
def batches(request: pytest.FixtureRequest) -> list[pa.RecordBatch]:
    return epochs(np.random.default_rng(request.param))


@pytest.fixture
def rows(batches: list[pa.RecordBatch]) -> list[Row]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_bsort(batches: list[pa.RecordBatch], rows: list[Row]) -> None:
    found = put_out(lambda: BSort(SCHEMA, ("k",), "c0", 9), ("k",), batches)
    assert counted(found, SCHEMA.names) == counted(rows, SCHEMA.names)


def test_complete(batches: list[pa.RecordBatch], rows: list[Row]) -> None:
    changes = SCHEMA.append(CHANGE_FIELD)
    came = [pa.RecordBatch.from_arrays([*batch.columns, all_say(INSERT, ROWS)], schema=changes) for batch in batches]
    found = put_out(lambda: Complete(changes, every_us=1_000_000), (), came)
    assert counted(found, SCHEMA.names) == counted(rows, SCHEMA.names)


def test_resample(batches: list[pa.RecordBatch], rows: list[Row]) -> None:
    wanted, last = [], {}
    for at, row in enumerate(rows):
        ends = [other["k"] for other in rows[at:]]
        last[row["k"]] = row
        wanted += [{**last[key], "ts": row["ts"]} for key in last if key in ends]
    found = put_out(lambda: Resample(SCHEMA, ("k",), "ts", 1, COLUMNS, "previous"), ("k",), batches)
    assert counted(found, SCHEMA.names) == counted(wanted, SCHEMA.names)


@pytest.mark.parametrize("session", [False, True])
def test_keys_of_windows(session: bool, batches: list[pa.RecordBatch], rows: list[Row]) -> None:
    def factory() -> Operator:
        if session:
            return SessionWindowAggregate(SCHEMA, COLUMNS, COUNT, window=SessionWindow("ts", 1000))
        return TimeWindowAggregate(SCHEMA, COLUMNS, COUNT, window=TimeWindow("ts", 1000, 1000))

    assert counted(put_out(factory, COLUMNS, batches), COLUMNS) == counted(rows, COLUMNS)


@pytest.mark.parametrize("way", ["one", "all", "with unmatched"])
def test_rows_that_wait_for_a_match(way: str, batches: list[pa.RecordBatch], rows: list[Row]) -> None:
    measures = [("nr", "match_number()"), *((f"m{at}", f"FIRST(A.c{at})") for at in (0, 61, 62, 63, 64, 65, 127, 159))]
    define = [("B", "COALESCE(c159, -1) <> COALESCE(PREV(c159), -1) OR COUNT(A.*) = 3")]

    def found(batches: Sequence[pa.RecordBatch]) -> list[Row]:
        return put_out(lambda: Match(SCHEMA, ("k",), "ts", "A{1,3} B", define, measures, 1000, "past last row", way), ("k",), batches)

    whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
    made = found(batches)
    assert sorted(map(repr, made)) == sorted(map(repr, found(whole))), "as in one epoch, in which nothing waits"
    if way == "with unmatched":
        assert counted(made, SCHEMA.names) == counted(rows, SCHEMA.names)
    assert len(made) > 5


class Waits(ef.Processor):
    """The key, a while after its rows."""

    output = ", ".join(f"{name} {kind}" for name, kind in zip(COLUMNS, ["bigint", "double", "boolean", "smallint", "string", "date"] * 27))

    def open(self, store: Any) -> None:
        store.timeout("quiet", "1 second")

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> None:
        pass

    def expired(self, key: tuple[Any, ...], timer: Any, state: Any) -> Any:
        yield key


def test_keys_of_timers(batches: list[pa.RecordBatch], rows: list[Row]) -> None:
    found = put_out(lambda: Process(COLUMNS, Waits(), SCHEMA, time="ts"), COLUMNS, batches)
    assert counted(found, COLUMNS) == counted(rows, COLUMNS)


def test_there_are_nulls_behind_the_first_words(batches: list[pa.RecordBatch]) -> None:
    fixed = [name for name in COLUMNS if not pa.types.is_string(SCHEMA.field(name).type)]
    assert len(fixed) > 128 and all(sum(pc.is_null(batch.column(name)).sum().as_py() for batch in batches) for name in fixed)
