"""Asks a site for a profile of itself, and waits for it, while everything runs."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future
from typing import Any, Final

from evenflow.errors import ClusterError, OperationRefused
from evenflow.statistics.profile import Profile, check_seconds
from evenflow.world.spark.cluster.interrupts import heed
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.net import control

SLICE_S: Final = 0.2
PATIENCE_S: Final = 20.0
"""For an answer, behind the time that is sampled: a site may be busy."""


class ProfiledSites:
    """For an engine."""

    def profile(self, site: int, seconds: float = 5.0) -> Profile:
        """Where the time of a site goes: stacks of its process, by box where it is a box's code, sampled while it goes on.

        Raises OperationRefused if there is no such site, it is being sampled already, or is asked for too long; ClusterError if it dies
        meanwhile, or does not answer.
        """
        engine: Any = self
        return profile_of(engine._once_there(), site, seconds)


def profile_of(coordinator: DriverLoop, site: int, seconds: float) -> Profile:
    """See `ProfiledSites.profile`. From any thread but the coordinator's."""
    check_seconds(seconds)

    def begin() -> tuple[int, Future[control.Profiled]]:
        if site not in coordinator.sites:
            there = ", ".join(map(str, sorted(coordinator.sites))) or "none"
            raise OperationRefused(f"there is no site {site}; there are: {there}")
        number, future = coordinator.profiles.expect()
        coordinator.send(site, control.Profile(number, seconds))
        return number, future

    number, future = coordinator.ask(begin)
    deadline = time.monotonic() + seconds + PATIENCE_S
    try:
        answer = _wait(coordinator, site, future, deadline)
    finally:
        coordinator.call_soon(lambda: coordinator.profiles.forget(number))
    if answer.why:
        raise OperationRefused(f"site {site} cannot be sampled: {answer.why}")
    try:
        return Profile.from_json(json.loads(answer.told))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ClusterError(f"what site {site} has sampled cannot be read: {error!r}") from error


def _wait(coordinator: DriverLoop, site: int, future: Future[control.Profiled], deadline: float) -> control.Profiled:
    while True:
        heed()
        try:
            return future.result(SLICE_S)
        except TimeoutError:
            pass
        if site not in coordinator.sites:
            raise ClusterError(f"site {site} has gone while it was sampled")
        if time.monotonic() > deadline:
            raise ClusterError(f"site {site} has not answered for {PATIENCE_S:.0f} s: user code that gives nothing back may hold it")
