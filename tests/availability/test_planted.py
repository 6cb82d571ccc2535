"""Bugs that are planted into what joins regions are found by the drawn schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evenflow.availability.chain import Chain, Link, Step
from evenflow.availability.committing import Held, Move, Turns
from evenflow.availability.finished import Finished
from evenflow.availability.subscribing import Follow, Subscription
from evenflow.errors import EvenflowError
from evenflow.policy.hedge import KEPT_ON, Budget
from tests.availability.test_chain import World, drawn

Plant = Callable[[pytest.MonkeyPatch], None]


def is_right(world: World) -> bool:
    try:
        world.run(60_000_000)
    except (EvenflowError, AssertionError, KeyError):
        return False
    return world.over and world.got == [(link.epoch, link.epoch) for link in world.truth if link.epoch > world.after]


def no_prev(patch: pytest.MonkeyPatch) -> None:
    """Whoever has delivered d takes any later epoch, and whoever keeps less than was asked for gives what it has."""
    patch.setattr(Finished, "reaches", lambda self, epoch: True)
    patch.setattr(Chain, "step", lambda self, link, region: Step.DUPLICATE if link.epoch <= self.delivered else Step.NEXT)
    real = Subscription._next

    def first_there(self: Any) -> Any:
        brought = sorted(epoch for epoch in self._order if epoch in self._brought)
        return self._seen[brought[0]] if brought else real(self)

    patch.setattr(Subscription, "_next", first_there)


def resumes_from_received(patch: pytest.MonkeyPatch) -> None:
    """A leg is asked for what comes behind the newest epoch that anybody has shown."""
    real = Subscription._follow

    def follow(self: Any, leg: int) -> Follow:
        asked = real(self, leg)
        return Follow(asked.leg, asked.brings, max([asked.after, *self._order]))

    patch.setattr(Subscription, "_follow", follow)


@pytest.mark.parametrize("plant", [no_prev, resumes_from_received], ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(is_right(drawn(seed)) for seed in range(40))
    with monkeypatch.context() as patch:
        plant(patch)
        assert not all(is_right(drawn(seed)) for seed in range(40))


def asked_twice() -> int:
    """How many epochs are asked for twice of 400, before legs change places, where every other one is late."""
    subscription, now_us = Subscription.of("out", ["near", "far"], 0, 0), 0
    subscription.joined(0, 0)
    subscription.joined(1, 0)
    for epoch in range(1, 401):
        now_us += 100_000
        link = Link(epoch - 1, epoch, epoch)
        subscription.told(1, link, None, now_us)
        late_us = 60_000 if epoch % 2 else 0
        subscription.tick(now_us + late_us)
        if subscription.swapped:
            break
        subscription.told(0, link, "rows", now_us + late_us)
    return subscription.hedged


def test_without_a_budget_more_is_asked_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < asked_twice() <= KEPT_ON + 0.05 * 400
    monkeypatch.setattr(Budget, "take", lambda self, epochs=1: True)
    assert asked_twice() > 100


def transactions(seconds: int) -> int:
    """How often two regions take a sink from each other, each with a commit that takes longer than the hedge."""
    held, fencings, now_us = Held(), 0, 0
    regions = [Turns("out", 0), Turns("out", 1)]
    open_since: list[int | None] = [None, None]
    link = Link(0, 1, 7)
    while now_us < seconds * 1_000_000 and held.epoch == 0:
        now_us += 1000
        for at, region in enumerate(regions):
            region.seen(held, now_us)
            if held.epoch == 0 and open_since[at] is None and region.move(link, now_us) is Move.APPEND:
                open_since[at] = now_us
                if open_since[1 - at] is not None:  # To open a producer fences the other one.
                    open_since[1 - at] = None
                    regions[1 - at].fenced()
                    fencings += 1
            begun_us = open_since[at]
            if begun_us is not None and now_us - begun_us >= 120_000:
                held = Held(1, 7)
    return fencings if held.epoch else 10**6


def test_who_is_fenced_and_reopens_at_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert transactions(10) <= 2
    monkeypatch.setattr(Turns, "fenced", lambda self: None)
    assert transactions(10) > 20


def test_a_digest_that_is_ignored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def lying(seed: int) -> bool:
        """Whether a region that has other rows in an epoch goes unnoticed."""
        world = drawn(seed)
        if len(world.regions) < 2:
            return False
        liar, real = world.regions[1].finished, Finished.add
        with monkeypatch.context() as patch:
            patch.setattr(Finished, "add", lambda self, epoch, digest, *rest: real(self, epoch, digest + (self is liar), *rest))
            return is_right(world)

    noticed = sum(not lying(seed) for seed in range(60))
    monkeypatch.setattr(Chain, "_compare", lambda self, link, region: None)
    monkeypatch.setattr(Subscription, "_compare", lambda self, leg, link: None)
    assert sum(not lying(seed) for seed in range(60)) < noticed
