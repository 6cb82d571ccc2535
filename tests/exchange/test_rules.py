"""Exactly one rule per event; anything else tells the story. The tables cover every event the machines can meet."""

from __future__ import annotations

import typing

import pytest

from evenflow.coordinator.events import CoordinatorEvent
from evenflow.coordinator.rules import RULES as COORDINATOR
from evenflow.errors import ProtocolError
from evenflow.exchange.rules import Rule, RuleTable, Story, always
from evenflow.site.events import Event
from evenflow.site.rules import RULES as PART


class Ping:
    pass


def nothing(machine: object, event: object) -> None:
    pass


def test_no_rule_and_two_rules_both_raise_with_the_story() -> None:
    story = Story()
    RuleTable([Rule("X1", Ping, always, nothing, "first")]).apply("m", Ping(), story)
    with pytest.raises(ProtocolError, match="no rule.*\n(.*\n)*.*X1 Ping"):
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


@pytest.mark.parametrize(("table", "union"), [(PART, Event), (COORDINATOR, CoordinatorEvent)], ids=["site", "coordinator"])
def test_every_event_has_a_rule(table: RuleTable[typing.Any], union: typing.Any) -> None:
    assert {rule.event for rule in table.rules} == set(typing.get_args(union))
