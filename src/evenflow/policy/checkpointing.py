"""Which unit a site captures, or which capture it pastes, when it has time for it (P6; HW 4.3).

A **checkpoint unit**, unit for short here, is what is captured at once. If its site dies, the site that backs it up has to paste what is
pending of it and to take in again what it was given since its last capture: together R_u, its recovery time. The recovery of a site takes
as long as that of the backup with most to do, so **min-max** captures what relieves that one. `round_robin` and `whole` are what it is
compared with.

Times are CPU-seconds of an otherwise idle site unless they are called seconds of a clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from evenflow.stream.ids import SiteId


@dataclass(frozen=True, slots=True)
class CheckpointUnit:
    """What a site knows of a checkpoint unit of its own.

    number: its name. backup: the site that backs it up. load: CPU-seconds a second that it takes, l_u. behind_s: what it has taken since
    the start of the last capture that its backup has got, delta_u. pending_s: what its backup has yet to paste, gamma_u. capture_s,
    paste_s: what a capture would take now, here and there, c_u and c'_u. since_s: on a clock, when it could first be captured again;
    None while a capture of it is under way or not yet pasted.
    """

    number: int
    backup: SiteId
    load: float
    behind_s: float
    pending_s: float
    capture_s: float
    paste_s: float
    since_s: float | None

    def recovery_s(self, later_s: float = 0.0) -> float:
        """R_u, so many seconds from now (HW 4.3)."""
        return self.pending_s + self.behind_s + self.load * later_s

    @property
    def gain_s(self) -> float:
        """What capturing it now takes off its recovery: rows not taken in again, less the paste, Delta R_u (HW 4.3.1)."""
        return self.behind_s - self.paste_s


@dataclass(frozen=True, slots=True)
class Pending:
    """The oldest capture that a site has got from `primary` and has not pasted.

    unit: whose. paste_s: what pasting takes. since_s: on a clock, when it came. recovery_s, load: of all units of `primary` that are
    backed up here, now.
    """

    primary: SiteId
    unit: int
    paste_s: float
    since_s: float
    recovery_s: float
    load: float

    def pasted_s(self, busy: float) -> float:
        """Recovery of the primary's units here when this is pasted, beside what keeps this site `busy` (HW 4.8.2)."""
        return self.recovery_s - self.paste_s + self.load * self.paste_s / max(1 - busy, LEAST_IDLE)


LEAST_IDLE: Final = 0.01
"""Share of a site that it is taken to have for captures, however busy it is."""


@dataclass(frozen=True, slots=True)
class Capture:
    """Capture these units now, as one."""

    units: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Paste:
    """Paste the oldest capture that is here from this site."""

    primary: SiteId


Task = Capture | Paste | None
Schedule = Callable[[Sequence[CheckpointUnit], Sequence[Pending], float], Task]
"""Units of a site, the oldest capture that it has from each other site, and the share of it that rows take; to what it does next."""


def recovery_by_backup(units: Sequence[CheckpointUnit], later_s: float = 0.0) -> dict[SiteId, float]:
    """What each backup would have to do if the site of these units died so many seconds from now."""
    found: dict[SiteId, float] = defaultdict(float)
    for unit in units:
        found[unit.backup] += unit.recovery_s(later_s)
    return dict(found)


def recovery_s(units: Sequence[CheckpointUnit]) -> float:
    """How long the recovery of a site with these units takes, R_Qi: as long as the backup with most to do (HW 4.1)."""
    return max(recovery_by_backup(units).values(), default=0.0)


def burst_s(capture_s: float, load: float) -> float:
    """Seconds that a site of this load needs after a capture until it has caught up with what came meanwhile (HW 4.3.1)."""
    return capture_s * load / (1 - load)


