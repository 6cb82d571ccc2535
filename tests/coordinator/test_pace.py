"""How far ahead plans are proposed: as many epochs as close while a proposal travels."""

from __future__ import annotations

import pytest

from evenflow.coordinator.pace import AHEAD, LEAD_US, Pace

SECOND = 1_000_000


def after(*seen: tuple[int, int]) -> Pace:
    """After collections that ended at these (microsecond, newest epoch)."""
    pace = Pace()
    for at_us, epoch in seen:
        pace = pace.then(at_us, epoch)
    return pace


def test_nothing_is_known_before_the_second_collection() -> None:
    assert Pace().ahead == after((0, 0)).ahead == after((SECOND, 17), (SECOND, 18)).ahead == AHEAD


@pytest.mark.parametrize(("epochs_per_s", "ahead"), [(0, 1), (2, 1), (10, 1), (11, 2), (35, 4), (1000, AHEAD)])
def test_slow_epochs_are_proposed_for_sooner(epochs_per_s: int, ahead: int) -> None:
    assert LEAD_US == 100_000
    assert after((0, 5), (SECOND, 5 + epochs_per_s)).ahead == ahead


def test_only_the_last_two_collections_count() -> None:
    assert after((0, 0), (SECOND, 1000), (2 * SECOND, 1002)).ahead == 1
    assert after((0, 0), (SECOND, 2), (2 * SECOND, 1002)).ahead == AHEAD
