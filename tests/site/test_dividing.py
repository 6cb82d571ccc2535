"""Key groups change hands at an epoch: what waits at a site belongs to the partitions of its own epoch (E1)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from evenflow.exchange.inbox import Inbox
from evenflow.exchange.routing import key_groups_of, wire_schema
from evenflow.exchange.section import Bundle, Mark
from evenflow.kernels.hash import hash_columns, partition_of
from evenflow.plan.placement import first_membership
from evenflow.plan.plan import Plan, Settings
from evenflow.site.cohort import Cohort
from evenflow.site.hosted import Hosted
from evenflow.site.view import View
from tests.site.test_machine import SCHEMA, two_site_layout

LAYOUT = two_site_layout()
MID = LAYOUT.segments[1]
BEFORE = Plan(0, 1, (((0,),), ((0,), (0,)), ((0,),)))
SWAPPED = Plan(1, 5, BEFORE.placement, (), Settings(((), ((0, 1), (2048, 0)), ())))


def view() -> View:
    made = View(LAYOUT, BEFORE, first_membership(LAYOUT, BEFORE, range(1)), 0)
    made.adopt(SWAPPED, finished=0)
    return made


def test_the_groups_of_an_epoch_are_those_of_its_plan_and_one_array_as_long_as_they_stay() -> None:
    seen = view()
    for epoch, plan in ((1, BEFORE), (4, BEFORE), (5, SWAPPED), (9, SWAPPED)):
        assert np.array_equal(seen.key_groups(MID, epoch), key_groups_of(plan, MID))
    assert not np.array_equal(seen.key_groups(MID, 4), seen.key_groups(MID, 5))
    same = seen.key_groups(MID, 9)
    seen.adopt(Plan(2, 20, BEFORE.placement, (), SWAPPED.settings), finished=0)
    assert seen.key_groups(MID, 20) is same and seen.key_groups(LAYOUT.segments[2], 20) is seen.key_groups(LAYOUT.segments[2], 1)


def test_rows_that_wait_stay_with_the_partition_of_their_epoch() -> None:
    """Goal: nothing is lost if partitions leave while epochs of two plans wait. Method: one leaves, the same rows wait twice."""
    batch = pa.record_batch([list(range(100)), [None] * 100], schema=SCHEMA)
    hashes = hash_columns(batch, ("k",))
    columns = [*batch.columns, pa.array(hashes), pa.array(np.zeros(100, np.int32))]
    rows = pa.RecordBatch.from_arrays(columns, schema=wire_schema(LAYOUT.arcs[0], LAYOUT))
    inbox = Inbox(0, 1, through=3)
    inbox.assign({0: (0,)}, [7])
    for epoch, plan in ((4, 0), (5, 1)):
        inbox.put(Bundle(7, 0, epoch, plan, rows))
        inbox.mark(Mark(7, 0, epoch, plan, 0, 0, 0))
    cohort = Cohort(0, Hosted.of(MID, LAYOUT, (0, 1)), inboxes={0: inbox})
    cohort.leave((1,), view())
    lower = partition_of(hashes, key_groups_of(BEFORE, MID)) == 0
    for epoch, mine in ((4, lower), (5, ~lower)):
        (kept,) = inbox.pop(epoch).batches
        assert kept.column("k").to_pylist() == np.flatnonzero(mine).tolist() and 20 < mine.sum() < 80
