"""PagedTable against a dictionary: finding, folding, removing, capturing while writing goes on, moving, dropping."""

from __future__ import annotations

import itertools
import mmap
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from evenflow.kernels import fold
from evenflow.kernels import table as table_kernels
from evenflow.kernels.hash import check_words, hash_columns
from evenflow.kernels.table import HEADER, PAGE
from evenflow.state.changes import pages_written
from evenflow.state.lineages import Point
from evenflow.state.page_snapshot import by_key
from evenflow.state.pages import PIECE_PAGES, PagedTable

COUNT_AND_SUM = np.array([[fold.ROWS, 4, 0, -1], [fold.ISUM, 5, 0, -1]], np.int64)


def identity(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    batch = pa.RecordBatch.from_arrays([pa.array(keys)], ["k"])
    return hash_columns(batch, ["k"]), check_words(batch, ["k"])


def add(table: PagedTable, keys: np.ndarray, values: np.ndarray, epoch: int = 1, partitions: int = 4) -> None:
    hashes, checks = identity(keys)
    table.fold((keys % partitions).astype(np.int32), hashes, checks, epoch=epoch, ops=COUNT_AND_SUM, values=values.reshape(1, -1))


def content(table: PagedTable, partition: int) -> dict[int, tuple[int, int]]:
    rows = table.words[table.slots_of(partition)]
    return {int(row[1]): (int(row[HEADER]), int(row[HEADER + 1])) for row in rows}


def model(keys: np.ndarray, values: np.ndarray, partition: int, partitions: int = 4) -> dict[int, tuple[int, int]]:
    expected: dict[int, tuple[int, int]] = {}
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        if key % partitions == partition:
            count, total = expected.get(key, (0, 0))
            expected[key] = (count + 1, total + value)
    return expected


def new() -> PagedTable:
    return PagedTable(np.zeros(3, np.int64))


def test_folds_like_a_dictionary_and_grows() -> None:
    rng = np.random.default_rng(1)
    table = new()
    keys, values = rng.integers(0, 20_000, 60_000), rng.integers(-1000, 1000, 60_000)
    for cut in range(0, 60_000, 7_001):
        add(table, keys[cut : cut + 7_001], values[cut : cut + 7_001], epoch=cut)
    for partition in range(4):
        assert content(table, partition) == model(keys, values, partition)
    assert table.count == np.unique(keys).size
    assert table.count_of(2) == np.unique(keys[keys % 4 == 2]).size


def test_reports_distinct_rows_in_order_of_first_appearance() -> None:
    table = new()
    hashes, checks = identity(np.array([7, 5, 7, 9, 5]))
    add(table, np.array([5]), np.array([1]), partitions=1)
    touched = table.fold(np.zeros(5, np.int32), hashes, checks, epoch=2)
    assert touched.rows.tolist() == [0, 1, 3]
    assert touched.ordinals.tolist() == [0, 1, 0, 2, 1]
    assert touched.new.tolist() == [True, False, True]
    assert table.words[touched.slots, 1].tolist() == [7, 5, 9]
    assert touched.slot_of.tolist() == touched.slots[touched.ordinals].tolist()


def test_extra_tells_windows_of_a_key_apart() -> None:
    table = new()
    hashes, checks = identity(np.array([1, 1, 1]))
    touched = table.fold(np.zeros(3, np.int32), hashes, checks, epoch=1, extra=np.array([10, 0, 10]))
    assert touched.ordinals.tolist() == [0, 1, 0]


def test_sums_are_128_bits_wide() -> None:
    table = new()
    big = 2**62
    add(table, np.zeros(6, np.int64), np.array([big] * 3 + [-big] * 3), partitions=1)
    add(table, np.ones(6, np.int64), np.array([-big] * 6), partitions=1)
    rows = {int(r[1]): (int(r[HEADER + 2]) << 64) + (int(r[HEADER + 1]) & (2**64 - 1)) for r in table.words[table.slots_of(0)]}
    assert rows == {0: 0, 1: -6 * big}


def test_removed_rows_are_gone_and_their_slots_are_used_again() -> None:
    rng = np.random.default_rng(2)
    table, alive = new(), {}
    for step in range(60):
        keys = np.unique(rng.integers(0, 3000, 300))
        add(table, keys, keys, epoch=step)
        for key in keys.tolist():
            count, total = alive.get(key, (0, 0))
            alive[key] = (count + 1, total + key)
        slots = table.slots_of(step % 4)
        gone = slots[rng.random(slots.size) < 0.5]
        for key in table.words[gone, 1].tolist():
            del alive[key]
        table.remove(gone, epoch=step)
    assert {k: v for p in range(4) for k, v in content(table, p).items()} == alive
    assert table.count == len(alive)
    assert sum(table.pages_of(p).size for p in range(4)) <= 3000 // PAGE + 8


def test_a_snapshot_shows_the_moment_of_its_capture() -> None:
    rng = np.random.default_rng(3)
    table = new()
    taken = []
    for step in range(8):
        keys = rng.integers(0, 2000 + 500 * step, 1500)
        add(table, keys, keys, epoch=step)
        quiet = new()
        for partition in range(4):
            snapshot = table.capture(partition)
            assert snapshot is not None
            rows = table.words[table.slots_of(partition)].copy()
            taken.append((snapshot, rows, partition))
        del quiet
        table.remove(table.slots_of(step % 4)[::3], epoch=step)
        if step % 3 == 2:
            table.drop(step % 4)
        if step == 5:
            taken[1][0].to_bytes()
    for snapshot, rows, partition in taken:
        other = new()
        other.install(partition, snapshot.to_bytes())
        expected = {tuple(row[[0, 1, 4, 5, 6]]) for row in rows}
        found = {tuple(row[[0, 1, 4, 5, 6]]) for row in other.words[other.slots_of(partition)]}
        assert found == expected


def test_equal_states_have_equal_bytes_whatever_their_history() -> None:
    keys = np.arange(3000)
    one, other = new(), new()
    add(one, keys, keys)
    add(other, keys[::-1].copy(), keys[::-1].copy())
    add(other, keys + 10_000, keys)
    for partition in range(4):
        slots = other.slots_of(partition)
        other.remove(slots[other.words[slots, 1] >= 10_000], epoch=2)
        a, b = one.capture(partition), other.capture(partition)
        assert a is not None
        assert b is not None
        assert a.to_bytes() == b.to_bytes()


def test_a_snapshot_can_be_read_by_another_thread_while_rows_are_written() -> None:
    rng = np.random.default_rng(4)
    table = new()
    keys = np.arange(120_000)
    add(table, keys, keys, partitions=1)
    snapshot = table.capture(0)
    assert snapshot is not None
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(snapshot.to_bytes()))
    reader.start()
    for step in range(50):
        some = rng.integers(0, 400_000, 4000)
        add(table, some, some, epoch=2 + step, partitions=1)
    reader.join()
    expected = new()
    add(expected, keys, keys, partitions=1)
    capture = expected.capture(0)
    assert capture is not None
    assert read[0] == capture.to_bytes()


