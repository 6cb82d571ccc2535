"""Pauses between sites where copies have failed (C4)."""

from __future__ import annotations

from evenflow.coordinator.events import PairPause
from evenflow.coordinator.retries import FORGET_MS, PAUSE_MAX_MS, Retries


def pauses(retries: Retries, times: int) -> list[float]:
    """How long the pauses are, one failure after the other."""
    found = []
    for _ in range(times):
        (after_ms, pause), _ = retries.failed(1, 2, "why")
        found.append(after_ms)
        assert not retries.open(1, 2)
        retries.over(pause)
        assert retries.open(1, 2)
    return found


def test_pauses_double_up_to_a_limit() -> None:
    assert pauses(Retries(250.0), 9) == [250.0, 500.0, 1000.0, 2000.0, 4000.0, 8000.0, 16000.0, PAUSE_MAX_MS, PAUSE_MAX_MS]
    assert pauses(Retries(1.0), 100)[-1] == PAUSE_MAX_MS < FORGET_MS


def test_a_failure_is_of_two_sites_and_one_direction() -> None:
    retries = Retries()
    retries.failed(1, 2, "why")
    assert [retries.open(*pair) for pair in ((1, 2), (2, 1), (1, 3), (3, 2))] == [False, True, True, True]


def test_what_is_live_clears_its_sites() -> None:
    retries = Retries(250.0)
    pauses(retries, 5)
    retries.succeeded(1, 2)
    assert retries.open(1, 2) and pauses(retries, 1) == [250.0]


def test_failures_are_forgotten_with_time_unless_there_was_another() -> None:
    retries = Retries(250.0)
    _, (first_ms, first) = retries.failed(1, 2, "why")
    _, (second_ms, second) = retries.failed(1, 2, "why")
    assert first_ms == second_ms == FORGET_MS and first.forget and second.forget
    retries.over(first)
    assert not retries.open(1, 2), "there was another one since"
    retries.over(second)
    assert retries.open(1, 2) and pauses(retries, 1) == [250.0]


def test_a_pause_before_a_newer_failure_opens_nothing() -> None:
    retries = Retries()
    (_, first), _ = retries.failed(1, 2, "why")
    (_, second), _ = retries.failed(1, 2, "worse")
    retries.over(first)
    assert not retries.open(1, 2)
    assert retries.described(1, 2) == "copies from site 1 to site 2 have failed 2 times (worse) and have a pause"
    retries.over(second)
    retries.over(PairPause(7, 8, 1))
    assert retries.open(1, 2)


def test_of_the_dead_nothing_is_kept() -> None:
    retries = Retries()
    retries.failed(1, 2, "why")
    retries.failed(1, 3, "why")
    retries.keep([1, 3])
    assert retries.open(1, 2) and not retries.open(1, 3)
