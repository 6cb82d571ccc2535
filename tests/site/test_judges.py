"""Judges say what the guards of their events' rows would. All tests of parts compare (`conftest`); here: what is met, and the table."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from evenflow.exchange.rules import Rule, RuleTable, Story, otherwise
from tests.site.cluster import Cluster, totals


def test_who_is_heard_and_whose_rows_are_taken_is_judged_as_the_guards_say(judged: Counter[str]) -> None:
    cluster = Cluster(totals(partitions=8, sites=2), 2)
    cluster.rows((1, 10), (2, 20))
    cluster.talk()
    cluster.end()
    cluster.talk()
    assert judged.keys() >= {"can_be_heard", "went_well", "wants_rows"}, judged
    assert min(judged.values()) > 0


def is_odd(machine: object, event: int) -> bool:
    return event % 2 == 1


def nothing(machine: object, event: object) -> None:
    pass


def of_number(machine: object, event: int) -> Any:
    return is_odd if event % 2 else otherwise


def test_a_judge_that_is_wrong_is_found_and_who_is_judged_is_not_scanned() -> None:
    rows = [Rule("X1", int, is_odd, nothing, "odd"), Rule("X2", int, otherwise, nothing, "even")]
    table, story = RuleTable[object](rows, judges={int: of_number}), Story()
    for event in (1, 2, 3):
        assert table.judged_well("m", event, story)
        table.apply("m", event, story)
    assert story.fired == {("X1", "nothing"): 2, ("X2", "nothing"): 1}
    assert not RuleTable[object](rows, judges={int: lambda machine, event: is_odd}).judged_well("m", 2, story)
    with pytest.raises(AssertionError, match="the same guard"):
        RuleTable[object]([rows[0], rows[0]], judges={int: of_number})