def test_moving_and_dropping_leaves_the_others_alone() -> None:
    rng = np.random.default_rng(5)
    keys = rng.integers(0, 5000, 9000)
    here, there = new(), new()
    add(here, keys, keys)
    snapshot = here.capture(1)
    assert snapshot is not None
    there.install(1, snapshot.to_bytes())
    here.drop(1)
    assert content(there, 1) == model(keys, keys, 1)
    assert here.capture(1) is None
    for partition in (0, 2, 3):
        assert content(here, partition) == model(keys, keys, partition)
    with pytest.raises(AssertionError, match="installed already"):
        there.install(1, snapshot.to_bytes())
    add(here, keys[keys % 4 == 1], keys[keys % 4 == 1])
    assert content(here, 1) == model(keys, keys, 1), "a dropped partition starts empty"


def test_logging_ends_with_the_last_reader() -> None:
    table = new()
    keys = np.arange(2000)
    add(table, keys, keys)
    snapshot = table.capture(0)
    add(table, keys, keys)
    assert table._counts[3] == 500, "one row logged for each row of partition 0, once"
    add(table, keys, keys)
    assert table._counts[3] == 500
    del snapshot
    add(table, keys, keys)
    assert table._counts[3] == 0


def written(table: PagedTable, partition: int, epoch: int) -> int:
    numbers, owners = pages_written(table._pages[:, table_kernels.WRITTEN :], {partition: Point(epoch, 0)})
    assert (owners == partition).all()
    return numbers.size


