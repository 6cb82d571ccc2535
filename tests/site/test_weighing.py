"""What an epoch may have goes to the sources whose rows are worth most, as a knapsack of fractions would have it."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.plan.layout import Shed
from evenflow.site.dividing import divided
from evenflow.stream.curve import Curve

LOSS = Curve(((0.0, 0.0), (0.25, 0.5), (1.0, 1.0)))


def shed(weight: float, output: str = "out", loss: Curve = LOSS) -> Shed:
    return Shed((output,), 1, worths=((weight, loss),))


def test_the_dear_source_comes_first_and_the_cheap_one_gets_what_is_left() -> None:
    sheds = {0: shed(1.0, "dear"), 3: shed(0.2, "cheap")}
    assert divided(120, {0: 100, 3: 100}, sheds) == pytest.approx({0: 1.0, 3: 0.2})
    assert divided(60, {0: 100, 3: 100}, sheds) == pytest.approx({0: 0.6, 3: 0.0})


def test_what_is_worth_about_the_same_is_taken_in_equal_parts() -> None:
    """Else the one of which a row less waits would have all."""
    sheds = {0: shed(1.0, "one"), 1: shed(1.0, "other")}
    assert divided(100, {0: 100, 1: 101}, sheds) == pytest.approx({0: 100 / 201, 1: 100 / 201}, rel=0.01)


def test_sources_of_one_output_fare_alike() -> None:
    shares = divided(30, {0: 90, 1: 10}, {0: shed(1.0), 1: shed(1.0)})
    assert shares == pytest.approx({0: 0.3, 1: 0.3})


def test_the_first_rows_of_the_cheap_one_may_bring_more_than_the_last_of_the_dear_one() -> None:
    flat = Curve(((0.0, 0.0), (0.5, 1.0), (1.0, 1.0)))
    shares = divided(120, {0: 100, 1: 100}, {0: shed(1.0, "dear", flat), 1: shed(0.2, "cheap")})
    assert shares == pytest.approx({0: 0.5, 1: 0.7})


def test_as_many_rows_as_there_is_room_for_and_worth_no_less_than_any_other_choice() -> None:
    random = np.random.default_rng(5)
    for _ in range(200):
        count = int(random.integers(2, 5))
        waiting = {at: int(random.integers(0, 50)) for at in range(count)}
        sheds = {at: shed(float(random.choice([0.2, 1.0, 5.0])), f"out {at}") for at in range(count)}
        room = float(random.uniform(0, 1.2 * sum(waiting.values())))
        shares = divided(room, waiting, sheds)
        taken = sum(waiting[at] * share for at, share in shares.items())
        assert taken == pytest.approx(min(room, sum(waiting.values()))) and all(-1e-9 <= share <= 1 + 1e-9 for share in shares.values())
        alike = min(1.0, room / max(1, sum(waiting.values())))
        worth = [
            sum(sheds[at].worths[0][0] * LOSS(share[at]) for at in waiting if waiting[at])
            for share in (shares, dict.fromkeys(waiting, alike))
        ]
        assert worth[0] >= worth[1] - 0.2 * worth[1] * (len(set(waiting.values())) > 1) - 1e-9


@pytest.mark.parametrize("other", [Shed(("out",), 1), Shed(("out",), 1, weighs=True, worths=((1.0, LOSS),))])
def test_where_nobody_can_choose_all_get_the_same_share(other: Shed) -> None:
    assert divided(50, {0: 100, 1: 100}, {0: shed(5.0, "dear"), 1: other}) == {0: 0.25, 1: 0.25}


def test_nothing_waits() -> None:
    assert divided(5, {}, {}) == {} and divided(0, {0: 0}, {0: shed(1.0)}) == {0: 1.0}
