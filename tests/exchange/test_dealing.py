"""Dealing: rows go where the weights say, as evenly as may be, and nothing but their address decides."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.exchange.dealing import bounds_of, deal, places


def dealt(rows: int, weights: tuple[int, ...], epoch: int = 1, producer: int = 0) -> list[int]:
    found = deal(np.full(rows, producer, np.int32), epoch, bounds_of(weights))
    return np.bincount(found, minlength=len(weights)).tolist()


@pytest.mark.parametrize("weights", [(1, 1, 1, 1), (1, 2, 3), (65_536,), (1, 65_535), (0, 5, 5)])
@pytest.mark.parametrize("rows", [100, 10_000])
def test_weights_are_kept_to_within_a_few_rows(weights: tuple[int, ...], rows: int) -> None:
    wanted = np.array(weights) * rows / sum(weights)
    for epoch in (1, 2, 77_777, 2**40):
        assert np.abs(np.array(dealt(rows, weights, epoch)) - wanted).max() <= 4


def test_the_few_rows_of_small_epochs_go_everywhere_in_turn() -> None:
    totals = sum(np.array(dealt(1, (1, 1, 2), epoch)) for epoch in range(400))
    assert np.abs(totals - [100, 100, 200]).max() <= 8


def test_producers_begin_at_places_of_their_own() -> None:
    assert len({deal(np.full(1, producer, np.int32), 5, bounds_of((1,) * 8)).item() for producer in range(16)}) >= 6


def test_who_else_is_in_the_pass_does_not_matter() -> None:
    """E3: rows of several producer partitions, in any mixture, go where those of each alone would."""
    random = np.random.default_rng(1)
    producer = random.integers(0, 5, 1_000).astype(np.int32)
    bounds = bounds_of((3, 1, 4, 1, 5))
    together = deal(producer, 9, bounds)
    for one in range(5):
        alone = deal(producer[producer == one], 9, bounds)
        assert together[producer == one].tolist() == alone.tolist()


def test_places_count_the_rows_of_the_same_producer_before_a_row() -> None:
    assert places(np.array([4, 2, 4, 4, 2], np.int32)).tolist() == [0, 0, 1, 2, 1]
    assert places(np.array([], np.int32)).tolist() == []
