"""What is said of user code that does not return, by a clock of the test's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from evenflow.site.facts import PartFailed, UserCodeSlow
from evenflow.site.overdue import SLOW_S, Overdue, Running


def running(since_s: float, epoch: int = 7) -> Running:
    work: Any = SimpleNamespace(hosted=SimpleNamespace(box="score"), tick=SimpleNamespace(epoch=epoch))
    return Running(work, since_s, lambda: "here")


def test_quick_user_code_is_not_spoken_of() -> None:
    overdue = Overdue(10.0)
    for now_s in range(100):
        assert overdue.look(running(now_s - SLOW_S / 2), now_s) == []
        assert overdue.look(None, now_s) == [] and overdue.slow(now_s) is None


def test_slow_user_code_is_told_of_once_and_again_when_it_is_back() -> None:
    overdue = Overdue(None)
    slow = running(100.0)
    assert overdue.look(slow, 100.0 + SLOW_S - 0.1) == []
    assert overdue.look(slow, 100.0 + SLOW_S) == [UserCodeSlow("score", 7, SLOW_S, "here")]
    assert overdue.look(slow, 100.0 + 2 * SLOW_S) == []
    assert overdue.slow(112.0) == ("score", 7, 12.0)
    assert overdue.look(None, 113.0) == [UserCodeSlow("score", 7, 13.0, "", over=True)]
    assert overdue.slow(113.0) is None and overdue.look(None, 114.0) == []


def test_the_next_epoch_is_another_one() -> None:
    overdue = Overdue(None)
    overdue.look(running(0.0), 9.0)
    [back] = overdue.look(running(10.0, epoch=8), 11.0)
    assert isinstance(back, UserCodeSlow) and back.over and back.epoch == 7
    [again] = overdue.look(running(10.0, epoch=8), 16.0)
    assert isinstance(again, UserCodeSlow) and (again.epoch, again.over) == (8, False)


def test_the_time_limit_fails_the_part_once_with_the_stack() -> None:
    overdue = Overdue(2.0)
    [failed] = overdue.look(running(0.0), 2.5)
    assert failed == PartFailed("score", 7, "here", "has not returned for 2.5 s (user_timeout_s is 2)", "BoxFailed")
    assert overdue.look(running(0.0), 3.0) == []
