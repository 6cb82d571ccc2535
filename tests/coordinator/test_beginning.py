"""What a new generation begins with follows from its journal, and what cannot be replayed is refused before a row is read (K9, K10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.availability.content import Content
from evenflow.availability.entries import Begun, Completed, Cut, Entry, Key, Logged, Matter, Piece
from evenflow.availability.standing import Standing, standing
from evenflow.coordinator.beginning import begin_at
from evenflow.errors import LocationError, QueryError
from evenflow.plan.layout import KEY_GROUPS, Layout
from evenflow.plan.plan import Version
from evenflow.plan.ranges import connected, even
from evenflow.query.planner import layout
from evenflow.site.replaying import Beginning
from evenflow.sources.tcp import TcpSource

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
SOURCE, TOTALS = 0, 1
A, B = (SOURCE, 0), (SOURCE, 1)


def totals(partitions: int = 4) -> Layout:
    flow = ef.Dataflow("totals")
    stream = flow.source(ef.sources.memory([[], []], 2, schema=SCHEMA), name="in")
    stream.group_by("k").agg(n="count(*)").to(ef.sinks.memory("out"), name="out")
    return layout(flow.network, sites=2, partitions=partitions, max_partitions=8)


LAYOUT = totals()
NOTHING_ELSE = ((),) * (len(LAYOUT.segments) - TOTALS - 1)


def ranges(*given: tuple[int, int]) -> tuple[Any, ...]:
    return ((), given, *NOTHING_ELSE)


def cut(epoch: int, taken: int = 0) -> Cut:
    return Cut(epoch, 100 * epoch, 100 * epoch, taken, False, False)


def found(*matters: Matter, ingress: tuple[Key, ...] = (A, B)) -> Standing:
    begun = Begun("run", "totals", "", {}, ingress, Content(1))
    return standing(Entry(number, 1, "nonce", matter) for number, matter in enumerate([begun, *matters], 1))


def both(*epochs: int) -> dict[Key, tuple[Cut, ...]]:
    return {A: tuple(map(cut, epochs)), B: tuple(map(cut, epochs))}


def test_what_is_durable_for_some_partitions_only_is_cut_anew() -> None:
    beginning = begin_at(found(Logged({A: (cut(1), cut(2), cut(3)), B: (cut(1), cut(2))})), LAYOUT, range(2))
    assert (beginning.epoch, beginning.durable) == (0, 2)
    assert beginning.cut(A, 2) == cut(2) and beginning.cut(A, 3) is None and beginning.cut(A, 0) is None


def test_a_location_without_anything_begins_as_a_run_without_one() -> None:
    beginning = begin_at(Standing(), LAYOUT, range(2), 2)
    assert (beginning.epoch, beginning.durable, len(beginning.plans)) == (0, 0, 1)


def test_each_content_is_a_plan_and_all_of_them_place_alike() -> None:
    divided = ranges((0, 0), (1024, 1), (2048, 2), (2560, 6), (3072, 3))
    logged = Logged(both(1, 2, 3), (Content(3, divided), Content(9, ranges((0, 0)))))
    beginning = begin_at(found(logged), LAYOUT, (5, 7, 9), 1)
    assert [(plan.number, plan.effective, plan.ranges) for plan in beginning.plans] == [(0, 1, ()), (1, 3, divided)], (
        "epoch 9 was never cut"
    )
    assert len({plan.placement for plan in beginning.plans}) == 1 and set(beginning.plans[0].sites) <= {5, 7, 9}
    row = beginning.plans[0].placement[TOTALS]
    assert row[6] == row[2], "6 was divided from 2, so it is where that is"
    assert len({row[0], row[1], row[3]}) > 1, "the others are not kept together"


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_replicas_of_what_is_divided_are_together_too(replicas: int) -> None:
    logged = Logged(both(1, 2), (Content(2, ranges((0, 0), (2048, 2))),))
    row = begin_at(found(logged), LAYOUT, range(6), replicas).plans[0].placement[TOTALS]
    assert row[0] == row[1] and row[2] == row[3] and len(set(row[0])) == replicas


def test_connected_follows_several_steps() -> None:
    half = KEY_GROUPS // 2
    history = [even(4), ((0, 0), (1024, 1), (half, 2)), ((0, 0), (half, 2)), ((0, 0), (half, 2), (3000, 3))]
    assert connected(history) == ((0, 1), (2, 3))
    assert connected(history[:1]) == () == connected([even(4), even(4)])


def test_state_behind_a_checkpoint_is_as_the_content_of_its_epoch_has_divided_it() -> None:
    content = Content(3, ranges((0, 0), (2048, 2)))
    pieces = (Piece(SOURCE, 0, (0, 1), {"logs": {"0": [70, False, [-1, []], 200], "1": [9, True, [-1, []], 201]}}, ()),)
    beginning = begin_at(found(Logged(both(1, 2, 3), (content,)), Completed(1, 2, pieces)), LAYOUT, range(2))
    assert (beginning.epoch, beginning.durable) == (2, 3)
    assert [plan.effective for plan in beginning.plans] == [1, 3], "state of epoch 2 is divided anew in epoch 3"
    assert {key: facts[0] for key, facts in beginning.logs.items()} == {A: 70, B: 9}


@pytest.mark.parametrize(
    ("standing", "why"),
    [
        (found(Logged(both(1), (Content(2, (), (), 1),))), "boxes of the dataflow were replaced at epoch 2"),
        (found(Logged(both(1), (Content(2, (), (), 1, program="ab"),))), "boxes of the dataflow were replaced at epoch 2"),
        (found(ingress=(A,)), "1 partitions of sources, and this one has 2"),
        (found(Logged(both(1), (Content(2, ranges((0, 0), (10, 99))),))), "divides .* at epoch 2"),
        (found(Logged(both(1), (Content(2, ranges((0, 0), (10, 0))),))), "divides .* at epoch 2"),
        (found(Logged(both(1), (Content(2, ranges((7, 0))),))), "divides .* at epoch 2"),
        (found(Logged(both(1), (Content(2, ((),)),))), "divides .* at epoch 2"),
        (found(Logged(both(1), (Content(2, (), ((), (1, 2), *NOTHING_ELSE)),))), "deals rows of .* at epoch 2"),
    ],
)
def test_what_cannot_be_replayed_is_refused(standing: Standing, why: str) -> None:
    with pytest.raises(LocationError, match=why):
        begin_at(standing, LAYOUT, range(2))


def test_a_version_that_is_kept_under_another_name_is_not_the_one() -> None:
    version = Version(1, ({},) * len(LAYOUT.segments), (0,) * len(LAYOUT.segments), (), program="ab")
    logged = Logged(both(1), (Content(2, (), (), 1, program="ab"),))
    assert [plan.version for plan in begin_at(found(logged), LAYOUT, range(2), versions={1: version}).plans] == [None, version]
    with pytest.raises(LocationError, match="boxes of the dataflow were replaced at epoch 2"):
        begin_at(found(logged), LAYOUT, range(2), versions={1: replace(version, program="cd")})


def test_rows_that_a_source_gives_once_cannot_be_replayed() -> None:
    once = replace(LAYOUT, sources={name: TcpSource("localhost", 1, SCHEMA) for name in LAYOUT.sources})
    logged = Logged({A: (cut(1, 5),), B: (cut(1),)})
    with pytest.raises(LocationError, match="source 'in' cannot give its rows again, and 5 rows of its partition 0 came after"):
        begin_at(found(logged), once, range(2))
    assert begin_at(found(Logged(both(1))), once, range(2)).durable == 1, "epochs without rows need none"


def test_more_replicas_than_sites_are_refused() -> None:
    with pytest.raises(QueryError, match="3 replicas need as many sites"):
        begin_at(found(), LAYOUT, range(2), 3)


def test_a_plan_that_changes_content_acts_behind_what_is_replayed() -> None:
    beginning = begin_at(found(Logged(both(1, 2, 3))), LAYOUT, range(2))
    [before] = beginning.plans
    moved = replace(before, placement=tuple(tuple((1,) for _ in row) for row in before.placement))
    assert beginning.first_of(moved, before) == 1
    assert beginning.first_of(before.with_settings(ranges=ranges((0, 0))), before) == 4
    assert Beginning().first_of(before.with_settings(ranges=ranges((0, 0))), before) == 1