def test_pages_written_since_an_epoch() -> None:
    table = new()
    add(table, np.arange(4000), np.arange(4000), epoch=1)
    assert written(table, 1, 1) == 0
    add(table, np.array([1]), np.array([1]), epoch=2)
    assert written(table, 1, 1) == 1
    assert written(table, 1, 0) == table.pages_of(1).size == 4


def test_objects_travel_with_their_rows() -> None:
    table = PagedTable(np.zeros(0, np.int64), [pa.string(), pa.list_(pa.float64())])
    hashes, checks = identity(np.arange(600))
    touched = table.fold(np.zeros(600, np.int32), hashes, checks, epoch=1)
    table.objects[0][touched.slots] = [f"s{i}" for i in range(600)]
    table.objects[1][touched.slots[5]] = (1.0, None, float("nan"))
    snapshot = table.capture(0)
    table.objects[0][table.find(0, hashes, checks).slots] = None
    other = PagedTable(np.zeros(0, np.int64), [pa.string(), pa.list_(pa.float64())])
    assert snapshot is not None
    other.install(3, snapshot.to_bytes())
    slots = other.find(3, hashes, checks).slots
    assert other.objects[0][slots].tolist() == [f"s{i}" for i in range(600)]
    assert repr(other.objects[1][slots[5]]) == "(1.0, None, nan)"


TEXT = [pa.string()]


def write(table: PagedTable, keys: np.ndarray, what: str, partitions: int = 2) -> None:
    hashes, checks = identity(keys)
    touched = table.fold((keys % partitions).astype(np.int32), hashes, checks, epoch=1)
    table.objects[0][touched.slots] = [f"{what} {key}" for key in keys[touched.rows].tolist()]


def texts(state: bytes) -> dict[int, str]:
    table = PagedTable(np.zeros(1, np.int64), TEXT)
    slots = table.install(0, state)
    return dict(zip(table.words[slots, 1].tolist(), table.objects[0][slots].tolist(), strict=True))


def test_a_snapshot_shows_objects_of_the_moment_of_its_capture() -> None:
    """Written again and again, removed, moved to other slots, grown, dropped: it does not show."""
    rng = np.random.default_rng(6)
    table = PagedTable(np.zeros(1, np.int64), TEXT)
    truth: dict[int, str] = {}
    taken = []
    for step in range(12):
        keys = np.unique(rng.integers(0, 1000 + 400 * step, 700))
        write(table, keys, f"step {step}")
        truth |= {key: f"step {step} {key}" for key in keys.tolist()}
        for partition in range(2):
            snapshot = table.capture(partition)
            assert snapshot is not None
            taken.append((snapshot, {k: v for k, v in truth.items() if k % 2 == partition}))
        gone = table.slots_of(step % 2)[::3]
        for key in table.words[gone, 1].tolist():
            del truth[key]
        table.remove(gone, epoch=step)
        if step == 7:
            table.drop(1)
            truth = {k: v for k, v in truth.items() if k % 2 != 1}
        if step == 4:
            taken[3][0].to_bytes()
    for snapshot, expected in taken:
        assert texts(snapshot.to_bytes()) == expected
    table._sweep()
    assert table.object_log == []


