"""Which epoch goes first at a site that has too much."""

from __future__ import annotations

import pytest

from evenflow.plan.layout import Worth
from evenflow.policy.urgency import EVERY, PROTECTED, Ready, first, steepness, urgency

SOON = Worth(1.0, ((250_000, 1.0), (1_000_000, 0.0)))
CHEAP = Worth(0.2, ((250_000, 1.0), (1_000_000, 0.0)))
EVER = Worth()
WHOLE = Worth(protected=True)


def ready(*worths: Worth, age_us: int = 500_000, rows: int = 10, cost_us: float = 100.0) -> Ready:
    return Ready(worths, 1_000_000 - age_us, rows, cost_us)


def chosen(*of: Ready, number: int = 0) -> int:
    return first(of, 1_000_000, number)


def test_only_between_its_corners_does_an_answer_lose_worth() -> None:
    assert [steepness(SOON, us) > 0 for us in (0, 249_999, 250_000, 999_999, 1_000_000)] == [False, False, True, True, False]
    assert steepness(SOON, 500_000) == pytest.approx(1 / 750_000) and steepness(EVER, 500_000) == 0


def test_what_only_protected_outputs_need_comes_first_then_weight_then_price() -> None:
    assert urgency(ready(WHOLE), 1_000_000) == PROTECTED
    assert chosen(ready(SOON), ready(WHOLE)) == 1
    assert chosen(ready(CHEAP), ready(SOON)) == 1
    assert chosen(ready(SOON, cost_us=1000.0), ready(CHEAP)) == 1
    assert chosen(ready(EVER), ready(CHEAP)) == 1
    assert chosen(ready(SOON), ready(SOON, CHEAP)) == 1, "who feeds two loses of both"


def test_what_has_not_begun_to_lose_and_what_is_worth_nothing_any_more_waits() -> None:
    assert chosen(ready(SOON, age_us=100_000), ready(CHEAP)) == 1
    assert chosen(ready(SOON, age_us=2_000_000), ready(CHEAP)) == 1


def test_of_equal_ones_the_oldest_and_of_equally_old_ones_the_first() -> None:
    assert chosen(ready(SOON), ready(SOON, age_us=600_000)) == 1
    assert chosen(ready(SOON), ready(SOON)) == 0
    assert first((), 0, 0) == 0 and first([ready(EVER)], 0, EVERY - 1) == 0


def test_nothing_waits_for_ever() -> None:
    """Of many, the oldest goes at the latest when an eighth of the choices have been made for each that is older."""
    waiting = [ready(EVER, age_us=900_000), *[ready(WHOLE) for _ in range(100)]]
    taken = []
    for number in range(20):
        at = chosen(*waiting, number=number)
        taken.append(waiting.pop(at).worths[0])
    assert taken.index(EVER) == EVERY - 1
