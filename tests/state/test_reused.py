"""Memory that serves again when what lies in it was let go, and not before."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from evenflow.state.reused import Reused


def address(of: np.ndarray) -> int:
    return of.__array_interface__["data"][0]


def test_memory_serves_again_when_nobody_has_what_lay_in_it() -> None:
    memory = Reused()
    first = memory.take(1000)
    assert first.shape == (1000,) and first.dtype == np.uint8
    was = address(first)
    del first
    assert address(memory.take(900)) == was


def test_what_somebody_still_looks_at_stays_as_it_is() -> None:
    memory = Reused()
    given = memory.take(1000)
    given[:] = 7
    state = given.data.toreadonly()
    rows = np.frombuffer(state, np.int64, 10, 8)
    del given, state
    other = memory.take(1000)
    other[:] = 9
    assert set(rows.view(np.uint8).tolist()) == {7}


def test_a_view_alone_keeps_it() -> None:
    memory = Reused()
    views = [memory.take(1000)[8:88], memory.take(1000)[:80].view(np.int64), np.asarray(memory.take(1000)).reshape(10, 100)[2]]
    for at, view in enumerate(views):
        view[:] = at
    for _ in range(8):
        memory.take(900)[:] = 9
    assert [set(view.tolist()) for view in views] == [{0}, {1}, {2}]


def test_two_that_are_held_at_once_lie_apart() -> None:
    memory = Reused()
    first, second = memory.take(64), memory.take(64)
    first[:], second[:] = 1, 2
    assert set(first.tolist()) == {1} and set(second.tolist()) == {2}


def test_a_block_that_is_too_small_gives_way_to_a_larger_one() -> None:
    memory = Reused()
    for size in (100, 1_000, 10_000):
        assert memory.take(size).shape == (size,)
    assert len(memory._free) == 1
    larger = memory.take(5_000)
    assert not memory._free and larger.shape == (5_000,)


def test_it_goes_with_who_made_it() -> None:
    memory = Reused()
    kept = memory.take(100)
    gone = weakref.ref(memory)
    del memory
    gc.collect()
    assert gone() is None and kept.shape == (100,)
