"""What the system's scheduler is told of threads; that it acts on it is the system's."""

from __future__ import annotations

import gc
import os
import sys
import threading

import pytest

from evenflow.world.spark.net.priority import SERVING, SWITCH_INTERVAL_S, Interpreter, aside, weighed

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


def test_what_is_done_aside_weighs_less_and_who_waits_for_it_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for an ordinary user, who may give a thread less weight, and not as much again as it had before."""
    allowed = os.setpriority

    def only_less(which: int, who: int, value: int) -> None:
        if value < os.getpriority(which, who):
            raise PermissionError(13, "Permission denied")
        allowed(which, who, value)

    monkeypatch.setattr(os, "setpriority", only_less)
    before = nice()
    assert [aside(2, nice) for _ in range(3)] == [min(before + 2, 19)] * 3
    assert nice() == before


def test_what_is_raised_aside_is_raised() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        aside(1, fail)


class Idle:
    """A thread of the user's program, which does nothing. nice: its nice value."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._over.wait)
        self._thread.start()

    @property
    def nice(self) -> int:
        assert self._thread.native_id is not None
        return os.getpriority(os.PRIO_PROCESS, self._thread.native_id)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user may not give a thread more weight")
def test_who_holds_the_interpreter_weighs_as_much_as_who_serves() -> None:
    """Else a thread of the user's program that is not let onto the processor holds up the one that serves, whatever that weighs."""
    before, program = nice(), Interpreter(SERVING)
    idle = Idle()
    with program.serving():
        with program.serving():
            later = Idle()
        assert [nice(), idle.nice, later.nice] == [before + SERVING] * 3, "somebody still serves, and it is added once"
    assert [nice(), idle.nice, later.nice] == [before] * 3
    idle.end()
    later.end()


def test_the_interpreter_changes_hands_often_while_somebody_serves() -> None:
    before, program = sys.getswitchinterval(), Interpreter(0)
    with program.serving(), program.serving():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    assert sys.getswitchinterval() == pytest.approx(before)
    sys.setswitchinterval(SWITCH_INTERVAL_S / 5)
    try:
        with program.serving():
            assert sys.getswitchinterval() <= SWITCH_INTERVAL_S / 5, "the user wants it to be quicker still"
    finally:
        sys.setswitchinterval(before)


def test_collections_pass_by_what_a_program_has_while_somebody_serves() -> None:
    program = Interpreter(0)
    program.settle()
    assert gc.get_freeze_count() == 0, "nobody serves"
    with program.serving():
        program.settle()
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
