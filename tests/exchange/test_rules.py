"""Exactly one rule per event; anything else tells the story. The tables cover every event the machines can meet."""

from __future__ import annotations

import gc
import typing
import weakref
from dataclasses import dataclass

import pyarrow as pa
import pytest

from evenflow.coordinator.events import CoordinatorEvent, SiteSaid
from evenflow.coordinator.machine import RunMachine
from evenflow.coordinator.rules import RULES as COORDINATOR
from evenflow.errors import ProtocolError
from evenflow.exchange.rules import Rule, RuleTable, Story, always, otherwise
from evenflow.exchange.section import Bundle, Mark, Section
from evenflow.plan.placement import first_membership
from evenflow.site.events import Event, Heard, LinkDown, SinkCommitted, StateArrived, TransferFailed
from evenflow.site.facts import (
    CopyLive,
    Fact,
    PartFinished,
    Promised,
)
from evenflow.site.ground import Setup
from evenflow.site.machine import SiteMachine
from evenflow.site.rules import RULES as PART
from evenflow.stream.ids import CopyNumber, FeedNumber, PlanNumber
from tests.site.test_machine import OPTIONS, PLAN, two_site_layout


class Ping:
    pass


def nothing(machine: object, event: object) -> None:
    pass


def test_no_rule_and_two_rules_both_raise_with_the_story() -> None:
    story = Story()
    RuleTable([Rule("X1", Ping, always, nothing, "first")]).apply("m", Ping(), story)
    with pytest.raises(ProtocolError, match="no rule.*\n(.*\n)*.*X1 Ping\n  \\? "):
        RuleTable([]).apply("m", Ping(), story)
    twice = RuleTable([Rule("X1", Ping, always, nothing, "first"), Rule("X2", Ping, always, nothing, "second")])
    with pytest.raises(ProtocolError, match=r"X1 \(first\) and X2 \(second\)"):
        twice.apply("m", Ping(), story)


def something(machine: object, event: object) -> None:
    pass


def test_firing_is_counted_by_effect_for_the_same_id_stands_in_several_rows() -> None:
    story = Story()
    table = RuleTable([Rule("X1", Ping, always, nothing, "first"), Rule("X1", int, always, something, "second")])
    for event in (Ping(), Ping(), 7):
        table.apply("m", event, story)
    assert story.fired == {("X1", "nothing"): 2, ("X1", "something"): 1}
    assert story.last is table.rules[1]


def is_odd(machine: object, event: int) -> bool:
    return event % 2 == 1


def is_big(machine: object, event: int) -> bool:
    return event > 9


def test_what_holds_otherwise_holds_where_no_other_guard_is_true_and_is_counted_as_a_row_of_its_own() -> None:
    story = Story()
    odd, rest = Rule("X1", int, is_odd, something, "odd"), Rule("X2", int, otherwise, nothing, "the others")
    table = RuleTable([rest, odd, Rule("X3", int, is_big, something, "big")])
    for event in (1, 2, 4):
        table.apply("m", event, story)
    assert story.fired == {("X1", "something"): 1, ("X2", "nothing"): 2}
    assert story.last is rest and rest.name == "X2 int otherwise: nothing"
    with pytest.raises(ProtocolError, match=r"X1 \(odd\) and X3 \(big\)"):
        table.apply("m", 11, story)
    assert "| X2 | `int` | otherwise | nothing | the others |" in table.as_markdown()


def test_an_event_has_one_otherwise() -> None:
    with pytest.raises(AssertionError, match="int has 2 rows that hold otherwise"):
        RuleTable([Rule("X1", int, otherwise, nothing, "first"), Rule("X2", int, otherwise, something, "second")])


@dataclass(frozen=True)
class Letter:
    content: object


def opened(event: object) -> type:
    return type(event.content) if isinstance(event, Letter) else type(event)


def is_sealed(machine: object, event: Letter) -> bool:
    return event.content == 7


