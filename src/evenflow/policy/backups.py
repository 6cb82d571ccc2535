"""Which site backs up which checkpoint unit, and what is changed about it when a cycle of captures is over (P6; HW 4.4).

A site never backs itself up. Where there are several machines a unit's backup is on another one than the unit, and a site without room for
the image is not chosen. Both functions are pure: equal inputs give equal assignments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from evenflow.stream.ids import SiteId


@dataclass(frozen=True, slots=True)
class Backed:
    """A checkpoint unit and what is known of it over the last cycle.

    number: its name. primary: the site that it runs at. backup: the one that backs it up; None if none does yet. recovery_s: mean recovery
    time, CPU-seconds. work_s: CPU-seconds that went into its image, h_u. image_bytes: room that its image takes.
    """

    number: int
    primary: SiteId
    backup: SiteId | None
    recovery_s: float = 0.0
    work_s: float = 0.0
    image_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Sites:
    """Those that are alive. host: name of the machine of each. free_bytes: room for images; without an entry: no budget."""

    host: Mapping[SiteId, str]
    free_bytes: Mapping[SiteId, int] = field(default_factory=dict)

    def may(self, unit: Backed, backup: SiteId, taken: int = 0) -> bool:
        """Whether `backup` can back up this unit, when `taken` bytes of its room are given away."""
        if backup == unit.primary or backup not in self.host:
            return False
        if len(set(self.host.values())) > 1 and self.host[backup] == self.host.get(unit.primary):
            return False
        room = self.free_bytes.get(backup)
        return room is None or taken + unit.image_bytes <= room


class Reassigned(NamedTuple):
    """From now on this site backs up the unit; its next capture there is a whole one. before: who did."""

    unit: int
    before: SiteId | None
    backup: SiteId


def volunteers(units: Sequence[Backed], sites: Sites) -> tuple[Reassigned, ...]:
    """A backup for each unit that has none, or has one that is gone: each to the site that does least for others (HW 4.4).

    A unit that nobody can back up stays without one. The unit with most work comes first; ties break by number.
    """
    work: dict[SiteId, float] = dict.fromkeys(sorted(sites.host), 0.0)
    of_primary: dict[tuple[SiteId, SiteId], int] = defaultdict(int)
    for unit in units:
        if unit.backup in work:
            work[unit.backup] += unit.work_s
            of_primary[unit.primary, unit.backup] += 1
    taken: dict[SiteId, int] = defaultdict(int)
    found = []
    for unit in sorted((unit for unit in units if unit.backup not in work), key=lambda unit: (-unit.work_s, unit.number)):
        able = [site for site in work if sites.may(unit, site, taken[site])]
        if not able:
            continue
        chosen = min(able, key=lambda site: (of_primary[unit.primary, site], work[site], (site - unit.primary) % (max(work) + 1)))
        found.append(Reassigned(unit.number, unit.backup, chosen))
        work[chosen] += unit.work_s
        taken[chosen] += unit.image_bytes
        of_primary[unit.primary, chosen] += 1
    return tuple(found)


def reassign(units: Sequence[Backed], sites: Sites) -> tuple[Reassigned, ...]:
    """What is changed at the end of a cycle (algorithm 2, HW 4.4.2): the site whose recovery would take longest is helped; if it cannot
    be, the next one.

    If one of its backups has less to do for it than the recovery of the best prepared site takes, its units are spread unevenly, and it
    moves some from the backup with most to do for it to that one. Otherwise it backs up too much for others, and the site for which it has
    most to do, beyond what the best prepared site does for that, moves units there. Units keep their backups if no move helps.
    """
    segments: dict[tuple[SiteId, SiteId], float] = defaultdict(float)
    for unit in units:
        if unit.backup is not None and unit.backup in sites.host:
            segments[unit.primary, unit.backup] += unit.recovery_s
    primaries = sorted({unit.primary for unit in units} & set(sites.host))
    if not segments or len(sites.host) < 2 or not primaries:
        return ()
    of_site = {site: max((segments.get((site, other), 0.0) for other in sites.host), default=0.0) for site in primaries}
    best = min(primaries, key=lambda site: (of_site[site], site))
    helped = (_help(worst, best, units, sites, segments, of_site) for worst in sorted(primaries, key=lambda site: (-of_site[site], site)))
    return next((moves for moves in helped if moves), ())


def _help(
    worst: SiteId,
    best: SiteId,
    units: Sequence[Backed],
    sites: Sites,
    segments: Mapping[tuple[SiteId, SiteId], float],
    of_site: Mapping[SiteId, float],
) -> tuple[Reassigned, ...]:
    """Lines 2 to 11 of algorithm 2, for one worst point of failure."""
    others = [site for site in sorted(sites.host) if site != worst]
    most = max(others, key=lambda site: (segments.get((worst, site), 0.0), -site))
    least = min(
        others, key=lambda site: (segments.get((worst, site), 0.0), sum(unit.work_s for unit in units if unit.backup == site), site)
    )
    if segments.get((worst, least), 0.0) < of_site[best]:
        return _move(units, sites, segments, worst, most, least)
    donors = [site for site in sorted(of_site) if site not in (worst, best)]
    if not donors or worst == best:
        return ()
    donor = max(donors, key=lambda site: (segments.get((site, worst), 0.0) - segments.get((site, best), 0.0), -site))
    return _move(units, sites, segments, donor, worst, best)


def _move(
    units: Sequence[Backed], sites: Sites, segments: Mapping[tuple[SiteId, SiteId], float], primary: SiteId, source: SiteId, target: SiteId
) -> tuple[Reassigned, ...]:
    """Units of `primary` that `target` backs up instead of `source`: at most what makes up the difference in work (HW 4.4.2, line 14), and
    each only if it leaves both with less to do than `source` had, or, where it would be the only one either way, relieves the busier site.

    Without that condition two equal units would change places for ever, as the whole difference moves.
    """
    there, here = segments.get((primary, source), 0.0), segments.get((primary, target), 0.0)
    mine = [unit for unit in units if unit.primary == primary and unit.backup == source]
    left = (there - here) / there * sum(unit.work_s for unit in mine) if there > here else 0.0
    busy, idle = (sum(unit.work_s for unit in units if unit.backup == site) for site in (source, target))
    taken, most, found = 0, there, []
    for unit in sorted(mine, key=lambda unit: (-unit.work_s, unit.number)):
        after = max(there - unit.recovery_s, here + unit.recovery_s)
        helps = after < most or (after <= most and idle + unit.work_s < busy)
        if 0 < unit.work_s <= left and helps and sites.may(unit, target, taken):
            left, taken = left - unit.work_s, taken + unit.image_bytes
            there, here = there - unit.recovery_s, here + unit.recovery_s
            busy, idle = busy - unit.work_s, idle + unit.work_s
            most = max(there, here)
            found.append(Reassigned(unit.number, source, target))
    return tuple(found)
