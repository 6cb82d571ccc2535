"""What operators show of their state: all of it, the same wherever the state is, and what it means."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from tests.drawn import one_in
from tests.operator.aggregate_cases import SCHEMA
from tests.operator.test_laws import OPERATORS, PARTITIONS, Case

from evenflow.operator.operator import Operator, Shown, Stateless
from evenflow.operator.user.declared import Field
from evenflow.operator.user.kept_fields import KeptFields, declared
from evenflow.operator.user.process import Process
from evenflow.query.recorded import type_of
from evenflow.state.keys import IDENTITY
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

pytestmark = pytest.mark.one_in(3)

KEPT = [case for case in OPERATORS if not isinstance(case.factory(), Stateless)]
NOT_SHOWN = {"stage"}
"""Its state is rows on their way into a file, cut by epochs."""
SHOWN = [case for case in KEPT if case.name not in NOT_SHOWN]
PUT_OUT_AT_THE_END = (
    "order", "order, released at the end", "top", "top of sliding windows", "bsort", "bsort by text", "tumbling", "sliding", "session",
    "ends, in order",
)  # fmt: skip
"""Cases that put out at the end of the stream what they have kept until then."""


def looked_at(operator: Operator) -> Any:
    """What shows the state of an operator like this: of a processor, something that knows only what it has declared."""
    if not isinstance(operator, Process):
        assert isinstance(operator, Shown)
        return None
    said = json.loads(json.dumps(operator.declared))
    fields = [Field(name, kind, type_of(text), None if key is None else type_of(key)) for name, kind, text, key in said]
    assert declared(fields) == said and [f.column_type for f in fields] == [f.column_type for f in operator.fields.values()]
    return KeptFields(SCHEMA, operator._keys, {field.name: field for field in fields})


def rows_of(batch: pa.RecordBatch) -> Counter[str]:
    batch.validate(full=True)
    return Counter(map(str, zip(*(column.to_pylist() for column in batch.columns)))) if batch.num_columns else Counter()


def played(case: Case, seed: int, epochs: int) -> tuple[Operator, Tick]:
    operator, tick = case.factory(), Tick(0, 0, NO_WATERMARK, NO_WATERMARK)
    for rows, tick in case.epochs(seed)[:epochs]:
        operator.process(rows, tick)
    return operator, tick


def test_whatever_keeps_state_shows_it() -> None:
    assert {case.name for case in KEPT if not isinstance(case.factory(), Shown | Process)} == NOT_SHOWN and len(SHOWN) > 40


@pytest.mark.parametrize("case", one_in(2, SHOWN), ids=lambda case: case.name)
def test_what_is_shown_is_the_same_where_the_state_has_been_brought(case: Case) -> None:
    """An operator that has taken over one partition shows what the one that has them all shows of it, and has not changed by that."""
    count = 0
    for seed in range(3):
        operator, _ = played(case, seed, 5)
        for partition in range(PARTITIONS):
            snapshot = operator.capture(partition)
            if snapshot is None:
                continue
            state = snapshot.to_bytes()
            other = looked_at(operator) or case.factory()
            other.install(partition, state)
            found = other.show(partition)
            assert found.schema == other.shown
            if isinstance(operator, Shown):
                assert rows_of(operator.show(partition)) == rows_of(found)
            after = other.capture(partition)
            assert after is not None and after.to_bytes() == state
            count += found.num_rows
    assert count or case.name in {"process with timers", "session"}, "no state was shown"


@pytest.mark.parametrize("case", [case for case in SHOWN if case.name in PUT_OUT_AT_THE_END], ids=lambda case: case.name)
def test_what_waits_is_shown_as_it_comes_out_at_the_end(case: Case) -> None:
    count = 0
    for seed in range(4):
        operator, tick = played(case, seed, 5)
        assert isinstance(operator, Shown)
        shown = {partition: rows_of(operator.show(partition)) for partition in range(PARTITIONS)}
        last = operator.process(Rows.empty(SCHEMA, keyed=True), Tick(tick.epoch + 1, tick.stamp + 1, tick.watermark, END_OF_STREAM))[0]
        for partition, rows in shown.items():
            mine = [at for at, owner in enumerate(last.partition.tolist()) if owner == partition]
            assert rows == rows_of(last.batch.take(pa.array(mine, pa.int64())))
            count += sum(rows.values())
    assert count > 20


def test_running_totals_are_shown_with_keys_that_are_one_word_and_are_those_that_came_last() -> None:
    """k is a column of whole numbers, with nulls: its values are known though they are not kept."""
    case = next(case for case in OPERATORS if case.name == "running")
    operator, last = case.factory(), dict[str, str]()
    assert isinstance(operator, Shown) and operator.shown.names[0] == "k"
    for rows, tick in case.epochs(1):
        for row in operator.process(rows, tick)[0].batch.to_pylist():
            last[str(row["k"])] = str(row)
    shown = [row for partition in range(PARTITIONS) for row in operator.show(partition).to_pylist()]
    assert {str(row["k"]): str(row) for row in shown} == last and len(shown) == len(last) > 10 and "None" in last


def test_of_other_keys_the_identity_is_shown() -> None:
    case = next(case for case in OPERATORS if case.name == "running, string key")
    operator, _ = played(case, 1, 5)
    assert isinstance(operator, Shown)
    shown = [tuple(row[each.name] for each in IDENTITY) for p in range(PARTITIONS) for row in operator.show(p).to_pylist()]
    assert len(set(shown)) == len(shown) > 10


def test_the_rows_of_a_row_window_are_shown_oldest_first() -> None:
    from tests.operator.aggregate_cases import make_rows

    from evenflow.operator.totals.row_window import RowWindowAggregate
    from evenflow.query.aggregates import AggCall, RowWindow
    from evenflow.stream.rows import Rows as Given

    schema = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
    calls = [AggCall("total", "sum", "x", pa.float64()), AggCall("least", "min", "s", pa.string())]
    operator = RowWindowAggregate(schema, ("k",), calls, window=RowWindow(3, 2))
    for epoch, values in enumerate(([1.0, None], [3.0, 4.0, 5.0]), 1):
        batch = pa.RecordBatch.from_pylist([{"k": 7, "x": x, "s": None if x is None else str(x)} for x in values], schema=schema)
        rows: Given = make_rows(batch, ("k",), PARTITIONS)
        operator.process(rows, Tick(epoch, epoch, NO_WATERMARK, NO_WATERMARK))
        [shown] = operator.show(int(rows.partition[0])).to_pylist()
        if epoch == 1:
            assert shown == {"k": 7, "_rows": 2, "x": [1.0, None], "s": ["1.0", None]}
    assert shown == {"k": 7, "_rows": 5, "x": [3.0, 4.0, 5.0], "s": ["3.0", "4.0", "5.0"]}