def test_rows_about_what_an_event_carries_are_found_by_its_class_and_those_for_all_of_it_hold_too() -> None:
    story = Story()
    sealed = Rule("X1", Letter, is_sealed, something, "no matter what is in it")
    number, text = (Rule("X2", Letter, otherwise, nothing, "a letter", of=kind) for kind in (int, str))
    table = RuleTable([sealed, number, text, Rule("X3", Ping, always, something, "no letter")], opened)
    fired = []
    for event in (Letter(7), Letter(8), Letter("eight"), Ping()):
        table.apply("m", event, story)
        fired.append(story.last)
    assert fired == [sealed, number, text, table.rules[-1]]
    assert number.name == "X2 Letter int otherwise: nothing"
    with pytest.raises(ProtocolError, match="no rule"):
        table.apply("m", Letter(7.5), story)


def test_an_effect_can_be_swapped_and_back() -> None:
    story = Story()
    table = RuleTable([Rule("X1", Ping, always, nothing, "first")])
    table.swap(nothing, something)
    table.apply("m", Ping(), story)
    table.swap(something, nothing)
    table.apply("m", Ping(), story)
    assert story.fired == {("X1", "something"): 1, ("X1", "nothing"): 1}


def test_a_story_says_peer_epoch_and_copy_and_keeps_neither_rows_nor_state() -> None:
    layout = two_site_layout()
    part = SiteMachine(Setup(layout, PLAN, first_membership(layout, PLAN, range(2)), 0, OPTIONS))
    rows = pa.RecordBatch.from_pydict({"x": [1]})
    marks = [Mark(FeedNumber(99), 0, epoch, PlanNumber(0), 0, 0, 0) for epoch in (3, 4)]
    heard = Heard(1, Section(bundles=[Bundle(FeedNumber(99), 0, 3, PlanNumber(0), rows, 8)], marks=marks))
    kept = weakref.ref(rows)
    part.handle(LinkDown(1), 1)
    part.handle(TransferFailed(CopyNumber(5), "the disk is\nfull"), 1)
    part.handle(heard, 2)
    part.handle(StateArrived(CopyNumber(9), b"state"), 3)
    part.handle(SinkCommitted(1, 0), 4)
    del heard, rows
    gc.collect()
    assert kept() is None
    with pytest.raises(ProtocolError) as raised:
        part.handle(Ping(), 5)  # type: ignore[arg-type]
    assert str(raised.value).split("\n")[2:-1] == [
        "  T2 LinkDown: peer 1", "  C4 TransferFailed: copy 5, why the disk is full", "  A2 Heard: peer 1, epochs 3 to 4",
        "  C3 StateArrived: copy 9", "  O1 SinkCommitted: segment 1, epoch 0",
    ]  # fmt: skip


def test_a_story_says_what_a_fact_says() -> None:
    layout = two_site_layout()
    run = RunMachine(layout, PLAN, first_membership(layout, PLAN, range(2)))
    for fact in (CopyLive(CopyNumber(3), 17), Promised(PlanNumber(1))):
        run.handle(SiteSaid(1, fact))
    run.handle(SiteSaid(7, PartFinished(4)))
    told = run.story.tell("it").split("\n")
    assert told == ["it went through:", "  C4 SiteSaid CopyLive: site 1, number 3, bytes 17",
                    "  V2 SiteSaid Promised: site 1, number 1", "  V3 SiteSaid: site 7, fact PartFinished"]  # fmt: skip


@pytest.mark.parametrize(("table", "union"), [(PART, Event), (COORDINATOR, CoordinatorEvent)], ids=["site", "coordinator"])
def test_every_event_has_a_rule(table: RuleTable[typing.Any], union: typing.Any) -> None:
    assert {rule.event for rule in table.rules} == set(typing.get_args(union))


def test_everything_that_a_site_says_has_a_rule() -> None:
    assert {rule.of for rule in COORDINATOR.rules if rule.of} == set(typing.get_args(Fact))
