"""Joins of two streams: against a nested loop, and each promise about time, nulls, order and memory on its own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.drawn import one_in
from tests.operator.join_cases import (
    LEFT,
    RIGHT,
    Row,
    drawn,
    expected,
    in_order,
    join,
    operator,
    rows,
    run,
    ticks,
    values,
)

from evenflow.kernels.hash import partition_of, table_of_ranges
from evenflow.operator.join.join import StreamJoin
from evenflow.operator.join.join_side import Held, JoinSide, Run
from evenflow.query.join import How, Join
from evenflow.state import held_rows
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

HOWS: tuple[How, ...] = ("inner", "left", "right", "full", "semi", "anti")


def flat(found: list[list[Row]]) -> list[Row]:
    return [row for epoch in found for row in epoch]


@pytest.mark.parametrize("condition", one_in(2, ["l.x > r.y", None]))
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("bounds", [(-30, 10), (0, 0), (5, 25), (-25, -5)], ids=str)
def test_equals_a_nested_loop(how: How, condition: str | None, bounds: tuple[int, int]) -> None:
    made, epochs = join(how, *bounds, condition), drawn(7)
    assert in_order(flat(run(operator(made), epochs))) == in_order(expected(made, epochs))


@pytest.mark.parametrize("how", HOWS)
def test_one_epoch_or_many_give_the_same_rows(how: How) -> None:
    made, epochs = join(how), drawn(8)
    whole = [([row for left, _ in epochs for row in left], [row for _, right in epochs for row in right])]
    assert in_order(flat(run(operator(made), epochs))) == in_order(flat(run(operator(made), whole)))


@pytest.mark.parametrize("bounds", [(0, None), (None, 0)], ids=str)
def test_an_inner_join_may_keep_one_side_for_ever(bounds: tuple[int | None, int | None]) -> None:
    made, epochs = join("inner", *bounds, unbounded=True), drawn(9, epochs=12)
    assert in_order(flat(run(operator(made), epochs))) == in_order(expected(made, epochs))


def test_an_inner_join_without_time_keeps_everything_for_ever() -> None:
    epochs = drawn(9, epochs=12)
    left, right = [row for some, _ in epochs for row in some], [row for _, some in epochs for row in some]
    wanted = [(*a, *b) for a in left for b in right if a[1] is not None and a[1] == b[1]]
    made = StreamJoin(join("inner", None, None, unbounded=True), LEFT, RIGHT, None, None)
    assert in_order(flat(run(made, epochs))) == in_order(wanted)


def test_rows_without_a_partner_come_when_the_watermark_has_passed_their_last_chance() -> None:
    """A left row at 100 can meet right rows until 110: at watermark 110 one may still come, at 111 not."""
    left: Row = (100, 1, 0, "a")
    epochs = [([left], []), ([], []), ([], [])]
    when = [Tick(1, 0, NO_WATERMARK, 50), Tick(2, 0, 50, 110), Tick(3, 0, 110, 111)]
    assert run(operator(join("left")), epochs, when) == [[], [], [(*left, None, None, None, None)]]
    right: Row = (110, 1, 0, "b")
    assert run(operator(join("left")), [*epochs[:2], ([], [right])], when) == [[], [], [(*left, *right)]]


def test_rows_that_can_match_nothing_come_at_once() -> None:
    nulls: list[Row] = [(100, None, 0, "no key"), (None, 1, 0, "no time")]
    found = run(operator(join("full")), [(nulls, nulls)], [Tick(1, 0, NO_WATERMARK, NO_WATERMARK)])
    none: Row = (None,) * 4
    assert found == [[*((*row, *none) for row in nulls), *((*none, *row) for row in nulls)]]
    assert run(operator(join("inner")), [(nulls, nulls)]) == [[]]


def test_late_rows_go_to_their_sides_port_and_are_counted() -> None:
    made = operator(join("inner"))
    left, right = rows(LEFT, [(99, 1, 0, "late"), (100, 1, 1, "in time")]), rows(RIGHT, [(98, 1, 2, "late")])
    out = made.process_sides(left, right, Tick(1, 0, 100, 100))
    assert [values(port.batch) for port in out] == [[], [(99, 1, 0, "late")], [(98, 1, 2, "late")]]
    assert made.late_rows == 2


def test_a_semi_join_gives_each_left_row_once_at_its_first_partner() -> None:
    left, right = (100, 1, 5, "a"), (100, 1, 0, "b")
    epochs = [([left], []), ([], [right, right]), ([], [right])]
    when = [Tick(1, 0, NO_WATERMARK, 0), Tick(2, 0, 0, 1), Tick(3, 0, 1, 2)]
    assert run(operator(join("semi")), epochs, when) == [[], [left], []]
    assert run(operator(join("semi")), [([], [right, right]), ([left], [])], when[:2]) == [[], [left]]


def test_pairs_come_in_order_of_the_newer_row_then_of_the_older() -> None:
    held: list[Row] = [(100 + i % 3, 1, i, None) for i in range(20)]
    made = operator(join("inner"))
    for at in range(20):
        made.process_sides(rows(LEFT, held[at : at + 1]), rows(RIGHT, []), Tick(at + 1, 0, NO_WATERMARK, NO_WATERMARK))
    new = rows(RIGHT, [(100, 1, 0, "first"), (101, 1, 1, "second")])
    found = values(made.process_sides(rows(LEFT, []), new, Tick(21, 0, NO_WATERMARK, NO_WATERMARK))[0].batch)
    assert [(row[6], row[2]) for row in found] == [(new, old) for new in (0, 1) for old in range(20)]


def test_what_the_watermark_has_passed_takes_no_memory() -> None:
    made, epochs = operator(join("full")), drawn(10, epochs=400)
    most = 0
    for (left, right), tick in zip(epochs, ticks(epochs), strict=True):
        made.process_sides(rows(LEFT, left), rows(RIGHT, right), tick)
        most = max(most, made.state_bytes())
    assert made.state_bytes() == 0
    assert most < 40_000, "rows of about a dozen epochs, not of 400"
    assert made.partition_bytes(np.arange(6)).tolist() == [0] * 6


def test_every_partition_knows_about_what_it_holds() -> None:
    made = operator(join("inner"))
    made.process_sides(rows(LEFT, [(1, k % 4, 0, "x") for k in range(600)]), rows(RIGHT, []), Tick(1, 0, NO_WATERMARK, 0))
    sizes = made.partition_bytes(np.arange(8))
    assert 0.4 * made.state_bytes() < sizes.sum() <= made.state_bytes()
    assert all((size > 0) == (made.capture(partition) is not None) for partition, size in enumerate(sizes.tolist()))


def test_a_snapshot_does_not_see_what_meets_afterwards() -> None:
    """A row that had no partner at its capture has none in the copy, though the original has marked it since."""
    left, right = (100, 1, 5, "a"), (100, 1, 0, "b")
    made = operator(join("anti"))
    made.process_sides(rows(LEFT, [left]), rows(RIGHT, []), Tick(1, 0, NO_WATERMARK, 0))
    (partition,) = rows(LEFT, [left]).partition.tolist()
    snapshot = made.capture(partition)
    assert snapshot is not None
    made.process_sides(rows(LEFT, [(105, 1, 0, "c")]), rows(RIGHT, [right]), Tick(2, 0, 0, 1))
    copy = operator(join("anti"))
    copy.install(partition, snapshot.to_bytes())
    assert run(copy, [([], [])], [Tick(2, 0, 0, END_OF_STREAM)]) == [[left]]
    assert run(made, [([], [])], [Tick(3, 0, 1, END_OF_STREAM)]) == [[]]


def test_equal_keys_of_other_widths_match_and_using_keys_come_out_once() -> None:
    right = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int32()), ("y", pa.int64())])
    widths = Join("right", ("k",), ("k",), using=("k",), low_us=0, high_us=0, suffix="_right")
    made = StreamJoin(widths, LEFT, right, "ts", "ts")
    found = made.process_sides(rows(LEFT, [(1, 7, 0, "a")]), rows(right, [(1, 7, 3), (2, 8, 4)]), Tick(1, 0, NO_WATERMARK, END_OF_STREAM))[
        0
    ]
    assert found.batch.schema.names == ["k", "ts", "x", "note", "ts_right", "y"]
    assert values(found.batch) == [(7, 1, 0, "a", 1, 3), (8, None, None, None, 2, 4)]


def test_columns_may_be_called_as_what_is_kept_beside_them() -> None:
    """Goal: what was captured can be installed, divided and shown, whatever the columns are called: `_time` is a usual name."""
    left = pa.schema([("_time", pa.timestamp("us")), ("k", pa.int64()), ("_met", pa.int64()), ("_check", pa.string())])
    right = pa.schema([("_met", pa.timestamp("us")), ("_check", pa.int64()), ("_time", pa.int64()), ("_side", pa.string())])
    described = Join("full", ("k",), ("_check",), low_us=-30, high_us=10, suffix="_right")
    whole, first, second = (StreamJoin(described, left, right, "_time", "_met") for _ in range(3))
    epochs, when = drawn(10), ticks(drawn(10))
    given = [(rows(left, a), rows(right, b), tick) for (a, b), tick in zip(epochs, when, strict=True)]
    cut, old, new = 15, table_of_ranges(6), table_of_ranges(4)
    kept = [whole.process_sides(*each)[0].batch for each in given]
    found = [first.process_sides(*each)[0].batch for each in given[:cut]]
    states = [snapshot.to_bytes() for partition in range(6) if (snapshot := first.capture(partition)) is not None]
    assert (old != new).any() and len(states) > 1
    for partition, state in first.divide(states, new).items():
        second.install(partition, state)
    shown = [row for partition in range(6) for row in first.show(partition).to_pylist()]
    assert sorted(map(str, shown)) == sorted(str(row) for partition in range(4) for row in second.show(partition).to_pylist())
    assert {row["_time"] for row in shown} == {row["left"]["_time"] if row["_side"] == "left" else row["right"]["_met"] for row in shown}
    for a, b, tick in given[cut:]:
        a, b = (Rows(side.batch, partition_of(side.hash, new), side.hash) for side in (a, b))
        found.append(second.process_sides(a, b, tick)[0].batch)
    assert [in_order(values(batch)) for batch in found] == [in_order(values(batch)) for batch in kept]


def long_texts(count: int, data: np.ndarray) -> pa.RecordBatch:
    """Rows that have all of `data`, one after the other."""
    offsets = np.linspace(0, data.size, count + 1).astype(np.int32)
    texts = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pa.RecordBatch.from_arrays([texts], ["s"])


def test_a_side_may_hold_more_text_than_a_column_can_have() -> None:
    """Goal: 2 GiB of text, which one array of Arrow's cannot have, are no end of a run. Method: memory that nobody has written to."""
    data, count = np.zeros(2**30, np.uint8), 2**15
    side, many, few = JoinSide(pa.schema([("s", pa.string())]), 10), long_texts(count, data), long_texts(8, data[:1024])

    def run_of(batch: pa.RecordBatch) -> Run:
        keys, nothing = np.arange(batch.num_rows).astype(np.uint64), np.zeros(batch.num_rows, np.int64)
        return Run.of(Held(batch, nothing.astype(np.int32), keys, keys, nothing, nothing.astype(np.bool_), side.numbers(keys.size)))

    for batch in [few] * 4 + [many] * 6:
        side.add(run_of(batch))
        side.settle()
    row, which, place = side.find(run_of(few), None, None)
    assert np.bincount(row).tolist() == [10] * 8
    assert len(np.unique(which)) == 7, "what fits is one run"
    assert set(pc.binary_length(side.pick(which, place).column("s")).to_pylist()) == {128, data.size // count}


@pytest.mark.parametrize("how", ["full", "semi"])
def test_state_that_is_divided_may_have_more_text_than_a_column_can_have(how: How, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a column could have 100 bytes of it."""
    made, epochs, new = operator(join(how)), drawn(11), table_of_ranges(4)
    run(made, epochs[:15], ticks(epochs)[:15])
    states = [snapshot.to_bytes() for partition in range(6) if (snapshot := made.capture(partition)) is not None]
    whole = made.divide(states, new)
    monkeypatch.setattr(held_rows, "COLUMN_MOST", 100)
    apart = made.divide(states, new)
    assert apart == whole and list(apart) == sorted(apart) and len(whole) > 1
