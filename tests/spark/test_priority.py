"""What the system's scheduler is told of threads; that it acts on it is the system's."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from evenflow.world.spark.priority import SERVING, weighed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a nice value for every thread")


def nice() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user may not give a thread more weight")
def test_who_serves_weighs_more_and_so_does_what_it_starts() -> None:
    before, seen = nice(), list[int]()
    with weighed(SERVING):
        thread = threading.Thread(target=lambda: seen.append(nice()))
        thread.start()
        thread.join()
    assert seen == [max(before + SERVING, -20)]
    assert nice() == before, "a process that goes on to something else does so as it was"


def test_who_may_not_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "setpriority", refuse)
    before = nice()
    with weighed(SERVING):
        assert nice() == before
    assert nice() == before
