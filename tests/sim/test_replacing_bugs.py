"""Planted bugs of runs that are replaced at a location show in a scenario (K11)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evenflow.errors import EvenflowError
from evenflow.swarm.mutations import planted
from evenflow.swarm.version_mutations import VERSIONS, Mutation
from tests.availability.test_standing import test_versions_are_needed_as_long_as_a_checkpoint_is as needed
from tests.sim import test_replacing_at_a_location as located

SCENARIOS: dict[str, Callable[[], object]] = {
    "who replaces is answered before the journal has it": lambda: located.test_everything_is_lost_after_the_version_acts(1),
    "a version that was promised is forgotten": located.test_everything_is_lost_between_the_entry_of_the_plan_and_its_effect,
    "a version acts from an epoch that is durable": located.test_everything_is_lost_between_the_entry_of_the_plan_and_its_effect,
    "a version goes that a checkpoint needs": needed,
    "a version that nobody needs stays": needed,
    "epochs are made again by another version": lambda: located.test_everything_is_lost_after_the_version_acts(1),
}


@pytest.mark.conformance
@pytest.mark.parametrize("mutation", VERSIONS, ids=lambda mutation: mutation.name)
def test_planted_bugs_are_found(mutation: Mutation) -> None:
    with planted(mutation), pytest.raises((AssertionError, EvenflowError, pytest.fail.Exception)):
        SCENARIOS[mutation.name]()
