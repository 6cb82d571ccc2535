"""Hedging: when to ask a second leg for what the first one is late with, and when not to (A7; the same for regions, W3 and W6).

A leg is one of several ways to the same epochs. Asking all of them always costs as many times the bandwidth; asking a second one only when
the first is later than it usually is costs little and cuts the tail (Dean and Barroso, The Tail at Scale, 2013). Three things keep it
little: what is late is judged by the leg's own past, a budget bounds how often, and where every leg is late nobody is asked.

Pure: time comes as an argument, and whoever asks acts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

MOST_US: Final = 50_000
"""Nobody waits longer for a leg before he asks another one."""
SHARE: Final = 0.95
REMEMBERED: Final = 256
"""Delays of a leg by which it is judged."""
ALLOWED: Final = 0.05
"""So many epochs may be asked for twice."""
KEPT_ON: Final = 16
"""Epochs for which both legs stay on; then the slower one goes off."""
SAVED: Final = 2 * KEPT_ON
"""Most that is saved up of what was allowed and not used."""

Leg = TypeVar("Leg", bound=Hashable)


def hedge_us(delays_us: Sequence[int]) -> int:
    """How long to wait for a leg: the 95th of a hundred of its delays behind the first, at most MOST_US; that, if none is known."""
    if not delays_us:
        return MOST_US
    ascending = sorted(delays_us)
    return min(MOST_US, ascending[min(len(ascending) - 1, int(SHARE * len(ascending)))])


@dataclass(slots=True)
class Delays:
    """How late a leg was, epoch by epoch, behind whoever was first to show that it exists. _limit_us: `hedge_us`, if known."""

    _delays_us: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _limit_us: int | None = None

    def note(self, delay_us: int) -> None:
        """delay_us: >= 0, of one more epoch."""
        self._delays_us.append(delay_us)
        self._limit_us = None

    @property
    def hedge_us(self) -> int:
        if self._limit_us is None:
            self._limit_us = hedge_us(self._delays_us)
        return self._limit_us


@dataclass(slots=True)
class Budget:
    """How many epochs may still be asked for twice: a share of all, of which some can be saved up. left: now, in epochs."""

    allowed: float = ALLOWED
    left: float = float(KEPT_ON)

    def pass_on(self, epochs: int = 1) -> None:
        """So many more epochs have come."""
        self.left = min(float(SAVED), self.left + epochs * self.allowed)

    def take(self, epochs: int = 1) -> bool:
        """So many epochs are asked for twice, if there is room for it."""
        if self.left < epochs:
            return False
        self.left -= epochs
        return True


def late(exists_since_us: Mapping[Leg, int | None], limits_us: Mapping[Leg, int], now_us: int) -> tuple[Leg, ...]:
    """The legs that are late with their next epoch, and should be hedged, in the order given.

    exists_since_us: by leg, since when it is known that its next epoch exists, None: it is not known, so nothing is late. limits_us: by
    leg, `hedge_us`. None if all are late: then the site that asks is, or everybody is, and to ask for more makes it worse.
    """
    found = tuple(leg for leg, since_us in exists_since_us.items() if since_us is not None and now_us - since_us >= limits_us[leg])
    return () if len(found) == len(exists_since_us) > 1 else found


def next_look_us(exists_since_us: Mapping[Leg, int | None], limits_us: Mapping[Leg, int], now_us: int) -> int | None:
    """When a leg becomes late that is not yet, if nothing comes; None: none does."""
    due = [since_us + limits_us[leg] for leg, since_us in exists_since_us.items() if since_us is not None]
    return min([at_us for at_us in due if at_us > now_us], default=None)


def slower(firsts: Mapping[Leg, int], own: Leg) -> Leg:
    """Of legs that were both on for a while, the one to turn off. firsts: by leg, in how many of these epochs it was first. own: kept if
    they are equal."""
    return min(firsts, key=lambda leg: (firsts[leg], leg == own))
