"""What `evenflow bench restart` does to drivers, on bare processes: all of its ways once, and every row compared."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from evenflow.bench.restart import Setting, compare, strike
from evenflow.bench.restarting import Generation


def test_generations_end_as_often_in_each_way_as_they_are_asked_to() -> None:
    setting = Setting(kills=5, stale_drivers=3)
    manners = setting.manners(Random(1))
    assert sorted(manners) == sorted(["kill"] * 5 + ["hang", "replace", "hang"])
    assert not setting.is_bare(7)
    assert [Setting(on_spark=2).is_bare(number) for number in range(4)] == [False, False, True, True]


@pytest.mark.conformance
@pytest.mark.timeout(600)
def test_a_kill_a_driver_that_hangs_and_one_that_lives_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """Goal: every row once, and both stale drivers end with Fenced, whatever came first."""
    generation, said = Generation(str(tmp_path), lease_s=3.0), list[str]()
    struck = strike(generation, Setting(kills=1, stale_drivers=2, on_spark=0, seed=3), said.append)
    assert (struck.kills, struck.stale, struck.fenced, len(struck.restarts_s)) == (1, 2, 2, 0), said
    compared = compare(generation)
    assert compared.pop("rows_compared") > 1_000
    assert set(compared.values()) == {0}, compared
