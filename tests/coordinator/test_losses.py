"""What amnesia has cost a run, as its sites say it."""

from __future__ import annotations

from evenflow.coordinator.losses import Losses
from evenflow.plan.layout import Layout
from evenflow.site.facts import Voided
from evenflow.stream.ids import SiteId

HERE, THERE = SiteId(0), SiteId(1)


def test_frames_that_are_lost_twice_count_once() -> None:
    """Goal: what begins anew and is lost again, before its consumers were through with the first loss, costs each of them its frames once.
    Method: they say both times from where they stand."""
    losses = Losses(Layout("l", (), (), {}, {}))
    losses.take(HERE, Voided(1, 3, (0, 2), 101, 109))
    assert losses.frames == 18
    losses.take(HERE, Voided(2, 3, (0,), 103, 124))
    assert losses.frames == 18 + 15
    losses.take(HERE, Voided(2, 3, (1,), 103, 124))
    assert losses.frames == 33 + 22, "another one was not lost before"
    losses.take(THERE, Voided(2, 3, (0,), 103, 124))
    losses.take(HERE, Voided(2, 4, (0,), 103, 124))
    assert losses.frames == 55 + 44, "nor was it for another site, or on another stream"
    losses.take(HERE, Voided(3, 3, (0,), 120, 124))
    losses.take(HERE, Voided(4, 3, (0,), 200, 209))
    assert losses.frames == 99 + 10


def test_of_two_consumers_at_a_site_one_may_be_behind_the_other() -> None:
    """The number that is told of a loss was one too small (seed 11,063,950)."""
    losses = Losses(Layout("l", (), (), {}, {}))
    losses.take(HERE, Voided(4, 2, (0,), 6, 7))
    losses.take(HERE, Voided(4, 2, (0,), 5, 7))
    assert losses.frames == 3
    losses.take(HERE, Voided(5, 2, (0,), 4, 9))
    assert losses.frames == 6
