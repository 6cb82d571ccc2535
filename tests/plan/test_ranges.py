"""Ranges of key groups: more of them and fewer, and who has to do with whom."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.exchange.routing import key_groups_of
from evenflow.kernels.hash import table_of_ranges
from evenflow.plan.layout import KEY_GROUPS, Ranges, Segment
from evenflow.plan.plan import Plan, Settings
from evenflow.plan.ranges import affected, divided, even, in_use


def table(ranges: Ranges) -> np.ndarray:
    segment = Segment(0, "s", "inner", KEY_GROUPS, (), (), ())
    return key_groups_of(Plan(1, 1, (), (), Settings((ranges,))), segment)


def widths(ranges: Ranges) -> list[int]:
    starts = [start for start, _ in ranges]
    return [end - start for start, end in zip(starts, [*starts[1:], KEY_GROUPS], strict=True)]


def never(p: int, q: int) -> bool:
    return False


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 16, 100, 256, 4095, 4096])
def test_what_a_segment_begins_with_is_what_the_kernel_says(partitions: int) -> None:
    assert np.array_equal(table(even(partitions)), table_of_ranges(partitions))


@settings(max_examples=60, deadline=None)
@given(first=st.integers(1, 80), counts=st.lists(st.integers(1, 80), min_size=1, max_size=5), sites=st.integers(1, 5))
def test_every_group_has_one_owner_and_who_does_not_take_part_keeps_what_it_has(first: int, counts: list[int], sites: int) -> None:
    ranges = even(first)
    for count in counts:
        free = [p for p in range(80) if p not in in_use(ranges)]
        after = divided(ranges, count, free, lambda p, q: p % sites == q % sites)
        assert len(after) == count == len(set(in_use(after))) and after[0][0] == 0 and sorted(after) == list(after)
        assert min(widths(after)) >= 1 and sum(widths(after)) == KEY_GROUPS
        clusters = affected(ranges, after)
        concerned = [p for cluster in clusters for p in cluster]
        assert len(concerned) == len(set(concerned)), "each partition is in one of them"
        old, new = table(ranges), table(after)
        assert {frozenset(pair) for pair in zip(old[old != new].tolist(), new[old != new].tolist(), strict=True)} <= {
            frozenset((p, q)) for cluster in clusters for p in cluster for q in cluster
        }
        for home, *_ in clusters:
            assert home in in_use(ranges), "the first one has what is divided"
        ranges = after


def test_the_widest_are_halved() -> None:
    assert divided(((0, 0), (3000, 1)), 3, [2], never) == ((0, 0), (1500, 2), (3000, 1))
    assert max(widths(divided(even(8), 16, range(8, 16), never))) == 256


def test_the_narrowest_neighbours_are_joined_and_the_lower_number_stays() -> None:
    assert divided(((0, 5), (100, 3), (200, 4), (3000, 1)), 3, [], never) == ((0, 5), (200, 4), (3000, 1))
    assert divided(even(16), 8, [], never) == tuple((start, 2 * p) for start, p in even(8))


def test_of_equal_ones_those_are_taken_for_which_nothing_must_move() -> None:
    def together(p: int, q: int) -> bool:
        return {p, q} in ({1, 2}, {3, 9})

    assert in_use(divided(even(4), 3, [], together)) == (0, 1, 3)
    assert divided(((0, 0), (1000, 3)), 3, [8, 9], together) == ((0, 0), (1000, 3), (2548, 9))


def test_those_who_exchange_groups_are_together_with_the_owner_of_the_lowest_first() -> None:
    assert affected(even(8), even(8)) == ()
    assert affected(((0, 4),), ((0, 4), (1024, 1), (2048, 0), (3072, 2))) == ((4, 0, 1, 2),)
    assert affected(((0, 1), (1000, 0), (2000, 2), (3000, 3)), ((0, 1), (2000, 2))) == ((1, 0), (2, 3))
