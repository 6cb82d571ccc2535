"""Rows of a state by key: of a state that has kept its keys, and of one that has their identity only."""

from __future__ import annotations

import pytest
from tests.golden import golden

import evenflow as ef
from evenflow.errors import TypeMismatch, UnknownColumn
from evenflow.world.locations.looking import looked_up, shown


def test_rows_are_found_by_a_column_that_the_state_has() -> None:
    found = ef.checkpoints(str(golden()))
    every = found.state("hours").to_pylist()
    key = every[0]["key"]
    for given in (key, str(key)):  # As Python has it, and as a command line has.
        assert looked_up(found, "hours", key={"key": given}).to_pylist() == [row for row in every if row["key"] == key]
    assert looked_up(found, "hours", key={"key": key}, limit=1).num_rows == 1
    assert looked_up(found, "hours").num_rows == len(every)
    assert looked_up(found, "hours", key={"key": key, "n": -1}).num_rows == 0


def test_what_cannot_be_asked_for_is_named() -> None:
    found = ef.checkpoints(str(golden()))
    with pytest.raises(UnknownColumn, match="no column 'kee'; it has key, window_start"):
        looked_up(found, "hours", key={"kee": 1})
    with pytest.raises(TypeMismatch, match="key='many' is no int64"):
        looked_up(found, "hours", key={"key": "many"})


def test_some_rows_are_shown_and_whether_there_are_more() -> None:
    table = ef.checkpoints(str(golden())).state("hours")
    some = shown("hours", table, 3)
    assert len(some["rows"]) == 3 and some["more"] and some["box"] == "hours"
    assert not shown("hours", table, 0)["more"]