def test_objects_can_be_read_by_another_thread_while_they_are_written() -> None:
    table = PagedTable(np.zeros(1, np.int64), TEXT)
    keys = np.arange(30_000)
    write(table, keys, "old", partitions=1)
    snapshot = table.capture(0)
    assert snapshot is not None
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(snapshot.to_bytes()))
    reader.start()
    rng = np.random.default_rng(7)
    for _ in range(60):
        write(table, np.unique(rng.integers(0, 60_000, 500)), "new", partitions=1)
    reader.join()
    assert texts(read[0]) == {key: f"old {key}" for key in keys.tolist()}


def test_a_partition_is_installed_over_pages_whose_rows_are_gone() -> None:
    table, other = new(), new()
    keys = np.arange(3000)
    add(table, keys, keys)
    add(other, keys, keys)
    before = table.capture(1)
    table.remove(table.slots_of(1), epoch=1)
    state = other.capture(1)
    assert before is not None
    assert state is not None
    slots = table.install(1, state.to_bytes())
    assert sorted(slots.tolist()) == table.slots_of(1).tolist()
    add(table, keys + 1, keys)
    assert before.to_bytes() == state.to_bytes()
    assert content(table, 1) == model(np.concatenate([keys, keys + 1]), np.concatenate([keys, keys]), 1)
    assert sum(table.pages_of(p).size for p in range(4)) <= table.words.shape[0] // PAGE


def test_the_index_grows_at_most_once_for_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    origin, target = new(), new()
    keys = np.arange(80_000)
    add(origin, keys, keys)
    grown: list[int] = []
    rehash = table_kernels.rehash
    monkeypatch.setattr(table_kernels, "rehash", lambda old, larger: (grown.append(larger.size), rehash(old, larger)))
    for partition in range(4):
        before = len(grown)
        snapshot = origin.capture(partition)
        assert snapshot is not None
        target.install(partition, snapshot.to_bytes())
        assert len(grown) <= before + 1
    assert len(grown) <= 3
    assert target.count == 80_000


@pytest.mark.parametrize("rows", [1, PAGE - 1, PAGE, PAGE + 1, 50_000])
def test_installed_rows_are_found_and_captured_again(rows: int) -> None:
    origin, table = new(), new()
    keys = np.arange(rows)
    add(origin, keys, keys, partitions=1)
    add(table, keys * 2, keys, partitions=1)
    table.drop(0)
    table.remove(table.slots_of(0), epoch=1)
    snapshot = origin.capture(0)
    assert snapshot is not None
    table.install(0, snapshot.to_bytes())
    captured = table.capture(0)
    add(table, keys, keys, partitions=1)
    assert content(table, 0) == {key: (2, 2 * key) for key in range(rows)}
    assert table.count == table.count_of(0) == rows
    assert captured is not None
    assert captured.to_bytes() == snapshot.to_bytes()


def test_refuses_a_strangers_state() -> None:
    with pytest.raises(ValueError, match="words"):
        new().install(0, b"EFP1" + bytes(12))


