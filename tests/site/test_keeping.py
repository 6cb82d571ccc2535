"""Which rows of which object are read again, where objects begin and end in the middle of epochs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from evenflow.availability.entries import Cut
from evenflow.exchange.section import RowsObject
from evenflow.site.keeping import Keeping
from evenflow.site.replaying import Beginning
from evenflow.stream.ids import SiteId

KEY = (0, 0)


def made(number: int, first: int, rows: int, site: int = 0) -> RowsObject:
    return RowsObject(1, SiteId(site), number, first, rows, "00" * 16)


def needed(taken: int, *cuts: tuple[int, tuple[RowsObject, ...]], epoch: int = 0) -> list[tuple[RowsObject, int, int]]:
    """cuts: (position behind the epoch, its objects)."""
    told = tuple(Cut(epoch + 1 + at, 1, 1, behind, False, False, objects=objects) for at, (behind, objects) in enumerate(cuts))
    part: Any = SimpleNamespace(beginning=Beginning(epoch, cuts={KEY: told}))
    return Keeping(part)._needed(KEY, taken, epoch)


def test_an_object_is_read_once_though_it_is_in_several_epochs_and_to_its_end() -> None:
    one, two = made(1, 0, 5), made(2, 5, 5)
    assert needed(0, (8, (one, two)), (9, (two,))) == [(one, 0, 5), (two, 5, 10)]


def test_what_is_before_the_base_is_left_out() -> None:
    one, two = made(1, 0, 5), made(2, 5, 5)
    assert needed(3, (8, (one, two)), epoch=4) == [(one, 3, 5), (two, 5, 10)]


def test_of_a_dead_leaders_last_object_its_successor_knew_less() -> None:
    """The successor has begun where the log ended: what stands behind that in the object before is other rows."""
    dead, successor = made(1, 0, 9), made(1, 6, 4, site=1)
    assert needed(0, (6, (dead,)), (10, (successor,))) == [(dead, 0, 6), (successor, 6, 10)]


def test_epochs_without_rows_need_nothing() -> None:
    assert needed(7, (7, ()), (7, ())) == []
