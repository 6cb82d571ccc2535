"""Judges say what the guards of their events' rows would. All tests of parts compare (`conftest`); here: what is met, and the table."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args, get_type_hints

import pytest

from evenflow.errors import ProtocolError
from evenflow.exchange.rules import Rule, RuleTable, Story, otherwise
from evenflow.exchange.section import Section, Settled, close_mark
from evenflow.site.events import Heard, SourceEnded, TimerFired, WorkDone
from evenflow.site.facts import PartFailed
from evenflow.site.outcome import Outcome
from evenflow.site.rules import JUDGES, RULES
from evenflow.stream.epoch import Tick
from evenflow.stream.ids import PlanNumber
from tests.site.cluster import SOURCE, Cluster, arrived, totals


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
    assert not RuleTable[object](rows, judges={int: lambda machine, event: is_odd if event else otherwise}).judged_well("m", 2, story)
    with pytest.raises(AssertionError, match="the same guard"):
        RuleTable[object]([rows[0], rows[0]], judges={int: of_number})


def test_a_judge_that_does_not_know_a_row_of_its_event_is_refused() -> None:
    """It would call the row's events otherwise, silently."""
    rows = [Rule("X1", int, is_odd, nothing, "odd"), Rule("X2", int, otherwise, nothing, "even")]
    more = Rule("X3", int, is_big, nothing, "big")
    with pytest.raises(AssertionError, match=r"of_number does not name the guards of \['X3 int is_big: nothing'\]"):
        RuleTable[object]([*rows, more], judges={int: of_number})
    with pytest.raises(AssertionError, match="go by what it carries"):
        RuleTable[object]([*rows, Rule("X4", int, is_big, nothing, "of a text", of=str)], judges={int: of_number})
    for event, judge in JUDGES.items():
        with pytest.raises(AssertionError, match=f"{judge.__name__} does not name"):
            RuleTable([*RULES.rules, Rule("X3", event, is_big, nothing, "big")], judges=JUDGES)


def is_big(machine: object, event: int) -> bool:
    return event > 9


def test_a_judge_that_names_what_is_no_row_is_no_key_error() -> None:
    table = RuleTable[object]([Rule("X1", int, is_odd, nothing, "odd")], judges={int: of_number})
    with pytest.raises(ProtocolError, match="int enables no rule"):
        table.apply("m", 2, Story())


def test_every_row_of_what_is_judged_is_met_and_judged_as_its_guard_says(judged: Counter[str]) -> None:
    """`judged` compares; here every one of these rows fires, so that none is compared never."""
    cluster = Cluster(totals(partitions=8, sites=2), 2, journalled=True)
    before = {row: 0 for row in RULES.rules if row.event in JUDGES}
    part = cluster.parts[cluster.membership.leaders[SOURCE][0].site]
    peer = 1 - part.site

    def give(event: Any) -> None:
        part.handle(event, cluster.now_us)
        before[part.story.last] += 1

    def done(why: PartFailed | None) -> WorkDone:
        return WorkDone(Outcome((SOURCE, 99), Tick(1, 0, 0, 0), 0, error=why))  # Of a cohort that is gone.

    timers = get_args(get_type_hints(TimerFired)["name"])
    for name in timers:
        give(TimerFired(name))
    give(Heard(peer, Section()))
    newer = PlanNumber(part.view.plan.number + 1)
    give(Heard(peer, Section(marks=[close_mark(1, newer, 1)])))
    give(Heard(peer, Section()))  # What came before it is held.
    part.held.clear()
    give(Heard(peer, Section(settled=[Settled(SOURCE, 0, part.view.membership.number + 1, 0)])))
    part.held.clear()
    give(Heard(9, Section()))
    give(arrived(0, [(1, 2)]))
    give(arrived(7, [(1, 2)]))
    part.handle(SourceEnded(SOURCE, 0), cluster.now_us)
    give(arrived(0, [(1, 2)]))
    give(done(None))
    give(done(PartFailed("totals", 1, "", "no", "ValueError")))
    give(done(None))
    give(arrived(0, [(1, 2)]))
    part.failed = False
    cluster.declare(sites=(part.site,))
    give(Heard(peer, Section()))
    assert all(before.values()), [row.name for row, fired in before.items() if not fired]
    assert sum(judged.values()) >= sum(before.values())