def test_a_partition_comes_in_pieces_between_which_others_go_on() -> None:
    """Goal: nobody waits for an install. Method: others fold, remove and come whole between its pieces, while the index grows, too."""
    rng = np.random.default_rng(8)
    origin, table = new(), new()
    keys, own = np.arange(0, 240_000, 4) + 1, np.arange(0, 120_000, 4)
    add(origin, keys, keys)
    add(origin, own[:900] + 2, own[:900])
    add(table, own[:900] + 3, own[:900])
    add(table, own, own)
    table.drop(3)  # Its pages, the first ones, are taken again.
    truth = model(own, own, 0)
    snapshot, small = origin.capture(1), origin.capture(2)
    assert snapshot is not None and small is not None
    before, pieces, largest = table._index.size, 0, 0
    for slots in table.installing(1, snapshot.to_bytes()):
        pieces, largest = pieces + 1, max(largest, slots.size)
        more = rng.integers(0, 40_000, 40) * 4
        add(table, more, more, epoch=pieces)
        for key, (count, total) in model(more, more, 0).items():
            truth[key] = (truth.get(key, (0, 0))[0] + count, truth.get(key, (0, 0))[1] + total)
        gone = rng.choice(table.slots_of(0), 60, replace=False)
        for key in table.words[gone, 1].tolist():
            del truth[key]
        table.remove(gone, epoch=pieces)
        if pieces == 10:
            table.install(2, small.to_bytes())
    assert np.count_nonzero(table._index) == table.count, "what has gone since is in neither"
    assert table._index.size > before and pieces > 20 and largest == PIECE_PAGES * PAGE
    add(table, keys, keys)
    assert content(table, 1) == {int(key): (2, 2 * int(key)) for key in keys}, "each is found"
    present = np.array(sorted(truth))
    add(table, present, present)
    assert content(table, 0) == {key: (count + 1, total + key) for key, (count, total) in truth.items()}
    assert content(table, 2) == model(own[:900] + 2, own[:900], 2)
    assert table.count == len(truth) + keys.size + 900


def test_who_cannot_wait_for_the_index_makes_it_grow_at_once() -> None:
    origin, table = new(), new()
    keys = np.arange(0, 240_000, 4) + 1
    add(origin, keys, keys)
    add(table, keys[:10_000] + 1, keys[:10_000])
    snapshot = origin.capture(1)
    assert snapshot is not None
    pieces = table.installing(1, snapshot.to_bytes())
    next(pieces)
    others = np.arange(0, 600_000, 4) + 2
    add(table, others, others)
    for _ in pieces:
        pass
    add(table, keys, keys)
    assert content(table, 1) == {int(key): (2, 2 * int(key)) for key in keys}
    assert table.count == keys.size + others.size


def test_a_dropped_partition_is_gone_at_once_and_leaves_piece_by_piece() -> None:
    """Its keys may come back before its memory has been given back: with its state, or without any."""
    table = new()
    keys = np.arange(200_000)
    add(table, keys, keys)
    slots, snapshot, used = table.slots_of(1), table.capture(1), table.state_bytes()
    table.drop(1)
    table.drop(3)
    assert table.count == 100_000 and table.count_of(1) == 0 and not table.held(slots).any()
    assert table.every_slot().size == 100_000 and table.state_bytes() < used - 6_000_000
    hashes, checks = identity(keys[1::4])
    assert (table.seek(hashes, checks, np.zeros(hashes.size, np.int64)) == -1).all()
    add(table, keys[::4], keys[::4])
    assert len(table._retired) == 2, "it is not all done at once"
    assert snapshot is not None
    table.install(1, snapshot.to_bytes())
    add(table, keys[3::4][:10], keys[3::4][:10])
    assert content(table, 1) == model(keys, keys, 1)
    assert content(table, 3) == model(keys[3::4][:10], keys[3::4][:10], 3), "nothing of what it had before"
    while table.give_back():
        pass
    add(table, keys, keys)
    assert table.count == 200_000 and content(table, 2)[2] == (2, 4)


@pytest.mark.parametrize("way", ["install", "absorb"])
def test_rows_that_come_as_another_partitions_are_found_and_not_the_dead_ones(way: str) -> None:
    """Ranges have changed: the keys of a partition that was dropped a moment ago, of many pages, come with another one."""
    table, keys = new(), np.arange(60_000)
    add(table, keys, keys, partitions=2)
    found = new()
    add(found, keys, keys, partitions=1)
    table.drop(0)
    table.drop(1)
    if way == "install":
        snapshot = found.capture(0)
        assert snapshot is not None
        table.install(0, snapshot.to_bytes())
    else:
        table.absorb(0, found)
    hashes, checks = identity(keys)
    slots = table.seek(hashes, checks, np.zeros(keys.size, np.int64))
    assert table.held(slots).all() and (table.owner_of(slots) == 0).all()
    add(table, keys, keys, partitions=1)
    again = np.concatenate([keys, keys])
    assert table.count == keys.size and content(table, 0) == model(again, again, 0, partitions=1)


