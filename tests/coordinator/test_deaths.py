"""Two deaths in user code at the same place end the run, before more sites die of it."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from evenflow.coordinator.events import EndRun, Happened, SiteLost, SiteReady
from evenflow.coordinator.machine import RunMachine
from evenflow.errors import BoxFailed, PartitionsLost, UserCodeCrashed
from evenflow.plan.layout import Port, Step
from evenflow.plan.placement import first_membership, first_plan
from tests.coordinator.test_machine import LAYOUT, SCHEMA

MID = replace(LAYOUT.segments[1], steps=(Step("score", "process", {}, SCHEMA, Port(-1, 0), user_code=True),))
WITH_USER_CODE = replace(LAYOUT, segments=(LAYOUT.segments[0], MID, LAYOUT.segments[2]))


def started(sites: int, replicas: int) -> RunMachine:
    plan = first_plan(WITH_USER_CODE, sites, replicas)
    machine = RunMachine(WITH_USER_CODE, plan, first_membership(WITH_USER_CODE, plan, range(sites)))
    for site in range(sites):
        machine.handle(SiteReady(site))
    return machine


def twins(machine: RunMachine) -> tuple[int, ...]:
    """Sites with the same partition of the box."""
    return machine.plan.placement[1][0]


def error_after(machine: RunMachine, *deaths: SiteLost) -> object:
    actions = [action for death in deaths for action in machine.handle(death)]
    return next((action.error for action in actions if isinstance(action, EndRun)), None)


@pytest.mark.parametrize("replicas", [2, 3])
def test_the_second_death_at_the_same_place_ends_the_run_with_box_epoch_and_partitions(replicas: int) -> None:
    machine = started(6, replicas)
    first, second = twins(machine)[:2]
    common = {p for p, sites in enumerate(machine.plan.placement[1]) if {first, second} <= set(sites)}
    error = error_after(machine, SiteLost(first, "gone", doing=((1, 17),)), SiteLost(second, "gone too", doing=((1, 17),)))
    assert isinstance(error, UserCodeCrashed) and isinstance(error, BoxFailed)
    assert (error.box, error.epoch, error.segment, error.sites) == ("score", 17, "mid", (first, second))
    assert set(error.partitions) == common and "box 'score'" in str(error) and "epoch 17" in str(error) and "gone too" in str(error)
    copied = pickle.loads(pickle.dumps(error))
    assert str(copied) == str(error) and copied.partitions == error.partitions


def test_one_death_in_user_code_is_masked_and_says_what_ran() -> None:
    machine = started(6, 2)
    actions = machine.handle(SiteLost(twins(machine)[0], "gone", doing=((1, 17),)))
    assert not machine.over
    [lost] = [action for action in actions if isinstance(action, Happened) and action.kind == "site_lost"]
    assert lost.text.endswith("gone. It was running user code: box score, epoch 17")


@pytest.mark.parametrize("doing", [((1, 18),), (), ((0, 17),)])
def test_two_deaths_at_different_places_are_two_deaths(doing: tuple[tuple[int, int], ...]) -> None:
    machine = started(6, 3)
    first, second = twins(machine)[:2]
    assert error_after(machine, SiteLost(first, "gone", doing=((1, 17),)), SiteLost(second, "gone", doing=doing)) is None


def test_deaths_in_the_same_epoch_of_other_partitions_are_two_deaths() -> None:
    machine = started(6, 2)
    first = twins(machine)[0]
    stranger = next(sites[0] for sites in machine.plan.placement[1] if first not in sites)
    assert error_after(machine, SiteLost(first, "gone", doing=((1, 17),)), SiteLost(stranger, "gone", doing=((1, 17),))) is None


def test_a_run_without_replicas_says_what_its_site_was_running() -> None:
    machine = started(2, 1)
    error = error_after(machine, SiteLost(twins(machine)[0], "gone", doing=((1, 3),)))
    assert isinstance(error, PartitionsLost) and "It was running user code: box score, epoch 3" in str(error)
