"""Order against a plain Python sort, moved, split and mixed in every way."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawn import examples

from evenflow.errors import TypeMismatch, UnknownColumn
from evenflow.operator import runs
from evenflow.operator.order import Order, sort_key
from evenflow.operator.runs import MERGE_RUNS, Part, Piece
from evenflow.state import held_changes
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.ipc import batch_from_bytes
from evenflow.stream.rows import Rows
from evenflow.stream.values import as_bits

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("x", pa.float64()), ("s", pa.string()), ("id", pa.int64())])
Row = tuple[Any, ...]


def rows_of(rows: list[Row], partitions: list[int], schema: pa.Schema = SCHEMA, keyed: bool = False) -> Rows:
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    hashes = np.array([hash((p, 7)) & 0xFFFF for p in partitions], np.uint64) if keyed else None
    return Rows(pa.RecordBatch.from_arrays(columns, schema=schema), np.array(partitions, np.int32), hashes)


def by_partition(out: list[Rows]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for rows in out:
        columns = [
            column.view(pa.int64()).to_pylist() if pa.types.is_timestamp(column.type) else column.to_pylist()
            for column in rows.batch.columns
        ]
        for p, *row in zip(rows.partition.tolist(), *columns, strict=True):
            found[p].append(tuple(row))
    return dict(found)


def spark_key(value: Any) -> tuple[Any, ...]:
    """Ascending, nulls first, NaN last."""
    if value is None:
        return (0,)
    return (2,) if isinstance(value, float) and math.isnan(value) else (1, value)


def tick(epoch: int, before: int, watermark: int) -> Tick:
    return Tick(epoch, epoch, before, watermark)


row = st.tuples(
    st.one_of(st.none(), st.integers(0, 12)),
    st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, -2.5, math.inf, -math.inf, math.nan])),
    st.one_of(st.none(), st.sampled_from(["", "a", "ä", "b"])),
)
epochs = st.lists(st.tuples(st.lists(st.tuples(st.integers(0, 3), row), max_size=12), st.integers(0, 3)), max_size=25)


@settings(max_examples=examples(50, 150), deadline=None)
@given(
    epochs=epochs,
    tie_break=st.sampled_from([(), ("x",), ("s", "x")]),
    moves=st.lists(st.tuples(st.integers(0, 24), st.integers(0, 3))),
    slice_rows=st.sampled_from([1, 4, 10, 30, runs.SLICE_ROWS]),
)
def test_equals_a_python_sort_while_partitions_move(
    epochs: list[tuple[list[tuple[int, Row]], int]], tie_break: tuple[str, ...], moves: list[tuple[int, int]], slice_rows: int
) -> None:
    """However much of a merge is done at a time, and what is released meanwhile."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runs, "SLICE_ROWS", slice_rows)
        patched.setattr(runs, "MERGE_RUNS", 3)
        equals_a_python_sort(epochs, tie_break, moves)


def equals_a_python_sort(epochs: list[tuple[list[tuple[int, Row]], int]], tie_break: tuple[str, ...], moves: list[tuple[int, int]]) -> None:
    sites, home = [Order("ts", tie_break, SCHEMA), Order("ts", tie_break, SCHEMA)], dict.fromkeys(range(4), 0)
    before, ident = NO_WATERMARK, 0
    out: list[Rows] = []
    late: list[Rows] = []
    buffer: list[tuple[int, Row]] = []
    want: dict[int, list[Row]] = defaultdict(list)
    want_late: dict[int, list[Row]] = defaultdict(list)
    for number, (content, step) in enumerate([*epochs, ([], -1)]):
        watermark = END_OF_STREAM if step < 0 else before if step == 0 else max(before, 0) + step
        numbered = [(p, (*value, (ident := ident + 1))) for p, value in content]
        for site, order in enumerate(sites):
            mine = [(p, r) for p, r in numbered if home[p] == site]
            result, behind = order.process(rows_of([r for _, r in mine], [p for p, _ in mine]), tick(number, before, watermark))
            out.append(result)
            late.append(behind)
        for p, r in numbered:
            event = NO_WATERMARK if r[0] is None else r[0]
            if event < before:
                want_late[p].append(r)
            else:
                buffer.append((p, r))
        key = [SCHEMA.names.index(name) for name in ("ts", *tie_break)]
        ready = [(p, r) for p, r in buffer if watermark == END_OF_STREAM or (NO_WATERMARK if r[0] is None else r[0]) < watermark]
        buffer = [each for each in buffer if each not in ready]
        for p, r in sorted(ready, key=lambda each: [spark_key(each[1][i]) for i in key]):
            want[p].append(r)
        before = watermark
        for at, p in moves:
            if at == number:
                source, target = sites[home[p]], sites[1 - home[p]]
                snapshot = source.capture(p)
                source.drop(p)
                if snapshot is not None:
                    target.install(p, snapshot.to_bytes())
                home[p] = 1 - home[p]
    assert repr(by_partition(out)) == repr({p: want[p] for p in by_partition(out)})
    assert sorted(by_partition(out)) == sorted(want)
    assert repr(sorted(by_partition(late).items())) == repr(sorted(want_late.items()))
    assert sum(order.late_rows for order in sites) == sum(map(len, want_late.values()))


