"""Boxes that go on without the rows on which they raise: which rows these are, what they cost, and that they leave no trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.operator.aggregate_cases import make_rows, tick

from evenflow.errors import NondeterministicBox
from evenflow.operator.case import Case
from evenflow.operator.filter import Filter
from evenflow.operator.guarded import LONGEST_ERROR, Guarded, GuardedProcess, described
from evenflow.operator.select import Select
from evenflow.operator.user.flat_map import FlatMap
from evenflow.operator.user.process import Process
from evenflow.processor import BatchProcessor, Processor
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def rows_of(*given: tuple[int, int], partitions: int = 4) -> Rows:
    columns = [list(column) for column in zip(*given, strict=True)] if given else [[], []]
    return make_rows(pa.record_batch([pa.array(c, pa.int64()) for c in columns], schema=SCHEMA), ("k",), partitions)


def values(rows: Rows) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows.batch.to_pylist()]


class Inverse:
    """100 / v; counts its calls."""

    type = pa.int64()

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        self.calls += 1
        return pa.array([100 // v for v in batch["v"].to_pylist()], pa.int64())


def guarded(function: Any, *, wanted: bool = True) -> Guarded:
    return Guarded(Select((("k", "k"), ("y", function)), SCHEMA), SCHEMA, wanted)


def test_only_the_poison_rows_are_left_out_and_order_stays() -> None:
    given = rows_of((1, 5), (2, 0), (3, 10), (4, 20), (5, 0), (6, 50))
    box = guarded(Inverse())
    out, dead = box.process(given, tick(1))
    assert values(out) == [(1, 20), (3, 10), (4, 5), (6, 2)]
    assert out.partition.tolist() == given.partition[[0, 2, 3, 5]].tolist()
    assert out.hash is not None and given.hash is not None and out.hash.tolist() == given.hash[[0, 2, 3, 5]].tolist()
    assert [row[:2] for row in values(dead)] == [(2, 0), (5, 0)] and dead.batch.schema.names == ["k", "v", "error"]
    assert values(dead)[0][2].startswith("ZeroDivisionError: ")
    assert dead.partition.tolist() == given.partition[[1, 4]].tolist()
    assert box.failed == tuple(given.partition[[1, 4]].tolist())


def test_an_epoch_of_nothing_but_poison_is_an_epoch_without_rows() -> None:
    out, dead = guarded(Inverse()).process(rows_of((1, 0), (2, 0)), tick(1))
    assert (out.count, dead.count) == (0, 2) and out.hash is not None


def test_nothing_is_called_twice_where_nothing_raises_and_little_where_one_row_does() -> None:
    good = [(i, 1 + i) for i in range(1_000)]
    inverse = Inverse()
    box = guarded(inverse)
    box.process(rows_of(*good), tick(1))
    assert inverse.calls == 1 and box.failed == ()
    box.process(rows_of(*good[:700], (1, 0), *good[700:]), tick(2))
    assert len(box.failed) == 1 and inverse.calls <= 2 + 2 * 11
    box.process(rows_of(*good), tick(3))
    assert box.failed == ()


def test_dead_letters_that_nobody_reads_are_counted_only() -> None:
    box = guarded(Inverse(), wanted=False)
    assert [port.count for port in box.process(rows_of((1, 0), (2, 4)), tick(1))] == [1, 0] and len(box.failed) == 1


def test_every_row_wise_box_can_be_guarded() -> None:
    given = rows_of((1, 5), (2, 0), (3, -4))
    for box, wanted in (
        (Filter("100 / v > 0", SCHEMA), [[(1, 5)]]),
        (Case(SCHEMA, ["100 / v > 0"]), [[(1, 5)], [(3, -4)]]),
        (FlatMap(SCHEMA, lambda b: ([(100 // v,) for v in b["v"].to_pylist()], range(b.num_rows)), "y bigint"), [[(20,), (-25,)]]),
    ):
        *ports, dead = Guarded(box, SCHEMA, wanted=True).process(given, tick(1))
        assert [values(port) for port in ports] == wanted
        assert [row[:2] for row in values(dead)] == [(2, 0)]


@pytest.mark.parametrize("error", [MemoryError(), NondeterministicBox("b", 1, "twice"), KeyboardInterrupt(), SystemExit(3)])
def test_what_is_no_fault_of_a_row_ends_the_run(error: BaseException) -> None:
    def refuse(batch: pa.RecordBatch) -> pa.Array:
        if batch.num_rows:
            raise error
        return batch["v"]

    with pytest.raises(type(error)):
        guarded(refuse).process(rows_of((1, 1)), tick(1))


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_an_error_reads_the_same_in_every_process() -> None:
    assert described(ValueError(f"cannot take {object()!r}")) == "ValueError: cannot take <object object at 0x…>"
    assert described(ValueError("0x1f is a number")) == "ValueError: 0x1f is a number"
    assert described(Unprintable()) == "Unprintable"
    assert described(ValueError("\ud800")) == "ValueError: ?"
    assert len(described(ValueError("x" * 5_000))) == LONGEST_ERROR


class Total(Processor):
    """The total of a key, one row per call; raises on a negative value when it has changed its state already."""

    output = "k bigint, total bigint, seen array<bigint>"

    def open(self, store: Any) -> None:
        store.value("total", "bigint", default=0)
        store.list("seen", "bigint")

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        for v in rows["v"].to_pylist():
            state.total += v
            state.seen.append(v)
            if v < 0:
                raise ValueError(f"{v} is below zero")
        return [(key[0], state.total, list(state.seen))]


class Totals(BatchProcessor):
    """The same for all keys at once, as a batch."""

    output = "k bigint, total bigint"

    def open(self, store: Any) -> None:
        store.value("total", "bigint", default=0)

    def process(self, rows: Any, groups: Any, state: Any) -> Any:
        v = rows["v"].to_numpy()
        state.total.put(state.total.get() + np.add.reduceat(v, groups.starts))
        if (v < 0).any():
            raise ValueError("below zero")
        return {"k": groups.keys["k"], "total": state.total.get()}, groups.last


def test_a_poison_row_leaves_no_trace_in_its_keys_state() -> None:
    box = GuardedProcess(("k",), Total(), SCHEMA, "total", None, wanted=True)
    out, late, dead = box.process(rows_of((1, 5), (2, 7), (1, -3), (1, 10)), tick(1))
    # The rows of key 1 come in halves: 5, then -3 and 10, of which one is put aside.
    assert sorted(values(out)) == [(1, 5, [5]), (1, 15, [5, 10]), (2, 7, [7])]
    assert values(dead) == [(1, -3, "ValueError: -3 is below zero")] and late.count == 0
    assert sorted(values(box.process(rows_of((1, 1), (2, 1)), tick(2))[0])) == [(1, 16, [5, 10, 1]), (2, 8, [7, 1])]


def test_a_key_whose_only_row_is_poison_has_no_state() -> None:
    box, fresh = (GuardedProcess(("k",), Total(), SCHEMA, "total", None, wanted=True) for _ in range(2))
    bad = rows_of((1, -1))
    box.process(bad, tick(1))
    assert box.capture(int(bad.partition[0])) is None
    good = rows_of((1, 4))
    assert values(box.process(good, tick(2))[0]) == values(fresh.process(good, tick(2))[0])


def test_a_batch_processor_is_given_the_other_keys_again() -> None:
    box, plain = GuardedProcess(("k",), Totals(), SCHEMA, "total", None, wanted=False), Process(("k",), Totals(), SCHEMA)
    good = [(k, v) for k in range(20) for v in (1, 2, 3)]
    given = rows_of(*good[:31], (7, -1), *good[31:], (11, -5))
    out, _, dead = box.process(given, tick(1))
    wanted = plain.process(rows_of(*good), tick(1))[0]
    newest = dict(values(out))
    assert newest == dict(values(wanted)) and len(box.failed) == 2 and dead.count == 0


def test_a_snapshot_taken_before_a_poisoned_epoch_is_of_before() -> None:
    box = GuardedProcess(("k",), Total(), SCHEMA, "total", None, wanted=True)
    first = rows_of((1, 5))
    box.process(first, tick(1))
    snapshot = box.capture(int(first.partition[0]))
    assert snapshot is not None
    box.process(rows_of((1, 6), (1, -1), (1, 7)), tick(2))
    other = GuardedProcess(("k",), Total(), SCHEMA, "total", None, wanted=True)
    other.install(int(first.partition[0]), snapshot.to_bytes())
    assert values(other.process(rows_of((1, 1)), tick(2))[0]) == [(1, 6, [5, 1])]
