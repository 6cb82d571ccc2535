"""Which rows stay follows from their places and worth, keeping less only takes away, and shares come out as they were asked for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.exchange.shedding import ALL, EXACT, checked, classes, staying, to_keep
from evenflow.plan.layout import Shed
from evenflow.stream.sampling import place_hashes as hashes
from evenflow.stream.worth import Classes

VALUED = Shed(("out",), 1, "v", Classes((10.0, 100.0), (0.1, 0.5, 1.0)))
PLAIN = Shed(("out",), 1)


@given(st.integers(0, 2**40), st.integers(0, 50), st.integers(0, ALL), st.integers(0, ALL))
def test_less_to_keep_only_takes_away(first: int, partition: int, one: int, other: int) -> None:
    places, of = np.arange(first, first + 200), np.zeros(200, np.int64)
    few, many = (staying("in", partition, places, of, (keep,)) for keep in sorted((one, other)))
    assert not (few & ~many).any()


def test_a_row_stays_or_not_whoever_asks_and_however_rows_are_cut() -> None:
    places = np.arange(1_000)
    whole = hashes("in", 3, places)
    assert (np.concatenate([hashes("in", 3, places[at : at + 7]) for at in range(0, 1_000, 7)]) == whole).all()
    assert whole[:3].tolist() == [int(each) for each in hashes("in", 3, np.arange(3))]
    assert (hashes("in", 2, places) != whole).mean() > 0.99 and (hashes("im", 3, places) != whole).mean() > 0.99


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_shares_come_out(share: float) -> None:
    """Of rows one behind the other, and of every seventh, within four standard deviations."""
    for step in (1, 7):
        places = np.arange(0, 100_000 * step, step)
        stays = staying("in", 0, places, np.zeros(places.size, np.int64), (int(share * ALL),))
        assert abs(stays.mean() - share) < 4 * (share * (1 - share) / places.size) ** 0.5


def test_all_and_nothing() -> None:
    places, of = np.arange(10_000), np.zeros(10_000, np.int64)
    assert staying("in", 0, places, of, (ALL,)).all() and not staying("in", 0, places, of, (0,)).any()


def test_what_is_worth_most_stays() -> None:
    rows = pa.record_batch({"v": [5, 50, 500, None, 50]})
    of = classes(VALUED, rows)
    assert of.tolist() == [0, 1, 2, 0, 1]
    there = hashes("in", 0, np.arange(5))
    assert to_keep(VALUED, of, 5, there) == (ALL, ALL, ALL)
    assert to_keep(VALUED, of, 2, there) == (0, ALL // 2, ALL)
    assert to_keep(VALUED, of, 0.5, there) == (0, 0, ALL // 2)
    assert to_keep(PLAIN, classes(PLAIN, rows), 2, there) == (int(ALL * 0.4),)


@given(st.integers(0, 2**40), st.integers(EXACT, 299), st.integers(1, 3))
def test_as_many_rows_stay_as_there_may_be(first: int, budget: int, step: int) -> None:
    """Goal: no site has more than another one by chance. Method: rows at any place; of two classes the one that is worth more first."""
    places = np.arange(first, first + 300 * step, step)
    there, of = hashes("in", 3, places), np.zeros(300, np.int64)
    assert staying("in", 3, places, of, to_keep(PLAIN, of, budget + 0.5, there)).sum() == budget
    of[::3] = 2
    stays = staying("in", 3, places, of, to_keep(VALUED, of, budget, there))
    assert budget - EXACT < stays.sum() < budget + 2 * EXACT and (stays[of == 2].all() or not stays[of == 0].any())


def test_values_too_large_to_be_exact_have_a_class() -> None:
    for type_ in (pa.int64(), pa.uint64()):
        rows = pa.record_batch({"v": pa.array([5, 2**60 + 1], type_)})
        assert classes(VALUED, rows).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("keep", "dropped"), [((-1,), (5,)), ((2**70,), (5,)), ((1, 1), (5,)), ((1,), (-5,)), ((), (5,)), ((1,) * 9, (1,) * 9)]
)
def test_what_nobody_can_have_left_out_is_an_error(keep: tuple[int, ...], dropped: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rows left out"):
        checked(keep, dropped)