def test_null_time_is_first_and_late_once_there_is_a_watermark() -> None:
    order = Order("ts", ("id",), SCHEMA)
    rows = rows_of([(5, 0.0, "", 1), (None, 0.0, "", 2), (1, 0.0, "", 3)], [0, 0, 0])
    released, late = order.process(rows, tick(1, NO_WATERMARK, 4))
    assert [r[3] for r in by_partition([released])[0]] == [2, 3]
    assert late.count == 0
    released, late = order.process(rows_of([(None, 0.0, "", 4)], [0]), tick(2, 4, END_OF_STREAM))
    assert [r[3] for r in by_partition([late])[0]] == [4]
    assert order.late_rows == 1
    assert [r[3] for r in by_partition([released])[0]] == [1]


def test_hash_stays_with_its_row_also_through_a_move() -> None:
    first, second = Order("ts", (), SCHEMA), Order("ts", (), SCHEMA)
    rows = rows_of([(i % 3, 0.0, "", i) for i in range(8)], [0, 1] * 4, keyed=True)
    first.process(rows, tick(1, NO_WATERMARK, NO_WATERMARK))
    snapshot = first.capture(1)
    assert snapshot is not None
    second.install(1, snapshot.to_bytes())
    first.drop(1)
    for order, partition in ((first, 0), (second, 1)):
        released, _ = order.process(Rows.empty(SCHEMA, keyed=True), tick(2, NO_WATERMARK, END_OF_STREAM))
        assert released.hash is not None
        assert set(released.partition.tolist()) == {partition}
        assert released.count == 4
        assert set(released.hash.tolist()) == {hash((partition, 7)) & 0xFFFF}


def test_equal_states_are_equal_bytes_whoever_else_was_there() -> None:
    alone, mixed = Order("ts", ("x",), SCHEMA), Order("ts", ("x",), SCHEMA)
    for epoch in range(2 * MERGE_RUNS):
        mine = [((7 * epoch) % 5, float(epoch % 2), "same", epoch)]
        other = [(epoch, 0.0, "other", i) for i in range(3)]
        alone.process(rows_of(mine, [1]), tick(epoch, NO_WATERMARK, NO_WATERMARK))
        mixed.process(rows_of(other + mine, [0, 2, 0, 1]), tick(epoch, NO_WATERMARK, NO_WATERMARK))
    one, two = alone.capture(1), mixed.capture(1)
    assert one is not None
    assert two is not None
    assert one.to_bytes() == two.to_bytes()
    assert mixed.capture(3) is None
    again = Order("ts", ("x",), SCHEMA)
    again.install(1, one.to_bytes())
    third = again.capture(1)
    assert third is not None
    assert third.to_bytes() == one.to_bytes()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 5), row), max_size=20), min_size=1, max_size=4), st.sampled_from([(), ("x", "s")]))
