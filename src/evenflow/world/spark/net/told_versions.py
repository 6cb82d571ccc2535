"""What a version does travels to a site once, with the first plan that has it; after that plans only name it.

Every later plan has the version (decision 35), and a refreshed table in it may have megabytes. What the driver tells a site comes in order
and exactly once, so a site that was told of a version has it.
"""

from __future__ import annotations

from dataclasses import replace

from evenflow.plan.plan import Plan, Version
from evenflow.site.events import Event, PlanCommitted, PlanProposed
from evenflow.world.spark.net.control import Delivered


class Telling:
    """The driver's half, of one run."""

    def __init__(self) -> None:
        self._told: dict[int, int] = {}

    @property
    def sites(self) -> set[int]:
        """Those that were given a part, whatever has become of them."""
        return set(self._told)

    def began(self, site: int, plan: Plan) -> None:
        """A site was given its part of the run, with the plan as a whole."""
        self._told[site] = 0 if plan.version is None else plan.version.number

    def thin(self, site: int, event: Delivered) -> Delivered:
        """The event as it is to be sent to a site: without what it has been told."""
        if not isinstance(event, PlanProposed | PlanCommitted) or event.plan.version is None:
            return event
        version = event.plan.version
        if self._told.get(site) != version.number:
            self._told[site] = version.number
            return event
        return replace(event, plan=event.plan.with_settings(version=replace(version, steps=(), packed=b"")))


def unpacked(plan: Plan) -> Plan:
    """A plan that has come, with what its version does. Runs the user's code: raises whatever that raises, for instance where it needs a
    library that only the driver has. To be called where that ends one run, and not the site."""
    version = plan.version
    if version is None or version.steps or not version.packed:
        return plan
    read = Version.unpack(version.packed)
    if not isinstance(read, Version):
        raise TypeError(f"{read!r:.60} is no version")
    return plan.with_settings(version=read)


class Told:
    """A site's half. version: the newest that it was told."""

    def __init__(self, plan: Plan) -> None:
        """plan: unpacked."""
        self._version: Version | None = plan.version

    def whole(self, event: Event) -> Event:
        """The event as the driver meant it. Raises as `unpacked` does."""
        if not isinstance(event, (PlanProposed, PlanCommitted)) or event.plan.version is None:
            return event
        plan = unpacked(event.plan)
        if plan.version is not None and plan.version.steps:
            self._version = plan.version
            return replace(event, plan=plan)
        return replace(event, plan=event.plan.with_settings(version=self._version))
