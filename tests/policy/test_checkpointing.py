"""Which unit is captured and which capture is pasted: the worked example of HW 4.3.1, and the algorithm's choices one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evenflow.policy.checkpointing import (
    Capture,
    CheckpointUnit,
    Paste,
    Pending,
    RowCosts,
    Sample,
    burst_s,
    min_max,
    recovery_by_backup,
    recovery_s,
    round_robin,
    row_costs,
    whole,
)

U1 = CheckpointUnit(1, 2, load=0.11, behind_s=0.11, pending_s=0.0, capture_s=0.125, paste_s=0.125, since_s=3.0)
U2 = CheckpointUnit(2, 2, load=0.10, behind_s=0.40, pending_s=0.0, capture_s=0.25, paste_s=0.25, since_s=1.0)
U3 = CheckpointUnit(3, 3, load=0.665, behind_s=1.33, pending_s=0.0, capture_s=0.125, paste_s=0.125, since_s=2.0)
"""Site 1 of the example at its time 5: captured at 4, 1 and 3; u1 and u2 are backed up at site 2, u3 at site 3."""
UNITS = (U1, U2, U3)
BUSY = 0.875


def pending(recovery_s: float, primary: int = 5, since_s: float = 0.0) -> Pending:
    return Pending(primary, 9, paste_s=0.1, since_s=since_s, recovery_s=recovery_s, load=0.1)


def test_after_a_capture_a_site_catches_up_for_as_long_as_the_thesis_says():
    assert burst_s(U1.capture_s, BUSY) == pytest.approx(0.875)


def test_capturing_u2_takes_its_recovery_from_0_425_to_0_275():
    ends = U2.recovery_s(later_s=U2.capture_s)
    assert ends == pytest.approx(0.425)
    assert ends - U2.gain_s == pytest.approx(0.275)


def test_the_recovery_of_a_site_is_that_of_the_backup_with_most_to_do():
    assert recovery_by_backup(UNITS) == pytest.approx({2: 0.51, 3: 1.33})
    assert recovery_s(UNITS) == pytest.approx(1.33)
    assert recovery_s(()) == 0.0


def test_min_max_captures_what_relieves_the_backup_with_most_to_do_and_round_robin_what_has_waited_longest():
    assert min_max(UNITS, (), BUSY) == Capture((3,))
    assert round_robin(UNITS, (), BUSY) == Capture((2,))
    assert whole(UNITS, (), BUSY) == Capture((1, 2, 3))


def test_of_units_of_one_backup_min_max_takes_the_one_that_gains_most_for_what_it_costs():
    cheap = replace(U2, capture_s=0.1, paste_s=0.1)
    assert min_max((U1, U2), (), BUSY) == Capture((2,))
    assert min_max((replace(U1, behind_s=0.4), U2), (), BUSY) == Capture((1,))
    assert min_max((replace(U1, behind_s=0.4), cheap), (), BUSY) == Capture((2,))


def test_what_is_being_captured_is_not_captured_again():
    on_its_way = replace(U3, since_s=None)
    assert min_max((U1, U2, on_its_way), (), BUSY) is None
    assert round_robin((U1, replace(U2, since_s=None), U3), (), BUSY) == Capture((3,))
    assert whole((U1, U2, on_its_way), (), BUSY) is None


def test_a_capture_that_costs_more_than_it_gains_is_not_made():
    fresh = replace(U3, behind_s=0.05)
    assert min_max((fresh,), (), BUSY) is None


def test_what_is_pasted_is_of_the_site_that_is_worst_off_even_so():
    # Captured, u3 leaves 1.33 + 0.665 * 0.125 - (1.33 - 0.125) = 0.208 of its backup's recovery.
    assert min_max(UNITS, (pending(0.2),), 0.0) == Capture((3,))
    assert min_max(UNITS, (pending(0.4),), 0.0) == Paste(5)
    assert min_max(UNITS, (pending(0.4), pending(0.7, primary=6)), 0.0) == Paste(6)
    assert min_max((replace(U3, since_s=None),), (pending(0.2),), 0.0) == Paste(5)


def test_a_paste_beside_rows_takes_longer_and_the_recovery_grows_meanwhile():
    assert pending(0.4).pasted_s(0.0) == pytest.approx(0.31)
    assert pending(0.4).pasted_s(0.75) == pytest.approx(0.34)


def test_round_robin_takes_captures_and_pastes_in_the_order_in_which_they_came():
    assert round_robin(UNITS, (pending(9.0, since_s=1.5),), BUSY) == Capture((2,))
    assert round_robin(UNITS, (pending(9.0, since_s=0.5),), BUSY) == Paste(5)
    assert round_robin((), (pending(0.0, primary=6, since_s=2.0), pending(0.0, since_s=1.0)), BUSY) == Paste(5)
    assert round_robin((), (), BUSY) is None


def test_costs_of_new_and_updated_rows_are_found_from_what_captures_took():
    true = RowCosts(18.6e-6, 7.3e-6)
    counts = ((100, 900), (400, 600), (1000, 0), (250, 750))
    found = row_costs([Sample(new, updated, true.of(new, updated)) for new, updated in counts])
    assert (found.new_s, found.updated_s) == pytest.approx((18.6e-6, 7.3e-6))


@pytest.mark.parametrize(
    ("samples", "wanted"),
    [
        ([], RowCosts(0.0, 0.0)),
        ([Sample(0, 0, 1.0)], RowCosts(0.0, 0.0)),
        ([Sample(10, 10, 0.2)], RowCosts(0.01, 0.01)),
        ([Sample(10, 0, 0.1), Sample(20, 0, 0.2)], RowCosts(0.01, 0.01)),
        ([Sample(100, 10, 0.0), Sample(10, 100, 1.0)], RowCosts(0.0, 100 / 10_100)),
    ],
)
def test_costs_that_samples_cannot_tell_apart_are_the_same_and_none_is_below_nothing(samples: list[Sample], wanted: RowCosts):
    found = row_costs(samples)
    assert (found.new_s, found.updated_s) == pytest.approx((wanted.new_s, wanted.updated_s))