def test_partitions_that_are_arranged_together_are_as_each_by_itself(
    epochs: list[list[tuple[int, Row]]], tie_break: tuple[str, ...]
) -> None:
    order, number = Order("ts", tie_break, SCHEMA), 0
    for epoch, came in enumerate(epochs, 1):
        given_rows = [(*values, number + at) for at, (_, values) in enumerate(came)]
        number += len(came)
        order.process(rows_of(given_rows, [partition for partition, _ in came], keyed=True), tick(epoch, NO_WATERMARK, NO_WATERMARK))
    together, alone = order.frozen, Order("ts", tie_break, SCHEMA)
    there = [partition for partition in range(6) if together.count_of(partition)]
    alone._runs = order._runs
    together.prepare(range(6))
    for partition in there:
        assert together.imprints(partition).tolist() == alone.frozen.imprints(partition).tolist()
        assert together.to_bytes(partition) == alone.frozen.to_bytes(partition)
    assert not [partition for partition in range(6) if partition not in there and together.imprints(partition).size]


def test_a_partition_of_many_rows_is_not_picked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only some of its rows may be wanted: those of few rows are, together."""
    prepared: list[list[int]] = []
    order, few, many = Order("ts", (), SCHEMA), 3, held_changes.TOGETHER_ROWS + 1
    order.process(
        rows_of([(at, 0.0, "", at) for at in range(3 * few + many)], [0] * few + [1] * few + [2] * many + [3] * few), tick(1, 0, 0)
    )
    monkeypatch.setattr(type(order.frozen), "prepare", lambda frozen, partitions: prepared.append(list(partitions)))
    [part] = order.changes.capture_changes(1, 1, range(4), range(4))
    assert [(each.partition, each.rows) for each in part.read()] == [(0, few), (1, few), (2, many), (3, few)]
    assert prepared == [[0, 1]]


def test_snapshot_is_of_its_epoch() -> None:
    order = Order("ts", (), SCHEMA)
    order.process(rows_of([(5, 0.0, "", 1)], [0]), tick(1, NO_WATERMARK, NO_WATERMARK))
    snapshot = order.capture(0)
    order.process(rows_of([(6, 0.0, "", 2)], [0]), tick(2, NO_WATERMARK, END_OF_STREAM))
    assert order.capture(0) is None
    assert snapshot is not None
    other = Order("ts", (), SCHEMA)
    other.install(0, snapshot.to_bytes())
    released, _ = other.process(Rows.empty(SCHEMA), tick(2, NO_WATERMARK, END_OF_STREAM))
    assert by_partition([released]) == {0: [(5, 0.0, "", 1)]}


def test_runs_stay_few_and_memory_follows_the_rows_held() -> None:
    order = Order("ts", (), SCHEMA)
    rng = np.random.default_rng(1)
    peak = 0
    for epoch in range(600):
        times = (epoch * 10 + rng.integers(0, 400, 20)).tolist()
        order.process(rows_of([(t, 0.0, "abc", 0) for t in times], [0] * 20), tick(epoch, NO_WATERMARK, epoch * 10 - 400))
        assert len({part.run for part in order._runs.parts}) < 4 * MERGE_RUNS
        peak = max(peak, order.state_bytes())
    order.process(Rows.empty(SCHEMA), tick(601, NO_WATERMARK, END_OF_STREAM))
    assert order.state_bytes() == 0
    assert peak < 600 * 20 * 60 / 4


@pytest.mark.parametrize("spread", [1, 50, 100_000])
def test_a_merge_goes_on_as_rows_come_and_ends(spread: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no epoch moves much more than a slice, there are no more runs or parts than that takes, and what is held is what came. Method:
    rows of many times, and of so few that a slice cannot end before them; captured while merges are under way."""
    monkeypatch.setattr(runs, "SLICE_ROWS", 200)
    order, rng, moved = Order("ts", ("x",), SCHEMA), np.random.default_rng(3), [0]
    take = Part.of

    def counting(piece: Piece, level: int, run: int = runs.NO_RUN) -> Part:
        moved[-1] += piece.rows.count if level else 0
        return take(piece, level, run)

    monkeypatch.setattr(Part, "of", counting)
    came: list[Row] = []
    for epoch in range(400):
        new = [
            (int(t), float(x), "abc", len(came) + i) for i, (t, x) in enumerate(zip(rng.integers(0, spread, 25), rng.integers(0, 3, 25)))
        ]
        order.process(rows_of(new, [0] * 25), tick(epoch, NO_WATERMARK, NO_WATERMARK))
        came += new
        moved.append(0)
        if epoch % 100 == 77:
            captured = order.capture(0)
            assert captured is not None
            held = batch_from_bytes(captured.to_bytes()).column("id").to_pylist()
            assert held == [row[3] for row in sorted(came, key=lambda row: row[:2])]
    of_one_time = max(Counter(row[0] for row in came).values())
    assert max(moved) <= 2 * (1.5 * 200 + of_one_time)
    assert len(came) < sum(moved) < 5 * len(came), "each row is moved, a few times"
    parts = order._runs.parts
    assert len({part.run for part in parts}) < 5 * MERGE_RUNS and len(parts) < 5 * MERGE_RUNS + 5 * len(came) / 200
    released, _ = order.process(Rows.empty(SCHEMA), tick(401, NO_WATERMARK, END_OF_STREAM))
    assert by_partition([released]) == {0: sorted(came, key=lambda row: row[:2])}
    assert order._runs.parts == [] and order.state_bytes() == 0


