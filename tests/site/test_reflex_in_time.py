"""Under overload answers are younger than they may be: what would be late goes at once, and leaders close their epochs together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from evenflow.plan.layout import Segment, Shed
from evenflow.site.ingress import Ingress
from evenflow.site.log import PartitionLog
from evenflow.site.options import FlowOptions
from evenflow.site.reflex import LEAST_ROWS, Allowance, Reflex, Sheddable
from evenflow.site.tally import Tallies
from evenflow.stream.worth import Classes

PATIENCE_US = 300_000
EPOCH_US = PATIENCE_US / 3
SCHEMA = pa.schema([("n", pa.int64())])


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": range(count)})


def led(share: float | None) -> tuple[Ingress, dict[tuple[int, int], PartitionLog]]:
    """One partition to which ten rows come a millisecond. share: of them that can be done; None: nobody has been late."""
    reflex = Reflex({0: Sheddable("in", Shed(("out",), PATIENCE_US))}, 2, Tallies(), active=True)
    reflex.allowance.share, reflex.allowance.rate = share, 0.01
    made, log = Ingress(FlowOptions(shedding="reflex"), reflex=reflex), PartitionLog(0, 0)
    made.lead(Segment(0, "in", "ingress", 1, (), (), (), source="in", schema=SCHEMA), log)
    reflex.allowance.open(0)
    return made, {(0, 0): log}


def closed(made: Ingress, logs: dict[tuple[int, int], PartitionLog], now_us: int, count: int = 1000) -> tuple[int, int, int]:
    """Rows that an epoch keeps, that it leaves out, and that go on waiting, where so many came in the last tenth of a second."""
    made.queues[0, 0].put(rows(count), now_us - 90_000, due_us=now_us - 90_000)
    made.reflex.allowance.offer(count, 90_000)
    [record] = made.close(logs, now_us)
    return record.rows.num_rows if record.rows is not None else 0, sum(record.dropped), made.queues[0, 0].rows


def test_what_would_wait_until_it_is_late_goes_at_once() -> None:
    """Goal: no row waits for half of what an answer may take, only to be left out then, while one that came later stays."""
    made, logs = led(0.4)
    kept, dropped, waiting = closed(made, logs, 100_000)
    assert (kept, dropped, waiting) == (400, 600, 0)
    assert made.reflex.allowance.share is not None


def test_what_comes_in_time_with_a_later_epoch_waits_for_it() -> None:
    """Goal: where little is missing nothing goes before it is late: the next epoch may have more."""
    made, logs = led(0.8)
    assert closed(made, logs, 100_000) == (800, 0, 200)


def test_as_long_as_nobody_has_been_late_all_enter() -> None:
    made, logs = led(None)
    assert closed(made, logs, 100_000) == (1000, 0, 0)


@pytest.mark.parametrize(("share", "goes"), [(0.6, True), (0.7, False), (1.0, False)])
def test_a_row_would_be_late_if_more_epochs_come_before_it_than_fit_into_half_of_the_time(share: float, goes: bool) -> None:
    plain, valued = Shed(("out",), PATIENCE_US), Shed(("out",), PATIENCE_US, "v", Classes((10.0,), (0.1, 1.0)))
    reflex = Reflex({0: Sheddable("in", plain), 1: Sheddable("dear", valued)}, 2, Tallies(), active=True)
    assert reflex.allowance.epoch_us == EPOCH_US
    assert reflex.at_once(0, share) == goes and reflex.at_once(1, share), "where rows differ the best of all that came are to stay"


def test_who_closes_later_than_a_peer_has_an_epoch_with_fewer_rows() -> None:
    """Goal: leaders close together. An epoch is over when its slowest site is, so one that is half an epoch behind, and stays so, makes all
    answers that much older."""
    made, logs = led(0.4)
    made.demand(1, 80_000)
    assert closed(made, logs, 100_000)[0] == pytest.approx(320, abs=1)
    made.demand(3, 110_000)
    assert closed(made, logs, 200_000)[0] == pytest.approx(200, abs=1), "half of it at least, and of its own epoch"
    made.demand(4, 310_000)
    assert closed(made, logs, 300_000)[0] == pytest.approx(200, abs=1), "what was asked for before counts from then"
    assert closed(made, logs, 400_000)[0] == pytest.approx(200, abs=1)
    assert closed(made, logs, 500_000)[0] == pytest.approx(400, abs=1), "nobody is ahead"


def test_an_epoch_that_was_to_be_small_shows_what_can_be_done() -> None:
    """Goal: who catches up does not take that for calm. Method: epochs of half the rows, all that they may have, which take too long."""
    allowance, now_us = Allowance(epoch_us=50_000.0, share=0.5, rate=0.01), 0
    for epoch in range(1, 20):
        now_us += 60_000
        allowance.offer(600, 0)
        allowance.open(now_us, 25_000)
        assert allowance.rows is not None
        allowance.close(epoch, int(allowance.rows), now_us)
        allowance.note(epoch - 1, now_us + 1)
    assert allowance.share is not None and allowance.rows == LEAST_ROWS


def test_overload_goes_on_while_rows_are_left_out_in_time() -> None:
    """Goal: who leaves rows out, so that epochs take just what they may, does not take that for its end. Method: two seconds of it; then
    all that comes can be done, and it ends with a share of which nothing is left out."""
    allowance, now_us, epoch = Allowance(epoch_us=50_000.0, share=0.5, rate=0.01), 0, 0
    for _ in range(40):
        now_us, epoch = now_us + 49_000, epoch + 1
        allowance.note(epoch - 1, now_us)
        allowance.offer(490, 0)
        allowance.open(now_us)
        assert allowance.rows is not None
        allowance.close(epoch, int(allowance.rows), now_us)
        allowance.lack(now_us)
        allowance.rate, allowance.share = 0.01, 0.5
    for _ in range(40):
        now_us, epoch = now_us + 10_000, epoch + 1
        allowance.note(epoch - 1, now_us)
        allowance.offer(100, 0)
        allowance.open(now_us)
        allowance.close(epoch, 100, now_us)
        if allowance.share is not None and allowance.share < 1:
            allowance.lack(now_us)
    now_us += 1_000_000
    allowance.open(now_us)
    assert allowance.share is None
