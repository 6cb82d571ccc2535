"""Bugs of shedding that are planted, each with a seed of the swarm that finds it."""

from __future__ import annotations

import pytest

from evenflow.swarm.draw import SHED_SINCE, is_based, is_kept, is_moded, is_shed
from evenflow.swarm.mutations import planted
from evenflow.swarm.regional import is_regional
from evenflow.swarm.run import run_seed
from evenflow.swarm.shed_mutations import SHEDDING

pytestmark = pytest.mark.one_in(2)


@pytest.mark.parametrize(
    ("name", "seed", "said"),
    [
        ("keys are whole when nothing is left out", 15608, "wrong or repeated"),
        ("rows beside a session do not count", 15608, "wrong or repeated"),
        ("the reflex begins while there is room", 20006, "the oldest has waited for"),
        ("what one reader can do without counts for all", 20058, "a protected output needs"),
    ],
)
def test_a_seed_finds_it(name: str, seed: int, said: str) -> None:
    with planted(next(each for each in SHEDDING if each.name == name)):
        assert said in str(run_seed(seed, tell=False).failure)


def test_a_quarter_of_the_fresh_seeds_leave_rows_out() -> None:
    fresh = range(SHED_SINCE, SHED_SINCE + 2_000)
    shed = [seed for seed in fresh if is_shed(seed) and not (is_regional(seed) or is_moded(seed) or is_based(seed) or is_kept(seed))]
    assert len(shed) > len(fresh) / 4
