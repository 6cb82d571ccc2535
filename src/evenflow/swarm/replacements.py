"""Replacements of a run: it goes on as other versions of itself, which give the same results, while everything else goes wrong."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Final

from evenflow.availability.retained import program_named, version_name
from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent, Done, ReplaceRequested
from evenflow.coordinator.versions import in_version, number_of
from evenflow.plan.layout import Step
from evenflow.plan.plan import Version
from evenflow.site.hosted import Work
from evenflow.site.outcome import Outcome
from evenflow.swarm.movements import OFTEN_US
from evenflow.swarm.recurring import Recurring
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.store import SimStore
from evenflow.world.sim.world import SimWorld

ASKED: Final = 7_000_000
"""Numbers of requests begin behind it."""


class Replacements(Recurring, Observer):
    """In some runs there are none. Checks that what has processed an epoch is the version of its plan, at every site; and, with a journal,
    that who asked is answered when that has it, and that the next generation goes on as it."""

    def __init__(self, world: SimWorld, random: Random, until_us: int) -> None:
        super().__init__(world, random, until_us, random.choice(OFTEN_US) if random.random() < 0.4 else None)
        self._number = self._made = 0
        world.observers = (*world.observers, self)
        if world.store is not None and _is_sound(world.store):
            now = number_of(world.coordinator.plan)
            assert now >= world.store.promised, f"version {world.store.promised} was promised, and version {now} goes on"

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        store = self.world.store
        for action in actions:
            if isinstance(action, Done) and "version" in action.details and store is not None and _is_sound(store):
                version, there = int(action.details["version"]), store.standing_or_none()
                found = there is None or any(content.version == version for content in there.contents)
                assert found, f"version {version} was promised, and the journal does not have it"
                store.promised = max(store.promised, version)

    def strike(self) -> None:
        """Some segments get boxes that are written in another way."""
        world, random = self.world, self._random
        if world.driver.paused or not world.coordinator.running:
            return
        self._number = max(self._number, world.coordinator.replacing.newest) + 1
        before = world.coordinator.plan.version
        steps: list[dict[int, Step]] = [{} for _ in world.layout.segments] if before is None else [dict(each) for each in before.steps]
        since = [0 for _ in world.layout.segments] if before is None else list(before.since)
        for segment in random.sample(world.layout.segments, random.randint(1, len(world.layout.segments))):
            if segment.steps:
                at = random.randrange(len(segment.steps))
                steps[segment.id][at] = rewritten(segment.steps[at], self._number)
                since[segment.id] = self._number
        version = Version(self._number, tuple(steps), tuple(since), ("some",))
        if world.store is not None:  # It is there before anybody hears of it.
            assert world.coordinator.journal is not None
            self._made += 1
            version = replace(version, program=program_named(world.coordinator.journal.generation, self._number, "", f"{self._made}"))
            plan = world.coordinator.plan.with_settings(version=version)
            world.store.programs[version_name(version.program)] = in_version(world.layout, plan)
        world.driver.coordinate(ReplaceRequested(version, ASKED + self._made))

    def worked(self, site: SimSite, work: Work, outcome: Outcome) -> None:
        epoch, version = outcome.tick.epoch, work.hosted.version
        if all(cohort.hosted is not work.hosted for cohort in site.part.cohorts.values()):
            return  # It has left while it worked: nobody takes what it has done, and the plan of that epoch may be forgotten.
        wanted = site.part.view.runs(work.segment, epoch)[0]
        if version != wanted:
            raise AssertionError(f"segment {work.segment} at site {site.index} runs version {version} in epoch {epoch}, not {wanted}")


def _is_sound(store: SimStore) -> bool:
    """It keeps what it has said that it has."""
    return not (store.model.lost or store.model.torn)


def rewritten(step: Step, number: int) -> Step:
    """A step that does the same and is not equal, where there is a way to write it."""
    if step.kind == "filter" and isinstance(step.params["condition"], str) and "on_error" not in step.params:  # Dead letters quote it.
        return replace(step, params={**step.params, "condition": f"({step.params['condition']}) and {number} > 0"})
    if step.kind == "process":
        return replace(step, params={**step.params, "processor": deepcopy(step.params["processor"])})
    return step