def test_memory_is_given_back_in_pieces_before_a_partition_comes_in_pieces() -> None:
    table, keys = new(), np.arange(200_000)
    add(table, keys, keys)
    snapshot = table.capture(1)
    assert snapshot is not None
    state = snapshot.to_bytes()
    table.drop(0)
    table.drop(1)
    left = []
    for slots in table.installing(1, state):
        left.append(sum(pages.size for _, pages in table._retired))
        assert slots.size == 0 or left[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(left)) == PIECE_PAGES


def test_a_dropped_partition_gives_its_memory_back() -> None:
    """Goal: state that goes to disk is in memory no more. Method: what is resident before and after; others stay."""
    table = PagedTable(np.zeros(3, np.int64))
    small, large = identity(np.arange(1000)), identity(np.arange(1000, 1_001_000))
    table.find(1, *small)
    table.find(2, *large)
    before = resident_bytes()
    table.drop(2)
    while table.give_back():
        pass
    assert resident_bytes() < before - 30_000_000
    assert table.find(1, *small).new.sum() == 0
    assert table.find(3, *large).new.all(), "the pages are used again, and empty"


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_absorbing_a_partition_is_installing_it() -> None:
    keys = np.arange(40_000)
    table, other = new(), new()
    add(table, keys[keys % 4 != 1], keys[keys % 4 != 1])
    add(other, keys, 2 * keys)
    other.remove(other.slots_of(1)[::3], epoch=2)
    expected = content(other, 1)
    with pytest.raises(AssertionError, match="installed already"):
        table.absorb(2, other)

    slots = table.absorb(1, other)
    assert content(table, 1) == expected and sorted(slots.tolist()) == table.slots_of(1).tolist()
    assert content(table, 2) == model(keys, keys, 2), "others are as they were"
    mine, theirs = table.capture(1), other.capture(1)
    assert mine is not None and theirs is not None and mine.to_bytes() == theirs.to_bytes()
    gone = np.array([key for key in keys[keys % 4 == 1].tolist() if key not in expected])
    add(table, np.append(gone, 1), np.ones(gone.size + 1, np.int64))
    assert table.count_of(1) == 10_000, "those that were there are found, the others are new"


def test_objects_are_absorbed_with_their_rows() -> None:
    table, other = (PagedTable(np.zeros(1, np.int64), [pa.string()]) for _ in range(2))
    keys = np.arange(5_000)
    hashes, checks = identity(keys)
    touched = other.fold(np.zeros(keys.size, np.int32), hashes, checks, epoch=1)
    other.objects[0][touched.slots] = [f"text {key}" for key in keys]
    slots = table.absorb(0, other)
    assert sorted(table.objects[0][slots]) == sorted(f"text {key}" for key in keys)


def test_rows_lie_by_all_three_words_of_a_key_where_hashes_are_the_same() -> None:
    """Goal: the order of a state's rows is that of (hash, check, window) as unsigned numbers, whatever is tied."""
    drawn = np.random.default_rng(5)
    hashes, checks = (drawn.integers(0, most, 5_000).astype(np.uint64) << np.uint64(60) for most in (16, 4))
    windows = drawn.permutation(5_000).astype(np.uint64) << np.uint64(51)
    found = by_key(hashes, lambda tied: (checks[tied], windows[tied]))
    assert found.tolist() == sorted(range(5_000), key=lambda at: (int(hashes[at]), int(checks[at]), int(windows[at])))
    alone = drawn.permutation(100).astype(np.uint64)
    assert by_key(alone, lambda tied: (alone[tied], alone[tied])).tolist() == np.argsort(alone).tolist()
