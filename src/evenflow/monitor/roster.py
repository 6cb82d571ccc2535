"""The list of sites as the view shows it: who is there and as what, and for a while those that have died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from evenflow.coordinator.hosting import Hosting
from evenflow.statistics.progress import Progress, SiteProgress

DEAD_SHOWN_S: Final = 20.0
STARTING: Final = "starting"
DEAD: Final = "dead"
LEAVING: Final = "leaving"
LEFT: Final = "left"


@dataclass(frozen=True, slots=True)
class Row:
    """A site in the list. told: what the run said of it last. role: as what it is shown; partitions: replicas that count; coming: those
    under way to it. None: not known."""

    told: SiteProgress
    role: str | None
    partitions: int | None
    coming: int | None


class Roster:
    """Told what a run says, four times a second. rows: one per site, ascending. One that is dead or has left stays for DEAD_SHOWN_S as it
    was last seen.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._last: dict[int, Row] = {}
        self._gone: dict[int, tuple[str, float]] = {}

    def update(self, progress: Progress, hosting: Mapping[int, Hosting], news: Sequence[Mapping[str, Any]]) -> None:
        """news: what has happened since the last time."""
        for role_then, kind in ((DEAD, "site_lost"), (LEFT, "site_left")):
            self._gone |= {event["site"]: (role_then, event["at_s"]) for event in news if event["kind"] == kind}
        for site in progress.sites:
            hosted = hosting.get(site.site)
            # A site that the run does not know yet is still getting ready; without knowledge of any there is nothing to tell.
            role: str | None = hosted.role if hosted is not None else STARTING if hosting else None
            role = LEAVING if site.leaving else role
            partitions, coming = (hosted.partitions, hosted.coming) if hosted is not None else (None, None)
            self._last[site.site] = Row(site, role, partitions, coming)
        there = {site.site for site in progress.sites}
        rows: list[Row] = []
        for index in sorted(self._last):
            if index in self._gone:
                role, at_s = self._gone[index]
                if progress.seconds - at_s <= DEAD_SHOWN_S:
                    rows.append(replace(self._last[index], role=role, coming=None))
                else:
                    del self._last[index]
            elif index in there:
                rows.append(self._last[index])
        self.rows = rows
