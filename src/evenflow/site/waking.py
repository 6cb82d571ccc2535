"""Waking: when the ingress of a site has to look again whether an epoch closes (protocol E5, E6).

Either rows have waited for long enough, or a timer of processing time comes: then an epoch closes even if there are no rows, whose stamp
is what makes that timer come, at all replicas in the same epoch. Every site says with its acknowledgements when the next one of its own
comes; the sites that cut epochs see to it, by their own clocks, which make the stamps.
"""

from __future__ import annotations

from evenflow.exchange.section import NEVER_US
from evenflow.site.events import SetTimer
from evenflow.site.ground import Ground


class Waking:
    """Sets the timers of a part that leads ingress partitions."""

    def __init__(self, part: Ground) -> None:
        self._part = part
        self._linger_us: int | None = None
        self._wake_us: int | None = None

    def passed(self, name: str) -> None:
        """A timer that was set here has fired."""
        if name == "linger":
            self._linger_us = None
        else:
            self._wake_us = None

    def demand(self) -> None:
        """Close an epoch for a timer that comes now, or look again when the next one does."""
        part, due = self._part, self._part.credit.due_after(self._part.ingress.stamp)
        if due == NEVER_US:
            return
        if part.ingress.time_us(part.now_us) >= due:
            part.ingress.want(part.ingress.closed + 1)
        elif due != self._wake_us:
            self._wake_us = due
            part.act(SetTimer("wake", part.ingress.clock_us(due, part.now_us)))

    def soon(self, due_us: int) -> bool:
        """A timer comes here before an acknowledgement that waits for a message to travel with would have said so."""
        return due_us != NEVER_US and due_us - self._part.now_us < 2000 * self._part.options.ack_ms

    def wait_for_rows(self) -> None:
        """Look again when the rows that wait have waited for long enough."""
        due = self._part.ingress.linger_due_us
        if due is not None and due > self._part.now_us and self._linger_us is None:
            self._linger_us = due
            self._part.act(SetTimer("linger", due))


class GridWaking(Waking):
    """Where sources are cut by content epochs come by themselves, with the stamps of their grid: nobody need wish for one (E11)."""

    def demand(self) -> None:
        """Nothing: the epoch whose stamp a timer waits for closes when its time has come."""
