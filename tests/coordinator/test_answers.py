"""Who asks a run for something hears how it went: from the machine, not from what people read."""

from __future__ import annotations

from typing import Any

from evenflow.coordinator.events import CoordinatorAction, Denied, Done, Happened, Kind, ReplaceRequested, SiteSaid
from evenflow.coordinator.machine import RunMachine
from evenflow.coordinator.repartitioning import Repartitioning
from evenflow.plan.plan import Version
from evenflow.site.events import PlanProposed
from evenflow.site.facts import Promised
from tests.coordinator.test_machine import LAYOUT, messages, running


def version(number: int) -> Version:
    return Version(number, ({},) * len(LAYOUT.segments), (0,) * len(LAYOUT.segments), ("mid",))


def answers(actions: list[CoordinatorAction]) -> list[Any]:
    return [action for action in actions if isinstance(action, Done | Denied)]


def promise(machine: RunMachine) -> list[CoordinatorAction]:
    assert machine.proposed is not None
    number, said = machine.proposed.number, []
    for site in machine.sites:
        said += machine.handle(SiteSaid(site, Promised(number)))
    return said


def test_a_version_is_answered_when_a_plan_has_it() -> None:
    machine = running()
    asked = machine.handle(ReplaceRequested(version(1), request=5))
    assert messages(asked, PlanProposed) and answers(asked) == []
    actions = promise(machine)
    [told] = [action for action in actions if isinstance(action, Happened)]
    assert told.kind is Kind.REPLACED and str(told.kind) == "replaced", "what is written out is the word"
    assert answers(actions) == [Done(5, {"version": 1, "epoch": machine.plan.effective, "boxes": ["mid"]})]


def test_a_version_that_nobody_waits_for_is_answered_to_nobody() -> None:
    machine = running()
    machine.handle(ReplaceRequested(version(1)))
    assert answers(promise(machine)) == []


def test_an_older_version_that_comes_after_all_does_not_answer_for_a_newer_one() -> None:
    """The first is proposed, withdrawn when its time is over, and committed nevertheless; the second was asked for meanwhile."""
    machine = running()
    machine.handle(ReplaceRequested(version(1), request=5))
    machine.handle(ReplaceRequested(machine.plan.version))
    machine.handle(ReplaceRequested(version(2), request=6))
    first = promise(machine)
    assert machine.plan.version is not None and machine.plan.version.number == 1 and answers(first) == []
    [done] = answers(promise(machine))
    assert (done.request, done.details["version"]) == (6, 2)


def test_a_division_is_answered_when_nothing_of_it_is_open_any_more() -> None:
    asked = Repartitioning(LAYOUT, running().view)
    asked.want((0, 1), 4, request=5)
    asked.want((2,), 4, request=6)
    assert asked.answers() == []
    why = asked.give_up()
    assert asked.answers() == [], "the other segment is still open"
    del asked.wanted[1]
    assert asked.answers() == [Denied(5, why)] and asked.answers() == []
    asked.want((2,), 0)
    assert asked.answers() == [], "who does not want it any more hears nothing"
