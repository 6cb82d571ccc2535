"""Laws of cuts by content: readers agree on epochs without a word (E9), whatever their batches, and wherever they begin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.stream.cut import NO_NUMBER, Grid, Numbers, Running, TooFarAhead, runs_of

GRID = Grid(origin=1000, width=20, begin_us=1000, step_us=20)
NUMBERS = st.lists(st.integers(900, 1400) | st.just(NO_NUMBER), min_size=1, max_size=60)


def as_array(numbers: list[int]) -> Numbers:
    return np.array(numbers, np.int64)


def plainly(numbers: list[int], grid: Grid = GRID) -> list[int]:
    """E9 in plain Python."""
    greatest, found = grid.origin, []
    for number in numbers:
        greatest = max(greatest, number)
        found.append(1 + (greatest - grid.origin) // grid.width)
    return found


@given(NUMBERS, st.lists(st.integers(1, 7), min_size=1))
def test_readers_with_different_batches_agree(numbers: list[int], sizes: list[int]) -> None:
    running, at, found, turn = Running(GRID), 0, [], 0
    while at < len(numbers):
        size = sizes[turn % len(sizes)]
        found += running.epochs(as_array(numbers[at : at + size])).tolist()
        at, turn = at + size, turn + 1
    assert found == plainly(numbers)
    assert running.whole == found[-1] - 1


@given(NUMBERS, st.integers(0, 25))
def test_who_begins_behind_an_epoch_need_not_know_what_came_before(numbers: list[int], epoch: int) -> None:
    epochs = plainly(numbers)
    behind = next((at for at, each in enumerate(epochs) if each > epoch), len(numbers))
    if behind < len(numbers):
        assert Running(GRID).epochs(as_array(numbers[behind:])).tolist() == epochs[behind:]


@given(NUMBERS)
def test_runs_are_the_rows_of_each_epoch(numbers: list[int]) -> None:
    epochs = as_array(plainly(numbers))
    found = [epoch for epoch, first, rows in runs_of(epochs) for _ in range(rows)]
    assert found == epochs.tolist()
    assert [first for _, first, _ in runs_of(epochs)] == [int(np.argmax(epochs == epoch)) for epoch in sorted(set(epochs.tolist()))]


@given(st.integers(900, 1500))
def test_a_promise_closes_what_it_says_and_no_more(promise: int) -> None:
    closed = GRID.closed_by(promise)
    assert all(plainly([number])[0] > closed for number in range(max(promise, 1000), promise + 60))
    assert closed == 0 or plainly([GRID.first(closed + 1) - 1]) == [closed]
    assert GRID.first(closed + 2) > promise or promise < 1000


def test_a_late_number_enters_the_current_epoch() -> None:
    assert Running(GRID).epochs(as_array([1005, 1045, 1001, 1039, 1060])).tolist() == [1, 3, 3, 3, 4]


def test_numbers_at_the_ends_of_what_there_is_do_not_wrap() -> None:
    grid = Grid(origin=0, width=1, begin_us=0, step_us=1000)
    assert Running(grid).epochs(as_array([NO_NUMBER, 0, 2**62, -5])).tolist() == [1, 1, 2**62 + 1, 2**62 + 1]


def test_a_log_time_in_the_future_is_the_same_error_however_it_is_read() -> None:
    for size in (1, 2, 4):
        running = Running(GRID, ahead=100)

        def read(running: Running = running, size: int = size) -> None:
            for at in range(0, 4, size):
                running.epochs(as_array([1010, 1100, 9999, 1101][at : at + size]))

        with pytest.raises(TooFarAhead) as error:
            read()
        assert (error.value.number, error.value.before) == (9999, 1100)


MESSAGES = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["row", "row", "pulse"]), st.booleans()), min_size=1, max_size=40)


@given(MESSAGES, st.integers(0, 30))
def test_who_begins_behind_an_epoch_judges_as_who_has_read_all(given: list[tuple[int, str, bool]], epoch: int) -> None:
    """Goal: a gap that was let pass is let pass again, and one that was not is not. Pulses behind the last row of the epoch come again."""
    numbers, at = list[int](), GRID.origin
    for step, _, late in given:
        at += 0 if late else step
        numbers.append(at - step if late else at)

    def judged(running: Running, first: int) -> list[int | None]:
        """The epoch of each message; None at one that is too far ahead, the last."""
        found = list[int | None]()
        for number in numbers[first:]:
            try:
                found.append(int(running.epochs(as_array([number]))[0]))
            except TooFarAhead:
                return [*found, None]
        return found

    whole = Running(GRID, ahead=50)
    epochs = judged(whole, 0)
    if epoch > whole.whole:
        return  # Nobody can begin behind it.
    rows = [index for index, found in enumerate(epochs) if given[index][1] == "row" and found is not None]
    behind = max((index + 1 for index in rows if (epochs[index] or 0) <= epoch), default=0)
    again = Running(GRID, ahead=50)
    again.begin_behind(epoch)
    found = judged(again, behind)
    assert len(found) == len(epochs[behind:])
    kept = [index - behind for index in rows if index >= behind]
    assert [found[index] for index in kept] == [epochs[index + behind] for index in kept]
    assert (found[-1:] == [None]) == (epochs[behind:][-1:] == [None])


def test_stamps_are_those_of_the_grid() -> None:
    assert [GRID.stamp(epoch) for epoch in (1, 2, 50)] == [1020, 1040, 2000]
