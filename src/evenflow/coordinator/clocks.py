"""A driver's clock against the times in its journal, for people: when it is behind them, by how much, and what comes of it.

Stamps of epochs never go back. Where another driver's clock was ahead, or this one was put back, they go on behind the newest there is,
half as fast as the clock, until that has caught up (`Ingress.time_us`). No row is affected, but what waits for a time waits for longer.
"""

from __future__ import annotations

from typing import Final

from evenflow.coordinator.events import Happened, Kind
from evenflow.site.view import NOBODY

TOLD_US: Final = 1_000_000
"""Clocks of machines are never quite equal: a person is told from here on."""


def behind_us(stamp: int, now_us: int) -> int:
    """How far the clock is behind the newest stamp; 0 if it is not, or there is none."""
    return max(0, stamp - now_us) if stamp else 0


def told_behind(stamp: int, now_us: int) -> Happened | None:
    """What a person is told when a driver goes on where the newest stamp is this one. None if there is nothing to say."""
    found_us = behind_us(stamp, now_us)
    if found_us < TOLD_US:
        return None
    text = (
        f"this driver's clock is {_about(found_us)} behind the newest time in the journal: another driver's was ahead, or this one was put "
        f"back. Until it has caught up, in {_about(2 * found_us)}, time goes by half as fast: timers of processing time, commits every so "
        "often, and what is kept for a time take twice as long. No row is lost or altered by it. If this clock is wrong, set it right"
    )
    return Happened(Kind.CLOCK_BEHIND, NOBODY, text, {"behind_s": round(found_us / 1e6, 3)})


def _about(span_us: int) -> str:
    """As people say it."""
    seconds = span_us / 1e6
    for limit, unit, name in ((120, 1, "s"), (7_200, 60, "minutes"), (172_800, 3_600, "hours")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} days"
