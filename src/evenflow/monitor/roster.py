"""The list of sites as the view shows it: who is there and as what, and for a while those that have died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from evenflow.coordinator.hosting import Hosting
from evenflow.monitor.summary import Progress, number

DEAD_SHOWN_S: Final = 20.0
STARTING: Final = "starting"
DEAD: Final = "dead"
LEAVING: Final = "leaving"
LEFT: Final = "left"


class Roster:
    """Told what a run says, four times a second. rows: one per site, ascending: what `run.progress()` says of it, and `role`, `partitions`,
    `coming`. One that is dead or has left stays for DEAD_SHOWN_S as it was last seen.
    """

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []
        self._last: dict[int, Mapping[str, Any]] = {}

    def update(self, progress: Progress, hosting: Mapping[int, Hosting], events: Sequence[Mapping[str, Any]]) -> None:
        now_s = number(progress, "seconds") or 0.0
        lost = {event["site"]: event["at_s"] for event in events if event["kind"] in ("site_lost", "site_left")}
        left = {event["site"] for event in events if event["kind"] == "site_left"}
        for site in progress.get("sites") or ():
            hosted = hosting.get(site.get("site", -1))
            # A site that the run does not know yet is still getting ready; without knowledge of any there is nothing to tell.
            role: str | None = hosted.role if hosted is not None else STARTING if hosting else None
            role = LEAVING if site.get("leaving") else role
            partitions, coming = (hosted.partitions, hosted.coming) if hosted is not None else (None, None)
            self._last[site.get("site", -1)] = {**site, "role": role, "partitions": partitions, "coming": coming}
        there = {site.get("site", -1) for site in progress.get("sites") or ()}
        rows: list[Mapping[str, Any]] = []
        for index in sorted(self._last):
            if index in lost:
                if now_s - lost[index] <= DEAD_SHOWN_S:
                    rows.append({**self._last[index], "role": LEFT if index in left else DEAD, "coming": None, "at_s": lost[index]})
            elif index in there:
                rows.append(self._last[index])
        self.rows = rows