def min_max(units: Sequence[CheckpointUnit], pending: Sequence[Pending], busy: float) -> Task:
    """What helps recovery most (algorithm 1, HW 4.3.3).

    Of the units whose backup has most to do by the time when their capture ends, the one that gains most for what it costs; unless another
    site's recovery here, with its oldest capture pasted, would still take longer: then that is pasted. If the backup with most to do has
    no unit that can be captured, nothing is: another capture would only delay the rows. Ties break by number.
    """
    free = [unit for unit in units if unit.since_s is not None]
    worst = [unit for unit in free if _has_most(unit, units)]
    best = max(worst, key=lambda unit: (unit.gain_s / max(unit.capture_s, _LEAST_S), -unit.number), default=None)
    after = -1.0
    if best is not None:
        after = recovery_by_backup(units, best.capture_s)[best.backup] - best.gain_s
    paste = max(pending, key=lambda each: (each.pasted_s(busy), -each.primary), default=None)
    if paste is not None and paste.pasted_s(busy) > after:
        return Paste(paste.primary)
    return None if best is None or best.gain_s <= 0 else Capture((best.number,))


_LEAST_S: Final = 1e-9


def _has_most(unit: CheckpointUnit, units: Sequence[CheckpointUnit]) -> bool:
    """Whether no other backup has more to do by the time when a capture of this unit would end."""
    by_backup = recovery_by_backup(units, unit.capture_s)
    return by_backup[unit.backup] >= max(by_backup.values())


def round_robin(units: Sequence[CheckpointUnit], pending: Sequence[Pending], busy: float) -> Task:
    """What has waited longest, capture or paste."""
    unit = min((each for each in units if each.since_s is not None), key=lambda each: (each.since_s, each.number), default=None)
    paste = min(pending, key=lambda each: (each.since_s, each.primary), default=None)
    if paste is not None and (unit is None or unit.since_s is None or paste.since_s <= unit.since_s):
        return Paste(paste.primary)
    return None if unit is None else Capture((unit.number,))


def whole(units: Sequence[CheckpointUnit], pending: Sequence[Pending], busy: float) -> Task:
    """All that the site has at once, when all of it can be; else what has waited longest to be pasted."""
    paste = min(pending, key=lambda each: (each.since_s, each.primary), default=None)
    if paste is not None:
        return Paste(paste.primary)
    if units and all(unit.since_s is not None for unit in units):
        return Capture(tuple(unit.number for unit in units))
    return None


SCHEDULES: Final[Mapping[str, Schedule]] = {"min_max": min_max, "round_robin": round_robin, "whole": whole}


@dataclass(frozen=True, slots=True)
class Sample:
    """What a capture or a paste took, and how many rows in it were new and how many had been there before."""

    new: int
    updated: int
    took_s: float


@dataclass(frozen=True, slots=True)
class RowCosts:
    """CPU-seconds of a row that is new, and of one that is updated (HW 4.5.1)."""

    new_s: float = 0.0
    updated_s: float = 0.0

    def of(self, new: int, updated: int) -> float:
        return new * self.new_s + updated * self.updated_s


def row_costs(samples: Sequence[Sample]) -> RowCosts:
    """The costs that explain the samples best, by least squares; none below nothing.

    Where samples cannot tell new rows from updated ones, because all had them in the same proportion, a row costs the same whichever it is.
    """
    rows = np.array([(sample.new, sample.updated) for sample in samples], np.float64).reshape(-1, 2)
    took = np.array([sample.took_s for sample in samples], np.float64)
    if rows.sum() == 0:
        return RowCosts()
    if np.linalg.matrix_rank(rows) == 2:
        new_s, updated_s = (float(cost) for cost in np.linalg.lstsq(rows, took, rcond=None)[0])
        if new_s >= 0 and updated_s >= 0:
            return RowCosts(new_s, updated_s)
        # One of the two is nothing then, and the other is what it is by itself.
        one = 1 if new_s < 0 else 0
        alone = max(0.0, float(rows[:, one] @ took / (rows[:, one] @ rows[:, one])))
        return RowCosts(0.0, alone) if one else RowCosts(alone, 0.0)
    each = float(took.sum() / rows.sum())
    return RowCosts(each, each)
