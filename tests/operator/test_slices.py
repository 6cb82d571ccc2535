"""What a checkpoint of rows that are in no table costs the loop, and the interpreter in one go: nothing that grows with the rows held.

Work is counted by the memory that NumPy takes for it, and by how often the writer gives way: both are the same on every machine.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from tests.operator.test_checkpoint_deltas import changes_of
from tests.operator.test_held_changes import OPERATORS, PARTITIONS, Stream

from evenflow.operator.operator import Operator
from evenflow.state.apart import SLICE_ROWS, Apart, Lying, among, summed
from evenflow.state.held_changes import HeldPart

ROWS, EACH = 120_000, 10_000
CAPTURED_BYTES = 40_000
"""Of a capture, on the loop: some objects, and numbers by partition."""
ROW_BYTES = 64
"""Of a row of these operators, about, while it is made bytes."""


def filled(name: str) -> tuple[Operator, Stream]:
    operator, stream = OPERATORS[name](), Stream(7)
    for _ in range(ROWS // EACH):
        operator.process(*stream.rows(EACH))
    return operator, stream


def peak_of(do: Callable[[], object]) -> int:
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    do()
    return tracemalloc.get_traced_memory()[1] - before


@pytest.mark.parametrize("name", OPERATORS)
def test_the_loop_looks_at_no_row_and_the_writer_at_some_at_a_time(name: str) -> None:
    operator, stream = filled(name)
    found: list[HeldPart] = []
    slices: list[int] = []

    def capture(number: int, bases: range) -> None:
        changes, here = changes_of(operator), range(PARTITIONS)
        assert sum(map(changes.count_of, here)) >= ROWS // 2
        found[:] = changes.capture_changes(number, stream.epoch, here, bases)  # type: ignore[arg-type]

    def rest() -> None:
        slices.append(tracemalloc.get_traced_memory()[1] - slices_from[0])
        tracemalloc.reset_peak()
        slices_from[0] = tracemalloc.get_traced_memory()[0]

    for number, bases in enumerate((range(PARTITIONS), range(0)), 1):
        operator.process(*stream.rows(EACH))
        tracemalloc.start()
        try:
            assert peak_of(lambda: capture(number, bases)) <= CAPTURED_BYTES  # noqa: B023
            tracemalloc.reset_peak()
            slices, slices_from = [], [tracemalloc.get_traced_memory()[0]]
            for part in found:
                part.read(rest)
        finally:
            tracemalloc.stop()
        changes_of(operator).lineages.complete(number)
        largest = max(changes_of(operator).count_of(p) for p in range(PARTITIONS))
        assert len(slices) >= ROWS // 2 // SLICE_ROWS + PARTITIONS
        assert max(slices) <= 4 * ROW_BYTES * max(largest, SLICE_ROWS), (max(slices), largest)


def test_rows_are_taken_apart_as_one_sort_would() -> None:
    random = np.random.default_rng(1)
    sizes = (0, 10, 3 * SLICE_ROWS + 5, SLICE_ROWS)
    owners = [random.integers(0, 7, size).astype(np.int32) for size in sizes]
    alive = random.random(sizes[2]) < 0.5
    runs = [Lying(owners[0]), Lying(owners[1], start=4), Lying(owners[2], alive=alive, dead=(3,)), Lying(owners[3], dead=(0, 5))]
    rests: list[None] = []
    apart = Apart(runs, lambda: rests.append(None))
    assert len(rests) == 1 + 4 + 1
    everyone = np.concatenate(owners)
    counts = np.concatenate([np.ones(0, np.bool_), np.arange(10) >= 4, alive & (owners[2] != 3), ~np.isin(owners[3], (0, 5))])
    for partition in range(8):
        assert np.array_equal(apart.of(partition), np.flatnonzero((everyone == partition) & counts))
    at = apart.of(2)
    assert (apart.gather(owners, at) == 2).all() and apart.gather(owners, at).size == at.size
    assert [number for number, _ in apart.by_run(apart.of(0))] == [1, 2]


def test_some_are_among_others_in_any_order() -> None:
    random = np.random.default_rng(2)
    for size in (0, 1, 5, 1000):
        some, others = random.integers(-50, 50, 200), random.integers(-50, 50, size)
        assert np.array_equal(among(some, others), np.isin(some, others))
        assert np.array_equal(among(some, np.sort(others)), np.isin(some, others))
    assert summed([np.array([1, 2]), np.array([], np.int64), np.array([1, 1, 5])]).tolist() == [2, 3, 5]
