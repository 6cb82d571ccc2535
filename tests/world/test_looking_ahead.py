"""The journal is read while sites are waited for, and read on when they are there: what comes meanwhile is not missed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.faulty import Around
from tests.world.test_taking import began, files, log, looked

from evenflow.availability.entries import entry_name
from evenflow.errors import Fenced, LocationError
from evenflow.store.journal import read_journal
from evenflow.world.spark.driver.in_place import Ahead
from evenflow.world.spark.driver.taking import Found, begin, look_again, look_ahead


class Watched(Around):
    """A store that says of what it was asked."""

    def __init__(self, found: Found) -> None:
        super().__init__(found.location.store)
        self.asked: list[str] = []

    def get(self, name: str, most: int = 2**62) -> bytes:
        self.asked.append(name)
        return self.store.get(name, most)


def watched(found: Found) -> tuple[Watched, Found]:
    store = Watched(found)
    return store, replace(found, location=replace(found.location, store=store))


def test_what_was_read_before_is_not_read_again_and_what_came_since_is(tmp_path: Path) -> None:
    taken = began(tmp_path)
    for epoch in range(1, 6):
        log(taken, epoch, epoch)
    store, found = watched(looked(tmp_path))
    ahead = look_ahead(found)
    log(taken, 6, 6)
    store.asked.clear()
    own = taken.standing
    fresh = look_again(found, own.generation, own.nonce, ahead)
    assert fresh.standing.durable == 6 and fresh.standing.last == own.last
    assert not {entry_name(number) for number in range(1, own.last)}.intersection(store.asked)
    assert fresh.standing.cuts == read_journal(found.location.store).cuts


def test_another_driver_that_has_begun_meanwhile_is_found(tmp_path: Path) -> None:
    own, found = began(tmp_path).standing, looked(tmp_path)
    ahead = look_ahead(found)
    begin(looked(tmp_path))
    before = files(tmp_path)
    with pytest.raises(Fenced):
        look_again(found, own.generation, own.nonce, ahead)
    assert files(tmp_path) == before


def test_it_is_given_once_since_who_has_it_adds_to_it(tmp_path: Path) -> None:
    began(tmp_path)
    ahead = Ahead(looked(tmp_path), "ahead")
    assert ahead.take() is not None and ahead.take() is None


def test_what_cannot_be_read_before_is_read_when_it_is_needed(tmp_path: Path) -> None:
    own, found = began(tmp_path).standing, looked(tmp_path)
    entry = tmp_path / entry_name(1)
    os.rename(entry, tmp_path / "aside")
    entry.mkdir()
    ahead = Ahead(found, "ahead").take()
    assert ahead is None
    with pytest.raises(LocationError):
        look_again(found, own.generation, own.nonce, ahead)
    entry.rmdir()
    os.rename(tmp_path / "aside", entry)
    assert look_again(found, own.generation, own.nonce, ahead).standing.last == own.last


def test_what_a_driver_may_have_begun_with_itself_is_no_other_drivers(tmp_path: Path) -> None:
    """The store had not said whether its entry was in; it was."""
    own, found = began(tmp_path).standing, looked(tmp_path)
    late = begin(looked(tmp_path)).standing
    fresh = look_again(found, own.generation, own.nonce, None, [(late.generation, late.nonce)])
    assert (fresh.standing.generation, fresh.standing.last) == (2, late.last)
    begin(looked(tmp_path))
    with pytest.raises(Fenced):
        look_again(found, own.generation, own.nonce, None, [(late.generation, late.nonce)])
