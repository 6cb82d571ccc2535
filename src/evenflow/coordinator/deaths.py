"""Deaths in user code: the second one at the same place ends the run (protocol T2, E3). Decides; who died where is the world's to say.

Replicas do the same at the same epoch. So a row on which a user's function ends its process (`os._exit`, a crash in a library, memory)
ends the process of every replica that meets it, and of every site that gets a copy. One death may have any reason; a second one in the same
box, the same epoch and a partition that both sites had is the row's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evenflow.coordinator.events import SiteLost
from evenflow.errors import DriverAway, EvenflowError, PartitionsLost, UserCodeCrashed
from evenflow.plan.layout import Layout
from evenflow.site.view import View
from evenflow.stream.ids import SiteId


@dataclass(frozen=True, slots=True)
class _Death:
    site: SiteId
    partitions: frozenset[int]


class Deaths:
    """view: the coordinator's, shared, still with the site of which is asked."""

    def __init__(self, layout: Layout, view: View) -> None:
        self._layout, self._view = layout, view
        self._by_place: dict[tuple[int, int], list[_Death]] = {}

    def remember(self, before: Deaths) -> None:
        """Those of the generation before: its epochs are made again, and a row on which a process ends is among them again."""
        self._by_place = {place: list(deaths) for place, deaths in before._by_place.items()}

    def words(self, event: SiteLost) -> str:
        """Why it is lost, with what it was doing."""
        places = [f"box {self._boxes(segment)}, epoch {epoch}" for segment, epoch in event.doing]
        why = f"{event.why}. It was running user code: {'; '.join(places)}" if places else event.why
        away = event.absence
        return why if away is None else f"{why}. The driver was away for {away.away_s:.1f} s; sites live {away.lease_s:g} s without it"

    def note(self, event: SiteLost) -> UserCodeCrashed | None:
        """A site is lost. Returns the error that ends the run, if another one died at the same place before."""
        found = None
        for segment, epoch in event.doing if event.absence is None else ():
            mine = frozenset(p for block in self._view.blocks(segment) if event.site in block.sites for p in block.partitions)
            others = self._by_place.setdefault((segment, epoch), [])
            twin = next((other for other in others if other.partitions & mine and other.site != event.site), None)
            others.append(_Death(event.site, mine))
            if twin is not None and found is None:
                name, common = self._layout.segments[segment].name, tuple(sorted(twin.partitions & mine))
                found = UserCodeCrashed(self._boxes(segment), epoch, name, common, (twin.site, event.site), event.why)
        return found

    def lost(self, event: SiteLost, why: str, partitions: Mapping[str, tuple[int, ...]], replicas: int, seen: int) -> EvenflowError:
        """Partitions are gone; if the driver was away for too long, all the sites have ended of that. seen: the newest epoch heard of."""
        if (absence := event.absence) is not None:
            return DriverAway(absence.away_s, absence.lease_s, seen)
        return PartitionsLost(event.site, why, partitions, seen, replicas)

    def _boxes(self, segment: int) -> str:
        """The boxes of a segment that call user code; which of several it was, nobody has said."""
        described = self._layout.segments[segment]
        return " or ".join(dict.fromkeys(step.box for step in described.steps if step.user_code)) or described.name
