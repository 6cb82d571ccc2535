"""Gates behind windows, and which rows enter before them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.kernels.hash import hash_columns, partition_of, table_of_ranges
from evenflow.operator.catalogue import build
from evenflow.operator.facts import SPANS, Facts, together
from evenflow.operator.gate import Gate, kept_of
from evenflow.operator.units import key_hashes, staying, unit_hashes
from evenflow.plan.layout import Keys, Port, Step, Windows
from evenflow.stream.epoch import ALL_KEPT, NO_WATERMARK, Lost, Tick
from evenflow.stream.rows import Rows

TUMBLING = Windows(("k",), "ts", 10, 10, 0, 10)
SLIDING = Windows(("k",), "ts", 10, 4, 3, 24)
OF_KEY = Keys(("k",), "ts")
HALF = ALL_KEPT // 2


def rows(keys: Any, times: Any) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(keys, pa.string()), "ts": pa.array(times, pa.timestamp("us", "UTC"))})


def windows_of(windows: Windows, time: int) -> list[int]:
    first = (time - windows.size_us - windows.start_us) // windows.slide_us + 1
    return [windows.start_us + n * windows.slide_us for n in range(first, first + 9) if windows.start_us + n * windows.slide_us <= time]


@pytest.mark.parametrize("windows", [TUMBLING, SLIDING])
def test_a_row_enters_if_one_of_its_windows_may_come(windows: Windows) -> None:
    """Goal: a window whose unit stays has all its rows. Method: every row by its windows, one by one."""
    keys, times = [f"key {i % 7}" for i in range(400)], [i - 100 for i in range(400)]
    stays = staying(windows, rows(keys, times), HALF)
    for at, (key, time) in enumerate(zip(keys, times, strict=True)):
        starts = np.array(windows_of(windows, time), np.int64)
        assert starts.size and (starts + windows.size_us > time).all() and (starts <= time).all()
        own = unit_hashes(windows, rows([key] * starts.size, starts), ("k",), starts) < HALF
        assert stays[at] == own.any() or at == 399
    assert stays[399] and 100 < stays.sum() < 350


def test_the_newest_row_enters_and_so_do_rows_without_a_time() -> None:
    stays = staying(TUMBLING, rows(["a", "b", None, "c"], [5, 70, None, 7]), 0)
    assert stays.tolist() == [False, True, True, False]
    assert staying(TUMBLING, rows([], []), 0).tolist() == []


def test_windows_without_a_group_are_left_out_as_such() -> None:
    every = Windows((), "ts", 10, 10, 0, 10)
    of = rows(["a", "b"], [5, 6])
    assert len(set(unit_hashes(every, of, (), np.array([0, 0])).tolist())) == 1
    assert len(set(unit_hashes(TUMBLING, of, ("k",), np.array([0, 0])).tolist())) == 2


def test_a_window_comes_by_the_least_of_the_epochs_in_which_it_could_get_rows() -> None:
    lost = (Lost(10, 25, 300), Lost(20, 45, 100))
    starts = np.array([0, 10, 20, 30, 40, 50])
    assert kept_of(lost, starts, starts + 10).tolist() == [ALL_KEPT, 300, 100, 100, 100, ALL_KEPT]


def test_a_gate_holds_back_parts_only() -> None:
    schema = pa.schema([("window_start", pa.timestamp("us", "UTC")), ("k", pa.string())])
    step = Step("counts", "gate", {"columns": ("k",), "whole": TUMBLING}, schema, Port(0))
    gate = build(step)
    assert isinstance(gate, Gate) and Facts.of([gate]).gates == (TUMBLING,) and Facts.of([gate]).timeless
    starts = np.repeat(np.arange(0, 400, 10), 2)
    batch = pa.record_batch({"window_start": pa.array(starts, schema.field(0).type), "k": pa.array(["a", "b"] * 40)}, schema=schema)
    given = Rows(batch, np.zeros(80, np.int32), None)
    assert gate.process(given, Tick(1, 1, 0, 0))[0] is given
    (out,) = gate.process(given, Tick(1, 1, 0, 0, lost=(Lost(100, 199, HALF),)))
    came = set(zip(out.batch.column("window_start").cast(pa.int64()).to_pylist(), out.batch.column("k").to_pylist(), strict=True))
    hashes = unit_hashes(TUMBLING, batch, ("k",), starts)
    concerned = (starts >= 100) & (starts <= 199)
    kept = ~concerned | (hashes < HALF)
    assert came == {(int(start), key) for start, key, stays in zip(starts, ["a", "b"] * 40, kept, strict=True) if stays}
    assert 60 < out.count < 80


def test_what_is_lost_is_told_apart_by_where_windows_begin_and_forgotten_when_they_are_over() -> None:
    facts = Facts.of([Gate(pa.schema([("k", pa.string())]), ("k",), TUMBLING)])
    lost = facts.losing((), NO_WATERMARK, 7, 500)
    assert lost == (Lost(NO_WATERMARK, 0, 500),)
    lost = facts.losing(lost, 3, 19, 400)
    assert facts.losing(lost, 5, 15, 300) == (*lost[:1], Lost(0, 10, 300))
    assert facts.losing(lost, 9, 30, ALL_KEPT) == lost
    assert facts.losing(lost, 10, 30, ALL_KEPT) == lost[1:], "the window that began at 0 is over"
    assert facts.losing(lost, 20, 30, ALL_KEPT) == ()
    assert Facts.of([]).losing((), 3, 19, 400) == (), "nobody asks"


# ------------------------------------------------ keys


def test_all_rows_of_a_key_enter_or_none() -> None:
    keys, times = [f"key {i % 37}" for i in range(400)], list(range(400))
    given = rows(keys, times)
    stays, hashes = staying(OF_KEY, given, HALF), key_hashes(given, ("k",))
    assert stays[:-1].tolist() == (hashes < HALF)[:-1].tolist() and stays[399]
    assert 10 < len({key for key, stay in zip(keys[:-1], stays, strict=False) if stay}) < 27
    assert staying(OF_KEY, rows(["a", None, "b"], [5, None, 3]), 0).tolist() == [True, True, False]


@pytest.mark.parametrize("partitions", [2, 16])
def test_of_the_keys_of_each_partition_as_many_stay(partitions: int) -> None:
    """Goal: where keys are left out, all sites miss some. Method: partitions are ranges of the hash by which rows are dealt out."""
    given = rows([f"key {i}" for i in range(8000)], [0] * 8000)
    partition = partition_of(hash_columns(given, ("k",)), table_of_ranges(partitions))
    for kept in (HALF, HALF // 4):
        share = np.bincount(partition, key_hashes(given, ("k",)) < kept) / np.bincount(partition)
        assert np.abs(share - kept / ALL_KEPT).max() < 0.1, share


def test_two_sides_hash_the_same_keys_alike_in_any_order() -> None:
    one = pa.record_batch({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    assert key_hashes(one, ("a", "b")).tolist() == key_hashes(one, ("b", "a")).tolist()
    assert len(set(key_hashes(one, ("a", "b")).tolist())) == 3 and max(key_hashes(one, ("a",))) < ALL_KEPT


def test_a_gate_holds_back_sessions_that_a_row_that_was_left_out_would_have_changed() -> None:
    """Goal: a session comes if no row that was left out is within the gap of it. Method: sessions just before, in and behind what was
    lost, which is rows from 100 to 150, of all keys."""
    time = pa.timestamp("us", "UTC")
    schema = pa.schema([("k", pa.string()), ("window_start", time), ("window_end", time)])
    step = Step("visits", "gate", {"columns": ("k",), "whole": OF_KEY, "around_us": 10}, schema, Port(0))
    gate = build(step)
    assert Facts.of([gate]).gates == (OF_KEY,) and Facts.of([gate]).timeless
    starts, ends = [50, 80, 95, 120, 159, 160, 161, 0], [100, 101, 105, 130, 180, 180, 180, 300]
    batch = pa.record_batch([pa.array(["a"] * 8), pa.array(starts, time), pa.array(ends, time)], schema=schema)
    (out,) = gate.process(Rows(batch, np.zeros(8, np.int32), None), Tick(1, 1, 0, 0, lost=(Lost(100, 150, 0),)))
    assert out.batch.column("window_start").cast(pa.int64()).to_pylist() == [50, 161]
    (out,) = gate.process(Rows(batch, np.zeros(8, np.int32), None), Tick(1, 1, 0, 0, lost=(Lost(100, 150, ALL_KEPT - 1),)))
    assert out.count == 8, "the key stays"


def test_what_keys_have_lost_is_remembered_and_spans_with_as_much_kept_are_one() -> None:
    facts = Facts.of([Gate(pa.schema([("k", pa.string())]), ("k",), OF_KEY, 10)])
    lost = facts.losing((), NO_WATERMARK, 7, 500)
    assert lost == (Lost(NO_WATERMARK, 7, 500),)
    lost = facts.losing(lost, 5, 19, 500)
    assert lost == (Lost(NO_WATERMARK, 19, 500),)
    assert facts.losing(lost, 5, 12, 500) == lost, "another partition has had later rows"
    lost = facts.losing(lost, 17, 30, 400)
    assert lost == (Lost(NO_WATERMARK, 19, 500), Lost(17, 30, 400))
    assert facts.losing(lost, 1000, 2000, ALL_KEPT) == lost, "a session may be as long as it likes"
    assert facts.losing(lost, 40, 50, 400) == (*lost, Lost(40, 50, 400)), "between them nothing was left out"
    for number in range(2 * SPANS):
        lost = facts.losing(lost, 100 * number + 100, 100 * number + 150, 300 + number)
    assert len(lost) == SPANS and lost[0] == Lost(NO_WATERMARK, 100 * SPANS + 150, 300)


def test_what_partitions_have_lost_together_is_what_any_of_them_has() -> None:
    facts = Facts.of([Gate(pa.schema([("k", pa.string())]), ("k",), OF_KEY, 10)])
    before, since, also = Lost(NO_WATERMARK, 19, 500), Lost(17, 30, 400), Lost(18, 25, 300)
    assert together((before, since), (since,)) == (before, since) == together((since,), (before, since)) == together((before, since), ())
    assert together((before, since), (also, since)) == (before, since, also)
    many = tuple(Lost(number, number + 9, 300 + number) for number in range(2 * SPANS))
    lost = facts.losing(together(many[::2], many[1::2]), 1000, 1009, 200)
    assert len(lost) == SPANS and lost[0] == Lost(0, SPANS + 10, 300) and lost[-1] == Lost(1000, 1009, 200)


def test_of_two_spans_that_become_one_none_ends_before() -> None:
    """Goal: what may be missing stays so. Method: the first one is of a row that was far ahead."""
    facts = Facts.of([Gate(pa.schema([("k", pa.string())]), ("k",), OF_KEY, 10)])
    lost = facts.losing((), NO_WATERMARK, 50_000, 500)
    for number in range(SPANS):
        lost = facts.losing(lost, 100 * number, 100 * number + 50, 300 + number)
    assert len(lost) == SPANS and lost[0] == Lost(NO_WATERMARK, 50_000, 300)
