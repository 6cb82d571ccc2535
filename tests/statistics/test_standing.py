"""Who holds an ingress back: the same for all sites at once as one by one, and looked at once for all that wait, not once for each."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from evenflow.statistics.growing import Growing
from evenflow.statistics.standing import Standing
from evenflow.statistics.wire import Structures, flat_of
from tests.statistics.windows import segment, site

PRODUCERS = ((), (0,), (0, 1), (2,), (1, 3))


def one_by_one(stands: dict[int, dict[int, int]], waits: list[tuple[tuple[int, int], ...]]) -> dict[int, int]:
    """Without a matrix. stands: of each site, by segment, the newest epoch that it has done."""
    found = Counter[int]()
    for wait in waits:
        behind = {each: 0 for each, _ in wait}
        for number, producers in enumerate(PRODUCERS):
            done = [own[producer] for own in stands.values() for producer in producers if producer in own]
            for each, _ in wait if done else ():
                if number in stands.get(each, {}):
                    behind[each] = max(behind[each], min(done) - stands[each][number])
        found.update({each: us for each, us in wait if 2 * behind[each] >= max(behind.values())})
    return dict(found)


@pytest.mark.parametrize("seed", range(30))
def test_all_at_once_is_as_one_by_one(seed: int) -> None:
    draw = random.Random(seed)
    standing, stands = Standing(len(PRODUCERS), PRODUCERS), dict[int, dict[int, int]]()
    for _ in range(3):  # The last time counts: segments have gone meanwhile, and sites have come.
        for number in range(draw.randint(1, 40)):
            hosted = draw.sample(range(len(PRODUCERS)), draw.randint(1, len(PRODUCERS)))
            stands[number] = {each: draw.randint(0, 9) for each in hosted}
            standing.heard(standing.row(number))
            row = np.full(len(hosted), standing.row(number))
            standing.note(row[:1], row, np.array(hosted), np.array(list(stands[number].values())), np.zeros(len(hosted), np.int64))
    waits = [tuple((number, draw.randint(1, 99)) for number in draw.sample(range(45), draw.randint(1, 6))) for _ in range(8)]
    assert standing.held([np.array(wait) for wait in waits]) == one_by_one(stands, waits)


def test_who_says_nothing_any_more_holds_nobody_back() -> None:
    standing, one, both = Standing(2, ((), (0,))), np.ones(1, np.int64), [np.array(((1, 10), (2, 10)))]
    for number, done in enumerate((1, 8, 9)):
        standing.heard(standing.row(number))
        row = np.full(2, standing.row(number))
        standing.note(row[:1], row, np.arange(2), np.array([done, done - number]), np.zeros(2, np.int64))
    assert standing.held(both) == {1: 10, 2: 10}, "site 0 has done epoch 1 only, so nobody is behind"
    for _ in range(20):
        standing.heard(standing.row(1))
        standing.heard(standing.row(2))
    assert standing.held(both) == {1: 10, 2: 10}, "one epoch and one"
    standing.note(np.full(1, standing.row(2)), np.full(1, standing.row(2)), one, np.array([2]), np.zeros(1, np.int64))
    assert standing.held(both) == {2: 10}


def test_it_is_looked_at_once_in_a_round_of_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a driver whose ingresses all wait does no more for each report than one whose ingresses do not. Method: looks are counted."""
    names = tuple((f"segment {number}", ("box",)) for number in range(2))
    growing, looks = Growing(names, ((), (0,))), list[int]()
    held = Standing.held

    def counted(standing: Standing, waits: list[NDArray[np.int64]]) -> dict[int, int]:
        looks.append(len(waits))
        return held(standing, waits)

    monkeypatch.setattr(Standing, "held", counted)
    rounds, sites = 10, 50
    for at in range(rounds):
        for number in range(sites):
            window = site(number, 10 * at, 10 * at + 10, 5, segment({number: 1}, number=0), segment({number: 1}, number=1))
            flat = flat_of(window, (((number + 1) % sites, 7),))
            Structures(names).of(flat).segment_values(flat)[1] = [at + 2, at]
            growing.take(flat)
    growing.settle()
    assert len(looks) <= rounds + 1 and sum(looks) == rounds * sites
    assert {number: sums.waited_us for number, sums in growing.sites.items()} == dict.fromkeys(range(sites), 7 * rounds)
