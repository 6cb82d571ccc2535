"""The proportional memory of a process is read beside its loop: the system goes over every page that the process has."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from evenflow.world.spark.net.vitals import Proportional, pss_bytes

LARGE_BYTES = 400 << 20


@pytest.fixture(scope="module")
def large() -> np.ndarray:
    if not pss_bytes():
        pytest.skip("the system does not say how much of its memory a process shares")
    return np.ones(LARGE_BYTES // 8)


def read(memory: Proportional) -> int:
    """What it is as soon as it is known."""
    end_s = time.monotonic() + 20.0
    while not (found := memory.bytes):
        assert time.monotonic() < end_s, "nobody reads it"
        time.sleep(0.001)
    return found


def test_who_asks_does_not_wait_for_the_pages(large: np.ndarray) -> None:
    began_s = time.thread_time()
    pss_bytes()
    by_itself_s = time.thread_time() - began_s
    memory = Proportional()
    began_s = time.thread_time()
    memory.look()
    asked_s = time.thread_time() - began_s
    assert read(memory) > large.nbytes
    assert asked_s < by_itself_s / 2, "to begin a thread costs a tenth of a millisecond, to go over 400 MiB several"


def test_nobody_looks_twice_at_once(large: np.ndarray) -> None:
    memory, before = Proportional(), threading.active_count()
    for _ in range(20):
        memory.look()
        assert threading.active_count() <= before + 1
    assert read(memory) > large.nbytes
