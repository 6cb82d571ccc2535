"""When a collection of statistics begins, and when it is whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from evenflow.coordinator.collection import LATE_REPORT_US, Begin, CalledOff, Collection, LookAgain, Whole
from evenflow.coordinator.first_copy import FirstCopy


def machine(*active: int, over: bool = False) -> Any:
    return SimpleNamespace(over=over, view=SimpleNamespace(active=lambda: active))


def test_it_begins_when_the_run_has_worked_for_long_enough() -> None:
    collection = Collection(machine(0, 1), 1_000, warm_us=500)
    assert collection.look(100, None, ()) == LookAgain(LATE_REPORT_US)
    assert collection.look(700, 300, (0, 1)) == LookAgain(LATE_REPORT_US)
    assert collection.look(800, 300, (0, 1)) == Begin(1_000)


def test_it_is_whole_when_its_time_is_over_and_every_site_has_reported() -> None:
    collection = Collection(machine(0, 1), 1_000)
    assert collection.look(50, 50, ()) == Begin(1_000)
    assert collection.look(1_000, 50, (0, 1)) == LookAgain(50), "who looks early looks again"
    assert collection.look(1_050, 50, (0,)) == LookAgain(LATE_REPORT_US)
    assert collection.look(1_050, 50, (0, 1, 2)) == Whole(50)


def test_a_site_that_is_dead_is_waited_for_no_more() -> None:
    run = machine(0, 1)
    collection = Collection(run, 1_000)
    collection.look(0, 0, ())
    assert collection.look(1_000, 0, (1,)) == LookAgain(LATE_REPORT_US)
    run.view = machine(1).view
    assert collection.look(1_100, 0, (1,)) == Whole(0)


def test_a_run_that_is_over_wants_no_numbers() -> None:
    run = machine(0)
    for begun in (False, True):
        run.over = False
        collection = Collection(run, 1_000, warm_us=0 if begun else 9_999)
        collection.look(0, 0, ())
        run.over = True
        assert collection.look(1_000, 0, ()) == CalledOff()


def test_the_first_copy_of_each_epoch_counts() -> None:
    first = FirstCopy()
    assert [first.accept(epoch) for epoch in (1, 1, 2, 1, 2, 4, 3)] == [True, False, True, False, False, True, False]
