"""What sinks have stored, for who comes to host an egress segment later (protocol O1).

Hosts hold what a sink has not stored, which holds the ingress back. A sink may store an epoch when nobody who gave it lives any more:
whoever begins again then gives it once more, and nobody will take it. So a site hears with each plan what has been stored until then.
"""

from __future__ import annotations

from collections.abc import Iterator

from evenflow.plan.plan import Plan
from evenflow.site.events import PlanCommitted, SinkCommitted
from evenflow.stream.ids import SiteId


class Stored:
    """_through: by egress segment, the last epoch that its sink has stored in this generation of the run."""

    def __init__(self) -> None:
        self._through: dict[int, int] = {}

    def note(self, plan: Plan, segment: int, epoch: int) -> Iterator[tuple[SiteId, SinkCommitted]]:
        """A sink has stored the epochs up to this one. Returns who is to hear of it."""
        self._through[segment] = epoch
        return ((host, SinkCommitted(segment, epoch)) for host in plan.hosts(segment))

    def behind(self, site: SiteId, message: object) -> list[SinkCommitted]:
        """What a site is to hear behind this message of the coordinator."""
        if not isinstance(message, PlanCommitted):
            return []
        return [SinkCommitted(segment, epoch) for segment, epoch in self._through.items() if site in message.plan.hosts(segment)]
