"""What a site believes of the images of its units at other sites."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from evenflow.site.backing import Backed, Backing
from evenflow.site.bases import ImagePasted, Unit
from evenflow.site.events import Ship

UNIT = Unit(3, 0, (0, 1), 2)


def backing() -> tuple[Backing, Backed]:
    part: Any = SimpleNamespace(options=SimpleNamespace(capture_max_ms=10.0), now_us=0)
    made = Backing(part, *[SimpleNamespace()] * 4)  # type: ignore[arg-type]
    made.units[UNIT.segment] = backed = Backed(UNIT, captured=7, number=2)
    return made, backed


def test_a_capture_that_is_lost_comes_again_with_what_has_changed_since() -> None:
    made, backed = backing()
    backed.pasted = 5
    made.lost(UNIT.number)
    assert (backed.pasted, backed.captured) == (5, 0)
    made.lost(99)


def test_one_that_was_taken_for_pasted_and_is_lost_comes_again_as_a_whole() -> None:
    """The word that came was of one that had been given up, of the same epoch."""
    made, backed = backing()
    made.pasted(ImagePasted(UNIT.number, 7, ()))
    assert (backed.pasted, backed.captured) == (7, 0)
    made.lost(UNIT.number)
    assert (backed.pasted, backed.captured, backed.due) == (-1, 0, True)


def test_one_that_is_not_sent_yet_cannot_be_lost() -> None:
    made, backed = backing()
    backed.ship = Ship(None, None)  # type: ignore[arg-type]
    made.lost(UNIT.number)
    assert backed.captured == 7
