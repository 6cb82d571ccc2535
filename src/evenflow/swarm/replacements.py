"""Replacements of a run: it goes on as other versions of itself, which give the same results, while everything else goes wrong."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from random import Random

from evenflow.coordinator.events import ReplaceRequested
from evenflow.plan.layout import Step
from evenflow.plan.plan import Version
from evenflow.site.hosted import Work
from evenflow.site.outcome import Outcome
from evenflow.swarm.movements import OFTEN_US
from evenflow.swarm.recurring import Recurring
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld


class Replacements(Recurring, Observer):
    """In some runs there are none. Checks that what has processed an epoch is the version of its plan, at every site."""

    def __init__(self, world: SimWorld, random: Random, until_us: int) -> None:
        super().__init__(world, random, until_us, random.choice(OFTEN_US) if random.random() < 0.4 else None)
        self._number = 0
        world.observers = (*world.observers, self)

    def strike(self) -> None:
        """Some segments get boxes that are written in another way."""
        world, random = self.world, self._random
        if world.driver.paused or not world.coordinator.running:
            return
        self._number += 1
        before = world.coordinator.plan.version
        steps: list[dict[int, Step]] = [{} for _ in world.layout.segments] if before is None else [dict(each) for each in before.steps]
        since = [0 for _ in world.layout.segments] if before is None else list(before.since)
        for segment in random.sample(world.layout.segments, random.randint(1, len(world.layout.segments))):
            if segment.steps:
                at = random.randrange(len(segment.steps))
                steps[segment.id][at] = rewritten(segment.steps[at], self._number)
                since[segment.id] = self._number
        world.driver.coordinate(ReplaceRequested(Version(self._number, tuple(steps), tuple(since), ("some",))))

    def worked(self, site: SimSite, work: Work, outcome: Outcome) -> None:
        epoch, version = outcome.tick.epoch, work.hosted.version
        wanted = site.part.view.runs(work.segment, epoch)[0]
        if version != wanted:
            raise AssertionError(f"segment {work.segment} at site {site.index} runs version {version} in epoch {epoch}, not {wanted}")


def rewritten(step: Step, number: int) -> Step:
    """A step that does the same and is not equal, where there is a way to write it."""
    if step.kind == "filter" and isinstance(step.params["condition"], str) and "on_error" not in step.params:  # Dead letters quote it.
        return replace(step, params={**step.params, "condition": f"({step.params['condition']}) and {number} > 0"})
    if step.kind == "process":
        return replace(step, params={**step.params, "processor": deepcopy(step.params["processor"])})
    return step