def test_memory_of_partitions_that_left_is_given_back_at_the_next_epoch() -> None:
    """A small remainder is copied out of the runs; a large one stays where it is until the watermark has passed."""
    few, most = Order("ts", ("id",), SCHEMA), Order("ts", ("id",), SCHEMA)
    rows = rows_of([(i, 0.0, "abc", i) for i in range(1000)], [i % 10 for i in range(1000)])
    for order, gone in ((few, 9), (most, 2)):
        order.process(rows, tick(1, NO_WATERMARK, NO_WATERMARK))
        before = order.state_bytes()
        for partition in range(gone):
            order.drop(partition)
        order.process(Rows.empty(SCHEMA), tick(2, NO_WATERMARK, NO_WATERMARK))
        assert (order.state_bytes() < before / 5) == (order is few)
        released, _ = order.process(Rows.empty(SCHEMA), tick(3, NO_WATERMARK, END_OF_STREAM))
        assert by_partition([released]) == {p: [(i, 0.0, "abc", i) for i in range(p, 1000, 10)] for p in range(gone, 10)}


def test_lists_can_break_ties() -> None:
    schema = pa.schema([("ts", pa.timestamp("us")), ("l", pa.list_(pa.int64()))])
    order = Order("ts", ("l",), schema)
    rows = rows_of([(1, [2]), (1, None), (1, [1, 5]), (1, [None])], [0] * 4, schema)
    released, _ = order.process(rows, tick(1, NO_WATERMARK, END_OF_STREAM))
    assert released.batch.column(1).to_pylist() == [None, [None], [1, 5], [2]]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.list_(pa.float64()), pa.struct([("v", pa.float64())])], ids=str)
def test_equal_values_have_one_order_whatever_order_they_came_in(kind: pa.DataType) -> None:
    """Zeros of both signs, and NaNs of different bits."""
    words = np.array([0.0, -0.0, math.nan, -math.nan, 1.0]).view(np.int64)
    floats = pa.array(words.view(np.float64)).cast(kind if pa.types.is_floating(kind) else pa.float64())
    values = floats
    if pa.types.is_list(kind):
        values = pa.ListArray.from_arrays(pa.array(range(6), pa.int32()), floats)
    if pa.types.is_struct(kind):
        values = pa.StructArray.from_arrays([floats], names=["v"])
    schema = pa.schema([("ts", pa.timestamp("us")), ("v", kind)])
    found = set()
    for turn in permutations(range(5)):
        batch = pa.record_batch([pa.array([1] * 5, pa.timestamp("us")), values.take(pa.array(turn))], schema=schema)
        released, _ = Order("ts", ("v",), schema).process(Rows(batch, np.zeros(5, np.int32)), tick(1, NO_WATERMARK, END_OF_STREAM))
        column = as_bits(released.batch.column("v"))
        found.add(repr(column.to_pylist()))
    assert len(found) == 1


def test_refuses_what_it_cannot_order_by() -> None:
    with pytest.raises(UnknownColumn, match="'sessions'.*'when'"):
        Order("when", (), SCHEMA, "sessions")
    with pytest.raises(TypeMismatch, match="'sessions'.*double"):
        Order("x", (), SCHEMA, "sessions")


def test_maps_with_nulls_inside_are_compared() -> None:
    values = [[("a", 1)], None, [("a", None)], [], [("a", 1), ("b", 0)]]
    assert sort_key(pa.array(values, pa.map_(pa.string(), pa.int64()))).tolist() == [3, 0, 2, 1, 4]
