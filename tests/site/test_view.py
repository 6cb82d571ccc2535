"""Who feeds whom, who counts and who leads, as a function of plan and membership (A3, V1, V2)."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from evenflow.availability.mode import Mode
from evenflow.plan.layout import Layout, Segment
from evenflow.plan.placement import first_membership, first_plan
from evenflow.plan.plan import Copy, Plan, Settings
from evenflow.site.view import Block, View

SCHEMA = pa.schema([("k", pa.int64())])
LAYOUT = Layout(
    "t",
    (
        Segment(0, "in", "ingress", 2, (), (), (), False, "src", None, SCHEMA),
        Segment(1, "mid", "inner", 8, (), (), (), False, None, None, SCHEMA),
        Segment(2, "out", "egress", 1, (), (), (), False, None, "sink", SCHEMA),
    ),
    (),
    {"src": None},
    {"sink": None},
)
PLAN = first_plan(LAYOUT, 4, 2)
"""Sites 0 and 2 mirror each other, and so do 1 and 3."""
FIRST = first_membership(LAYOUT, PLAN, range(4))
MID = 1
LOW, HIGH = (0, 1, 2, 3), (4, 5, 6, 7)


def view_at(site: int, plan: Plan = PLAN, **changes: object) -> View:
    return View(LAYOUT, plan, replace(FIRST, **changes), site)  # type: ignore[arg-type]


def with_copy(**changes: object) -> View:
    """Plan 1 copies partitions 0 and 1 from site 2 to site 4, where site 0 was."""
    copy = Copy(7, MID, (0, 1), 2, 4)
    rows = [list(row) for row in PLAN.placement]
    for partition in copy.partitions:
        rows[MID][partition] = (4, 2)
    plan = Plan(1, 10, tuple(map(tuple, rows)), (copy,))
    said = {"sites": (1, 2, 3, 4), "joining": (copy,), **changes}
    return view_at(3, plan, **said)


def test_partitions_with_the_same_replicas_are_one_block() -> None:
    assert view_at(0).blocks(MID) == (Block((0, 2), LOW, -1), Block((1, 3), HIGH, -1))


def test_partitions_under_copy_are_a_block_of_their_own() -> None:
    assert with_copy().blocks(MID) == (Block((4, 2), (0, 1), 4), Block((0, 2), (2, 3), -1), Block((1, 3), HIGH, -1))


def test_a_target_counts_when_its_copy_is_neither_under_way_nor_given_up() -> None:
    for changes, live in (({}, (2,)), ({"joining": ()}, (4, 2)), ({"joining": (), "dropped": (7,)}, (2,)), ({"sites": (1, 3, 4)}, ())):
        view = with_copy(**changes)
        assert view.live(view.blocks(MID)[0]) == live, changes


def test_blocks_follow_every_membership_and_plan() -> None:
    """What is remembered of a plan does not outlive it, and what becomes of its copies shows at once."""
    before = with_copy().plan
    view = view_at(3, replace(before, copies=(replace(before.copies[0], replaces=2),)), sites=(1, 2, 3, 4))
    for changes, first in (
        ({"joining": ()}, Block((4, 2), (0, 1), -1)),
        ({"joining": (), "dropped": (7,)}, Block((-1, 2), (0, 1), -1)),
        ({"joining": (), "retired": (7,)}, Block((4, -1), (0, 1), -1)),
    ):
        view.change(replace(FIRST, sites=(1, 2, 3, 4), **changes))  # type: ignore[arg-type]
        assert view.blocks(MID)[0] == first, changes
    view.adopt(replace(PLAN, number=2, effective=20), finished=9)
    assert view.blocks(MID) == view_at(3).blocks(MID)


def test_one_is_fed_by_itself_then_by_the_replica_of_its_own_rank() -> None:
    assert view_at(0).feeders(MID, set()) == {0: LOW, 1: HIGH}
    assert view_at(2).feeders(MID, set()) == {2: LOW, 3: HIGH}
    assert view_at(1).feeders(MID, set()) == {0: LOW, 1: HIGH}


def test_a_dead_feeder_is_replaced_by_a_survivor() -> None:
    assert view_at(1, sites=(1, 2, 3)).feeders(MID, set()) == {2: LOW, 1: HIGH}


def test_a_feeder_that_cannot_be_reached_is_replaced_until_it_can() -> None:
    view = view_at(1)
    assert view.feeders(MID, {0}) == {2: LOW, 1: HIGH}
    assert view.feeders(MID, {0, 2}) == {0: LOW, 1: HIGH}, "with nobody in reach, the one that is liked best"
    assert view.feeders(MID, set()) == {0: LOW, 1: HIGH}


def test_a_site_feeds_itself_even_if_it_believes_itself_cut_off() -> None:
    assert view_at(1).feeders(MID, {0, 1, 2, 3})[1] == HIGH


def test_who_is_joining_or_was_given_up_feeds_nobody() -> None:
    assert 4 not in with_copy().feeders(MID, set())
    assert 4 not in with_copy(joining=(), dropped=(7,)).feeders(MID, set())
    assert 4 in with_copy(joining=()).feeders(MID, {2})


@given(st.sets(st.integers(0, 3), min_size=1), st.sets(st.integers(0, 3)), st.integers(0, 3))
def test_every_partition_with_a_live_replica_has_exactly_one_feeder(alive: set[int], unreachable: set[int], site: int) -> None:
    view = view_at(site, sites=tuple(sorted(alive)))
    fed = [(partition, feeder) for feeder, partitions in view.feeders(MID, unreachable).items() for partition in partitions]
    lost = {p for block in view.blocks(MID) if not view.live(block) for p in block.partitions}
    assert sorted(partition for partition, _ in fed) == sorted(set(range(8)) - lost)
    for partition, feeder in fed:
        assert feeder in alive and feeder in PLAN.placement[MID][partition]
        reachable = [s for s in PLAN.placement[MID][partition] if s in alive and s not in unreachable]
        assert feeder not in unreachable or feeder == site or not reachable


def test_present_are_those_who_get_frames_and_active_those_who_count() -> None:
    view = with_copy()
    assert view.present(MID) == (1, 2, 3, 4)
    assert view.active() == (1, 2, 3)


def test_the_dead_are_known_for_ever_and_strangers_are_not_dead() -> None:
    view = view_at(0, sites=(0, 1, 3))
    assert (view.is_dead(2), view.is_new(2)) == (False, True), "who said hello before another one may join behind it"
    assert (view.is_dead(4), view.is_new(4)) == (False, True)
    view.change(replace(FIRST, number=1, sites=(0, 1, 3, 4)))
    view.change(replace(FIRST, number=2, sites=(0, 1, 3)))
    assert (view.is_dead(4), view.is_new(4)) == (True, False), "a site index is never used twice"


def test_the_first_live_replica_is_the_one_that_counts_rows() -> None:
    assert [view_at(site).counts(MID, LOW) for site in range(4)] == [True, False, False, False]
    assert view_at(2, sites=(1, 2, 3)).counts(MID, LOW)


def test_records_are_waited_for_by_live_members_and_sent_to_joining_ones_too() -> None:
    copy = Copy(3, 0, (0,), 2, 4)
    plan = Plan(1, 5, (((4, 2), (1, 3)), *PLAN.placement[1:]), (copy,))
    leaders = ((FIRST.leaders[0][0]._replace(site=2), FIRST.leaders[0][1]), (), ())
    view = view_at(2, plan, sites=(1, 2, 3, 4), joining=(copy,), leaders=leaders)
    assert (view.members(0, 0), view.followers(0, 0)) == ((2,), (4,))
    view.change(replace(view.membership, number=1, joining=()))
    assert (view.members(0, 0), view.followers(0, 0)) == ((4, 2), (4,))


def test_a_plan_governs_from_its_epoch_on_and_is_kept_while_it_is_needed() -> None:
    view = view_at(0)
    view.adopt(Plan(1, 10, PLAN.placement), finished=0)
    view.adopt(Plan(2, 20, PLAN.placement), finished=0)
    assert [view.plan_at(epoch).number for epoch in (1, 9, 10, 19, 20, 99)] == [0, 0, 1, 1, 2, 2]
    view.adopt(Plan(3, 30, PLAN.placement), finished=10)
    assert [plan.number for plan in view.plans] == [1, 2, 3]


def test_plans_are_kept_for_what_begins_again_and_for_no_more() -> None:
    """B2: where states are in images nobody says how far a segment is stable that is not passive."""
    first = replace(PLAN, settings=Settings(modes=(Mode.PAIRS, Mode.PASSIVE, Mode.PAIRS)))
    view = view_at(0, first)
    for number in range(1, 20):
        stable = (0, 10 * max(0, number - 2), 0)
        view.adopt(replace(first, number=number, effective=10 * number), view.passed(10 * number - 1, stable))
        assert view.plan_at(max(1, stable[MID] + 1)).effective <= max(1, stable[MID] + 1), "behind its base the plans are known"
        assert len(view.plans) <= 4
    assert view_at(0).passed(7, (0, 0, 0)) == 7
